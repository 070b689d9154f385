/* SPDX-License-Identifier: MIT */
/*
 * waiting.c - graph pools without holders, until their memory goes to the common heaps.
 *
 * Most go at the end of the call that took the last reference: the memory gets the
 * epoch that is open, whose fence covers every launch before in the same context. That
 * is not enough
 *
 *   where it was launched in another context. The memory waits for the events behind
 *     all launches of that kind until then;
 *   where a call that launches the graph has not returned yet. It waits for that.
 *
 * No call waits for them: they are asked where graphs and captures end, when memory is
 * out, and now and then at allocations.
 */
#include "share.h"

/* Returns true if a launch may not have returned, or is another context's and may not
 * be done. */
static bool is_launching(const struct gcp_tracker *tracker,
			 const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(graph_pool->awaits == 0 || graph_pool->away || graph_pool->unseen);
	return !SLIST_EMPTY(&graph_pool->heaps) &&
	       (graph_pool->in_progress > 0 ||
		graph_pool->awaits > tracker->launches_done); /* Y8 */
}

/* Also if it waits already, and was used meanwhile. */
void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (gcp_graph_pool_references(graph_pool) > 0)
		return;
	assert(!graph_pool->kept); /* Y1: a reference by itself */
	if (graph_pool->away || graph_pool->unseen)
		graph_pool->awaits = tracker->driver.launches_latest();
	tracker->waiting_looks = 0;
	if (graph_pool->waits)
		return;
	graph_pool->waits = true;
	TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
	atomic_fetch_add(&tracker->counts.pending_events, 1);
}

/* --- what is over ------------------------------------------------------------- */

static void release_those_over(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool, *next;

	tracker->launches_done = tracker->driver.launches_done();
	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		bool used = gcp_graph_pool_references(graph_pool) > 0;

		next = TAILQ_NEXT(graph_pool, waiting_link);
		if (!used && is_launching(tracker, graph_pool))
			continue;
		assert(graph_pool->waits);
		assert(used || SLIST_EMPTY(&graph_pool->heaps) ||
		       graph_pool->awaits <= tracker->launches_done); /* Y8 */
		assert(atomic_load(&tracker->counts.pending_events) > 0);
		graph_pool->waits = false;
		TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
		atomic_fetch_sub(&tracker->counts.pending_events, 1);
		if (!used)
			gcp_graph_pool_end(tracker, graph_pool);
	}
}

/* Programs allocate much oftener than fences are done. */
static void look(struct gcp_tracker *tracker, bool always)
{
	enum { LOOKS = 8, LOOKS_APART = 32 };

	GCP_TRACKER_LOCKED(tracker);
	if (!TAILQ_EMPTY(&tracker->waiting) &&
	    (tracker->waiting_looks++ < LOOKS || always ||
	     tracker->waiting_looks % LOOKS_APART == 0))
		release_those_over(tracker);
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
