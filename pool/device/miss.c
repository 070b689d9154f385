/* SPDX-License-Identifier: MIT */
/*
 * miss.c - the way of an allocation that its thread's cache cannot serve.
 *
 * Called by alloc.c, with no lock held. gcp_alloc_slow goes through a list of steps,
 * from cheap to expensive, until one of them has found a block:
 *
 *      where the block is found                              what that costs
 *      in the heap, among what is ready                      pool->lock
 *      after asking which epochs are completed               a query
 *      behind a barrier, once enough memory circulates       a wait of the device
 *      among what other threads keep                         a flush of all caches
 *      the same, mapped, and frees that share no fence yet   and a fence
 *      in new memory (grow.c)                                50 to 800 us
 *      in new memory, after giving back (reclaim.c)          more
 *
 * Before all of this a thread whose cache is full asks for its blocks, or sets a
 * barrier on them. Where a barrier costs less than a query it comes first
 * (ordering_first).
 *
 * Between barrier and new memory lies the growth bound: while less than the window is
 * pending new memory is taken, so that work on other streams runs on undisturbed; from
 * then on a barrier on the oldest epoch that fits, which waits only for work of
 * long ago. The bound decides speed and memory, never safety. No epoch is closed
 * here that a barrier could be set on: fence.c, NO NEW WAITS.
 */
#include "../cache/cache.h"
#include "../space/vmm.h"

/* --- what waits, and whether that is much ------------------------------------- */

/* Bytes, or for slabs blocks, that wait in the heap for their epoch and could
 * serve such a request. pool->lock is held. */
static bool heap_is_over_window(const struct gcp_request *request,
				uint64_t cached_bytes)
{
	struct gcp_window window = gcp_window(request->heap->pool);
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	if (window.streams == 1 && request->size > window.bytes / 4)
		return true;
	if (request->size_class < slab_count &&
	    request->heap->classes[request->size_class].count >= window.blocks)
		return true;
	/* A loop over one large block would meet a barrier at every turn, and
	 * each costs the device a few microseconds: two may take turns. */
	if (request->size <= 4 * window.bytes && window.bytes < 2 * request->size)
		window.bytes = 2 * request->size;
	return request->heap->pending_bytes + cached_bytes + request->size >
	       window.bytes;
}

static uint64_t older_of(uint64_t epoch, uint64_t other)
{
	if (epoch == 0 || other == 0)
		return epoch | other;
	return epoch < other ? epoch : other;
}

/* The oldest epoch with a block for this request, in the thread's cache or in the heap,
 * if so much is pending already that the heap should not grow; or (full) however little
 * is pending, because the device is full. 0: none. */
static uint64_t epoch_worth_a_barrier(const struct gcp_request *request, bool full)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = gcp_request_cache(request);
	struct gcp_window window = gcp_window_of_thread(pool);
	uint64_t cached_epoch = 0, cached_bytes = 0, epoch = 0;
	uint32_t count = 0;

	if (cache) {
		cached_epoch = gcp_cache_next_epoch(
		    cache, gcp_magazine_of(cache, request->size_class), &count);
		cached_bytes = count * request->size +
			       (uint64_t)atomic_load_explicit(&pool->depot_bytes,
							      memory_order_relaxed);
	}
	if (cached_epoch && !full && count >= gcp_window_blocks(&window, request->size))
		return cached_epoch;
	gcp_mutex_lock(&pool->lock);
	if (full || heap_is_over_window(request, cached_bytes))
		epoch = older_of(cached_epoch,
				 gcp_heap_fitting_epoch(request->heap, request->size,
							request->size_class));
	gcp_mutex_unlock(&pool->lock);
	return epoch;
}

static int take_behind_barrier(struct gcp_request *request, uint64_t epoch)
{
	int result;

	if (epoch == 0)
		return 0;
	result = gcp_timeline_make_ready(request->heap->pool, epoch);
	if (result == 0)
		gcp_take_anywhere(request);
	return result == -EBUSY ? 0 : result;
}

