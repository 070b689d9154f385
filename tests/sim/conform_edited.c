/* SPDX-License-Identifier: MIT */
/*
 * conform_edited.c - graphs that are changed by hand after their capture, or during
 * it; clones, child graphs, updates and uploads, and when destructors of user objects
 * run: the transcript.
 */
#include "conform_sections.h"

enum { SPIN_NS = 200000000 };

static CUgraphNode nodes[8];
static CUgraphExecUpdateResultInfo info;

/* Two fills, one behind the other, and its object. */
static CUgraph two_fills(bool with_object)
{
	size_t count = 8;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	if (with_object)
		attach(captured_graph(s));
	MUST(conform_fill(p, 4, 1, s), conform_fill(p, 4, 2, s), end(s));
	MUST(cuGraphGetNodes(graph, nodes, &count));
	return graph;
}

static long long edges_of(CUgraph g)
{
	size_t count = 0;
	CUresult result = cuGraphGetEdges(g, NULL, NULL, NULL, &count);

	return result ? -(long long)result : (long long)count;
}

/* --- edges and nodes ------------------------------------------------------ */

static CUresult edge(CUgraph g, int from, int to)
{
	return cuGraphAddDependencies(g, &nodes[from], &nodes[to], NULL, 1);
}

static CUresult no_edge(CUgraph g, int from, int to)
{
	return cuGraphRemoveDependencies(g, &nodes[from], &nodes[to], NULL, 1);
}

SECTION(edges)
{
	CUgraph g, other;
	CUgraphExec exec;

	MUST(cuGraphCreate(&g, 0), cuGraphCreate(&other, 0));
	for (int i = 0; i < 3; i++)
		MUST(cuGraphAddEmptyNode(&nodes[i], g, NULL, 0));
	MUST(cuGraphAddEmptyNode(&nodes[3], other, NULL, 0));
	TELL(edge(g, 0, 1), edge(g, 0, 1), edges_of(g), edge(g, 1, 1), edges_of(g));
	TELL(edge(g, 0, 3), edge(other, 0, 1), no_edge(g, 1, 2), no_edge(other, 0, 1));
	TELL(edge(g, 1, 2), edges_of(g));
	TELL(edge(g, 2, 0)); /* a circle */
	TELL(edges_of(g), cuGraphInstantiate(&exec, g, 0), no_edge(g, 0, 1));
	TELL(edges_of(g), cuGraphAddDependencies(g, NULL, NULL, NULL, 0));
	TELL(cuGraphAddDependencies(g, NULL, NULL, NULL, 1));
}

/* Two edges in one call, of which the second is wrong. */
SECTION(edges_in_part)
{
	CUgraphNode from[2], to[2];
	CUgraph g;

	g = two_fills(false);
	MUST(cuGraphAddEmptyNode(&nodes[2], g, NULL, 0));
	from[0] = nodes[1], to[0] = nodes[2];
	from[1] = nodes[0], to[1] = nodes[1]; /* is there already */
	TELL(edges_of(g), cuGraphAddDependencies(g, from, to, NULL, 2), edges_of(g));
	from[0] = nodes[0], to[0] = nodes[1];
	from[1] = nodes[0], to[1] = nodes[2]; /* is not there */
	TELL(cuGraphRemoveDependencies(g, from, to, NULL, 2), edges_of(g));
}

SECTION(nodes_destroyed)
{
	CUgraphExec exec;
	CUgraph g;

	g = two_fills(true);
	MUST(cuGraphAddEmptyNode(&nodes[2], g, &nodes[1], 1));
	TELL(edges_of(g), cuGraphDestroyNode(nodes[1]), edges_of(g), nodes_of(g));
	TELL(gone(), cuGraphInstantiate(&exec, g, 0), cuGraphLaunch(exec, s));
	TELL(cuGraphDestroyNode(nodes[0]), cuGraphDestroyNode(nodes[2]), nodes_of(g));
	TELL(cuStreamSynchronize(s), word_at(p), cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), cuGraphDestroy(g), gone());
	TELL(cuGraphExecDestroy(exec), gone());
}

/* --- while it is being captured ------------------------------------------- */

