/* SPDX-License-Identifier: MIT */
/*
 * shares.c - launches of graphs that share memory (GCPOOL_GRAPH_SHARE=1).
 *
 *   shares SCENARIO    plays one; 0: all is as it should be
 */
#include <errno.h>

#include "statistics.h"

enum { GRAPHS = 2 };

static CUcontext ctx;
static CUstream streams[GRAPHS];
static CUgraphExec execs[GRAPHS];
static CUhostFn host;            /* that each graph calls; or NULL */
static unsigned long long flags; /* of the executables */

/* With temporaries of its own size. */
static CUgraph captured(int i)
{
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated((size_t)(i + 1) * 8 * MIB);
	OK(cuMemsetD8Async(p, 1, MIB, streams[i]), cuMemFree(p));
	if (host)
		OK(cuLaunchHostFunc(streams[i], host, NULL));
	OK(cuStreamEndCapture(streams[i], &graph));
	return graph;
}

/* The program destroys each graph. */
static void make_graphs(void)
{
	ctx = primary();
	for (int i = 0; i < GRAPHS; i++) {
		CUgraph graph;

		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		graph = captured(i);
		OK(cuGraphInstantiateWithFlags(&execs[i], graph, flags));
		OK(cuGraphDestroy(graph));
	}
	OK(cuCtxSynchronize());
}

static void launch_both(void)
{
	for (int i = 0; i < GRAPHS; i++) {
		OK(cuGraphLaunch(execs[i], streams[0]));
		OK(cuStreamSynchronize(streams[0]));
	}
}

static uint64_t trim(void)
{
	size_t (*trim_to)(int, size_t);

	*(void **)&trim_to = dlsym(RTLD_DEFAULT, "gcpool_trim");
	return trim_to ? trim_to(0, 0) : 0;
}

/* Both run in one stream, and the first one is launched into another one. */
static void launch_across(void)
{
	static atomic_bool flag;

	atomic_store(&flag, false);
	OK(cuLaunchHostFunc(streams[0], wait_for_flag, &flag));
	OK(cuGraphLaunch(execs[0], streams[0]), cuGraphLaunch(execs[1], streams[0]));
	OK(cuGraphLaunch(execs[0], streams[1]));
	atomic_store(&flag, true);
	OK(cuCtxSynchronize());
}

/* The driver loses cuStreamWaitEvent beside launches of other threads. */
SCENARIO(launches_wait_by_the_context)
{
	uint64_t narrow, wide;

	make_graphs();
	launch_both();
	narrow = gcpsim_calls("cuStreamWaitEvent");
	wide = gcpsim_calls("cuCtxWaitEvent");
	launch_across();
	must(gcpsim_calls("cuStreamWaitEvent") == narrow &&
		 gcpsim_calls("cuCtxWaitEvent") == wide + 1,
	     "the context does not wait");
}

/* Each try makes memory, cannot map it, and finds that much to give back. */
/* The larger one ends while it runs, and then the other one leaves their lane. */
SCENARIO(memory_that_only_addresses_hold_is_trimmed)
{
	make_graphs();
	launch_both();
	OK(cuGraphLaunch(execs[1], streams[0]), cuGraphExecDestroy(execs[1]));
	OK(cuCtxSynchronize());
	for (int i = 0; i < 2; i++) {
		OK(cuGraphLaunch(execs[0], streams[1]));
		OK(cuStreamSynchronize(streams[1]));
	}
	(void)trim();
	must(gcpsim_memory_used(0) <= 8 * MIB, "more than the other one needs is held");
}

/* CUDA looks at the addresses of copies, which may be mapped nowhere. */
SCENARIO(a_refused_executable_is_made_with_memory_mapped)
{
	CUgraphExec again;
	CUgraph graph;

	make_graphs();
	graph = captured(0);
	OK(cuGraphInstantiateWithFlags(&execs[0], graph, 0));
	launch_both();
	must(trim() >= 16 * MIB, "idle graphs keep their memory");
	calls_fail("cuGraphInstantiateWithFlags:1:1");
	OK(cuGraphInstantiateWithFlags(&again, graph, 0));
	must(gcpsim_memory_used(0) >= 8 * MIB, "no memory is mapped");
}

