/* SPDX-License-Identifier: MIT */
/*
 * stream_cache.c - stream-ordered memory (cudaMallocAsync, cudaFreeAsync) comes from
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
 *
 * A thread keeps the blocks that it freed, by stream and size, within the bound of its
 * cache; what is beyond goes to the heap, marked with its stream, and waits there for
 * its epoch or for that stream (stream_heap.c).
 */
#include "cache.h"

#include <stdlib.h>

enum { BLOCKS_TO_PASS = 4 };

static uint32_t bin_of(uint64_t size)
{
	return (uint32_t)(size / GCP_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 58) %
	       GCP_STREAM_BINS;
}

/* --- take: cache->own is held ------------------------------------------------------
 */

static struct gcp_block *bin_take(struct gcp_block **link, uint64_t size)
{
	for (int i = 0; *link && i < BLOCKS_TO_PASS; i++, link = &(*link)->next) {
		struct gcp_block *block = *link;

		if (block->size != size)
			continue;
		*link = block->next;
		return block;
	}
	return NULL;
}

/* The block becomes the program's. True: the thread should hand over its counts. */
static bool block_give(struct gcp_cache *cache, struct gcp_block *block,
		       uint64_t requested)
{
	struct gcp_stats_delta *delta = &cache->delta;

	__atomic_store_n(&block->requested, requested, __ATOMIC_RELAXED);
	atomic_store_explicit(&block->state, GCP_BLOCK_USED, memory_order_release);
	gcp_stats_delta_async(delta, (int64_t)requested);
	if (gcp_stats_delta_alloc(delta, requested, block->size))
		gcp_stats_delta_raise(delta);
	return delta->net[GCP_STATS_LEVEL_ALLOCATED] > GCP_STATS_LAG;
}

struct gcp_block *gcp_stream_cache_take(struct gcp_cache *cache, uint64_t stream,
					uint64_t size, uint64_t requested)
{
	struct gcp_block *block = NULL;
	bool full = false;

	gcp_owner_lock(&cache->own);
	struct gcp_stream_cache *streamed = cache->streams[stream % GCP_STREAM_SLOTS];
	if (streamed && streamed->stream == stream)
		block = bin_take(&streamed->bins[bin_of(size)], size);
	if (block)
		full = block_give(cache, block, requested);
	gcp_owner_unlock(&cache->own);
	if (full)
		gcp_cache_merge_stats(cache);
	return block;
}

/* --- drain: cache->own is held -----------------------------------------------------
 */

static void streamed_drain(struct gcp_cache *cache, struct gcp_stream_cache *streamed,
			   struct gcp_chain *chain)
{
	int64_t bytes = 0;

	for (int i = 0; i < GCP_STREAM_BINS; i++) {
		struct gcp_block *block;

		while ((block = streamed->bins[i])) {
			streamed->bins[i] = block->next;
			block->async = false;
			block->stream = streamed->stream;
			block->next = NULL;
			bytes += (int64_t)block->size;
			gcp_chain_append(chain, block, &block->next, 1);
		}
	}
	gcp_cache_held_add(cache, -bytes);
}

void gcp_stream_cache_drain(struct gcp_cache *cache, struct gcp_chain *chain)
{
	for (int i = 0; i < GCP_STREAM_SLOTS; i++)
		if (cache->streams[i])
			streamed_drain(cache, cache->streams[i], chain);
}

void gcp_stream_cache_destroy(struct gcp_cache *cache)
{
	for (int i = 0; i < GCP_STREAM_SLOTS; i++)
		free(cache->streams[i]);
}

/* --- put ----------------------------------------------------------------------------
 */

/* The blocks of `stream`; those of another one with the same place go to `excess`.
 * NULL: no memory. cache->own is held. */
static struct gcp_stream_cache *streamed_of(struct gcp_cache *cache, uint64_t stream,
					    struct gcp_chain *excess)
{
	struct gcp_stream_cache **place = &cache->streams[stream % GCP_STREAM_SLOTS];

	if (!*place) {
		int saved = errno;

		*place = calloc(1, sizeof(**place));
		errno = saved;
	}
	if (*place && (*place)->stream != stream) {
		streamed_drain(cache, *place, excess);
		(*place)->stream = stream;
	}
	return *place;
}

/* False: the block is still the caller's. Blocks on `excess` are for the heap in any
 * case. */
static bool streamed_put(struct gcp_cache *cache, uint64_t stream,
			 struct gcp_block *block, struct gcp_chain *excess,
			 bool *ret_full)
{
	int64_t limit = (int64_t)cache->pool->pools->config.thread_cache_bytes;
	struct gcp_stream_cache *streamed = NULL;
	uint64_t size = block->size;

	gcp_owner_lock(&cache->own);
	if ((int64_t)size <= limit / 2)
		streamed = streamed_of(cache, stream, excess);
	if (streamed && gcp_cache_bytes(cache) + (int64_t)size > limit)
		gcp_stream_cache_drain(cache, excess);
	if (streamed) {
		struct gcp_block **link = &streamed->bins[bin_of(size)];

		gcp_stats_delta_async(&cache->delta, -(int64_t)block->requested);
		gcp_stats_delta_free(&cache->delta, block->requested, size);
		block->next = *link;
		*link = block;
	}
	*ret_full = cache->delta.net[GCP_STATS_LEVEL_ALLOCATED] < -GCP_STATS_LAG;
	gcp_owner_unlock(&cache->own);
	return streamed;
}

