/* SPDX-License-Identifier: MIT */
/*
 * streams.h - how the rooms name streams and their contexts.
 */
#ifndef GCP_INTERPOSE_STREAMS_H
#define GCP_INTERPOSE_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "process.h"
#include "resolve.h"
#include "thread.h"

/* With the per-thread default stream, the null handle means that one. */
static inline CUstream gcp_stream_named(CUstream stream, bool per_thread)
{
	return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* Tells pool/ that the program works on a stream, named as above: a hint of how
 * many there are. Only while pooling. */
static inline void gcp_stream_used(CUstream stream)
{
	uintptr_t name = (uintptr_t)stream;

	if (stream == CU_STREAM_LEGACY)
		name = 0;
	else if (stream == CU_STREAM_PER_THREAD)
		name = (uintptr_t)&gcp_thread;
	gcp_pools_stream_used(gcp_process.pools, name);
}

/* Before the calling thread gives work to it. Only while pooling. */
static inline void gcp_stream_work_given(CUstream stream)
{
	gcp_thread.stream.stream = stream;
	gcp_thread.stream.gone = gcp_tracker_streams_gone(gcp_process.tracker);
}

/* Whether a stream can take part in a capture: the legacy stream cannot. */
static inline bool gcp_stream_capturable(CUstream stream)
{
	return stream && stream != CU_STREAM_LEGACY;
}

/* The context of a stream, which is not always the current one: what begins
 * under one may end under another. `stream` as gcp_stream_named gives it;
 * special handles have no context of their own. NULL: none. */
static inline CUcontext gcp_stream_context(CUstream stream)
{
	CUcontext ctx = NULL;

	if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD &&
	    gcp_real.cuStreamGetCtx(stream, &ctx) == CUDA_SUCCESS)
		return ctx;
	return gcp_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

#endif
