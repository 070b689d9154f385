/* SPDX-License-Identifier: MIT */
/*
 * fence.c - epochs of frees, and the fences that make them ready for reuse.
 *
 * THE SAFETY RULE OF THE LIBRARY LIVES HERE.
 *
 * Each free writes the number of the open epoch into its block (gcp_timeline_stamp).
 * An epoch is closed by moving on to the next number and THEN recording a fence:
 *
 *      thread that frees                 thread that closes epoch 7
 *      -----------------                 -------------------------
 *      submits its last work
 *      full memory fence
 *      reads open == 7, stamps block     open = 8
 *                                        records fence behind all submitted work
 *
 * Who read 7 did so before the move to 8, so his work was submitted before the
 * fence was recorded, and the fence covers it. Who reads 8 belongs to the next
 * epoch. No lock is needed for that, and no list of blocks.
 *
 * Fences of one context complete in order, so two numbers say everything: all
 * epochs <= completed are done; all epochs <= ready are done or held back behind
 * a barrier that every live context of the process waits at.
 *
 * While a stream captures, `holds` is not zero: no fence is recorded and no
 * barrier set. Both are done under fence_lock, which gcp_pools_fences_hold
 * takes too: a capture and a fence exclude each other. Queries and host waits
 * on fences that exist already are legal during a capture and go on.
 *
 * NO NEW WAITS. Epochs are closed inside calls that free, because plain CUDA
 * would have waited there for all work submitted so far: what later work then
 * waits for is work that plain CUDA had finished by that time. If an allocation
 * closed the epoch instead, a barrier could hold a kernel back behind another
 * one that spins until the first has run (as collectives do), and a program
 * that is correct on plain CUDA would hang. Allocations only set barriers on
 * epochs that are closed already; when memory is out they may close and wait.
 * An epoch that an allocation closes to see whether it is done (`early`) is only
 * asked: later work is not held back behind it before a free has closed another.
 * And plain cudaFree waits for its own context only: meanwhile work of another can
 * begin (of the same it cannot: measured), and may be what the kernel waits for, as
 * in collectives over several devices. So with several contexts no barrier is set
 * for reuse: blocks wait until their epoch is completed, the pool grows, and when
 * very much waits a free waits, too, for epochs of long ago.
 *
 * On drivers without context fences an epoch is closed by waiting for the
 * context (`synchronous`).
 */
#include "pool_types.h"

enum { /* CUresults of calls that a capture forbids: cuda.h, 900 to 908 */
       CUDA_CAPTURE_FIRST = 900,
       CUDA_CAPTURE_LAST = 908,
};

uint64_t gcp_timeline_stamp(struct gcp_pool *pool)
{
	/* The caller's submissions, and whatever he saw of others', must be
	 * visible to the driver before `open` is read. */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&pool->timeline.open, memory_order_seq_cst);
}

uint64_t gcp_timeline_advance(struct gcp_pool *pool)
{
	atomic_store_explicit(&pool->timeline.filled, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->timeline.early, 0, memory_order_relaxed);
	uint64_t epoch = atomic_fetch_add(&pool->timeline.open, 1);
	atomic_thread_fence(memory_order_seq_cst); /* ARM: before the driver looks */
	return epoch;
}

/* --- the queue of closed epochs: fence_lock is held --------------------------- */

static struct gcp_closed_epoch *queue_at(struct gcp_timeline *timeline, uint32_t i)
{
	assert(i < timeline->count);
	return &timeline->queue[(timeline->head + i) % GCP_FENCE_QUEUE];
}

static void raise_to(_Atomic uint64_t *mark, uint64_t epoch)
{
	if (atomic_load_explicit(mark, memory_order_relaxed) < epoch)
		atomic_store_explicit(mark, epoch, memory_order_release);
}

static void epochs_completed(struct gcp_timeline *timeline, uint64_t epoch)
{
	while (timeline->count > 0 && queue_at(timeline, 0)->epoch <= epoch) {
		timeline->spare[timeline->spare_count++] = queue_at(timeline, 0)->fence;
		timeline->head = (timeline->head + 1) % GCP_FENCE_QUEUE;
		timeline->count--;
	}
	raise_to(&timeline->completed, epoch);
	raise_to(&timeline->ready, epoch);
}

/* A spare fence that nobody waits for any more: recorded again, it would make
 * him wait for later work. -1: none. */
