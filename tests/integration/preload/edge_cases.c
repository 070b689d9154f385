/* SPDX-License-Identifier: MIT */
/*
 * edge_cases.c - situations that ordinary programs rarely meet, each written for the
 * simulated device, where it shows whether what plain CUDA promises is kept.
 *
 *   edge_cases SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <dlfcn.h>

#include "scenarios.h"

static CUcontext context_new(CUstream *ret_stream)
{
	CUcontext ctx;

	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	OK(cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING));
	return ctx;
}

/* --- cuMemFreeAsync ------------------------------------------------------------- */

/* A block that nothing can be put behind is not freed: the driver's code, and it stays.
 */
SCENARIO(free_where_a_context_cannot_be_entered)
{
	CUstream mine, others;
	CUcontext here;
	CUdeviceptr p;

	(void)context_new(&others);
	here = context_new(&mine);
	p = allocated(MIB);
	must(gcpsim_fail("cuCtxPushCurrent:1+:709") == 0, "no such plan");
	must(cuMemFreeAsync(p, others) == CUDA_ERROR_CONTEXT_IS_DESTROYED,
	     "freed, though nothing can be put behind the work");
	must(gcpsim_fail(NULL) == 0, "no plan");
	OK(cuCtxSetCurrent(here));
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuMemFreeAsync(p, others));
}

/* --- contexts that stay ----------------------------------------------------------- */

static atomic_bool enough;

/* --- contexts that end -------------------------------------------------------- */

static atomic_bool waited_too_long;

/* Work that waits for the program's main thread. */
static void wait_for_enough(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000 && !enough; i++)
		usleep(1000);
	waited_too_long = !enough;
}

static void *destroy(void *arg)
{
	OK(cuCtxDestroy(arg));
	return NULL;
}

/* While one context is being destroyed, which waits for its work, and that for us,
 * another one goes on: with barriers, pinned memory and all. */
SCENARIO(
    destruction_that_waits_for_another_context,
    "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_TEST_HOST_FENCE_BATCH=1")
{
	CUstream mine, others;
	CUcontext other = context_new(&others), here;
	uint64_t fences;
	pthread_t thread;
	CUdeviceptr p;
	void *pinned;

	(void)allocated(MIB);
	here = context_new(&mine);
	OK(cuMemAllocHost(&pinned, 4096));
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuLaunchHostFunc(others, wait_for_enough, NULL));
	pthread_create(&thread, NULL, destroy, other);
	usleep(100000);
	fences = gcpsim_calls("cuCtxRecordEvent") + gcpsim_calls("cuCtxWaitEvent");
	for (int i = 0; i < 200; i++) {
		OK(cuMemFreeHost(pinned));
		OK(cuMemAllocHost(&pinned, 4096));
	}
	must(gcpsim_calls("cuCtxRecordEvent") + gcpsim_calls("cuCtxWaitEvent") ==
		 fences,
	     "a context that is being destroyed was touched");
	for (int i = 0; i < 200; i++) {
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 1, MIB, mine));
		OK(cuMemFree(p));
		OK(cuCtxSetCurrent(here));
	}
	enough = true;
	pthread_join(thread, NULL);
	must(!waited_too_long, "the end of one context stopped the other");
	must(gcpsim_hazards() == 0, "memory was used again too early");
	/* And afterwards all is as before. */
	for (int i = 0; i < 200; i++) {
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 1, MIB, mine));
		OK(cuMemFree(p));
	}
	must(gcpsim_memory_used(0) < 1000 * MIB, "memory is not used again");
}

/* --- green contexts --- */

static CUgreenCtx green_new(void)
{
	CUdevResourceDesc description;
	CUdevResource all;
	CUgreenCtx green;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevResourceGenerateDesc(&description, &all, 1));
	OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* The last green context ends the primary one, memory and all. */
SCENARIO(green_context_that_ends_the_primary)
{
	CUcontext ctx = primary();
	CUgreenCtx green = green_new(), other = green_new();
	CUdeviceptr p = allocated(MIB);

	OK(cuMemFree(p));
	must(cuDevicePrimaryCtxReset(0) == CUDA_ERROR_NOT_PERMITTED, "it was reset");
	OK(cuDevicePrimaryCtxRelease(0));
	p = allocated(MIB);
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuGreenCtxDestroy(other));
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuMemFree(p));
	OK(cuGreenCtxDestroy(green));
	must(cuMemAlloc(&p, MIB) == CUDA_ERROR_CONTEXT_IS_DESTROYED, "it lives on");
	must(primary() == ctx, "another primary context");
	p = allocated(MIB);
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuCtxSynchronize());
	OK(cuMemFree(p));
	must(gcpsim_faults() == 0, "memory of a context that was gone was given out");
}

