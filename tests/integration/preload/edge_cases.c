/* SPDX-License-Identifier: MIT */
/*
 * edge_cases.c - situations that ordinary programs rarely meet, each written for the
 * simulated device, where it shows whether what plain CUDA promises is kept.
 *
 *   edge_cases SCENARIO    plays one; 0: all is as on plain CUDA
 */

#include <linux/membarrier.h>
#include <sys/syscall.h>

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
	calls_fail("cuCtxPushCurrent:1+:709");
	must(cuMemFreeAsync(p, others) == CUDA_ERROR_CONTEXT_IS_DESTROYED,
	     "freed, though nothing can be put behind the work");
	calls_fail(NULL);
	OK(cuCtxSetCurrent(here), cuMemsetD8(p, 1, MIB), cuMemFreeAsync(p, others));
}

/* --- pitched memory -------------------------------------------------------------- */

/* What CUDA says of a wrong element does not depend on captures. */
SCENARIO_PRIMARY(pitch_of_a_wrong_element_in_a_capture)
{
	static const CUstreamCaptureMode modes[] = {
	    CU_STREAM_CAPTURE_MODE_GLOBAL,
	    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	    CU_STREAM_CAPTURE_MODE_RELAXED,
	};
	CUstream stream;
	CUdeviceptr p;
	CUgraph graph;
	size_t pitch;

	stream = stream_new();
	allocated(4096);
	for (int i = 0; i < 3; i++) {
		OK(cuStreamBeginCapture(stream, modes[i]));
		must(cuMemAllocPitch(&p, &pitch, 1000, 10, 3) ==
			 CUDA_ERROR_INVALID_VALUE,
		     "another code");
		graph = capture_end(stream);
		OK(cuGraphDestroy(graph));
	}
	must(gcpsim_invalidated() == 0, "a capture was destroyed");
}

/* --- contexts that end -------------------------------------------------------- */

static atomic_bool enough, waited_too_long;

/* Work that waits for the program's main thread. */
static void wait_for_enough(void *arg)
{
	for (int i = 0; i < 10000 && !enough; i++)
		usleep(1000);
	waited_too_long = !enough;
}

static void *destroy(void *arg)
{
	OK(cuCtxDestroy(arg));
	return NULL;
}

/* Returns true if the process is registered with the kernel for its barrier. */
static bool barrier_is_prepared(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;
}

/* An emulator has threads of its own. */
SCENARIO_PRIMARY(barrier_prepared_while_there_is_one_thread)
{
	must(barrier_is_prepared() || getenv("GCPT_EMULATOR"),
	     "a flush will keep threads waiting for it");
}

static void *frees(void *block)
{
	OK(cuMemFree((CUdeviceptr)block));
	must(barrier_is_prepared(), "a flush will keep both threads waiting for it");
	return NULL;
}

static void *allocates_beside_main(void *unused)
{
	OK(cuInit(0));
	(void)primary();
	(void)play_elsewhere(frees, (void *)allocated(4096));
	return unused;
}

SCENARIO_BEFORE_CUDA(barrier_prepared_by_the_second_thread_with_a_cache)
{
	(void)play_elsewhere(allocates_beside_main, NULL);
}

/* While one context is being destroyed, which waits for its work, and that for us,
 * another one goes on: with captures, pinned memory and all. */
