/* SPDX-License-Identifier: MIT */
/*
 * graph_checkpoint.c - checkpoint and restore of a graph pool that the program named:
 * the states of all its heaps together.
 */
#include "capture_types.h"

struct gcp_graph_checkpoint {
	uint64_t id, generation;
	size_t count;
	struct gcp_checkpoint *heaps[];
};

void gcp_graph_checkpoint_destroy(struct gcp_graph_checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	for (size_t i = 0; i < checkpoint->count; i++)
		gcp_checkpoint_destroy(checkpoint->heaps[i]);
	free(checkpoint);
}

static size_t heap_count(const struct gcp_graph_pool *graph_pool)
{
	struct gcp_graph_heap *entry;
	size_t count = 0;

	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		count++;
	return count;
}

static int checkpoint_fill(struct gcp_graph_pool *graph_pool,
			   struct gcp_graph_checkpoint **ret_checkpoint)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_checkpoint *checkpoint;
	struct gcp_graph_heap *entry;

	checkpoint = calloc(1, sizeof(*checkpoint) + heap_count(graph_pool) *
							 sizeof(checkpoint->heaps[0]));
	if (!checkpoint)
		return -ENOMEM;
	checkpoint->id = graph_pool->id;
	checkpoint->generation = graph_pool->generation;
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		int result = gcp_heap_checkpoint(entry->heap,
						 &checkpoint->heaps[checkpoint->count]);

		if (result != 0) {
			gcp_graph_checkpoint_destroy(checkpoint);
			return result;
		}
		checkpoint->count++;
	}
	assert(checkpoint->count == heap_count(graph_pool));
	*ret_checkpoint = checkpoint;
	return 0;
}

int gcp_graph_pool_checkpoint(struct gcp_tracker *tracker, uint64_t id,
			      struct gcp_graph_checkpoint **ret_checkpoint)
{
	struct gcp_graph_pool *graph_pool;
	int result;

	gcp_tracker_lock(tracker);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (!graph_pool)
		result = -ENOENT;
	else if (graph_pool->captures > 0)
		result = -EBUSY;
	else
		result = checkpoint_fill(graph_pool, ret_checkpoint);
	gcp_tracker_unlock(tracker);
	return result;
}

/* The state of `heap`; NULL: it was made after the checkpoint, all of it is
 * free then. */
static const struct gcp_checkpoint *
state_of(const struct gcp_graph_checkpoint *checkpoint, const struct gcp_heap *heap)
{
	for (size_t i = 0; i < checkpoint->count; i++)
		if (gcp_checkpoint_fits(heap, checkpoint->heaps[i]))
			return checkpoint->heaps[i];
	return NULL;
}

/* Whether every heap of the checkpoint is still there: with the last reference
 * they all went, and an address may stand for another one now. */
static bool is_current(const struct gcp_graph_pool *graph_pool,
		       const struct gcp_graph_checkpoint *checkpoint)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_heap *entry;
	size_t found = 0;

	if (checkpoint->id != graph_pool->id ||
	    checkpoint->generation != graph_pool->generation)
		return false;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		found += state_of(checkpoint, entry->heap) != NULL;
	return found == checkpoint->count;
}

int gcp_graph_pool_restore(struct gcp_tracker *tracker, uint64_t id,
			   const struct gcp_graph_checkpoint *checkpoint)
{
	struct gcp_graph_pool *graph_pool;
	struct gcp_graph_heap *entry;
	int result = 0;

	gcp_tracker_lock(tracker);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (!graph_pool)
		result = -ENOENT;
	else if (graph_pool->captures > 0)
		result = -EBUSY;
	else if (!is_current(graph_pool, checkpoint))
		result = -ESTALE;
	else
		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			gcp_heap_restore(entry->heap,
					 state_of(checkpoint, entry->heap));
	gcp_tracker_unlock(tracker);
	return result;
}