/* Asks for one epoch, and for more of them only if that did not help. Once the answer
 * was no, asking again does not help. */
static int take_after_poll(struct gcp_request *request,
			   bool (*take)(struct gcp_request *request))
{
	for (uint32_t depth = 0; !request->polled && !request->block;
	     depth = 2 * depth + 1) {
		bool advanced;
		int result = gcp_timeline_poll(request->heap->pool, depth, &advanced);

		request->polled = !advanced;
		if (result != 0 || !advanced)
			return result;
		take(request);
	}
	return 0;
}

/* --- what waits is made ready ------------------------------------------------- */

/* The epoch up to which memory that does not circulate should be ready, so that no more
 * than half a window waits; 0: the window is not full. Where fences cost much the
 * window is for what does. */
static uint64_t epoch_beyond_window(struct gcp_pool *pool)
{
	uint64_t most = gcp_window(pool).bytes / (gcp_window_scale(pool) > 0 ? 4 : 1);
	uint64_t bytes = 0, epoch = 0;
	struct gcp_block *block;

	gcp_mutex_lock(&pool->lock);
	if (pool->common.pending_bytes > most)
		TAILQ_FOREACH_REVERSE(block, &pool->common.pending, gcp_block_list,
				      link)
		{
			bytes += block->size;
			epoch = block->epoch;
			if (bytes > most / 2)
				break;
		}
	gcp_mutex_unlock(&pool->lock);
	return epoch;
}

/* Whether the request's memory goes round as it does in ordinary segments. A thread
 * that keeps the size that repeats, but never frees it, has nothing that goes round. */
static bool circulates(const struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = NULL;
	uint32_t waiting;

	if (!request->heap->private)
		cache = gcp_cache_keeping(pool, request->size, request->size_class);
	if (!gcp_window_is_narrow(pool) ||
	    (cache && gcp_cache_next_epoch(cache, cache->repeat.index, &waiting)))
		return true;
	return gcp_window_circulates(pool) &&
	       (request->size_class != GCP_CLASS_NONE || gcp_window_scale(pool) > 1);
}

/* Whether an epoch was closed since an allocation asked which are completed. */
static bool is_unasked(struct gcp_pool *pool)
{
	uint64_t closed =
	    atomic_load_explicit(&pool->timeline.open, memory_order_relaxed) - 1;

	return atomic_exchange_explicit(&pool->polled_epoch, closed,
					memory_order_relaxed) != closed;
}

/* Whether to ask all the same: the answer may have been no. */
static bool asks_again(struct gcp_pool *pool)
{
	enum { TURNS_BETWEEN = 8 };

	return atomic_fetch_add_explicit(&pool->asked_again, 1, memory_order_relaxed) %
		   TURNS_BETWEEN ==
	       TURNS_BETWEEN - 1;
}

/* The same for memory that does: all closed epochs, when a window's worth waits
 * and one stream makes barriers cheap. *ret_poll: an epoch's worth waits. */
static uint64_t epoch_all_closed(const struct gcp_request *request, bool *ret_poll)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_window window = gcp_window(pool);
	uint64_t open =
	    atomic_load_explicit(&pool->timeline.open, memory_order_relaxed);

	gcp_mutex_lock(&pool->lock);
	gcp_heap_advance(request->heap);
	uint64_t pending = request->heap->pending_bytes;
	gcp_mutex_unlock(&pool->lock);
	*ret_poll = pending >= window.epoch_bytes && is_unasked(pool);
	return *ret_poll && window.streams == 1 && pending >= window.bytes ? open - 1
									   : 0;
}

/* What lies free in between is better used than memory higher up, and the less is cut
 * of mapped memory, the less has to be moved: blocks that wait are made ready before
 * one is taken, as far as that costs little. Queries, and at most a barrier: where all
 * epochs get one, asking for them would cost more. */
