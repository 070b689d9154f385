/* SPDX-License-Identifier: MIT */
/*
 * graph_pool.c - graph pools: memory that captured graphs address, and the
 * references that keep it.
 *
 * Each capture that allocates from a graph pool has its graph hold it, and so does all
 * that is made from that graph: holders.c. When the last holder ends its launches may
 * be under way. The memory then goes to the common heap behind a fence: that covers
 * them where there is one context; else the memory waits first (graph_memory.c).
 *
 *      begin             first allocation         end          last holder ends
 *        |  captures: 0      captures: 1       captures: 0      captures: 0
 *        |  graphs:   0      graphs:   1       graphs:   1      graphs:   0
 *        |                                                      -> released
 */
#include "share.h"

/* The graph pool that captures of this thread go to; an id, so that it may
 * outlive the pool. */
static __thread struct {
	struct gcp_tracker *tracker;
	uint64_t id;
} thread_default_pool __attribute__((tls_model("initial-exec")));

/* --- references --------------------------------------------------------------- */

void gcp_graph_pool_set_reuse(struct gcp_graph_pool *graph_pool, enum gcp_reuse reuse)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_heap *entry;

	assert((reuse <= GCP_REUSE_SEALED) == (graph_pool->captures == 0)); /* G10 */
	assert(reuse != GCP_REUSE_NOW || graph_pool->captures == 1);        /* G4 */
	graph_pool->reuse = reuse;
	graph_pool->group += reuse <= GCP_REUSE_SEALED;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_set_reuse(entry->heap, reuse, graph_pool->group);
}

void gcp_graph_pool_join(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
			 struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *other;

	assert(capture->pool == graph_pool || capture->common == graph_pool);
	assert(capture->ending == 0); /* its graph may be gone a moment later */
	gcp_graph_hold(tracker, capture, graph_pool);
	graph_pool->captures++;
	assert(graph_pool->named || graph_pool->captures == 1); /* G10 */
	assert(graph_pool->captures <=
	       atomic_load(&tracker->counts.capturing)); /* C3 */
	graph_pool->shared |= graph_pool->captures > 1;
	/* Memory shared with other captures has open ends that are not this one's, and
	 * when those are over, graphs that write it whenever they are launched. */
	capture->order_unknown |= graph_pool->shared && capture->pool == graph_pool;
	if (graph_pool->shared)
		TAILQ_FOREACH (other, &tracker->captures, link)
			other->order_unknown |= other->pool == graph_pool;
	graph_pool->last_capture_id = capture->id;
	/* In a capture that another one shares the pool with, or that has forked, a
	 * freed block's place in the order is not known. */
	gcp_graph_pool_set_reuse(graph_pool, capture->forked || graph_pool->shared
						 ? GCP_REUSE_LATER
						 : GCP_REUSE_NOW);
}

void gcp_graph_pool_detach_all(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *pools[] = {capture->pool, capture->common};

	assert(!capture->common || capture->common->shared); /* G10 */
	/* Work that is not counted may be on what is freed (gcp_private_free). */
	assert(gcp_tracker_capturing(tracker)); /* G3 */
	for (int i = 0; i < 2; i++) {
		struct gcp_graph_pool *graph_pool = pools[i];

		if (!graph_pool)
			continue;
		assert(graph_pool->captures > 0); /* P1 */
		graph_pool->captures--;
		assert(graph_pool->named || graph_pool->captures == 0); /* G10 */
		if (graph_pool->captures == 0) {
			/* None goes on: what was freed in them is free, but what is
			 * freed later stays with the graph (X3). */
			graph_pool->shared = false;
			gcp_graph_pool_set_reuse(graph_pool, graph_pool->named
								 ? GCP_REUSE_FENCED
								 : GCP_REUSE_SEALED);
		}
		gcp_graph_pool_ref_released(tracker, graph_pool);
	}
	capture->pool = capture->common = NULL;
}

/* --- pools that the program names --------------------------------------------- */

struct gcp_graph_pool *gcp_graph_pool_named(struct gcp_tracker *tracker, uint64_t id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (!graph_pool->named || graph_pool->id == id)
			break; /* those that have a name come first */
	return graph_pool && graph_pool->named ? graph_pool : NULL;
}

struct gcp_graph_pool *gcp_graph_pool_thread_default(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return thread_default_pool.tracker == tracker
		   ? gcp_graph_pool_named(tracker, thread_default_pool.id)
		   : NULL;
}

int gcp_graph_pool_create(struct gcp_tracker *tracker, uint64_t *ret_id)
{
	struct gcp_graph_pool *graph_pool;

	GCP_LOCKED(&tracker->lock);
	graph_pool = gcp_graph_pool_make(tracker);
	if (graph_pool) {
		assert(!gcp_graph_pool_has_memory(graph_pool));
		TAILQ_REMOVE(&tracker->graph_pools, graph_pool, link);
		TAILQ_INSERT_HEAD(&tracker->graph_pools, graph_pool, link);
		graph_pool->named = true;
		graph_pool->held = 1;
		*ret_id = graph_pool->id;
	}
	return graph_pool ? 0 : -ENOMEM;
}

int gcp_graph_pool_release(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool;
	bool held;

	gcp_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	held = graph_pool && graph_pool->held > 0;
	if (held) {
		graph_pool->held--;
		assert(gcp_graph_pool_references(graph_pool) >= graph_pool->held);
		gcp_graph_pool_ref_released(tracker, graph_pool);
	}
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
	return held ? 0 : -ENOENT;
}

int gcp_graph_pool_use(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool;

	gcp_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	assert(!graph_pool || graph_pool->named);
	gcp_mutex_unlock(&tracker->lock);
	if (id != 0 && !graph_pool)
		return -ENOENT;
	thread_default_pool.tracker = tracker;
	thread_default_pool.id = id;
	return 0;
}

static void info_fill(struct gcp_graph_pool *graph_pool,
		      struct gcp_graph_pool_info *info)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_track *track = graph_pool->track;
	struct gcp_graph_heap *entry;

	*info = (struct gcp_graph_pool_info){
	    .id = graph_pool->id,
	    .references = gcp_graph_pool_references(graph_pool),
	    .captures = graph_pool->captures,
	    .graphs = graph_pool->graphs,
	    .last_capture_id = graph_pool->last_capture_id,
	    .lane = track ? track->id : 0,
	    .lane_bytes = track ? gcp_lane_bytes(track->lane) : 0,
	    .launches = graph_pool->begins,
	};
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_usage(entry->heap, &info->reserved_bytes,
			       &info->allocated_bytes, &info->shared_bytes);
}

size_t gcp_graph_pools_list(struct gcp_tracker *tracker,
			    struct gcp_graph_pool_info *infos, size_t max)
{
	struct gcp_graph_pool *graph_pool;
	size_t count = 0;

	gcp_tracker_collect(tracker);
	GCP_LOCKED(&tracker->lock);
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link) {
		if (gcp_graph_pool_references(graph_pool) == 0 && !graph_pool->waits)
			continue;
		assert(graph_pool->id > 0);
		if (count < max)
			info_fill(graph_pool, &infos[count]);
		count++;
	}
	return count;
}
