/* SPDX-License-Identifier: MIT */
/*
 * graph_picture.c - graph pools as they are at a moment, copied for people to look at
 * (gcpool_graph_dump), and the lanes that they use. Takes tracker->lock, and under it
 * the locks of pool/.
 */
#include "holders.h"
#include "share.h"

/* --- nodes ----------------------------------------------------------------------- */

static struct gcp_holder *graph_with_memory(struct gcp_tracker *tracker,
					    const void *graph)
{
	struct gcp_holder *holder = gcp_holder_find(tracker, graph, false);

	return holder && !SLIST_EMPTY(&holder->holds) ? holder : NULL;
}

void gcp_graph_nodes_note(struct gcp_tracker *tracker, void *graph)
{
	struct gcp_graph_nodes nodes = {0};
	struct gcp_node_handles *handles = NULL;
	struct gcp_node_list *list = NULL;
	struct gcp_holder *holder;
	size_t room;

	if (!graph || !tracker->driver.graph_nodes || !gcp_tracker_holds(tracker))
		return;
	gcp_tracker_lock(tracker);
	holder = graph_with_memory(tracker, graph);
	room = gcp_node_list_room(tracker);
	gcp_tracker_unlock(tracker);
	if (!holder)
		return;
	nodes.known =
	    tracker->driver.graph_nodes(graph, room, &nodes, &list, &handles) == 0;
	gcp_tracker_lock(tracker);
	holder = graph_with_memory(tracker, graph);
	if (holder)
		list = gcp_node_list_keep(tracker, holder, &nodes, list);
	handles = gcp_share_nodes_keep(tracker, graph, handles);
	gcp_tracker_unlock(tracker);
	free(list);
	free(handles);
}

/* --- blocks ---------------------------------------------------------------------- */

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
	picture->heaps = calloc(heaps + 1, sizeof(*picture->heaps));
	picture->graphs = calloc(graph_pool->graphs + 1, sizeof(*picture->graphs));
	if (!picture->heaps || !picture->graphs)
		return -ENOMEM;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		if (result == 0)
			result = heap_copy(picture, entry);
	return result;
}

/* With a reference to its list. */
static struct gcp_graph_picture_of graph_copy(const struct gcp_tracker *tracker,
					      const struct gcp_holder *holder)
{
	struct gcp_graph_picture_of graph = {
	    .is_exec = holder->is_exec,
	    .nodes = holder->nodes,
	    .list = gcp_node_list_take(holder->list),
	};

	if (graph.list) {
		graph.first = graph.list->picture != tracker->last_picture;
		graph.list->picture = tracker->last_picture;
	}
	return graph;
}

static void holder_copy(const struct gcp_tracker *tracker,
			const struct gcp_holder *holder)
{
	const struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holder->holds, link) {
		struct gcp_graph_pool_picture *picture = hold->graph_pool->picture;

		if (picture && picture->graph_count < picture->info.graphs)
			picture->graphs[picture->graph_count++] =
			    graph_copy(tracker, holder);
	}
}

/* To the pictures of the pools that they hold. */
static void holders_copy(struct gcp_tracker *tracker)
{
	const struct gcp_holder *holder;

	tracker->last_picture++;
	for (size_t i = 0; i < GCP_HOLDER_BUCKETS; i++)
		LIST_FOREACH (holder, &tracker->holders[i], link)
			holder_copy(tracker, holder);
}

/* tracker->lock is held. */
static int pools_copy(struct gcp_tracker *tracker,
		      struct gcp_graph_pool_picture *pictures, size_t *count)
{
	struct gcp_graph_pool *graph_pool;
	int result = 0;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link) {
		graph_pool->picture = NULL;
		if (result != 0 || gcp_graph_pool_references(graph_pool) == 0)
			continue;
		graph_pool->picture = &pictures[(*count)++];
		result = pool_copy(graph_pool->picture, graph_pool);
	}
	if (result == 0)
		holders_copy(tracker);
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
		gcp_graph_pools_picture_free(tracker, pictures, count);
		return result;
	}
	*ret_pictures = pictures;
	*ret_count = count;
	return 0;
}

static void lists_drop(struct gcp_tracker *tracker,
		       struct gcp_graph_pool_picture *pictures, size_t count)
{
	gcp_tracker_lock(tracker);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < pictures[i].graph_count; j++)
			gcp_node_list_drop(tracker, pictures[i].graphs[j].list);
	gcp_tracker_unlock(tracker);
}

void gcp_graph_pools_picture_free(struct gcp_tracker *tracker,
				  struct gcp_graph_pool_picture *pictures, size_t count)
{
	lists_drop(tracker, pictures, count);
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < pictures[i].heap_count; j++)
			free(pictures[i].heaps[j].blocks);
		free(pictures[i].heaps);
		free(pictures[i].graphs);
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