static int make_pending_ready(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	bool all = !circulates(request), poll;
	uint64_t epoch = 0;
	int result = 0;

	if (!all && (request->heap->private ||
		     request->size_class < pool->pools->classes.slab_count))
		return 0;
	if (all) {
		gcp_window_looked(pool);
		poll = is_unasked(pool) || asks_again(pool);
	} else {
		epoch = epoch_all_closed(request, &poll);
	}
	if (poll && epoch == 0)
		result = gcp_timeline_poll_all(pool);
	if (result == 0 && all)
		epoch = epoch_beyond_window(pool);
	if (result == 0 && epoch)
		result = gcp_timeline_make_ready(pool, epoch);
	return result == -EBUSY ? 0 : result;
}

/* --- the steps: each looks for a block in one more place ---------------------- */

/* Where barriers come first completed epochs are asked for once in a while all the
 * same, so that their fences can be used again. A question costs the host as much as
 * five barriers. */
static int poll_at_times(struct gcp_request *request)
{
	enum { BARRIERS_BEFORE_POLLING = 64 };
	struct gcp_pool *pool = request->heap->pool;
	bool advanced;

	if (atomic_fetch_add_explicit(&pool->unasked, 1, memory_order_relaxed) %
		BARRIERS_BEFORE_POLLING !=
	    BARRIERS_BEFORE_POLLING - 1)
		return 0;
	return gcp_timeline_poll(pool, GCP_POLL_HALF, &advanced);
}

/* Whether `most` blocks of this class wait in the thread's cache: then it is better to
 * make them ready than to carry more and more over from the heap. */
static bool cache_is_full(const struct gcp_request *request, struct gcp_cache *cache,
			  uint32_t most)
{
	uint32_t count = 0;

	if (!gcp_cache_next_epoch(cache, gcp_magazine_of(cache, request->size_class),
				  &count) ||
	    count < most)
		return false;
	gcp_window_starved(request->heap->pool);
	return true;
}

static int order_full_cache(struct gcp_request *request)
{
	struct gcp_window window = gcp_window_of_thread(request->heap->pool);
	struct gcp_cache *cache = gcp_request_cache(request);

	if (!cache ||
	    !cache_is_full(request, cache, gcp_window_blocks(&window, request->size)))
		return 0;
	return take_behind_barrier(request, epoch_worth_a_barrier(request, false));
}

static int poll_full_cache(struct gcp_request *request)
{
	enum { POLL_BACKOFF = 8 };
	struct gcp_cache *cache = gcp_request_cache(request);

	if (!cache ||
	    !cache_is_full(request, cache, gcp_cache_batch(cache, request->size)))
		return 0;
	if (cache->poll_backoff > 0) {
		cache->poll_backoff--;
		return 0;
	}
	int result = take_after_poll(request, gcp_take_cached);
	if (request->polled)
		cache->poll_backoff = POLL_BACKOFF;
	return result;
}

static int take_ready(struct gcp_request *request)
{
	gcp_take_ready(request, true);
	return 0;
}

static int take_completed(struct gcp_request *request)
{
	return take_after_poll(request, gcp_take_anywhere);
}

static int take_ordered(struct gcp_request *request)
{
	return take_behind_barrier(request, epoch_worth_a_barrier(request, false));
}

/* What threads keep for themselves may be the very room that is needed. */
static int take_flushed(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;

	if (request->heap->private || gcp_window_is_narrow(pool) ||
	    !gcp_caches_may_help(pool, gcp_heap_kind(pool, request->size)))
		return 0;
	gcp_caches_flush(pool);
	return gcp_take_ready(request, true) ? 0 : take_ordered(request);
}

/* Whether gathering is worth its price: a fence, and empty caches. Where fences cost
 * too much the pool grows a little first; many threads would wait for each other, each
 * taking from all others what they need next, and several streams would hold each other
 * back: they gather where nothing else helps. */
static bool gathering_pays(const struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;

	if (request->heap->private || gcp_pool_is_tight(pool))
		return true;
	return gcp_window_is_narrow(pool) &&
	       (!circulates(request) || request->size_class == GCP_CLASS_NONE ||
		(uint64_t)gcp_timeline_filled(&pool->timeline) + request->size >
		    gcp_window_gathers_at(pool) ||
		gcp_caches_may_help(pool, GCP_KIND_SLAB));
}

