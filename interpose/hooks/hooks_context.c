/* SPDX-License-Identifier: MIT */
/*
 * hooks_context.c - the hooks on contexts: they only tell contexts.c what
 * happened. Making a context current is done often; for one that is known it
 * costs a comparison. A thread that is left without one is no more sure of cudart
 * (hooks_runtime.c).
 */
#include "../cuda/contexts.h"
#include "hooks_memory.h"

static CUresult context_created(CUresult result, CUcontext *ret_ctx)
{
	if (result == CUDA_SUCCESS && ret_ctx)
		gcp_contexts_seen(*ret_ctx, GCP_CONTEXT_OWN);
	return result;
}

/* Its primary context may be new, too. */
static CUresult green_seen(CUresult result, const CUcontext *ctx)
{
	if (result != CUDA_SUCCESS || !ctx)
		return result;
	gcp_contexts_seen(*ctx, GCP_CONTEXT_GREEN);
	(void)gcp_contexts_home_of(*ctx);
	return result;
}

/* Its handle as an ordinary context is that of its streams, too. */
static CUresult green_created(CUresult result, struct CUgreenCtx_st **green)
{
	CUcontext ctx;

	if (result == CUDA_SUCCESS && green)
		(void)green_seen(gcp_real.cuCtxFromGreenCtx(&ctx, *green), &ctx);
	return result;
}

/* --- made current ------------------------------------------------------------- */

/* In a thread without a context cudart makes one current, in a free, too: it is called
 * again. */
static CUresult context_popped(CUresult result)
{
	CUcontext left = NULL;

	if (gcp_real.cuCtxGetCurrent(&left) != CUDA_SUCCESS || !left)
		gcp_thread.runtime_confirmed = 0;
	return result;
}

static CUresult context_current(CUresult result, CUcontext ctx)
{
	if (result == CUDA_SUCCESS)
		gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);
	if (!ctx)
		gcp_thread.runtime_confirmed = 0;
	return result;
}

/* --- ended -------------------------------------------------------------------- */

static CUresult green_destroyed(struct CUgreenCtx_st *green)
{
	CUdevice device;
	CUcontext ctx;

	if (gcp_real.cuCtxFromGreenCtx(&ctx, green) != CUDA_SUCCESS ||
	    !gcp_ctx_device(ctx, &device))
		return gcp_real.cuGreenCtxDestroy(green);
	(void)green_seen(CUDA_SUCCESS, &ctx);
	return gcp_contexts_destroy_green(green, ctx, device);
}

/* --- the hooks ---------------------------------------------------------------- */

/* A context takes memory of its device, of which the pools may have all. */
#define MADE(call, base) GCP_AGAIN(call, .where = &device, .maker = base)

#define HOOK_cuCtxCreate(real, call, twin)                                             \
	context_created(MADE(call, "cuCtxCreate"), ret_ctx)
#define HOOK_cuDevicePrimaryCtxRetain(real, call, twin)                                \
	MADE(gcp_contexts_retain_primary(ret_ctx, device), "cuDevicePrimaryCtxRetain")
#define HOOK_cuGreenCtxCreate(real, call, twin)                                        \
	green_created(MADE(call, "cuGreenCtxCreate"), ret_green)
#define HOOK_cuCtxFromGreenCtx(real, call, twin) green_seen(call, ret_ctx)
#define HOOK_cuCtxSetCurrent(real, call, twin)   context_current(call, ctx)
#define HOOK_cuCtxPushCurrent(real, call, twin)  context_current(call, ctx)
#define HOOK_cuCtxPopCurrent(real, call, twin)   context_popped(call)
#define HOOK_cuCtxDetach(real, call, twin)       gcp_contexts_destroy(real, ctx)
#define HOOK_cuCtxDestroy(real, call, twin)      gcp_contexts_destroy(real, ctx)
#define HOOK_cuGreenCtxDestroy(real, call, twin) green_destroyed(green)
#define HOOK_cuDevicePrimaryCtxRelease(real, call, twin)                               \
	gcp_contexts_end_primary(real, NULL, device, 1)
#define HOOK_cuDevicePrimaryCtxReset(real, call, twin)                                 \
	gcp_contexts_end_primary(real, NULL, device, UINT32_MAX)
GCP_HOOKS_CONTEXTS(GCP_HOOK)
