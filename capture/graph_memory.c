/* SPDX-License-Identifier: MIT */
/*
 * graph_memory.c - the memory of graph pools: heaps and pinned memory, from the first
 * allocation until it goes to the common heaps.
 *
 * Most goes at the end of the call that took the last reference: the memory gets the
 * epoch that is open, whose fence covers every launch before in the same context. That
 * is not enough
 *
 *   where it was launched in another context. The memory waits for the events behind
 *     all launches of that kind until then;
 *   where a call that launches the graph has not returned yet. It waits for that.
 *
 * No call waits for them: they are asked where graphs and captures begin and end,
 * before new memory is taken, and when memory is out.
 */
#include "share.h"

struct gcp_graph_pool *gcp_graph_pool_make(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool = calloc(1, sizeof(*graph_pool));

	if (!graph_pool)
		return NULL;
	graph_pool->id = ++tracker->last_pool_id;
	graph_pool->group = GCP_GROUP_FIRST;
	TAILQ_INSERT_TAIL(&tracker->graph_pools, graph_pool, link);
	return graph_pool;
}

int gcp_graph_pool_heap(struct gcp_graph_pool *graph_pool, struct gcp_pool *pool,
			struct gcp_heap **ret_heap)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_heap *entry;

	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		if (entry->pool == pool) {
			*ret_heap = entry->heap;
			return 0;
		}
	}
	assert(gcp_graph_pool_references(graph_pool) > 0); /* P2 */
	entry = malloc(sizeof(*entry));
	if (!entry || gcp_heap_create(pool, &entry->heap) != 0) {
		free(entry);
		return -ENOMEM;
	}
	entry->pool = pool;
	gcp_heap_set_reuse(entry->heap, graph_pool->reuse, graph_pool->group);
	SLIST_INSERT_HEAD(&graph_pool->heaps, entry, link);
	*ret_heap = entry->heap;
	return 0;
}

bool gcp_graph_pool_has_memory(const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return !SLIST_EMPTY(&graph_pool->heaps) || graph_pool->pinned_set;
}

/* The memory goes to the common heaps, behind a fence; blocks that the program
 * holds follow when freed. */
static void pool_end(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = graph_pool->track;
	struct gcp_graph_heap *entry;

	assert(gcp_graph_pool_references(graph_pool) == 0 && !graph_pool->waits);
	tracker->memory_releases += gcp_graph_pool_has_memory(graph_pool);
	if (track && track->members > 1 && gcp_share_in_flight(tracker, graph_pool)) {
		track->ended = gcp_pool_work_now(track->pool); /* X5 */
		/* The fence is set now, before other launches. */
		(void)gcp_pool_work_is_done(track->pool, track->ended);
	}
	while ((entry = SLIST_FIRST(&graph_pool->heaps))) {
		SLIST_REMOVE_HEAD(&graph_pool->heaps, link);
		gcp_heap_release(entry->heap);
		free(entry);
	}
	if (graph_pool->shares)
		gcp_share_end(tracker, graph_pool);
	if (graph_pool->pinned_set)
		atomic_store(&tracker->pinned_released, true);
	gcp_pinned_set_release(graph_pool->pinned_set);
	graph_pool->pinned_set = NULL;
	assert(!gcp_graph_pool_has_memory(graph_pool)); /* P2 */
	assert(!graph_pool->shares && gcp_in_progress(graph_pool) == 0);
	assert(!graph_pool->track); /* X5 */
	tracker->unseen -= graph_pool->unseen;
	graph_pool->away = graph_pool->unseen = graph_pool->listed = false;
	graph_pool->awaits = 0;
	graph_pool->generation++;
	if (graph_pool->named)
		return; /* its id may be used again */
	TAILQ_REMOVE(&tracker->graph_pools, graph_pool, link);
	free(graph_pool);
}

/* --- without references -------------------------------------------------------- */

/* A call that launches it may not have returned; or a launch, in another context or not
 * seen, may not be done. */
bool gcp_tracker_look(struct gcp_tracker *tracker)
{
	GCP_LOCKED(&tracker->lock);
	struct gcp_graph_pool *graph_pool, *next;
	uint64_t before = tracker->memory_releases;
	uint64_t done =
	    TAILQ_EMPTY(&tracker->waiting) ? 0 : tracker->driver.launches_done();

	for (graph_pool = TAILQ_FIRST(&tracker->waiting); graph_pool;
	     graph_pool = next) {
		bool used = gcp_graph_pool_references(graph_pool) > 0;

		next = TAILQ_NEXT(graph_pool, waiting_link);
		assert(graph_pool->waits && (used || !graph_pool->kept));
		assert(graph_pool->awaits == 0 || graph_pool->away ||
		       graph_pool->unseen);
		if (!used && gcp_graph_pool_has_memory(graph_pool) &&
		    (gcp_in_progress(graph_pool) > 0 ||
		     graph_pool->awaits > done)) /* Y8 */
			continue;
		graph_pool->waits = false;
		TAILQ_REMOVE(&tracker->waiting, graph_pool, waiting_link);
		atomic_fetch_sub(&tracker->counts.waiting, 1);
		if (!used)
			pool_end(tracker, graph_pool);
	}
	return tracker->memory_releases > before;
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	(void)gcp_tracker_look(tracker);
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

	assert(gcp_ranks_held == 0); /* it waits */
	for (int i = 0; i < WAIT_ROUNDS && may_come && !came; i++) {
		if (i > 0)
			gcp_backoff();
		gcp_tracker_collect(tracker);
		gcp_mutex_lock(&tracker->lock);
		came = tracker->memory_releases != seen;
		seen = tracker->memory_releases;
		may_come = !TAILQ_EMPTY(&tracker->waiting);
		gcp_mutex_unlock(&tracker->lock);
	}
	return came;
}
