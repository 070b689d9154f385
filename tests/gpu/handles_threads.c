/* SPDX-License-Identifier: MIT */
/*
 * handles_threads.c - handles of many threads: how many there are, and whether what
 * is computed through them is right.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "handles.h"

/* --- threads --------------------------------------------------------------------- */

enum { THREADS = 100, TOGETHER = 4 };

static pthread_barrier_t together;
static void *seen[LIBRARIES_MAX][THREADS];
static atomic_int threads_begun;
static bool threads_bare; /* they leave it to the libraries to find a context */

static void *thread_run(void *arg)
{
	int me = threads_begun++;
	CUcontext ctx = NULL;

	(void)arg;
	if (!threads_bare)
		MUST(cu.cuCtxSetCurrent(primary));
	for (int l = 0; l < library_count; l++)
		seen[l][me] = create(&libraries[l]);
	MUST(cu.cuCtxGetCurrent(&ctx));
	if (ctx != primary)
		complain("the libraries leave a thread with context %p, not %p",
			 (void *)ctx, (void *)primary);
	pthread_barrier_wait(&together);
	for (int l = 0; l < library_count; l++)
		MUST(libraries[l].destroy(seen[l][me]));
	return NULL;
}

static int distinct(void **values, int count)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		int j = 0;

		while (j < i && values[j] != values[i])
			j++;
		found += j == i;
	}
	return found;
}

static void threads_all(const char *how)
{
	pthread_t threads[TOGETHER];
	double start = now_us();

	threads_begun = 0;
	for (int round = 0; round < THREADS / TOGETHER; round++) {
		pthread_barrier_init(&together, NULL, TOGETHER);
		for (int i = 0; i < TOGETHER; i++)
			pthread_create(&threads[i], NULL, thread_run, NULL);
		for (int i = 0; i < TOGETHER; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_destroy(&together);
	}
	printf("threads %s: %.0f us\n", how, now_us() - start);
	for (int l = 0; l < library_count; l++)
		printf("threads %s %s: %d addresses\n", how, libraries[l].kind->name,
		       distinct(seen[l], THREADS));
}

void run_threads(void)
{
	threads_all("with_context");
	threads_bare = true;
	threads_all("bare");
}

/* Products of many threads, through handles that come and go behind pending work.
 * Each shape needs a workspace; each product has its own right answer. */
enum { STRESS_THREADS = 8, STRESS_M = 64, STRESS_K = 1 << 16, STRESS_DEPTH = 8 };

static int stress_rounds = 60;

static unsigned float_bits(float value)
{
	unsigned bits;

	memcpy(&bits, &value, 4);
	return bits;
}

static void stress_check(CUdeviceptr c, float wanted)
{
	float host[STRESS_M * STRESS_M];
	int bad = 0;

	MUST(cu.cuMemcpyDtoH_v2(host, c, sizeof(host)));
	for (int i = 0; i < STRESS_M * STRESS_M; i++)
		bad += host[i] != wanted;
	if (bad)
		complain("%d of %d words are not %g (one is %g)", bad,
			 STRESS_M * STRESS_M, (double)wanted, (double)host[0]);
}

static void *stress_run(void *arg)
{
	int me = (int)(intptr_t)arg;
	CUdeviceptr a, b, c[STRESS_DEPTH];
	CUstream stream;

	MUST(cu.cuCtxSetCurrent(primary));
	stream = stream_new();
	MUST(cu.cuMemAlloc_v2(&a, (size_t)STRESS_M * STRESS_K * 4));
	MUST(cu.cuMemAlloc_v2(&b, (size_t)STRESS_M * STRESS_K * 4));
	for (int i = 0; i < STRESS_DEPTH; i++)
		MUST(cu.cuMemAlloc_v2(&c[i], (size_t)STRESS_M * STRESS_M * 4));
	for (int round = 0; round < stress_rounds; round++) {
		int x = 1 + (me + round) % 7;

		MUST(cu.cuMemsetD32Async(a, float_bits((float)x),
					 (size_t)STRESS_M * STRESS_K, stream));
		MUST(cu.cuMemsetD32Async(b, float_bits(1), (size_t)STRESS_M * STRESS_K,
					 stream));
		for (int i = 0; i < STRESS_DEPTH; i++) {
			void *handle = create(&libraries[0]);

			MUST(libraries[0].set_stream(handle, stream));
			multiply(handle, STRESS_M, STRESS_M, STRESS_K, a, b, c[i]);
			MUST(libraries[0].destroy(handle));
		}
		MUST(cu.cuStreamSynchronize(stream));
		for (int i = 0; i < STRESS_DEPTH; i++)
			stress_check(c[i], (float)x * STRESS_K);
	}
	return NULL;
}

void run_stress(void)
{
	pthread_t threads[STRESS_THREADS];
	double start = now_us();

	for (int i = 0; i < STRESS_THREADS; i++)
		pthread_create(&threads[i], NULL, stress_run, (void *)(intptr_t)i);
	for (int i = 0; i < STRESS_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("stress: %d products, %.1f us each\n",
	       STRESS_THREADS * stress_rounds * STRESS_DEPTH,
	       (now_us() - start) / (STRESS_THREADS * stress_rounds * STRESS_DEPTH));
}
