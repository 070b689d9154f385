/* SPDX-License-Identifier: MIT */
/*
 * graph_checkpoint.c - checkpoint and restore of a graph pool that the program named:
 * of all its heaps together.
 */
#include "capture_types.h"

struct gcp_graph_checkpoint {
	uint64_t id, generation;
	struct gcp_noted live;
};

/* -EBUSY: a capture into it is under way. */
static int refused(const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return !graph_pool ? -ENOENT : graph_pool->captures > 0 ? -EBUSY : 0;
}

int gcp_graph_pool_checkpoint(struct gcp_tracker *tracker, uint64_t id,
			      struct gcp_graph_checkpoint **ret_checkpoint)
{
	struct gcp_graph_checkpoint *checkpoint;
	struct gcp_graph_heap *entry;
	struct gcp_noted live = {0};

	GCP_LOCKED(&tracker->lock);
	struct gcp_graph_pool *graph_pool = gcp_graph_pool_named(tracker, id);
	if (refused(graph_pool))
		return refused(graph_pool);
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_note(entry->heap, &live);
	checkpoint = malloc(sizeof(*checkpoint) + live.count * sizeof(*live.blocks));
	if (!checkpoint)
		return -ENOMEM;
	*checkpoint = (struct gcp_graph_checkpoint){
	    id, graph_pool->generation, {0, (void *)(checkpoint + 1)}};
	/* Others may have freed some since. */
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_note(entry->heap, &checkpoint->live);
	assert(checkpoint->live.count <= live.count);
	*ret_checkpoint = checkpoint;
	return 0;
}

/* -ESTALE: with the last reference, or with their context, its blocks went, and their
 * addresses may be others' by now. */
int gcp_graph_pool_restore(struct gcp_tracker *tracker, uint64_t id,
			   const struct gcp_graph_checkpoint *checkpoint)
{
	struct gcp_graph_heap *entry;
	size_t found = 0;

	GCP_LOCKED(&tracker->lock);
	struct gcp_graph_pool *graph_pool = gcp_graph_pool_named(tracker, id);
	if (refused(graph_pool))
		return refused(graph_pool);
	assert(graph_pool->named && graph_pool->id == id);
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		if (!gcp_heap_noted(entry->heap, &checkpoint->live, &found))
			return -EBUSY;
	if (checkpoint->id != id || checkpoint->generation != graph_pool->generation ||
	    found < checkpoint->live.count)
		return -ESTALE;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_restore(entry->heap, &checkpoint->live);
	return 0;
}
