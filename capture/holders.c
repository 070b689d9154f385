/* SPDX-License-Identifier: MIT */
/*
 * holders.c - which graphs and executables can run on the memory of graph pools.
 *
 * A holder is a graph or an executable, by its handle, with the graph pools that its
 * nodes may address. No user object of CUDA's tells of its end (launches of graphs that
 * have one crash in some drivers); the calls do that the hooks see:
 *
 *   allocation in a capture   the graph that is captured holds the pool
 *   clone, instantiation      the new one holds what the graph holds just then
 *   child graph, launch into  the parent, the captured graph hold as much as the child,
 *     a capture               the executable
 *   update                    the executable holds what the new graph holds; if the
 *                             call has failed, both
 *   destroy                   it holds nothing more. Its launches may be under way: the
 *                             memory waits for all work submitted until then
 *
 * A holder holds until the real call that ends it has returned; the handle may be given
 * out again before that. So there may be two holders of one handle, of which one is
 * `ending`; what is made of that handle holds what both do.
 *
 * A graph that is embedded in another one (a child graph, the body of a conditional
 * node) is a part: what is captured into it, its parent holds. Where the parent is not
 * known the memory is kept for good, and what is made of such a graph holds the memory
 * of all graphs. So do calls that are not known: gcp_graphs_keep.
 *
 * What is set in place of a child of an executable is a holder of its own, a part of
 * the executable, until something else is set there.
 *
 * Too many holders only keep memory longer; one too few would be corruption.
 *
 * Rules of families:
 *  Y1 a graph holds the pools that its nodes address
 *  Y2 what is made of a graph holds what the graph holds
 *  Y3 a graph holds what its parts hold
 *  Y4 what is made holds the memory before the real call
 *  Y5 after an update that failed the executable holds the memory of both graphs
 *  Y6 a capture is lost only with its graph
 *  Y7 memory of a gone graph waits for its launches and for the work on what was freed
 *  Y8 it waits in every context that the program has launched it in
 *  Y9 a block that outlives its graph is a common one
 */
#include "holders.h"
#include "share.h"

/* --- what is held ------------------------------------------------------------- */

void gcp_graph_pool_keep(struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	graph_pool->kept = true;
}

static bool holds(const struct gcp_holder *holder,
		  const struct gcp_graph_pool *graph_pool)
{
	const struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holder->holds, link)
		if (hold->graph_pool == graph_pool)
			return true;
	return false;
}

/* What it does not hold yet. -ENOMEM. */
static int hold_new(struct gcp_holder *holder, struct gcp_graph_pool *graph_pool,
		    struct gcp_hold *spare)
{
	int saved = errno;
	struct gcp_hold *hold = spare;

	if (!hold)
		hold = malloc(sizeof(*hold));
	errno = saved;
	if (!hold)
		return -ENOMEM;
	assert(!holds(holder, graph_pool)); /* Y10 */
	hold->stays = false;
	hold->graph_pool = graph_pool;
	graph_pool->graphs++;
	SLIST_INSERT_HEAD(&holder->holds, hold, link);
	return 0;
}

/* -ENOMEM. */
static int hold_add(struct gcp_holder *holder, struct gcp_graph_pool *graph_pool,
		    struct gcp_hold *spare)
{
	if (!holds(holder, graph_pool))
		return hold_new(holder, graph_pool, spare);
	free(spare);
	return 0;
}

static void launched_add(struct gcp_launched *to, const struct gcp_launched *more)
{
	to->many |= more->many || (to->ctx && more->ctx && to->ctx != more->ctx);
	if (more->ctx)
		to->ctx = more->ctx;
}

static void holds_drop(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_launched *launched = &gcp_holder_root(holder)->launched;
	struct gcp_hold *hold;

	while ((hold = SLIST_FIRST(&holder->holds))) {
		SLIST_REMOVE_HEAD(&holder->holds, link);
		launched_add(&hold->graph_pool->launched, launched);
		assert(hold->graph_pool->graphs > 0);
		hold->graph_pool->graphs--;
		gcp_graph_pool_ref_released(tracker, hold->graph_pool);
		free(hold);
	}
}

void gcp_holds_move(struct gcp_holder *from, struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	assert(from != to);
	launched_add(&to->launched, &from->launched);
	while ((hold = SLIST_FIRST(&from->holds))) {
		SLIST_REMOVE_HEAD(&from->holds, link);
		assert(hold->graph_pool->graphs >= 1);
		hold->graph_pool->graphs--;
		if (to->stray)
			gcp_graph_pool_keep(hold->graph_pool);
		(void)hold_add(to, hold->graph_pool, hold); /* needs no memory */
	}
}

