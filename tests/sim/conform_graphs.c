/* SPDX-License-Identifier: MIT */
/*
 * conform_graphs.c - memory nodes, graphs made by hand, and what user objects
 * live as long as: the transcript.
 */
#include "conform_apart.h"

static void memory_nodes(void)
{
	CUdeviceptr q;
	CUgraphExec exec;
	CUgraph g;
	size_t count;

	section("memory nodes");
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuMemAllocAsync(&q, 1 << 20, s), conform_fill(q, 4, 1, s));
	TELL(cuMemFreeAsync(q, s), cuMemFreeAsync(p, s), status_of(s));
	end(s);
	TELL(graph != NULL);
	g = graph;
	count = 0;
	TELL(g ? cuGraphGetNodes(g, NULL, &count) : 0, count);
	TELL(g ? cuGraphInstantiate(&exec, g, 0) : 0, g ? cuGraphLaunch(exec, s) : 0);
	TELL(cuStreamSynchronize(s), g ? cuGraphExecDestroy(exec) : 0);
}

static void graphs_of_nodes(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec, other;
	CUgraphNodeType type;
	CUgraphNode node;
	CUgraph g, h;
	size_t count;

	section("graphs by hand");
	MUST(cuGraphCreate(&g, 0), cuGraphCreate(&h, 0));
	TELL(cuGraphAddEmptyNode(&node, g, NULL, 0), cuGraphNodeGetType(node, &type));
	TELL(type, cuGraphAddEmptyNode(&node, g, &node, 1));
	TELL(cuGraphGetEdges(g, NULL, NULL, NULL, &count), count);
	TELL(cuGraphGetRootNodes(g, NULL, &count), count);
	TELL(cuGraphInstantiate(&exec, g, 0), cuGraphExecUpdate(exec, h, &info));
	TELL(info.result, cuGraphInstantiate(&other, h, 0), cuGraphLaunch(other, s));
	TELL(cuGraphAddEmptyNode(&node, h, &node, 1), cuStreamSynchronize(s));
}

/* --- user objects --------------------------------------------------------- */

static CUgraph graph_with_object(void)
{
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	MUST(conform_fill(p, 4, 1, s), end(s));
	return graph;
}

static void user_objects(void)
{
	CUgraph g, h, parent;
	CUgraphExec exec;
	CUgraphNode node;
	CUuserObject user;

	section("user objects");
	TELL(cuUserObjectCreate(&user, NULL, destroy, 0,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	TELL(cuUserObjectCreate(&user, NULL, destroy, 1, 0));
	TELL(cuUserObjectCreate(&user, NULL, NULL, 1,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	apart_made++;
	MUST(cuUserObjectCreate(&user, NULL, destroy, 2,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	TELL(cuUserObjectRelease(user, 1), gone(), cuUserObjectRelease(user, 1));
	TELL(gone());
	g = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0), cuGraphDestroy(g), gone());
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s), cuGraphExecDestroy(exec), gone());
	TELL(cuStreamSynchronize(s), gone());
	g = graph_with_object();
	TELL(cuGraphClone(&h, g), cuGraphDestroy(g), gone(), cuGraphDestroy(h), gone());
	g = graph_with_object();
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&node, parent, NULL, 0, g), cuGraphDestroy(g));
	TELL(gone(), cuGraphInstantiate(&exec, parent, 0), cuGraphDestroy(parent));
	TELL(gone(), cuGraphExecDestroy(exec), gone());
}

static void updated_and_lost(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph g, h;
	CUgraphExec exec;
	CUstream u;

	g = graph_with_object();
	h = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0), cuGraphDestroy(g), gone());
	TELL(cuGraphExecUpdate(exec, h, &info), gone(), cuGraphDestroy(h), gone());
	TELL(cuGraphExecDestroy(exec), gone());
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	TELL(cuStreamSynchronize(s), gone(), end(s), gone());
	u = new_stream(CU_STREAM_NON_BLOCKING);
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	TELL(cuStreamDestroy(u), gone());
}

int main(int argc, char **argv)
{
	tell_start(argc, argv);
	memory_nodes();
	graphs_of_nodes();
	user_objects();
	updated_and_lost();
	return 0;
}
