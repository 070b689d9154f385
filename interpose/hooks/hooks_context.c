/* SPDX-License-Identifier: MIT */
/*
 * hooks_context.c - the hooks on contexts: they only tell contexts.c what
 * happened. Making a context current is done often; for one that is known it
 * costs a comparison. A thread that is left without one is no more sure of cudart
 * (hooks_runtime.c).
 */
#include "../base/process.h"
#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/foreign_work.h"
#include "hooks.h"
#include "hooks_memory.h"
#include "../cuda/resolve.h"

static CUresult context_created(CUresult result, CUcontext *ret_ctx)
{
	if (result == CUDA_SUCCESS && ret_ctx)
		gcp_contexts_seen(*ret_ctx, GCP_CONTEXT_OWN);
	return result;
}

/* A context takes memory of its device, of which the pools may have all. */
#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		struct gcp_tries tries = {0};                                          \
		CUresult result;                                                       \
                                                                                       \
		do                                                                     \
			result = gcp_real.name arguments;                              \
		while (gcp_maker_reclaims_on(&tries, #base, result, device));          \
		return context_created(result, ret_ctx);                               \
	}
GCP_HOOKS_CONTEXTS_CREATED(GCP_X)
#undef GCP_X

/* Its primary context may be new, too. */
static void green_seen(CUcontext ctx)
{
	CUcontext home;
	int device;

	gcp_contexts_seen(ctx, GCP_CONTEXT_GREEN);
	(void)gcp_contexts_home(ctx, &home, &device);
}

/* Its handle as an ordinary context is that of its streams, too. */
static void green_created(struct CUgreenCtx_st *green)
{
	CUcontext ctx;

	if (gcp_real.cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS)
		green_seen(ctx);
}

/* Makes the primary context, if it is not there. */
CUresult gcp_hook_cuGreenCtxCreate(struct CUgreenCtx_st **ret_green,
				   struct CUdevResourceDesc_st *resources,
				   CUdevice device, unsigned int flags)
{
	struct gcp_tries tries = {0};
	CUresult result;

	do
		result = gcp_real.cuGreenCtxCreate(ret_green, resources, device, flags);
	while (gcp_maker_reclaims_on(&tries, "cuGreenCtxCreate", result, device));
	if (result == CUDA_SUCCESS && ret_green)
		green_created(*ret_green);
	return result;
}

CUresult gcp_hook_cuCtxFromGreenCtx(CUcontext *ret_ctx, struct CUgreenCtx_st *green)
{
	CUresult result = gcp_real.cuCtxFromGreenCtx(ret_ctx, green);

	if (result == CUDA_SUCCESS && ret_ctx)
		green_seen(*ret_ctx);
	return result;
}

CUresult gcp_hook_cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice device)
{
	struct gcp_tries tries = {0};
	CUresult result;

	do
		result = gcp_contexts_retain_primary(ret_ctx, device);
	while (
	    gcp_maker_reclaims_on(&tries, "cuDevicePrimaryCtxRetain", result, device));
	return result;
}

/* --- made current ------------------------------------------------------------- */

/* In a thread without a context cudart makes one current, in a free, too: it is called
 * again. */
static void context_none(void)
{
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_observed = 0;
	gcp_thread.runtime_streamed = 0;
}

static CUresult context_popped(CUresult result)
{
	CUcontext left = NULL;

	if (gcp_real.cuCtxGetCurrent(&left) != CUDA_SUCCESS || !left)
		context_none();
	return result;
}

CUresult gcp_hook_cuCtxSetCurrent(CUcontext ctx)
{
	CUresult result = gcp_real.cuCtxSetCurrent(ctx);

	if (result == CUDA_SUCCESS)
		gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);
	if (!ctx)
		context_none();
	return result;
}

#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		CUresult result = gcp_real.name arguments;                             \
                                                                                       \
		if (result == CUDA_SUCCESS)                                            \
			gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);                   \
		return result;                                                         \
	}
GCP_HOOKS_CONTEXTS_PUSHED(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		return context_popped(gcp_real.name arguments);                        \
	}
GCP_HOOKS_CONTEXTS_POPPED(GCP_X)
#undef GCP_X

/* --- ended -------------------------------------------------------------------- */

CUresult gcp_hook_cuCtxAttach(CUcontext *ret_ctx, unsigned int flags)
{
	CUresult result = gcp_real.cuCtxAttach(ret_ctx, flags);

	if (result == CUDA_SUCCESS && ret_ctx)
		gcp_contexts_attached(*ret_ctx);
	return result;
}

CUresult gcp_hook_cuCtxDetach(CUcontext ctx)
{
	return gcp_contexts_detach(ctx);
}

#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		return gcp_contexts_destroy(gcp_real.name, ctx);                       \
	}
GCP_HOOKS_CONTEXTS_DESTROYED(GCP_X)
#undef GCP_X

/* A green context keeps its primary one active, also when nothing else retains that
 * any more: the last one may take it along. (Measured, driver 580.) */
static __thread struct {
	struct CUgreenCtx_st *green;
	CUdevice device;
} leaving __attribute__((tls_model("initial-exec")));

static CUresult green_destroy(CUdevice device)
{
	assert(leaving.green && device == leaving.device);
	(void)device;
	return gcp_real.cuGreenCtxDestroy(leaving.green);
}

static CUresult green_end(CUcontext ctx)
{
	(void)ctx;
	return gcp_contexts_end_primary(green_destroy, leaving.device, 0);
}

/* Its own handle as an ordinary context, and its device. */
static bool green_identify(struct CUgreenCtx_st *green, CUcontext *ret_ctx,
			   CUdevice *ret_device)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	if (gcp_real.cuCtxFromGreenCtx(ret_ctx, green) != CUDA_SUCCESS ||
	    gcp_ctx_scope_begin(&scope, *ret_ctx) != CUDA_SUCCESS)
		return false;
	result = gcp_real.cuCtxGetDevice(ret_device);
	gcp_ctx_scope_end(&scope);
	return result == CUDA_SUCCESS;
}

CUresult gcp_hook_cuGreenCtxDestroy(struct CUgreenCtx_st *green)
{
	CUdevice device;
	CUcontext ctx;

	if (!green_identify(green, &ctx, &device))
		return gcp_real.cuGreenCtxDestroy(green);
	green_seen(ctx);
	gcp_foreign_work_green_ending(ctx);
	leaving.green = green;
	leaving.device = device;
	return gcp_contexts_destroy(green_end, ctx);
}

#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		return gcp_contexts_end_primary(gcp_real.name, device, 1);             \
	}
GCP_HOOKS_PRIMARIES_RELEASED(GCP_X)
#undef GCP_X

#define GCP_X(name, base, version, twin, need, types, arguments)                       \
	CUresult gcp_hook_##name types                                                 \
	{                                                                              \
		return gcp_contexts_end_primary(gcp_real.name, device, UINT32_MAX);    \
	}
GCP_HOOKS_PRIMARIES_RESET(GCP_X)
#undef GCP_X
