/* SPDX-License-Identifier: MIT */
/*
 * waiting.c - graph pools without holders whose memory waits, because launches of the
 * last holder may be under way.
 *
 * In a process with one context none waits: the memory goes to the common heap in the
 * epoch that is open, whose fence covers every launch before. That is not enough
 *
 *   with several contexts: the launches may run in any of them, and an epoch is of one.
 *     The memory waits for a fence in all. Drivers without such fences (before CUDA
 *     12.5) keep it for good;
 *   where the graph shares memory: a lane's memory goes to the driver. It waits until
 *     all work of its context is done.
 *
 * Fences are not recorded while a stream is captured, nor by allocations. No call waits
 * for them: they are asked at allocations, at captures, and when memory is out.
 */
#include "share.h"

static bool several_contexts(const struct gcp_tracker *tracker)
{
	return tracker->driver.contexts_are_one && !tracker->driver.contexts_are_one();
}

void gcp_graph_pool_waits_no_more(struct gcp_tracker *tracker,
				  struct gcp_graph_pool *graph_pool)
{
	if (!graph_pool->waits)
		return;
	graph_pool->waits = false;
	TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_sub(&tracker->waiting_count, 1);
	atomic_fetch_sub(&tracker->pending_events, 1);
}

/* Whether it has to wait for more than a fence of its own context: from here on, also
 * if it waited before and has been used since. */
static bool memory_waits(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	const struct gcp_share *share = graph_pool->share;

	graph_pool->several = several_contexts(tracker);
	if (SLIST_EMPTY(&graph_pool->heaps) || (!graph_pool->several && !share)) {
		gcp_graph_pool_waits_no_more(tracker, graph_pool);
		return false;
	}
	graph_pool->fenced = false;
	if (share) {
		graph_pool->life = gcp_pool_life(share->pool);
		graph_pool->moment = gcp_pool_work_now(share->pool);
	}
	if (graph_pool->waits)
		return true;
	graph_pool->waits = true;
	TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_add(&tracker->waiting_count, 1);
	atomic_fetch_add(&tracker->pending_events, 1);
	return true;
}

void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	if (gcp_graph_pool_references(graph_pool) == 0 &&
	    !memory_waits(tracker, graph_pool))
		gcp_graph_pool_end(tracker, graph_pool);
}

/* --- the fence in all contexts --------------------------------------------------- */

static int fence_record(struct gcp_tracker *tracker)
{
	int result = 0;

	if (!tracker->waiting_fence)
		result = tracker->driver.fence_all_create(&tracker->waiting_fence);
	if (result != 0)
		return result;
	if (!gcp_pools_captures_hold(tracker->pools))
		return -EBUSY;
	result = tracker->driver.fence_all_record(tracker->waiting_fence);
	gcp_pools_captures_release(tracker->pools);
	return result;
}

static void fence_set(struct gcp_tracker *tracker)
{
	struct gcp_graph_pool *graph_pool;
	bool wanted = false;

	if (tracker->waiting_pending || !tracker->driver.fence_all_record)
		return;
	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link)
		wanted |= graph_pool->several;
	if (!wanted || fence_record(tracker) != 0)
		return;
	tracker->waiting_pending = true;
	tracker->waiting_looks = 0;
	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link)
		graph_pool->fenced = true;
}

/* Programs allocate much oftener than fences are done. */
static bool is_look_due(uint32_t looks)
{
	enum { LOOKS = 8, LOOKS_APART = 32 };

	return looks < LOOKS || looks % LOOKS_APART == 0;
}

/* What fails says nothing: a new one is set. */
static void fence_look(struct gcp_tracker *tracker, bool must)
{
	struct gcp_graph_pool *graph_pool;
	int result;

	if (!tracker->waiting_pending ||
	    !(is_look_due(tracker->waiting_looks++) || must))
		return;
	result = tracker->driver.fence_all_query(tracker->waiting_fence);
	if (result == GCP_CUDA_NOT_READY)
		return;
	tracker->waiting_pending = false;
	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link)
		graph_pool->fenced &= result == 0;
}

/* --- what is over ------------------------------------------------------------------
 */

static bool is_over(const struct gcp_tracker *tracker,
		    const struct gcp_graph_pool *graph_pool, bool set)
{
	const struct gcp_share *share = graph_pool->share;

	if (graph_pool->several && (!graph_pool->fenced || tracker->waiting_pending))
		return false;
	return !share || !gcp_pool_is_live(share->pool) ||
	       graph_pool->life != gcp_pool_life(share->pool) ||
	       gcp_pool_work_is_done(share->pool, graph_pool->moment, set);
}

static void release_those_over(struct gcp_tracker *tracker, bool set)
{
	struct gcp_graph_pool *graph_pool, *next;

	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		bool held = gcp_graph_pool_references(graph_pool) > 0;

		next = TAILQ_NEXT(graph_pool, waiting_link);
		if (!held && !is_over(tracker, graph_pool, set))
			continue;
		gcp_graph_pool_waits_no_more(tracker, graph_pool);
		if (!held)
			gcp_graph_pool_end(tracker, graph_pool);
	}
}

static bool lock_if_any(struct gcp_tracker *tracker)
{
	if (!atomic_load_explicit(&tracker->waiting_count, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&tracker->lock);
	return true;
}

void gcp_tracker_look(struct gcp_tracker *tracker)
{
	if (!lock_if_any(tracker))
		return;
	fence_look(tracker, false);
	release_those_over(tracker, false);
	pthread_mutex_unlock(&tracker->lock);
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	if (!lock_if_any(tracker))
		return;
	fence_look(tracker, true);
	release_those_over(tracker, true);
	fence_set(tracker);
	fence_look(tracker, false);
	release_those_over(tracker, true);
	pthread_mutex_unlock(&tracker->lock);
}

bool gcp_tracker_reclaim(struct gcp_tracker *tracker)
{
	enum { WAIT_ROUNDS = 20 };
	/* Until the thread asked last: another may have collected since. */
	static __thread uint64_t seen __attribute__((tls_model("initial-exec")));
	bool may_come = true, came = false;

	for (int i = 0; i < WAIT_ROUNDS && may_come && !came; i++) {
		if (i > 0)
			gcp_backoff();
		if (i == 0)
			gcp_tracker_collect(tracker);
		else
			gcp_tracker_look(tracker);
		pthread_mutex_lock(&tracker->lock);
		came = tracker->memory_releases != seen;
		seen = tracker->memory_releases;
		may_come = !TAILQ_EMPTY(&tracker->waiting);
		pthread_mutex_unlock(&tracker->lock);
	}
	return came;
}
