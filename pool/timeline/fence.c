/* SPDX-License-Identifier: MIT */
/*
 * fence.c - epochs of frees, and the fences that make them ready for reuse.
 *
 * THE SAFETY RULE OF THE LIBRARY LIVES HERE.
 *
 * Each free writes the number of the open epoch into its block (gcp_timeline_stamp). An
 * epoch is closed by moving on to the next number and THEN recording a fence:
 *
 *      thread that frees                 thread that closes epoch 7
 *      -----------------                 -------------------------
 *      submits its last work
 *      full memory fence
 *      reads open == 7, stamps block     open = 8
 *                                        records fence behind all submitted work
 *
 * A thread that read 7 did so before the move to 8, so its work was submitted before
 * the fence was recorded, and the fence covers it. A block that was stamped 8 belongs
 * to the next epoch. No lock is needed for that, and no list of blocks.
 *
 * There is one sequence of epochs for each context. Its fences are events of that
 * context: plain cudaFree and cudaFreeHost wait for the work of the context in which
 * the memory was allocated, and for no other (measured). Device memory is ready when it
 * is completed, or behind a barrier that every context waits at; pinned memory only
 * when it is completed, for the CPU writes into a block at once, and stands in no
 * context's queue.
 *
 * Fences of one sequence complete in order, so two numbers say everything: all epochs
 * <= completed are done; all epochs <= ready are done or held back behind a barrier.
 *
 * While a stream captures, `holds` is not zero: no fence is recorded and no barrier
 * set. Both are done under fence_lock, which gcp_pools_fences_hold takes too: a
 * capture and a fence exclude each other. Queries and host waits on fences that exist
 * already are legal during a capture and go on.
 *
 * NO NEW WAITS. Epochs of device memory are closed inside calls that free, because
 * plain CUDA would have waited there for all work submitted so far: what later work
 * then waits for is work that plain CUDA had finished by that time. If an allocation
 * closed the epoch instead, a barrier could hold a kernel back behind another one that
 * spins until the first has run (as collectives do), and a program that is correct on
 * plain CUDA would hang. Allocations only set barriers on epochs that are closed
 * already; and when memory is out they wait for those that a free has closed
 * (`awaitable`; reclaim.c, tight.c). An epoch that an allocation closes to see whether
 * it is done (`early`) is only asked: later work is not held back behind it before a
 * free has closed another. And plain cudaFree waits for its own context only: meanwhile
 * work of another can begin (of the same it cannot: measured), and may be what the
 * kernel waits for, as in collectives over several devices. So with several contexts no
 * barrier is set for reuse: blocks wait until their epoch is completed, the pool grows,
 * and when very much waits a free waits, too, for epochs of long ago. (What waits when
 * memory is out: reclaim.c, pinned_reclaim.c.)
 *
 * Rules of fences:
 *  F1 a fence is recorded behind all work of its context
 *  F2 an epoch is completed only when its own fence, or a later one, has passed
 *  F3 a fence that has passed completes the epochs up to its own, and no younger one
 *  F4 a fence that a thread waits for is neither recorded again nor destroyed
 *  F5 a wait that fails completes nothing
 *  F6 an epoch without a fence of its own is covered by the next one in the queue
 */
#include "timeline.h"

enum { /* CUresults of calls that a capture forbids: cuda.h, 900 to 908 */
       CUDA_CAPTURE_FIRST = 900,
       CUDA_CAPTURE_LAST = 908,
};

void gcp_timeline_init(struct gcp_timeline *timeline, struct gcp_pool *pool)
{
	timeline->pool = pool;
	timeline->pools = pool->pools;
	atomic_store(&timeline->open, GCP_EPOCH_FIRST);
	atomic_store(&timeline->completed, GCP_EPOCH_FIRST - 1);
	atomic_store(&timeline->ready, GCP_EPOCH_FIRST - 1);
}

uint64_t gcp_timeline_stamp(const struct gcp_pool *pool)
{
	/* The caller's submissions, and what it saw of other threads', must be
	 * visible to the driver before `open` is read. */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&pool->timeline.open, memory_order_seq_cst);
}

uint64_t gcp_timeline_next(struct gcp_timeline *timeline)
{
	uint64_t epoch = atomic_fetch_add(&timeline->open, 1);
	atomic_thread_fence(memory_order_seq_cst); /* ARM: before the driver looks */
	return epoch;
}

