/* SPDX-License-Identifier: MIT */
/*
 * hooks_capture.c - the hooks that tell capture/ where a capture may fork or join, and
 * when the program takes a captured graph into its own hands. While no capture
 * is under way each costs a few loads. What may open a new branch is told
 * before the real call: afterwards another thread might still rely on the old
 * order.
 */
#include "hooks.h"
#include "process_life.h"
#include "streams.h"

/* --- waiting for events ---------------------------------------------------------- */

static CUresult stream_wait(CUresult (*real)(CUstream, CUevent, unsigned int),
			    CUstream stream, bool per_thread, CUevent event,
			    unsigned int flags)
{
	CUstream named = gcp_stream_named(stream, per_thread);
	CUresult result;

	gcp_stream_seen(stream, per_thread);
	if (!gcp_process_capturing() || !gcp_stream_capturable(named))
		return real(stream, event, flags);
	gcp_stream_work_given(named, false);
	gcp_tracker_forked(gcp_process.tracker);
	result = real(stream, event, flags);
	if (result == CUDA_SUCCESS)
		result = (CUresult)gcp_tracker_joined(
		    gcp_process.tracker, gcp_stream_context(named), named, event);
	return result;
}

CUresult gcp_hook_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	return stream_wait(gcp_real.cuStreamWaitEvent, stream, false, event, flags);
}

CUresult gcp_hook_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event,
					 unsigned int flags)
{
	return stream_wait(gcp_real.cuStreamWaitEvent_ptsz, stream, true, event, flags);
}

/* --- events --------------------------------------------------------------- */

/* The number of the call; 0: no capture is to know of it. */
static uint64_t event_records(CUstream stream, bool per_thread, CUevent event)
{
	CUstream named = gcp_stream_named(stream, per_thread);

	gcp_stream_seen(stream, per_thread);
	if (!gcp_process_capturing() || !gcp_stream_capturable(named))
		return 0;
	gcp_stream_work_given(named, false);
	return gcp_tracker_event_recording(gcp_process.tracker,
					   gcp_stream_context(named), named, event);
}

static CUresult event_recorded(CUresult result, CUevent event, uint64_t record)
{
	if (record > 0)
		gcp_tracker_event_recorded(gcp_process.tracker, event, record,
					   result == CUDA_SUCCESS);
	return result;
}

CUresult gcp_hook_cuEventRecord(CUevent event, CUstream stream)
{
	uint64_t record = event_records(stream, false, event);

	return event_recorded(gcp_real.cuEventRecord(event, stream), event, record);
}

CUresult gcp_hook_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	uint64_t record = event_records(stream, true, event);

	return event_recorded(gcp_real.cuEventRecord_ptsz(event, stream), event,
			      record);
}

/* Recorded for others than the graph, it becomes a node, and stands for what it stood
 * for before as well: that is more than we keep account of. */
static uint64_t event_records_with(CUstream stream, bool per_thread, CUevent event,
				   unsigned int flags)
{
	if (!(flags & CU_EVENT_RECORD_EXTERNAL))
		return event_records(stream, per_thread, event);
	if (gcp_process_capturing())
		gcp_tracker_order_unknown(gcp_process.tracker);
	return 0;
}

CUresult gcp_hook_cuEventRecordWithFlags(CUevent event, CUstream stream,
					 unsigned int flags)
{
	uint64_t record = event_records_with(stream, false, event, flags);

	return event_recorded(gcp_real.cuEventRecordWithFlags(event, stream, flags),
			      event, record);
}

CUresult gcp_hook_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream,
					      unsigned int flags)
{
	uint64_t record = event_records_with(stream, true, event, flags);

	return event_recorded(
	    gcp_real.cuEventRecordWithFlags_ptsz(event, stream, flags), event, record);
}

static CUresult event_destroy(CUresult (*real)(CUevent), CUevent event)
{
	bool capturing = gcp_process_capturing();
	uint64_t moment = capturing ? gcp_tracker_moment(gcp_process.tracker) : 0;
	CUresult result = real(event);

	if (result == CUDA_SUCCESS && capturing)
		gcp_tracker_event_gone(gcp_process.tracker, event, moment);
	return result;
}

