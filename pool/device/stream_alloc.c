/* SPDX-License-Identifier: MIT */
/*
 * stream_alloc.c - stream-ordered memory (cudaMallocAsync, cudaFreeAsync) comes from
 * the pool of its context as all other memory does, with one thing more: the stream.
 *
 * WHY REUSE IN THE SAME STREAM NEEDS NO FENCE. A program must not touch a block any
 * more once its stream reaches the free, nor before its stream reaches the allocation
 * (CUDA C++ Programming Guide, "Stream Ordered Memory Allocator"). If both are in one
 * stream, and the allocation is called after the free:
 *
 *      work that uses the old block -> free in s -> allocation in s -> work that uses
 *                                                                      the new block
 *
 * where each arrow is an order that the program itself has made, or the stream. That
 * is how plain CUDA reuses memory, too. Everywhere else the block is as any other: it
 * is stamped with the open epoch, whose fence covers all that was submitted before the
 * free, and so the work that the free follows in its stream.
 *
 * A stream is known by its id, which no other stream of the process ever has: a new
 * stream with the handle of one that is gone begins with no blocks. 0 is no stream.
 *
 * NO NEW WAITS (fence.c). cudaFreeAsync does not wait on plain CUDA, and cudaFree of
 * such a block does not either: the driver relies on the program to have waited. So no
 * barrier is ever set on an epoch because of these frees: gcp_timeline_close_early.
 * Plain CUDA gives such a block out at once, to any stream, whatever still runs. Here
 * it counts as freed in the stream that it was allocated in.
 *
 * A thread keeps the blocks that it freed, by stream and size, within the bound of its
 * cache (cache.c); what is beyond goes to the heap, marked with its stream, and
 * waits there for its epoch or for that stream.
 *
 * Rules of stream-ordered memory:
 *  U1 memory that waits serves the stream of its free, or one that is put behind it
 *  U2 only a free in a stream of the block's own context gives it to that stream
 *  U3 a stream is known by its id, not by its handle
 *  U4 a stream that captures gets memory of CUDA
 *  U5 an allocation that takes what another stream freed is an operation of its own
 */
#include "../reclaim/reclaim.h"

/* --- free --------------------------------------------------------------------- */

/* The block goes to the heap at once, with the counts of it. */
static void block_to_heap(struct gcp_pool *pool, struct gcp_block *block,
			  uint64_t stream)
{
	uint64_t size = block->size;

	block->async = false;
	block->stream = stream;
	(void)gcp_timeline_fill(pool, (int64_t)size, (int64_t)size);
	GCP_LOCKED(&pool->lock);
	gcp_stats_delta_async(&pool->delta, -(int64_t)block->requested);
	gcp_stats_delta_count(&pool->delta, -1, block->requested, size);
	gcp_stats_merge(pool, &pool->delta);
	gcp_heap_put(&pool->common, block);
}

/* Whether the cache limit is to be looked at though the epoch is not full: it may never
 * be, where each allocation takes what its stream has freed. */
static bool limit_is_due(struct gcp_pool *pool, uint64_t bytes)
{
	if (__builtin_expect(pool->cache_limit == GCP_LIMIT_NONE, 1))
		return false;
	bytes += atomic_fetch_add(&pool->limit_freed, bytes);
	if (pool->cache_limit > 0 && bytes < GCP_LIMIT(pool, epoch_bytes))
		return false;
	atomic_store_explicit(&pool->limit_freed, 0, memory_order_relaxed);
	return true;
}

/* A block of the open epoch does not wait for it any more. Parts of it may have been
 * freed into older ones: what was added up never goes below zero. */
static void epoch_drain(struct gcp_pool *pool, const struct gcp_block *block)
{
	int64_t size = (int64_t)block->size;

	if (block->epoch ==
		atomic_load_explicit(&pool->timeline.open, memory_order_relaxed) &&
	    gcp_timeline_filled(&pool->timeline) >= size)
		(void)gcp_timeline_fill(pool, -size, 0);
}

