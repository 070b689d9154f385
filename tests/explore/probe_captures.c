/* SPDX-License-Identifier: MIT */
/*
 * probe_captures.c - the structures of capture/, looked into for the explorer. A file
 * of its own: capture/ and interpose/ do not know each other's types.
 */
#include "../unit/tracker_end.h"
#include "probe_captures.h"
#include "../../pool/pool_types.h"

static bool has(const struct gcp_heap *heap, const struct gcp_block *block)
{
	const struct gcp_block *borrowed = heap->borrowed;

	while (borrowed && borrowed != block)
		borrowed = borrowed->next;
	return borrowed || heap == atomic_load(&block->segment->heap);
}

/* tracker->lock is held. NULL: of none. */
static const struct gcp_graph_pool *graph_pool_of(const struct gcp_tracker *tracker,
						  uint64_t addr)
{
	struct gcp_block *block = gcp_map_find(tracker->pools->map, addr);
	const struct gcp_graph_pool *graph_pool;
	const struct gcp_graph_heap *entry;

	if (!block)
		return NULL;
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			if (has(entry->heap, block))
				return graph_pool;
	return NULL;
}

bool probe_capture_keeps(struct gcp_tracker *tracker, uint64_t addr, uint64_t number)
{
	const struct gcp_graph_pool *graph_pool;
	const struct gcp_capture *capture;
	struct gcp_holder *graph;
	bool keeps = false;

	gcp_mutex_lock(&tracker->lock);
	graph_pool = graph_pool_of(tracker, addr);
	TAILQ_FOREACH (capture, &tracker->captures, link) {
		if (!graph_pool || capture->number != number)
			continue;
		graph = gcp_holder_find(tracker, capture->graph, false);
		keeps |= graph_pool->kept ||
			 (graph &&
			  gcp_holds_has(&gcp_holder_root(graph)->holds, graph_pool));
	}
	gcp_mutex_unlock(&tracker->lock);
	return keeps;
}

uint64_t probe_graph_pool(struct gcp_tracker *tracker, uint64_t addr)
{
	const struct gcp_graph_pool *graph_pool;
	uint64_t id;

	gcp_mutex_lock(&tracker->lock);
	graph_pool = graph_pool_of(tracker, addr);
	id = graph_pool ? graph_pool->id : 0;
	gcp_mutex_unlock(&tracker->lock);
	return id;
}

bool probe_keeps_some(const struct gcp_tracker *tracker)
{
	const struct gcp_graph_pool *graph_pool;
	bool kept = tracker->keeps_all;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		kept |= graph_pool->kept;
	return kept;
}

void probe_tracker_destroy(struct gcp_tracker *tracker)
{
	if (tracker)
		gcp_tracker_destroy(tracker);
}
