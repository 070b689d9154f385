/* SPDX-License-Identifier: MIT */
/*
 * shares_seldom.c - graphs that share memory: calls that CUDA refuses, the public
 * functions, the legacy stream, calls of other threads at the worst time, captures
 * into graphs that are there, what is given back last, and calls after that.
 *
 *   shares_seldom SCENARIO    plays one; 0: all is as it should be
 *
 * Environment: GCPOOL_GRAPH_SHARE=1 GCPOOL_BACKEND=vmm
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>

#include "statistics.h"

static CUstream streams[4];

static CUgraph captured(size_t bytes)
{
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(bytes);
	OK(cuMemsetD8Async(p, 1, bytes, streams[0]));
	OK(cuMemFree(p));
	OK(cuStreamEndCapture(streams[0], &graph));
	return graph;
}

static CUgraphExec instantiated(CUgraph graph)
{
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static CUgraphExec made(size_t bytes)
{
	CUgraph graph = captured(bytes);
	CUgraphExec exec = instantiated(graph);

	OK(cuGraphDestroy(graph));
	return exec;
}

static void begin(void)
{
	(void)primary();
	hang_watch();
	for (int i = 0; i < 4; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void launch(CUgraphExec exec, CUstream stream)
{
	OK(cuGraphLaunch(exec, stream));
}

static size_t graph_pools(void)
{
	__typeof__(gcpool_graph_pools) *list;

	*(void **)&list = dlsym(RTLD_DEFAULT, "gcpool_graph_pools");
	return list ? list(NULL, 0) : 0;
}

/* --- the legacy stream ---------------------------------------------------------- */

static void wait_for_flag(void *flag)
{
	while (!atomic_load((atomic_bool *)flag))
		sched_yield();
}

static void set_flag(void *flag)
{
	atomic_store((atomic_bool *)flag, true);
}

/* The beginning of a capture sets no barrier between blocking streams. */
SCENARIO(a_graph_in_the_legacy_stream_is_left_alone)
{
	static atomic_bool flag;
	CUgraphExec execs[2];
	CUstream blocking[2];
	CUgraph graph;

	begin();
	for (int i = 0; i < 2; i++) {
		execs[i] = made((size_t)(i + 1) * 8 * MIB);
		OK(cuStreamCreate(&blocking[i], CU_STREAM_DEFAULT));
	}
	OK(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		launch(execs[i], NULL);
	OK(cuStreamSynchronize(NULL));
	gcpsim_set_speed(GCPSIM_NEVER);
	launch(execs[0], NULL);
	OK(cuLaunchHostFunc(blocking[0], wait_for_flag, &flag));
	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamEndCapture(streams[0], &graph));
	OK(cuLaunchHostFunc(blocking[1], set_flag, &flag));
	OK(cuStreamSynchronize(blocking[1])); /* for ever, behind a barrier */
	OK(cuCtxSynchronize());
}

/* --- refused calls -------------------------------------------------------------- */

SCENARIO(an_update_of_no_executable_holds_nothing)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph;

	begin();
	graph = captured(8 * MIB);
	must(cuGraphExecUpdate(NULL, graph, &info) != CUDA_SUCCESS, "no executable");
	OK(cuGraphDestroy(graph));
	OK(cuCtxSynchronize());
	OK(cuGraphDestroy(captured(8 * MIB))); /* looks for what has gone */
	OK(cuCtxSynchronize());
	must(graph_pools() == 0, "what went with its graph");
}

