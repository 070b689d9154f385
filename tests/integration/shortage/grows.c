/* SPDX-License-Identifier: MIT */
/*
 * grows.c - programs that use little memory for as long as they like, in situations in
 * which what they have freed becomes ready by another way than a fence.
 *
 *   grows SCENARIO    plays one; 0: it takes no more than it should
 */
#include "edge_cases.h"

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
static void pinned_memory_beside_a_context_that_ends(void)
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

/* --- the table -------------------------------------------------------------------- */

static const struct scenario scenarios[] = {
    SCENARIO(pinned_memory_beside_a_context_that_ends),
};

int main(int argc, char **argv)
{
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
