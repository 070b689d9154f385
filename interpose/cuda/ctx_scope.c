/* SPDX-License-Identifier: MIT */
/*
 * ctx_scope.c - see ctx_scope.h. Takes no lock.
 */

#include "../../pool/pool.h"
#include "ctx_scope.h"
#include "resolve.h"

CUresult gcp_ctx_scope_enter(struct gcp_ctx_scope *scope, CUcontext ctx)
{
	CUcontext current = NULL;
	CUresult result = CUDA_SUCCESS;

	gcp_assert_driver_call();
	scope->saved_errno = errno;
	scope->cancel = gcp_cancel_defer();
	scope->pushed = false;
	scope->relaxed = false;
	if (ctx) {
		result = gcp_real.cuCtxGetCurrent(&current);
		if (result == CUDA_SUCCESS && current != ctx) {
			result = gcp_real.cuCtxPushCurrent_v2(ctx);
			scope->pushed = result == CUDA_SUCCESS;
		}
	}
	if (result != CUDA_SUCCESS) {
		gcp_cancel_restore(&scope->cancel);
		errno = scope->saved_errno;
	}
	return result;
}

CUresult gcp_ctx_scope_begin(struct gcp_ctx_scope *scope, CUcontext ctx)
{
	CUresult result = gcp_ctx_scope_enter(scope, ctx);

	if (result != CUDA_SUCCESS)
		return result;
	scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	scope->relaxed =
	    gcp_real.cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
	return CUDA_SUCCESS;
}

void gcp_ctx_scope_end(struct gcp_ctx_scope *scope)
{
	CUcontext popped;

	gcp_assert_driver_call();
	if (scope->relaxed)
		gcp_real.cuThreadExchangeStreamCaptureMode(&scope->mode);
	if (scope->pushed)
		gcp_real.cuCtxPopCurrent_v2(&popped);
	gcp_cancel_restore(&scope->cancel);
	errno = scope->saved_errno;
}

CUresult gcp_event_create(CUcontext ctx, CUevent *ret_event)
{
	return GCP_WITHIN(ctx,
			  gcp_real.cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING));
}

/* A thread that frees need not have a context. */
CUresult gcp_event_query(CUcontext ctx, CUevent event)
{
	CUresult result = gcp_real.cuEventQuery(event);

	assert(ctx && event);
	return result == CUDA_ERROR_INVALID_CONTEXT
		   ? GCP_WITHIN(ctx, gcp_real.cuEventQuery(event))
		   : result;
}

int gcp_device_count(void)
{
	int count = 0;

	return gcp_real.cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

bool gcp_ctx_device(CUcontext ctx, CUdevice *ret_device)
{
	struct gcp_ctx_scope scope;
	bool found;

	if (gcp_ctx_scope_enter(&scope, ctx) != CUDA_SUCCESS)
		return false;
	found = gcp_real.cuCtxGetDevice(ret_device) == CUDA_SUCCESS;
	gcp_ctx_scope_end(&scope); /* the call is legal in every capture mode */
	return found;
}
