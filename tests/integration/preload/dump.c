/* SPDX-License-Identifier: MIT */
/*
 * dump.c - two graph pools in known states, or one of a graph of known nodes, written
 * by gcpool_graph_dump to the file that is named: dump.py reads it.
 */
#include <dlfcn.h>
#include <errno.h>

#include "../../../interpose/gcpool.h"
#include "edge_cases.h"

static __typeof__(gcpool_graph_dump) *dump;
static __typeof__(gcpool_graph_pool_create) *create;
static __typeof__(gcpool_graph_pool_use) *use;

/* A capture with one block that is held, and two that are freed in it. */
static CUgraph captured(CUstream stream)
{
	CUdeviceptr freed[2], held;
	CUgraph graph;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	held = allocated(3 * MIB);
	OK(cuMemsetD8Async(held, 1, MIB, stream));
	OK(cuMemsetD8Async(held, 2, MIB, stream));
	OK(cuMemcpyDtoDAsync(held, held + MIB, MIB, stream));
	for (int i = 0; i < 2; i++)
		freed[i] = allocated((size_t)1000 << 10 * i);
	for (int i = 0; i < 2; i++)
		OK(cuMemFree(freed[i]));
	OK(cuStreamEndCapture(stream, &graph));
	printf("held %llx\n", (unsigned long long)held);
	return graph;
}

/* --- nodes of a graph ------------------------------------------------------------ */

static void CUDA_CB host_work(void *data)
{
	(void)data;
}

/* memset, then memcpy and host beside each other, then memset. */
static void diamond(CUstream stream, CUdeviceptr p)
{
	CUstream other;
	CUevent event;

	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuMemsetD8Async(p, 1, 64, stream));
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	OK(cuMemcpyDtoDAsync(p, p + 64, 64, stream));
	OK(cuLaunchHostFunc(other, host_work, NULL));
	OK(cuEventRecord(event, other));
	OK(cuStreamWaitEvent(stream, event, 0));
	OK(cuMemsetD8Async(p, 2, 64, stream));
}

/* A graph of so many nodes one after the other, behind a diamond if it is wanted. Of
 * the graph only its executable is left, as of PyTorch's. */
static int nodes_dumped(const char *path, bool forked, int line)
{
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr p;
	CUgraph graph;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	p = allocated(MIB);
	if (forked)
		diamond(stream, p);
	for (int i = 0; i < line; i++)
		OK(i % 2 ? cuMemcpyDtoDAsync(p, p + 64, 64, stream)
			 : cuMemsetD8Async(p, 3, 64, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	must(dump(path) == 0, "the file is not written");
	return wrong;
}

static void *others_work(void *stop)
{
	primary();
	while (!atomic_load((atomic_bool *)stop))
		OK(cuMemFree(allocated(1 << 16)));
	return NULL;
}

int main(int argc, char **argv)
{
	static atomic_bool stop;
	CUgraph first, clone;
	CUgraphExec exec;
	CUstream stream;
	pthread_t thread;
	uint64_t id;

	*(void **)&dump = dlsym(RTLD_DEFAULT, "gcpool_graph_dump");
	*(void **)&create = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_create");
	*(void **)&use = dlsym(RTLD_DEFAULT, "gcpool_graph_pool_use");
	if (argc < 2 || !dump || !create || !use)
		return 2;
	must(dump(argv[1]) == -ENOENT, "before the first allocation");
	OK(cuInit(0));
	primary();
	OK(cuMemFree(allocated(MIB)));
	if (argc == 4)
		return nodes_dumped(argv[1], !strcmp(argv[2], "forked"), atoi(argv[3]));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	first = captured(stream);
	OK(cuGraphInstantiateWithFlags(&exec, first, 0));
	must(create(&id) == 0 && use(id) == 0, "a pool of the program's");
	OK(cuGraphClone(&clone, captured(stream)));
	pthread_create(&thread, NULL, others_work, &stop);
	for (int i = 0; i < 20; i++)
		must(dump(argv[1]) == 0, "the file is not written");
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	must(dump("dump.txt") == -EINVAL && dump(NULL) == -EINVAL, "another ending");
	must(dump("/nowhere/dump.json") == -ENOENT, "no folder");
	must(access("/dev/full", W_OK) || symlink("/dev/full", "full.json") ||
		 dump("full.json") == -ENOSPC,
	     "a full disk");
	return wrong;
}
