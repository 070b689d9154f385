/* SPDX-License-Identifier: MIT */
/*
 * context_fence.c - when epochs are closed, asked and waited for; and barriers, which
 * make a closed epoch ready before it is completed: all later work of every context of
 * the process waits behind the epoch's fence.
 *
 * The rules are fence.c's, NO NEW WAITS above all.
 *
 * A context that has refused a fence passes through from then on (`refused`): its pool
 * serves no allocation that finds nothing, and what the program still frees there waits
 * for the context, as plain cudaFree does.
 *
 * Called without a lock of the room, by frees, by allocations that find nothing, and
 * when contexts come and go.
 *
 * Rules of what is completed and what is ready:
 *  R1 an epoch is ready behind a barrier only when every live context waits there
 *  R2 a barrier completes nothing
 *  R3 a context that joins waits at the barriers that are set
 *  R4 where a device writes in no stream's order, only completed epochs are ready
 *  R5 only completed memory goes to the driver or to another process
 */
#include "timeline.h"

/* --- barriers: fence_lock is held ----------------------------------------- */

static int fence_order(struct gcp_pool *pool, struct gcp_closed_epoch *closed,
		       bool alone)
{
	gcp_assert_held(GCP_RANK_FENCE);
	assert(closed && !gcp_timeline_is_held(&pool->timeline));
	uint64_t start = pool->pools->driver.clock_ns();
	int result = pool->pools->driver.fence_order(closed->fence->handle, alone);

	if (result != -EXDEV)
		gcp_cost_add(pool->pools, pool->calls[GCP_CALL_fence_order], start);
	return result;
}

/* alone: -EXDEV where a context would wait for another's work. */
static int order_locked(struct gcp_pool *pool, uint64_t epoch, bool alone)
{
	gcp_assert_held(GCP_RANK_FENCE);
	struct gcp_timeline *timeline = &pool->timeline;
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);

	if (!closed || closed->epoch > timeline->freed ||
	    gcp_timeline_is_held(timeline))
		return -EBUSY;
	uint64_t covered = closed->epoch;
	int result = fence_order(pool, closed, alone);
	if (alone)
		timeline->multi_context = result == -EXDEV;
	/* Where some context cannot be made to wait, nothing is ordered and the
	 * heap grows; an error of this context shows when a fence is queried. */
	if (result != 0)
		return result == -EXDEV ? result : -EBUSY;
	gcp_window_starved(pool);
	gcp_timeline_mark_ordered(timeline, covered);
	assert(gcp_epoch_ready(pool, epoch) && timeline->ordered <= timeline->freed);
	return 0;
}

/* Something that obeys no context's queue writes into device memory: from now on only
 * completed epochs are ready. Those ordered so far are waited for, so that all that is
 * in the free lists is as strong. */
static int require_completion(struct gcp_pools *pools)
{
	gcp_assert_held(GCP_RANK_FENCE);
	if (atomic_load(&pools->completed_only) || !pools->driver.third_party_writers())
		return 0;
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		int result;

		if (!gcp_pool_pin(pool))
			continue;
		result = gcp_timeline_complete_locked(&pool->timeline,
						      pool->timeline.ordered, false);
		gcp_pool_unpin(pool);
		if (result != 0)
			return result;
	}
	atomic_store(&pools->completed_only, true);
	return 0;
}

/* --- for the rest of the room --------------------------------------------- */

/* Where no barrier may be set: waits until two windows are pending at most, or this
 * part of what is reserved, and two epochs in any case. Plain CUDA would have waited
 * for all of it. fence_lock is not held meanwhile. */
static int catch_up_locked(struct gcp_pool *pool)
{
	enum { PENDING_PART = 4 };
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t window = GCP_LIMIT(pool, bytes);
	uint64_t part = atomic_load(&pool->reserved_hint) / PENDING_PART;
	uint64_t most = part > 2 * window ? part : 2 * window;
	struct gcp_closed_epoch *closed =
	    gcp_timeline_beyond(timeline, (int64_t)most, 2);
	bool waits = closed && timeline->multi_context;

	return waits ? gcp_timeline_wait_locked(timeline, *closed, true) : 0;
}

/* The fence of another thread that closes the epoch covers it as well, or the next one
 * will. (pthread_mutex_trylock would say the same, but is not in libc.so.6 before
 * glibc 2.34.) But that thread may have been descheduled, and all that is freed
 * meanwhile is of no use: a free waits where the epoch is much too full. */
