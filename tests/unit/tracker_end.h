/* SPDX-License-Identifier: MIT */
/*
 * tracker_end.h - takes a tracker down. The library itself never does.
 */
#ifndef GCP_TESTS_TRACKER_END_H
#define GCP_TESTS_TRACKER_END_H

#include "../../capture/capture_types.h"

static void graph_pools_destroy(struct gcp_tracker *tracker)
{
	struct gcp_graph_pool *graph_pool;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link) {
		graph_pool->named = graph_pool->kept = false;
		graph_pool->held = 0;
		gcp_graph_pool_ref_released(tracker, graph_pool);
	}
}

static void holders_destroy(struct gcp_tracker *tracker)
{
	struct gcp_holder *holder;

	for (size_t i = 0; i < GCP_HOLDER_BUCKETS; i++)
		while ((holder = LIST_FIRST(&tracker->holders[i])))
			gcp_holder_free(tracker, gcp_holder_root(holder));
}

static void gcp_tracker_destroy(struct gcp_tracker *tracker)
{
	struct gcp_capture *capture;

	gcp_tracker_collect(tracker);
	gcp_mutex_lock(&tracker->lock);
	while ((capture = TAILQ_FIRST(&tracker->captures))) {
		TAILQ_REMOVE(&tracker->captures, capture, link);
		gcp_graph_pool_detach_all(tracker, capture);
		gcp_capture_destroy(capture);
	}
	holders_destroy(tracker);
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
	gcp_mutex_lock(&tracker->lock);
	graph_pools_destroy(tracker);
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
	free(tracker);
}

#endif
