/* SPDX-License-Identifier: MIT */
/*
 * conform_graphs.c - memory nodes, graphs made by hand, and what user objects
 * live as long as: the transcript.
 */
#include "conform_tell.h"

static void memory_nodes(void)
{
	CUdeviceptr q;
	CUgraphExec exec;
	CUgraph g;
	size_t count;

	section("memory nodes");
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuMemAllocAsync(&q, 1 << 20, s));
	TELL(conform_fill(q, 4, 1, s));
	TELL(cuMemFreeAsync(q, s));
	TELL(cuMemFreeAsync(p, s));
	TELL(status_of(s));
	end(s);
	TELL(graph != NULL);
	g = graph;
	count = 0;
	TELL(g ? cuGraphGetNodes(g, NULL, &count) : 0);
	TELL(count);
	TELL(g ? cuGraphInstantiate(&exec, g, 0) : 0);
	TELL(g ? cuGraphLaunch(exec, s) : 0);
	TELL(cuStreamSynchronize(s));
	TELL(g ? cuGraphExecDestroy(exec) : 0);
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
	MUST(cuGraphCreate(&g, 0));
	MUST(cuGraphCreate(&h, 0));
	TELL(cuGraphAddEmptyNode(&node, g, NULL, 0));
	TELL(cuGraphNodeGetType(node, &type));
	TELL(type);
	TELL(cuGraphAddEmptyNode(&node, g, &node, 1));
	TELL(cuGraphGetEdges(g, NULL, NULL, NULL, &count));
	TELL(count);
	TELL(cuGraphGetRootNodes(g, NULL, &count));
	TELL(count);
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphExecUpdate(exec, h, &info));
	TELL(info.result);
	TELL(cuGraphInstantiate(&other, h, 0));
	TELL(cuGraphLaunch(other, s));
	TELL(cuGraphAddEmptyNode(&node, h, &node, 1));
	TELL(cuStreamSynchronize(s));
}

/* --- user objects --------------------------------------------------------- */

static volatile int destroyed;

static void CUDA_CB destroy(void *data)
{
	(void)data;
	__atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
}

/* Gives the driver's thread time; then says how many are gone. */
static int gone(void)
{
	struct timespec pause = {0, 50000000};

	nanosleep(&pause, NULL);
	return __atomic_exchange_n(&destroyed, 0, __ATOMIC_SEQ_CST);
}

static void attach(CUgraph g)
{
	CUuserObject user;

	MUST(cuUserObjectCreate(&user, NULL, destroy, 1,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	MUST(cuGraphRetainUserObject(g, user, 1, CU_GRAPH_USER_OBJECT_MOVE));
}

static CUgraph graph_with_object(void)
{
	CUgraph g;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(s, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	MUST(conform_fill(p, 4, 1, s));
	MUST(end(s));
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
	MUST(cuUserObjectCreate(&user, NULL, destroy, 2,
				CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	TELL(cuUserObjectRelease(user, 1));
	TELL(gone());
	TELL(cuUserObjectRelease(user, 1));
	TELL(gone());
	g = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	MUST(conform_spin(200000000, s));
	TELL(cuGraphLaunch(exec, s));
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
	TELL(cuStreamSynchronize(s));
	TELL(gone());
	g = graph_with_object();
	TELL(cuGraphClone(&h, g));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphDestroy(h));
	TELL(gone());
	g = graph_with_object();
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&node, parent, NULL, 0, g));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphInstantiate(&exec, parent, 0));
	TELL(cuGraphDestroy(parent));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
}

static void updated_and_lost(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph g, h;
	CUgraphExec exec;
	CUstream u;

	g = graph_with_object();
	h = graph_with_object();
	TELL(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphDestroy(g));
	TELL(gone());
	TELL(cuGraphExecUpdate(exec, h, &info));
	TELL(gone());
	TELL(cuGraphDestroy(h));
	TELL(gone());
	TELL(cuGraphExecDestroy(exec));
	TELL(gone());
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(s, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	TELL(cuStreamSynchronize(s));
	TELL(gone());
	TELL(end(s));
	TELL(gone());
	u = new_stream(CU_STREAM_NON_BLOCKING);
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuStreamGetCaptureInfo(u, &(CUstreamCaptureStatus){0}, NULL, &g, NULL,
				    NULL, NULL));
	attach(g);
	TELL(cuStreamDestroy(u));
	TELL(gone());
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
