/* SPDX-License-Identifier: MIT */
/*
 * waiting.c - graph pools without holders whose memory waits, because launches of the
 * last holder may be under way.
 *
 * Most do not: the memory goes to the common heap in the epoch that is open, whose
 * fence covers every launch before in the same context. That is not enough
 *
 *   where the program has launched what held it into streams of another context. The
 *     memory waits for a fence in all contexts;
 *   where a call that launches the graph has not returned yet. It waits for that.
 *
 * To make an event in a context can take until its launch queue has room (measured: not
 * back after 1 s), for which plain CUDA waits in none of these calls: fences are set
 * only when memory is out or the program asks for it back (gcpool_trim), and not while
 * a stream is captured. No call waits for them: they are asked there, where graphs and
 * captures end, and now and then at allocations.
 */
#include "share.h"

/* Whether all launches were into streams of the context that its memory is of. */
static bool ran_at_home(const struct gcp_graph_pool *graph_pool)
{
	const struct gcp_launched *launched = &graph_pool->launched;
	const struct gcp_graph_heap *entry;

	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		if (launched->ctx && launched->ctx != gcp_pool_context(entry->pool))
			return false;
	return !launched->many;
}

/* Whether allocations look after it: not while nothing is under way that could end its
 * wait. */
static void look_after(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
		       bool look)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(!graph_pool->looked || atomic_load(&tracker->pending_events) > 0);
	if (look && !graph_pool->looked)
		atomic_fetch_add(&tracker->pending_events, 1);
	if (!look && graph_pool->looked)
		atomic_fetch_sub(&tracker->pending_events, 1);
	graph_pool->looked = look;
}

void gcp_graph_pool_waits_no_more(struct gcp_tracker *tracker,
				  struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (!graph_pool->waits)
		return;
	assert(atomic_load(&tracker->waiting_count) > 0);
	graph_pool->waits = false;
	TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_sub(&tracker->waiting_count, 1);
	look_after(tracker, graph_pool, false);
}

/* Returns true if a call that launches its graph has not returned. */
static bool is_launching(const struct gcp_graph_pool *graph_pool)
{
	assert(!graph_pool->share || graph_pool->share->graph_pool == graph_pool);
	return graph_pool->share && graph_pool->share->in_progress > 0;
}

/* Whether it has to wait for more than a fence of its own context: from here on, also
 * if it waited before and has been used since. */
static bool memory_waits(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(gcp_graph_pool_references(graph_pool) == 0);
	graph_pool->several =
	    !tracker->driver.contexts_are_one() && !ran_at_home(graph_pool);
	if (SLIST_EMPTY(&graph_pool->heaps) ||
	    (!graph_pool->several && !is_launching(graph_pool))) {
		gcp_graph_pool_waits_no_more(tracker, graph_pool);
		return false;
	}
	graph_pool->fenced = false;
	look_after(tracker, graph_pool, !graph_pool->several);
	if (graph_pool->waits)
		return true;
	graph_pool->waits = true;
	tracker->waiting_looks = 0;
	TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_add(&tracker->waiting_count, 1);
	return true;
}

void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (gcp_graph_pool_references(graph_pool) == 0 &&
	    !memory_waits(tracker, graph_pool))
		gcp_graph_pool_end(tracker, graph_pool);
}

/* --- the fence in all contexts ---------------------------------------------------- */

/* It is not recorded again before it is done: what has begun to wait since would keep
 * the others waiting. */
static void fence_set(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool;
	bool wanted = false;

	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link) {
		assert(!graph_pool->fenced || tracker->fence_pending);
		wanted |= graph_pool->several && !graph_pool->fenced;
	}
	if (!wanted || tracker->fence_pending)
		return;
	if (!tracker->fence && tracker->driver.fence_all_create(&tracker->fence) != 0)
		tracker->fence = NULL;
	if (!tracker->fence || !gcp_pools_captures_hold(tracker->pools))
		return;
	tracker->fence_pending = tracker->driver.fence_all_record(tracker->fence) == 0;
	gcp_pools_captures_release(tracker->pools);
	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link) {
		graph_pool->fenced = tracker->fence_pending;
		look_after(tracker, graph_pool,
			   tracker->fence_pending || !graph_pool->several);
	}
}

/* What fails says nothing: those behind it get another one. */
static void fence_look(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool;
	int result = tracker->fence_pending
			 ? tracker->driver.fence_all_query(tracker->fence)
			 : GCP_CUDA_NOT_READY;

	if (result == GCP_CUDA_NOT_READY)
		return;
	tracker->fence_pending = false;
	TAILQ_FOREACH (graph_pool, &tracker->waiting, waiting_link) {
		assert(graph_pool->waits);
		graph_pool->several &= !graph_pool->fenced || result != 0;
		graph_pool->fenced = false;
		look_after(tracker, graph_pool, !graph_pool->several);
	}
}

/* --- what is over ------------------------------------------------------------- */

static void release_those_over(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool, *next;

	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		bool held = gcp_graph_pool_references(graph_pool) > 0;

		assert(graph_pool->waits);
		next = TAILQ_NEXT(graph_pool, waiting_link);
		if (!held && (graph_pool->several || is_launching(graph_pool)))
			continue;
		gcp_graph_pool_waits_no_more(tracker, graph_pool);
		if (!held)
			gcp_graph_pool_end(tracker, graph_pool);
	}
}

static void dropped_release(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	while ((hold = SLIST_FIRST(&tracker->dropped))) {
		SLIST_REMOVE_HEAD(&tracker->dropped, link);
		atomic_fetch_sub(&tracker->waiting_count, 1);
		assert(hold->graph_pool->graphs > 0);
		hold->graph_pool->graphs--;
		gcp_graph_pool_ref_released(tracker, hold->graph_pool);
		free(hold);
	}
}

static bool lock_if_any(struct gcp_tracker *tracker)
{
	if (!atomic_load_explicit(&tracker->waiting_count, memory_order_relaxed))
		return false;
	gcp_tracker_lock(tracker);
	return true;
}

/* Programs allocate much oftener than fences are done. */
static bool is_look_due(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	enum { LOOKS = 8, LOOKS_APART = 32 };
	uint32_t looks = tracker->waiting_looks++;

	return looks < LOOKS || looks % LOOKS_APART == 0;
}

void gcp_tracker_look(struct gcp_tracker *tracker)
{
	if (!lock_if_any(tracker))
		return;
	if (is_look_due(tracker)) {
		fence_look(tracker);
		release_those_over(tracker);
	}
	gcp_tracker_unlock(tracker);
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	if (lock_if_any(tracker)) {
		dropped_release(tracker);
		fence_look(tracker);
		release_those_over(tracker);
		gcp_tracker_unlock(tracker);
	}
	/* Without the lock: the driver frees memory. */
	if (atomic_load(&tracker->pinned_released) &&
	    atomic_exchange(&tracker->pinned_released, false))
		gcp_pinned_keep_limit(tracker->pools);
}

void gcp_tracker_fetch(struct gcp_tracker *tracker)
{
	gcp_tracker_collect(tracker);
	if (!lock_if_any(tracker))
		return;
	fence_set(tracker);
	gcp_tracker_unlock(tracker);
	gcp_tracker_collect(tracker);
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
		gcp_tracker_fetch(tracker);
		gcp_tracker_lock(tracker);
		came = tracker->memory_releases != seen;
		seen = tracker->memory_releases;
		may_come = !TAILQ_EMPTY(&tracker->waiting);
		gcp_tracker_unlock(tracker);
	}
	return came;
}
