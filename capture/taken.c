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
 *   reads parameters of a node           memory of its own: the program knows the
 *                                        addresses. Nodes of clones and parents are not
 *                                        listed: they may be any graph's
 *
 * Where that needs memory and there is none the call is refused, and nothing has
 * changed. It waits, until the graph's launches are over, only if they and one of
 * another graph in its lane are on their way, or if there is no memory for another
 * lane.
 */
#include "share.h"

/* With the lock held, if there is any graph that may share. */
static bool lock_if_any(struct gcp_tracker *tracker)
{
	if (!gcp_tracker_shares(tracker))
		return false;
	gcp_tracker_lock(tracker);
	return true;
}

/* Whether anything but its executables can come to its memory. */
static bool is_open(const struct gcp_share *share)
{
	return share->confirmed && (share->graph || share->copied) &&
	       !gcp_share_has_own(share);
}

int gcp_share_take(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t id = share->id;
	int result = gcp_share_make_own(tracker, share);

	if (result != 0) {
		share = gcp_share_by_id(tracker, id);
		if (share)
			share->own = share->unseen;
	}
	assert(result != 0 || !gcp_share_by_id(tracker, id) || /* X7 */
	       gcp_share_has_own(gcp_share_by_id(tracker, id)));
	return result;
}

/* --- what is made of graphs ------------------------------------------------------- */

/* Of those whose memory it holds the first that is open, and how many are. */
static struct gcp_share *share_in(const struct gcp_holder *holding, unsigned *ret_count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_share *first = NULL;
	const struct gcp_hold *hold;

	*ret_count = 0;
	SLIST_FOREACH (hold, &holding->holds, link) {
		struct gcp_share *share = hold->graph_pool->share;

		if (!share || !is_open(share))
			continue;
		if (++*ret_count == 1)
			first = share;
	}
	return first;
}

/* They are in another graph from now on, whose nodes are not listed. */
static void copied(const struct gcp_holder *holding)
{
	const struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holding->holds, link) {
		struct gcp_share *share = hold->graph_pool->share;

		if (!share || !is_open(share))
			continue;
		share->copied = true;
		free(share->nodes);
		share->nodes = NULL;
	}
}

int gcp_share_made(struct gcp_tracker *tracker, const struct gcp_holder *holding,
		   enum gcp_making making)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	unsigned shared = making == GCP_MAKING_EXEC, count;
	struct gcp_share *share;
	int result = 0;

	if (making >= GCP_MAKING_LAUNCH || !gcp_tracker_shares(tracker))
		return 0;
	if (making == GCP_MAKING_COPY) {
		copied(holding);
		return 0;
	}
	while (result == 0 && (share = share_in(holding, &count)) && count > shared)
		result = gcp_share_take(tracker, share);
	assert(result != 0 || !share_in(holding, &count) || count <= shared); /* X4 */
	if (result == -ENOMEM)
		return GCP_CUDA_OUT_OF_MEMORY;
	return result > 0 ? result : 0; /* one whose context is gone needs none */
}

void gcp_share_exec_made(struct gcp_tracker *tracker, struct gcp_holder *exec,
			 bool updated)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	unsigned count;

	assert(exec->is_exec && exec->handle && !exec->share);
	gcp_launches_reset(tracker);
	/* Also if the graph is just getting memory of its own. */
	exec->share = share_in(exec, &count);
	assert(count <= 1); /* X4: its launches are one graph's */
	if (exec->share)
		exec->share->updated = updated;
}

/* --- CUDA looks at the addresses -------------------------------------------------- */

static void holding_may_move(struct gcp_holder *holding)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holding->holds, link) {
		struct gcp_share *share = hold->graph_pool->share;

		assert(!holding->stays || !share || share->stays > 0);
		if (holding->stays && share)
			share->stays--;
	}
	holding->stays = false;
}

/* In no lane the memory is mapped for good; but none enters one either for now. */
static int share_stays(struct gcp_share *share, bool *ret_any)
{
	int result;

	if (!share->lane || !gcp_heap_is_shared(share->heap))
		return 0;
	result = gcp_share_map(share);
	*ret_any |= result == 0;
	return result == -ESTALE ? 0 : result; /* it went with its context */
}

int gcp_share_stays(struct gcp_tracker *tracker, struct gcp_holder *holding,
		    bool *ret_any)
{
	const struct gcp_hold *hold;
	int result = 0;

	*ret_any = false;
	if (!holding || !lock_if_any(tracker))
		return 0;
	assert(!holding->stays && !holding->handle);
	holding->stays = true;
	SLIST_FOREACH (hold, &holding->holds, link)
		if (hold->graph_pool->share)
			hold->graph_pool->share->stays++;
	SLIST_FOREACH (hold, &holding->holds, link)
		if (hold->graph_pool->share && result == 0)
			result = share_stays(hold->graph_pool->share, ret_any);
	*ret_any &= result == 0;
	if (!*ret_any)
		holding_may_move(holding);
	gcp_tracker_unlock(tracker);
	return result;
}

void gcp_share_may_move(struct gcp_tracker *tracker, struct gcp_holder *holding)
{
	gcp_tracker_lock(tracker);
	holding_may_move(holding);
	gcp_tracker_unlock(tracker);
}

/* --- updates that fail ------------------------------------------------------------ */

/* What the call has changed is not known: the executable may run on the memory of both
 * graphs, and its launches are those of one. Most programs make another executable
 * then: the other graph has memory of its own before this one is launched again. */

/* From the start again after each: the lock may have been let go. */
int gcp_share_unmix(struct gcp_tracker *tracker, const void *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_share *other = NULL;
	struct gcp_holder *holder;
	int result = 0;

	do {
		const struct gcp_hold *hold;

		holder = gcp_holder_find(tracker, exec, true);
		if (!holder || !holder->mixed)
			return 0;
		other = NULL;
		SLIST_FOREACH (hold, &holder->holds, link) {
			struct gcp_share *share = hold->graph_pool->share;

			if (share && share != holder->share &&
			    !gcp_share_has_own(share))
				other = share;
		}
		if (other)
			result = gcp_share_take(tracker, other);
	} while (other && result == 0);
	if (result == 0)
		holder->mixed = false;
	return result;
}

/* --- what is read ----------------------------------------------------------------- */

static int node_order(const void *a, const void *b)
{
	const uintptr_t left = *(const uintptr_t *)a, right = *(const uintptr_t *)b;

	return (left > right) - (left < right);
}

/* Without a list it may be any. */
static bool may_have(struct gcp_share *share, const void *node)
{
	struct gcp_node_handles *nodes = share->nodes;
	uintptr_t key = (uintptr_t)node;

	if (!nodes || !node)
		return true;
	if (!nodes->sorted)
		qsort(nodes->handles, nodes->count, sizeof(*nodes->handles),
		      node_order);
	nodes->sorted = true;
	return bsearch(&key, nodes->handles, nodes->count, sizeof(*nodes->handles),
		       node_order) != NULL;
}

/* From the start again after each: the lock may have been let go. */
int gcp_share_node_taken(struct gcp_tracker *tracker, const void *node)
{
	struct gcp_share *share;
	int result = 0;

	atomic_store(&tracker->nodes_read, true);
	if (!lock_if_any(tracker))
		return 0;
	do {
		TAILQ_FOREACH (share, &tracker->shares, link)
			if (is_open(share) && may_have(share, node))
				break;
		if (share)
			result = gcp_share_take(tracker, share);
	} while (share && result == 0);
	gcp_tracker_unlock(tracker);
	return result;
}
