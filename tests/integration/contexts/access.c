/* SPDX-License-Identifier: MIT */
/*
 * access.c - two threads enable access to another device's mapped memory at the same
 * time: each may use all of it once its call has returned.
 *
 *   access SCENARIO    plays one; 0: all is as on plain CUDA
 *
 * Environment: GCPOOL_BACKEND=vmm GCPSIM_DEVICES=2 GCPSIM_MEMORY=2g
 */
#include "scenarios.h"

#include <time.h>

enum { BLOCKS = 8, LONGEST_MS = 300 };

static CUcontext contexts[2];
static CUdeviceptr blocks[BLOCKS];
static atomic_bool entered, returned;

static void *enables_and_uses(void *unused)
{
	CUresult result;

	OK(cuCtxSetCurrent(contexts[1]));
	atomic_store(&entered, true);
	result = cuCtxEnablePeerAccess(contexts[0], 0);
	must(result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
	     "another code");
	for (int i = 0; i < BLOCKS; i++)
		OK(cuMemsetD8(blocks[i], 1, 64));
	atomic_store(&returned, true);
	return unused;
}

/* Within the call that opens the first of them: the other thread uses them before that
 * one goes on, if its call returns; else it waits, and this thread must not. */
static void another_thread_enables_it(void)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	pthread_t thread;

	must(pthread_create(&thread, NULL, enables_and_uses, NULL) == 0, "no thread");
	pthread_detach(thread);
	for (int i = 0; i < LONGEST_MS && !atomic_load(&returned); i++)
		nanosleep(&ms, NULL);
}

/* Blocks of two contexts, whose memory is opened by two calls. */
SCENARIO(two_threads_enable_access)
{
	CUcontext more;

	for (int i = 0; i < 2; i++)
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
	OK(cuCtxCreate(&more, NULL, 0, 0));
	for (int i = 0; i < BLOCKS; i++) {
		OK(cuCtxSetCurrent(i % 2 ? more : contexts[0]));
		blocks[i] = allocated(64 * MIB);
	}
	must(gcpsim_when_called("cuMemSetAccess", another_thread_enables_it) == 0,
	     "no such call");
	OK(cuCtxSetCurrent(contexts[1]));
	OK(cuCtxEnablePeerAccess(contexts[0], 0));
	must(atomic_load(&entered), "nothing was opened");
	for (int i = 0; i < BLOCKS; i++)
		OK(cuMemsetD8(blocks[i], 2, 64));
	while (!atomic_load(&returned))
		sched_yield();
	must(gcpsim_faults() == 0, gcpsim_last_report());
}
