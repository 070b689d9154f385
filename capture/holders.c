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
 * An object that is made of a graph has a holder, still without a handle, before the
 * real call. A holder keeps the memory until the real call that ends it has returned;
 * if CUDA gives the handle out again before that, it belongs to the new holder.
 *
 * A graph that is embedded in another one (a child graph, the body of a conditional
 * node) is a part: what is captured into it, its parent holds. Where the parent is not
 * known the memory is kept permanently, and what is made of such a graph holds the
 * memory of all graphs. So do calls that are not known: gcp_graphs_keep.
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
 *  Y8 it waits for launches in other contexts than the memory is of
 *  Y9 a block that outlives its graph is a common one
 *  Y12 a graph with nodes added by hand holds what nodes were read of
 */
#include "share.h"

/* --- by their handles ------------------------------------------------------------- */

/* It gets the handle. */
static void holder_list(struct gcp_tracker *tracker, struct gcp_holder *holder,
			const void *handle, bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(handle && !holder->handle && !holder->node);
	assert(!gcp_holder_find(tracker, handle, is_exec)); /* Y2 */
	holder->handle = handle;
	holder->is_exec = is_exec;
	LIST_INSERT_HEAD(gcp_holder_bucket(tracker, handle), holder, link);
	atomic_fetch_add(&tracker->counts.holds, 1);
}

/* The handle stands for it no more. */
static void holder_unlist(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;
	struct gcp_track *track;

	if (!holder->handle)
		return;
	SLIST_FOREACH (hold, &holder->holds, link)
		if (holder->is_exec && (track = hold->graph_pool->track) &&
		    track->exec == holder->handle)
			track->exec = NULL; /* no launch follows its launches */
	LIST_REMOVE(holder, link);
	holder->handle = NULL;
	atomic_fetch_sub(&tracker->counts.holds, 1);
}

/* Made when needed. NULL: no memory. */
static struct gcp_holder *holder_get(struct gcp_tracker *tracker, const void *handle,
				     bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_find(tracker, handle, is_exec);

	if (holder)
		return holder;
	holder = calloc(1, sizeof(*holder));
	if (holder)
		holder_list(tracker, holder, handle, is_exec);
	return holder;
}

/* --- what is held ------------------------------------------------------------- */

/* Adds a pool that the holder does not hold yet. */
static void hold_add(struct gcp_holder *holder, struct gcp_graph_pool *graph_pool,
		     struct gcp_hold *hold)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(!gcp_holds_has(&holder->holds, graph_pool)); /* Y10 */
	assert(!holder->parent || holder->node);            /* Y11 */
	hold->graph_pool = graph_pool;
	graph_pool->graphs++;
	holder->shares += graph_pool->shares;
	if (graph_pool->shares || SLIST_EMPTY(&holder->holds)) /* it is found first */
		SLIST_INSERT_HEAD(&holder->holds, hold, link);
	else
		SLIST_INSERT_AFTER(SLIST_FIRST(&holder->holds), hold, link);
}

/* `from` holds nothing any more. */
static void holds_move(struct gcp_holder *from, struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	assert(from != to);
	while ((hold = SLIST_FIRST(&from->holds))) {
		struct gcp_graph_pool *graph_pool = hold->graph_pool;

		SLIST_REMOVE_HEAD(&from->holds, link);
		assert(graph_pool->graphs >= 1);
		graph_pool->graphs--;
		graph_pool->kept |= to->stray;
		if (gcp_holds_has(&to->holds, graph_pool))
			free(hold);
		else
			hold_add(to, graph_pool, hold);
		assert(gcp_holds_has(&to->holds, graph_pool)); /* Y4, Y5 */
	}
}

/* Keeps the memory until the process ends. */
static void holds_keep(struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holder->holds, link)
		hold->graph_pool->kept = true;
}

/* fresh: the holder does not hold the pool yet. -ENOMEM. */
static int hold_copy(struct gcp_holder *to, struct gcp_graph_pool *graph_pool,
		     bool fresh)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	if (!fresh && gcp_holds_has(&to->holds, graph_pool))
		return 0;
	hold = malloc(sizeof(*hold));
	if (!hold)
		return -ENOMEM;
	hold_add(to, graph_pool, hold);
	return 0;
}

/* Adds the pools of all graphs and of captures under way. told: leaves out graphs that
 * share memory. A graph whose nodes were told to the program has memory of its own, so
 * the program has no address in shared memory, and must not wait for its graphs. */