SCENARIO(destruction_that_waits_for_another_context,
	 "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1")
{
	CUstream mine, others;
	CUcontext other = context_new(&others), here;
	uint64_t barriers;
	pthread_t thread;
	void *pinned;

	(void)allocated(MIB);
	here = context_new(&mine);
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuMemAllocHost(&pinned, 4096),
	   cuMemsetD8Async(allocated(MIB), 1, MIB, mine));
	capture_begin(mine);
	work_on_blocks(mine, 2, MIB); /* in one block: a barrier is due at the end */
	OK(cuLaunchHostFunc(others, wait_for_enough, NULL));
	pthread_create(&thread, NULL, destroy, other);
	AWAIT(gcpsim_calls("cuCtxDestroy_v2") > 0);
	barriers = gcpsim_calls("cuCtxWaitEvent");
	OK(cuGraphDestroy(capture_end(mine)));
	for (int i = 0; i < 200; i++) {
		OK(cuMemFreeHost(pinned), cuMemAllocHost(&pinned, 4096));
		work_on_blocks(mine, 1, MIB);
		OK(cuCtxSetCurrent(here));
	}
	must(gcpsim_calls("cuCtxWaitEvent") == barriers,
	     "a context that is being destroyed was touched");
	enough = true;
	pthread_join(thread, NULL);
	must(!waited_too_long, "the end of one context stopped the other");
	must(gcpsim_hazards() == 0, "memory was used again too early");
	/* And afterwards all is as before. */
	work_on_blocks(mine, 200, MIB);
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
	OK(cuMemsetD8(p, 1, MIB), cuGreenCtxDestroy(other), cuMemsetD8(p, 1, MIB));
	OK(cuMemFree(p), cuGreenCtxDestroy(green));
	must(cuMemAlloc(&p, MIB) == CUDA_ERROR_CONTEXT_IS_DESTROYED, "it lives on");
	must(primary() == ctx, "another primary context");
	p = allocated(MIB);
	OK(cuMemsetD8(p, 1, MIB), cuCtxSynchronize(), cuMemFree(p));
	must(gcpsim_faults() == 0, "memory of a context that was gone was given out");
}

/* It has the memory of the primary context, and the pool of it. */
SCENARIO(green_contexts_have_the_pool, "GCPOOL_TEST_WINDOW=0")
{
	CUcontext ctx = primary(), green;
	uint64_t calls;

	OK(cuMemFree(allocated(MIB)));
	calls = gcpsim_calls("cuMemAlloc_v2");
	for (int i = 0; i < 2; i++) {
		OK(cuCtxFromGreenCtx(&green, green_new()), cuCtxSetCurrent(green));
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
	CUstream other;
	CUcontext own;

	OK(cuCtxCreate(&own, NULL, 0, 0));
	gcpsim_set_speed(GCPSIM_NEVER);
	work_on_blocks(stream_new(), 16, 8 * MIB);
	must(gcpsim_calls("cuCtxWaitEvent") > 0, "no barrier was set");
	CUdeviceptr p = allocated(8 * MIB);
	OK(cuGreenCtxStreamCreate(&other, green_new(), CU_STREAM_NON_BLOCKING, 0));
	OK(cuMemsetD8Async(p, 2, 8 * MIB, other));
	must(gcpsim_hazards() == 0, "memory was used again too early");
}

/* A call that made none leaves what it was given as it was: no context, or another
 * one's handle. The pool goes on as with one context. */
SCENARIO(contexts_that_were_not_made, "GCPOOL_TEST_WINDOW=0")
{
	CUcontext ctx = primary(), wrong_one = (CUcontext)(uintptr_t)0x10;
	uint64_t used;
	CUstream stream = stream_new();

	calls_fail("cuCtxCreate:1+:2,cuCtxFromGreenCtx:1+:2,cuCtxSetCurrent:1+:2,"
		   "cuCtxPushCurrent:1:2,cuDevicePrimaryCtxRetain:1:2");
	must(cuCtxCreate(&wrong_one, NULL, 0, 0) != CUDA_SUCCESS, "created");
	must(cuCtxFromGreenCtx(&wrong_one, NULL) != CUDA_SUCCESS, "it is green");
	must(cuCtxSetCurrent(wrong_one) != CUDA_SUCCESS, "current");
	must(cuCtxPushCurrent(wrong_one) != CUDA_SUCCESS, "pushed");
	must(cuDevicePrimaryCtxRetain(&wrong_one, 0) != CUDA_SUCCESS, "retained");
	must(cuCtxCreate(&ctx, NULL, 0, 0) != CUDA_SUCCESS, "created");
	calls_fail(NULL);
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuMemFree(allocated(8 * MIB)));
	used = gcpsim_memory_used(0);
	work_on_blocks(stream, 32, 8 * MIB);
	must(gcpsim_calls("cuCtxWaitEvent") > 0 &&
		 gcpsim_memory_used(0) <= used + 64 * MIB,
	     "no barrier is set, as with several contexts");
	must(gcpsim_misuses() == 0, "the driver was given a context that is none");
}