int64_t gcp_timeline_filled(const struct gcp_timeline *timeline)
{
	return GCP_LOAD(timeline->filled) - GCP_LOAD(timeline->early);
}

bool gcp_timeline_is_held(const struct gcp_timeline *timeline)
{
	return GCP_LOAD(timeline->pools->holds) > 0 || GCP_LOAD(timeline->detached);
}

bool gcp_timeline_is_completed(const struct gcp_timeline *timeline, uint64_t epoch)
{
	return epoch <= GCP_LOAD(timeline->completed);
}

/* --- fences --------------------------------------------------------------- */

/* Its context is gone. */
static void fence_discard(struct gcp_timeline *timeline, struct gcp_fence *fence)
{
	struct gcp_pools *pools = timeline->pools;

	pools->driver.fence_discard(fence->handle);
	gcp_descriptor_free(&pools->fence_descriptors, fence);
}

/* No epoch needs the fence any more. One that a thread still waits for must not be
 * recorded again, which would make that thread wait for later work: the last thread
 * that waited does this again. */
static void fence_release(struct gcp_timeline *timeline, struct gcp_fence *fence)
{
	fence->done = true;
	if (fence->waiters > 0)
		return;
	if (fence->generation != timeline->generation) {
		fence_discard(timeline, fence);
		return;
	}
	fence->next = timeline->spare;
	timeline->spare = fence;
}

static int fence_create(struct gcp_timeline *timeline, struct gcp_fence **ret_fence)
{
	struct gcp_fence *fence =
	    gcp_descriptor_alloc(&timeline->pools->fence_descriptors);

	if (!fence)
		return -ENOMEM;
	*fence = (struct gcp_fence){.generation = timeline->generation};
	int result =
	    GCP_CALL(timeline->pool, fence_create, timeline->pool->ctx, &fence->handle);
	if (result != 0)
		gcp_descriptor_free(&timeline->pools->fence_descriptors, fence);
	*ret_fence = fence;
	return result;
}

static int fence_take(struct gcp_timeline *timeline, struct gcp_fence **ret_fence)
{
	struct gcp_fence *fence = timeline->spare;

	if (!fence)
		return fence_create(timeline, ret_fence);
	assert(fence->done && fence->waiters == 0);
	assert(fence->generation == timeline->generation);
	timeline->spare = fence->next;
	fence->done = false;
	*ret_fence = fence;
	return 0;
}

/* --- the queue of closed epochs -------------------------------------------- */

struct gcp_closed_epoch *gcp_timeline_at(struct gcp_timeline *timeline, uint32_t i)
{
	gcp_assert_held(GCP_RANK_FENCE);
	assert(i < timeline->count);
	return &timeline->queue[(timeline->head + i) % GCP_FENCE_QUEUE];
}

struct gcp_closed_epoch *gcp_timeline_covering(struct gcp_timeline *timeline,
					       uint64_t epoch)
{
	uint32_t low = 0, high = timeline->count;

	/* Mostly the youngest one is looked for, where memory is used again at once. */
	if (high > 1 && gcp_timeline_at(timeline, high - 2)->epoch < epoch)
		low = high - 1;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (gcp_timeline_at(timeline, middle)->epoch >= epoch)
			high = middle;
		else
			low = middle + 1;
	}
	return low < timeline->count && !timeline->detached
		   ? gcp_timeline_at(timeline, low)
		   : NULL;
}

static void queue_append(struct gcp_timeline *timeline, struct gcp_closed_epoch closed)
{
	assert(timeline->count < GCP_FENCE_QUEUE);
	assert(closed.epoch < atomic_load(&timeline->open));
	assert(!gcp_timeline_is_completed(timeline, closed.epoch));
	timeline->count++;
	*gcp_timeline_at(timeline, timeline->count - 1) = closed;
	assert(timeline->count == 1 ||
	       gcp_timeline_at(timeline, timeline->count - 2)->epoch < closed.epoch);
	atomic_fetch_add_explicit(&timeline->pending_bytes, closed.bytes,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&timeline->closed, 1, memory_order_relaxed);
}

