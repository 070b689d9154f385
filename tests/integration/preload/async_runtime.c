/* SPDX-License-Identifier: MIT */
/*
 * async_runtime.c - stream-ordered memory by a shared cudart, which the library goes
 * past: what CUDA has to do, and what a free orders, is as with the calls of the
 * driver.
 *
 *   async_runtime SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Needs: cudart
 */
#include "scenarios.h"

#include <cuda_runtime_api.h>

/* Not in the headers but for programs with the per-thread default stream. */
cudaError_t cudaMallocAsync_ptsz(void **ret_ptr, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);

static CUstream stream_new(unsigned int flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

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
	stream = stream_new(flags);
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

enum call { ALLOCATES, FREES_IN_STREAM, FREES, CALLS };

/* cudart makes a context current in a thread that has none, also in a free. */
static void must_be_current(CUstream stream, enum call call, void *p, void *plain)
{
	CUcontext ctx = NULL;

	OK(cuCtxGetCurrent(&ctx));
	must(!ctx, "it is still there");
	if (call == ALLOCATES)
		p = allocated_in(stream, MIB);
	else if (call == FREES_IN_STREAM)
		freed_in(stream, p);
	else
		must(cudaFree(plain) == cudaSuccess, "cudaFree");
	OK(cuCtxGetCurrent(&ctx));
	must(ctx, "no context is current");
	if (call != FREES_IN_STREAM)
		OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 1, MIB, NULL));
}

static void *allocated_plain(void)
{
	void *p = NULL;

	must(cudaMalloc(&p, MIB) == cudaSuccess, "cudaMalloc");
	return p;
}

SCENARIO(threads_without_a_context)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	CUcontext ctx, popped;
	uint64_t before;

	OK(cuCtxGetCurrent(&ctx));
	for (int i = 0; i < 2 * CALLS; i++) {
		void *p = allocated_in(stream, MIB), *plain = allocated_plain();

		if (i % 2)
			OK(cuCtxSetCurrent(NULL));
		else
			OK(cuCtxPopCurrent(&popped));
		must_be_current(stream, i / 2, p, plain);
		freed_in(stream, allocated_in(stream, MIB));
		must(cudaFree(allocated_plain()) == cudaSuccess, "cudaFree");
	}
	/* As long as one is left the short cut goes on. */
	OK(cuCtxPushCurrent(ctx));
	OK(cuCtxPopCurrent(&popped));
	before = runtime_calls();
	freed_in(stream, allocated_in(stream, MIB));
	must(runtime_calls() == before, "cudart is called");
}

/* --- what is CUDA's ----------------------------------------------------------- */

SCENARIO(captured_memory_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	CUgraphNode nodes[8];
	size_t count = 8;
	CUgraph graph;
	void *p;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated_in(stream, MIB);
	freed_in(stream, p);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &count));
	must(count == 2, "the graph has no memory nodes");
}

SCENARIO(memory_freed_in_a_capture)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	void *p = allocated_in(stream, MIB);
	CUgraph graph;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	must(cudaFreeAsync(p, stream) == cudaErrorInvalidValue,
	     "memory of no graph is freed in a capture");
	OK(cuStreamEndCapture(stream, &graph));
	freed_in(stream, p);
}

SCENARIO(another_current_pool_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &properties));
	OK(cuDeviceSetMemPool(0, pool));
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

static void free_in_a_joined_stream(CUstream stream, bool ptsz)
{
	CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
	CUstream named = ptsz ? CU_STREAM_PER_THREAD : stream;
	void *p;

	for (int i = 0; i < 4; i++) {
		must((ptsz ? cudaMallocAsync_ptsz : cudaMallocAsync)(&p, MIB, stream) ==
			 cudaSuccess,
		     "cudaMallocAsync");
		must((ptsz ? cudaFreeAsync_ptsz : cudaFreeAsync)(p, stream) ==
			 cudaSuccess,
		     "cudaFreeAsync");
	}
	gcpsim_set_speed(GCPSIM_NEVER);
	p = allocated_in(CU_STREAM_LEGACY, MIB);
	set_in(CU_STREAM_LEGACY, p);
	must((ptsz ? cudaFreeAsync_ptsz : cudaFreeAsync)(p, stream) == cudaSuccess,
	     "cudaFreeAsync");
	must(cuStreamQuery(named) == CUDA_ERROR_NOT_READY, "the free is no work");
	p = allocated_in(named, MIB);
	OK(cuStreamSynchronize(named));
	set_in(other, p);
	must(gcpsim_hazards() == 0, "the block is used again too early");
}

SCENARIO(runtime_free_in_a_blocking_stream)
{
	free_in_a_joined_stream(warm_stream(CU_STREAM_DEFAULT), false);
}

/* The null handle is that stream, for programs that are compiled so. */
SCENARIO(runtime_free_in_the_per_thread_stream)
{
	warm_stream(CU_STREAM_NON_BLOCKING);
	free_in_a_joined_stream(NULL, true);
}

/* The block's epoch does not cover that stream, nor is its order that of the block. */
SCENARIO(runtime_free_in_a_stream_of_another_context,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING), strange;
	CUcontext here, there;
	CUevent event;
	void *p, *q;

	OK(cuCtxGetCurrent(&here));
	OK(cuCtxCreate(&there, NULL, 0, 0));
	strange = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuCtxSetCurrent(here));
	for (int i = 0; i < 4; i++)
		freed_in(strange, allocated_in(stream, MIB));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	gcpsim_set_speed(GCPSIM_NEVER);
	p = allocated_in(stream, MIB);
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(strange, event, 0));
	set_in(strange, p);
	freed_in(strange, p);
	for (int i = 0; i < 40; i++) {
		q = allocated_in(stream, MIB);
		set_in(stream, q);
		OK(cuStreamSynchronize(stream));
	}
	must(gcpsim_hazards() == 0, "the block is used again too early");
}

/* Allocated by cuMemAlloc, and by other threads. */
static void *frees(void *p)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	uint64_t before = runtime_calls();

	set_in(stream, p);
	freed_in(stream, p);
	must(runtime_calls() == before, "cudart is called");
	return NULL;
}

SCENARIO(frees_of_other_memory_past_cudart)
{
	CUstream stream = warm_stream(CU_STREAM_NON_BLOCKING);
	void *plain = (void *)(uintptr_t)allocated(MIB);
	void *streamed = allocated_in(stream, MIB);
	pthread_t thread;

	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, frees, i ? plain : streamed);
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < 40; i++)
		set_in(stream, allocated_in(stream, MIB));
	must(gcpsim_hazards() == 0, "the block is used again too early");
}
