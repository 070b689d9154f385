/* SPDX-License-Identifier: MIT */
/*
 * bench_jobs.h - what the threads of bench_pool.c and bench_slow.c do, and how it is
 * measured; and a driver for those that measure the pool alone.
 */
#ifndef GCP_BENCH_JOBS_H
#define GCP_BENCH_JOBS_H

#include "../../pool/check/check.h"
#include "../../pool/pool.h"

enum { BENCH_THREADS_MAX = 16 };

struct bench_job {
	const char *name;
	void (*body)(const struct bench_job *job, int thread);
	long pairs; /* of each thread */
	uint64_t bytes;
};

struct bench_cost {
	double wall_ns, cpu_ns; /* per pair of one thread */
};

/* Ends with a job without a name. */
extern const struct bench_job bench_jobs[];
/* NULL: there is none of that name. */
const struct bench_job *bench_job_find(const char *name);
bool bench_job_passes(const struct bench_job *job);

/* Where jobs run, over `driver`: made anew for each row of a table, so that what one
 * leaves behind is not the next one's. Mapped, if the driver can. */
extern struct gcp_pools *bench_pools;
void bench_pools_make(const struct gcp_driver *driver);

struct bench_cost bench_run(const struct bench_job *job, int threads);
/* Best of five: the machine is shared, and noise only adds. */
struct bench_cost bench_run_best(const struct bench_job *job, int threads);

/* Calls that cost next to nothing, and a device that is always done. */
extern const struct gcp_driver bench_free_driver;

uint64_t bench_clock_ns(void);
/* Prints what went wrong and ends the process, unless `result` is 0. */
void bench_must(int result);

#endif
