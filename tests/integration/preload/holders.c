/* SPDX-License-Identifier: MIT */
/*
 * holders.c - whose memory of captured graphs is kept, and for how long: the calls that
 * make something of a graph.
 *
 *   holders SCENARIO    plays one; 0: all is as it should be
 */

#include <dlfcn.h>

#include "../../../interpose/gcpool.h"
#include "scenarios.h"

static CUcontext ctx;
static CUstream stream;

static void start(void)
{
	ctx = primary();
	stream = stream_new();
}

static size_t pools_list(struct gcpool_graph_pool *found, size_t count)
{
	static __typeof__(gcpool_graph_pools) *list;

	if (!list)
		*(void **)&list = dlsym(RTLD_DEFAULT, "gcpool_graph_pools");
	return list(found, count);
}

/* Graph pools that anything holds. */
static size_t pools(void)
{
	return pools_list(NULL, 0);
}

static struct gcpool_graph_pool first_pool(void)
{
	struct gcpool_graph_pool pool = {0};

	(void)pools_list(&pool, 1);
	return pool;
}

static void expect(size_t count, const char *when)
{
	size_t found = pools();

	if (found != count)
		printf("%zu graph pools are held, not %zu\n", found, count);
	must(found == count, when);
}

static CUgraph captured(void)
{
	capture_begin(stream);
	work_on_blocks(stream, 1, 4 * MIB);
	return capture_end(stream);
}

static void captured_into(CUgraph graph)
{
	OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
				       CU_STREAM_CAPTURE_MODE_GLOBAL));
	work_on_blocks(stream, 1, 4 * MIB);
	must(capture_end(stream) == graph, "another graph");
}

static CUgraph empty(void)
{
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	return graph;
}

SCENARIO(nodes_made_of_what_was_read_hold_memory)
{
	CUDA_MEMSET_NODE_PARAMS params;
	CUgraph graph, made = empty();
	CUgraphNode node, copy;
	size_t count = 1;

	start();
	graph = captured();
	OK(cuGraphGetNodes(graph, &node, &count));
	OK(cuGraphMemsetNodeGetParams(node, &params));
	OK(cuGraphAddMemsetNode(&copy, made, NULL, 0, &params, ctx));
	OK(cuGraphDestroy(graph));
	expect(1, "what a node was made of is gone");
	OK(cuGraphDestroy(made));
	expect(0, "a graph that is gone holds memory");
}

SCENARIO(nodes_of_any_kind_hold_memory)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	CUgraph parent = empty(), graph;
	CUgraphNode node;
	CUgraphExec exec, other;

	start();
	params.graph.graph = graph = captured();
	OK(cuGraphAddNode(&node, parent, NULL, NULL, 0, &params));
	OK(cuGraphDestroy(graph));
	expect(1, "a parent holds nothing");
	exec = instantiated(parent);
	OK(cuGraphDestroy(parent));
	expect(1, "its executable holds nothing");
	OK(cuGraphExecDestroy(exec));
	expect(0, "an executable that is gone holds memory");

	parent = empty();
	params.graph.graph = graph = captured();
	params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	OK(cuGraphAddNode(&node, parent, NULL, NULL, 0, &params));
	captured_into(graph);
	exec = instantiated(parent);
	expect(2, "a graph that moved holds nothing");

	graph = captured();
	OK(cuGraphExecChildGraphNodeSetParams(exec, node, graph));
	OK(cuGraphDestroy(graph));
	expect(3, "a child of an executable holds nothing");
	other = instantiated(parent);
	params.graph.graph = graph = captured();
	params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
	OK(cuGraphExecNodeSetParams(other, node, &params));
	OK(cuGraphExecNodeSetParams(exec, node, &params), cuGraphDestroy(graph));
	expect(3, "another child holds nothing, or the one before stays");
	OK(cuGraphExecDestroy(exec));
	expect(3, "another executable's child holds nothing");
	OK(cuGraphExecDestroy(other));
	expect(2, "an executable that is gone holds memory");
	params.graph.graph = graph = captured();
	OK(cuGraphNodeSetParams(node, &params), cuGraphDestroy(graph));
	OK(cuGraphDestroy(parent));
	expect(1, "what a node was given is not kept");
}

static CUgraph body_of(CUgraph graph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode node;

	OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, ctx, 1,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	params.conditional.type = CU_GRAPH_COND_TYPE_IF;
	params.conditional.size = 1;
	params.conditional.ctx = ctx;
	OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
	return params.conditional.phGraph_out[0];
}

