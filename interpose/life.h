/*
 * life.h - when the library comes to life, and how it stays out of the way at
 * fork, thread exit and process exit.
 */
#ifndef GCP_INTERPOSE_LIFE_H
#define GCP_INTERPOSE_LIFE_H

#include "contexts.h"
#include "process.h"
#include "resolve.h"
#include "thread.h"

/* Sets everything up at the first allocation; returns the new state, which is
 * never GCP_STATE_FRESH. */
enum gcp_state gcp_life_start(void);

/* The state, for hooks that allocate. */
static inline enum gcp_state gcp_life_state(void)
{
	enum gcp_state state = gcp_process_state();

	return state == GCP_STATE_FRESH ? gcp_life_start() : state;
}

/* The end of the calling thread will be noticed: what it caches goes back. */
void gcp_life_watch_thread(void);

/* The slow half of gcp_life_pool. */
struct gcp_pool *gcp_life_pool_find(CUcontext ctx);

/* The pool of the current context, made at the first call. NULL: no context is
 * current, or its allocations pass through. Only in GCP_STATE_POOL. */
static inline struct gcp_pool *gcp_life_pool(void)
{
	CUcontext ctx = NULL;

	if (gcp_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
		return NULL;
	if (gcp_thread.ctx == ctx &&
	    gcp_thread.generation ==
		atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire))
		return gcp_thread.pool;
	return gcp_life_pool_find(ctx);
}

/* Once libcuda is in the process: from now on a fork matters. */
void gcp_life_watch_forks(void);

#endif
