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

/* --- the legacy stream ---------------------------------------------------------- */

/* --- refused calls -------------------------------------------------------------- */

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo2 is younger */

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

/* --- captures into graphs that are there ------------------------------------------ */

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
