/* SPDX-License-Identifier: MIT */
/*
 * chosen.c - a program that chooses the library: memory by gcpool_malloc, in the order
 * of streams that it names. The library is found with dlopen: the preloaded one, but in
 * without_a_preload.
 *
 * Says: the library is loaded and not preloaded: gcpool_malloc and gcpool_free are
 * cudaMalloc and cudaFree
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <sys/time.h>

#include "../../../interpose/gcpool.h"
#include "scenarios.h"

static struct {
	__typeof__(gcpool_malloc) *malloc;
	__typeof__(gcpool_free) *free;
	__typeof__(gcpool_record_stream) *record;
	__typeof__(gcpool_trim) *trim;
	__typeof__(gcpool_active) *active;
	__typeof__(gcpool_get_stats) *stats;
} pool;

__attribute__((constructor)) static void pool_load(void)
{
	void *library = dlopen(getenv("GCPT_LIBRARY"), RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		printf("%s\n", dlerror());
		exit(2);
	}
	*(void **)&pool.malloc = dlsym(library, "gcpool_malloc");
	*(void **)&pool.free = dlsym(library, "gcpool_free");
	*(void **)&pool.record = dlsym(library, "gcpool_record_stream");
	*(void **)&pool.trim = dlsym(library, "gcpool_trim");
	*(void **)&pool.active = dlsym(library, "gcpool_active");
	*(void **)&pool.stats = dlsym(library, "gcpool_get_stats");
}

static void *taken(size_t bytes, CUstream stream)
{
	void *p = NULL;

	OK(pool.malloc(&p, bytes, 0, stream));
	return p;
}

static void worked(void *p, size_t bytes, CUstream stream)
{
	OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 1, bytes, stream));
}

static void given(void *p, CUstream stream)
{
	OK(pool.free(p, stream));
}

/* What each scenario begins with. Nothing is done before the host waits for it. */
static CUstream stream, other, third;
static void *p; /* a block of `stream`, which works on it */

static void start(void)
{
	primary();
	gcpsim_set_speed(GCPSIM_NEVER);
	stream = stream_new();
	other = stream_new();
	third = stream_new();
}

static void start_working(void)
{
	start();
	p = taken(MIB, stream);
	worked(p, MIB, stream);
}

static void must_be_in_order(void)
{
	must(gcpsim_hazards() == 0, "a block is used again too early");
	must(gcpsim_misuses() == 0, "a handle is used that is gone");
}

/* Allocations of other streams and of none: none may be `block`, whose work goes on. */
static void must_not_come(void *block, CUstream in)
{
	for (int i = 0; i < 100; i++) {
		void *q = taken(MIB, in);

		must(q != block, "the block comes before its work is done");
		worked(q, MIB, in);
	}
	must_be_in_order();
}

/* --- reuse ------------------------------------------------------------------------ */

SCENARIO(same_stream_at_once)
{
	start_working();
	given(p, stream);
	must(taken(MIB, stream) == p, "the stream waits for its own memory");
	worked(p, MIB, stream);
	must(pool.active() == 1, "it is not active");
	must(gcpsim_pending() > 0, "the work is done");
	must_be_in_order();
}

/* An ordinary segment has what is left of it for no other block. */
SCENARIO(one_segment_serves_a_loop, "GCPOOL_BACKEND=segments")
{
	int capable = 0;

	start();
	for (int turn = 0; turn < 100; turn++)
		given(taken(19 * MIB / 2, stream), stream);
	must(gcpsim_calls("cuMemAlloc_v2") == 1, "it takes more memory");
	OK(cuPointerGetAttribute(&capable,
				 CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
				 (CUdeviceptr)(uintptr_t)taken(MIB, stream)));
	must(capable, "a network card cannot use memory of cudaMalloc");
}

SCENARIO(stream_that_is_recorded,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	start_working();
	OK(cuStreamSynchronize(stream), pool.record(p, other), pool.record(p, third));
	worked(p, MIB, other);
	given(p, stream);
	must_not_come(p, stream);
	must_not_come(p, third);
	must(pool.record(p, other) == CUDA_ERROR_INVALID_VALUE, "a free block is used");
}