static int holds_of_all(struct gcp_tracker *tracker, struct gcp_holder *to, bool told)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool;
	int result = 0;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (result == 0 &&
		    (graph_pool->graphs > 0 || graph_pool->captures > 0) &&
		    !(graph_pool->shares && told))
			result = hold_copy(to, graph_pool, true);
	return result;
}

/* Of this one alone. There may be thousands: what was empty needs no look at each. */
static int holds_copy(const struct gcp_holder *from, struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool empty = SLIST_EMPTY(&to->holds);
	const struct gcp_hold *hold;
	int result = 0;

	assert(from != to && !to->handle); /* Y4 */
	SLIST_FOREACH (hold, &from->holds, link)
		if (result == 0)
			result = hold_copy(to, hold->graph_pool, empty);
	return result;
}

/* `to`, which is new, holds what the handle stands for does. -ENOMEM. */
static int holds_of(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		    struct gcp_holder *to)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_find(tracker, handle, is_exec);
	const struct gcp_holder *root = holder ? gcp_holder_root(holder) : NULL, *part;
	int result;

	assert(!to->handle && !to->parent); /* Y4 */
	if (!root)
		return 0;
	if (root->stray)
		return holds_of_all(tracker, to, false);
	result = holds_copy(root, to);
	LIST_FOREACH (part, &root->parts, part_link)
		if (result == 0 && part->node)
			result = holds_copy(part, to);
	return result;
}

/* --- its end ------------------------------------------------------------------ */

static void holder_leave(struct gcp_holder *part)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (!part->parent)
		return;
	LIST_REMOVE(part, part_link);
	part->parent = NULL;
}

void gcp_holder_free(struct gcp_tracker *tracker, struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	holder_unlist(tracker, holder);
	holder_leave(holder);
	assert(!holder->handle && !holder->parent);
	while (!LIST_EMPTY(&holder->parts))
		gcp_holder_free(tracker, LIST_FIRST(&holder->parts));
	while ((hold = SLIST_FIRST(&holder->holds))) {
		SLIST_REMOVE_HEAD(&holder->holds, link);
		assert(hold->graph_pool->graphs > 0); /* P1 */
		hold->graph_pool->graphs--;
		gcp_graph_pool_ref_released(tracker, hold->graph_pool);
		free(hold);
	}
	assert(SLIST_EMPTY(&holder->holds) && LIST_EMPTY(&holder->parts));
	free(holder);
}

/* The handle is another graph's by now, or that of a part of one (`part`): a capture
 * that makes a graph of this handle has lost it, after an error. */
static void graph_is_gone(struct gcp_tracker *tracker, const void *graph, bool part)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;

	TAILQ_FOREACH (capture, &tracker->captures, link)
		capture->graph_gone |=
		    capture->graph == graph && !(part && capture->into_existing_graph);
}

void gcp_holder_handle_is_new(struct gcp_tracker *tracker, const void *handle,
			      bool is_exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_find(tracker, handle, is_exec);

	assert(handle);
	if (holder)
		gcp_holder_free(tracker, holder);
	assert(!gcp_holder_find(tracker, handle, is_exec));
	if (!is_exec)
		graph_is_gone(tracker, handle, false);
}

struct gcp_holder *gcp_holder_ending(struct gcp_tracker *tracker, const void *handle,
				     bool is_exec)
{
	struct gcp_holder *holder;

	if (!handle || !gcp_tracker_holds(tracker))
		return NULL;
	GCP_LOCKED(&tracker->lock);
	holder = gcp_holder_find(tracker, handle, is_exec);
	if (holder)
		holder_unlist(tracker, holder);
	assert(!holder || !holder->handle);
	assert(!holder || !holder->node); /* Y11 */
	return holder;
}

/* --- captures ------------------------------------------------------------------- */

void gcp_graph_hold(struct gcp_tracker *tracker, const struct gcp_capture *capture,
		    struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool known = capture->graph && !capture->graph_gone;
	struct gcp_holder *holder =
	    known ? holder_get(tracker, capture->graph, false) : NULL;

	holder = holder ? gcp_holder_root(holder) : NULL;
	graph_pool->kept |= !holder || hold_copy(holder, graph_pool, false) != 0 ||
			    holder->stray || tracker->keeps_all;
	assert(graph_pool->kept || capture->graph);                            /* Y1 */
	assert(graph_pool->kept || !capture->graph_gone);                      /* Y6 */
	assert(graph_pool->kept || gcp_holds_has(&holder->holds, graph_pool)); /* Y1 */
}

