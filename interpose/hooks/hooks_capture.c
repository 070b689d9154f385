/* SPDX-License-Identifier: MIT */
/*
 * hooks_capture.c - the hooks that tell capture/ where a capture begins, ends, and may
 * fork or join, when the program takes a captured graph into its own hands, and when a
 * stream ends. While no capture is under way each costs a few loads. An event, where a
 * new branch may begin, is told before the real call: afterwards another thread might
 * still rely on the old order. The real calls are made here, in the caller's own
 * context and capture mode, and their results go back untouched.
 */
#include <string.h>

#include "hooks.h"
#include "../process/process_life.h"
#include "../cuda/streams.h"
#include "../cuda/call.h"
#include "../observe/observer.h"

/* --- events --------------------------------------------------------------- */

/* Records or awaits an event. One that is recorded with CU_EVENT_RECORD_EXTERNAL
 * becomes a node and keeps its earlier meaning, too: the capture's order is unknown
 * from then on.
 */
CUresult gcp_event_call(const struct gcp_call_words *words)
{
	CUstream stream = words->stream;
	bool waits = strstr(words->base, "Wait");
	bool external = strstr(words->base, "WithFlags") &&
			(words->at[2] & CU_EVENT_RECORD_EXTERNAL);
	bool captures =
	    gcp_process_capturing() && !external && gcp_stream_capturable(stream);
	CUevent event = GCP_WORD(words, waits ? 1 : 0);
	CUresult result;

	assert(words->in_stream);
	gcp_stream_seen(stream);
	if (external && gcp_process_capturing())
		gcp_tracker_order_unknown(gcp_process.tracker, false);
	if (captures)
		gcp_stream_work_given(stream, false);
	if (captures && !waits)
		gcp_tracker_event_recording(gcp_process.tracker, stream, event);
	result = gcp_words_call(words);
	return captures && waits && result == CUDA_SUCCESS
		   ? (CUresult)gcp_tracker_joined(gcp_process.tracker, stream, event)
		   : result;
}

/* --- by hand -------------------------------------------------------------- */

static void graph_given(CUstream stream, bool per_thread, bool set)
{
	CUstream named = gcp_stream_named(stream, per_thread);

	if (gcp_process_capturing())
		gcp_tracker_graph_given(gcp_process.tracker, named, set);
}

