/* SPDX-License-Identifier: MIT */
/*
 * pinned_fence.c - epochs of frees of pinned host memory, and the fences that
 * complete them.
 *
 * THE SAFETY RULE OF PINNED MEMORY LIVES HERE. It is fence.c's, with three
 * differences:
 *
 *   - The CPU writes into a block the moment it gets it, and stands in no context's
 *     queue: an epoch is ready when its fence is COMPLETED, never before. There are no
 *     barriers.
 *   - With unified addressing every context can use all pinned memory, whatever
 *     its flags say (CUDA Driver API, "Unified Addressing": host memory allocated by
 *     cuMemHostAlloc is accessible from all contexts). So there is one sequence of
 *     epochs for the process, and a fence is an event in EVERY context that lives when
 *     it is recorded. A context that is made later has had no work yet.
 *   - An allocation may close an epoch as well, because it only looks whether the
 *     fence is done, and holds nothing back.
 *
 * NO NEW WAITS. The host waits inside frees only, and there only for work of the
 * freed block's own context that was submitted before: cudaFreeHost of plain CUDA
 * waits for all of that. It never waits for other contexts, whose work may be
 * waiting for what this thread does next. (When memory is out an allocation waits
 * for whatever there is.)
 *
 * Who frees reads `open` behind a full fence; who closes moves `open` on and records
 * then: the argument of fence.c, word for word.
 *
 * Called by pinned.c and pinned_reclaim.c without locks. Takes fence_lock, because a
 * capture and a fence exclude each other.
 */
#include "pinned_types.h"

enum { /* CUresults of calls that a capture forbids: cuda.h, 900 to 908 */
       CUDA_CAPTURE_FIRST = 900,
       CUDA_CAPTURE_LAST = 908,
       LOAD_SHIFT = 40, /* load: blocks above, units of 512 bytes below */
};

uint64_t gcp_pinned_timeline_stamp(struct gcp_pinned *pinned)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&pinned->timeline.open, memory_order_seq_cst);
}

/* --- counting: decides speed and memory, never safety -------------------------------
 */

static uint64_t load_bytes(uint64_t load)
{
	return (load & ((1ull << LOAD_SHIFT) - 1)) * GCP_UNIT;
}

uint64_t gcp_pinned_timeline_pending(const struct gcp_pinned *pinned)
{
	return atomic_load_explicit(&pinned->timeline.pending_bytes,
				    memory_order_relaxed) +
	       load_bytes(
		   atomic_load_explicit(&pinned->timeline.load, memory_order_relaxed));
}

bool gcp_pinned_timeline_count(struct gcp_pinned *pinned, uint64_t bytes)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	const struct gcp_config *config = &pinned->pools->config;
	uint64_t more = (1ull << LOAD_SHIFT) + (bytes + GCP_UNIT - 1) / GCP_UNIT;
	uint64_t load =
	    atomic_fetch_add_explicit(&timeline->load, more, memory_order_relaxed) +
	    more;

	/* Programs that free now and then get each free its fence at once, so that
	 * the block is ready when they come back for it. */
	return load >> LOAD_SHIFT >= config->pinned_epoch_blocks ||
	       gcp_pinned_timeline_pending(pinned) > config->pinned_window ||
	       pinned->pools->driver.clock_ns() -
		       atomic_load_explicit(&timeline->closed_ns,
					    memory_order_relaxed) >
		   GCP_PINNED_AGE_NS;
}

/* --- the queue: fence_lock is held ---------------------------------------------------
 */

static struct gcp_pinned_closed_epoch *queue_at(struct gcp_pinned_timeline *timeline,
						uint32_t i)
{
	assert(i < timeline->count);
	return &timeline->queue[(timeline->head + i) % GCP_PINNED_QUEUE];
}

static void fence_release(struct gcp_pinned_timeline *timeline,
			  struct gcp_pinned_fence *fence)
{
	fence->done = true;
	if (fence->waiters > 0)
		return; /* the last who waits for it does this */
	fence->next = timeline->spare;
	timeline->spare = fence;
}

static struct gcp_pinned_fence *fence_take(struct gcp_pinned *pinned)
{
	struct gcp_pinned_fence *fence = pinned->timeline.spare;

	if (fence) {
		pinned->timeline.spare = fence->next;
	} else {
		fence = gcp_descriptor_alloc(&pinned->fence_descriptors);
		if (!fence)
			return NULL;
		*fence = (struct gcp_pinned_fence){0};
		if (pinned->pools->driver.fence_all_create(&fence->handle) != 0) {
			gcp_descriptor_free(&pinned->fence_descriptors, fence);
			return NULL;
		}
	}
	fence->done = false;
	return fence;
}