/* --- what is made of a holder ------------------------------------------------- */

/* Returns true if a graph holds memory, or a capture may make one that does. */
static bool any_holds(const struct gcp_tracker *tracker)
{
	return gcp_tracker_holds(tracker) || gcp_tracker_capturing(tracker);
}

int gcp_holding_begin(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		      enum gcp_making making, struct gcp_holder **ret_holding)
{
	bool of_all = making == GCP_MAKING_NODE;
	const struct gcp_hold *hold;
	struct gcp_holder *holding;
	int result;

	*ret_holding = NULL;
	if (!(of_all ? atomic_load(&tracker->nodes_read) : handle != NULL) ||
	    !any_holds(tracker))
		return 0;
	holding = calloc(1, sizeof(*holding)); /* without a handle */
	if (!holding)
		return -ENOMEM;
	GCP_LOCKED(&tracker->lock);
	result = of_all ? holds_of_all(tracker, holding, true) /* Y12 */
			: holds_of(tracker, handle, is_exec, holding);
	if (result == 0 && !of_all)
		result = gcp_share_made(tracker, holding, making);
	if (making == GCP_MAKING_UNSEEN) /* each launch may be one of it */
		SLIST_FOREACH (hold, &holding->holds, link) {
			tracker->unseen += !hold->graph_pool->unseen;
			hold->graph_pool->unseen = true;
		}
	if (result != 0 || SLIST_EMPTY(&holding->holds))
		gcp_holder_free(tracker, holding);
	else
		*ret_holding = holding;
	assert(result == 0 || !*ret_holding); /* Y4 */
	return result;
}

void gcp_holding_new(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec)
{
	struct gcp_graph_pool *graph;
	unsigned count;
	bool updated;

	if (!holding && !any_holds(tracker))
		return;
	gcp_mutex_lock(&tracker->lock);
	assert(handle && (!holding || !holding->handle));
	updated = gcp_holder_find(tracker, handle, is_exec) != NULL;
	gcp_holder_handle_is_new(tracker, handle, is_exec);
	if (holding)
		holder_list(tracker, holding, handle, is_exec);
	graph = holding && is_exec ? gcp_share_held(holding, &count) : NULL;
	assert(!graph || count == 1); /* X4: its launches are one graph's */
	if (graph)
		graph->updated = updated;
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
}

void gcp_holding_add(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec)
{
	struct gcp_holder *holder;

	if (!holding)
		return;
	gcp_mutex_lock(&tracker->lock);
	assert(!holding->handle && !holding->node); /* Y4 */
	holder = handle ? gcp_holder_find(tracker, handle, is_exec) : NULL;
	if (holder)
		holds_move(holding, gcp_holder_root(holder));
	if (holder || !handle)
		gcp_holder_free(tracker, holding);
	else
		holder_list(tracker, holding, handle, is_exec);
	assert(!handle || gcp_holder_find(tracker, handle, is_exec)); /* Y5 */
	gcp_shares_bind(tracker);
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
}

void gcp_holding_set(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *exec, const void *node, bool done)
{
	struct gcp_holder *holder, *part;

	if (!done) { /* besides, until that ends: what the call has set is not known */
		gcp_holding_add(tracker, holding, exec, true);
		return;
	}
	if (!holding && !gcp_tracker_holds(tracker))
		return;
	gcp_mutex_lock(&tracker->lock);
	assert(exec && node);
	holder = holding ? holder_get(tracker, exec, true)
			 : gcp_holder_find(tracker, exec, true);
	assert(!holder || holder->is_exec); /* all parts of graphs have no node */
	part = holder ? LIST_FIRST(&holder->parts) : NULL;
	while (part && part->node != node)
		part = LIST_NEXT(part, part_link);
	if (part) /* that runs no more */
		gcp_holder_free(tracker, part);
	if (holder && holding) {
		holding->node = node;
		holding->parent = holder;
		LIST_INSERT_HEAD(&holder->parts, holding, part_link);
		assert(holding->node && !holding->handle);
	} else if (holding) { /* no memory for one that could let go of it earlier */
		holder_list(tracker, holding, exec, true);
	}
	gcp_mutex_unlock(&tracker->lock);
	gcp_tracker_collect(tracker);
}

