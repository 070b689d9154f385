/* SPDX-License-Identifier: MIT */
/*
 * stream_info.c - what one can ask a stream. Entry points only; none of them
 * has an effect. Under the big lock.
 */
#include "sim.h"

/* The older form knows no green contexts but as ordinary ones. */
static CUresult stream_ctx(CUstream hStream, CUcontext *pctx, CUgreenCtx *pGreenCtx)
{
	SIM_FAIL_IF(INVALID_VALUE, !pctx);
	SIM_GET(sim_stream, stream, sim_stream_get, hStream);
	if (!pGreenCtx) {
		*pctx = (CUcontext)stream->ctx;
		return CUDA_SUCCESS;
	}
	*pctx = (CUcontext)sim_ctx_memory(stream->ctx);
	*pGreenCtx = stream->ctx->parent ? (CUgreenCtx)stream->ctx : NULL;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuStreamGetCtx, stream_ctx(hStream, pctx, NULL))
SIM_FORWARD(cuStreamGetCtx_v2, stream_ctx(hStream, pCtx, pGreenCtx))

SIM_ENTRY(cuStreamGetId)
{
	SIM_FAIL_IF(INVALID_VALUE, !streamId);
	SIM_GET(sim_stream, stream, sim_stream_get, hStream);
	if (stream->capture) /* measured */
		return sim_capture_refuse(stream);
	*streamId = stream->object.id;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuStreamGetFlags)
{
	SIM_FAIL_IF(INVALID_VALUE, !flags);
	SIM_GET(sim_stream, stream, sim_stream_get, hStream);
	if (stream->capture) /* measured */
		return sim_capture_refuse(stream);
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuStreamGetPriority)
{
	SIM_FAIL_IF(INVALID_VALUE, !priority);
	SIM_GET(sim_stream, stream, sim_stream_get, hStream);
	*priority = stream->priority;
	return CUDA_SUCCESS;
}
