/* SPDX-License-Identifier: MIT */
/*
 * lane_list.c - what lanes there are, and whose the memory of a graph pool is. Takes
 * tracker->lock, and under it the locks of pool/.
 */
#include "share.h"

uint64_t gcp_graph_pool_lane(struct gcp_tracker *tracker, uint64_t id)
{
	const struct gcp_graph_pool *graph_pool;
	uint64_t lane = 0;

	gcp_tracker_collect(tracker);
	gcp_tracker_lock(tracker);
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (graph_pool->id == id)
			lane = gcp_share_lane(graph_pool);
	gcp_tracker_unlock(tracker);
	return lane;
}

static void memory_fill(const struct gcp_graph_pool *graph_pool,
			struct gcp_graph_pool_memory *memory)
{
	const struct gcp_share *share = graph_pool->share;
	const struct gcp_graph_heap *entry;

	*memory =
	    (struct gcp_graph_pool_memory){.launches = share ? share->launches : 0};
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		struct gcp_heap_usage usage;

		gcp_heap_usage(entry->heap, &usage);
		memory->own_bytes += usage.reserved_bytes;
		memory->shared_bytes += usage.shared_bytes;
	}
	if (!share || !share->track)
		return;
	memory->lane = share->track->id;
	memory->lane_bytes = gcp_lane_bytes(share->track->lane);
}

int gcp_graph_pool_memory(struct gcp_tracker *tracker, uint64_t id,
			  struct gcp_graph_pool_memory *ret_memory)
{
	const struct gcp_graph_pool *graph_pool;
	int result = -ENOENT;

	gcp_tracker_collect(tracker);
	gcp_tracker_lock(tracker);
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link) {
		if (graph_pool->id != id)
			continue;
		memory_fill(graph_pool, ret_memory);
		result = 0;
	}
	gcp_tracker_unlock(tracker);
	return result;
}

size_t gcp_graph_lanes_list(struct gcp_tracker *tracker,
			    struct gcp_graph_lane_info *infos, size_t max)
{
	const struct gcp_track *track;
	size_t count = 0;

	gcp_tracker_collect(tracker);
	gcp_tracker_lock(tracker);
	TAILQ_FOREACH (track, &tracker->tracks, link) {
		if (count < max)
			infos[count] = (struct gcp_graph_lane_info){
			    .id = track->id,
			    .device = (uint64_t)gcp_pool_device(track->pool),
			    .bytes = gcp_lane_bytes(track->lane),
			    .graphs = track->members,
			    .launches = track->launches,
			};
		count++;
	}
	gcp_tracker_unlock(tracker);
	return count;
}
