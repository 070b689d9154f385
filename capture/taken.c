/* SPDX-License-Identifier: MIT */
/*
 * taken.c - what a program does with a graph that shares memory, besides launches.
 *
 *   instantiates it, or updates an       the launches of that executable are guarded as
 *   executable to it                     those of the graph's others are. What was
 *                                        given back of its memory comes again if CUDA
 *                                        looks at it, and then stays for the call
 *   clones it, adds it to a graph        what is made of that one likewise
 *   makes an executable that holds the   memory of its own: they may run at the same
 *   memory of two, or sets a child of    time, in one lane
 *   one
 *   captures into it                     nothing: that work has other memory
 *   instantiates it for launches by      memory of its own: those are not seen
 *   the device, or updates such an
 *   executable to it
 *   lists its nodes, or those of a       memory of its own, before a node is read: the
 *   clone or parent, and reads one       program learns addresses
 *
 * Where that needs memory and there is none the call is refused, and nothing has
 * changed. It waits, until the graph's launches are over, only if they and one of
 * another graph in its lane are on their way, or if there is no memory for another
 * lane.
 */
#include "share.h"

/* --- what is made of graphs ------------------------------------------------------- */

int gcp_share_made(struct gcp_tracker *tracker, struct gcp_holder *holding,
		   enum gcp_making making)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	unsigned shared = making == GCP_MAKING_EXEC, count;
	struct gcp_graph_pool *graph;
	int result = 0;

	if (making >= GCP_MAKING_COPY || !gcp_tracker_shares(tracker))
		return 0;
	while (result == 0 && (graph = gcp_share_held(holding, &count)) &&
	       count > shared)
		result = gcp_share_take(tracker, graph);
	assert(result != 0 || !gcp_share_held(holding, &count) ||
	       count <= shared); /* X4 */
	if (result == -ENOMEM)
		return GCP_CUDA_OUT_OF_MEMORY;
	return result > 0 ? result : 0; /* one whose context is gone needs none */
}

/* --- CUDA looks at the addresses -------------------------------------------------- */

int gcp_share_look(struct gcp_tracker *tracker, const struct gcp_holder *holding,
		   bool *ret_any)
{
	const struct gcp_graph_pool *graph;
	const struct gcp_hold *hold;
	int result = 0;

	*ret_any = false;
	if (!holding || !gcp_tracker_shares(tracker))
		return 0;
	GCP_TRACKER_LOCKED(tracker);
	assert(!holding->handle);
	SLIST_FOREACH (hold, &holding->holds, link) {
		graph = hold->graph_pool;
		*ret_any |= graph->track != NULL;
		if (result == 0 && graph->track)
			result = gcp_lane_enter(graph->track->lane, graph->heap, false);
	}
	return result == -ESTALE ? 0 : result; /* it went with its context */
}

/* --- what is read ----------------------------------------------------------------- */

void gcp_share_listed(struct gcp_tracker *tracker, const void *handle)
{
	struct gcp_graph_pool *graph;
	const struct gcp_hold *hold;
	struct gcp_holder *holder;

	gcp_pools_captured_work(tracker->pools); /* it may be edited */
	if (!gcp_tracker_holds(tracker))
		return;
	GCP_TRACKER_LOCKED(tracker);
	holder = gcp_holder_find(tracker, handle, false);
	if (holder)
		holder = gcp_holder_root(holder);
	if (!handle || (holder && holder->stray))
		TAILQ_FOREACH (graph, &tracker->shares, share_link)
			graph->listed = true;
	if (holder)
		SLIST_FOREACH (hold, &holder->holds, link)
			hold->graph_pool->listed = true;
	assert(!holder || gcp_holder_root(holder) == holder); /* Y11 */
}

/* From the start again after each: the lock may have been let go. */
int gcp_share_read(struct gcp_tracker *tracker)
{
	struct gcp_graph_pool *graph;
	int result = 0;

	atomic_store(&tracker->nodes_read, true);
	if (!gcp_tracker_holds(tracker))
		return 0;
	GCP_TRACKER_LOCKED(tracker);
	do {
		TAILQ_FOREACH (graph, &tracker->shares, share_link)
			if (graph->listed)
				break;
		if (graph)
			result = gcp_share_take(tracker, graph);
		assert(result != 0 || !graph || !graph->shares); /* X7 */
	} while (graph && result == 0);
	return result;
}