SCENARIO(a_child_of_no_executable_holds_nothing)
{
	CUgraph graph, empty;
	CUgraphNode node;
	size_t count = 1;

	begin();
	graph = captured(8 * MIB);
	OK(cuGraphGetNodes(graph, &node, &count));
	for (int i = 0; i < 3; i++)
		must(cuGraphExecChildGraphNodeSetParams(NULL, node, graph) !=
			 CUDA_SUCCESS,
		     "no executable");
	OK(cuGraphDestroy(graph));
	for (int i = 0; i < 20000; i++) { /* handles that come to any bucket */
		OK(cuGraphCreate(&empty, 0));
		if (i % 7)
			OK(cuGraphDestroy(empty));
	}
	OK(cuCtxSynchronize());
	must(graph_pools() == 0, "what went with its graph");
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo2 is younger */

SCENARIO(children_that_are_refused_take_no_memory)
{
	CUgraph child, other, parent;
	CUgraphExec exec;
	CUgraphNode node, elsewhere;
	size_t count = 1;
	int bytes = 0;

	begin();
	child = captured(8 * MIB);
	other = captured(16 * MIB);
	OK(cuGraphGetNodes(other, &elsewhere, &count));
	OK(cuGraphCreate(&parent, 0));
	OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
	exec = instantiated(parent);
	for (int i = 0; i < 2000; i++) {
		must(cuGraphExecChildGraphNodeSetParams(exec, elsewhere, other) !=
			 CUDA_SUCCESS,
		     "no child");
		if (i == 100)
			bytes = mallinfo().uordblks;
	}
	must(mallinfo().uordblks - bytes < 64 << 10, "memory of the host");
	OK(cuGraphExecDestroy(exec));
}

/* A launch that finds no memory for its graph alone changes nothing. */
SCENARIO(a_launch_into_a_capture_without_memory_changes_nothing)
{
	CUgraphExec execs[2];
	CUgraph graph = NULL;

	begin();
	for (int i = 0; i < 2; i++)
		execs[i] = made((size_t)(i + 1) * 8 * MIB);
	OK(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		launch(execs[i], streams[0]);
	OK(cuStreamSynchronize(streams[0]));
	gcpsim_set_memory(0, gcpsim_memory_used(0));
	OK(cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_RELAXED));
	must(cuGraphLaunch(execs[0], streams[1]) != CUDA_SUCCESS, "no room");
	(void)cuStreamEndCapture(streams[1], &graph);
	for (int i = 0; i < 4; i++) {
		must(cuGraphLaunch(execs[i % 2], streams[0]) == CUDA_SUCCESS,
		     "refused");
		OK(cuStreamSynchronize(streams[0]));
	}
	must(gcpsim_hazards() == 0, "a hazard");
}

/* --- CUDA looks at the memory of copies ------------------------------------------- */

enum { COPIED = 16 << 20 };

static CUdeviceptr output;

/* From one temporary to another, and from that to the output. */
static CUgraph captured_copies(unsigned int value)
{
	CUgraph graph;
	CUdeviceptr p, q;

	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(COPIED);
	q = allocated(COPIED);
	OK(cuMemsetD32Async(p, value, COPIED / 4, streams[0]));
	OK(cuMemcpyDtoDAsync(q, p, COPIED, streams[0]));
	OK(cuMemcpyDtoDAsync(output, q, COPIED, streams[0]));
	OK(cuMemFree(p));
	OK(cuMemFree(q));
	OK(cuStreamEndCapture(streams[0], &graph));
	return graph;
}

static void must_give(CUgraphExec exec, unsigned int value)
{
	unsigned int word = 0;

	OK(cuMemsetD32Async(output, 0, COPIED / 4, streams[0]));
	launch(exec, streams[0]);
	OK(cuStreamSynchronize(streams[0]));
	OK(cuMemcpyDtoH(&word, output + COPIED - 4, sizeof(word)));
	must(word == value, "what the copies give");
}

static size_t trimmed(void)
{
	__typeof__(gcpool_trim) *trim;

	*(void **)&trim = dlsym(RTLD_DEFAULT, "gcpool_trim");
	return trim ? trim(0, 0) : 0;
}

/* All that the device has left and the lanes can give. */
static void taken_by_an_allocation(void)
{
	size_t bytes = 200 * MIB;
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	OK(cuMemFree(p));
	OK(cuCtxSynchronize());
}

static CUgraph parent_of(CUgraph child, CUgraph other)
{
	CUgraph parent;
	CUgraphNode node;

	OK(cuGraphCreate(&parent, 0));
	OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
	if (other)
		OK(cuGraphAddChildGraphNode(&node, parent, &node, 1, other));
	return parent;
}

/* In each way, after the memory went. */
static void instantiated_again(CUgraph graph, unsigned int value, void (*goes)(void))
{
	CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
	CUgraph clone;
	CUgraphExec exec;

	goes();
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	must_give(exec, value);
	goes();
	OK(cuGraphInstantiateWithParams(&exec, graph, &parameters));
	must(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS, "result_out");
	must_give(exec, value);
	goes();
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphInstantiate(&exec, clone, 0));
	must_give(exec, value);
	goes();
	OK(cuGraphInstantiateWithFlags(&exec, parent_of(clone, NULL), 0));
	must_give(exec, value);
	must(gcpsim_hazards() == 0, "a hazard");
}

static CUgraph launched_copies(unsigned int value)
{
	CUgraph graph = captured_copies(value);

	must_give(instantiated(graph), value);
	return graph;
}

static void must_trim(void)
{
	must(trimmed() >= 2 * COPIED, "the lane goes back");
}

SCENARIO(graphs_that_copy_are_instantiated_after_a_trim, "GCPSIM_MEMORY=256M")
{
	CUgraph graph, other;
	CUgraphExec exec;

	begin();
	output = allocated(COPIED);
	graph = launched_copies(7);
	other = launched_copies(8);
	instantiated_again(graph, 7, must_trim);
	instantiated_again(other, 8, must_trim);
	must_trim();
	OK(cuGraphInstantiateWithFlags(&exec, parent_of(graph, other), 0));
	must_give(exec, 8);
	must(gcpsim_hazards() == 0, "a hazard");
}

