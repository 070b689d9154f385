/* SPDX-License-Identifier: MIT */
/*
 * conform_conditional.c - conditional nodes, captures into their bodies, and what
 * user objects of bodies live as long as: the transcript.
 */
#include "conform_sections.h"

static CUgraph outer, bodies[3];
static CUgraphNode node;

static CUgraphConditionalHandle new_handle(CUgraph g, unsigned value)
{
	CUgraphConditionalHandle handle;

	MUST(cuGraphConditionalHandleCreate(&handle, g, conform_ctx, value,
					    CU_GRAPH_COND_ASSIGN_DEFAULT));
	return handle;
}

static CUresult add(CUgraph g, CUgraphConditionalHandle handle,
		    CUgraphConditionalNodeType type, unsigned size)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUresult result;

	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	params.conditional.ctx = conform_ctx;
	result = cuGraphAddNode(&node, g, NULL, NULL, 0, &params);
	for (unsigned i = 0; result == CUDA_SUCCESS && i < size && i < 3; i++)
		bodies[i] = params.conditional.phGraph_out[i];
	return result;
}

/* `outer` with one conditional node and its body. */
static void new_if(unsigned value)
{
	MUST(cuGraphCreate(&outer, 0));
	MUST(add(outer, new_handle(outer, value), CU_GRAPH_COND_TYPE_IF, 1));
}

static CUresult begin_body(CUgraph body)
{
	return cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0,
					   CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void fill_body(CUgraph body, uint32_t value, bool with_object)
{
	MUST(begin_body(body));
	if (with_object)
		attach(captured_graph(s));
	MUST(conform_fill(p, 4, value, s), end(s));
}

/* --- making ---------------------------------------------------------------------- */

SECTION(handles)
{
	CUgraphConditionalHandle handle;
	CUgraph g;

	MUST(cuGraphCreate(&g, 0));
	for (unsigned flags = 0; flags < 3; flags++)
		TELL(cuGraphConditionalHandleCreate(&handle, g, conform_ctx, 1, flags));
	TELL(cuGraphConditionalHandleCreate(&handle, g, NULL, 0, 0));
	TELL(cuGraphConditionalHandleCreate(&handle, NULL, conform_ctx, 0, 0));
	TELL(cuGraphConditionalHandleCreate(NULL, g, conform_ctx, 0, 0), nodes_of(g));
	TELL(cuGraphInstantiate(&(CUgraphExec){0}, g, 0));
}

SECTION(kinds)
{
	static const CUgraphConditionalNodeType types[] = {
	    CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_WHILE, CU_GRAPH_COND_TYPE_SWITCH};
	CUgraphConditionalHandle handle;
	CUgraphNodeType type;
	CUgraph g;

	MUST(cuGraphCreate(&g, 0));
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned size = 0; size < 4; size++) {
			tell("type", types[i]);
			tell("size", size);
			TELL(add(g, new_handle(g, 0), types[i], size));
		}
	}
	handle = new_handle(g, 0);
	TELL(add(g, handle, CU_GRAPH_COND_TYPE_IF, 1), cuGraphNodeGetType(node, &type));
	TELL(type);
	TELL(add(g, handle, CU_GRAPH_COND_TYPE_IF, 1)); /* a second time */
	MUST(cuGraphCreate(&outer, 0));
	TELL(add(outer, new_handle(g, 0), CU_GRAPH_COND_TYPE_IF, 1)); /* another's */
	TELL(add(outer, new_handle(outer, 0), (CUgraphConditionalNodeType)7, 1));
	TELL(nodes_of(outer));
}

SECTION(bodies_as_graphs)
{
	CUgraphExec exec;
	CUgraphNode inner;
	CUgraph clone, g;

	new_if(1);
	TELL(bodies[0] != NULL, bodies[0] != outer, nodes_of(bodies[0]));
	TELL(cuGraphAddEmptyNode(&inner, bodies[0], NULL, 0), nodes_of(bodies[0]));
	TELL(nodes_of(outer), cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphLaunch(exec, s), cuStreamSynchronize(s));
	TELL(cuGraphClone(&clone, outer), cuGraphClone(&clone, bodies[0]));
	MUST(cuGraphCreate(&g, 0));
	TELL(cuGraphAddChildGraphNode(&inner, g, NULL, 0, outer));
	TELL(cuGraphInstantiate(&exec, g, 0), cuGraphDestroyNode(node));
	TELL(nodes_of(outer));
}