static void start_captured(void)
{
	size_t count = 8;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(conform_fill(p, 4, 1, s), conform_fill(p, 4, 2, s));
	MUST(cuGraphGetNodes(captured_graph(s), nodes, &count));
}

SECTION(nodes_added_meanwhile)
{
	CUgraph g;

	start_captured();
	g = captured_graph(s);
	TELL(cuGraphAddEmptyNode(&nodes[2], g, NULL, 0), edge(g, 2, 1));
	TELL(no_edge(g, 0, 1), edges_of(g), status_of(s), end(s), nodes_of(graph));
}

SECTION(node_destroyed_meanwhile)
{
	start_captured();
	TELL(cuGraphDestroyNode(nodes[0]), status_of(s), end(s));
}

SECTION(used_meanwhile)
{
	CUgraphExec exec;
	CUgraph g;

	start_captured();
	attach(captured_graph(s));
	TELL(cuGraphInstantiate(&exec, captured_graph(s), 0));
	TELL(cuGraphClone(&g, captured_graph(s)), status_of(s), end(s));
	TELL(cuGraphDestroy(graph), gone());
	start_captured();
	MUST(cuGraphCreate(&g, 0));
	TELL(cuGraphAddChildGraphNode(&nodes[2], g, NULL, 0, captured_graph(s)));
	TELL(status_of(s), end(s));
}

SECTION(destroyed_meanwhile)
{
	start_captured();
	attach(captured_graph(s));
	TELL(cuGraphDestroy(captured_graph(s)), gone(), status_of(s));
}

SECTION(launched_meanwhile)
{
	CUgraphExec exec;

	two_fills(false);
	MUST(cuGraphInstantiate(&exec, graph, 0));
	TELL(cuGraphUpload(exec, s), cuGraphUpload(exec, t), cuGraphLaunch(exec, s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuGraphUpload(exec, s), status_of(s), end(s));
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	TELL(cuGraphLaunch(exec, s)); /* becomes a child graph? */
	TELL(status_of(s), end(s), graph ? nodes_of(graph) : 0);
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuGraphLaunch(exec, t), cuGraphExecUpdate(exec, captured_graph(s), &info));
	TELL(cuGraphExecDestroy(exec), status_of(s), end(s));
}

/* --- memory nodes --------------------------------------------------------- */

SECTION(memory_nodes)
{
	CUgraphExec exec, second;
	CUgraph g, h;
	CUdeviceptr q;
	size_t count = 8;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuMemAllocAsync(&q, 4096, s), conform_fill(q, 4, 1, s));
	MUST(cuMemFreeAsync(q, s), end(s));
	g = graph;
	MUST(cuGraphGetNodes(g, nodes, &count));
	TELL(cuGraphClone(&h, g));
	MUST(cuGraphCreate(&h, 0));
	TELL(cuGraphAddChildGraphNode(&nodes[4], h, NULL, 0, g), edge(g, 0, 2));
	TELL(no_edge(g, 0, 1), cuGraphDestroyNode(nodes[1]));
	TELL(cuGraphDestroyNode(nodes[2]), cuGraphDestroyNode(nodes[0]), nodes_of(g));
	TELL(cuGraphInstantiate(&exec, g, 0), cuGraphInstantiate(&second, g, 0));
	TELL(cuGraphExecUpdate(exec, g, &info), info.result, cuGraphLaunch(exec, s));
	TELL(cuStreamSynchronize(s), cuGraphDestroy(g), cuGraphExecDestroy(exec));
}

/* --- clones and children -------------------------------------------------- */

