/* SPDX-License-Identifier: MIT */
/*
 * context_own.c - contexts that a program makes for itself, green contexts,
 * and what one can ask a context.
 *
 * Entry points only; context.c has the life of contexts.
 */
#include "sim.h"

#include <string.h>

/* --- making and destroying ------------------------------------------------ */

static CUresult ctx_create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	struct sim_thread *self = sim_thread_self();

	if (!pctx || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (self->depth == SIM_CTX_DEPTH_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	self->stack[self->depth] = sim_ctx_new(dev, flags, NULL);
	self->stack[self->depth]->retains = 1;
	*pctx = (CUcontext)self->stack[self->depth++];
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	SIM_LOCKED(cuCtxCreate_v2);
	return ctx_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray,
			int numParams, unsigned int flags, CUdevice dev)
{
	SIM_LOCKED(cuCtxCreate_v3);
	if (numParams != 0 && !paramsArray)
		return CUDA_ERROR_INVALID_VALUE;
	return ctx_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
			unsigned int flags, CUdevice dev)
{
	SIM_LOCKED(cuCtxCreate_v4);
	(void)ctxCreateParams;
	return ctx_create(pctx, flags, dev);
}

static CUresult ctx_destroy(CUcontext handle)
{
	struct sim_thread *self = sim_thread_self();
	struct sim_ctx *ctx = sim_object_check(handle, SIM_CTX);

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!ctx || ctx->primary || ctx->parent)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (self->depth > 0 && self->stack[self->depth - 1] == ctx)
		self->depth--;
	sim_ctx_delete(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	SIM_LOCKED(cuCtxDestroy);
	return ctx_destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	SIM_LOCKED(cuCtxDestroy_v2);
	return ctx_destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxAttach);
	if (!pctx || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	ctx->retains++;
	*pctx = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxDetach);
	ctx = sim_object_check(handle, SIM_CTX);
	if (!ctx || ctx->primary || ctx->parent)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--ctx->retains > 0)
		return CUDA_SUCCESS;
	return ctx_destroy(handle);
}

/* --- asking --------------------------------------------------------------- */

/* Also of a context with a sticky error, and of one that is no more. */
CUresult cuCtxGetDevice(CUdevice *device)
{
	const struct sim_thread *self = sim_thread_self();

	SIM_ENTER(cuCtxGetDevice);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (self->depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = self->stack[self->depth - 1]->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_ENTER(cuCtxGetDevice_v2);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle)
		SIM_TRY(sim_ctx_check(handle, &ctx));
	else
		SIM_TRY(sim_ctx_current(&ctx));
	*device = ctx->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxSetLimit);
	(void)value;
	if (limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	return sim_ctx_current(&ctx);
}

/* --- peers ---------------------------------------------------------------- */

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct sim_ctx *ctx, *peer;

	SIM_LOCKED(cuCtxEnablePeerAccess);
	if (Flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_ctx_check(peerContext, &peer));
	if (peer->device == ctx->device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (ctx->peers & 1u << peer->device)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	ctx->peers |= 1u << peer->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	struct sim_ctx *ctx, *peer;

	SIM_LOCKED(cuCtxDisablePeerAccess);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_ctx_check(peerContext, &peer));
	if (!(ctx->peers & 1u << peer->device))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	ctx->peers &= ~(1u << peer->device);
	return CUDA_SUCCESS;
}

/* --- fences --------------------------------------------------------------- */

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxRecordEvent);
	SIM_TRY(sim_ctx_check(hCtx, &ctx));
	return sim_ctx_record(ctx, hEvent);
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxWaitEvent);
	SIM_TRY(sim_ctx_check(hCtx, &ctx));
	return sim_ctx_order(ctx, hEvent);
}

/* --- green contexts ------------------------------------------------------- */

/* The simulated device has one kind of resource, and all of it always. */
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
				CUdevResourceType type)
{
	SIM_LOCKED(cuDeviceGetDevResource);
	if (!sim_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memset(resource, 0, sizeof(*resource));
	resource->type = type;
	resource->sm.smCount = 132;
	return CUDA_SUCCESS;
}

/* Groups of at least `minCount` multiprocessors, in eights. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups,
				     const CUdevResource *input,
				     CUdevResource *remaining, unsigned int useFlags,
				     unsigned int minCount)
{
	unsigned size = (minCount + 7) / 8 * 8, groups;

	SIM_LOCKED(cuDevSmResourceSplitByCount);
	(void)useFlags;
	if (!nbGroups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	size = size ? size : 8;
	groups = input->sm.smCount / size;
	if (groups == 0)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	if (!result) {
		*nbGroups = groups;
		return CUDA_SUCCESS;
	}
	*nbGroups = *nbGroups < groups ? *nbGroups : groups;
	for (unsigned i = 0; i < *nbGroups; i++) {
		result[i] = *input;
		result[i].sm.smCount = size;
	}
	if (remaining) {
		*remaining = *input;
		remaining->sm.smCount -= *nbGroups * size;
	}
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
				   unsigned int nbResources)
{
	static int description;

	SIM_LOCKED(cuDevResourceGenerateDesc);
	if (!phDesc || !resources || nbResources == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*phDesc = (CUdevResourceDesc)&description;
	return CUDA_SUCCESS;
}

static CUgreenCtx green_create(CUdevice device)
{
	struct sim_ctx *parent = sim_primary_open(device);

	parent->greens++;
	return (CUgreenCtx)sim_ctx_new(device, 0, parent);
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	SIM_LOCKED(cuGreenCtxCreate);
	if (!phCtx || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*phCtx = green_create(dev);
	return CUDA_SUCCESS;
}

CUgreenCtx gcpsim_green_context(int device)
{
	CUgreenCtx green;

	sim_lock();
	green = green_create(device);
	sim_unlock();
	return green;
}

static CUresult green_check(CUgreenCtx handle, struct sim_ctx **ret_ctx)
{
	SIM_TRY(sim_ctx_check((CUcontext)handle, ret_ctx));
	return (*ret_ctx)->parent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Its work goes on, and its events are the primary context's; nothing is waited for
 * (driver 580, measured). What is left of it goes with the primary context. */
static void green_end(struct sim_ctx *ctx, struct sim_ctx *parent)
{
	struct sim_event *event;

	while (ctx->streams) {
		ctx->streams->object.orphan = true;
		sim_stream_delete(ctx->streams);
	}
	ctx->legacy = NULL;
	while ((event = ctx->events)) {
		ctx->events = event->next;
		event->ctx = parent;
		event->prev = NULL;
		event->next = parent->events;
		if (event->next)
			event->next->prev = event;
		parent->events = event;
	}
	SIM_STORE(ctx->active, false);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct sim_ctx *ctx, *parent;

	SIM_LOCKED(cuGreenCtxDestroy);
	SIM_TRY(green_check(hCtx, &ctx));
	parent = ctx->parent;
	green_end(ctx, parent);
	parent->greens--;
	sim_primary_release_gone(parent);
	return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuCtxFromGreenCtx);
	if (!pContext)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(green_check(hCtx, &ctx));
	*pContext = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx,
				unsigned int flags, int priority)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuGreenCtxStreamCreate);
	if (!phStream || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(green_check(greenCtx, &ctx));
	*phStream = (CUstream)sim_stream_new(ctx, flags, priority);
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuGreenCtxRecordEvent);
	SIM_TRY(green_check(hCtx, &ctx));
	return sim_ctx_record(ctx, hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuGreenCtxWaitEvent);
	SIM_TRY(green_check(hCtx, &ctx));
	return sim_ctx_order(ctx, hEvent);
}
