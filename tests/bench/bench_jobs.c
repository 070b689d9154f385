/* SPDX-License-Identifier: MIT */
/*
 * bench_jobs.c - see bench_jobs.h.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_jobs.h"

struct gcp_pools *bench_pools;
static struct gcp_pool *pool;

uint64_t bench_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_must(int result)
{
	if (result != 0) {
		fprintf(stderr, "bench: result %d\n", result);
		exit(1);
	}
}

/* --- what threads do -------------------------------------------------------------- */

static void one_size(const struct bench_job *job, int thread)
{
	gcp_addr addr;

	(void)thread;
	for (long i = 0; i < job->pairs; i++) {
		bench_must(gcp_pool_alloc(pool, job->bytes, &addr));
		bench_must(gcp_pools_free(bench_pools, addr));
	}
}

static void mixed_sizes(const struct bench_job *job, int thread)
{
	unsigned random = 12345u + (unsigned)thread;
	gcp_addr live[64] = {0};

	for (long i = 0; i < job->pairs; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1103515245 + 12345) >> 16 & 63];

		if (*slot)
			bench_must(gcp_pools_free(bench_pools, *slot));
		random = random * 1103515245 + 12345;
		bench_must(gcp_pool_alloc(
		    pool, 1 + (uint64_t)(random >> 8) % job->bytes, slot));
	}
	for (int i = 0; i < 64; i++)
		if (live[i])
			bench_must(gcp_pools_free(bench_pools, live[i]));
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

static void mixed_powers(const struct bench_job *job, int thread)
{
	unsigned random = 1u + (unsigned)thread;
	gcp_addr live[64] = {0};

	for (long i = 0; i < job->pairs; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1664525u + 1013904223u) >> 8 & 63];
		uint64_t bytes = power_size(&random, job->bytes);

		if (*slot)
			bench_must(gcp_pools_free(bench_pools, *slot));
		bench_must(gcp_pool_alloc(pool, bytes, slot));
	}
	for (int i = 0; i < 64; i++)
		if (live[i])
			bench_must(gcp_pools_free(bench_pools, live[i]));
}

/* Threads in pairs: the even one allocates, the odd one frees. */
enum { RING = 64 };

static struct ring {
	_Alignas(128) _Atomic long head; /* allocated; written by the even one */
	_Alignas(128) _Atomic long tail; /* freed; written by the odd one */
	gcp_addr addrs[RING];
} rings[BENCH_THREADS_MAX / 2];

static void wait_while(_Atomic long *mark, long value)
{
	for (int turn = 0; atomic_load_explicit(mark, memory_order_acquire) == value;
	     turn++)
		if (turn > 100)
			sched_yield();
}

static void produce(const struct bench_job *job, struct ring *ring)
{
	for (long i = 0; i < job->pairs; i++) {
		wait_while(&ring->tail, i - RING);
		bench_must(gcp_pool_alloc(pool, job->bytes, &ring->addrs[i % RING]));
		atomic_store_explicit(&ring->head, i + 1, memory_order_release);
	}
}

static void consume(const struct bench_job *job, struct ring *ring)
{
	for (long i = 0; i < job->pairs; i++) {
		wait_while(&ring->head, i);
		bench_must(gcp_pools_free(bench_pools, ring->addrs[i % RING]));
		atomic_store_explicit(&ring->tail, i + 1, memory_order_release);
	}
}

static void producer_or_consumer(const struct bench_job *job, int thread)
{
	if (thread % 2 == 0)
		produce(job, &rings[thread / 2]);
	else
		consume(job, &rings[thread / 2]);
}

const struct bench_job bench_jobs[] = {
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

const struct bench_job *bench_job_find(const char *name)
{
	for (const struct bench_job *job = bench_jobs; job->name; job++)
		if (strcmp(job->name, name) == 0)
			return job;
	return NULL;
}

bool bench_job_passes(const struct bench_job *job)
{
	return job->body == producer_or_consumer;
}

void bench_pools_make(const struct gcp_driver *driver)
{
	struct gcp_config config;

	if (driver->vm_reserve)
		gcp_config_default_mapped(&config);
	else
		gcp_config_default(&config);
	bench_must(gcp_pools_create(&config, driver, &bench_pools));
	bench_must(gcp_pool_get(bench_pools, (void *)0x1000, 0, &pool));
}

/* --- measuring -------------------------------------------------------------------- */

struct worker {
	pthread_t id;
	const struct bench_job *job;
	int thread;
};

static void *work(void *arg)
{
	const struct worker *worker = arg;

	worker->job->body(worker->job, worker->thread);
	gcp_pools_thread_exit(bench_pools);
	return NULL;
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct bench_cost bench_run(const struct bench_job *job, int threads)
{
	struct worker workers[BENCH_THREADS_MAX];
	uint64_t wall = bench_clock_ns(), cpu = cpu_ns();
	/* A pair of threads does one malloc and one free for each of its pairs. */
	double pairs =
	    (double)job->pairs * (bench_job_passes(job) ? threads / 2 : threads);

	memset(rings, 0, sizeof(rings));
	for (int i = 0; i < threads; i++) {
		workers[i] = (struct worker){.job = job, .thread = i};
		pthread_create(&workers[i].id, NULL, work, &workers[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(workers[i].id, NULL);
	return (struct bench_cost){
	    .wall_ns = (double)(bench_clock_ns() - wall) / (double)job->pairs,
	    .cpu_ns = (double)(cpu_ns() - cpu) / pairs,
	};
}

struct bench_cost bench_run_best(const struct bench_job *job, int threads)
{
	struct bench_cost best = {1e30, 1e30};

	for (int repeat = 0; repeat < 5; repeat++) {
		struct bench_cost cost = bench_run(job, threads);

		best.wall_ns =
		    cost.wall_ns < best.wall_ns ? cost.wall_ns : best.wall_ns;
		best.cpu_ns = cost.cpu_ns < best.cpu_ns ? cost.cpu_ns : best.cpu_ns;
	}
	return best;
}

/* --- a driver without costs ------------------------------------------------------- */

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	static _Atomic uint64_t next = 1ull << 32;

	(void)ctx;
	*ret_addr = atomic_fetch_add(&next, (bytes + 0x1fffff) & ~0x1fffffull);
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

const struct gcp_driver bench_free_driver = {
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
    .clock_ns = bench_clock_ns,
};
