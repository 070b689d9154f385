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
 * No call waits for them: they are asked where graphs and captures begin and end, and
 * when memory is out.
 */
#include "share.h"

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
	if (graph_pool->waits)
		return;
	graph_pool->waits = true;
	TAILQ_INSERT_TAIL(&tracker->waiting, graph_pool, waiting_link);
}

/* --- what is over ------------------------------------------------------------- */

/* A call that launches it may not have returned; or a launch, in another context or not
 * seen, may not be done. */
static void release_those_over(struct gcp_tracker *tracker)
{
	GCP_TRACKER_LOCKED(tracker);
	struct gcp_graph_pool *graph_pool, *next;
	uint64_t done =
	    TAILQ_EMPTY(&tracker->waiting) ? 0 : tracker->driver.launches_done();

	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		bool used = gcp_graph_pool_references(graph_pool) > 0;

		next = TAILQ_NEXT(graph_pool, waiting_link);
		assert(graph_pool->waits && (used || !graph_pool->kept));
		assert(graph_pool->awaits == 0 || graph_pool->away ||
		       graph_pool->unseen);
		if (!used && !SLIST_EMPTY(&graph_pool->heaps) &&
		    (graph_pool->in_progress > 0 || graph_pool->awaits > done)) /* Y8 */
			continue;
		graph_pool->waits = false;
		TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
		if (!used)
			gcp_graph_pool_end(tracker, graph_pool);
	}
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	release_those_over(tracker);
	assert(gcp_ranks_held == 0); /* the driver frees memory */
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

	assert(gcp_ranks_held == 0); /* it waits */
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
