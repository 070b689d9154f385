/* SPDX-License-Identifier: MIT */
/*
 * miss.c - the way of an allocation that its thread's cache cannot serve.
 *
 * Called by alloc.c, with no lock held. gcp_alloc_slow takes steps, from cheap to
 * expensive, until one of them has found a block:
 *
 *      ready       in the heap                           pool->lock
 *      completed   after asking which epochs are done    queries
 *      ordered     behind a barrier, if a window's       a wait of the device
 *                  worth is pending
 *      gathered    with what all threads keep            a flush of all caches, a fence
 *      new         new memory (grow.c); when it is out,  50 to 800 us; see reclaim.c
 *                  behind a barrier, however little is
 *                  pending, and then reclaim.c
 *
 * Between barrier and new memory lies the growth bound: while less than the window is
 * pending new memory is taken, so that work on other streams runs on undisturbed; from
 * then on a barrier on the oldest epoch that fits, which waits only for work of
 * long ago. The bound decides speed and memory, never safety. No epoch is closed
 * here that a barrier could be set on: fence.c, NO NEW WAITS.
 */
#include "../reclaim/reclaim.h"

static bool is_missing(const struct gcp_request *request, int result)
{
	return result == 0 && !request->block;
}

/* --- ordered ------------------------------------------------------------------ */

/* The oldest epoch with a block for this request, in the thread's cache or in the heap,
 * if so much is pending already that the heap should not grow; or (full) however little
 * is pending, because the device is full. 0: none. */
static uint64_t epoch_worth_a_barrier(const struct gcp_request *request, bool full)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_pool *pool = heap->pool;
	struct gcp_cache *cache = gcp_request_cache(request);
	uint64_t cached_epoch = 0, epoch = 0, bytes = request->size;
	uint32_t count = 0;

	if (cache) {
		cached_epoch = gcp_cache_next_epoch(cache, request->size_class, &count);
		bytes += count * request->size + (uint64_t)GCP_LOAD(pool->depot_bytes);
	}
	if (cached_epoch && !full && count >= gcp_window_blocks(pool, request->size))
		return cached_epoch;
	GCP_LOCKED(&pool->lock);
	if (full || heap->pending_bytes + bytes > GCP_LIMIT(pool, bytes)) {
		epoch = gcp_heap_fitting_epoch(heap, request->size);
		if (epoch == 0 || (cached_epoch && cached_epoch < epoch))
			epoch = cached_epoch;
	}
	return epoch;
}

static int take_ordered(struct gcp_request *request, bool full)
{
	uint64_t epoch = epoch_worth_a_barrier(request, full);
	int result;

	if (epoch == 0)
		return 0;
	result = gcp_timeline_make_ready(request->heap->pool, epoch);
	if (result == 0)
		gcp_take_anywhere(request);
	return result == -EBUSY ? 0 : result;
}

/* --- completed ---------------------------------------------------------------- */

static int take_completed(struct gcp_request *request)
{
	int result = gcp_timeline_poll_all(request->heap->pool);

	if (result == 0)
		gcp_take_anywhere(request);
	return result;
}

/* --- ready -------------------------------------------------------------------- */

/* Once while an epoch is open. */
static int poll_in_epoch(struct gcp_pool *pool)
{
	uint64_t open = GCP_LOAD(pool->timeline.open);

	if (atomic_exchange_explicit(&pool->polled_epoch, open, memory_order_relaxed) ==
	    open)
		return 0;
	return gcp_timeline_poll_all(pool);
}

/* A thread whose cache has blocks of the class asks whether they are ready, rather than
 * to carry more and more over from the heap; with as many as may wait, it makes them
 * so. But where only completion counts a barrier waits, and one that makes several
 * contexts wait costs much. */
static int take_from_cache(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = gcp_request_cache(request);
	uint32_t count = 0;

	if (!cache || !gcp_cache_next_epoch(cache, request->size_class, &count))
		return 0;
	bool full = count >= gcp_cache_batch(cache, request->size);
	if (full)
		gcp_window_starved(pool);
	if (full && GCP_LIMIT(pool, streams) > 0 &&
	    !GCP_LOAD(pool->pools->completed_only))
		return take_ordered(request, false);
	int result = poll_in_epoch(pool);
	if (result == 0)
		gcp_take_cached(request);
	return result;
}

/* Using free blocks between others is better than taking memory higher up. If an
 * epoch's worth waits, completed epochs are asked for before a block is taken; if a
 * window's worth waits, and one stream makes barriers cheap, all closed epochs get one.
 */