SCENARIO(a_launch_that_cannot_map_ends)
{
	make_graphs();
	launch_both();
	must(trim() >= 16 * MIB, "idle graphs keep their memory");
	must(gcpsim_fail("cuMemMap:1+:2") == 0, "no such plan");
	must(cuGraphLaunch(execs[0], streams[0]) == CUDA_ERROR_OUT_OF_MEMORY,
	     "launched without memory");
	must(gcpsim_fail(NULL) == 0, "no plan");
	launch_both();
}

enum { POOLS = 8 };

static size_t pools_list(struct gcpool_graph_pool *pools)
{
	__typeof__(gcpool_graph_pools) *list;

	*(void **)&list = dlsym(RTLD_DEFAULT, "gcpool_graph_pools");
	return list(pools, POOLS);
}

/* A lane as its graph pools tell of it. */
struct lane {
	uint64_t id, bytes, graphs, launches;
};

/* The lanes that graphs use; found: NULL or as many as there may be. */
static size_t lanes(struct lane *found, size_t room)
{
	static struct gcpool_graph_pool pools[POOLS];
	struct lane all[POOLS] = {0};
	size_t count = pools_list(pools), lane_count = 0, at;

	for (size_t i = 0; i < count && i < POOLS; i++) {
		if (!pools[i].lane)
			continue;
		for (at = 0; at < lane_count && all[at].id != pools[i].lane; at++)
			;
		lane_count += at == lane_count;
		must(all[at].graphs == 0 || all[at].bytes == pools[i].lane_bytes,
		     "pools tell of one lane in two ways");
		all[at].id = pools[i].lane;
		all[at].bytes = pools[i].lane_bytes;
		all[at].graphs++;
		all[at].launches += pools[i].launches;
	}
	for (at = 0; found && at < room && at < lane_count; at++)
		found[at] = all[at];
	return lane_count;
}

/* Of both graphs, whose temporaries have 8 and 16 MiB. */
static void memory_is_told(void)
{
	static struct gcpool_graph_pool pools[POOLS];
	uint64_t shared;

	must(pools_list(pools) == GRAPHS, "not a pool for each");
	must(pools[0].launches == 1 && pools[1].launches == 1, "launches");
	shared = pools[0].shared_bytes + pools[1].shared_bytes;
	must(shared >= 24 * MIB && shared <= 28 * MIB, "shared bytes");
}

SCENARIO(lanes_are_listed)
{
	struct lane found[2];

	make_graphs();
	must(lanes(NULL, 0) == 1, "not one lane");
	launch_both();
	must(lanes(found, 2) == 1 && found[0].graphs == GRAPHS, "not one for both");
	must(found[0].bytes >= 16 * MIB && found[0].bytes <= 18 * MIB, "its size");
	must(found[0].launches == GRAPHS, "its launches");
	must(stats().lane.current == 1 && stats().lane_bytes.current == found[0].bytes,
	     "the statistics");
	must(stats().graph_launches == GRAPHS, "launches in the statistics");
	memory_is_told();
	for (int i = 0; i < GRAPHS; i++)
		OK(cuGraphExecDestroy(execs[i]));
	AWAIT(lanes(NULL, 0) == 0); /* CUDA tells of their end on a thread of its own */
	must(lanes(NULL, 0) == 0, "lanes without graphs");
}

/* What calls made of a graph. */
static CUgraph made, also;
static CUgraphExec made_exec;
static CUgraphNode child;

static void made_end(void)
{
	if (made_exec)
		OK(cuGraphExecDestroy(made_exec));
	if (made)
		OK(cuGraphDestroy(made));
	if (also)
		OK(cuGraphDestroy(also));
	made = also = NULL;
	made_exec = NULL;
}