SCENARIO(graphs_that_copy_are_instantiated_after_a_shortage, "GCPSIM_MEMORY=256M")
{
	CUgraph graph;

	begin();
	output = allocated(COPIED);
	graph = launched_copies(7);
	instantiated_again(graph, 7, taken_by_an_allocation);
}

/* Also while another graph runs in the lane: its memory is under the addresses of both
 * then, and no work of it is moved. */
SCENARIO(a_graph_that_copies_is_instantiated_beside_another, "GCPSIM_MEMORY=256M")
{
	CUgraph graph, other;
	CUgraphExec first, exec;

	begin();
	output = allocated(COPIED);
	graph = launched_copies(7);
	other = captured_copies(8);
	first = instantiated(other);
	must_give(first, 8);
	must_trim();
	gcpsim_set_speed(GCPSIM_NEVER);
	launch(first, streams[1]);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuStreamSynchronize(streams[1]));
	must_give(exec, 7);
	must_give(first, 8);
	must(gcpsim_hazards() == 0, "a hazard");
	must(gcpsim_disorders() == 0, "graphs of a lane beside each other");
}

SCENARIO(a_graph_that_copies_finds_no_memory, "GCPSIM_MEMORY=256M")
{
	CUgraph graph;
	CUgraphExec exec;

	begin();
	output = allocated(COPIED);
	graph = launched_copies(7);
	must_trim();
	gcpsim_set_memory(0, gcpsim_memory_used(0));
	must(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_ERROR_OUT_OF_MEMORY,
	     "no room");
	gcpsim_set_memory(0, 256 * MIB);
	must_give(instantiated(graph), 7);
	must_trim();
}

/* --- captures into graphs that are there ------------------------------------------ */

static void scratch_captured(void)
{
	CUdeviceptr p = allocated(8 * MIB);

	OK(cuMemsetD8Async(p, 1, 8 * MIB, streams[0]));
	OK(cuMemFree(p));
}

static CUgraph captured_into(CUgraph graph)
{
	CUgraph ended;

	OK(cuStreamBeginCaptureToGraph(streams[0], graph, NULL, NULL, 0,
				       CU_STREAM_CAPTURE_MODE_GLOBAL));
	scratch_captured();
	OK(cuStreamEndCapture(streams[0], &ended));
	must(ended == graph, "another graph");
	return graph;
}

static CUgraph recaptured(CUgraph graph)
{
	CUresult (*begin_into)(CUstream, CUstreamCaptureMode, CUgraph, void *, void *);
	CUdriverProcAddressQueryResult status;

	OK(cuGetProcAddress("cuStreamBeginRecaptureToGraph", (void **)&begin_into,
			    13000, 0, &status));
	OK(begin_into(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL, graph, NULL, NULL));
	scratch_captured();
	OK(cuStreamEndCapture(streams[0], &graph));
	return graph;
}

static CUgraph with_a_body(CUgraph graph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode node;
	CUcontext ctx;

	OK(cuCtxGetCurrent(&ctx));
	OK(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, ctx, 1,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	params.conditional.type = CU_GRAPH_COND_TYPE_IF;
	params.conditional.size = 1;
	params.conditional.ctx = ctx;
	OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
	(void)captured_into(params.conditional.phGraph_out[0]);
	return graph;
}

/* Graph pools, and how many of them share memory. */
static size_t pools_that_share(size_t *ret_count)
{
	struct gcpool_graph_pool found[8];
	__typeof__(gcpool_graph_pools) *list;
	size_t shared = 0;

	*(void **)&list = dlsym(RTLD_DEFAULT, "gcpool_graph_pools");
	*ret_count = list(found, 8);
	for (size_t i = 0; i < *ret_count && i < 8; i++) {
		must((found[i].lane != 0) == (found[i].shared_bytes > 0),
		     "half a lane");
		shared += found[i].lane != 0;
	}
	return shared;
}

/* However often they are launched, whatever ends and begins. */
static void launched_often(CUgraphExec exec)
{
	for (int i = 0; i < 8; i++) {
		launch(exec, streams[0]);
		OK(cuStreamSynchronize(streams[0]));
	}
	OK(cuGraphDestroy(captured(512)));
}

SCENARIO(what_is_captured_into_a_graph_shares_nothing)
{
	CUgraph (*const ways[])(CUgraph) = {captured_into, recaptured, with_a_body};
	CUgraph graph;
	CUgraphExec exec;
	size_t count;

	begin();
	launched_often(made(8 * MIB));
	must(pools_that_share(&count) == 1 && count == 1, "a graph that may share");
	for (size_t i = 0; i < 3; i++) {
		OK(cuGraphCreate(&graph, 0));
		exec = instantiated(ways[i](graph));
		launched_often(exec);
		OK(cuGraphDestroy(graph));
		launched_often(exec);
		must(pools_that_share(&count) == 1, "shared");
		must(count == i + 2, "it holds no memory");
	}
}

/* --- what is given back last ------------------------------------------------------ */

/* An idle lane of 64 MiB, on a device of 256. */
static CUgraphExec idle_lane(void)
{
	CUgraphExec exec;

	begin();
	exec = made(64 * MIB);
	launch(exec, streams[0]);
	OK(cuCtxSynchronize());
	must(stats().lane_bytes.current == 64 * MIB, "no lane");
	return exec;
}

static void lane_stays(CUgraphExec exec)
{
	must(stats().lane_bytes.current == 64 * MIB, "a lane was emptied first");
	launch(exec, streams[0]);
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() == 0, "a hazard");
}

