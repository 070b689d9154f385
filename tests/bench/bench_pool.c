/* SPDX-License-Identifier: MIT */
/*
 * bench_pool.c - what a malloc+free pair of the pool itself costs, over a driver
 * whose fences cost nothing and a device that is always done, on 1, 2, 4 and 16
 * threads; and how many driver calls it takes.
 *
 *   meson test -C build --benchmark --verbose
 *   bench_pool CASE THREADS PAIRS [BEFORE]: only that, once, for callgrind to count;
 *                                 after BEFORE threads have left their mark
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_jobs.h"

/* What cudaMalloc and cudaFree cost at least. */
static void driver_takes_its_time(void)
{
	uint64_t end = bench_clock_ns() + 60 * 1000;

	while (bench_clock_ns() < end)
		;
}

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	driver_takes_its_time();
	return bench_free_driver.mem_alloc(ctx, bytes, ret_addr);
}

static int mem_free(void *ctx, gcp_addr addr)
{
	(void)ctx, (void)addr;
	driver_takes_its_time();
	return 0;
}

static void pools_make(void)
{
	struct gcp_driver driver = bench_free_driver;

	driver.mem_alloc = mem_alloc;
	driver.mem_free = mem_free;
	bench_pools_make(&driver);
}

/* --- the table -------------------------------------------------------------------- */

static void row(const struct bench_job *job)
{
	static const int threads[] = {1, 2, 4, 16};
	struct gcp_stats stats;

	pools_make();
	printf("%-10s", job->name);
	for (int i = 0; i < 4; i++) {
		if (threads[i] == 1 && bench_job_passes(job)) {
			printf("      -     -");
			continue;
		}
		struct bench_cost cost = bench_run_best(job, threads[i]);

		printf(" %6.0f %5.0f", cost.wall_ns, cost.cpu_ns);
	}
	bench_must(gcp_pools_stats(bench_pools, 0, &stats));
	double frees = (double)stats.allocation.freed / 1000;
	printf("  %6.2f %6.2f %6.2f %6.2f %6.0f\n",
	       (double)stats.fence_record.count / frees,
	       (double)stats.fence_query.count / frees,
	       (double)stats.fence_order.count / frees,
	       (double)stats.mem_alloc.count / frees,
	       (double)stats.reserved_bytes.peak / (1 << 20));
	gcp_pools_destroy(bench_pools);
}

/* `before`: so many threads had their turn before, and left the pool as large as
 * they needed it. */
/* `before`: so many threads had their turn before, and left the pool as large as
 * they needed it. */
static int run_one(const char *name, int threads, long pairs, int before)
{
	const struct bench_job *found = bench_job_find(name);
	struct gcp_stats stats;

	if (!found) {
		fprintf(stderr, "bench_pool: no case %s\n", name);
		return 2;
	}
	struct bench_job job = *found;
	pools_make();
	job.pairs = 20000;
	if (before > 0)
		(void)bench_run(&job, before);
	job.pairs = pairs;
	struct bench_cost cost = bench_run(&job, threads);
	bench_must(gcp_pools_stats(bench_pools, 0, &stats));
	printf("%.0f ns, %.0f ns of CPU\n", cost.wall_ns, cost.cpu_ns);
	printf("driver: %lu allocations, %lu frees, %lu fences, %lu queries, "
	       "%lu barriers; %lu MiB\n",
	       stats.mem_alloc.count, stats.mem_free.count, stats.fence_record.count,
	       stats.fence_query.count, stats.fence_order.count,
	       stats.reserved_bytes.peak >> 20);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && atoi(argv[2]) >= 1 && atoi(argv[2]) <= BENCH_THREADS_MAX)
		return run_one(argv[1], atoi(argv[2]), atol(argv[3]),
			       argc > 4 ? atoi(argv[4]) % (BENCH_THREADS_MAX + 1) : 0);
	printf("malloc+free in the pool: wall time, and CPU time of all threads, in ns "
	       "per pair;\ndriver calls per 1,000 frees; MiB reserved at most\n");
	printf("%-10s %12s %12s %12s %12s  %6s %6s %6s %6s %6s\n", "", "1 thread",
	       "2 threads", "4 threads", "16 threads", "fences", "polls", "order",
	       "alloc", "MiB");
	for (const struct bench_job *job = bench_jobs; job->name; job++)
		row(job);
	return 0;
}
