/*
 * bench_pool.c - nanoseconds for a malloc+free pair of the pool itself, over a
 * driver that costs nothing, on 1, 4 and 16 threads.
 *
 *   meson test -C build --benchmark --verbose
 *   bench_pool pairs N: N pairs of 1 MiB on one thread, for callgrind to count
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../pool/pool.h"

static _Atomic uint64_t next_addr = 1ull << 32;
static struct gcp_pools *pools;
static struct gcp_pool *pool;

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	(void)ctx;
	*ret_addr = atomic_fetch_add(&next_addr, (bytes + 0x1fffff) & ~0x1fffffull);
	return 0;
}

static int mem_free(void *ctx, gcp_addr addr)
{
	(void)ctx, (void)addr;
	return 0;
}

static void mem_trim(void *ctx)
{
	(void)ctx;
}

static int fence_create(void *ctx, void **ret_fence)
{
	*ret_fence = ctx;
	return 0;
}

static int fence_of(void *ctx, void *fence)
{
	(void)ctx, (void)fence;
	return 0;
}

static void fence_destroy(void *fence)
{
	(void)fence;
}

static int fence_done(void *fence)
{
	(void)fence;
	return 0;
}

static int ctx_sync(void *ctx)
{
	(void)ctx;
	return 0;
}

static bool no_third_party(void)
{
	return false;
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const struct gcp_driver driver = {
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_trim = mem_trim,
    .fence_create = fence_create,
    .fence_destroy = fence_destroy,
    .fence_record = fence_of,
    .fence_order = fence_done,
    .fence_query = fence_done,
    .fence_wait = fence_done,
    .ctx_sync = ctx_sync,
    .third_party_writers = no_third_party,
    .clock_ns = clock_ns,
};

static void must(int result)
{
	if (result != 0) {
		fprintf(stderr, "bench_pool: result %d\n", result);
		exit(1);
	}
}

static void pairs_of_one_size(long pairs, uint64_t bytes)
{
	gcp_addr addr;

	for (long i = 0; i < pairs; i++) {
		must(gcp_pool_alloc(pool, bytes, &addr));
		must(gcp_pools_free(pools, addr));
	}
}

static void pairs_of_mixed_sizes(long pairs, uint64_t max)
{
	gcp_addr live[64] = {0};
	unsigned random = 12345;

	for (long i = 0; i < pairs; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1103515245 + 12345) >> 16 & 63];

		if (*slot)
			must(gcp_pools_free(pools, *slot));
		random = random * 1103515245 + 12345;
		must(gcp_pool_alloc(pool, 1 + (uint64_t)(random >> 8) % max, slot));
	}
	for (int i = 0; i < 64; i++)
		if (live[i])
			must(gcp_pools_free(pools, live[i]));
}

struct job {
	void (*body)(long pairs, uint64_t bytes);
	long pairs;
	uint64_t bytes;
};

static void *job_run(void *arg)
{
	struct job *job = arg;

	job->body(job->pairs, job->bytes);
	gcp_pools_thread_exit(pools);
	return NULL;
}

/* Best of five: the machine is shared, and noise only adds. */
static double measure(struct job job, int threads)
{
	double best = 1e30;

	for (int repeat = 0; repeat < 5; repeat++) {
		pthread_t ids[16];
		uint64_t start = clock_ns();

		for (int i = 0; i < threads; i++)
			pthread_create(&ids[i], NULL, job_run, &job);
		for (int i = 0; i < threads; i++)
			pthread_join(ids[i], NULL);
		double ns = (double)(clock_ns() - start) / (double)job.pairs;
		best = ns < best ? ns : best;
	}
	return best;
}

static void pools_make(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	must(gcp_pools_create(&config, &driver, &pools));
	must(gcp_pool_get(pools, (void *)0x1000, 0, &pool));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		struct job job;
	} rows[] = {
	    {"512 B", {pairs_of_one_size, 1000000, 512}},
	    {"1 MiB", {pairs_of_one_size, 1000000, 1 << 20}},
	    {"5 MiB", {pairs_of_one_size, 300000, 5 << 20}},
	    {"mixed to 1 MiB, 64 live", {pairs_of_mixed_sizes, 500000, 1 << 20}},
	    {"mixed to 16 MiB, 64 live", {pairs_of_mixed_sizes, 200000, 16 << 20}},
	};
	static const int threads[] = {1, 4, 16};

	pools_make();
	if (argc == 3 && strcmp(argv[1], "pairs") == 0) {
		pairs_of_one_size(atol(argv[2]), 1 << 20);
		return 0;
	}
	printf("ns for a malloc+free pair (wall time over pairs of one thread)\n");
	printf("%-26s %10s %10s %10s\n", "", "1 thread", "4 threads", "16 threads");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		printf("%-26s", rows[i].name);
		for (int t = 0; t < 3; t++)
			printf(" %10.0f", measure(rows[i].job, threads[t]));
		printf("\n");
	}
	return 0;
}