SECTION(clones)
{
	CUgraph g, first, second;
	CUgraphNode found, again;
	CUuserObject user;

	g = two_fills(true);
	TELL(cuGraphClone(&first, g), cuGraphClone(&second, first));
	TELL(cuGraphNodeFindInClone(&found, nodes[1], first), found != nodes[1]);
	TELL(cuGraphNodeFindInClone(&again, found, second));
	TELL(cuGraphNodeFindInClone(&again, nodes[1], second));
	TELL(cuGraphNodeFindInClone(&again, nodes[1], g), cuGraphDestroyNode(found));
	TELL(cuGraphNodeFindInClone(&again, nodes[1], first), cuGraphDestroy(g));
	TELL(cuGraphDestroy(second), gone(), cuGraphDestroy(first), gone());
	user = new_object();
	g = two_fills(false);
	TELL(cuGraphRetainUserObject(g, user, 3, 0));
	TELL(cuGraphRetainUserObject(g, user, 1, 2));
	TELL(cuGraphRetainUserObject(g, user, 0, 0), cuUserObjectRelease(user, 1));
	TELL(gone());
	MUST(cuGraphClone(&first, g));
	TELL(cuGraphReleaseUserObject(g, user, 3), gone());
	TELL(cuGraphReleaseUserObject(first, user, 1), gone());
}

SECTION(children)
{
	CUgraph g, parent, embedded;
	CUgraphExec exec;
	CUgraphNode child;

	g = two_fills(true);
	MUST(cuGraphCreate(&parent, 0));
	TELL(cuGraphAddChildGraphNode(&child, parent, NULL, 0, g), cuGraphDestroy(g));
	TELL(cuGraphChildGraphNodeGetGraph(child, &embedded), nodes_of(embedded));
	TELL(cuGraphDestroyNode(child), gone());
	g = two_fills(false);
	TELL(cuGraphAddChildGraphNode(&child, parent, NULL, 0, g));
	TELL(cuGraphChildGraphNodeGetGraph(child, &embedded), embedded != g);
	attach(embedded);
	TELL(cuGraphDestroyNode(nodes[0])); /* the original's, not the copy's */
	TELL(nodes_of(embedded), cuGraphInstantiate(&exec, parent, 0));
	TELL(cuGraphDestroyNode(child), gone());
	MUST(conform_spin(SPIN_NS, s));
	TELL(cuGraphLaunch(exec, s), cuGraphExecDestroy(exec), gone());
	TELL(cuStreamSynchronize(s), gone());
}

SECTION(child_destroyed)
{
	CUgraph parent, embedded;
	CUgraphNode child;

	MUST(cuGraphCreate(&parent, 0));
	MUST(cuGraphAddChildGraphNode(&child, parent, NULL, 0, two_fills(false)));
	MUST(cuGraphChildGraphNodeGetGraph(child, &embedded));
	TELL(cuGraphDestroy(embedded));
}

SECTION(child_instantiated)
{
	CUgraph parent, embedded;
	CUgraphNode child;
	CUgraphExec exec;

	MUST(cuGraphCreate(&parent, 0));
	MUST(cuGraphAddChildGraphNode(&child, parent, NULL, 0, two_fills(true)));
	MUST(cuGraphDestroy(graph), cuGraphChildGraphNodeGetGraph(child, &embedded));
	TELL(cuGraphInstantiate(&exec, embedded, 0), cuGraphDestroy(parent), gone());
}

/* --- updates -------------------------------------------------------------- */

static CUgraph captured(CUresult (*work)(void))
{
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	MUST(work(), end(s));
	return graph;
}

CALL(one_fill, conform_fill(p, 4, 7, s))
CALL(another_fill, conform_fill(p + 64, 8, 8, s))
CALL(one_set, cuMemsetD32Async(p, 9, 4, s))
CALL(longer_set, cuMemsetD32Async(p, 10, 8, s))
CALL(one_spin, conform_spin(1000, s))

static CUresult fill_and_fill(void)
{
	MUST(one_fill());
	return one_fill();
}

static CUresult fill_beside_fill(void)
{
	CUevent fork = new_event(), join = new_event();

	MUST(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0), one_fill());
	MUST(conform_fill(p + 64, 4, 7, t), cuEventRecord(join, t));
	return cuStreamWaitEvent(s, join, 0);
}

CALL(none, CUDA_SUCCESS)

static void update(const char *title, CUresult (*old)(void), CUresult (*new)(void))
{
	CUgraph g = captured(old), h = captured(new);
	CUgraphExec exec;

	printf("%s\n", title);
	MUST(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphExecUpdate(exec, h, &info), info.result, cuGraphDestroy(g), gone());
	TELL(cuGraphDestroy(h), gone(), cuGraphLaunch(exec, s), cuStreamSynchronize(s));
	TELL(cuGraphExecDestroy(exec), gone());
}

