/* SPDX-License-Identifier: MIT */
/*
 * within.c - what happens within the calls that make and end contexts, and captures:
 * the thread is cancelled there, or the driver calls back into the program, as it does
 * for a tool.
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
	work_on_blocks(NULL, 64, 32 * MIB);
	must(gcpsim_calls("cuCtxWaitEvent") > barriers, "no barriers are set any more");
}

/* --- threads that are cancelled ------------------------------------------------- */

static CUcontext own;

static CUresult retains(void)
{
	CUcontext ctx;

	return cuDevicePrimaryCtxRetain(&ctx, 0);
}

static CUresult destroys(void)
{
	return cuCtxDestroy(own);
}

static struct {
	const char *symbol;
	CUresult (*call)(void);
} cancelled;

static void *is_cancelled_in_a_call(void *unused)
{
	when_called(cancelled.symbol, pthread_testcancel);
	pthread_cancel(pthread_self());
	OK(cancelled.call());
	pthread_testcancel();
	return unused;
}

/* In the driver, before the call returns. */
static void cancel_in(const char *symbol, CUresult (*call)(void))
{
	void *ended;

	cancelled.symbol = symbol;
	cancelled.call = call;
	ended = play_elsewhere(is_cancelled_in_a_call, NULL);
	must(ended == PTHREAD_CANCELED, "it has not ended");
}

SCENARIO(a_thread_is_cancelled_while_it_retains)
{
	cancel_in("cuDevicePrimaryCtxRetain", retains);
	(void)primary();
	is_pooled();
	cancel_in("cuDevicePrimaryCtxRetain", retains);
	(void)primary();
	is_pooled();
}

SCENARIO(a_thread_is_cancelled_while_it_destroys)
{
	CUcontext ctx = primary();

	OK(cuCtxCreate(&own, NULL, 0, 0));
	has_pool();
	OK(cuCtxSetCurrent(ctx));
	cancel_in("cuCtxDestroy_v2", destroys);
	is_pooled();
}

/* --- captures that are cancelled ------------------------------------------------ */

static CUstream captured;

static CUresult begins(void)
{
	OK(cuCtxSetCurrent(own));
	return cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult ends(void)
{
	CUgraph graph;

	OK(cuCtxSetCurrent(own));
	return cuStreamEndCapture(captured, &graph);
}

static CUresult destroys_the_stream(void)
{
	return cuStreamDestroy(captured);
}

/* What is freed gets fences. */
static bool is_fenced(void)
{
	uint64_t fences = gcpsim_calls("cuCtxRecordEvent");

	for (int i = 0; i < 8; i++)
		OK(cuMemFree(allocated(64 * MIB)));
	return gcpsim_calls("cuCtxRecordEvent") > fences;
}

/* A capture under way holds fences off: for good, if its end is not noted. */
SCENARIO(a_cancelled_thread_leaves_no_capture)
{
	own = primary();
	captured = stream_new();
	must(is_fenced(), "no fences");
	cancel_in("cuStreamBeginCapture_v2", begins);
	must(!is_fenced(), "fences beside a capture");
	OK(ends());
	must(is_fenced(), "after a begin the capture stays under way");
	OK(begins());
	cancel_in("cuStreamEndCapture", ends);
	must(is_fenced(), "after an end the capture stays under way");
	OK(begins());
	cancel_in("cuStreamDestroy_v2", destroys_the_stream);
	must(is_fenced(), "without its stream the capture stays under way");
}

/* --- calls of a tool ------------------------------------------------------------ */

static CUcontext made;
static CUdeviceptr taken;
static bool called;

/* The context is new to the library: its memory may be the driver's. */
static void works_there(void)
{
	called = true;
	OK(cuCtxPushCurrent(made));
	taken = allocated(MIB);
	OK(cuMemsetD8(taken, 1, MIB), cuCtxPopCurrent(NULL));
}

static void retains_there(void)
{
	CUcontext again;

	called = true;
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	must(again == made, "it is another context");
	OK(cuCtxPushCurrent(again));
	taken = allocated(MIB);
	OK(cuCtxPopCurrent(NULL), cuDevicePrimaryCtxRelease(0));
}

static void called_while_it_is_made(void (*tool)(void))
{
	when_called("cuDevicePrimaryCtxRetain", tool);
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