/* The second graph is made anew, and the program keeps it. */
static CUgraph make_kept(void)
{
	struct lane found[GRAPHS];
	CUgraph graph = captured(1);

	OK(cuGraphExecDestroy(execs[1]));
	OK(cuGraphInstantiateWithFlags(&execs[1], graph, 0), cuCtxSynchronize());
	launch_both();
	must(lanes(found, GRAPHS) == 1 && found[0].graphs == GRAPHS,
	     "a graph that is kept shares nothing");
	return graph;
}

/* How many graphs are in lanes after a call was given one, and how many graphs that may
 * share have been launched when all are once. */
static size_t sharing_after(void (*call)(CUgraph graph), uint64_t *ret_launches)
{
	struct lane found[GRAPHS] = {{0}};
	CUgraph graph = make_kept();
	uint64_t before;

	call(graph);
	OK(cuGraphDestroy(graph));
	before = stats().graph_launches;
	launch_both();
	if (made_exec)
		ok(cuGraphLaunch(made_exec, streams[0]), "launch", __LINE__);
	OK(cuCtxSynchronize());
	*ret_launches = stats().graph_launches - before;
	(void)lanes(found, GRAPHS);
	made_end();
	return found[0].graphs + found[1].graphs;
}

static void given_to_none(CUgraph graph)
{
}

static void added(CUgraph graph)
{
	OK(cuGraphCreate(&made, 0));
	OK(cuGraphAddChildGraphNode(&child, made, NULL, 0, graph));
	OK(cuGraphInstantiateWithFlags(&made_exec, made, 0));
}

static void set_for_a_child(CUgraph graph)
{
	also = captured(1);
	added(also);
	OK(cuGraphExecChildGraphNodeSetParams(made_exec, child, graph));
}

static void set_for_a_node(CUgraph graph)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
				    .graph = {.graph = graph}};

	also = captured(1);
	added(also);
	OK(cuGraphExecNodeSetParams(made_exec, child, &params));
}

static CUDA_MEMSET_NODE_PARAMS was_read;
static CUgraphNode node;
static size_t count;

static void read_of(CUgraph graph)
{
	count = 1;
	OK(cuGraphGetNodes(graph, &node, &count));
	OK(cuGraphMemsetNodeGetParams(node, &was_read));
}

static void roots_of(CUgraph graph)
{
	count = 1;
	OK(cuGraphGetRootNodes(graph, &node, &count));
	OK(cuGraphMemsetNodeGetParams(node, &was_read));
}

static void edges_of(CUgraph graph)
{
	OK(cuGraphGetEdges(graph, &node, &node, NULL, &count));
	(void)cuGraphMemsetNodeGetParams(NULL, &was_read); /* it has no edge */
}

/* A call that fails names a node. */
static void failed_with(CUgraph graph)
{
	CUgraphExecUpdateResultInfo info = {0};

	OK(cuGraphCreate(&made, 0), cuGraphInstantiateWithFlags(&made_exec, made, 0));
	must(cuGraphExecUpdate(made_exec, graph, &info) != CUDA_SUCCESS, "updated");
	(void)cuGraphMemsetNodeGetParams(info.errorNode, &was_read);
	OK(cuGraphExecDestroy(made_exec));
	made_exec = NULL;
}

/* That is none of those that share nothing. */
static void counted(CUgraph graph)
{
	OK(cuGraphGetNodes(graph, NULL, &count));
}

/* It may wait for this thread. */
SCENARIO(a_read_waits_for_no_later_work,
	 "GCPSIM_SPEED=never GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1")
{
	CUgraph graph;

	make_graphs();
	graph = captured(1);
	OK(cuGraphInstantiateWithFlags(&execs[1], graph, 0));
	launch_both();
	OK(cuGraphLaunch(execs[0], streams[0]), cuGraphLaunch(execs[1], streams[0]));
	OK(cuMemFree(allocated(MIB)));
	OK(cuMemsetD8Async(allocated(MIB), 1, MIB, streams[1]));
	read_of(graph);
	must(cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY, "it waits for that");
}