SECTION(body_destroyed)
{
	new_if(1);
	TELL(cuGraphDestroy(bodies[0]));
}

SECTION(body_instantiated)
{
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 5, false);
	TELL(cuGraphInstantiate(&exec, bodies[0], 0));
}

static void CUDA_CB nothing(void *data)
{
	(void)data;
}

SECTION(forbidden_in_bodies)
{
	CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
	CUgraphExec exec;
	CUgraphNode inner;
	CUdeviceptr q;

	new_if(1);
	TELL(cuGraphAddHostNode(&inner, bodies[0], NULL, 0, &host));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	new_if(1);
	TELL(cuGraphAddEventRecordNode(&inner, bodies[0], NULL, 0, new_event()));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	new_if(1);
	TELL(begin_body(bodies[0]), cuMemAllocAsync(&q, 4096, s), status_of(s), end(s));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	new_if(1);
	MUST(begin_body(bodies[0]));
	TELL(cuLaunchHostFunc(s, nothing, NULL), status_of(s), end(s));
	TELL(cuGraphInstantiate(&exec, outer, 0));
}

/* --- captures into bodies ------------------------------------------------- */

SECTION(captured_bodies)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *deps;
	CUgraphExec exec;
	cuuint64_t id;
	size_t count;
	CUgraph g;

	new_if(1);
	TELL(begin_body(bodies[0]));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count), status);
	TELL(g == bodies[0], count, conform_fill(p, 4, 11, s), begin_body(bodies[0]));
	TELL(cuGraphInstantiate(&exec, outer, 0), status_of(s), end(s));
	TELL(graph == bodies[0], nodes_of(bodies[0]));
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), word_at(p));
	TELL(begin_body(bodies[0])); /* more of it */
	TELL(conform_fill(p, 4, 12, s), end(s), nodes_of(bodies[0]));
	new_if(0);
	fill_body(bodies[0], 13, false);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), word_at(p));
}

SECTION(choices)
{
	CUgraphExec exec;

	for (unsigned value = 0; value < 3; value++) {
		MUST(cuGraphCreate(&outer, 0));
		MUST(
		    add(outer, new_handle(outer, value), CU_GRAPH_COND_TYPE_SWITCH, 2));
		fill_body(bodies[0], 20, false);
		fill_body(bodies[1], 21, false);
		MUST(conform_fill(p, 4, 1, s));
		TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphLaunch(exec, s));
		TELL(cuStreamSynchronize(s), word_at(p));
	}
	MUST(cuGraphCreate(&outer, 0));
	MUST(add(outer, new_handle(outer, 0), CU_GRAPH_COND_TYPE_WHILE, 1));
	fill_body(bodies[0], 22, false);
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), word_at(p));
}

/* As programs do it: the node goes into the graph that another stream captures. */
SECTION(body_within_capture)
{
	CUgraphExec exec;
	CUgraph g;

	begin(t, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 30, t));
	g = captured_graph(t);
	TELL(add(g, new_handle(g, 1), CU_GRAPH_COND_TYPE_IF, 1));
	TELL(cuStreamUpdateCaptureDependencies(t, &node, NULL, 1,
					       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	TELL(begin_body(bodies[0]), conform_fill(p + 4, 4, 31, s), status_of(t));
	TELL(end(s), conform_fill(p + 8, 1, 32, t), cuStreamEndCapture(t, &g));
	TELL(nodes_of(g), cuGraphInstantiate(&exec, g, 0), cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), word_at(p + 4), word_at(p + 8));
}

SECTION(body_capture_lost)
{
	new_if(1);
	TELL(begin_body(bodies[0]));
	attach(bodies[0]);
	TELL(conform_fill(p, 4, 40, s), cuStreamSynchronize(s), status_of(s), end(s));
	TELL(graph == NULL, gone());
	TELL(nodes_of(bodies[0])); /* has gone with the capture; so leave `outer` be */
}