static int spare_find(const struct gcp_timeline *timeline)
{
	for (int i = (int)timeline->spare_count - 1;
	     i >= 0 && timeline->more_waiters == 0; i--) {
		uint32_t slot = 0;

		while (slot < GCP_WAITERS_MAX &&
		       timeline->waiters[slot] != timeline->spare[i])
			slot++;
		if (slot == GCP_WAITERS_MAX)
			return i;
	}
	return -1;
}

/* Makes room in a full queue: of the epochs that are ordered every other fence is
 * forgotten. They are known to be completed when the next one is. */
static void queue_thin(struct gcp_timeline *timeline)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < timeline->count; i++) {
		struct gcp_closed_epoch closed = *queue_at(timeline, i);
		bool next_ordered =
		    i + 1 < timeline->count &&
		    queue_at(timeline, i + 1)->epoch <= timeline->ordered;

		if (i % 2 == 0 && next_ordered)
			timeline->spare[timeline->spare_count++] = closed.fence;
		else
			*queue_at(timeline, kept++) = closed;
		if (i % 2 == 0 && next_ordered)
			queue_at(timeline, i + 1)->bytes += closed.bytes;
	}
	timeline->count = kept;
}

static int fence_take(struct gcp_pool *pool, void **ret_fence)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int spare = spare_find(timeline);

	if (spare < 0)
		return GCP_CALL(pool, fence_create, pool->ctx, ret_fence);
	*ret_fence = timeline->spare[spare];
	timeline->spare[spare] = timeline->spare[--timeline->spare_count];
	return 0;
}

static bool is_held(struct gcp_pools *pools)
{
	return atomic_load_explicit(&pools->holds, memory_order_relaxed) > 0;
}

/* Closes the open epoch by waiting for the whole context. */
static int close_synchronous(struct gcp_pool *pool)
{
	uint64_t epoch = gcp_timeline_advance(pool);
	int result = GCP_CALL(pool, ctx_sync, pool->ctx);

	if (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST)
		return -EBUSY;
	if (result != 0)
		return result;
	epochs_completed(&pool->timeline, epoch);
	return 0;
}

/* The fence could not be recorded. If waiting for the context works, context
 * fences do not work here, and waiting is what we do from now on. */
static int close_after_failure(struct gcp_pool *pool, int failure)
{
	if (failure >= CUDA_CAPTURE_FIRST && failure <= CUDA_CAPTURE_LAST)
		return -EBUSY; /* a capture that nobody told us of */
	int result = close_synchronous(pool);
	if (result == 0)
		pool->timeline.synchronous = true;
	return result;
}

/* Bytes freed into the open epoch itself. */
static int64_t filled_now(const struct gcp_timeline *timeline)
{
	return atomic_load_explicit(&timeline->filled, memory_order_relaxed) -
	       atomic_load_explicit(&timeline->early, memory_order_relaxed);
}

static int close_locked(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	void *fence;
	int result;

	if (is_held(pool->pools))
		return -EBUSY;
	if (timeline->synchronous)
		return close_synchronous(pool);
	if (timeline->count == GCP_FENCE_QUEUE)
		queue_thin(timeline);
	bool no_fence = timeline->count + timeline->spare_count == GCP_FENCES_MAX &&
			spare_find(timeline) < 0;
	if (timeline->count == GCP_FENCE_QUEUE || no_fence)
		return 0; /* the epoch stays open; a later fence covers it too */
	result = fence_take(pool, &fence);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		return -EBUSY; /* for now */
	if (result != 0)
		return close_after_failure(pool, result);

	int64_t filled = filled_now(timeline);
	uint64_t epoch = gcp_timeline_advance(pool);
	gcp_streams_epoch_closed(pool->pools);
	gcp_window_epoch_closed(pool);
	result = GCP_CALL(pool, fence_record, pool->ctx, fence);
	if (result != 0) {
		/* `epoch` has no fence of its own; the next one covers it. */
		timeline->spare[timeline->spare_count++] = fence;
		return close_after_failure(pool, result);
	}
	timeline->count++;
	*queue_at(timeline, timeline->count - 1) = (struct gcp_closed_epoch){
	    .epoch = epoch, .fence = fence, .bytes = filled > 0 ? (uint64_t)filled : 0};
	timeline->freed = epoch;
	return 0;
}