void gcp_timeline_mark_completed(struct gcp_timeline *timeline, uint64_t epoch)
{
	gcp_assert_held(GCP_RANK_FENCE);
	while (timeline->count > 0 && gcp_timeline_at(timeline, 0)->epoch <= epoch) {
		struct gcp_closed_epoch closed = *gcp_timeline_at(timeline, 0);

		atomic_fetch_sub_explicit(&timeline->pending_bytes, closed.bytes,
					  memory_order_relaxed);
		timeline->head = (timeline->head + 1) % GCP_FENCE_QUEUE;
		timeline->count--;
		fence_release(timeline, closed.fence);
	}
	/* In this order: what is completed is ready at any time. */
	gcp_raise(&timeline->ready, epoch);
	gcp_raise(&timeline->completed, epoch);
	assert(atomic_load(&timeline->completed) <= atomic_load(&timeline->ready));
	assert(atomic_load(&timeline->ready) < atomic_load(&timeline->open));
}

void gcp_timeline_mark_ordered(struct gcp_timeline *timeline, uint64_t epoch)
{
	gcp_assert_held(GCP_RANK_FENCE);
	if (timeline->ordered < epoch)
		timeline->ordered = epoch;
	gcp_raise(&timeline->ready, epoch);
	assert(atomic_load(&timeline->ready) < atomic_load(&timeline->open));
}

/* Whether the i-th epoch may be merged into the next one: it is completed when that is,
 * and what waits for it may wait for that. The oldest one is not: else it would never
 * be done where more is pending than the queue holds. Nor are the latest that a free or
 * a barrier has closed: an allocation has closed the next one, whose fence may be
 * behind later work (NO NEW WAITS); and the one that the latest barrier is for:
 * contexts that join have to stand behind it. searched: also one before a
 * search with one after its begin, which that search then does not wait for
 * (gcp_timeline_wait_oldest). */
static bool can_merge(struct gcp_timeline *timeline, uint32_t i, bool searched)
{
	const struct gcp_closed_epoch *closed = gcp_timeline_at(timeline, i);
	uint64_t epoch = closed->epoch;

	gcp_assert_held(GCP_RANK_FENCE);
	return i % 2 == 1 && i + 1 < timeline->count && epoch != timeline->awaitable &&
	       epoch != timeline->freed && epoch != timeline->ordered &&
	       (searched ||
		closed->searches == gcp_timeline_at(timeline, i + 1)->searches);
}

static void queue_merge(struct gcp_timeline *timeline, bool searched)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < timeline->count; i++) {
		struct gcp_closed_epoch closed = *gcp_timeline_at(timeline, i);

		if (can_merge(timeline, i, searched)) {
			fence_release(timeline, closed.fence);
			gcp_timeline_at(timeline, i + 1)->bytes += closed.bytes;
		} else {
			*gcp_timeline_at(timeline, kept++) = closed;
		}
	}
	timeline->count = kept;
}

/* Makes room in a full queue: half of it, if that is completed, or the oldest leaves
 * it; else every other epoch is merged into the next one, and its fence released. */
static void queue_thin(struct gcp_timeline *timeline)
{
	bool advanced = false;

	/* An error shows again. */
	for (uint32_t depth = GCP_FENCE_QUEUE / 2; !advanced; depth = 0)
		if (gcp_timeline_poll_locked(timeline, depth, &advanced) != 0 ||
		    depth == 0)
			break;
	if (timeline->count < GCP_FENCE_QUEUE)
		return;
	queue_merge(timeline, false);
	if (timeline->count > GCP_FENCE_QUEUE / 4 * 3)
		queue_merge(timeline, true);
}

/* --- closing -------------------------------------------------------------- */

static int close_failed(int failure)
{
	if (failure < 0 || failure == GCP_CUDA_OUT_OF_MEMORY)
		return -ENOBUFS; /* for now */
	if (failure >= CUDA_CAPTURE_FIRST && failure <= CUDA_CAPTURE_LAST)
		return -EBUSY; /* a capture that the library was not told of */
	return failure;
}

/* Closes the open epoch. counted: what was freed into it counts no more. > 0: fences do
 * not work here, or the device reports an error. */
