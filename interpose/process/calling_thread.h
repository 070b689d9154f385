/* SPDX-License-Identifier: MIT */
/*
 * calling_thread.h - what the library keeps of the calling thread: the pool of its
 * current context, and that its end will be noticed.
 */
#ifndef GCP_INTERPOSE_CALLING_THREAD_H
#define GCP_INTERPOSE_CALLING_THREAD_H

#include "../cuda/contexts.h"
#include "../base/process.h"
#include "../cuda/resolve.h"

/* Once, before any of the following: `ended` runs at the end of each thread that is
 * watched. */
void gcp_thread_exit_watch(void (*ended)(void *));

/* The end of the calling thread will be noticed: what it caches goes back. */
void gcp_thread_watch(void);

/* The pool of a context, of its home and device, made at the first call. 0; else its
 * allocations pass through (-EBUSY: for now). The library's thread is started, and the
 * device's name known, if these are wanted. */
int gcp_thread_pool_of(CUcontext ctx, CUcontext *ret_home, int *ret_device,
		       struct gcp_pool **ret_pool);

/* The slow half of gcp_thread_pool. */
struct gcp_pool *gcp_thread_pool_find(CUcontext ctx);

/* The pool of the current context, made at the first call. NULL: no context is
 * current, or its allocations pass through. Only in GCP_RUN_POOL. */
static inline struct gcp_pool *gcp_thread_pool(void)
{
	CUcontext ctx = NULL;

	if (gcp_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
		return NULL;
	if (gcp_thread.ctx == ctx && gcp_thread.generation == gcp_contexts_now())
		return gcp_thread.pool;
	return gcp_thread_pool_find(ctx);
}

/* Starts the optional thread (poller.c), once; later calls cost a load. Only in
 * GCP_RUN_POOL. */
void gcp_poller_start(void);

#endif