CUresult gcp_hook_cuEventDestroy(CUevent event)
{
	return event_destroy(gcp_real.cuEventDestroy, event);
}

CUresult gcp_hook_cuEventDestroy_v2(CUevent event)
{
	return event_destroy(gcp_real.cuEventDestroy_v2, event);
}

/* --- by hand -------------------------------------------------------------- */

static void graph_order_unknown(bool really)
{
	if (really && gcp_process_capturing())
		gcp_tracker_order_unknown(gcp_process.tracker);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
						    size_t count, unsigned int flags)
{
	graph_order_unknown(true);
	return gcp_real.cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies_ptsz(CUstream stream,
							 CUgraphNode *nodes,
							 size_t count,
							 unsigned int flags)
{
	graph_order_unknown(true);
	return gcp_real.cuStreamUpdateCaptureDependencies_ptsz(stream, nodes, count,
							       flags);
}

CUresult
gcp_hook_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
					      const struct CUgraphEdgeData_st *edges,
					      size_t count, unsigned int flags)
{
	graph_order_unknown(true);
	return gcp_real.cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges,
							     count, flags);
}

CUresult gcp_hook_cuStreamUpdateCaptureDependencies_v2_ptsz(
    CUstream stream, CUgraphNode *nodes, const struct CUgraphEdgeData_st *edges,
    size_t count, unsigned int flags)
{
	graph_order_unknown(true);
	return gcp_real.cuStreamUpdateCaptureDependencies_v2_ptsz(stream, nodes, edges,
								  count, flags);
}

CUresult gcp_hook_cuGraphDestroyNode(CUgraphNode node)
{
	if (gcp_process_capturing())
		gcp_tracker_node_gone(gcp_process.tracker, node);
	return gcp_real.cuGraphDestroyNode(node);
}

/* A caller that asks only whether a stream captures, as most do, changes nothing. */

CUresult gcp_hook_cuStreamGetCaptureInfo_v2(CUstream stream,
					    CUstreamCaptureStatus *ret_status,
					    cuuint64_t *ret_id, CUgraph *ret_graph,
					    const CUgraphNode **ret_nodes,
					    size_t *ret_count)
{
	graph_order_unknown(ret_graph || ret_nodes);
	return gcp_real.cuStreamGetCaptureInfo_v2(stream, ret_status, ret_id, ret_graph,
						  ret_nodes, ret_count);
}

CUresult gcp_hook_cuStreamGetCaptureInfo_v2_ptsz(CUstream stream,
						 CUstreamCaptureStatus *ret_status,
						 cuuint64_t *ret_id, CUgraph *ret_graph,
						 const CUgraphNode **ret_nodes,
						 size_t *ret_count)
{
	graph_order_unknown(ret_graph || ret_nodes);
	return gcp_real.cuStreamGetCaptureInfo_v2_ptsz(stream, ret_status, ret_id,
						       ret_graph, ret_nodes, ret_count);
}

CUresult gcp_hook_cuStreamGetCaptureInfo_v3(CUstream stream,
					    CUstreamCaptureStatus *ret_status,
					    cuuint64_t *ret_id, CUgraph *ret_graph,
					    const CUgraphNode **ret_nodes,
					    const struct CUgraphEdgeData_st **ret_edges,
					    size_t *ret_count)
{
	graph_order_unknown(ret_graph || ret_nodes);
	return gcp_real.cuStreamGetCaptureInfo_v3(stream, ret_status, ret_id, ret_graph,
						  ret_nodes, ret_edges, ret_count);
}

CUresult gcp_hook_cuStreamGetCaptureInfo_v3_ptsz(
    CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,
    CUgraph *ret_graph, const CUgraphNode **ret_nodes,
    const struct CUgraphEdgeData_st **ret_edges, size_t *ret_count)
{
	graph_order_unknown(ret_graph || ret_nodes);
	return gcp_real.cuStreamGetCaptureInfo_v3_ptsz(
	    stream, ret_status, ret_id, ret_graph, ret_nodes, ret_edges, ret_count);
}