/* A free that fails does not drop the streams in which the block is used. */
SCENARIO(recorded_block_stays_after_a_free_that_fails,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	start_working();
	OK(cuStreamSynchronize(stream), pool.record(p, other));
	worked(p, MIB, other);
	calls_fail("cuStreamGetId:1+:400,cuStreamGetCtx:1+:400");
	must(pool.free(p, third) != CUDA_SUCCESS, "the free has not failed");
	calls_fail(NULL);
	given(p, stream);
	must_not_come(p, stream);
}

/* Bytes that malloc has given. Its newer form is not in every libc. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static long memory_given(void)
{
	return mallinfo().uordblks;
}

/* Programs name a stream with each use of a block. */
SCENARIO(streams_recorded_again_take_no_memory)
{
	enum { TIMES = 300000 };
	long before;

	start_working();
	OK(pool.record(p, other));
	before = memory_given();
	for (int i = 0; i < TIMES; i++)
		OK(pool.record(p, other));
	must(memory_given() < before + TIMES, "each costs memory");
	given(p, stream);
}

/* --- captures --------------------------------------------------------------------- */

SCENARIO(stream_that_captures,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	void *held, *q;
	CUgraph graph;

	start_working();
	held = p;
	capture_begin(stream);
	q = taken(MIB, stream);
	given(held, stream);
	p = taken(MIB, other); /* other streams go on */
	worked(p, MIB, other);
	given(p, other);
	must_not_come(held, other);
	worked(q, MIB, stream);
	given(q, stream);
	graph = capture_end(stream);
	must(gcpsim_invalidated() == 0, "a capture is lost");
	must_not_come(held, other);
	OK(cuCtxSynchronize());
	for (int i = 0; i < 4; i++)
		given(taken(MIB, other), other);
	OK(cuCtxSynchronize());
	must_not_come(q, other); /* the graph may be launched */
	OK(cuGraphDestroy(graph));
	must_be_in_order();
}

/* Work in the other stream uses the block, and it is freed while a stream captures: the
 * free is no operation of a stream then. */
static void freed_beside_work(CUstream captures)
{
	worked(p, MIB, other);
	capture_begin(captures);
	given(p, captures);
	OK(cuGraphDestroy(capture_end(captures)));
	must_not_come(p, stream);
}

SCENARIO(freed_while_its_stream_captures,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	start_working();
	OK(cuStreamSynchronize(stream), pool.record(p, other));
	freed_beside_work(stream);
}