int gcp_timeline_close(struct gcp_pool *pool, uint64_t epoch)
{
	int64_t overfull = 2 * (int64_t)GCP_LIMIT(pool, epoch_bytes);

	if (gcp_timeline_is_held(&pool->timeline) ||
	    (atomic_exchange(&pool->timeline.closing, true) &&
	     !gcp_pool_is_tight(pool) &&
	     gcp_timeline_filled(&pool->timeline) < overfull))
		return 0;
	GCP_LOCKED(&pool->pools->fence_lock);
	int result = gcp_timeline_close_end(&pool->timeline, epoch, true);
	if (result == 0)
		result = catch_up_locked(pool);
	return result == -EBUSY ? 0 : result;
}

int gcp_pool_work_close(struct gcp_pool *pool, uint64_t moment)
{
	assert(atomic_load(&pool->pins) > 0);
	GCP_LOCKED(&pool->pools->fence_lock);
	return gcp_timeline_close_end(&pool->timeline, moment, false);
}

bool gcp_pool_work_is_done(struct gcp_pool *pool, uint64_t moment)
{
	if (gcp_timeline_is_completed(&pool->timeline, moment) || !gcp_pool_pin(pool))
		return gcp_timeline_is_completed(&pool->timeline, moment);
	(void)gcp_timeline_close_to_look(pool, moment); /* an error shows again */
	(void)gcp_timeline_poll_all(pool);
	gcp_pool_unpin(pool);
	return gcp_timeline_is_completed(&pool->timeline, moment);
}

int gcp_timeline_close_early(struct gcp_pool *pool, bool full)
{
	int64_t least = full ? (int64_t)GCP_LIMIT(pool, epoch_bytes) : INT64_MIN;
	int result;

	if (gcp_timeline_filled(&pool->timeline) < least)
		return 0;
	GCP_LOCKED(&pool->pools->fence_lock);
	result = gcp_timeline_close_at_once(&pool->timeline);
	return result == -EBUSY || result == -ENOBUFS ? 0 : result;
}

/* A fence is set only if none is under way: else repeated calls would fill the queue.
 * The device takes a few microseconds to pass it. */
bool gcp_timeline_is_idle(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t epoch = gcp_timeline_stamp(pool);

	(void)gcp_timeline_poll_all(pool);
	gcp_mutex_lock(&pool->pools->fence_lock);
	bool closed = timeline->count == 0 && gcp_timeline_close_at_once(timeline) == 0;
	gcp_mutex_unlock(&pool->pools->fence_lock);
	for (int i = 0; closed && i < 2; i++) {
		if (i > 0)
			gcp_backoff();
		(void)gcp_timeline_poll_all(pool);
		closed = !gcp_timeline_is_completed(timeline, epoch);
	}
	return gcp_timeline_is_completed(timeline, epoch);
}

/* By a barrier, or where only completion counts by waiting, as plain cudaFree has: what
 * other devices do may go on, and then the epoch is not ready. */
int gcp_timeline_make_ready(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_timeline *timeline = &pool->timeline;

	GCP_LOCKED(&pool->pools->fence_lock);
	int result = require_completion(pool->pools);
	if (result != 0 || gcp_epoch_ready(pool, epoch))
		return result;
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	if (!closed || epoch > timeline->freed)
		return -EBUSY; /* NO NEW WAITS, fence.c */
	assert(closed->epoch >= epoch && epoch <= timeline->freed); /* W1 */
	if (atomic_load(&pool->pools->completed_only))
		result = gcp_timeline_wait_locked(timeline, *closed, true);
	else
		result = order_locked(pool, epoch, true);
	if (result == -EXDEV || (result == 0 && !gcp_epoch_ready(pool, epoch)))
		return -EBUSY;
	return result;
}

/* Closes the epoch, if it is open, and sets a barrier behind it. */
static int barrier_locked(struct gcp_pool *pool, uint64_t epoch, bool alone)
{
	gcp_assert_held(GCP_RANK_FENCE);
	struct gcp_timeline *timeline = &pool->timeline;
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	uint64_t open = atomic_load(&timeline->open);
	int result = 0;

	if (gcp_timeline_is_completed(timeline, epoch))
		return 0;
	if (!closed || closed->epoch > timeline->freed) {
		result = gcp_timeline_close_locked(timeline);
		closed = gcp_timeline_covering(timeline, open);
		if (closed)
			timeline->freed = closed->epoch;
	}
	if (result == 0 && !gcp_timeline_is_completed(timeline, epoch))
		result = order_locked(pool, epoch, alone);
	return result;
}

int gcp_timeline_barrier(struct gcp_pool *pool, uint64_t epoch, bool alone)
{
	struct gcp_pools *pools = pool->pools;
	int result;

	GCP_LOCKED(&pools->fence_lock);
	result = require_completion(pools);
	if (result == 0 && atomic_load(&pools->completed_only))
		result = gcp_timeline_complete_locked(&pool->timeline, epoch, false);
	else if (result == 0)
		result = barrier_locked(pool, epoch, alone);
	return result;
}