static int close_by_fence(struct gcp_timeline *timeline, bool counted)
{
	struct gcp_fence *fence;
	int result;

	assert(!timeline->refused && !gcp_timeline_is_held(timeline));
	if (timeline->count == GCP_FENCE_QUEUE)
		queue_thin(timeline);
	if (timeline->count == GCP_FENCE_QUEUE)
		return 0;
	result = fence_take(timeline, &fence);
	if (result != 0)
		return close_failed(result);

	int64_t all = GCP_LOAD(timeline->filled);
	int64_t filled = gcp_timeline_filled(timeline);
	uint64_t epoch = gcp_timeline_next(timeline);
	if (counted)
		gcp_window_epoch_closed(timeline->pool);
	result =
	    GCP_CALL(timeline->pool, fence_record, timeline->pool->ctx, fence->handle);
	if (result != 0) {
		/* `epoch` has no fence of its own; the next one covers it, and what
		 * was freed into it counts in the epoch that follows. */
		fence_release(timeline, fence);
		return close_failed(result);
	}
	GCP_STORE(timeline->early, counted ? 0 : all);
	if (counted)
		atomic_fetch_sub_explicit(&timeline->filled, all, memory_order_relaxed);
	queue_append(timeline, (struct gcp_closed_epoch){
				   .epoch = epoch,
				   .fence = fence,
				   .bytes = filled > 0 ? (uint64_t)filled : 0,
				   .searches = atomic_load(&timeline->pools->searches),
			       });
	return 0;
}

static int close_open(struct gcp_timeline *timeline, bool counted)
{
	int result;

	gcp_assert_held(GCP_RANK_FENCE);
	if (gcp_timeline_is_held(timeline))
		return -EBUSY;
	if (timeline->refused)
		return -ENOBUFS;
	result = close_by_fence(timeline, counted);
	if (result <= 0)
		return result;
	timeline->refused = true;
	return -ENOBUFS;
}

int gcp_timeline_close_locked(struct gcp_timeline *timeline)
{
	int result = close_open(timeline, true);

	return result == -ENOBUFS ? -EBUSY : result;
}

int gcp_timeline_close_at_once(struct gcp_timeline *timeline)
{
	int result = close_open(timeline, false);

	assert(timeline->awaitable <= timeline->freed); /* W1 */
	assert(timeline->freed < atomic_load(&timeline->open));
	return timeline->refused ? -EBUSY : result;
}

int gcp_timeline_close_end(struct gcp_timeline *timeline, uint64_t epoch, bool device)
{
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	int result = 0;

	gcp_assert_held(GCP_RANK_FENCE);
	if (!closed && !gcp_timeline_is_completed(timeline, epoch)) {
		result = close_open(timeline, device);
		closed = gcp_timeline_covering(timeline, epoch);
	}
	/* Also one that an allocation of another thread has closed since the free
	 * began. */
	if (closed && closed->epoch > timeline->awaitable) {
		timeline->awaitable = closed->epoch;
		if (timeline->freed < closed->epoch)
			timeline->freed = closed->epoch;
	}
	atomic_store(&timeline->closing, false);
	return result;
}

/* --- asking and waiting --------------------------------------------------- */

int gcp_timeline_query_locked(struct gcp_timeline *timeline,
			      struct gcp_closed_epoch closed, bool *ret_advanced)
{
	int result = GCP_CALL(timeline->pool, fence_query, closed.fence->handle);

	gcp_assert_held(GCP_RANK_FENCE);
	*ret_advanced = result == 0;
	if (result == 0)
		gcp_timeline_mark_completed(timeline, closed.epoch);
	return result == GCP_CUDA_NOT_READY ? 0 : result;
}

/* A query costs up to a microsecond, and if this epoch is done all older ones are. */
int gcp_timeline_poll_locked(struct gcp_timeline *timeline, uint32_t depth,
			     bool *ret_advanced)
{
	*ret_advanced = false;
	if (timeline->count == 0 || timeline->detached)
		return 0;
	if (depth >= timeline->count)
		depth = timeline->count - 1;
	return gcp_timeline_query_locked(timeline, *gcp_timeline_at(timeline, depth),
					 ret_advanced);
}