/* Asks for one fence only, `depth` places behind the oldest: a query costs up
 * to a microsecond, and if this epoch is done all older ones are. */
static int poll_locked(struct gcp_pool *pool, uint32_t depth, bool *ret_advanced)
{
	struct gcp_timeline *timeline = &pool->timeline;

	*ret_advanced = false;
	if (timeline->count == 0)
		return 0;
	if (depth == GCP_POLL_HALF)
		depth = timeline->count / 2;
	if (depth >= timeline->count)
		depth = timeline->count - 1;
	struct gcp_closed_epoch closed = *queue_at(timeline, depth);
	int result = GCP_CALL(pool, fence_query, closed.fence);

	if (result == GCP_CUDA_NOT_READY)
		return 0;
	if (result != 0)
		return result;
	epochs_completed(timeline, closed.epoch);
	*ret_advanced = true;
	return 0;
}

/* The oldest closed epoch that covers `epoch`, or NULL: it is still open. */
static struct gcp_closed_epoch *closed_epoch_covering(struct gcp_timeline *timeline,
						      uint64_t epoch)
{
	for (uint32_t i = 0; i < timeline->count; i++)
		if (queue_at(timeline, i)->epoch >= epoch)
			return queue_at(timeline, i);
	return NULL;
}

static bool is_completed(const struct gcp_timeline *timeline, uint64_t epoch)
{
	return epoch <=
	       atomic_load_explicit(&timeline->completed, memory_order_relaxed);
}

/* Lets go of fence_lock while the host waits: a kernel may be waiting for what
 * another thread does after its next allocation. */
static int wait_locked(struct gcp_pool *pool, struct gcp_closed_epoch closed)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint32_t slot = 0;
	int result;

	while (slot < GCP_WAITERS_MAX && timeline->waiters[slot])
		slot++;
	if (slot < GCP_WAITERS_MAX)
		timeline->waiters[slot] = closed.fence;
	else
		timeline->more_waiters++;
	pthread_mutex_unlock(&pool->pools->fence_lock);
	result = GCP_CALL(pool, fence_wait, closed.fence);
	pthread_mutex_lock(&pool->pools->fence_lock);
	if (slot < GCP_WAITERS_MAX)
		timeline->waiters[slot] = NULL;
	else
		timeline->more_waiters--;
	if (result == 0)
		epochs_completed(timeline, closed.epoch);
	return result;
}

/* Closes the epoch that is open, whatever it takes: a full queue is waited for. */
static int close_for_completion(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result = 0;

	if (timeline->count == GCP_FENCE_QUEUE)
		result = wait_locked(pool, *queue_at(timeline, timeline->count - 1));
	uint64_t freed = timeline->freed;
	if (result == 0)
		result = close_locked(pool);
	timeline->freed = freed; /* only he who closes it waits for it */
	return result;
}

static int complete_locked(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_timeline *timeline = &pool->timeline;
	struct gcp_closed_epoch *closed = closed_epoch_covering(timeline, epoch);
	int result = 0;

	if (is_completed(timeline, epoch))
		return 0;
	if (!closed)
		result = close_for_completion(pool);
	if (result != 0 || is_completed(timeline, epoch))
		return result;
	closed = closed_epoch_covering(timeline, epoch);
	return closed ? wait_locked(pool, *closed) : -EBUSY;
}

static int fence_order(struct gcp_pool *pool, void *fence, bool alone)
{
	uint64_t start = pool->pools->driver.clock_ns();
	int result = pool->pools->driver.fence_order(fence, alone);

	if (result != -EXDEV)
		gcp_call_count(pool, GCP_CALL_fence_order, start);
	return result;
}

/* Where only completion counts, waits. alone: -EXDEV where a context would wait for
 * another's work. */
static int order_locked(struct gcp_pool *pool, uint64_t epoch, bool alone)
{
	struct gcp_timeline *timeline = &pool->timeline;
	struct gcp_closed_epoch *closed = closed_epoch_covering(timeline, epoch);

	if (atomic_load(&pool->pools->completed_only))
		return complete_locked(pool, epoch);
	if (!closed || closed->epoch > timeline->freed || is_held(pool->pools))
		return -EBUSY;
	uint64_t covered = closed->epoch;
	int result = fence_order(pool, closed->fence, alone);
	if (alone)
		timeline->multi_context = result == -EXDEV;
	/* Where some context cannot be made to wait, nothing is ordered and the
	 * heap grows; an error of this context shows when a fence is queried. */
	if (result != 0)
		return result == -EXDEV ? result : -EBUSY;
	gcp_window_barrier_set(pool);
	if (timeline->ordered < covered)
		timeline->ordered = covered;
	raise_to(&timeline->ready, covered);
	return 0;
}

