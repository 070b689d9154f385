/* SPDX-License-Identifier: MIT */
/*
 * pinned_fence.c - the epochs of pinned host memory: one sequence for the process,
 * whose fences are an event in every context that lives when they are recorded.
 *
 * The rules are fence.c's. Each free closes its epoch. What is decided here is how much
 * is waited for: only ever work of the block's own context, submitted before the free,
 * as plain cudaFreeHost would have waited for it in that free.
 *
 * An epoch is completed when its fence is done in all contexts. But a kernel of another
 * context may run for as long as the program does. So the fences of one sequence are
 * also counted in each single context, where they complete in order, too: the epochs
 * up to pool->pinned_done are done in the context of the pool, and its blocks of these
 * epochs are ready. That is as much as plain CUDA promises: cudaFreeHost waits for no
 * other context. The mark moves only when more is pending than the window allows, and
 * when memory is out; until then a block waits for all contexts.
 *
 * An allocation that is out of memory waits for no epoch but one that a free closed
 * (pool->pinned_freed): later work may be what waits for this very thread.
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

static int all_query(struct gcp_timeline *timeline, void *handle, void *ctx)
{
	return GCP_PINNED_CALL(timeline->pools->pinned, host_fence_query,
			       fence_all_query, handle, ctx);
}

static int all_wait(struct gcp_timeline *timeline, void *handle, void *ctx)
{
	return GCP_PINNED_CALL(timeline->pools->pinned, host_fence_wait, fence_all_wait,
			       handle, ctx);
}

static bool all_keep(const struct gcp_timeline *timeline, uint64_t epoch)
{
	const struct gcp_pool *pool = timeline->pools->first;

	while (pool && atomic_load(&pool->pinned_freed) != epoch)
		pool = pool->next;
	return pool != NULL;
}

const struct gcp_fence_scope gcp_pinned_fences = {
    .create = all_create,
    .record = all_record,
    .query = all_query,
    .wait = all_wait,
    .keeps = all_keep,
};

/* --- counting: decides speed and memory, never safety --------------------- */

uint64_t gcp_pinned_timeline_pending(const struct gcp_pinned *pinned)
{
	return atomic_load_explicit(&pinned->timeline.pending_bytes,
				    memory_order_relaxed) +
	       (uint64_t)gcp_timeline_filled(&pinned->timeline);
}

/* --- for the rest of the room --------------------------------------------- */

static int close(struct gcp_timeline *timeline, uint64_t epoch)
{
	int result = 0;

	gcp_assert_held(GCP_RANK_FENCE);
	if (!gcp_timeline_is_completed(timeline, epoch) &&
	    !gcp_timeline_covering(timeline, epoch))
		result = gcp_timeline_close_locked(timeline);
	return result == -EBUSY ? 0 : result;
}

int gcp_pinned_timeline_close(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_timeline *timeline = &pool->pools->pinned->timeline;

	GCP_LOCKED(&pool->pools->fence_lock);
	int result = close(timeline, epoch);
	struct gcp_closed_epoch *closed = gcp_timeline_covering(timeline, epoch);
	if (closed)
		gcp_raise(&pool->pinned_freed, closed->epoch);
	return result;
}

void gcp_pinned_timeline_ask(struct gcp_pinned *pinned, uint64_t epoch)
{
	gcp_mutex_lock(&pinned->pools->fence_lock);
	(void)close(&pinned->timeline, epoch); /* an error shows again */
	gcp_mutex_unlock(&pinned->pools->fence_lock);
	(void)gcp_timeline_advance_all(&pinned->timeline);
}

/* --- done in one context --------------------------------------------------- */

void gcp_pinned_timeline_done(struct gcp_pool *pool, uint64_t epoch)
{
	assert(epoch < atomic_load(&pool->pools->pinned->timeline.open));
	gcp_raise(&pool->pinned_done, epoch); /* a release: behind the work */
}

/* Whether the closed epoch is done in the context of `pool`, as far as is known. */
static bool is_done_here(const struct gcp_pool *pool,
			 const struct gcp_closed_epoch *closed)
{
	return closed->epoch <= atomic_load(&pool->pinned_done);
}

/* The errors of other contexts are not the caller's; that of this one is. What others
 * do for this context is not waited for: it is asked for. fence_lock is not held
 * meanwhile. */
static int wait_here(struct gcp_pool *pool, struct gcp_closed_epoch closed)
{
	struct gcp_timeline *timeline = &pool->pools->pinned->timeline;
	int result = gcp_timeline_wait_own(timeline, closed, pool->ctx);
	struct gcp_closed_epoch *left = gcp_timeline_covering(timeline, closed.epoch);

	gcp_assert_held(GCP_RANK_FENCE);
	if (result == 0 && left &&
	    all_query(timeline, left->fence->handle, pool->ctx) == 0)
		gcp_pinned_timeline_done(pool, closed.epoch);
	return result;
}

int gcp_pinned_timeline_wait(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	struct gcp_closed_epoch *closed;
	int result = 0;

	GCP_LOCKED(&pinned->pools->fence_lock);
	closed = gcp_timeline_covering(&pinned->timeline, epoch);
	if (closed && !is_done_here(pool, closed) &&
	    !gcp_timeline_is_completed(&pinned->timeline, epoch))
		result = wait_here(pool, *closed);
	return result;
}

int gcp_pinned_timeline_keep_window(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->pools->pinned->timeline;
	int64_t most = (int64_t)pool->pools->config.pinned_window;
	struct gcp_closed_epoch *closed;
	int result = 0;

	GCP_LOCKED(&pool->pools->fence_lock);
	/* Memory that other contexts have freed counts, too. */
	closed = gcp_timeline_beyond(timeline, most - gcp_timeline_filled(timeline), 0);
	if (closed && !is_done_here(pool, closed))
		result = wait_here(pool, *closed);
	return result;
}

/* Asks for the parts of the fences in the context of `pool`, up to one that is not done
 * or cannot be asked. */
static void look_in(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->pools->pinned->timeline;

	GCP_LOCKED(&pool->pools->fence_lock);
	for (uint32_t i = 0; i < timeline->count; i++) {
		struct gcp_closed_epoch *closed = gcp_timeline_at(timeline, i);

		if (is_done_here(pool, closed))
			continue;
		if (all_query(timeline, closed->fence->handle, pool->ctx) != 0)
			break;
		gcp_pinned_timeline_done(pool, closed->epoch);
	}
}

uint64_t gcp_pinned_timeline_look(struct gcp_pinned *pinned)
{
	uint64_t epoch = gcp_timeline_now(&pinned->timeline);

	gcp_pinned_timeline_ask(pinned, epoch);
	for (struct gcp_pool *pool = pinned->pools->first; pool; pool = pool->next)
		look_in(pool);
	return epoch;
}
