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

/* The block goes to the heap at once, with the counts of it. pool->lock is held. */
static void block_to_heap(struct gcp_pool *pool, struct gcp_block *block,
			  uint64_t stream)
{
	uint64_t size = block->size;

	block->async = false;
	block->stream = stream;
	(void)gcp_timeline_fill(pool, (int64_t)size, (int64_t)size);
	gcp_stats_delta_async(&pool->delta, -(int64_t)block->requested);
	gcp_stats_delta_free(&pool->delta, block->requested, size);
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
	GCP_STORE(pool->limit_freed, 0);
	return true;
}

int gcp_stream_free(struct gcp_pool *pool, struct gcp_cache *cache,
		    struct gcp_block *block, uint64_t stream)
{
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
	bool kept =
	    cache && stream && gcp_cache_put_streamed(cache, stream, block, &excess);
	if (kept && !excess.first) {
		gcp_cache_leave(cache);
	} else {
		gcp_pool_enter_heap(pool, cache);
		if (!kept)
			block_to_heap(pool, block, stream);
		gcp_heap_put_chain(&pool->common, &excess);
		gcp_pool_leave(pool, cache);
	}
	if (filled || due)
		result = gcp_timeline_close_early(pool, !due);
	if ((filled || due) && result == 0)
		gcp_pool_maintain_gently(pool);
	return result;
}

/* --- allocate ----------------------------------------------------------------- */

/* Takes what was freed in the other stream, if there is one. */
static bool take_crossing(struct gcp_request *request, struct gcp_stream_order *order)
{
	request->stream = order->also;
	order->crossed = order->also && gcp_take_ready(request);
	request->stream = order->stream;
	return order->crossed;
}

int gcp_pool_alloc_stream(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			  struct gcp_stream_order *order, gcp_addr *ret_addr)
{
	struct gcp_request request;
	int result = gcp_request_init(&request, &pool->common, bytes + margin);

	if (result != 0)
		return result;
	request.bytes = bytes;
	request.stream = order->stream;
	request.async = true;
	request.async_stream = order->named ? 0 : order->stream;
	order->crossed = false;
	struct gcp_cache *cache = order->stream ? gcp_cache_of_thread(pool) : NULL;
	if (cache && gcp_cache_take_streamed(cache, order->stream, &request))
		;
	else if (cache && order->also &&
		 gcp_cache_take_streamed(cache, order->also, &request))
		order->crossed = true;
	else if (!gcp_take_cached(&request) &&
		 !(request.stream && gcp_take_ready(&request)) &&
		 !take_crossing(&request, order))
		return gcp_alloc_slow(&request, ret_addr);
	*ret_addr = request.addr;
	return 0;
}