static CUresult created(size_t bytes)
{
	const CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;

	return cuMemCreate(&handle, bytes, &properties, 0);
}

SCENARIO(what_is_cached_goes_back_before_an_idle_lane, "GCPSIM_MEMORY=256M")
{
	CUgraphExec exec = idle_lane();

	OK(cuMemFree(allocated(160 * MIB)));
	must(created(100 * MIB) == CUDA_SUCCESS, "what is cached does not go back");
	lane_stays(exec);
	must(created(60 * MIB) == CUDA_SUCCESS, "what is left");
	lane_stays(exec);
	must(created(60 * MIB) == CUDA_SUCCESS, "an idle lane does not go back");
	must(stats().lane_bytes.current == 0, "more memory than there is");
}

/* It still runs when it is destroyed. */
SCENARIO(a_gone_graph_gives_back_before_an_idle_lane, "GCPSIM_MEMORY=256M")
{
	CUgraphExec exec = idle_lane(), gone;
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(160 * MIB);
	OK(cuMemsetD8Async(p, 1, MIB, streams[1]));
	OK(cuStreamEndCapture(streams[1], &graph));
	gone = instantiated(graph);
	gcpsim_set_speed(GCPSIM_NEVER);
	launch(gone, streams[1]);
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(gone));
	OK(cuMemFree(p));
	(void)allocated(80 * MIB);
	lane_stays(exec);
	(void)allocated(80 * MIB);
	lane_stays(exec);
}

/* --- the public functions --------------------------------------------------------- */

#define FOUND(name)                                                                    \
	__typeof__(name) *name##_ = (__typeof__(name) *)dlsym(RTLD_DEFAULT, #name)

/* Whatever the mode: before the first allocation, and then with graph pools and
 * lanes.
 */
static void null_is_refused(void)
{
	FOUND(gcpool_get_stats);
	FOUND(gcpool_get_host_stats);
	FOUND(gcpool_graph_pool_create);
	FOUND(gcpool_graph_pool_checkpoint);
	FOUND(gcpool_graph_pool_checkpoint_free);
	FOUND(gcpool_malloc);
	FOUND(gcpool_free);
	FOUND(gcpool_record_stream);

	must(gcpool_get_stats_(0, NULL, 8) == -EINVAL, "statistics");
	must(gcpool_get_host_stats_(NULL, 8) == -EINVAL, "statistics of the host");
	must(gcpool_graph_pool_create_(NULL) == -EINVAL, "a pool");
	must(gcpool_graph_pool_checkpoint_(1, NULL) == -EINVAL, "a checkpoint");
	gcpool_graph_pool_checkpoint_free_(NULL);
	must(gcpool_malloc_(NULL, 512, 0, NULL) == CUDA_ERROR_INVALID_VALUE, "memory");
	must(gcpool_free_(NULL, NULL) == 0, "nothing is freed");
	must(gcpool_record_stream_(NULL, NULL) == 0, "nothing is recorded");
}

SCENARIO(public_functions_refuse_null)
{
	FOUND(gcpool_graph_pool_create);
	FOUND(gcpool_graph_pool_checkpoint);
	FOUND(gcpool_graph_pool_restore);
	FOUND(gcpool_graph_pools);
	uint64_t id;

	null_is_refused();
	must(gcpool_graph_pools_(NULL, 5) == 0, "a list without pools");
	begin();
	for (int i = 0; i < 2; i++)
		launch(made(MIB), streams[0]);
	null_is_refused();
	must(gcpool_graph_pool_create_(&id) == 0, "a pool of the program");
	must(gcpool_graph_pool_checkpoint_(id, NULL) == -EINVAL, "a checkpoint of it");
	must(gcpool_graph_pool_restore_(id, NULL) == -ESTALE, "no checkpoint");
	must(gcpool_graph_pools_(NULL, 5) == gcpool_graph_pools_(NULL, 0), "pools");
	must(gcpool_graph_pools_(NULL, 0) > 0, "no pools");
}
