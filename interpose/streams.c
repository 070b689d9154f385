/*
 * streams.c - the hooks on stream captures and on the end of streams. They tell
 * capture/ what begins and ends; the real calls are made here, in the caller's
 * own context and capture mode, and their results go back untouched.
 */
#include "contexts.h"
#include "hooks.h"
#include "life.h"

/* With the per-thread default stream, the null handle means that one. */
static CUstream stream_named(CUstream stream, bool per_thread)
{
	return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* The context of a stream: what begins under one current context may end under
 * another. `stream` as stream_named gives it; special handles have no context
 * of their own. */
static CUcontext stream_context(CUstream stream)
{
	CUcontext ctx = NULL;

	if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD &&
	    gcp_real.cuStreamGetCtx &&
	    gcp_real.cuStreamGetCtx(stream, &ctx) == CUDA_SUCCESS)
		return ctx;
	return gcp_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

/* --- begin -------------------------------------------------------------------- */

struct gcp_begin {
	bool prepared;
	CUcontext ctx;
	CUstream stream;
};

/* A context must stand behind all barriers before it captures: afterwards it
 * cannot be made to wait. */
static struct gcp_begin capture_prepare(CUstream stream, bool per_thread)
{
	struct gcp_begin begin = {.stream = stream_named(stream, per_thread)};

	if (gcp_life_state() != GCP_STATE_POOL)
		return begin;
	begin.ctx = stream_context(begin.stream);
	gcp_contexts_seen(begin.ctx, GCP_CONTEXT_UNKNOWN);
	gcp_tracker_begin_prepare(gcp_process.tracker);
	begin.prepared = true;
	return begin;
}

static CUresult capture_begun(const struct gcp_begin *begin, CUstreamCaptureMode mode,
			      CUresult result)
{
	if (begin->prepared)
		gcp_tracker_begin_done(gcp_process.tracker, begin->ctx, begin->stream,
				       (enum gcp_capture_mode)mode, (int)result);
	return result;
}

_Static_assert((int)GCP_CAPTURE_GLOBAL == (int)CU_STREAM_CAPTURE_MODE_GLOBAL, "cuda.h");
_Static_assert((int)GCP_CAPTURE_THREAD_LOCAL ==
		   (int)CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	       "cuda.h");
_Static_assert((int)GCP_CAPTURE_RELAXED == (int)CU_STREAM_CAPTURE_MODE_RELAXED,
	       "cuda.h");

/* Between prepare and begun stands the real call, whatever its form. */
#define GCP_BEGIN(stream, per_thread, mode, call)                                      \
	struct gcp_begin begin = capture_prepare(stream, per_thread);                  \
                                                                                       \
	return capture_begun(&begin, mode, gcp_real.call)

CUresult gcp_hook_cuStreamBeginCapture(CUstream stream)
{
	GCP_BEGIN(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL,
		  cuStreamBeginCapture(stream));
}

CUresult gcp_hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
	GCP_BEGIN(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL,
		  cuStreamBeginCapture_ptsz(stream));
}

CUresult gcp_hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	GCP_BEGIN(stream, false, mode, cuStreamBeginCapture_v2(stream, mode));
}

CUresult gcp_hook_cuStreamBeginCapture_v2_ptsz(CUstream stream,
					       CUstreamCaptureMode mode)
{
	GCP_BEGIN(stream, true, mode, cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult gcp_hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
					      const CUgraphNode *dependencies,
					      const struct CUgraphEdgeData_st *edges,
					      size_t count, CUstreamCaptureMode mode)
{
	GCP_BEGIN(stream, false, mode,
		  cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count,
					      mode));
}

CUresult gcp_hook_cuStreamBeginCaptureToGraph_ptsz(
    CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const struct CUgraphEdgeData_st *edges, size_t count, CUstreamCaptureMode mode)
{
	GCP_BEGIN(stream, true, mode,
		  cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges,
						   count, mode));
}

/* --- end ---------------------------------------------------------------------- */

static CUresult capture_end(CUresult (*real)(CUstream, CUgraph *), CUstream stream,
			    bool per_thread, CUgraph *ret_graph)
{
	CUstream named = stream_named(stream, per_thread);
	CUcontext ctx = NULL;
	CUresult result;

	if (!gcp_process_pooling())
		return real(stream, ret_graph);
	ctx = stream_context(named);
	result = real(stream, ret_graph);
	gcp_tracker_end_done(gcp_process.tracker, ctx, named);
	return result;
}

CUresult gcp_hook_cuStreamEndCapture(CUstream stream, CUgraph *ret_graph)
{
	return capture_end(gcp_real.cuStreamEndCapture, stream, false, ret_graph);
}

CUresult gcp_hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret_graph)
{
	return capture_end(gcp_real.cuStreamEndCapture_ptsz, stream, true, ret_graph);
}

static CUresult stream_destroy(CUresult (*real)(CUstream), CUstream stream)
{
	bool capturing = stream && gcp_process_capturing();
	CUcontext ctx = capturing ? stream_context(stream) : NULL;
	CUresult result = real(stream);

	if (result == CUDA_SUCCESS)
		atomic_fetch_add(&gcp_thread_streams_gone, 1);
	if (result == CUDA_SUCCESS && capturing)
		gcp_tracker_stream_gone(gcp_process.tracker, ctx, stream);
	return result;
}

CUresult gcp_hook_cuStreamDestroy(CUstream stream)
{
	return stream_destroy(gcp_real.cuStreamDestroy, stream);
}

CUresult gcp_hook_cuStreamDestroy_v2(CUstream stream)
{
	return stream_destroy(gcp_real.cuStreamDestroy_v2, stream);
}

/* --- forks -------------------------------------------------------------------- */

/* A stream that waits for an event of a capture joins it. Told before the real
 * call: afterwards another thread might already rely on the old order. */
static void stream_forks(CUstream stream, bool per_thread)
{
	if (gcp_process_capturing()) {
		gcp_thread_use_stream(stream_named(stream, per_thread));
		gcp_tracker_forked(gcp_process.tracker);
	}
}

CUresult gcp_hook_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	stream_forks(stream, false);
	return gcp_real.cuStreamWaitEvent(stream, event, flags);
}

CUresult gcp_hook_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event,
					 unsigned int flags)
{
	stream_forks(stream, true);
	return gcp_real.cuStreamWaitEvent_ptsz(stream, event, flags);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
						    size_t count, unsigned int flags)
{
	stream_forks(stream, false);
	return gcp_real.cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies_ptsz(CUstream stream,
							 CUgraphNode *nodes,
							 size_t count,
							 unsigned int flags)
{
	stream_forks(stream, true);
	return gcp_real.cuStreamUpdateCaptureDependencies_ptsz(stream, nodes, count,
							       flags);
}

CUresult
gcp_hook_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
					      const struct CUgraphEdgeData_st *edges,
					      size_t count, unsigned int flags)
{
	stream_forks(stream, false);
	return gcp_real.cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges,
							     count, flags);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies_v2_ptsz(
    CUstream stream, CUgraphNode *nodes, const struct CUgraphEdgeData_st *edges,
    size_t count, unsigned int flags)
{
	stream_forks(stream, true);
	return gcp_real.cuStreamUpdateCaptureDependencies_v2_ptsz(stream, nodes, edges,
								  count, flags);
}
