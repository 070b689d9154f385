/* SPDX-License-Identifier: MIT */
/*
 * within.c - what happens within the calls that make and end contexts: the driver calls
 * back into the program, as it does for a tool.
 *
 *   within SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Environment: GCPSIM_SPEED=never GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1
 */

#include "scenarios.h"

static void has_pool(void)
{
	uint64_t frees = gcpsim_calls("cuMemFree_v2");

	for (int i = 0; i < 8; i++)
		OK(cuMemFree(allocated(MIB)));
	must(gcpsim_calls("cuMemFree_v2") == frees, "there is no pool");
}

/* What is freed serves again behind barriers, too. */
static void is_pooled(void)
{
	uint64_t barriers = gcpsim_calls("cuCtxWaitEvent");

	has_pool();
	for (int i = 0; i < 64; i++) {
		CUdeviceptr p = allocated(32 * MIB);

		OK(cuMemsetD8Async(p, 1, 32 * MIB, NULL));
		OK(cuMemFree(p));
	}
	must(gcpsim_calls("cuCtxWaitEvent") > barriers, "no barriers are set any more");
}

static CUcontext made;
static CUdeviceptr taken;
static bool called;

/* The context is new to the library: its memory may be the driver's. */
static void works_there(void)
{
	called = true;
	OK(cuCtxPushCurrent(made));
	taken = allocated(MIB);
	OK(cuMemsetD8(taken, 1, MIB));
	OK(cuCtxPopCurrent(NULL));
}

static void retains_there(void)
{
	CUcontext again;

	called = true;
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	must(again == made, "it is another context");
	OK(cuCtxPushCurrent(again));
	taken = allocated(MIB);
	OK(cuCtxPopCurrent(NULL));
	OK(cuDevicePrimaryCtxRelease(0));
}

static void called_while_it_is_made(void (*tool)(void))
{
	hang_watch();
	must(gcpsim_when_called("cuDevicePrimaryCtxRetain", tool) == 0, "no call");
	OK(cuDevicePrimaryCtxRetain(&made, 0));
	must(called, "no tool was called");
	OK(cuCtxSetCurrent(made));
	is_pooled();
	OK(cuMemFree(taken));
	is_pooled();
	OK(cuDevicePrimaryCtxRelease(0));
	must(gcpsim_memory_live(0) == 0, "the context has not ended");
	must(gcpsim_misuses() == 0, gcpsim_last_report());
}

SCENARIO(a_tool_works_in_a_context_that_is_being_made)
{
	called_while_it_is_made(works_there);
}

SCENARIO(a_tool_retains_a_context_that_is_being_made)
{
	called_while_it_is_made(retains_there);
}