/* Somebody who obeys no context's queue has appeared: from now on only
 * completed epochs are ready. Those ordered so far are waited for, so that all
 * that is in the free lists is as strong. */
static int require_completion(struct gcp_pools *pools)
{
	if (atomic_load(&pools->completed_only) || !pools->driver.third_party_writers())
		return 0;
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		int result;

		if (!gcp_pool_pin(pool))
			continue;
		result = complete_locked(pool, pool->timeline.ordered);
		gcp_pool_unpin(pool);
		if (result != 0)
			return result;
	}
	atomic_store(&pools->completed_only, true);
	return 0;
}

/* --- for the rest of the room --------------------------------------------------- */

/* Somebody else closes an epoch just now: his fence covers ours as well, or the next
 * one will. (pthread_mutex_trylock would say the same, but is not in libc.so.6
 * before glibc 2.34.) But he may have been descheduled, and all that is freed
 * meanwhile is of no use: an epoch that is twice as full as it should be is worth
 * waiting for him. */
static bool close_begin(struct gcp_pool *pool)
{
	if (!atomic_exchange(&pool->pools->closing, true))
		return true;
	struct gcp_window window = gcp_window(pool);
	return atomic_load_explicit(&pool->timeline.filled, memory_order_relaxed) >=
	       2 * (int64_t)window.epoch_bytes;
}

/* Where no barrier may be set: waits until no more is pending than may be. Plain CUDA
 * would have waited for all of it. Lets go of fence_lock meanwhile. */
static int catch_up_locked(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t most = gcp_window_multi_context(pool), bytes = 0;
	uint32_t i = timeline->count;

	if (!timeline->multi_context)
		return 0;
	/* The youngest epochs of so many bytes may wait; two of them in any case. */
	while (i > 0 && (timeline->count - i < 2 || bytes < most))
		bytes += queue_at(timeline, --i)->bytes;
	return i > 0 ? wait_locked(pool, *queue_at(timeline, i - 1)) : 0;
}

