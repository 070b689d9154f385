/* SPDX-License-Identifier: MIT */
/*
 * holding.c - what is made of graphs and executables: clones, executables, parents, and
 * parts. It holds the memory before the real call: see holders.c.
 */
#include "holders.h"

/* --- what is made of a holder ------------------------------------------------- */

int gcp_holding_begin(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		      struct gcp_holder **ret_holding)
{
	struct gcp_holder *holding;
	int result;

	*ret_holding = NULL;
	if (!handle || (!gcp_tracker_holds(tracker) && !gcp_tracker_capturing(tracker)))
		return 0;
	holding = gcp_holder_create();
	if (!holding)
		return -ENOMEM;
	gcp_tracker_lock(tracker);
	result = gcp_holds_of(tracker, handle, is_exec, holding);
	if (result != 0 || SLIST_EMPTY(&holding->holds))
		gcp_holder_free(tracker, holding);
	else
		*ret_holding = holding;
	gcp_tracker_unlock(tracker);
	return result;
}

void gcp_holding_end(struct gcp_tracker *tracker, struct gcp_holder *holding)
{
	if (!holding)
		return;
	gcp_tracker_lock(tracker);
	gcp_holder_free(tracker, holding);
	gcp_tracker_unlock(tracker);
}

void gcp_holding_new(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec)
{
	if (!holding && !gcp_tracker_holds(tracker) && !gcp_tracker_capturing(tracker))
		return;
	gcp_tracker_lock(tracker);
	gcp_handle_is_new(tracker, handle, is_exec);
	if (holding)
		gcp_holder_list(tracker, holding, handle, is_exec);
	gcp_tracker_unlock(tracker);
}

static void holding_keep(struct gcp_tracker *tracker, struct gcp_holder *holding)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_hold *hold;

	SLIST_FOREACH (hold, &holding->holds, link)
		gcp_graph_pool_keep(hold->graph_pool);
	gcp_holder_free(tracker, holding);
}

void gcp_holding_add(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec)
{
	struct gcp_holder *holder;

	if (!holding)
		return;
	if (!handle) { /* of a call that CUDA has refused */
		gcp_holding_end(tracker, holding);
		return;
	}
	gcp_tracker_lock(tracker);
	holder = gcp_holder_find(tracker, handle, is_exec);
	if (holder) {
		gcp_holds_move(holding, gcp_holder_root(holder));
		gcp_holder_free(tracker, holding);
	} else {
		gcp_holder_list(tracker, holding, handle, is_exec);
	}
	gcp_tracker_unlock(tracker);
}

/* What was set for the node before runs no more. */
static void set_drop(struct gcp_tracker *tracker, struct gcp_holder *exec,
		     const void *node)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *part, *next;

	for (part = LIST_FIRST(&exec->parts); part; part = next) {
		next = LIST_NEXT(part, part_link);
		if (part->node == node)
			gcp_holder_free(tracker, part);
	}
}

/* What may have been set for the node already; NULL: nothing. */
static struct gcp_holder *set_find(struct gcp_holder *exec, const void *node)
{
	struct gcp_holder *part;

	LIST_FOREACH (part, &exec->parts, part_link)
		if (part->node == node)
			break;
	return part;
}

void gcp_holding_set(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *exec, const void *node, bool done)
{
	struct gcp_holder *holder, *part;

	if (!holding && !gcp_tracker_holds(tracker))
		return;
	if (!exec) {
		gcp_holding_end(tracker, holding);
		return;
	}
	gcp_tracker_lock(tracker);
	holder = holding ? gcp_holder_get(tracker, exec, true)
			 : gcp_holder_find(tracker, exec, true);
	if (holder && done)
		set_drop(tracker, holder, node);
	part = holder && holding ? set_find(holder, node) : NULL;
	if (part) { /* the call has failed, again and again maybe */
		gcp_holds_move(holding, part);
		gcp_holder_free(tracker, holding);
	} else if (holder && holding) {
		holding->node = node;
		holding->parent = holder;
		LIST_INSERT_HEAD(&holder->parts, holding, part_link);
	} else if (holding) { /* no memory for one that could let go of it earlier */
		gcp_holder_list(tracker, holding, exec, true);
	}
	gcp_tracker_unlock(tracker);
	gcp_tracker_collect(tracker);
}

void gcp_holding_keep(struct gcp_tracker *tracker, struct gcp_holder *holding)
{
	if (!holding)
		return;
	gcp_tracker_lock(tracker);
	holding_keep(tracker, holding);
	gcp_tracker_unlock(tracker);
}

int gcp_graph_launched(struct gcp_tracker *tracker, void *ctx, void *stream,
		       const void *exec)
{
	struct gcp_capture_state state = {0};
	struct gcp_holder *holding;
	int result = gcp_holding_begin(tracker, exec, true, &holding);

	if (result != 0 || !holding)
		return result;
	if (tracker->driver.capture_state(ctx, stream, &state) != 0 ||
	    (state.active && !state.graph))
		gcp_holding_keep(tracker, holding);
	else if (state.active)
		gcp_holding_add(tracker, holding, state.graph, false);
	else
		gcp_holding_end(tracker, holding);
	return 0;
}

/* --- parts ------------------------------------------------------------------------ */

void gcp_graph_made(struct gcp_tracker *tracker, const void *graph)
{
	gcp_holding_new(tracker, NULL, graph, false);
}

void gcp_graph_part(struct gcp_tracker *tracker, const void *parent, const void *part)
{
	struct gcp_holder *of = NULL, *holder;

	if (!part)
		return;
	gcp_tracker_lock(tracker);
	if (parent)
		gcp_handle_is_new(tracker, part, false);
	else
		gcp_graph_is_part(tracker, part);
	holder = gcp_holder_get(tracker, part, false);
	if (holder && parent)
		of = gcp_holder_get(tracker, parent, false);
	if (!holder || (of && gcp_holder_root(of) == holder))
		tracker->keeps_all = true; /* nothing tells it from other graphs */
	else
		gcp_holder_embed(holder, of);
	gcp_tracker_unlock(tracker);
}

/* What it has held, it holds also as a part: its parent has got a copy. */
void gcp_graph_moved(struct gcp_tracker *tracker, const void *parent, const void *child)
{
	struct gcp_holder *of, *holder;

	gcp_tracker_lock(tracker);
	of = gcp_holder_get(tracker, parent, false);
	holder = gcp_holder_get(tracker, child, false);
	if (!of || !holder || gcp_holder_root(of) == holder) {
		tracker->keeps_all = true;
	} else {
		gcp_holds_move(holder, gcp_holder_root(of));
		gcp_holder_embed(holder, of);
	}
	gcp_tracker_unlock(tracker);
}
