/* SPDX-License-Identifier: MIT */
/*
 * bench_slow.c - how often malloc+free leaves the fast path when sixteen threads are
 * at it, over a driver whose calls cost what a real one's do, one at a time, and a
 * device that reaches a fence some microseconds after it was recorded. The counts say
 * why threads stand in each other's way also on a machine with few cores; the times
 * want a machine with as many cores as threads.
 *
 *   meson test -C build --benchmark --verbose
 *   bench_slow [--mapped] [CASE THREADS PAIRS [LAG_NS]]: mapped memory; only that, once
 *
 * The functions are counted where one file of the pool calls another (--wrap).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../pool/cache/cache.h"
#include "../../pool/check/check.h"
#include "bench_jobs.h"
#include "replay_space.h"

/* --- a driver with costs -------------------------------------------------- */

enum { RECORD_NS = 200, QUERY_NS = 170, ORDER_NS = 150, LAG_NS = 5000 };

static uint64_t lag_ns = LAG_NS;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

struct fence {
	_Atomic uint64_t done_at; /* ns */
};

static void burn(uint64_t ns)
{
	uint64_t until;

	pthread_mutex_lock(&driver_lock);
	until = bench_clock_ns() + ns;
	while (bench_clock_ns() < until)
		;
	pthread_mutex_unlock(&driver_lock);
}

static int fence_create(void *ctx, void **ret_fence)
{
	(void)ctx;
	*ret_fence = calloc(1, sizeof(struct fence));
	return *ret_fence ? 0 : -ENOMEM;
}

static void fence_destroy(void *fence)
{
	free(fence);
}

static int fence_record(void *ctx, void *arg)
{
	struct fence *fence = arg;

	(void)ctx;
	burn(RECORD_NS);
	atomic_store(&fence->done_at, bench_clock_ns() + lag_ns);
	return 0;
}

static int fence_query(void *arg)
{
	struct fence *fence = arg;

	burn(QUERY_NS);
	return bench_clock_ns() < atomic_load(&fence->done_at) ? GCP_CUDA_NOT_READY : 0;
}

static int fence_order(void *fence, bool alone)
{
	(void)fence, (void)alone;
	burn(ORDER_NS);
	return 0;
}

static int fence_wait(void *arg)
{
	struct fence *fence = arg;

	while (bench_clock_ns() < atomic_load(&fence->done_at))
		;
	return 0;
}

static uint64_t device_memory(int device)
{
	(void)device;
	return 140ull << 30;
}

static struct gcp_driver driver;

/* Memory costs nothing. */
static void driver_make(void)
{
	driver = bench_free_driver;
	driver.fence_create = fence_create;
	driver.fence_destroy = driver.fence_discard = fence_destroy;
	driver.fence_record = fence_record;
	driver.fence_order = fence_order;
	driver.fence_query = fence_query;
	driver.fence_wait = fence_wait;
	driver.device_memory = device_memory;
}

/* --- what is counted ------------------------------------------------------ */

/* X(result, name, parameters, arguments, heading) */
#define COUNTED(X)                                                                     \
	X(struct gcp_block *, gcp_cache_take_slow,                                     \
	  (struct gcp_cache * cache, uint32_t size_class, uint64_t requested),         \
	  (cache, size_class, requested), "take")                                      \
	X(bool, gcp_cache_put_slow, (struct gcp_cache * cache, uint32_t size_class),   \
	  (cache, size_class), "put")                                                  \
	X(void, gcp_depot_put, (struct gcp_pool * pool, struct gcp_chain * chain),     \
	  (pool, chain), "depot")                                                      \
	X(int, gcp_alloc_slow,                                                         \
	  (const struct gcp_request *request, gcp_addr *ret_addr),                     \
	  (request, ret_addr), "slow")                                                 \
	X(struct gcp_block *, gcp_heap_take,                                           \
	  (struct gcp_heap * heap, uint64_t size, uint32_t size_class, bool fresh),    \
	  (heap, size, size_class, fresh), "heap-")                                    \
	X(void, gcp_heap_put, (struct gcp_heap * heap, struct gcp_block * block),      \
	  (heap, block), "heap+")                                                      \
	X(void, gcp_caches_flush, (struct gcp_pool * pool), (pool), "flush")           \
	X(void, gcp_remote_lock, (struct gcp_owner * own), (own), "remote")            \
	X(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex), "locks")