static void epochs_completed(struct gcp_pinned_timeline *timeline, uint64_t epoch)
{
	while (timeline->count > 0 && queue_at(timeline, 0)->epoch <= epoch) {
		fence_release(timeline, queue_at(timeline, 0)->fence);
		atomic_fetch_sub(&timeline->pending_bytes,
				 queue_at(timeline, 0)->bytes);
		timeline->head = (timeline->head + 1) % GCP_PINNED_QUEUE;
		timeline->count--;
	}
	if (atomic_load_explicit(&timeline->completed, memory_order_relaxed) < epoch)
		atomic_store_explicit(&timeline->completed, epoch,
				      memory_order_release);
}

/* Where the oldest closed epoch that covers `epoch` is; `count`: it is still open. */
static uint32_t queue_find(struct gcp_pinned_timeline *timeline, uint64_t epoch)
{
	uint32_t i = 0;

	while (i < timeline->count && queue_at(timeline, i)->epoch < epoch)
		i++;
	return i;
}

/* Fences do not work here: nothing is pooled from now on, and what was is freed
 * by the driver. Until a context ends, which may be the one that cannot be asked. */
static int close_failed(struct gcp_pinned *pinned, int result)
{
	if (result < 0 || result == GCP_CUDA_OUT_OF_MEMORY ||
	    (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST))
		return -EBUSY; /* a capture that nobody told us of; or for now */
	atomic_store(&pinned->off, true);
	return result;
}

static int query_locked(struct gcp_pinned *pinned, uint32_t i, bool *ret_advanced);

/* Makes room in a full queue: what is completed leaves it; else every other fence is
 * forgotten, and its epoch is known to be completed when the next one is. */
static void queue_thin(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	uint64_t bytes = 0;
	uint32_t kept = 0;
	bool advanced;

	(void)query_locked(pinned, 0, &advanced);
	if (timeline->count < GCP_PINNED_QUEUE)
		return;
	for (uint32_t i = 0; i < timeline->count; i++) {
		struct gcp_pinned_closed_epoch closed = *queue_at(timeline, i);

		closed.bytes += bytes;
		bytes = 0;
		if (i % 2 == 0 && i + 1 < timeline->count) {
			fence_release(timeline, closed.fence);
			bytes = closed.bytes;
		} else {
			*queue_at(timeline, kept++) = closed;
		}
	}
	timeline->count = kept;
}

static int close_locked(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	struct gcp_pinned_fence *fence;

	if (atomic_load_explicit(&pinned->pools->holds, memory_order_relaxed) > 0)
		return -EBUSY;
	if (timeline->count == GCP_PINNED_QUEUE)
		queue_thin(pinned);
	fence = fence_take(pinned);
	if (!fence)
		return -EBUSY;
	uint64_t epoch =
	    atomic_fetch_add_explicit(&timeline->open, 1, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst); /* as gcp_timeline_advance */
	uint64_t bytes = load_bytes(atomic_exchange(&timeline->load, 0));
	int result =
	    GCP_PINNED_CALL(pinned, host_fence_record, fence_all_record, fence->handle);

	atomic_fetch_add(&timeline->pending_bytes, bytes);
	if (result != 0) {
		/* `epoch` has no fence of its own; the next one covers it. */
		atomic_fetch_sub(&timeline->pending_bytes, bytes);
		fence_release(timeline, fence);
		return close_failed(pinned, result);
	}
	timeline->count++;
	*queue_at(timeline, timeline->count - 1) = (struct gcp_pinned_closed_epoch){
	    .epoch = epoch, .bytes = bytes, .fence = fence};
	atomic_store_explicit(&timeline->closed_ns, pinned->pools->driver.clock_ns(),
			      memory_order_relaxed);
	atomic_fetch_add_explicit(&pinned->closed, 1, memory_order_relaxed);
	return 0;
}

/* *ret_advanced: the i-th epoch of the queue is completed, and all before it. */
static int query_locked(struct gcp_pinned *pinned, uint32_t i, bool *ret_advanced)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	struct gcp_pinned_closed_epoch closed = *queue_at(timeline, i);
	int result = GCP_PINNED_CALL(pinned, host_fence_query, fence_all_query,
				     closed.fence->handle);

	*ret_advanced = result == 0;
	if (result == 0)
		epochs_completed(timeline, closed.epoch);
	return result == GCP_CUDA_NOT_READY ? 0 : result;
}

