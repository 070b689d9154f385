/* SPDX-License-Identifier: MIT */
/*
 * context_observers.c - see context_observers.h.
 */
#include "context_observers.h"
#include "cuda_backend.h"
#include "../cuda/cuda_vmm.h"
#include "../cuda/fence_all.h"
#include "../cuda/foreign_work.h"
#include "../ipc/ipc_imports.h"
#include "../observe/observer.h"
#include "passed.h"
#include "spill.h"

static void context_joined(CUcontext ctx)
{
	CUdevice device;

	assert(ctx);
	if (gcp_ctx_device(ctx, &device) && gcp_vmm_device_joined(device)) {
		gcp_imports_device_joined(device);
		gcp_spill_device_joined(device);
	}
	if (gcp_process_pooling()) /* it is put behind older barriers */
		gcp_pools_context_joined(gcp_process.pools, ctx, gcp_fence_wait_in);
}

/* Captures end before the memory that they hold goes. */
static void context_ending(CUcontext ctx)
{
	assert(ctx && gcp_ranks_held == 0);
	if (!gcp_process_pooling())
		return;
	gcp_tracker_context_ending(gcp_process.tracker);
	gcp_pool_detach(gcp_process.pools, ctx);
}

static void context_gone(CUcontext ctx)
{
	gcp_fence_all_context_gone(ctx);
	if (gcp_process_pooling()) {
		gcp_foreign_work_context_gone(ctx);
		gcp_tracker_context_gone(gcp_process.tracker, ctx);
		gcp_spill_context_gone(ctx);
	}
	if (ctx && gcp_process_pooling())
		gcp_pool_reset(gcp_process.pools, ctx);
	gcp_passed_context_gone(ctx);
	gcp_imports_context_gone(ctx);
	if (gcp_process.observer)
		gcp_process.observer->context(ctx, -1);
}

static void context_stays(CUcontext ctx)
{
	assert(ctx);
	if (gcp_process_pooling())
		gcp_pool_reattach(gcp_process.pools, ctx); /* sets barriers */
}

const struct gcp_context_observer gcp_contexts_observer = {
    .joined = context_joined,
    .ending = context_ending,
    .gone = context_gone,
    .stays = context_stays,
};