int gcp_timeline_poll_all(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	/* Else none is closed. */
	bool advanced =
	    atomic_load(&timeline->completed) + 1 < atomic_load(&timeline->open);
	int result = 0;

	for (uint32_t depth = 0; result == 0 && advanced; depth = 2 * depth + 1) {
		gcp_mutex_lock(&timeline->pools->fence_lock);
		result = gcp_timeline_poll_locked(timeline, depth, &advanced);
		gcp_mutex_unlock(&timeline->pools->fence_lock);
	}
	return result;
}

int gcp_timeline_close_to_look(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_timeline *timeline = &pool->timeline;
	int result = 0;

	GCP_LOCKED(&pool->pools->fence_lock);
	if (!gcp_timeline_is_completed(timeline, epoch) &&
	    !gcp_timeline_covering(timeline, epoch))
		result = gcp_timeline_close_at_once(timeline);
	if (result == -ENOBUFS && timeline->count > 0)
		result = 0; /* one that is under way will serve again */
	return result;
}

/* Without fence_lock: a kernel may be waiting for what another thread does after its
 * next allocation. */
int gcp_timeline_wait_locked(struct gcp_timeline *timeline,
			     struct gcp_closed_epoch closed, bool own)
{
	struct gcp_fence *fence = closed.fence;
	void *handle = fence->handle;
	bool advanced;

	gcp_assert_held(GCP_RANK_FENCE);
	fence->waiters++;
	gcp_mutex_unlock(&timeline->pools->fence_lock);
	int cancel = gcp_cancel_defer(); /* with its place among the waiters */
	int result = GCP_CALL(timeline->pool, fence_wait, handle, own);
	gcp_cancel_restore(&cancel);
	gcp_mutex_lock(&timeline->pools->fence_lock);
	assert(fence->waiters > 0);
	if (--fence->waiters == 0 && fence->done)
		fence_release(timeline, fence);
	if (result == 0)
		gcp_raise(&timeline->own, closed.epoch);
	if (result == 0 && !own)
		gcp_timeline_mark_completed(timeline, closed.epoch);
	struct gcp_closed_epoch *left = gcp_timeline_covering(timeline, closed.epoch);
	if (result == 0 && left && !gcp_timeline_is_completed(timeline, closed.epoch))
		(void)gcp_timeline_query_locked(timeline, *left, &advanced);
	return result;
}

struct gcp_closed_epoch *gcp_timeline_beyond(struct gcp_timeline *timeline,
					     int64_t most, uint32_t least)
{
	gcp_assert_held(GCP_RANK_FENCE);
	for (uint32_t i = timeline->count; i > 0; i--) {
		struct gcp_closed_epoch *closed = gcp_timeline_at(timeline, i - 1);

		most -= (int64_t)closed->bytes;
		if (most < 0 && timeline->count - i >= least)
			return closed;
	}
	return NULL;
}

/* Closes the open epoch, whatever it takes: a full queue is waited for. */
static int close_for_completion(struct gcp_timeline *timeline, bool own)
{
	int result = 0;

	if (timeline->count == GCP_FENCE_QUEUE && !timeline->detached)
		result = gcp_timeline_wait_locked(
		    timeline, *gcp_timeline_at(timeline, timeline->count - 1), own);
	return result == 0 ? gcp_timeline_close_locked(timeline) : result;
}

int gcp_timeline_complete_locked(struct gcp_timeline *timeline, uint64_t epoch,
				 bool own)
{
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	int result = 0;

	gcp_assert_held(GCP_RANK_FENCE);
	if (gcp_timeline_is_completed(timeline, epoch))
		return 0;
	if (!closed)
		result = close_for_completion(timeline, own);
	if (result != 0 || gcp_timeline_is_completed(timeline, epoch))
		return result;
	closed = gcp_timeline_covering(timeline, epoch);
	result = closed ? gcp_timeline_wait_locked(timeline, *closed, own) : -EBUSY;
	if (result == 0 && !gcp_timeline_is_completed(timeline, epoch))
		result = -EAGAIN;
	return result;
}

/* --- the end -------------------------------------------------------------- */

void gcp_timeline_reset(struct gcp_timeline *timeline)
{
	struct gcp_fence *fence;

	GCP_LOCKED(&timeline->pools->fence_lock);
	timeline->generation++;
	gcp_timeline_mark_completed(timeline, gcp_timeline_next(timeline));
	while ((fence = timeline->spare)) {
		timeline->spare = fence->next;
		fence_discard(timeline, fence);
	}
}