static int make_pending_ready(struct gcp_request *request)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_pool *pool = heap->pool;
	uint64_t pending = __atomic_load_n(&heap->pending_bytes, __ATOMIC_RELAXED);

	if (heap->private || pending < GCP_LIMIT(pool, epoch_bytes))
		return 0;
	if (GCP_LIMIT(pool, streams) != 1 || pending < GCP_LIMIT(pool, bytes))
		return poll_in_epoch(pool);
	int result = gcp_timeline_make_ready(pool, gcp_timeline_stamp(pool) - 1);
	return result == -EBUSY ? 0 : result;
}

static int take_ready(struct gcp_request *request)
{
	int result = take_from_cache(request);

	if (is_missing(request, result))
		result = make_pending_ready(request);
	if (is_missing(request, result))
		gcp_take_ready(request);
	return result;
}

/* --- gathered ----------------------------------------------------------------- */

/* Returns true if the request's heap, that of a pool, is so small (32 MiB) that more
 * memory is cheaper than a fence for a few blocks each. */
static bool is_heap_small(const struct gcp_request *request)
{
	const struct gcp_pool *pool = request->heap->pool;

	return !request->heap->private && !gcp_pool_is_tight(pool) &&
	       atomic_load(&pool->reserved_hint) + request->size <=
		   (uint64_t)GCP_HANDLE_MOST * GCP_CHUNK;
}

/* Blocks in the caches of threads may be the room that is needed, and frees that wait
 * for others to share their fence: mapping memory costs more than a fence and empty
 * caches. But many threads would each take from all others what they need next: there
 * caches are emptied once the pool has grown by much since, for idle threads must not
 * keep it from those that work. Small blocks are no reason either. Memory of graphs
 * that have ended is free behind the open epoch. */
static int take_gathered(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	bool private = request->heap->private, large = request->size > GCP_SMALL;
	bool empties = large && gcp_window_has_few_threads(pool);
	bool all = gcp_graphs_look(pool->pools) ||
		   (pool->vmm && (private || empties || gcp_pool_is_tight(pool)));
	int result = 0;

	if (is_heap_small(request) ||
	    (!all && (private || !(empties || gcp_pool_has_grown(pool)))))
		return 0;
	gcp_cache_add_counted(pool);
	if (all && gcp_timeline_filled(&pool->timeline) > 0)
		result = gcp_timeline_close_early(pool, false);
	if (all && result == 0)
		result = gcp_timeline_poll_all(pool);
	if (result != 0 || gcp_take_cached(request))
		return result;
	gcp_caches_flush(pool);
	return gcp_take_ready(request) ? 0 : take_ordered(request, false);
}

/* --- new ---------------------------------------------------------------------- */

/* Blocks that the request's own stream has freed need no wait: from here on it looks at
 * all of them. */
static bool take_joined(struct gcp_request *request)
{
	request->looks_long = true;
	return request->stream && gcp_take_ready(request);
}

/* The driver is full: takes what is pending behind a barrier, or else the pools give
 * back (reclaim.c). New memory may go to other threads before this one gets at it, but
 * not for ever: then it is descriptors that are short. */
static int take_new(struct gcp_request *request)
{
	struct gcp_cache *cache = gcp_cache_known(request->heap->pool);

	if (cache) /* what the pool counts follows it */
		gcp_cache_merge_stats(cache);
	for (int round = 0; round < GCP_TRIES_OTHERS; round++) {
		assert(!request->block);
		int result = gcp_grow(request);

		if (result == GCP_CUDA_OUT_OF_MEMORY && !take_joined(request)) {
			result = take_ordered(request, true);
			if (is_missing(request, result))
				result = gcp_reclaim_and_retry(request);
		}
		if (result != 0 || request->block)
			return request->block ? 0 : result;
	}
	return -ENOMEM;
}

/* --- the steps ---------------------------------------------------------------- */

int gcp_alloc_slow(struct gcp_request *request, gcp_addr *ret_addr)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = 0;

	if (request->size > pool->memory)
		result = gcp_refuse(request);
	else if (request->heap == &pool->common && !gcp_pool_is_fenced(pool))
		result = -ENOTSUP;
	if (is_missing(request, result))
		result = take_ready(request);
	if (is_missing(request, result))
		result = take_completed(request);
	if (is_missing(request, result))
		result = take_ordered(request, false);
	if (is_missing(request, result))
		result = take_gathered(request);
	if (is_missing(request, result)) /* a block, or an error */
		result = take_new(request);
	if (result == 0)
		*ret_addr = request->addr;
	gcp_tick(pool->pools);
	return result;
}