/* Lets go of fence_lock while the host waits. */
static int wait_locked(struct gcp_pinned *pinned, struct gcp_pinned_fence *fence,
		       void *ctx)
{
	struct gcp_pools *pools = pinned->pools;
	int result;

	fence->waiters++;
	pthread_mutex_unlock(&pools->fence_lock);
	result = GCP_PINNED_CALL(pinned, host_fence_wait, fence_all_wait, fence->handle,
				 ctx);
	pthread_mutex_lock(&pools->fence_lock);
	if (--fence->waiters == 0 && fence->done)
		fence_release(&pinned->timeline, fence);
	return result;
}

/* --- for the rest of the room
 * ---------------------------------------------------------- */

int gcp_pinned_timeline_close(struct gcp_pinned *pinned)
{
	struct gcp_pools *pools = pinned->pools;
	int result = 0;

	/* Somebody else closes an epoch just now, and his fence or the next one covers
	 * ours. */
	if (atomic_load_explicit(&pools->holds, memory_order_relaxed) > 0 ||
	    atomic_exchange(&pinned->timeline.closing, true))
		return 0;
	pthread_mutex_lock(&pools->fence_lock);
	result = close_locked(pinned);
	pthread_mutex_unlock(&pools->fence_lock);
	atomic_store(&pinned->timeline.closing, false);
	return result == -EBUSY ? 0 : result;
}

int gcp_pinned_timeline_close_for(struct gcp_pinned *pinned, uint64_t epoch)
{
	int result = 0;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	if (queue_find(&pinned->timeline, epoch) == pinned->timeline.count &&
	    !gcp_pinned_epoch_ready(pinned, epoch))
		result = close_locked(pinned);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_pinned_timeline_poll(struct gcp_pinned *pinned, uint64_t epoch)
{
	bool advanced;
	int result = 0;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	uint32_t i = queue_find(&pinned->timeline, epoch);
	if (i < pinned->timeline.count && !gcp_pinned_epoch_ready(pinned, epoch))
		result = query_locked(pinned, i, &advanced);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

int gcp_pinned_timeline_poll_all(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	bool advanced = true;
	int result = 0;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	for (uint32_t i = 0; result == 0 && advanced && timeline->count > 0;
	     i = 2 * i + 1)
		result = query_locked(
		    pinned, i < timeline->count ? i : timeline->count - 1, &advanced);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

/* The errors of other contexts are not the caller's; that of `ctx` is. */
static int wait_in(struct gcp_pinned *pinned, uint64_t epoch, void *ctx,
		   bool *ret_advanced)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	uint32_t i = queue_find(timeline, epoch);
	int result = 0;

	*ret_advanced = false;
	if (i < timeline->count)
		(void)query_locked(pinned, i, ret_advanced);
	if (i >= timeline->count || *ret_advanced)
		return 0;
	result = wait_locked(pinned, queue_at(timeline, i)->fence, ctx);
	atomic_fetch_add_explicit(&pinned->waits, 1, memory_order_relaxed);
	i = queue_find(timeline, epoch);
	if (result == 0 && i < timeline->count)
		(void)query_locked(pinned, i, ret_advanced);
	return result;
}

int gcp_pinned_timeline_wait_oldest(struct gcp_pinned *pinned, void *ctx,
				    bool *ret_advanced)
{
	int result;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	result = wait_in(pinned, 0, ctx, ret_advanced);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

int gcp_pinned_timeline_wait_for(struct gcp_pinned *pinned, uint64_t epoch, void *ctx)
{
	bool advanced;
	int result = 0;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	if (!gcp_pinned_epoch_ready(pinned, epoch))
		result = wait_in(pinned, epoch, ctx, &advanced);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

static int complete_locked(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	uint64_t epoch = gcp_pinned_timeline_stamp(pinned);
	int result = close_locked(pinned);

	while (result == 0 && !gcp_pinned_epoch_ready(pinned, epoch) &&
	       timeline->count > 0) {
		struct gcp_pinned_closed_epoch closed =
		    *queue_at(timeline, timeline->count - 1);

		result = wait_locked(pinned, closed.fence, NULL);
		if (result == 0)
			epochs_completed(timeline, closed.epoch);
	}
	return result;
}

int gcp_pinned_timeline_complete(struct gcp_pinned *pinned)
{
	int result;

	pthread_mutex_lock(&pinned->pools->fence_lock);
	result = complete_locked(pinned);
	pthread_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

/* For tests. */
void gcp_pinned_timeline_destroy(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;

	while (timeline->count > 0)
		epochs_completed(timeline,
				 queue_at(timeline, timeline->count - 1)->epoch);
	while (timeline->spare) {
		pinned->pools->driver.fence_all_destroy(timeline->spare->handle);
		timeline->spare = timeline->spare->next;
	}
}