SCENARIO(bodies_belong_to_their_graphs)
{
	CUgraph graph = empty(), body; /* before the library has done anything */
	CUgraphExec exec;

	ctx = primary();
	body = body_of(body_of(graph));
	start();
	captured_into(body);
	exec = instantiated(graph);
	OK(cuGraphDestroy(graph));
	expect(1, "the executable of a body's graph holds nothing");
	OK(cuGraphLaunch(exec, stream), cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(exec));
	expect(0, "an executable that is gone holds memory");
}

/* In which graph it is the library does not know. */
SCENARIO(a_child_that_was_asked_for_is_kept)
{
	CUgraph child, parent = empty(), graph;
	CUgraphNode node;

	start();
	graph = empty();
	OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
	OK(cuGraphDestroy(graph), cuGraphChildGraphNodeGetGraph(node, &child));
	captured_into(child);
	expect(1, "a child holds nothing");
	OK(cuGraphDestroy(parent));
	must(first_pool().references == first_pool().graphs + 1,
	     "memory of a child that was asked for is not kept");
}

SCENARIO(refused_calls_change_nothing)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, other, clone;
	CUgraphExec exec;

	start();
	graph = captured();
	exec = instantiated(graph);
	OK(cuGraphDestroy(graph));
	calls_fail("cuGraphExecDestroy:1:999,cuGraphClone:1:999");
	must(cuGraphExecDestroy(exec) == CUDA_ERROR_UNKNOWN, "destroyed");
	expect(1, "an executable that is not gone holds nothing");
	capture_begin(stream);
	work_on_blocks(stream, 2, 4 * MIB);
	OK(cuMemsetD8Async(allocated(MIB), 1, MIB, stream));
	other = capture_end(stream);
	must(cuGraphClone(&clone, other) == CUDA_ERROR_UNKNOWN, "cloned");
	calls_fail(NULL);
	expect(2, "one is gone");
	must(cuGraphExecUpdate(exec, other, &info) != 0, "updated");
	OK(cuGraphDestroy(other));
	expect(2, "an update that failed has dropped one");
	OK(cuGraphExecDestroy(exec));
	expect(0, "a clone that failed, or an update, holds memory");
}

static void *destroys_the_stream(void *unused)
{
	OK(cuCtxSetCurrent(ctx), cuStreamDestroy(stream));
	return unused;
}

static void stream_goes(void)
{
	when_called(NULL, NULL);
	play_elsewhere(destroys_the_stream, NULL);
}

/* CUDA has given the graph by then. */
SCENARIO(a_stream_that_goes_as_its_capture_ends_leaves_the_graph)
{
	CUgraph graph;

	start();
	capture_begin(stream);
	work_on_blocks(stream, 1, 4 * MIB);
	when_called("cuStreamEndCapture", stream_goes);
	graph = capture_end(stream);
	expect(1, "the graph's memory is gone");
	OK(cuGraphDestroy(graph));
}

static void *looked_up(const char *name)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	OK(cuGetProcAddress(name, &found, 13000, 0, &status));
	return found;
}

SCENARIO(an_unknown_call_keeps_all)
{
	CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
	CUresult (*embed)(CUgraph, CUgraph);
	CUgraph graph, parent, child;
	CUgraphExec exec;

	start();
	*(void **)&fill = looked_up("cuMemsetInvented");
	*(void **)&embed = looked_up("cuGraphEmbedInvented");
	graph = captured();
	OK(fill(allocated(MIB), 1, MIB, stream), cuGraphDestroy(graph));
	expect(0, "a call that is not on graphs keeps their memory");
	graph = captured();
	OK(cuGraphCreate(&parent, 0), cuGraphCreate(&child, 0), embed(parent, child));
	OK(cuGraphDestroy(graph));
	expect(1, "what an unknown call may have copied is not kept");
	captured_into(child);
	exec = instantiated(parent);
	OK(cuGraphDestroy(parent));
	expect(2, "a graph that may be a part of another one is taken for its own");
	OK(cuGraphExecDestroy(exec));
}

/* It is not waited for either. */
SCENARIO(memory_launched_elsewhere_without_an_event_is_kept, "FAILS=cuEventCreate:1+",
	 "FAILS=cuEventRecord:1+", "FAILS=cuCtxPushCurrent_v2:1+")
{
	CUcontext other;

	OK(cuInit(0), cuCtxCreate(&other, NULL, 0, 0));
	CUstream there = stream_new();

	start();
	CUgraph graph = captured();
	CUgraphExec exec = instantiated(graph);

	gcpsim_set_speed(GCPSIM_NEVER);
	calls_fail(getenv("FAILS"));
	OK(cuGraphLaunch(exec, there));
	calls_fail(NULL);
	must(gcpsim_pending() > 0, "a wait for the launch");
	OK(cuGraphExecDestroy(exec), cuGraphDestroy(graph));
	expect(1, "memory of a launch that no event stands behind");
}