/* The block goes to the heap at once, with the counts of it. */
static uint64_t block_to_heap(struct gcp_pool *pool, struct gcp_block *block,
			      uint64_t stream)
{
	uint64_t size = block->size;

	block->async = false;
	block->stream = stream;
	gcp_mutex_lock(&pool->lock);
	gcp_stats_delta_async(&pool->delta, -(int64_t)block->requested);
	gcp_stats_delta_count(&pool->delta, -1, block->requested, size);
	gcp_stats_merge(pool, &pool->delta);
	gcp_heap_put(&pool->common, block);
	gcp_mutex_unlock(&pool->lock);
	return size;
}

static uint64_t excess_to_heap(struct gcp_pool *pool, const struct gcp_chain *excess)
{
	uint64_t bytes = 0;

	if (!excess->first)
		return 0;
	for (const struct gcp_block *block = excess->first; block; block = block->next)
		bytes += block->size;
	gcp_mutex_lock(&pool->lock);
	gcp_heap_put_chain(&pool->common, excess);
	gcp_mutex_unlock(&pool->lock);
	return bytes;
}

/* An epoch is closed when a free finds it full already: what the stream takes again
 * before that leaves it as it was, and one large block that goes back and forth needs
 * no fence. */
static int epoch_fill(struct gcp_pool *pool, uint64_t bytes)
{
	bool full = gcp_timeline_filled(&pool->timeline) >=
		    (int64_t)gcp_window(pool).epoch_bytes;

	(void)gcp_timeline_fill(pool, (int64_t)bytes);
	return full ? gcp_timeline_close_early(pool, true) : 0;
}

/* A block of the open epoch does not wait for it any more. Parts of it may have been
 * freed into older ones: what was added up never goes below zero. */
static void epoch_drain(struct gcp_pool *pool, const struct gcp_block *block)
{
	int64_t size = (int64_t)block->size;

	if (block->epoch ==
		atomic_load_explicit(&pool->timeline.open, memory_order_relaxed) &&
	    gcp_timeline_filled(&pool->timeline) >= size)
		(void)gcp_timeline_fill(pool, -size);
}

int gcp_stream_free(struct gcp_pool *pool, struct gcp_block *block, uint64_t stream)
{
	struct gcp_cache *cache = stream ? gcp_cache_of_thread(pool) : NULL;
	struct gcp_chain excess;
	bool full = false;
	uint64_t bytes = 0;

	gcp_chain_init(&excess);
	block->epoch = gcp_timeline_stamp_behind_rmw(pool);
	gcp_free_count_deferred(pool);
	if (!cache || !streamed_put(cache, stream, block, &excess, &full))
		bytes = block_to_heap(pool, block, stream);
	if (full)
		gcp_cache_merge_stats(cache);
	bytes += excess_to_heap(pool, &excess);
	return bytes ? epoch_fill(pool, bytes) : 0;
}

/* --- allocate -----------------------------------------------------------------------
 */

/* A block that came by the way of any other allocation. */
static void block_is_async(struct gcp_pool *pool, struct gcp_block *block,
			   uint64_t requested)
{
	struct gcp_cache *cache = gcp_cache_of_thread(pool);

	block->async = true;
	if (cache) {
		gcp_owner_lock(&cache->own);
		gcp_stats_delta_async(&cache->delta, (int64_t)requested);
		gcp_owner_unlock(&cache->own);
		return;
	}
	gcp_mutex_lock(&pool->lock);
	gcp_stats_delta_async(&pool->delta, (int64_t)requested);
	gcp_stats_merge(pool, &pool->delta);
	gcp_mutex_unlock(&pool->lock);
}

static int alloc_slow(struct gcp_pool *pool, struct gcp_request *request,
		      gcp_addr *ret_addr)
{
	int result = 0;

	if (gcp_take_cached(request) ||
	    (request->stream && gcp_take_ready(request, true))) {
		epoch_drain(pool, request->block);
		*ret_addr = request->block->addr;
	} else {
		result = gcp_alloc_slow(request, ret_addr);
	}
	if (result == 0)
		block_is_async(pool, request->block, request->bytes);
	return result;
}

int gcp_pool_alloc_stream(struct gcp_pool *pool, uint64_t bytes, uint64_t stream,
			  gcp_addr *ret_addr)
{
	struct gcp_block *block = NULL;
	struct gcp_request request;
	int result = gcp_request_init(&request, &pool->common, bytes);

	if (result != 0)
		return result;
	request.stream = stream;
	struct gcp_cache *cache = stream ? gcp_cache_of_thread(pool) : NULL;
	if (cache)
		block = gcp_stream_cache_take(cache, stream, request.size, bytes);
	if (!block)
		return alloc_slow(pool, &request, ret_addr);
	*ret_addr = block->addr;
	return 0;
}