int gcp_stream_free(struct gcp_pool *pool, struct gcp_block *block, uint64_t stream)
{
	struct gcp_cache *cache = stream ? gcp_cache_of_thread(pool) : NULL;
	struct gcp_chain excess;
	bool due = limit_is_due(pool, block->size);
	/* An epoch is closed when a free finds it full already: what the stream takes
	 * again before that leaves it as it was, and one large block that goes back
	 * and forth needs no fence. */
	bool filled = gcp_timeline_filled(&pool->timeline) >=
		      (int64_t)GCP_LIMIT(pool, epoch_bytes);
	int result = 0;

	assert(block->async); /* U1: else its uses are in no stream's order */
	gcp_chain_init(&excess);
	block->epoch = gcp_timeline_stamp_behind_rmw(pool);
	if (!cache || !gcp_cache_put_streamed(cache, stream, block, &excess))
		block_to_heap(pool, block, stream);
	gcp_chain_to_heap(pool, &excess);
	if (filled || due)
		result = gcp_timeline_close_early(pool, !due);
	if ((filled || due) && result == 0)
		gcp_pool_maintain_gently(pool);
	return result;
}

/* --- allocate ----------------------------------------------------------------- */

/* A block that came by the way of any other allocation, for that stream. */
static void block_is_async(struct gcp_pool *pool, struct gcp_block *block,
			   uint64_t stream, uint64_t requested)
{
	struct gcp_cache *cache = gcp_cache_of_thread(pool);

	block->async = true;
	block->stream = stream;
	if (cache) {
		gcp_owner_lock(&cache->own);
		gcp_cache_number(cache, block);
		gcp_stats_delta_async(&cache->delta, (int64_t)requested);
		gcp_owner_unlock(&cache->own);
		return;
	}
	block->serial = atomic_fetch_add_explicit(&pool->pools->serials, GCP_SERIALS,
						  memory_order_relaxed);
	GCP_LOCKED(&pool->lock);
	gcp_stats_delta_async(&pool->delta, (int64_t)requested);
	gcp_stats_merge(pool, &pool->delta);
}

/* Takes what was freed in the other stream, if there is one. */
static bool take_crossing(struct gcp_request *request, struct gcp_stream_order *order)
{
	request->stream = order->also;
	order->crossed = order->also && gcp_take_ready(request);
	request->stream = order->stream;
	return order->crossed;
}

static int alloc_slow(struct gcp_pool *pool, struct gcp_request *request,
		      struct gcp_stream_order *order, gcp_addr *ret_addr)
{
	int result = 0;

	if (gcp_take_cached(request) || (request->stream && gcp_take_ready(request)) ||
	    take_crossing(request, order)) {
		epoch_drain(pool, request->block);
		*ret_addr = request->block->addr;
	} else {
		result = gcp_alloc_slow(request, ret_addr);
	}
	if (result == 0)
		block_is_async(pool, request->block, order->named ? 0 : order->stream,
			       request->bytes);
	return result;
}

int gcp_pool_alloc_stream(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			  struct gcp_stream_order *order, gcp_addr *ret_addr)
{
	struct gcp_block *block = NULL;
	struct gcp_request request;
	int result = gcp_request_init(&request, &pool->common, bytes + margin);

	if (result != 0)
		return result;
	request.bytes = bytes;
	request.stream = order->stream;
	order->crossed = false;
	struct gcp_cache *cache = order->stream ? gcp_cache_of_thread(pool) : NULL;
	if (cache)
		block =
		    gcp_cache_take_streamed(cache, order->stream, request.size, bytes);
	if (!block && cache && order->also) {
		block =
		    gcp_cache_take_streamed(cache, order->also, request.size, bytes);
		order->crossed = block;
	}
	if (!block)
		return alloc_slow(pool, &request, order, ret_addr);
	block->stream = order->named ? 0 : order->stream;
	*ret_addr = block->addr;
	return 0;
}