static void shares_leave(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	if (!holder->handle)
		return;
	if (holder->share)
		gcp_share_exec_left(tracker, holder);
	SLIST_FOREACH (hold, &holder->holds, link)
		if (hold->graph_pool->share)
			gcp_share_left(tracker, hold->graph_pool->share, holder);
}

void gcp_holder_free(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *part;

	shares_leave(tracker, holder);
	assert(!holder->share);
	while ((part = LIST_FIRST(&holder->parts)))
		gcp_holder_free(tracker, part);
	if (holder->parent)
		LIST_REMOVE(holder, part_link);
	if (holder->handle) {
		LIST_REMOVE(holder, link);
		atomic_fetch_sub(&tracker->holder_count, 1);
	}
	assert(LIST_EMPTY(&holder->parts));
	holds_drop(tracker, holder);
	free(holder);
}

/* What the handle held as a graph of its own may be of one that is gone, or its own. */
void gcp_holder_embed(struct gcp_holder *part, struct gcp_holder *parent)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	assert(!parent || gcp_holder_root(parent) != part);
	SLIST_FOREACH (hold, &part->holds, link)
		gcp_graph_pool_keep(hold->graph_pool);
	if (part->parent)
		LIST_REMOVE(part, part_link);
	part->parent = parent;
	part->stray = !parent;
	if (parent)
		LIST_INSERT_HEAD(&parent->parts, part, part_link);
}

void gcp_graph_is_part(struct gcp_tracker *tracker, const void *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;

	TAILQ_FOREACH (capture, &tracker->captures, link)
		capture->graph_gone |=
		    capture->graph == graph && !capture->into_existing_graph;
}

static void graph_is_new(struct gcp_tracker *tracker, const void *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;

	TAILQ_FOREACH (capture, &tracker->captures, link)
		capture->graph_gone |= capture->graph == graph;
}

void gcp_handle_is_new(struct gcp_tracker *tracker, const void *handle, bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder;

	assert(handle);
	while ((holder = gcp_holder_find(tracker, handle, is_exec)))
		gcp_holder_free(tracker, holder);
	assert(!gcp_holder_find(tracker, handle, is_exec));
	for (holder = gcp_holder_first(tracker, handle, is_exec); holder;
	     holder = gcp_holder_next(holder)) {
		holder->replaced = true;
		if (holder->share)
			gcp_share_exec_left(tracker, holder);
	}
	if (!is_exec)
		graph_is_new(tracker, handle);
}

/* Of any graph, and of captures under way. */
static int holds_of_all(struct gcp_tracker *tracker, struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool;
	int result = 0;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (result == 0 && (graph_pool->graphs > 0 || graph_pool->captures > 0))
			result = hold_add(to, graph_pool, NULL);
	return result;
}

/* Of this one alone. There may be thousands: what was empty needs no look at each. */
static int holds_copy_own(const struct gcp_holder *from, struct gcp_holder *to)
{
	bool empty = SLIST_EMPTY(&to->holds);
	const struct gcp_hold *hold;
	int result = 0;

	SLIST_FOREACH (hold, &from->holds, link)
		if (result == 0)
			result = empty ? hold_new(to, hold->graph_pool, NULL)
				       : hold_add(to, hold->graph_pool, NULL);
	return result;
}

static int holds_copy(struct gcp_tracker *tracker, struct gcp_holder *from,
		      struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_holder *root = gcp_holder_root(from), *part;
	int result;

	if (root->stray)
		return holds_of_all(tracker, to);
	result = holds_copy_own(root, to);
	LIST_FOREACH (part, &root->parts, part_link)
		if (result == 0 && part->node)
			result = holds_copy_own(part, to);
	return result;
}

int gcp_holds_of(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		 struct gcp_holder *holding)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder;
	int result = 0;

	for (holder = gcp_holder_first(tracker, handle, is_exec); holder && result == 0;
	     holder = gcp_holder_next(holder))
		result = holds_copy(tracker, holder, holding);
	return result;
}

/* --- captures ------------------------------------------------------------------- */

