/* SPDX-License-Identifier: MIT */
/*
 * conform_auto_free.c - memory that a graph allocates and leaves to the program: how
 * often it is launched, with AUTO_FREE_ON_LAUNCH and without, what frees of it give,
 * and what becomes of it with its executable: the transcript.
 */
#include "conform_tell.h"

enum { AUTO_FREE = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH };

static CUgraphExec captured(unsigned long long flags, CUdeviceptr *ret_q)
{
	CUgraphExec exec;

	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	MUST(cuMemAllocAsync(ret_q, 1 << 20, s), conform_fill(*ret_q, 4, 1, s), end(s));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, flags), cuGraphDestroy(graph));
	return exec;
}

static void launches(const char *title, unsigned long long flags)
{
	cuuint64_t told = 0;
	CUgraphExec exec;
	CUdeviceptr q;

	section(title);
	exec = captured(flags, &q);
	TELL(cuGraphExecGetFlags(exec, &told), told);
	TELL(cuMemFreeAsync(q, s)); /* before any launch */
	TELL(cuGraphLaunch(exec, s), cuGraphLaunch(exec, s), cuStreamSynchronize(s));
	TELL(cuGraphLaunch(exec, s), cuMemFreeAsync(q, s));
	TELL(cuMemFreeAsync(q, s)); /* twice */
	TELL(cuGraphLaunch(exec, t), cuStreamSynchronize(t), cuMemFree(q));
	TELL(cuMemFree(q)); /* twice */
	TELL(cuGraphLaunch(exec, s), cuStreamSynchronize(s), cuGraphExecDestroy(exec));
	TELL(cuMemsetD8Async(q, 1, 64, s), cuMemFreeAsync(q, s));
	TELL(cuStreamSynchronize(s));
}

/* A graph that frees what another one has left. */
static void freed_by_another_graph(void)
{
	CUgraphExec exec, frees;
	CUdeviceptr q;

	section("freed by another graph");
	exec = captured(0, &q);
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuMemFreeAsync(q, s), end(s));
	MUST(cuGraphInstantiateWithFlags(&frees, graph, 0));
	TELL(cuGraphLaunch(exec, s), cuGraphLaunch(frees, s), cuGraphLaunch(exec, s));
	TELL(cuGraphLaunch(frees, s), cuStreamSynchronize(s));
	TELL(cuGraphExecDestroy(frees), cuGraphExecDestroy(exec));
}

int main(int argc, char **argv)
{
	tell_start(argc, argv);
	launches("without the flag", 0);
	launches("with the flag", AUTO_FREE);
	freed_by_another_graph();
	return 0;
}
