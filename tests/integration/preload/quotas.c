/* SPDX-License-Identifier: MIT */
/*
 * quotas.c - what an unmodified program meets when a quota is used up, or the device
 * is full.
 *
 *   quotas SCENARIO    plays one; 0: all is as it should be
 */
#include "edge_cases.h"

/* 2 MiB of pinned memory: what is beyond it comes from nowhere, and what is freed
 * makes room again. */
static void pinned_memory_beyond_its_quota(void)
{
	void *blocks[8] = {NULL};
	int count = 0;

	(void)primary();
	while (count < 8 && cuMemHostAlloc(&blocks[count], MIB, 0) == 0)
		count++;
	must(count == 2, "not as much as the quota allows");
	must(cuMemAllocHost(&blocks[7], MIB / 2) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
	OK(cuMemFreeHost(blocks[0]));
	OK(cuMemAllocHost(&blocks[7], MIB / 2));
}

static void device_memory_beyond_its_quota(void)
{
	CUdeviceptr p, q;

	(void)primary();
	p = allocated(64 * MIB);
	must(cuMemAlloc(&q, 64 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
	OK(cuMemFree(p));
	OK(cuMemAlloc(&q, 64 * MIB));
}

/* A capture that plain CUDA allows, and most of the device for its graph, which is
 * launched and gone at once. No thread has waited for anything. */
static void graph_comes_and_goes(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	p = allocated(600 * MIB);
	OK(cuMemsetD8Async(p, 1, MIB, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(exec));
	OK(cuMemFree(p));
}

static void memory_of_a_graph_that_is_just_gone(void)
{
	CUstream stream;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph_comes_and_goes(stream);
	(void)allocated(600 * MIB);
}

static void memory_of_a_gone_graph_for_other_kinds_of_memory(void)
{
	const CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	CUstream stream;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	graph_comes_and_goes(stream);
	OK(cuMemCreate(&handle, 600 * MIB, &properties, 0));
}

/* A program that tries how much there is should not wait for what runs. */
static void a_failing_allocation_waits_for_nothing(void)
{
	CUdeviceptr p, in_use;
	CUstream stream;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	in_use = allocated(600 * MIB);
	OK(cuMemsetD8Async(in_use, 1, MIB, stream));
	for (size_t bytes = 600 * MIB; bytes <= 4096 * MIB; bytes += 3496 * MIB) {
		must(cuMemAlloc(&p, bytes) == CUDA_ERROR_OUT_OF_MEMORY,
		     "more memory than there is");
		must(cuMemAllocAsync(&p, bytes, stream) == CUDA_ERROR_OUT_OF_MEMORY,
		     "more memory than there is");
	}
	must(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY, "it was waited for");
}

static const struct scenario scenarios[] = {
    SCENARIO(pinned_memory_beyond_its_quota),
    SCENARIO(device_memory_beyond_its_quota),
    SCENARIO(memory_of_a_graph_that_is_just_gone),
    SCENARIO(memory_of_a_gone_graph_for_other_kinds_of_memory),
    SCENARIO(a_failing_allocation_waits_for_nothing),
};

int main(int argc, char **argv)
{
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
