/* SPDX-License-Identifier: MIT */
/*
 * conform_conditional.c - conditional nodes, captures into their bodies, and what
 * user objects of bodies live as long as: the transcript.
 */
#include "conform_apart.h"

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
	MUST(conform_fill(p, 4, value, s));
	MUST(end(s));
}

/* --- making ---------------------------------------------------------------------- */

static void handles(void)
{
	CUgraphConditionalHandle handle;
	CUgraph g;

	MUST(cuGraphCreate(&g, 0));
	for (unsigned flags = 0; flags < 3; flags++)
		TELL(cuGraphConditionalHandleCreate(&handle, g, conform_ctx, 1, flags));
	TELL(cuGraphConditionalHandleCreate(&handle, g, NULL, 0, 0));
	TELL(cuGraphConditionalHandleCreate(&handle, NULL, conform_ctx, 0, 0));
	TELL(cuGraphConditionalHandleCreate(NULL, g, conform_ctx, 0, 0));
	TELL(nodes_of(g));
	TELL(cuGraphInstantiate(&(CUgraphExec){0}, g, 0));
}

static void kinds(void)
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
	TELL(add(g, handle, CU_GRAPH_COND_TYPE_IF, 1));
	TELL(cuGraphNodeGetType(node, &type));
	TELL(type);
	TELL(add(g, handle, CU_GRAPH_COND_TYPE_IF, 1)); /* a second time */
	MUST(cuGraphCreate(&outer, 0));
	TELL(add(outer, new_handle(g, 0), CU_GRAPH_COND_TYPE_IF, 1)); /* another's */
	TELL(add(outer, new_handle(outer, 0), (CUgraphConditionalNodeType)7, 1));
	TELL(nodes_of(outer));
}

static void bodies_as_graphs(void)
{
	CUgraphExec exec;
	CUgraphNode inner;
	CUgraph clone, g;

	new_if(1);
	TELL(bodies[0] != NULL);
	TELL(bodies[0] != outer);
	TELL(nodes_of(bodies[0]));
	TELL(cuGraphAddEmptyNode(&inner, bodies[0], NULL, 0));
	TELL(nodes_of(bodies[0]));
	TELL(nodes_of(outer));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(cuGraphClone(&clone, outer));
	TELL(cuGraphClone(&clone, bodies[0]));
	MUST(cuGraphCreate(&g, 0));
	TELL(cuGraphAddChildGraphNode(&inner, g, NULL, 0, outer));
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphDestroyNode(node));
	TELL(nodes_of(outer));
}

static void body_destroyed(void)
{
	new_if(1);
	TELL(cuGraphDestroy(bodies[0]));
}

static void body_instantiated(void)
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

static void forbidden_in_bodies(void)
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
	TELL(begin_body(bodies[0]));
	TELL(cuMemAllocAsync(&q, 4096, s));
	TELL(status_of(s));
	TELL(end(s));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	new_if(1);
	MUST(begin_body(bodies[0]));
	TELL(cuLaunchHostFunc(s, nothing, NULL));
	TELL(status_of(s));
	TELL(end(s));
	TELL(cuGraphInstantiate(&exec, outer, 0));
}

/* --- captures into bodies ------------------------------------------------- */

static void captured_bodies(void)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *deps;
	CUgraphExec exec;
	cuuint64_t id;
	size_t count;
	CUgraph g;

	new_if(1);
	TELL(begin_body(bodies[0]));
	TELL(cuStreamGetCaptureInfo(s, &status, &id, &g, &deps, NULL, &count));
	TELL(status);
	TELL(g == bodies[0]);
	TELL(count);
	TELL(conform_fill(p, 4, 11, s));
	TELL(begin_body(bodies[0]));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(status_of(s));
	TELL(end(s));
	TELL(graph == bodies[0]);
	TELL(nodes_of(bodies[0]));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(word_at(p));
	TELL(begin_body(bodies[0])); /* more of it */
	TELL(conform_fill(p, 4, 12, s));
	TELL(end(s));
	TELL(nodes_of(bodies[0]));
	new_if(0);
	fill_body(bodies[0], 13, false);
	MUST(conform_fill(p, 4, 1, s));
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(word_at(p));
}

static void choices(void)
{
	CUgraphExec exec;

	for (unsigned value = 0; value < 3; value++) {
		MUST(cuGraphCreate(&outer, 0));
		MUST(
		    add(outer, new_handle(outer, value), CU_GRAPH_COND_TYPE_SWITCH, 2));
		fill_body(bodies[0], 20, false);
		fill_body(bodies[1], 21, false);
		MUST(conform_fill(p, 4, 1, s));
		TELL(cuGraphInstantiate(&exec, outer, 0));
		TELL(cuGraphLaunch(exec, s));
		TELL(cuStreamSynchronize(s));
		TELL(word_at(p));
	}
	MUST(cuGraphCreate(&outer, 0));
	MUST(add(outer, new_handle(outer, 0), CU_GRAPH_COND_TYPE_WHILE, 1));
	fill_body(bodies[0], 22, false);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(word_at(p));
}

