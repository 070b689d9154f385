/* SPDX-License-Identifier: MIT */
/*
 * bench_pool.c - what a malloc+free pair of the pool itself costs, over a driver
 * whose fences cost nothing and a device that is always done, on 1, 2, 4 and 16
 * threads; and how many driver calls it takes.
 *
 *   meson test -C build --benchmark --verbose
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../pool/check/check.h"
#include "../../pool/pool.h"

enum { THREADS_MAX = 16 };

struct job {
	const char *name;
	void (*body)(const struct job *job, int thread);
	long pairs; /* of each thread */
	uint64_t bytes;
};

struct cost {
	double wall_ns, cpu_ns; /* per pair of one thread */
};

static struct gcp_pools *pools;
static struct gcp_pool *pool;

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(int result)
{
	if (result != 0) {
		fprintf(stderr, "bench: result %d\n", result);
		exit(1);
	}
}

/* --- what threads do -------------------------------------------------------------- */

static void one_size(const struct job *job, int thread)
{
	gcp_addr addr;

	(void)thread;
	for (long i = 0; i < job->pairs; i++) {
		must(gcp_pool_alloc(pool, job->bytes, &addr));
		must(gcp_pools_free(pools, addr));
	}
}

static void mixed_sizes(const struct job *job, int thread)
{
	unsigned random = 12345u + (unsigned)thread;
	gcp_addr live[64] = {0};

	for (long i = 0; i < job->pairs; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1103515245 + 12345) >> 16 & 63];

		if (*slot)
			must(gcp_pools_free(pools, *slot));
		random = random * 1103515245 + 12345;
		must(gcp_pool_alloc(pool, 1 + (uint64_t)(random >> 8) % job->bytes,
				    slot));
	}
	for (int i = 0; i < 64; i++)
		if (live[i])
			must(gcp_pools_free(pools, live[i]));
}

/* Between 512 bytes and the job's, each power of two as often: as in peers.cpp. */
static uint64_t power_size(unsigned *random, uint64_t most)
{
	uint64_t power = 512;

	*random = *random * 1664525u + 1013904223u;
	for (unsigned top = (*random >> 8) % 14; top && power < most; top--)
		power *= 2;
	*random = *random * 1664525u + 1013904223u;
	return power + (*random >> 8) % power;
}

static void mixed_powers(const struct job *job, int thread)
{
	unsigned random = 1u + (unsigned)thread;
	gcp_addr live[64] = {0};

	for (long i = 0; i < job->pairs; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1664525u + 1013904223u) >> 8 & 63];
		uint64_t bytes = power_size(&random, job->bytes);

		if (*slot)
			must(gcp_pools_free(pools, *slot));
		must(gcp_pool_alloc(pool, bytes, slot));
	}
	for (int i = 0; i < 64; i++)
		if (live[i])
			must(gcp_pools_free(pools, live[i]));
}

/* Threads in pairs: the even one allocates, the odd one frees. */
enum { RING = 64 };

static struct ring {
	_Alignas(128) _Atomic long head; /* allocated; written by the even one */
	_Alignas(128) _Atomic long tail; /* freed; written by the odd one */
	gcp_addr addrs[RING];
} rings[THREADS_MAX / 2];

static void wait_while(_Atomic long *mark, long value)
{
	for (int turn = 0; atomic_load_explicit(mark, memory_order_acquire) == value;
	     turn++)
		if (turn > 100)
			sched_yield();
}

static void produce(const struct job *job, struct ring *ring)
{
	for (long i = 0; i < job->pairs; i++) {
		wait_while(&ring->tail, i - RING);
		must(gcp_pool_alloc(pool, job->bytes, &ring->addrs[i % RING]));
		atomic_store_explicit(&ring->head, i + 1, memory_order_release);
	}
}

static void consume(const struct job *job, struct ring *ring)
{
	for (long i = 0; i < job->pairs; i++) {
		wait_while(&ring->head, i);
		must(gcp_pools_free(pools, ring->addrs[i % RING]));
		atomic_store_explicit(&ring->tail, i + 1, memory_order_release);
	}
}

static void producer_or_consumer(const struct job *job, int thread)
{
	if (thread % 2 == 0)
		produce(job, &rings[thread / 2]);
	else
		consume(job, &rings[thread / 2]);
}

static const struct job jobs[] = {
    {"512", one_size, 1000000, 512},
    {"64k", one_size, 1000000, 64 << 10},
    {"1m", one_size, 1000000, 1 << 20},
    {"5m", one_size, 300000, 5 << 20},
    {"32m", one_size, 300000, 32 << 20},
    {"mixed-64k", mixed_sizes, 500000, 64 << 10},
    {"mixed-1m", mixed_sizes, 500000, 1 << 20},
    {"mixed-16m", mixed_sizes, 200000, 16 << 20},
    {"powers-8m", mixed_powers, 300000, 8 << 20},
    {"pass-512", producer_or_consumer, 500000, 512},
    {"pass-64k", producer_or_consumer, 500000, 64 << 10},
    {"pass-1m", producer_or_consumer, 500000, 1 << 20},
    {0},
};

