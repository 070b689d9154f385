/* SPDX-License-Identifier: MIT */
/*
 * streams.h - how the rooms name streams and their contexts.
 */
#ifndef GCP_INTERPOSE_STREAMS_H
#define GCP_INTERPOSE_STREAMS_H

#include "../base/process.h"
#include "resolve.h"

/* With the per-thread default stream, the null handle means that one. */
static inline __attribute__((always_inline)) CUstream gcp_stream_named(CUstream stream,
								       bool per_thread)
{
	return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* The number under which pool/ counts the stream. */
static inline __attribute__((always_inline)) uintptr_t
gcp_stream_number(CUstream stream, bool per_thread)
{
	uintptr_t name = (uintptr_t)stream;

	if (__builtin_expect(name > 2, 1))
		return name;
	return gcp_stream_named(stream, per_thread) ==
		       CU_STREAM_PER_THREAD /* a default */
		   ? (uintptr_t)&gcp_thread
		   : 0;
}

/* Whether pool/ knows that the program works on the stream. */
static inline __attribute__((always_inline)) bool gcp_stream_is_seen(CUstream stream,
								     bool per_thread)
{
	uint32_t bit = gcp_stream_bit(gcp_stream_number(stream, per_thread));
	const _Atomic uint64_t *seen =
	    atomic_load_explicit(&gcp_watch.streams, memory_order_acquire);

	return atomic_load_explicit(seen, memory_order_relaxed) >> bit & 1;
}

/* Notes that the program uses the stream: a hint of how many there are. `stream` as
 * gcp_stream_named gives it. */
static inline void gcp_stream_seen(CUstream stream)
{
	if (__builtin_expect(!gcp_stream_is_seen(stream, false), 0))
		gcp_pools_stream_used(gcp_process.pools,
				      gcp_stream_number(stream, false));
}

/* Before the calling thread gives work to a stream, named as above; eager: the work is
 * not captured. Only while pooling. */
static inline void gcp_stream_work_given(CUstream stream, bool eager)
{
	assert(gcp_process_pooling());
	gcp_thread.stream.stream = stream;
	gcp_thread.stream.eager = eager;
	gcp_thread.stream.gone = gcp_tracker_streams_gone(gcp_process.tracker);
	gcp_thread.stream.begun = gcp_tracker_captures_begun(gcp_process.tracker);
}

/* Whether a stream can take part in a capture: the legacy stream cannot. */
static inline bool gcp_stream_capturable(CUstream stream)
{
	return stream && stream != CU_STREAM_LEGACY;
}

/* Asks CUDA whether the stream takes part in a capture, validly or not. */
static inline CUresult gcp_stream_capture_ask(CUstream stream, bool *ret_captures)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = gcp_real.cuStreamIsCapturing(stream, &status);

	*ret_captures =
	    result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
}

/* Returns true if it says so. */
static inline bool gcp_stream_captures(CUstream stream)
{
	bool captures = false;

	return gcp_stream_capturable(stream) &&
	       gcp_stream_capture_ask(stream, &captures) == CUDA_SUCCESS && captures;
}

/* The context of a stream, which is not always the current one: what begins
 * under one may end under another. `stream` as gcp_stream_named gives it;
 * special handles have no context of their own. NULL: none is current. */
static inline CUresult gcp_stream_context_ask(CUstream stream, CUcontext *ret_ctx)
{
	return (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD
		   ? gcp_real.cuStreamGetCtx(stream, ret_ctx)
		   : gcp_real.cuCtxGetCurrent(ret_ctx);
}

/* The same, or the current one if CUDA does not say. NULL: none. */
static inline CUcontext gcp_stream_context(CUstream stream)
{
	CUcontext ctx = NULL;

	if (gcp_stream_context_ask(stream, &ctx) != CUDA_SUCCESS)
		(void)gcp_real.cuCtxGetCurrent(&ctx);
	return ctx;
}

/* --- submissions.c ---------------------------------------------------------------- */

/* The calling thread is about to submit work to a stream of these, while captures are
 * under way. It is counted as eager or as captured. Another result than 0: the program
 * gets that, and the work is not submitted. */
CUresult gcp_stream_submits(CUstream stream);
/* Work that is not captured. NULL: it cannot be, or nothing is known of it. */
void gcp_stream_submits_eagerly(CUstream stream);
/* A call that may do anything: eager work, captured work, a change of the order. */
void gcp_stream_submits_unknown(void);

/* --- cuda_capture.c --------------------------------------------------------------- */

/* The real driver as capture/ wants to see it. */
void gcp_driver_fill_capture(struct gcp_capture_driver *ret_driver);

#endif