#define UPDATE(old, new) update(#old " to " #new, old, new)

SECTION(updates)
{
	UPDATE(one_fill, another_fill);
	UPDATE(one_fill, one_spin);
	UPDATE(one_fill, one_set);
	UPDATE(one_set, longer_set);
	UPDATE(one_fill, fill_and_fill);
	UPDATE(fill_and_fill, one_fill);
	UPDATE(fill_and_fill, fill_beside_fill);
	UPDATE(one_fill, none);
	UPDATE(none, none);
}

SECTION(updated_while_launched)
{
	CUgraph g = captured(one_fill), h = captured(another_fill);
	CUgraphExec exec;

	MUST(cuGraphInstantiate(&exec, g, 0), cuGraphDestroy(g));
	MUST(conform_spin(SPIN_NS, s));
	TELL(cuGraphLaunch(exec, s), cuGraphExecUpdate(exec, h, &info));
	TELL(cuGraphDestroy(h), gone(), cuStreamSynchronize(s), gone());
	TELL(cuGraphExecDestroy(exec), gone());
}

SECTION(updated_by_itself)
{
	CUgraph g = captured(one_fill);
	CUgraphExec exec;

	MUST(cuGraphInstantiate(&exec, g, 0));
	TELL(cuGraphExecUpdate(exec, g, &info), gone());
	attach(g);
	TELL(cuGraphDestroy(g), gone(), cuGraphExecDestroy(exec), gone());
}

CALL(copy, cuMemcpyDtoDAsync(p + 64, p, 64, s))

static void CUDA_CB nothing(void *data)
{
	(void)data;
}

CALL(host_function, cuLaunchHostFunc(s, nothing, NULL))
CALL(event_nodes, cuEventRecordWithFlags(new_event(), s, CU_EVENT_RECORD_EXTERNAL))

static CUresult memory(void)
{
	CUdeviceptr q;

	MUST(cuMemAllocAsync(&q, 4096, s), conform_fill(q, 4, 7, s));
	return cuMemFreeAsync(q, s);
}

static CUresult many_fills(void)
{
	for (int i = 0; i < 100; i++)
		MUST(one_fill());
	return CUDA_SUCCESS;
}

static void while_launched(const char *title, CUresult (*work)(void))
{
	CUgraph g = captured(work);
	CUgraphExec exec;

	printf("%s\n", title);
	MUST(cuGraphInstantiate(&exec, g, 0), cuGraphDestroy(g));
	MUST(conform_spin(SPIN_NS, s));
	TELL(cuGraphLaunch(exec, s), cuStreamQuery(s), cuGraphExecDestroy(exec));
	TELL(cuStreamQuery(s), gone(), cuStreamSynchronize(s), gone());
}

#define WHILE_LAUNCHED(work) while_launched(#work, work)

SECTION(destroyed_while_launched)
{
	WHILE_LAUNCHED(one_fill);
	WHILE_LAUNCHED(one_set);
	WHILE_LAUNCHED(copy);
	WHILE_LAUNCHED(host_function);
	WHILE_LAUNCHED(event_nodes);
	WHILE_LAUNCHED(memory);
	WHILE_LAUNCHED(many_fills);
	WHILE_LAUNCHED(fill_beside_fill);
	WHILE_LAUNCHED(none);
}

SECTION(destroyed_while_launched_twice)
{
	CUgraph g = captured(one_fill);
	CUgraphExec exec, second;

	MUST(cuGraphInstantiate(&exec, g, 0), cuGraphInstantiate(&second, g, 0));
	MUST(cuGraphDestroy(g), conform_spin(SPIN_NS, s), conform_spin(2 * SPIN_NS, t));
	TELL(cuGraphLaunch(exec, s), cuGraphLaunch(second, t));
	TELL(cuGraphExecDestroy(exec), cuGraphExecDestroy(second), gone());
	TELL(cuStreamSynchronize(s), cuStreamSynchronize(t), gone());
}
