/* SPDX-License-Identifier: MIT */
/*
 * waiting.c - graph pools without holders whose memory waits, because launches of the
 * last holder may be under way.
 *
 * Most do not: the memory goes to the common heap in the epoch that is open, whose
 * fence covers every launch before in the same context. That is not enough
 *
 *   where it was launched in another context. The memory waits for the events behind
 *     all launches of that kind until then;
 *   where a call that launches the graph has not returned yet. It waits for that.
 *
 * No call waits for them: they are asked where graphs and captures end, when memory is
 * out, and now and then at allocations.
 */
#include "share.h"

static void waits_no_more(struct gcp_tracker *tracker,
			  struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (!graph_pool->waits)
		return;
	assert(atomic_load(&tracker->counts.pending_events) > 0);
	graph_pool->waits = false;
	TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_sub(&tracker->counts.pending_events, 1);
}

/* Returns true if a launch may not have returned, or is another context's and may not
 * be done. */
static bool is_launching(const struct gcp_tracker *tracker,
			 const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(!graph_pool->share || graph_pool->share->graph_pool == graph_pool);
	return (graph_pool->share && graph_pool->share->in_progress > 0) ||
	       graph_pool->awaits > tracker->launches_done; /* Y8 */
}

static void end_or_wait(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(gcp_graph_pool_references(graph_pool) == 0 &&
	       !graph_pool->kept); /* Y1 */
	assert(graph_pool->awaits == 0 || graph_pool->away || graph_pool->unseen);
	if (SLIST_EMPTY(&graph_pool->heaps) || !is_launching(tracker, graph_pool)) {
		waits_no_more(tracker, graph_pool);
		gcp_graph_pool_end(tracker, graph_pool);
	} else if (!graph_pool->waits) {
		graph_pool->waits = true;
		tracker->waiting_looks = 0;
		TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
		atomic_fetch_add(&tracker->counts.pending_events, 1);
	}
}

/* From here on, also if it waited before and has been used since. */
void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (gcp_graph_pool_references(graph_pool) > 0)
		return;
	if (graph_pool->away || graph_pool->unseen)
		graph_pool->awaits = tracker->driver.launches_latest();
	end_or_wait(tracker, graph_pool);
}

/* --- what is over ------------------------------------------------------------- */

static void release_those_over(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool, *next;

	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		assert(graph_pool->waits);
		next = TAILQ_NEXT(graph_pool, waiting_link);
		if (gcp_graph_pool_references(graph_pool) > 0)
			waits_no_more(tracker, graph_pool);
		else
			end_or_wait(tracker, graph_pool);
	}
}

/* Programs allocate much oftener than fences are done. */
static bool is_look_due(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	enum { LOOKS = 8, LOOKS_APART = 32 };
	uint32_t looks = tracker->waiting_looks++;

	return looks < LOOKS || looks % LOOKS_APART == 0;
}

static void look(struct gcp_tracker *tracker, bool always)
{
	GCP_TRACKER_LOCKED(tracker);
	if (!TAILQ_EMPTY(&tracker->waiting) && (always || is_look_due(tracker))) {
		tracker->launches_done = tracker->driver.launches_done();
		release_those_over(tracker);
	}
}

/* Frees no pinned memory, which may wait for the device. The two counts are equal where
 * none waits, and may seem so while a capture begins or ends: the next look finds it.
 */
void gcp_tracker_look(struct gcp_tracker *tracker)
{
	if (atomic_load(&tracker->counts.pending_events) !=
	    atomic_load(&tracker->counts.capturing))
		look(tracker, false);
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	look(tracker, true);
	/* Without the lock: the driver frees memory. */
	if (atomic_load(&tracker->pinned_released) &&
	    atomic_exchange(&tracker->pinned_released, false))
		gcp_pinned_keep_limit(tracker->pools);
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
		gcp_tracker_collect(tracker);
		gcp_tracker_lock(tracker);
		came = tracker->memory_releases != seen;
		seen = tracker->memory_releases;
		may_come = !TAILQ_EMPTY(&tracker->waiting);
		gcp_tracker_unlock(tracker);
	}
	return came;
}