/* Before memory is mapped, which costs more than all of this: what threads keep
 * for themselves, and frees that wait for others to share their fence. */
static int take_gathered(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = 0;

	if (!pool->vmm || !gathering_pays(request))
		return 0;
	gcp_caches_flush(pool);
	gcp_mutex_lock(&pool->lock);
	struct gcp_block *last = TAILQ_LAST(&pool->common.pending, gcp_block_list);
	bool open = last && last->epoch >= gcp_timeline_stamp(pool);
	gcp_mutex_unlock(&pool->lock);
	if (open)
		result = gcp_timeline_close_early(pool, false);
	if (result == 0)
		result = make_pending_ready(request);
	if (result != 0 || gcp_take_ready(request, true))
		return result;
	return take_ordered(request);
}

static int retry(struct gcp_request *request)
{
	return gcp_take_anywhere(request) ? 0 : gcp_grow(request);
}

/* Blocks that the request's own stream has freed need no wait: from here on it looks at
 * very many more. */
static bool take_joined(struct gcp_request *request)
{
	enum { MORE_LOOKS = 1 << 20 };

	if (request->stream)
		request->more_looks = MORE_LOOKS;
	return request->stream && gcp_take_ready(request, true);
}

/* The driver is full: takes what is pending behind a barrier, or else the pools give
 * back (reclaim.c). */
static int grow_after_reclaim(struct gcp_request *request)
{
	int result;

	if (take_joined(request))
		return 0;
	result = take_behind_barrier(request, epoch_worth_a_barrier(request, true));
	if (result != 0 || request->block)
		return result;
	return gcp_reclaim_and_retry(request, retry);
}

/* New memory may go to other threads before this one gets at it, but not for ever:
 * then it is descriptors that are short. */
static int take_new(struct gcp_request *request)
{
	for (int round = 0; round < GCP_TRIES_OTHERS; round++) {
		int result = gcp_grow(request);

		if (result == GCP_CUDA_OUT_OF_MEMORY)
			result = grow_after_reclaim(request);
		if (result != 0 || request->block)
			return result;
	}
	return -ENOMEM;
}

/* --- the list ----------------------------------------------------------------- */

typedef int gcp_step(struct gcp_request *request);

/* Completed blocks first: with several streams a barrier holds some of them back. */
static gcp_step *const polling_first[] = {
    poll_full_cache, make_pending_ready, take_ready,    take_completed,
    take_ordered,    take_flushed,       take_gathered, take_new,
};

/* A barrier first: asking costs the host several times what a barrier costs it; and to
 * the device a barrier is next to nothing when all work is on one stream, or its epoch
 * is as old as the window. */
static gcp_step *const ordering_first[] = {
    poll_at_times,  order_full_cache, make_pending_ready, take_ready, take_ordered,
    take_completed, take_flushed,     take_gathered,      take_new,
};

/* Where only completion counts a barrier waits, and one that makes several contexts
 * wait costs much. */
static bool polls_first(struct gcp_pool *pool)
{
	return gcp_window(pool).streams == 0 ||
	       atomic_load_explicit(&pool->pools->completed_only, memory_order_relaxed);
}

int gcp_alloc_slow(struct gcp_request *request, gcp_addr *ret_addr)
{
	struct gcp_pool *pool = request->heap->pool;
	gcp_step *const *step = polls_first(pool) ? polling_first : ordering_first;
	int result = 0;

	gcp_request_repeat_count(request);
	if (request->size > pool->memory)
		result = gcp_refuse(request);
	else if (request->heap == &pool->common && !gcp_pool_is_fenced(pool))
		result = -ENOTSUP;
	while (result == 0 && !request->block)
		result = (*step++)(request);
	if (result == 0)
		*ret_addr = request->block->addr;
	gcp_pool_decay(pool);
	gcp_tick(pool->pools);
	return result;
}
