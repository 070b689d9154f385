/* SPDX-License-Identifier: MIT */
/*
 * pinned_fence.c - the epochs of pinned host memory: one sequence for the process,
 * whose fences are an event in every context that lives when they are recorded.
 *
 * The rules are fence.c's. What is decided here is when an epoch is closed, and how
 * much a free waits: only ever in the freed block's own context.
 *
 * The fences of one sequence complete in order in each single context, too: a number
 * for each context (the epochs that are done there) would be enough to know which
 * blocks of that context are, while another context is still at work.
 *
 * Called by pinned.c, pinned_set.c and pinned_reclaim.c without locks.
 */
#include "pinned_types.h"

/* --- the scope ------------------------------------------------------------ */

static int all_create(struct gcp_timeline *timeline, void **ret_handle)
{
	return timeline->pools->driver.fence_all_create(ret_handle);
}

static int all_record(struct gcp_timeline *timeline, void *handle)
{
	return GCP_PINNED_CALL(timeline->pools->pinned, host_fence_record,
			       fence_all_record, handle);
}

static int all_query(struct gcp_timeline *timeline, void *handle)
{
	return GCP_PINNED_CALL(timeline->pools->pinned, host_fence_query,
			       fence_all_query, handle);
}

static int all_wait(struct gcp_timeline *timeline, void *handle, void *ctx)
{
	return GCP_PINNED_CALL(timeline->pools->pinned, host_fence_wait, fence_all_wait,
			       handle, ctx);
}

/* Nothing is pooled from now on, and what was is freed by the driver. Until a context
 * ends, which may be the one that cannot be asked. */
static int all_failed(struct gcp_timeline *timeline, int failure)
{
	atomic_store(&timeline->pools->pinned->off, true);
	return failure;
}

static void all_closing(struct gcp_timeline *timeline)
{
	struct gcp_pinned *pinned = timeline->pools->pinned;

	atomic_store_explicit(&pinned->closed_ns, pinned->pools->driver.clock_ns(),
			      memory_order_relaxed);
}

const struct gcp_fence_scope gcp_pinned_fences = {
    .create = all_create,
    .record = all_record,
    .query = all_query,
    .wait = all_wait,
    .failed = all_failed,
    .closing = all_closing,
};

/* --- counting: decides speed and memory, never safety --------------------- */

uint64_t gcp_pinned_timeline_pending(const struct gcp_pinned *pinned)
{
	return atomic_load_explicit(&pinned->timeline.pending_bytes,
				    memory_order_relaxed) +
	       (uint64_t)gcp_timeline_filled(&pinned->timeline);
}

bool gcp_pinned_timeline_count(struct gcp_pinned *pinned, uint64_t bytes)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint32_t blocks = atomic_fetch_add_explicit(&pinned->timeline.blocks, 1,
						    memory_order_relaxed) +
			  1;

	atomic_fetch_add_explicit(&pinned->timeline.filled, (int64_t)bytes,
				  memory_order_relaxed);
	/* Programs that free now and then get each free its fence at once, so that
	 * the block is ready when they come back for it. */
	return blocks >= config->pinned_epoch_blocks ||
	       gcp_pinned_timeline_pending(pinned) > config->pinned_window ||
	       pinned->pools->driver.clock_ns() -
		       atomic_load_explicit(&pinned->closed_ns, memory_order_relaxed) >
		   GCP_PINNED_AGE_NS;
}

/* --- for the rest of the room --------------------------------------------- */

int gcp_pinned_timeline_close(struct gcp_pinned *pinned)
{
	if (!gcp_timeline_close_begin(&pinned->timeline))
		return 0;
	int result = gcp_timeline_close_end(&pinned->timeline,
					    gcp_timeline_now(&pinned->timeline));
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_pinned_timeline_close_for(struct gcp_pinned *pinned, uint64_t epoch)
{
	int result = 0;

	gcp_mutex_lock(&pinned->pools->fence_lock);
	if (!gcp_timeline_covering(&pinned->timeline, epoch) &&
	    !gcp_pinned_epoch_ready(pinned, epoch))
		result = gcp_timeline_close_locked(&pinned->timeline);
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_pinned_timeline_poll(struct gcp_pinned *pinned, uint64_t epoch)
{
	bool advanced;
	int result = 0;

	gcp_mutex_lock(&pinned->pools->fence_lock);
	struct gcp_closed_epoch *closed =
	    gcp_timeline_covering(&pinned->timeline, epoch);
	if (closed && !gcp_pinned_epoch_ready(pinned, epoch))
		result =
		    gcp_timeline_query_locked(&pinned->timeline, *closed, &advanced);
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

/* Waits for the fence in `ctx`, then looks whether it is done in all. The errors of
 * other contexts are not the caller's; that of `ctx` is. */
static int wait_in(struct gcp_pinned *pinned, uint64_t epoch, void *ctx,
		   bool *ret_advanced)
{
	struct gcp_timeline *timeline = &pinned->timeline;
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	int result = 0;

	gcp_assert_held(GCP_RANK_FENCE);
	*ret_advanced = false;
	if (closed)
		(void)gcp_timeline_query_locked(timeline, *closed, ret_advanced);
	if (!closed || *ret_advanced)
		return 0;
	result = gcp_timeline_wait_locked(timeline, *closed, ctx);
	atomic_fetch_add_explicit(&pinned->waits, 1, memory_order_relaxed);
	closed = gcp_timeline_covering(timeline, epoch);
	if (result == 0 && closed)
		(void)gcp_timeline_query_locked(timeline, *closed, ret_advanced);
	return result;
}

int gcp_pinned_timeline_wait(struct gcp_pinned *pinned, uint64_t epoch, void *ctx,
			     bool *ret_advanced)
{
	int result = 0;

	*ret_advanced = false;
	gcp_mutex_lock(&pinned->pools->fence_lock);
	if (epoch == 0 || !gcp_pinned_epoch_ready(pinned, epoch))
		result = wait_in(pinned, epoch, ctx, ret_advanced);
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}

int gcp_pinned_timeline_complete(struct gcp_pinned *pinned)
{
	int result;

	gcp_mutex_lock(&pinned->pools->fence_lock);
	result = gcp_timeline_complete_locked(&pinned->timeline,
					      gcp_timeline_now(&pinned->timeline));
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	return result;
}
