/* SPDX-License-Identifier: MIT */
/*
 * process_life.h - when the library starts, and how it stays out of the way at
 * fork, thread exit and process exit.
 */
#ifndef GCP_INTERPOSE_PROCESS_LIFE_H
#define GCP_INTERPOSE_PROCESS_LIFE_H

#include "contexts.h"
#include "process.h"
#include "resolve.h"

/* Sets everything up at the first allocation; returns the new run mode, which is
 * never GCP_RUN_FRESH. */
enum gcp_run_mode gcp_process_start(void);

/* The run mode, for hooks that allocate. */
static inline enum gcp_run_mode gcp_process_started_mode(void)
{
	enum gcp_run_mode mode = gcp_process_run_mode();

	return mode == GCP_RUN_FRESH ? gcp_process_start() : mode;
}

/* The end of the calling thread will be noticed: what it caches goes back. */
void gcp_process_watch_thread(void);

/* The slow half of gcp_process_pool. */
struct gcp_pool *gcp_process_pool_find(CUcontext ctx);

/* The pool of the current context, made at the first call. NULL: no context is
 * current, or its allocations pass through. Only in GCP_RUN_POOL. */
static inline struct gcp_pool *gcp_process_pool(void)
{
	CUcontext ctx = NULL;

	if (gcp_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
		return NULL;
	if (gcp_thread.ctx == ctx &&
	    gcp_thread.generation ==
		atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire))
		return gcp_thread.pool;
	return gcp_process_pool_find(ctx);
}

/* Asks CUDA for the name of the device, for the statistics, if they are wanted: at
 * exit it is too late. */
void gcp_life_note_gpu(int device);

/* Once libcuda is in the process: from now on a fork matters. */
void gcp_process_watch_forks(void);

#endif