bool gcp_timeline_wait_oldest(struct gcp_pool *pool, struct gcp_search *search,
			      uint64_t own)
{
	struct gcp_timeline *timeline = &pool->timeline;
	const struct gcp_closed_epoch *closed;

	if (search->begun == 0)
		search->begun = atomic_fetch_add(&pool->pools->searches, 1) + 1;
	GCP_LOCKED(&pool->pools->fence_lock);
	closed = gcp_timeline_covering(timeline, own);
	if (!closed || closed->epoch > timeline->awaitable ||
	    closed->searches >= search->begun)
		return false;
	struct gcp_closed_epoch oldest = *closed;
	return gcp_timeline_wait_locked(timeline, oldest, true) == 0 &&
	       (own > 0 || gcp_timeline_is_completed(timeline, oldest.epoch));
}

int gcp_timeline_complete(struct gcp_pool *pool, uint64_t epoch, bool own)
{
	GCP_LOCKED(&pool->pools->fence_lock);
	int result = gcp_timeline_complete_locked(&pool->timeline, epoch, own);
	assert(result != 0 || gcp_timeline_is_completed(&pool->timeline, epoch));
	return result;
}

struct gcp_real_free gcp_real_free_begin(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t (*now)(void) = pool->pools->driver.foreign_now;
	struct gcp_real_free begun;

	/* Now: what another thread closes meanwhile counts there alone. */
	gcp_mutex_lock(&pool->pools->fence_lock);
	begun.filled = gcp_timeline_filled(timeline);
	atomic_fetch_sub_explicit(&timeline->filled, begun.filled,
				  memory_order_relaxed);
	begun.epoch = gcp_timeline_next(timeline);
	gcp_mutex_unlock(&pool->pools->fence_lock);
	begun.foreign = now ? now() : 0;
	return begun;
}

int gcp_real_free_end(struct gcp_pool *pool, const struct gcp_real_free *begun,
		      bool own)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int (*wait)(void *ctx, uint64_t moment, bool own) =
	    pool->pools->driver.foreign_wait;
	int result = wait ? wait(pool->ctx, begun->foreign, own) : 0;

	if (result != 0)
		return result;
	GCP_LOCKED(&pool->pools->fence_lock);
	assert(begun->epoch < atomic_load(&timeline->open)); /* stamped before */
	gcp_timeline_mark_completed(timeline, begun->epoch);
	return 0;
}

/* --- contexts that come and go -------------------------------------------- */

/* The context whose pool was detached does not end. Contexts that joined meanwhile do
 * not stand behind the pool's barriers, and require_completion passed the pool by. */
int gcp_timeline_reattach(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result = 0;

	GCP_LOCKED(&pool->pools->fence_lock);
	timeline->detached = false;
	if (!gcp_timeline_is_completed(timeline, timeline->ordered) &&
	    (atomic_load(&pool->pools->completed_only) ||
	     gcp_timeline_is_held(timeline) ||
	     fence_order(pool, gcp_timeline_covering(timeline, timeline->ordered),
			 false)))
		result =
		    gcp_timeline_complete_locked(timeline, timeline->ordered, false);
	atomic_store(&pool->detaching, result != 0);
	return result;
}

/* The youngest closed epoch that is ordered and, as far as is known, not completed;
 * NULL: there is none. fence_lock is held. */
static struct gcp_closed_epoch *closed_epoch_ordered(struct gcp_timeline *timeline)
{
	uint32_t i = timeline->count;

	gcp_assert_held(GCP_RANK_FENCE);
	while (i > 0 && gcp_timeline_at(timeline, i - 1)->epoch > timeline->ordered)
		i--;
	return i > 0 ? gcp_timeline_at(timeline, i - 1) : NULL;
}

bool gcp_timeline_is_any_ordered(struct gcp_pool *pool)
{
	GCP_LOCKED(&pool->pools->fence_lock);
	return closed_epoch_ordered(&pool->timeline) != NULL;
}

int gcp_timeline_join(struct gcp_pool *pool, void *ctx,
		      int (*order)(void *ctx, void *fence))
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result = 0;

	GCP_LOCKED(&pool->pools->fence_lock);
	struct gcp_closed_epoch *closed = closed_epoch_ordered(timeline);
	assert(!closed || closed->epoch <= timeline->ordered); /* R3 */
	if (closed &&
	    (gcp_timeline_is_held(timeline) || order(ctx, closed->fence->handle) != 0))
		result = gcp_timeline_wait_locked(timeline, *closed, false);
	return result;
}