/* Its nodes are others, and tell the same. */
static void read_of_a_clone(CUgraph graph)
{
	OK(cuGraphClone(&made, graph));
	read_of(made);
}

static void updated_to(CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;

	made = captured(1);
	OK(cuGraphInstantiateWithFlags(&made_exec, made,
				       CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
	OK(cuGraphExecUpdate(made_exec, graph, &info));
}

/* They may run at the same time. */
static void added_with_another(CUgraph graph)
{
	also = captured(0);
	OK(cuGraphCreate(&made, 0));
	OK(cuGraphAddChildGraphNode(&child, made, NULL, 0, graph));
	OK(cuGraphAddChildGraphNode(&child, made, NULL, 0, also));
	OK(cuGraphInstantiateWithFlags(&made_exec, made, 0));
}

/* Of the launches of both graphs and of what was made: the one that was used is none.
 */
SCENARIO(a_graph_that_is_used_otherwise_shares_nothing)
{
	static const struct {
		void (*call)(CUgraph graph);
		uint64_t launches; /* of graphs that share */
	} uses[] = {{read_of, 1},         {read_of_a_clone, 1}, {added_with_another, 2},
		    {set_for_a_child, 2}, {set_for_a_node, 2},  {updated_to, 3},
		    {roots_of, 1},        {edges_of, 1},        {failed_with, 1},
		    {counted, 2}};
	uint64_t launches;

	make_graphs();
	for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
		(void)sharing_after(uses[i].call, &launches);
		must(launches == uses[i].launches, "it shares");
	}
	must(sharing_after(given_to_none, &launches) == GRAPHS, "none shares");
}

/* The one that is kept is not asked for. */
static void read_of_another(CUgraph graph)
{
	made = captured(1);
	read_of(made);
}

/* Two graphs of one lane are on their way, and nothing was read of them. */
SCENARIO(what_is_built_of_a_node_waits_for_no_other_graph)
{
	static atomic_bool flag;
	CUgraph kept[GRAPHS];

	make_graphs();
	for (int i = 0; i < GRAPHS; i++) {
		kept[i] = captured(i);
		OK(cuGraphInstantiateWithFlags(&execs[i], kept[i], 0));
	}
	launch_both();
	OK(cuLaunchHostFunc(streams[0], wait_for_flag, &flag));
	for (int i = 0; i < GRAPHS; i++)
		OK(cuGraphLaunch(execs[i], streams[0]));
	also = captured(1);
	read_of(also);
	OK(cuGraphCreate(&made, 0));
	OK(cuGraphAddMemsetNode(&child, made, NULL, 0, &was_read, ctx));
	OK(cuGraphInstantiateWithFlags(&made_exec, made, 0));
	atomic_store(&flag, true);
	OK(cuCtxSynchronize());
}

SCENARIO(a_node_tells_of_its_graph_alone)
{
	uint64_t launches;

	make_graphs();
	must(sharing_after(read_of_another, &launches) == GRAPHS,
	     "another graph's node was read");
}

/* For the live view: till it is ended. */
SCENARIO(lanes_stay, "BY=live.py")
{
	make_graphs();
	launch_both();
	for (int i = 0; i < 60 * 1000; i++) {
		for (int j = 0; j < 100; j++)
			OK(cuMemFree(allocated(MIB)));
		usleep(1000);
	}
}

typedef CUresult begin_fn(double half, CUstream stream, CUstreamCaptureMode mode);

/* Launches into such a capture take their graphs out of their lanes, and no earlier
 * call does: it might wait. */
SCENARIO(an_unknown_capture_waits_for_no_graph)
{
	CUdriverProcAddressQueryResult status;
	static atomic_bool flag;
	void *begin = NULL;
	CUgraph graph;

	make_graphs();
	launch_both();
	OK(cuGetProcAddress("cuStreamBeginCaptureInvented", &begin, 13000, 0, &status));
	OK(cuLaunchHostFunc(streams[0], wait_for_flag, &flag));
	OK(cuGraphLaunch(execs[1], streams[0]));
	OK(((begin_fn *)begin)(0.5, streams[1], CU_STREAM_CAPTURE_MODE_RELAXED));
	must(lanes(NULL, 0) == 1, "not one lane");
	OK(cuStreamEndCapture(streams[1], &graph), cuGraphDestroy(graph));
	atomic_store(&flag, true);
	launch_both();
}

/* No fence can be set then, and no stream be asked: that one follows the other is said
 * by an event that stands there since before. */
SCENARIO(beside_a_capture_the_host_waits_for_no_graph)
{
	static atomic_bool flag;
	CUstream capturing;
	CUgraph graph;

	make_graphs();
	launch_both();
	OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(streams[0], wait_for_flag, &flag));
	OK(cuGraphLaunch(execs[0], streams[0]), cuGraphLaunch(execs[1], streams[0]));
	OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuGraphLaunch(execs[0], streams[1]), cuStreamEndCapture(capturing, &graph));
	OK(cuGraphDestroy(graph));
	atomic_store(&flag, true);
	launch_both();
}