/* It has the memory of the primary context, and the pool of it. */
SCENARIO(green_contexts_have_the_pool)
{
	CUcontext ctx = primary(), green;
	uint64_t calls;

	OK(cuMemFree(allocated(MIB)));
	calls = gcpsim_calls("cuMemAlloc_v2");
	for (int i = 0; i < 2; i++) {
		OK(cuCtxFromGreenCtx(&green, green_new()));
		OK(cuCtxSetCurrent(green));
		OK(cuMemFree(allocated(MIB)));
	}
	OK(cuCtxSetCurrent(ctx));
	must(gcpsim_calls("cuMemAlloc_v2") == calls, "memory did not come of the pool");
}

/* --- barriers --- */

/* A green context makes a primary one, which joins the barriers that were set before.
 */
SCENARIO(green_context_joins_the_barriers, "GCPOOL_TEST_WINDOW=0")
{
	CUstream stream, other;
	CUcontext own;
	CUdeviceptr p;

	OK(cuCtxCreate(&own, NULL, 0, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 16; i++) {
		p = allocated(8 * MIB);
		OK(cuMemsetD8Async(p, 1, 8 * MIB, stream));
		OK(cuMemFree(p));
	}
	must(gcpsim_calls("cuCtxWaitEvent") > 0, "no barrier was set");
	p = allocated(8 * MIB);
	OK(cuGreenCtxStreamCreate(&other, green_new(), CU_STREAM_NON_BLOCKING, 0));
	OK(cuMemsetD8Async(p, 2, 8 * MIB, other));
	must(gcpsim_hazards() == 0, "memory was used again too early");
}

/* --- older drivers --- */

/* A driver with the oldest form of cuStreamGetCaptureInfo alone offers that one to
 * a caller that asks for a newer form: it says nothing of the order in the graph. */
SCENARIO(reuse_in_a_capture_of_unknown_order,
	 "GCPSIM_FAIL=cuGraphNodeGetDependencies_v2:1+:801")
{
	CUdeviceptr first, second;
	CUstream main_stream, side;
	CUevent early;

	primary();
	OK(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&early, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuEventRecord(early, main_stream));
	first = allocated(MIB);
	OK(cuMemsetD8Async(first, 1, MIB, main_stream));
	OK(cuMemFree(first));
	second = allocated(MIB);
	must(first != second, "the side stream may use it before the main one does");
	OK(cuStreamWaitEvent(side, early, 0));
}

/* --- events of a capture ------------------------------------------------------ */

/* A block is freed
 * after the work that an event stands for, and the event is recorded anew, in a way
 * that leaves it where it was. */

/* --- handles of physical memory ----------------------------------------------- */

/* The program's own is told; what lies behind a block is others' as well. */
SCENARIO(handles_of_mapped_memory, "GCPOOL_BACKEND=vmm")
{
	CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle own, told = 0;
	CUdeviceptr block, p;

	(void)primary();
	block = allocated(8 * MIB);
	wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemCreate(&own, 2 * MIB, &wanted, 0));
	OK(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(p, 2 * MIB, 0, own, 0));
	must(cuMemRetainAllocationHandle(&told, (void *)(uintptr_t)block) ==
		 CUDA_ERROR_INVALID_VALUE,
	     "the handle of a block");
	OK(cuMemRetainAllocationHandle(&told, (void *)(uintptr_t)p));
	must(told == own, "another handle");
	OK(cuMemRelease(told));
	OK(cuMemUnmap(p, 2 * MIB));
	OK(cuMemRelease(own));
	OK(cuMemAddressFree(p, 2 * MIB));
}

SCENARIO(attributes_are_set)
{
	CUdeviceptr managed;
	int set = 1;

	(void)primary();
	OK(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				 allocated(MIB)));
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				   (CUdeviceptr)(uintptr_t)&set) ==
		 CUDA_ERROR_INVALID_VALUE,
	     "set on the stack");
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				   allocated(MIB)) == CUDA_ERROR_INVALID_VALUE,
	     "the type is set");
	/* Of memory that is not the pool's it is the driver's to keep, and to refuse.
	 */
	OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	must(gcpsim_fail("cuPointerSetAttribute:1:999") == 0, "no such plan");
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed) ==
		 CUDA_ERROR_UNKNOWN,
	     "another code");
}

/* --- the run ---------------------------------------------------------------------- */

enum { MANY_THREADS = 400 };