enum {
#define X(result, name, parameters, arguments, heading) COUNT_##name,
	COUNTED(X)
#undef X
	    COUNTS
};
static _Atomic uint64_t counts[COUNTS];

#define X(result, name, parameters, arguments, heading)                                \
	result __real_##name parameters;                                               \
	result __wrap_##name parameters;                                               \
	result __wrap_##name parameters                                                \
	{                                                                              \
		atomic_fetch_add_explicit(&counts[COUNT_##name], 1,                    \
					  memory_order_relaxed);                       \
		return __real_##name arguments;                                        \
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
COUNTED(X)
#pragma GCC diagnostic pop
#undef X

/* --- the table -------------------------------------------------------------------- */

static void header(void)
{
	printf("%-10s %6s %6s", "", "wall", "CPU");
#define X(result, name, parameters, arguments, heading) printf(" %6s", heading);
	COUNTED(X)
#undef X
	printf(" %6s %6s %6s %6s\n", "fences", "polls", "order", "MiB");
}

static void row(struct bench_job job, int threads)
{
	struct gcp_stats stats;

	bench_pools_make(&driver);
	struct bench_job warm = job;
	warm.pairs = job.pairs / 4 + 1;
	bench_run(&warm, threads);
	for (int i = 0; i < COUNTS; i++)
		atomic_store(&counts[i], 0);
	struct bench_cost cost = bench_run(&job, threads);
	double pairs =
	    (double)job.pairs * (bench_job_passes(&job) ? threads / 2 : threads) / 1000;
	printf("%-10s %6.0f %6.0f", job.name, cost.wall_ns, cost.cpu_ns);
	for (int i = 0; i < COUNTS; i++)
		printf(" %6.1f", (double)atomic_load(&counts[i]) / pairs);
	bench_must(gcp_pools_stats(bench_pools, 0, &stats));
	double frees = (double)stats.allocation.freed / 1000;
	printf(" %6.2f %6.2f %6.2f %6.0f\n", (double)stats.fence_record.count / frees,
	       (double)stats.fence_query.count / frees,
	       (double)stats.fence_order.count / frees,
	       (double)stats.reserved_bytes.peak / (1 << 20));
	gcp_pools_destroy(bench_pools);
}

static void reserved_change(int64_t bytes)
{
	(void)bytes;
}

int main(int argc, char **argv)
{
	const struct bench_job *job;

	driver_make();
	if (argc > 1 && strcmp(argv[1], "--mapped") == 0) {
		space_fill(&driver, reserved_change, burn);
		argc--;
		argv++;
	}
	if (argc >= 4) {
		struct bench_job one;

		job = bench_job_find(argv[1]);
		if (!job || atoi(argv[2]) < 1 || atoi(argv[2]) > BENCH_THREADS_MAX) {
			fprintf(stderr, "bench_slow: no such case\n");
			return 2;
		}
		if (argc > 4)
			lag_ns = (uint64_t)atoll(argv[4]);
		one = *job;
		one.pairs = atol(argv[3]);
		header();
		row(one, atoi(argv[2]));
		return 0;
	}
	printf(
	    "malloc+free on 16 threads over a driver with costs: wall and CPU time in "
	    "ns per pair;\nper 1,000 pairs: slow takes and puts of caches, batches "
	    "left for others, allocations\npast the cache, blocks from and to the "
	    "heap, flushes, remote locks, locks; driver calls per\n1,000 frees; MiB "
	    "reserved at most\n");
	header();
	for (job = bench_jobs; job->name; job++) {
		struct bench_job one = *job;

		one.pairs /= 50;
		row(one, BENCH_THREADS_MAX);
	}
	return 0;
}
