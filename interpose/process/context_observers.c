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

static void tracker_ending(CUcontext ctx)
{
	(void)ctx;
	if (gcp_process_pooling())
		gcp_tracker_context_ending(gcp_process.tracker);
}

static void tracker_gone(CUcontext ctx)
{
	if (gcp_process_pooling())
		gcp_tracker_context_gone(gcp_process.tracker, ctx);
}

/* Puts it behind older barriers. */
static void pool_joined(CUcontext ctx)
{
	assert(ctx);
	if (gcp_process_pooling())
		gcp_pools_context_joined(gcp_process.pools, ctx, gcp_fence_wait_in);
}

static void pool_ending(CUcontext ctx)
{
	if (gcp_process_pooling())
		gcp_pool_detach(gcp_process.pools, ctx);
}

static void pool_gone(CUcontext ctx)
{
	if (ctx && gcp_process_pooling())
		gcp_pool_reset(gcp_process.pools, ctx);
}

static void pool_stays(CUcontext ctx)
{
	if (gcp_process_pooling())
		gcp_pool_reattach(gcp_process.pools, ctx); /* sets barriers */
}

static void memory_joined(CUcontext ctx)
{
	CUdevice device;

	if (gcp_ctx_device(ctx, &device) && gcp_vmm_device_joined(device))
		gcp_imports_device_joined(device);
}

static void observer_gone(CUcontext ctx)
{
	if (gcp_process.observer)
		gcp_process.observer->context(ctx, -1);
}

/* Captures end before the memory that they hold goes. */
const struct gcp_context_observer gcp_context_observers[] = {
    {.joined = memory_joined},
    {.gone = gcp_fence_all_context_gone},
    {.gone = gcp_foreign_work_context_gone},
    {.ending = tracker_ending, .gone = tracker_gone},
    {pool_joined, pool_ending, pool_gone, pool_stays},
    {.gone = gcp_passed_context_gone},
    {.gone = gcp_imports_context_gone},
    {.gone = observer_gone},
};
const size_t gcp_context_observer_count =
    sizeof(gcp_context_observers) / sizeof(gcp_context_observers[0]);