static bool passes(const struct job *job)
{
	return job->body == producer_or_consumer;
}

/* --- measuring -------------------------------------------------------------------- */

struct worker {
	pthread_t id;
	const struct job *job;
	int thread;
};

static void *work(void *arg)
{
	const struct worker *worker = arg;

	worker->job->body(worker->job, worker->thread);
	gcp_pools_thread_exit(pools);
	return NULL;
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct cost run(const struct job *job, int threads)
{
	struct worker workers[THREADS_MAX];
	uint64_t wall = clock_ns(), cpu = cpu_ns();
	/* A pair of threads does one malloc and one free for each of its pairs. */
	double pairs = (double)job->pairs * (passes(job) ? threads / 2 : threads);

	memset(rings, 0, sizeof(rings));
	for (int i = 0; i < threads; i++) {
		workers[i] = (struct worker){.job = job, .thread = i};
		pthread_create(&workers[i].id, NULL, work, &workers[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].id, NULL);
	return (struct cost){
	    .wall_ns = (double)(clock_ns() - wall) / (double)job->pairs,
	    .cpu_ns = (double)(cpu_ns() - cpu) / pairs,
	};
}

/* Best of five: the machine is shared, and noise only adds. */
static struct cost run_best(const struct job *job, int threads)
{
	struct cost best = {1e30, 1e30};

	for (int repeat = 0; repeat < 5; repeat++) {
		struct cost cost = run(job, threads);

		best.wall_ns =
		    cost.wall_ns < best.wall_ns ? cost.wall_ns : best.wall_ns;
		best.cpu_ns = cost.cpu_ns < best.cpu_ns ? cost.cpu_ns : best.cpu_ns;
	}
	return best;
}

/* --- a driver whose fences cost nothing ------------------------------------------ */

/* What cudaMalloc and cudaFree cost at least. */
static void driver_takes_its_time(void)
{
	uint64_t end = clock_ns() + 60 * 1000;

	while (clock_ns() < end)
		;
}

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	static _Atomic uint64_t next = 1ull << 32;

	(void)ctx;
	driver_takes_its_time();
	*ret_addr = atomic_fetch_add(&next, (bytes + 0x1fffff) & ~0x1fffffull);
	return 0;
}

static int mem_free(void *ctx, gcp_addr addr)
{
	(void)ctx, (void)addr;
	driver_takes_its_time();
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

static void fence_destroy(void *fence)
{
	(void)fence;
}

static int fence_record(void *ctx, void *fence)
{
	(void)ctx, (void)fence;
	return 0;
}

static int fence_order(void *fence, bool alone)
{
	(void)fence, (void)alone;
	return 0;
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

static const struct gcp_driver free_driver = {
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_trim = mem_trim,
    .fence_create = fence_create,
    .fence_destroy = fence_destroy,
    .fence_discard = fence_destroy,
    .fence_record = fence_record,
    .fence_order = fence_order,
    .fence_query = fence_done,
    .fence_wait = fence_done,
    .ctx_sync = ctx_sync,
    .third_party_writers = no_third_party,
    .clock_ns = clock_ns,
};

static void pools_make(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	must(gcp_pools_create(&config, &free_driver, &pools));
	must(gcp_pool_get(pools, (void *)0x1000, 0, &pool));
}

/* --- the table -------------------------------------------------------------------- */

static void row(const struct job *job)
{
	static const int threads[] = {1, 2, 4, 16};
	struct gcp_stats stats;

	pools_make();
	printf("%-10s", job->name);
	for (int i = 0; i < 4; i++) {
		if (threads[i] == 1 && passes(job)) {
			printf("      -     -");
			continue;
		}
		struct cost cost = run_best(job, threads[i]);

		printf(" %6.0f %5.0f", cost.wall_ns, cost.cpu_ns);
	}
	must(gcp_pools_stats(pools, 0, &stats));
	double frees = (double)stats.allocation.freed / 1000;
	printf("  %6.2f %6.2f %6.2f %6.2f %6.0f\n",
	       (double)stats.fence_record.count / frees,
	       (double)stats.fence_query.count / frees,
	       (double)stats.fence_order.count / frees,
	       (double)stats.mem_alloc.count / frees,
	       (double)stats.reserved_bytes.peak / (1 << 20));
	gcp_pools_destroy(pools);
}

int main(void)
{
	printf("malloc+free in the pool: wall time, and CPU time of all threads, in ns "
	       "per pair;\ndriver calls per 1,000 frees; MiB reserved at most\n");
	printf("%-10s %12s %12s %12s %12s  %6s %6s %6s %6s %6s\n", "", "1 thread",
	       "2 threads", "4 threads", "16 threads", "fences", "polls", "order",
	       "alloc", "MiB");
	for (const struct job *job = jobs; job->name; job++)
		row(job);
	return 0;
}
