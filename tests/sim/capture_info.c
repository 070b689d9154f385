/* SPDX-License-Identifier: MIT */
/*
 * capture_info.c - what one can ask a stream about its capture, and changing
 * what its next node depends on. Entry points, under the big lock.
 */
#include "graph.h"

#include <string.h>

static CUresult info_stream(CUstream hStream, struct sim_stream **ret_stream)
{
	SIM_TRY(sim_stream_get(hStream, ret_stream));
	return (*ret_stream)->legacy ? sim_capture_implicit((*ret_stream)->ctx, true)
				     : CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
	if (!stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuStreamIsCapturing);
	if (!captureStatus)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(info_stream(hStream, &stream));
	*captureStatus = status_of(stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream hStream,
				  CUstreamCaptureStatus *captureStatus)
{
	return cuStreamIsCapturing(SIM_PTSZ(hStream), captureStatus);
}

enum { TORN_MAX = 64 };
static int torn_answers;

void gcpsim_tear_ends(int answers)
{
	sim_lock();
	torn_answers = answers;
	sim_unlock();
}

/* The last node is missing, if the answer is to be torn. */
static const CUgraphNode *ends_told(const struct sim_nodes *ends)
{
	static CUgraphNode torn[TORN_MAX];

	if (torn_answers <= 0 || ends->count == 0 || ends->count > TORN_MAX)
		return (const CUgraphNode *)ends->at;
	torn_answers--;
	memcpy(torn, ends->at, ends->count * sizeof(*torn));
	torn[ends->count - 1] = NULL;
	return torn;
}

static CUresult capture_info(CUstream hStream, CUstreamCaptureStatus *status,
			     cuuint64_t *id, CUgraph *graph,
			     const CUgraphNode **dependencies, size_t *count)
{
	struct sim_stream *stream;

	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(info_stream(hStream, &stream));
	*status = status_of(stream);
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = (CUgraph)stream->capture->graph;
	if (dependencies)
		*dependencies = ends_told(&stream->frontier);
	if (count)
		*count = stream->frontier.count;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream hStream,
				CUstreamCaptureStatus *captureStatus_out,
				cuuint64_t *id_out)
{
	SIM_LOCKED(cuStreamGetCaptureInfo);
	return capture_info(hStream, captureStatus_out, id_out, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream hStream,
				     CUstreamCaptureStatus *captureStatus_out,
				     cuuint64_t *id_out)
{
	return cuStreamGetCaptureInfo(SIM_PTSZ(hStream), captureStatus_out, id_out);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream,
				   CUstreamCaptureStatus *captureStatus_out,
				   cuuint64_t *id_out, CUgraph *graph_out,
				   const CUgraphNode **dependencies_out,
				   size_t *numDependencies_out)
{
	SIM_LOCKED(cuStreamGetCaptureInfo_v2);
	return capture_info(hStream, captureStatus_out, id_out, graph_out,
			    dependencies_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream,
					CUstreamCaptureStatus *captureStatus_out,
					cuuint64_t *id_out, CUgraph *graph_out,
					const CUgraphNode **dependencies_out,
					size_t *numDependencies_out)
{
	return cuStreamGetCaptureInfo_v2(SIM_PTSZ(hStream), captureStatus_out, id_out,
					 graph_out, dependencies_out,
					 numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream,
				   CUstreamCaptureStatus *captureStatus_out,
				   cuuint64_t *id_out, CUgraph *graph_out,
				   const CUgraphNode **dependencies_out,
				   const CUgraphEdgeData **edgeData_out,
				   size_t *numDependencies_out)
{
	SIM_LOCKED(cuStreamGetCaptureInfo_v3);
	if (edgeData_out)
		*edgeData_out = NULL;
	return capture_info(hStream, captureStatus_out, id_out, graph_out,
			    dependencies_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream,
					CUstreamCaptureStatus *captureStatus_out,
					cuuint64_t *id_out, CUgraph *graph_out,
					const CUgraphNode **dependencies_out,
					const CUgraphEdgeData **edgeData_out,
					size_t *numDependencies_out)
{
	return cuStreamGetCaptureInfo_v3(SIM_PTSZ(hStream), captureStatus_out, id_out,
					 graph_out, dependencies_out, edgeData_out,
					 numDependencies_out);
}

static CUresult update_dependencies(CUstream hStream, const CUgraphNode *nodes,
				    size_t count, unsigned flags)
{
	struct sim_stream *stream;

	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(info_stream(hStream, &stream));
	if (!stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!sim_nodes_of_graph(stream->capture->graph, nodes, count))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		sim_nodes_clear(&stream->frontier);
	for (size_t i = 0; i < count; i++)
		sim_nodes_add(&stream->frontier, (struct sim_node *)nodes[i]);
	return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
					   size_t numDependencies, unsigned int flags)
{
	SIM_LOCKED(cuStreamUpdateCaptureDependencies);
	return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream,
						CUgraphNode *dependencies,
						size_t numDependencies,
						unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies(SIM_PTSZ(hStream), dependencies,
						 numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream,
					      CUgraphNode *dependencies,
					      const CUgraphEdgeData *dependencyData,
					      size_t numDependencies,
					      unsigned int flags)
{
	SIM_LOCKED(cuStreamUpdateCaptureDependencies_v2);
	(void)dependencyData;
	return update_dependencies(hStream, dependencies, numDependencies, flags);
}

CUresult
cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream, CUgraphNode *dependencies,
					  const CUgraphEdgeData *dependencyData,
					  size_t numDependencies, unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies_v2(
	    SIM_PTSZ(hStream), dependencies, dependencyData, numDependencies, flags);
}
