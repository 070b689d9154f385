/* SPDX-License-Identifier: MIT */
/*
 * stream_info.c - what one can ask a stream. Entry points only; none of them
 * has an effect. Under the big lock.
 */
#include "sim.h"

/* The older form knows no green contexts but as ordinary ones. */
static CUresult stream_ctx(CUstream hStream, CUcontext *pctx, CUgreenCtx *pGreenCtx)
{
	struct sim_stream *stream;

	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_get(hStream, &stream));
	if (!pGreenCtx) {
		*pctx = (CUcontext)stream->ctx;
		return CUDA_SUCCESS;
	}
	*pctx = (CUcontext)sim_ctx_memory(stream->ctx);
	*pGreenCtx = stream->ctx->parent ? (CUgreenCtx)stream->ctx : NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	SIM_LOCKED(cuStreamGetCtx);
	return stream_ctx(hStream, pctx, NULL);
}

CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx)
{
	return cuStreamGetCtx(SIM_PTSZ(hStream), pctx);
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	SIM_LOCKED(cuStreamGetCtx_v2);
	return stream_ctx(hStream, pCtx, pGreenCtx);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream hStream, CUcontext *pCtx,
				CUgreenCtx *pGreenCtx)
{
	return cuStreamGetCtx_v2(SIM_PTSZ(hStream), pCtx, pGreenCtx);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuStreamGetId);
	if (!streamId)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_get(hStream, &stream));
	if (stream->capture) /* measured */
		return sim_capture_refuse(stream);
	*streamId = stream->object.id;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId)
{
	return cuStreamGetId(SIM_PTSZ(hStream), streamId);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuStreamGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_get(hStream, &stream));
	if (stream->capture) /* measured */
		return sim_capture_refuse(stream);
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags_ptsz(CUstream hStream, unsigned int *flags)
{
	return cuStreamGetFlags(SIM_PTSZ(hStream), flags);
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuStreamGetPriority);
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_get(hStream, &stream));
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority_ptsz(CUstream hStream, int *priority)
{
	return cuStreamGetPriority(SIM_PTSZ(hStream), priority);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuStreamGetDevice);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_get(hStream, &stream));
	*device = stream->ctx->device;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device)
{
	return cuStreamGetDevice(SIM_PTSZ(hStream), device);
}