/* A caller that asks only whether a stream captures, as most do, changes nothing. */
static CUresult queried(CUresult result, CUstream stream, bool per_thread,
			const CUstreamCaptureStatus *status, bool given)
{
	if (result == CUDA_SUCCESS && given &&
	    *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		graph_given(stream, per_thread, false);
	return result;
}

/* --- begin -------------------------------------------------------------------- */

_Static_assert((int)GCP_CAPTURE_GLOBAL == (int)CU_STREAM_CAPTURE_MODE_GLOBAL, "cuda.h");
_Static_assert((int)GCP_CAPTURE_THREAD_LOCAL ==
		   (int)CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	       "cuda.h");
_Static_assert((int)GCP_CAPTURE_RELAXED == (int)CU_STREAM_CAPTURE_MODE_RELAXED,
	       "cuda.h");

/* A context must stand behind all barriers before it captures: afterwards it
 * cannot be made to wait. A capture that cannot be followed, because the host has no
 * memory for our records, must not begin. Where in a graph one begins is the program's
 * to say: maybe beside work that has used what has been freed since; and it may add
 * work itself. The thread does not end by pthread_cancel meanwhile: fences would be
 * held off permanently. */
CUresult gcp_begin_call(const struct gcp_call_words *words)
{
	CUstream stream = words->stream;
	bool into = strstr(words->base, "ToGraph");
	int mode = into ? (int)words->at[5] : (int)CU_STREAM_CAPTURE_MODE_GLOBAL;
	struct gcp_capture *capture = NULL;
	CUcontext ctx = NULL;
	CUresult result;
	GCP_CANCEL_LATER;

	assert(words->in_stream);
	if (strstr(words->name, "_v2") || strstr(words->base, "Recapture"))
		mode = (int)words->at[1];
	if (gcp_process_started_mode() == GCP_RUN_POOL) {
		ctx = gcp_stream_context(stream);
		gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);
		if (gcp_tracker_begin_prepare(gcp_process.tracker, into, &capture) != 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		assert(capture); /* C3: never begun and not counted */
	}
	result = gcp_words_call(words);
	if (capture)
		gcp_tracker_begin_done(gcp_process.tracker, capture, ctx, stream,
				       (enum gcp_capture_mode)mode, (int)result);
	if (capture && result == CUDA_SUCCESS) {
		gcp_observe_call(GCP_TRACE_capture_begin, 0, 0, (uintptr_t)stream,
				 (uint32_t)mode);
		/* What the stream did before says nothing now. */
		gcp_stream_work_given(NULL, false);
	}
	if (into && result == CUDA_SUCCESS && gcp_process_capturing())
		gcp_tracker_order_unknown(gcp_process.tracker, false);
	return result;
}

/* --- end ---------------------------------------------------------------------- */

/* Tells from CUDA's answer whether it ended the capture. Other errors say that the
 * stream has begun none, or leave it as it is. */
static enum gcp_end end_of(CUresult result)
{
	if (result == CUDA_SUCCESS)
		return GCP_END_SURE;
	return result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
		       result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED ||
		       result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
		   ? GCP_END_LOST
		   : GCP_END_REFUSED;
}

static CUresult capture_end(CUresult (*real)(CUstream, CUgraph *), CUstream stream,
			    bool per_thread, CUgraph *ret_graph)
{
	CUstream named = gcp_stream_named(stream, per_thread);
	CUresult result;
	uint64_t number;

	if (!gcp_process_pooling())
		return real(stream, ret_graph);
	GCP_CANCEL_LATER;
	CUcontext ctx = gcp_stream_context(named);
	number = gcp_tracker_end_prepare(gcp_process.tracker, ctx, named);
	result = real(stream, ret_graph);
	gcp_tracker_end_done(gcp_process.tracker, ctx, named, number, end_of(result));
	gcp_observe_call(GCP_TRACE_capture_end, 0, 0, (uintptr_t)named, result);
	return result;
}

static CUresult stream_destroy(CUresult (*real)(CUstream), CUstream stream)
{
	bool capturing = stream && gcp_process_capturing();
	CUcontext ctx = capturing ? gcp_stream_context(stream) : NULL;
	uint64_t number = 0;
	GCP_CANCEL_LATER;

	if (stream && gcp_process_pooling())
		number = gcp_tracker_stream_ending(gcp_process.tracker, ctx, stream);
	CUresult result = real(stream);
	assert(!number || ctx); /* C4 */
	if (number)
		gcp_tracker_end_done(gcp_process.tracker, ctx, stream, number,
				     result ? GCP_END_REFUSED : GCP_END_GONE);
	return result;
}

/* --- the hooks ---------------------------------------------------------------- */

#define HOOK_cuStreamUpdateCaptureDependencies(real, call, twin)                       \
	(graph_given(stream, twin, flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES), call)
#define HOOK_cuStreamGetCaptureInfo(real, call, twin)                                  \
	queried(call, stream, twin, ret_status, ret_graph || ret_nodes)
#define HOOK_cuGraphDestroyNode(real, call, twin)                                      \
	(gcp_process_capturing() ? gcp_tracker_node_gone(gcp_process.tracker, node)    \
				 : (void)0,                                            \
	 call)
#define HOOK_cuStreamEndCapture(real, call, twin)                                      \
	capture_end(real, stream, twin, ret_graph)
#define HOOK_cuStreamDestroy(real, call, twin) stream_destroy(real, stream)
GCP_HOOKS_CAPTURES(GCP_HOOK)