SCENARIO(freed_in_another_stream_that_captures,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0")
{
	start_working();
	OK(cuStreamSynchronize(stream));
	freed_beside_work(other);
}

/* Without the library both are cudaMalloc and cudaFree, and cudaFree waits: the program
 * need not have waited. */
SCENARIO(freed_by_cudaFree,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_THREAD_CACHE=0", "")
{
	start_working();
	OK(cuStreamSynchronize(stream));
	/* One from the heap, and ones that the thread kept for the stream. */
	for (int turn = 0; turn < 4; turn++) {
		worked(p, MIB, other);
		OK(cuMemFree((CUdeviceptr)(uintptr_t)p));
		p = taken(MIB, stream);
		worked(p, MIB, stream);
		OK(cuStreamSynchronize(stream));
		given(p, stream);
		p = taken(MIB, stream);
	}
	must_be_in_order();
}

/* --- the rest ----------------------------------------------------------------- */

SCENARIO(wrong_calls)
{
	struct gcpool_stats stats;

	start_working();
	must(pool.malloc(NULL, MIB, 0, stream) == CUDA_ERROR_INVALID_VALUE, "NULL");
	must(pool.malloc(&p, MIB, -1, stream) == CUDA_ERROR_INVALID_DEVICE,
	     "device -1");
	must(pool.malloc(&p, MIB, 9, stream) == CUDA_ERROR_INVALID_DEVICE, "device 9");
	must(pool.malloc(&p, (size_t)1 << 50, 0, stream) == CUDA_ERROR_OUT_OF_MEMORY,
	     "a petabyte");
	must(pool.malloc(&p, 0, 0, stream) == 0 && !p, "no bytes");
	must(pool.free(NULL, stream) == 0, "NULL is freed");
	p = taken(MIB, stream);
	must(pool.free((char *)p + 512, stream) == CUDA_ERROR_INVALID_VALUE,
	     "a middle");
	given(p, stream);
	must(pool.free(p, stream) == CUDA_ERROR_INVALID_VALUE, "twice");
	must(pool.stats(0, &stats, sizeof(stats)) == 0 &&
		 stats.allocated_bytes.current == MIB,
	     "the figures");
}

SCENARIO(devices_and_contexts, "GCPSIM_DEVICES=2")
{
	CUcontext ctx = primary(), now = NULL;
	CUdevice device = -1;
	void *q;

	start();
	OK(pool.malloc(&p, MIB, 1, NULL));
	OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				 (CUdeviceptr)(uintptr_t)p));
	must(device == 1, "memory of the other device");
	OK(cuCtxGetCurrent(&now));
	must(now == ctx, "the current context is another");
	given(p, NULL);
	OK(cuCtxSetCurrent(NULL));
	q = taken(MIB, stream);
	OK(pool.record(q, stream), cuCtxGetCurrent(&now));
	must(now == NULL, "a context has become current with a record");
	given(q, stream);
	OK(cuCtxGetCurrent(&now));
	must(now == NULL, "a context has become current");
}

SCENARIO(context_that_was_reset)
{
	start();
	given(taken(MIB, NULL), NULL);
	OK(cuDevicePrimaryCtxReset(0));
	given(taken(MIB, NULL), NULL);
}

/* As the runtime's memory, and it goes with that. */
SCENARIO(a_context_of_the_device_that_is_current)
{
	CUcontext own;

	start();
	OK(cuCtxCreate(&own, NULL, 0, 0));
	p = taken(MIB, NULL);
	OK(cuCtxDestroy(own));
	must(pool.free(p, NULL) != CUDA_SUCCESS, "memory of another context");
}

/* The first call reads options and makes files, and the driver does what it does. */
SCENARIO(errno_stays, "GCPOOL_LIVE=1")
{
	int code;

	primary();
	errno = EDOM;
	code = pool.malloc(&p, MIB, 0, NULL);
	must(errno == EDOM, "errno after gcpool_malloc");
	OK(code);
	code = pool.record(p, NULL);
	must(errno == EDOM, "errno after gcpool_record_stream");
	OK(code);
	code = pool.free(p, NULL);
	must(errno == EDOM, "errno after gcpool_free");
	OK(code);
}

/* All calls reach the driver. */
SCENARIO(off_is_as_without_the_library, "GCPOOL_MODE=off")
{
	enum { TURNS = 10 };

	start();
	for (int i = 0; i < TURNS; i++) {
		OK(cuMemFree(allocated(MIB)));
		given(taken(MIB, NULL), NULL);
	}
	must(gcpsim_calls("cuMemAlloc_v2") == 2 * TURNS, "memory of a pool");
	must(gcpsim_calls("cuMemFree_v2") == 2 * TURNS, "memory is kept");
}

/* All of it is CUDA's own. */
SCENARIO(without_a_preload, "GCPOOL_DEBUG=all GCPOOL_LIVE=1 LOADED=1 SAYS=1")
{
	start();
	for (int i = 0; i < 3; i++) {
		p = taken(MIB, stream);
		must(gcpsim_allocations(0) == 1, "not an allocation of CUDA");
		OK(pool.record(p, stream));
		given(p, stream);
		must(gcpsim_allocations(0) == 0, "it is kept");
	}
	must(pool.active() == 0, "it is active");
	must(pool.malloc(&p, MIB, 9, stream) == CUDA_ERROR_INVALID_DEVICE, "device 9");
	must(pool.trim(0, 0) == 0, "something is given back");
}