void gcp_holding_keep(struct gcp_tracker *tracker, struct gcp_holder *holding)
{
	if (!holding)
		return;
	GCP_LOCKED(&tracker->lock);
	assert(!holding->handle && !holding->parent); /* Y4 */
	assert(!SLIST_EMPTY(&holding->holds));
	holds_keep(holding);
	gcp_holder_free(tracker, holding);
}

/* --- launches --------------------------------------------------------------------- */

/* Returns true if some of the memory is of other contexts than these; notes it, unless
 * `home` is NULL. */
static bool holds_are_away(const struct gcp_holder *holder, const void *ctx,
			   const void *home)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_graph_heap *entry;
	const struct gcp_holder *part;
	const struct gcp_hold *hold;
	bool away = false;

	SLIST_FOREACH (hold, &holder->holds, link) {
		struct gcp_graph_pool *graph_pool = hold->graph_pool;
		bool other = graph_pool->pinned_set &&
			     gcp_pinned_set_is_away(graph_pool->pinned_set, ctx, home);

		SLIST_FOREACH (entry, &graph_pool->heaps, link)
			other |= gcp_pool_context(entry->pool) != ctx &&
				 gcp_pool_context(entry->pool) != home;
		graph_pool->away |= other && home;
		away |= other;
	}
	LIST_FOREACH (part, &holder->parts, part_link)
		away |= holds_are_away(part, ctx, home);
	return away;
}

bool gcp_exec_is_away(struct gcp_tracker *tracker, const void *exec, const void *ctx,
		      const void *home)
{
	const struct gcp_holder *holder;

	GCP_LOCKED(&tracker->lock);
	holder = gcp_holder_find(tracker, exec, true);
	assert(!holder || holder->is_exec);
	return (holder && holds_are_away(holder, ctx, home)) || tracker->unseen > 0;
}

int gcp_graph_launched(struct gcp_tracker *tracker, void *ctx, void *stream,
		       const void *exec)
{
	struct gcp_capture_state state = {0};
	struct gcp_holder *holding;
	int result = gcp_holding_begin(tracker, exec, true, GCP_MAKING_COPY, &holding);

	if (result != 0 || !holding)
		return result;
	assert(exec);
	if (tracker->driver.capture_state(ctx, stream, &state) != 0 ||
	    (state.active && !state.graph))
		gcp_holding_keep(tracker, holding);
	else
		gcp_holding_add(tracker, holding, state.active ? state.graph : NULL,
				false);
	return 0;
}

/* --- parts ------------------------------------------------------------------------ */

void gcp_graph_part(struct gcp_tracker *tracker, const void *parent, const void *part,
		    bool moved)
{
	struct gcp_holder *of = NULL, *holder;

	if (!part)
		return;
	GCP_LOCKED(&tracker->lock);
	if (parent && !moved)
		gcp_holder_handle_is_new(tracker, part, false);
	else if (!parent)
		graph_is_gone(tracker, part, true);
	holder = holder_get(tracker, part, false);
	if (holder && parent)
		of = holder_get(tracker, parent, false);
	if (!holder || (parent && !of) || (of && gcp_holder_root(of) == holder)) {
		tracker->keeps_all = true; /* nothing tells it from other graphs */
	} else {
		if (moved) /* held also as a part: its parent has got a copy */
			holds_move(holder, gcp_holder_root(of));
		/* It may still hold memory of an earlier graph with that handle, which
		 * is kept until the process ends. */
		holds_keep(holder);
		holder_leave(holder);
		assert(holder->handle && !holder->is_exec);
		assert(!holder->node);
		holder->parent = of;
		holder->stray = !of;
		if (of)
			LIST_INSERT_HEAD(&of->parts, holder, part_link);
		assert(!of || gcp_holder_root(of) != holder); /* Y3, Y11 */
	}
}

/* --- memory that stays ---------------------------------------------------------- */

void gcp_graphs_keep(struct gcp_tracker *tracker, bool from_now_on)
{
	struct gcp_graph_pool *graph_pool;

	GCP_LOCKED(&tracker->lock);
	tracker->keeps_all |= from_now_on;
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (graph_pool->graphs > 0 || graph_pool->captures > 0)
			graph_pool->kept = true;
}
