/* SPDX-License-Identifier: MIT */
/*
 * context_own.c - contexts that a program makes for itself, green contexts,
 * and what one can ask a context.
 *
 * Entry points only; context.c has the life of contexts.
 */
#include "sim.h"

/* --- making and destroying ------------------------------------------------ */

static CUresult ctx_create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_VALUE, !pctx || (flags & ~(unsigned)CU_CTX_FLAGS_MASK));
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	SIM_FAIL_IF(INVALID_VALUE, self->depth == SIM_CTX_DEPTH_MAX);
	self->stack[self->depth] = sim_ctx_new(dev, flags, NULL);
	self->stack[self->depth]->retains = 1;
	*pctx = (CUcontext)self->stack[self->depth++];
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuCtxCreate_v2, ctx_create(pctx, flags, dev))

SIM_ENTRY(cuCtxCreate_v3)
{
	SIM_FAIL_IF(INVALID_VALUE, numParams != 0 && !paramsArray);
	return ctx_create(pctx, flags, dev);
}

SIM_FORWARD(cuCtxCreate_v4, ctx_create(pctx, flags, dev))

static CUresult ctx_destroy(CUcontext handle)
{
	struct sim_thread *self = sim_thread_self();
	struct sim_ctx *ctx = sim_object_check(handle, SIM_CTX);

	SIM_FAIL_IF(INVALID_VALUE, !handle);
	SIM_FAIL_IF(INVALID_CONTEXT, !ctx || ctx->primary || ctx->parent);
	if (self->depth > 0 && self->stack[self->depth - 1] == ctx)
		self->depth--;
	sim_ctx_delete(ctx);
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuCtxDestroy_v2, ctx_destroy(ctx))

SIM_ENTRY(cuCtxAttach)
{
	SIM_FAIL_IF(INVALID_VALUE, !pctx || flags != 0);
	SIM_CURRENT(ctx);
	ctx->retains++;
	*pctx = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxDetach)
{
	struct sim_ctx *ctx = sim_object_check(handle, SIM_CTX);

	SIM_FAIL_IF(INVALID_CONTEXT, !ctx || ctx->primary || ctx->parent);
	if (--ctx->retains > 0)
		return CUDA_SUCCESS;
	return ctx_destroy(handle);
}

/* --- asking --------------------------------------------------------------- */

/* Also of a context with a sticky error, and of one that is no more. */
SIM_ENTRY(cuCtxGetDevice)
{
	const struct sim_thread *self = sim_thread_self();

	SIM_FAIL_IF(INVALID_VALUE, !device);
	SIM_FAIL_IF(INVALID_CONTEXT, self->depth == 0);
	*device = self->stack[self->depth - 1]->device;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxSetLimit)
{
	struct sim_ctx *ctx;

	SIM_FAIL_IF(UNSUPPORTED_LIMIT, limit >= CU_LIMIT_MAX);
	return sim_ctx_current(&ctx);
}

/* --- peers ---------------------------------------------------------------- */

SIM_ENTRY(cuCtxEnablePeerAccess)
{
	SIM_FAIL_IF(INVALID_VALUE, Flags != 0);
	SIM_CURRENT(ctx);
	SIM_GET(sim_ctx, peer, sim_ctx_check, peerContext);
	SIM_FAIL_IF(INVALID_DEVICE, peer->device == ctx->device);
	SIM_FAIL_IF(PEER_ACCESS_ALREADY_ENABLED, ctx->peers & 1u << peer->device);
	ctx->peers |= 1u << peer->device;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxDisablePeerAccess)
{
	SIM_CURRENT(ctx);
	SIM_GET(sim_ctx, peer, sim_ctx_check, peerContext);
	SIM_FAIL_IF(PEER_ACCESS_NOT_ENABLED, !(ctx->peers & 1u << peer->device));
	ctx->peers &= ~(1u << peer->device);
	return CUDA_SUCCESS;
}

/* --- fences --------------------------------------------------------------- */

SIM_ENTRY(cuCtxRecordEvent)
{
	SIM_GET(sim_ctx, ctx, sim_ctx_check, hCtx);
	return sim_ctx_record(ctx, hEvent);
}

SIM_ENTRY(cuCtxWaitEvent)
{
	SIM_GET(sim_ctx, ctx, sim_ctx_check, hCtx);
	return sim_ctx_order(ctx, hEvent);
}

/* --- green contexts ------------------------------------------------------- */

/* The simulated device has one kind of resource, and all of it always. */
SIM_ENTRY(cuDeviceGetDevResource)
{
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(device));
	SIM_FAIL_IF(INVALID_VALUE, !resource);
	SIM_FAIL_IF(INVALID_RESOURCE_TYPE, type != CU_DEV_RESOURCE_TYPE_SM);
	memset(resource, 0, sizeof(*resource));
	resource->type = type;
	resource->sm.smCount = 132;
	return CUDA_SUCCESS;
}

/* Groups of at least `minCount` multiprocessors, in eights. */
SIM_ENTRY(cuDevSmResourceSplitByCount)
{
	unsigned size = (minCount + 7) / 8 * 8, groups;

	SIM_FAIL_IF(INVALID_VALUE,
		    !nbGroups || !input || input->type != CU_DEV_RESOURCE_TYPE_SM);
	size = size ? size : 8;
	groups = input->sm.smCount / size;
	SIM_FAIL_IF(INVALID_RESOURCE_CONFIGURATION, groups == 0);
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

SIM_ENTRY(cuDevResourceGenerateDesc)
{
	static int description;

	SIM_FAIL_IF(INVALID_VALUE, !phDesc || !resources || nbResources == 0);
	*phDesc = (CUdevResourceDesc)&description;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGreenCtxCreate)
{
	struct sim_ctx *parent;

	SIM_FAIL_IF(INVALID_VALUE,
		    !phCtx || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	parent = sim_primary_open(dev);
	parent->greens++;
	*phCtx = (CUgreenCtx)sim_ctx_new(dev, 0, parent);
	return CUDA_SUCCESS;
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

SIM_ENTRY(cuGreenCtxDestroy)
{
	SIM_GET(sim_ctx, ctx, green_check, hCtx);
	struct sim_ctx *parent = ctx->parent;

	green_end(ctx, parent);
	parent->greens--;
	sim_primary_release_gone(parent);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuCtxFromGreenCtx)
{
	SIM_FAIL_IF(INVALID_VALUE, !pContext);
	SIM_GET(sim_ctx, ctx, green_check, hCtx);
	*pContext = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGreenCtxStreamCreate)
{
	SIM_FAIL_IF(INVALID_VALUE, !phStream || flags != CU_STREAM_NON_BLOCKING);
	SIM_GET(sim_ctx, ctx, green_check, greenCtx);
	*phStream = (CUstream)sim_stream_new(ctx, flags, priority);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGreenCtxRecordEvent)
{
	SIM_GET(sim_ctx, ctx, green_check, hCtx);
	return sim_ctx_record(ctx, hEvent);
}

SIM_ENTRY(cuGreenCtxWaitEvent)
{
	SIM_GET(sim_ctx, ctx, green_check, hCtx);
	return sim_ctx_order(ctx, hEvent);
}