/* A temporary of ours, and what the graph itself allocates and leaves to the program:
 * how often it can be launched is CUDA's to say. */
static CUgraphExec leaves_memory(CUdeviceptr *ret_left)
{
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(8 * MIB);
	OK(cuMemAllocAsync(ret_left, MIB, streams[0]));
	OK(cuMemsetD8Async(p, 7, MIB, streams[0]));
	OK(cuMemcpyDtoDAsync(*ret_left, p, MIB, streams[0]), cuMemFree(p));
	OK(cuStreamEndCapture(streams[0], &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, flags), cuGraphDestroy(graph));
	return exec;
}

static void must_have_left(CUdeviceptr left)
{
	unsigned char byte = 0;

	OK(cuStreamSynchronize(streams[0]), cuMemcpyDtoH(&byte, left + MIB - 1, 1));
	must(byte == 7, "its content is not the graph's");
}

SCENARIO(a_graph_that_leaves_memory_is_launched_again)
{
	CUdeviceptr left, freed;
	CUgraphExec again, once;

	make_graphs();
	once = leaves_memory(&freed);
	flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	again = leaves_memory(&left);
	for (int i = 0; i < 4; i++) {
		OK(cuGraphLaunch(again, streams[0]));
		launch_both();
		must_have_left(left);
	}
	OK(cuGraphLaunch(once, streams[0]));
	must(cuGraphLaunch(once, streams[0]) == CUDA_ERROR_INVALID_VALUE,
	     "launched with its memory not freed");
	must_have_left(freed);
	OK(cuMemFreeAsync(freed, streams[0]), cuGraphLaunch(once, streams[0]));
	must_have_left(freed);
	launch_both();
	must(gcpsim_hazards() == 0, "a hazard");
}

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
	make_graphs();
	launch_both();
	null_is_refused();
	must(gcpool_graph_pool_create_(&id) == 0, "a pool of the program");
	must(gcpool_graph_pool_checkpoint_(id, NULL) == -EINVAL, "a checkpoint of it");
	must(gcpool_graph_pool_restore_(id, NULL) == -ESTALE, "no checkpoint");
	must(gcpool_graph_pools_(NULL, 5) == gcpool_graph_pools_(NULL, 0), "pools");
	must(gcpool_graph_pools_(NULL, 0) > 0, "no pools");
}

__attribute__((constructor)) static void graphs_share(void)
{
	setenv("GCPOOL_GRAPH_SHARE", "1", 1);
	setenv("GCPOOL_BACKEND", "vmm", 1);
}