/* As programs do it: the node goes into the graph that another stream captures. */
static void body_within_capture(void)
{
	CUgraphExec exec;
	CUgraph g;

	begin(t, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 30, t));
	g = captured_graph(t);
	TELL(add(g, new_handle(g, 1), CU_GRAPH_COND_TYPE_IF, 1));
	TELL(cuStreamUpdateCaptureDependencies(t, &node, NULL, 1,
					       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	TELL(begin_body(bodies[0]));
	TELL(conform_fill(p + 4, 4, 31, s));
	TELL(status_of(t));
	TELL(end(s));
	TELL(conform_fill(p + 8, 1, 32, t));
	TELL(cuStreamEndCapture(t, &g));
	TELL(nodes_of(g));
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(word_at(p + 4));
	TELL(word_at(p + 8));
}

static void body_capture_lost(void)
{
	new_if(1);
	TELL(begin_body(bodies[0]));
	attach(bodies[0]);
	TELL(conform_fill(p, 4, 40, s));
	TELL(cuStreamSynchronize(s));
	TELL(status_of(s));
	TELL(end(s));
	TELL(graph == NULL);
	TELL(gone());
	TELL(nodes_of(bodies[0])); /* has gone with the capture; so leave `outer` be */
}

static void body_stream_destroyed(void)
{
	CUstream u = new_stream(CU_STREAM_NON_BLOCKING);

	new_if(1);
	MUST(cuStreamBeginCaptureToGraph(u, bodies[0], NULL, NULL, 0,
					 CU_STREAM_CAPTURE_MODE_RELAXED));
	attach(bodies[0]);
	MUST(conform_fill(p, 4, 41, u));
	TELL(cuStreamDestroy(u));
	TELL(gone());
	TELL(nodes_of(bodies[0]));
}

/* --- user objects --------------------------------------------------------- */

static void object_of_a_graph(void)
{
	new_if(1);
	fill_body(bodies[0], 50, true);
	TELL(gone());
	TELL(cuGraphDestroy(outer));
	TELL(gone());
}

static void object_of_a_node(void)
{
	new_if(1);
	fill_body(bodies[0], 51, true);
	TELL(cuGraphDestroyNode(node));
	TELL(gone());
	TELL(cuGraphDestroy(outer));
	TELL(gone());
}

/* Is the launch done when its executable graph has been destroyed? */
static void destroyed_while_launched(CUgraphExec exec)
{
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamQuery(s));
	TELL(cuGraphExecDestroy(exec));
	TELL(cuStreamQuery(s));
	TELL(gone());
	TELL(cuStreamSynchronize(s));
	TELL(gone());
}

static void object_of_an_exec(void)
{
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 52, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	destroyed_while_launched(exec);
	TELL(word_at(p));
}

/* The object is of the graph itself, not of the body. */
static void object_beside_a_body(void)
{
	CUgraphExec exec;

	new_if(0);
	attach(outer);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	destroyed_while_launched(exec);
}

static void object_of_a_clone(void)
{
	CUgraph clone;

	new_if(1);
	fill_body(bodies[0], 53, true);
	TELL(cuGraphClone(&clone, outer));
	TELL(cuGraphDestroy(outer));
	TELL(gone());
}

static void object_of_a_body_in_a_body(void)
{
	CUgraphExec exec;
	CUgraph top;

	new_if(1);
	top = outer;
	TELL(add(bodies[0], new_handle(bodies[0], 1), CU_GRAPH_COND_TYPE_IF, 1));
	fill_body(bodies[0], 54, true);
	TELL(cuGraphInstantiate(&exec, top, 0));
	TELL(cuGraphDestroy(top));
	TELL(gone());
	destroyed_while_launched(exec);
	TELL(word_at(p));
}

static void object_of_a_child_in_a_body(void)
{
	CUgraphExec exec;
	CUgraphNode inner;
	CUgraph child;

	MUST(cuGraphCreate(&child, 0));
	attach(child);
	MUST(cuGraphAddEmptyNode(&inner, child, NULL, 0));
	new_if(1);
	TELL(cuGraphAddChildGraphNode(&inner, bodies[0], NULL, 0, child));
	TELL(cuGraphDestroy(child));
	TELL(gone());
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
}

static void body_in_a_child(void)
{
	CUgraphNode inner;
	CUgraph parent;

	new_if(1);
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&inner, parent, NULL, 0, outer));
	TELL(nodes_of(parent));
}

static void bodies_updated(void)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 60, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	fill_body(bodies[0], 61, true); /* a node and an object more */
	TELL(cuGraphExecUpdate(exec, outer, &info));
	TELL(info.result);
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	new_if(1);
	fill_body(bodies[0], 62, true);
	TELL(cuGraphExecUpdate(exec, outer, &info)); /* another graph's handle */
	TELL(info.result);
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
}

static void bodies_updated_while_launched(void)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 64, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	TELL(cuGraphDestroy(outer));
	new_if(1);
	fill_body(bodies[0], 65, true);
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuGraphExecUpdate(exec, outer, &info));
	TELL(cuStreamQuery(s));
	TELL(gone());
	TELL(cuStreamSynchronize(s));
	TELL(gone());
	TELL(word_at(p));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s));
	TELL(word_at(p));
}

static void bodies_updated_by_their_own(void)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUgraphExec exec;

	new_if(1);
	fill_body(bodies[0], 63, true);
	TELL(cuGraphInstantiate(&exec, outer, 0));
	attach(bodies[0]);
	TELL(cuGraphExecUpdate(exec, outer, &info));
	TELL(info.result);
	TELL(gone());
	TELL(cuGraphDestroy(outer));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
}

int main(int argc, char **argv)
{
	apart_init(argc, argv);
	APART(handles);
	APART(kinds);
	APART(bodies_as_graphs);
	APART(body_destroyed);
	APART(body_instantiated);
	APART(forbidden_in_bodies);
	APART(captured_bodies);
	APART(choices);
	APART(body_within_capture);
	APART(body_capture_lost);
	APART(body_stream_destroyed);
	APART(object_of_a_graph);
	APART(object_of_a_node);
	APART(object_of_an_exec);
	APART(object_beside_a_body);
	APART(object_of_a_clone);
	APART(object_of_a_body_in_a_body);
	APART(object_of_a_child_in_a_body);
	APART(body_in_a_child);
	APART(bodies_updated);
	APART(bodies_updated_while_launched);
	APART(bodies_updated_by_their_own);
	return 0;
}
