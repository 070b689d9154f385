/* SPDX-License-Identifier: MIT */
/*
 * grows.c - programs that use little memory for as long as they like, in situations in
 * which what they have freed becomes ready by another way than a fence.
 *
 *   grows SCENARIO    plays one; 0: it takes no more than it should
 *
 * Ways: GCPOOL_BACKEND=segments, GCPOOL_BACKEND=vmm
 */
#include "scenarios.h"

/* --- pinned memory ---------------------------------------------------------------- */

static atomic_bool stop;

static void work_that_goes_on(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		usleep(1000);
}

static void *ends_a_context(void *arg)
{
	OK(cuCtxDestroy(arg));
	return NULL;
}

/* Another thread destroys a context whose work does not end. */
SCENARIO(pinned_memory_beside_a_context_that_ends,
	 "GCPSIM_DEVICES=2 GCPOOL_BACKEND=segments")
{
	const size_t bytes = 16 * MIB;
	CUcontext ctx = primary(), other;
	CUstream stream;
	CUdeviceptr d;
	pthread_t thread;
	void *p;

	OK(cuCtxCreate(&other, NULL, 0, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream, work_that_goes_on, NULL));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	d = allocated(bytes);
	pthread_create(&thread, NULL, ends_a_context, other);
	while (gcpsim_calls("cuCtxDestroy_v2") + gcpsim_calls("cuCtxDestroy") == 0)
		sched_yield();
	for (int i = 0; i < 200; i++) {
		OK(cuMemHostAlloc(&p, bytes, 0));
		OK(cuMemcpyHtoDAsync(d, p, bytes, stream));
		OK(cuMemFreeHost(p));
	}
	must(gcpsim_calls("cuMemHostAlloc") < 60, "pinned memory grows");
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}

/* --- a context that refuses fences ------------------------------------------------ */

/* Of all kinds of memory, on a driver before CUDA 12.5, which lacks functions or
 * refuses them. */
SCENARIO(all_passes_through_on_an_old_driver,
	 "GCPSIM_DRIVER_VERSION=12040 GCPSIM_HIDE=1", "GCPSIM_DRIVER_VERSION=12040")
{
	CUstream stream = (primary(), CU_STREAM_PER_THREAD);
	CUdeviceptr p, q;
	void *host;

	for (uint64_t i = 1; i <= 40; i++) {
		OK(cuMemAlloc(&p, MIB));
		OK(cuMemAllocAsync(&q, MIB, stream));
		OK(cuMemHostAlloc(&host, MIB, 0));
		OK(cuMemFreeAsync(q, stream));
		OK(cuMemFreeHost(host));
		OK(cuMemFree(p));
		must(gcpsim_calls("cuMemAlloc_v2") == i &&
			 gcpsim_calls("cuMemFree_v2") == i &&
			 gcpsim_calls("cuMemAllocAsync") == i &&
			 gcpsim_calls("cuMemHostAlloc") == i,
		     "memory is pooled");
	}
}
