/* SPDX-License-Identifier: MIT */
/*
 * async_runtime.c - stream-ordered memory by a shared cudart, which the library goes
 * past: what CUDA has to do, and what a free orders, is as with the calls of the
 * driver.
 *
 * Environment: GCPOOL_BACKEND=vmm
 *
 *   async_runtime SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Needs: cudart
 */
#include "scenarios.h"

#include <cuda_runtime_api.h>

static void *allocated_in(CUstream stream, size_t bytes)
{
	void *p = NULL;

	must(cudaMallocAsync(&p, bytes, stream) == cudaSuccess, "cudaMallocAsync");
	return p;
}

static void freed_in(CUstream stream, void *p)
{
	must(cudaFreeAsync(p, stream) == cudaSuccess, "cudaFreeAsync");
}

static void set_in(CUstream stream, void *p)
{
	OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 1, MIB, stream));
}

/* Until nothing but the library serves a pair. */
static CUstream warm_stream(unsigned int flags)
{
	CUstream stream;

	must(cudaSetDevice(0) == cudaSuccess, "cudaSetDevice");
	primary();
	OK(cuStreamCreate(&stream, flags));
	for (int i = 0; i < 4; i++)
		freed_in(stream, allocated_in(stream, MIB));
	return stream;
}

/* cudart asks for the current context in each call. */
static uint64_t runtime_calls(void)
{
	return gcpsim_calls("cuCtxGetCurrent");
}

static uint64_t real_calls(void)
{
	return gcpsim_calls("cuMemAllocAsync") + gcpsim_calls("cuMemFreeAsync");
}

/* --- what goes past cudart ---------------------------------------------------- */

SCENARIO(pairs_go_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	uint64_t before = runtime_calls();
	void *p;

	for (int i = 0; i < 100; i++)
		freed_in(stream, allocated_in(stream, MIB));
	must(runtime_calls() == before, "cudart is called");
	must(real_calls() == 0, "CUDA's pool is used");
	must(cudaSetDevice(0) == cudaSuccess, "cudaSetDevice");
	before = runtime_calls();
	p = allocated_in(stream, MIB);
	must(runtime_calls() > before, "cudart learns nothing of its first call");
	freed_in(stream, p);
}

SCENARIO(calls_that_cudart_has_to_refuse)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	void *p = allocated_in(stream, MIB), *q = NULL;

	must(cudaMallocAsync(NULL, MIB, stream) == cudaErrorInvalidValue, "no place");
	must(cudaGetLastError() == cudaErrorInvalidValue, "the last error");
	must(cudaMallocAsync(&q, (size_t)1 << 45, stream) == cudaErrorMemoryAllocation,
	     "too much");
	must(cudaGetLastError() == cudaErrorMemoryAllocation, "the last error");
	freed_in(stream, p);
	must(cudaFreeAsync(p, stream) == cudaErrorInvalidValue, "freed twice");
	must(cudaGetLastError() == cudaErrorInvalidValue, "the last error");
	must(cudaFreeAsync(NULL, stream) == cudaSuccess, "nothing to free");
}

/* --- what is CUDA's ----------------------------------------------------------- */

SCENARIO(captured_memory_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	CUgraphNode nodes[8];
	size_t count = 8;
	CUgraph graph;
	void *p;

	capture_begin(stream);
	p = allocated_in(stream, MIB);
	freed_in(stream, p);
	graph = capture_end(stream);
	OK(cuGraphGetNodes(graph, nodes, &count));
	must(count == 2, "the graph has no memory nodes");
}

SCENARIO(memory_freed_in_a_capture)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	void *p = allocated_in(stream, MIB);

	capture_begin(stream);
	must(cudaFreeAsync(p, stream) == cudaErrorInvalidValue,
	     "memory of no graph is freed in a capture");
	(void)capture_end(stream);
	freed_in(stream, p);
}

SCENARIO(another_current_pool_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);

	OK(cuDeviceSetMemPool(0, pool_new(0)));
	freed_in(stream, allocated_in(stream, MIB));
	must(real_calls() == 2, "the default pool serves instead of the current one");
}

SCENARIO(option_leaves_the_runtime_to_cuda, "GCPOOL_ASYNC=0")
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);

	must(real_calls() == 8, "it is served");
	freed_in(stream, (void *)(uintptr_t)allocated(MIB));
	freed_in(stream, allocated_in(stream, MIB));
	must(real_calls() == 10, "it is served");
}

/* --- what a free orders ------------------------------------------------------- */

SCENARIO(runtime_free_in_a_blocking_stream)
{
	CUstream stream = warm_stream(CU_STREAM_DEFAULT);
	CUstream other = stream_new();
	void *p;

	gcpsim_set_speed(GCPSIM_NEVER);
	p = allocated_in(CU_STREAM_LEGACY, MIB);
	set_in(CU_STREAM_LEGACY, p);
	freed_in(stream, p);
	must(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY, "the free is no work");
	p = allocated_in(stream, MIB);
	OK(cuStreamSynchronize(stream));
	set_in(other, p);
	must(gcpsim_hazards() == 0, "the block is used again too early");
}