int gcp_graph_hold(struct gcp_tracker *tracker, struct gcp_capture *capture,
		   struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *spare = capture->spare_hold;
	struct gcp_holder *holder;

	if (tracker->keeps_all || !capture->graph || capture->graph_gone)
		gcp_graph_pool_keep(graph_pool);
	if (!capture->graph || capture->graph_gone)
		return 0; /* which graph holds it is not known */
	holder = gcp_holder_find(tracker, capture->graph, false);
	if (!holder) {
		holder = capture->spare_holder;
		capture->spare_holder = NULL;
		if (!holder)
			holder = gcp_holder_create();
		if (!holder)
			return -ENOMEM;
		gcp_holder_list(tracker, holder, capture->graph, false);
	}
	holder = gcp_holder_root(holder);
	if (holder->stray)
		gcp_graph_pool_keep(graph_pool);
	capture->spare_hold = NULL;
	return hold_add(holder, graph_pool, spare);
}

void gcp_graph_capture_begun(struct gcp_tracker *tracker,
			     const struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (capture->graph && !capture->into_existing_graph)
		gcp_handle_is_new(tracker, capture->graph, false);
}

/* The graph that was made for the capture. */
static struct gcp_holder *graph_of(struct gcp_tracker *tracker,
				   const struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return capture->into_existing_graph || capture->graph_gone
		   ? NULL
		   : gcp_holder_find(tracker, capture->graph, false);
}

void gcp_graph_capture_lost(struct gcp_tracker *tracker,
			    const struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = graph_of(tracker, capture);

	if (holder)
		gcp_holder_free(tracker, holder);
}

/* --- launches --------------------------------------------------------------------- */

void gcp_exec_launched(struct gcp_tracker *tracker, const void *exec, const void *ctx)
{
	const struct gcp_launched here = {ctx, !ctx};
	struct gcp_holder *holder;

	gcp_tracker_lock(tracker);
	for (holder = gcp_holder_first(tracker, exec, true); holder;
	     holder = gcp_holder_next(holder))
		launched_add(&holder->launched, &here);
	gcp_tracker_unlock(tracker);
}

/* --- the end of a holder ---------------------------------------------------------- */

static void ending_set(struct gcp_holder *holder, bool ending)
{
	struct gcp_holder *part;

	holder->ending = ending;
	LIST_FOREACH (part, &holder->parts, part_link)
		ending_set(part, ending);
}

struct gcp_holder *gcp_graph_capture_ends(struct gcp_tracker *tracker,
					  const struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = graph_of(tracker, capture);

	if (holder)
		ending_set(holder, true);
	return holder;
}

struct gcp_holder *gcp_holder_ending(struct gcp_tracker *tracker, const void *handle,
				     bool is_exec)
{
	struct gcp_holder *holder;

	if (!handle || !gcp_tracker_holds(tracker))
		return NULL;
	gcp_tracker_lock(tracker);
	holder = gcp_holder_find(tracker, handle, is_exec);
	if (holder)
		ending_set(holder, true);
	gcp_tracker_unlock(tracker);
	return holder;
}

/* What came to the handles meanwhile, of the graph and of its parts, stays with them.
 */
static void holder_stays(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *other =
	    gcp_holder_find(tracker, holder->handle, holder->is_exec);
	struct gcp_holder *part, *next;

	for (part = LIST_FIRST(&holder->parts); part; part = next) {
		next = LIST_NEXT(part, part_link);
		if (part->replaced)
			gcp_holder_free(tracker, part);
		else
			holder_stays(tracker, part);
	}
	holder->ending = false;
	if (!other)
		return;
	gcp_holds_move(other, gcp_holder_root(holder));
	while ((part = LIST_FIRST(&other->parts)))
		gcp_holder_embed(part, holder);
	gcp_holder_free(tracker, other);
}

void gcp_holder_ended(struct gcp_tracker *tracker, struct gcp_holder *holder, bool gone)
{
	if (!holder)
		return;
	gcp_tracker_lock(tracker);
	gcp_launches_reset(tracker);
	if (gone || holder->replaced)
		gcp_holder_free(tracker, holder);
	else
		holder_stays(tracker, holder);
	gcp_tracker_unlock(tracker);
	gcp_tracker_collect(tracker);
}

/* --- for good ----------------------------------------------------------------- */

void gcp_graphs_keep(struct gcp_tracker *tracker, bool from_now_on)
{
	struct gcp_graph_pool *graph_pool;

	gcp_tracker_lock(tracker);
	tracker->keeps_all |= from_now_on;
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (graph_pool->graphs > 0 || graph_pool->captures > 0)
			gcp_graph_pool_keep(graph_pool);
	gcp_tracker_unlock(tracker);
}

bool gcp_tracker_holds(const struct gcp_tracker *tracker)
{
	return atomic_load_explicit(&tracker->holder_count, memory_order_relaxed) > 0;
}
