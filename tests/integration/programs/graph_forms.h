/* SPDX-License-Identifier: MIT */
/*
 * graph_forms.h - what the programs about graphs do with a captured one: bring it to
 * life in some form and drop the rest. Any failure ends the program.
 */
#ifndef GCPT_GRAPH_FORMS_H
#define GCPT_GRAPH_FORMS_H

#include "api.h"
#include "util.h"

static inline CUgraphExec gcpt_life(CUgraph graph)
{
	CUgraphExec exec;

	GCPT_OK(gcpt_instantiate(&exec, graph));
	return exec;
}

static inline void gcpt_exec_destroy(CUgraphExec exec)
{
	GCPT_OK(cu.cuGraphExecDestroy(exec));
}

static inline void gcpt_graph_destroy(CUgraph graph)
{
	GCPT_OK(cu.cuGraphDestroy(graph));
}

/* Takes `graph`, gives a clone. */
static inline CUgraph gcpt_graph_to_clone(CUgraph graph)
{
	CUgraph clone;

	GCPT_OK(cu.cuGraphClone(&clone, graph));
	gcpt_graph_destroy(graph);
	return clone;
}

/* Takes `graph`, gives one whose only node is that as a child. */
static inline CUgraph gcpt_graph_to_child(CUgraph graph)
{
	CUgraphNode node;
	CUgraph outer;

	GCPT_OK(cu.cuGraphCreate(&outer, 0));
	GCPT_OK(cu.cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph));
	gcpt_graph_destroy(graph);
	return outer;
}

/* Takes both; `exec` does from now on what `graph` says. */
static inline void gcpt_exec_update(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;

	GCPT_OK(cu.cuGraphExecUpdate(exec, graph, &info));
	gcpt_graph_destroy(graph);
}

#endif