int gcp_timeline_close(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_pools *pools = pool->pools;
	int result = 0;

	if (is_held(pools) || !close_begin(pool))
		return 0;
	pthread_mutex_lock(&pools->fence_lock);
	if (atomic_load_explicit(&pool->timeline.open, memory_order_relaxed) == epoch)
		result = close_locked(pool);
	atomic_store(&pools->closing, false);
	if (result == 0)
		result = catch_up_locked(pool);
	pthread_mutex_unlock(&pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

/* What was freed into it counts towards the epoch that a free closes next. Else, where
 * each allocation closes one, no free ever would, and no barrier be set. */
static int close_early_locked(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t freed = timeline->freed, open = atomic_load(&timeline->open);
	int64_t filled = atomic_load_explicit(&timeline->filled, memory_order_relaxed);
	int result = timeline->synchronous ? 0 : close_locked(pool);

	timeline->freed = freed;
	if (atomic_load(&timeline->open) == open)
		return result;
	atomic_fetch_add_explicit(&timeline->filled, filled, memory_order_relaxed);
	atomic_store_explicit(&timeline->early, filled, memory_order_relaxed);
	return result;
}

int gcp_timeline_close_early(struct gcp_pool *pool, bool full)
{
	int64_t least = full ? (int64_t)gcp_window(pool).epoch_bytes : INT64_MIN;
	int result = 0;

	pthread_mutex_lock(&pool->pools->fence_lock);
	if (filled_now(&pool->timeline) >= least)
		result = close_early_locked(pool);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_timeline_poll(struct gcp_pool *pool, uint32_t depth, bool *ret_advanced)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	int result = poll_locked(pool, depth, ret_advanced);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

int gcp_timeline_poll_all(struct gcp_pool *pool)
{
	bool advanced = true;
	int result = 0;

	for (uint32_t depth = 0; result == 0 && advanced; depth = 2 * depth + 1)
		result = gcp_timeline_poll(pool, depth, &advanced);
	return result;
}

int gcp_timeline_make_ready(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_pools *pools = pool->pools;
	int result;

	pthread_mutex_lock(&pools->fence_lock);
	result = require_completion(pools);
	if (result == 0 && !gcp_epoch_ready(pool, epoch)) {
		if (!closed_epoch_covering(&pool->timeline, epoch) ||
		    epoch > pool->timeline.freed)
			result = -EBUSY; /* see NO NEW WAITS above */
		else
			result = order_locked(pool, epoch, true);
	}
	pthread_mutex_unlock(&pools->fence_lock);
	return result == -EXDEV ? -EBUSY : result;
}

int gcp_timeline_barrier(struct gcp_pool *pool, uint64_t epoch, bool alone)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result;

	pthread_mutex_lock(&pool->pools->fence_lock);
	result = require_completion(pool->pools);
	struct gcp_closed_epoch *closed = closed_epoch_covering(timeline, epoch);
	if (result == 0 && !atomic_load(&pool->pools->completed_only) &&
	    !is_completed(timeline, epoch) &&
	    (!closed || closed->epoch > timeline->freed))
		result = close_locked(pool);
	if (result == 0 && !is_completed(timeline, epoch))
		result = order_locked(pool, epoch, alone);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

int gcp_timeline_complete(struct gcp_pool *pool, uint64_t epoch)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	int result = complete_locked(pool, epoch);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

void gcp_timeline_completed_by_free(struct gcp_pool *pool, uint64_t epoch)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	epochs_completed(&pool->timeline, epoch);
	pthread_mutex_unlock(&pool->pools->fence_lock);
}

/* The context is gone and its fences with it: they must not be used again. */
void gcp_timeline_reset(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;

	pthread_mutex_lock(&pool->pools->fence_lock);
	uint64_t open = gcp_timeline_advance(pool);
	timeline->count = 0;
	timeline->spare_count = 0;
	epochs_completed(timeline, open);
	pthread_mutex_unlock(&pool->pools->fence_lock);
}

/* The context whose pool was detached does not end. What joined meanwhile did not
 * stand behind the pool's barriers, and who demanded completion passed it by. */
int gcp_timeline_reattach(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result = 0;

	pthread_mutex_lock(&pool->pools->fence_lock);
	if (!is_completed(timeline, timeline->ordered) &&
	    (atomic_load(&pool->pools->completed_only) || is_held(pool->pools) ||
	     fence_order(pool,
			 closed_epoch_covering(timeline, timeline->ordered)->fence,
			 false)))
		result = complete_locked(pool, timeline->ordered);
	atomic_store(&pool->detaching, result != 0);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

/* --- public ---------------------------------------------------------------------- */

/* The youngest closed epoch that is ordered and, as far as is known, not completed;
 * NULL: there is none. fence_lock is held. */
static struct gcp_closed_epoch *closed_epoch_ordered(struct gcp_timeline *timeline)
{
	uint32_t i = timeline->count;

	while (i > 0 && queue_at(timeline, i - 1)->epoch > timeline->ordered)
		i--;
	return i > 0 ? queue_at(timeline, i - 1) : NULL;
}

static bool is_any_ordered(struct gcp_pool *pool)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	bool any = closed_epoch_ordered(&pool->timeline) != NULL;
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return any;
}

/* Puts `ctx` behind the pool's barriers. Where it cannot be made to wait, or a capture
 * forbids that, the host waits. */
static void pool_joined(struct gcp_pool *pool, void *ctx,
			int (*order)(void *ctx, void *fence))
{
	/* Fences of a context that may be ending must not be touched. Most calls that
	 * leave it alive are over in a moment: worth some patience, but no more, for
	 * its work may wait for this context's. If it stays, gcp_timeline_reattach
	 * follows. */
	if (!is_any_ordered(pool) || !gcp_pool_pin_wait(pool))
		return;
	pthread_mutex_lock(&pool->pools->fence_lock);
	struct gcp_closed_epoch *closed = closed_epoch_ordered(&pool->timeline);
	int result = 0;
	if (closed && (is_held(pool->pools) || order(ctx, closed->fence) != 0))
		result = wait_locked(pool, *closed);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	if (result != 0)
		(void)gcp_pool_complete_by_free(pool); /* an error shows again */
	gcp_pool_unpin(pool);
}

void gcp_pools_context_joined(struct gcp_pools *pools, void *ctx,
			      int (*order)(void *ctx, void *fence))
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		pool_joined(pool, ctx, order);
}
