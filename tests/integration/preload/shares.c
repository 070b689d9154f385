/* SPDX-License-Identifier: MIT */
/*
 * shares.c - launches of graphs that share memory (GCPOOL_GRAPH_SHARE=1).
 *
 *   shares SCENARIO    plays one; 0: all is as it should be
 */
#include "edge_cases.h"

#include <dlfcn.h>

enum { GRAPHS = 2, LAUNCHES = 3000 };

static CUcontext ctx;
static CUstream streams[GRAPHS];
static CUgraphExec execs[GRAPHS];

/* Each graph has temporaries of its own size, and the program destroys it. */
static void make_graphs(void)
{
	ctx = primary();
	for (int i = 0; i < GRAPHS; i++) {
		CUgraph graph;
		CUdeviceptr p;

		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuStreamBeginCapture(streams[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
		p = allocated((size_t)(i + 1) * 8 * MIB);
		OK(cuMemsetD8Async(p, 1, MIB, streams[i]));
		OK(cuMemFree(p));
		OK(cuStreamEndCapture(streams[i], &graph));
		OK(cuGraphInstantiateWithFlags(&execs[i], graph, 0));
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

static void *launch_often(void *exec)
{
	size_t mine = exec == execs[0] ? 0 : 1;

	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < LAUNCHES; i++)
		OK(cuGraphLaunch(exec, streams[mine]));
	OK(cuStreamSynchronize(streams[mine]));
	return NULL;
}

static void threads_take_turns_at_launches(void)
{
	pthread_t threads[GRAPHS];

	make_graphs();
	launch_both();
	for (int i = 0; i < GRAPHS; i++)
		pthread_create(&threads[i], NULL, launch_often, execs[i]);
	for (int i = 0; i < GRAPHS; i++)
		pthread_join(threads[i], NULL);
	must(gcpsim_launches_at_once() == 1, "two launches at the same time");
}

/* Each try makes memory, cannot map it, and finds that much to give back. */
static void a_launch_that_cannot_map_ends(void)
{
	make_graphs();
	launch_both();
	must(trim() >= 16 * MIB, "idle graphs keep their memory");
	must(gcpsim_fail("cuMemMap:1+:2") == 0, "no such plan");
	alarm(5); /* a call that never returns */
	must(cuGraphLaunch(execs[0], streams[0]) == CUDA_ERROR_OUT_OF_MEMORY,
	     "launched without memory");
	must(gcpsim_fail(NULL) == 0, "no plan");
	launch_both();
}

static const struct scenario scenarios[] = {
    SCENARIO(threads_take_turns_at_launches),
    SCENARIO(a_launch_that_cannot_map_ends),
};

int main(int argc, char **argv)
{
	setenv("GCPOOL_GRAPH_SHARE", "1", 1);
	setenv("GCPOOL_BACKEND", "vmm", 1);
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
