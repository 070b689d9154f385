/* SPDX-License-Identifier: MIT */
/*
 * graph_picture.c - graph pools as they are at a moment, copied for people to look at
 * (gcpool_graph_dump), and the lanes that they use. Takes tracker->lock, and under it
 * the locks of pool/.
 */
#include "share.h"

static int heap_copy(struct gcp_graph_pool_picture *picture,
		     const struct gcp_graph_heap *entry)
{
	struct gcp_heap_picture_of *heap = &picture->heaps[picture->heap_count];
	struct gcp_heap_usage usage;
	int result = gcp_heap_picture(entry->heap, &heap->blocks, &heap->count);

	if (result != 0)
		return result;
	gcp_heap_usage(entry->heap, &usage);
	picture->info.reserved_bytes += usage.reserved_bytes;
	picture->info.allocated_bytes += usage.allocated_bytes;
	picture->heap_count++;
	return 0;
}

static int pool_copy(struct gcp_graph_pool_picture *picture,
		     const struct gcp_graph_pool *graph_pool)
{
	const struct gcp_graph_heap *entry;
	size_t heaps = 0;
	int result = 0;

	*picture = (struct gcp_graph_pool_picture){
	    .info = {.id = graph_pool->id,
		     .references = gcp_graph_pool_references(graph_pool),
		     .captures = graph_pool->captures,
		     .graphs = graph_pool->graphs,
		     .last_capture_id = graph_pool->last_capture_id},
	    .held = graph_pool->held,
	    .lane = gcp_share_lane(graph_pool),
	    .named = graph_pool->named,
	    .once = graph_pool->once,
	    .pinned = graph_pool->pinned_set != NULL,
	};
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		heaps++;
	if (heaps == 0)
		return 0;
	picture->heaps = calloc(heaps, sizeof(*picture->heaps));
	if (!picture->heaps)
		return -ENOMEM;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		if (result == 0)
			result = heap_copy(picture, entry);
	return result;
}

/* tracker->lock is held. */
static int pools_copy(struct gcp_tracker *tracker,
		      struct gcp_graph_pool_picture *pictures, size_t *count)
{
	const struct gcp_graph_pool *graph_pool;
	int result = 0;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (result == 0 && gcp_graph_pool_references(graph_pool) > 0)
			result = pool_copy(&pictures[(*count)++], graph_pool);
	return result;
}

int gcp_graph_pools_picture(struct gcp_tracker *tracker,
			    struct gcp_graph_pool_picture **ret_pictures,
			    size_t *ret_count)
{
	const struct gcp_graph_pool *graph_pool;
	struct gcp_graph_pool_picture *pictures;
	size_t room = 1, count = 0;
	int saved = errno, result = -ENOMEM;

	gcp_tracker_collect(tracker);
	gcp_tracker_lock(tracker);
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		room++;
	pictures = calloc(room, sizeof(*pictures));
	if (pictures)
		result = pools_copy(tracker, pictures, &count);
	gcp_tracker_unlock(tracker);
	errno = saved;
	if (result != 0) {
		gcp_graph_pools_picture_free(pictures, count);
		return result;
	}
	*ret_pictures = pictures;
	*ret_count = count;
	return 0;
}

void gcp_graph_pools_picture_free(struct gcp_graph_pool_picture *pictures, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < pictures[i].heap_count; j++)
			free(pictures[i].heaps[j].blocks);
		free(pictures[i].heaps);
	}
	free(pictures);
}

/* --- lanes ----------------------------------------------------------------------- */

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
