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

void gcp_graph_checkpoint_destroy(struct gcp_graph_checkpoint *checkpoint)
{
	if (checkpoint)
		free(checkpoint->live.blocks);
	free(checkpoint);
}

/* 0, -ENOENT, or -EBUSY: a capture into it is under way. */
static int pool_find(struct gcp_tracker *tracker, uint64_t id,
		     struct gcp_graph_pool **ret_graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool = gcp_graph_pool_named(tracker, id);

	*ret_graph_pool = graph_pool;
	if (!graph_pool)
		return -ENOENT;
	assert(graph_pool->named && graph_pool->id == id);
	return graph_pool->captures > 0 ? -EBUSY : 0;
}

int gcp_graph_pool_checkpoint(struct gcp_tracker *tracker, uint64_t id,
			      struct gcp_graph_checkpoint **ret_checkpoint)
{
	struct gcp_graph_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
	struct gcp_graph_pool *graph_pool;
	struct gcp_graph_heap *entry;
	int result;

	if (!checkpoint)
		return -ENOMEM;
	gcp_tracker_lock(tracker);
	result = pool_find(tracker, id, &graph_pool);
	if (result == 0) {
		checkpoint->id = id;
		checkpoint->generation = graph_pool->generation;
		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			if (result == 0)
				result = gcp_heap_note(entry->heap, &checkpoint->live);
	}
	gcp_tracker_unlock(tracker);
	if (result == 0)
		*ret_checkpoint = checkpoint;
	else
		gcp_graph_checkpoint_destroy(checkpoint);
	return result;
}

/* -ESTALE: with the last reference, or with their context, its blocks went, and their
 * addresses may be others' by now. -EBUSY: another process may have a block open. */
static int restorable(const struct gcp_graph_pool *graph_pool,
		      const struct gcp_graph_checkpoint *checkpoint)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_graph_heap *entry;
	bool exported = false;
	size_t found = 0;

	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		found += gcp_heap_noted(entry->heap, &checkpoint->live);
		exported |= gcp_heap_is_exported(entry->heap);
	}
	assert(found <= checkpoint->live.count);
	if (checkpoint->id != graph_pool->id ||
	    checkpoint->generation != graph_pool->generation ||
	    found != checkpoint->live.count)
		return -ESTALE;
	return exported ? -EBUSY : 0;
}

int gcp_graph_pool_restore(struct gcp_tracker *tracker, uint64_t id,
			   const struct gcp_graph_checkpoint *checkpoint)
{
	struct gcp_graph_pool *graph_pool;
	struct gcp_graph_heap *entry;
	int result;

	GCP_TRACKER_LOCKED(tracker);
	result = pool_find(tracker, id, &graph_pool);
	if (result == 0)
		result = restorable(graph_pool, checkpoint);
	if (result == 0)
		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			gcp_heap_restore(entry->heap, &checkpoint->live);
	return result;
}