SECTION(body_stream_destroyed)
{
	CUstream u = new_stream(CU_STREAM_NON_BLOCKING);

	new_if(1);
	MUST(cuStreamBeginCaptureToGraph(u, bodies[0], NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	attach(bodies[0]);
	MUST(conform_fill(p, 4, 41, u));
	TELL(cuStreamDestroy(u), gone(), nodes_of(bodies[0]));
}

/* --- user objects --------------------------------------------------------- */

SECTION(object_of_a_graph)
{
	new_if(1);
	fill_body(bodies[0], 50, true);
	TELL(gone(), cuGraphDestroy(outer), gone());
}

SECTION(object_of_a_node)
{
	new_if(1);
	fill_body(bodies[0], 51, true);
	TELL(cuGraphDestroyNode(node), gone(), cuGraphDestroy(outer), gone());
}

/* Is the launch done when its executable graph has been destroyed? */
static void destroyed_while_launched(CUgraphExec exec)
{
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s), cuStreamQuery(s), cuGraphExecDestroy(exec));
	TELL(cuStreamQuery(s), gone(), cuStreamSynchronize(s), gone());
}

SECTION(object_of_an_exec)
{
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 52, true);
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphDestroy(outer), gone());
	destroyed_while_launched(exec);
	TELL(word_at(p));
}

/* The object is of the graph itself, not of the body. */
SECTION(object_beside_a_body)
{
	CUgraphExec exec;

	new_if(0);
	attach(outer);
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphDestroy(outer), gone());
	destroyed_while_launched(exec);
}

SECTION(object_of_a_clone)
{
	CUgraph clone;

	new_if(1);
	fill_body(bodies[0], 53, true);
	TELL(cuGraphClone(&clone, outer), cuGraphDestroy(outer), gone());
}

SECTION(object_of_a_body_in_a_body)
{
	CUgraphExec exec;
	CUgraph top;

	new_if(1);
	top = outer;
	TELL(add(bodies[0], new_handle(bodies[0], 1), CU_GRAPH_COND_TYPE_IF, 1));
	fill_body(bodies[0], 54, true);
	TELL(cuGraphInstantiate(&exec, top, 0), cuGraphDestroy(top), gone());
	destroyed_while_launched(exec);
	TELL(word_at(p));
}

SECTION(object_of_a_child_in_a_body)
{
	CUgraphExec exec;
	CUgraphNode inner;
	CUgraph child;

	MUST(cuGraphCreate(&child, 0));
	attach(child);
	MUST(cuGraphAddEmptyNode(&inner, child, NULL, 0));
	new_if(1);
	TELL(cuGraphAddChildGraphNode(&inner, bodies[0], NULL, 0, child));
	TELL(cuGraphDestroy(child), gone(), cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphDestroy(outer), gone(), cuGraphExecDestroy(exec), gone());
}

SECTION(body_in_a_child)
{
	CUgraphNode inner;
	CUgraph parent;

	new_if(1);
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&inner, parent, NULL, 0, outer));
	TELL(nodes_of(parent));
}

SECTION(bodies_updated)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 60, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	fill_body(bodies[0], 61, true); /* a node and an object more */
	TELL(cuGraphExecUpdate(exec, outer, &info), info.result, cuGraphDestroy(outer));
	TELL(gone());
	new_if(1);
	fill_body(bodies[0], 62, true);
	TELL(cuGraphExecUpdate(exec, outer, &info)); /* another graph's handle */
	TELL(info.result, cuGraphDestroy(outer), gone(), cuGraphExecDestroy(exec));
	TELL(gone());
}

SECTION(bodies_updated_while_launched)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 64, true);
	TELL(cuGraphInstantiate(&exec, outer, 0), cuGraphDestroy(outer));
	new_if(1);
	fill_body(bodies[0], 65, true);
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s), cuGraphExecUpdate(exec, outer, &info));
	TELL(cuStreamQuery(s), gone(), cuStreamSynchronize(s), gone(), word_at(p));
	TELL(cuGraphLaunch(exec, s), cuStreamSynchronize(s), word_at(p));
}

SECTION(bodies_updated_by_their_own)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 63, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	attach(bodies[0]);
	TELL(cuGraphExecUpdate(exec, outer, &info), info.result, gone());
	TELL(cuGraphDestroy(outer), gone(), cuGraphExecDestroy(exec), gone());
}
