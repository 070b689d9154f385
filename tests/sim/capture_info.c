/* SPDX-License-Identifier: MIT */
/*
 * capture_info.c - what one can ask a stream about its capture, and changing
 * what its next node depends on. Entry points, under the big lock.
 */
#include "graph.h"

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

SIM_ENTRY(cuStreamIsCapturing)
{
	SIM_FAIL_IF(INVALID_VALUE, !captureStatus);
	SIM_GET(sim_stream, stream, info_stream, hStream);
	*captureStatus = status_of(stream);
	return CUDA_SUCCESS;
}

enum { TORN_MAX = 64 };
static int torn_answers;

void gcpsim_tear_ends(int answers)
{
	SIM_HOLD;

	torn_answers = answers;
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
	SIM_FAIL_IF(INVALID_VALUE, !status);
	SIM_GET(sim_stream, stream, info_stream, hStream);
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

SIM_FORWARD(cuStreamGetCaptureInfo,
	    capture_info(hStream, captureStatus_out, id_out, NULL, NULL, NULL))
SIM_FORWARD(cuStreamGetCaptureInfo_v2,
	    capture_info(hStream, captureStatus_out, id_out, graph_out,
			 dependencies_out, numDependencies_out))

SIM_ENTRY(cuStreamGetCaptureInfo_v3)
{
	if (edgeData_out)
		*edgeData_out = NULL;
	return capture_info(hStream, captureStatus_out, id_out, graph_out,
			    dependencies_out, numDependencies_out);
}

static CUresult update_dependencies(CUstream hStream, const CUgraphNode *nodes,
				    size_t count, unsigned flags)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !nodes));
	SIM_GET(sim_stream, stream, info_stream, hStream);
	SIM_FAIL_IF(ILLEGAL_STATE, !stream->capture);
	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	SIM_FAIL_IF(INVALID_VALUE,
		    !sim_nodes_of_graph(stream->capture->graph, nodes, count));
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		sim_nodes_clear(&stream->frontier);
	for (size_t i = 0; flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && i < count;
	     i++)
		sim_plain_node(&stream->frontier, (struct sim_node *)nodes[i]);
	for (size_t i = 0; i < count; i++)
		sim_nodes_add(&stream->frontier, (struct sim_node *)nodes[i]);
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuStreamUpdateCaptureDependencies,
	    update_dependencies(hStream, dependencies, numDependencies, flags))
SIM_FORWARD(cuStreamUpdateCaptureDependencies_v2,
	    update_dependencies(hStream, dependencies, numDependencies, flags))
