/* SPDX-License-Identifier: MIT */
/*
 * hooks_launch.c - the hooks on kernel launches: called while captures are under way,
 * as hooks_submit.c, and for one that fails for want of memory, which gets a second
 * chance, as in hooks_memory.c.
 */
#include <errno.h>

#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"
#include "streams.h"

static CUresult launch_on(CUstream stream, bool per_thread)
{
	gcp_stream_seen(stream, per_thread);
	return gcp_stream_submits(stream, per_thread);
}

/* A kernel that lets others start before it has ended is not in one line with
 * them, and the graph does not say so in its nodes. */
static void launch_orders(const struct CUlaunchConfig_st *config)
{
	if (!gcp_process_capturing())
		return;
	for (unsigned int i = 0; config->attrs && i < config->numAttrs; i++) {
		CUlaunchAttributeID id = config->attrs[i].id;

		if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
		    id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
		    id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			gcp_tracker_order_unknown(gcp_process.tracker);
	}
}

/* A kernel's local memory is taken at its launch, which fails if the pools have all of
 * it: then they give theirs back. Not beside a capture, and not for errors that stay.
 */
bool gcp_launch_reclaims(CUresult result)
{
	int saved = errno;
	bool reclaimed = !gcp_process_capturing() && gcp_passthrough_reclaim(result);

	errno = saved;
	return reclaimed;
}

static bool launch_reclaims(CUresult result)
{
	return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) &&
	       gcp_launch_reclaims(result);
}

CUresult gcp_hook_cuLaunchKernel(CUfunction function, unsigned int grid_x,
				 unsigned int grid_y, unsigned int grid_z,
				 unsigned int block_x, unsigned int block_y,
				 unsigned int block_z, unsigned int shared_bytes,
				 CUstream stream, void **parameters, void **extra)
{
	CUresult result = launch_on(stream, false);

	if (result != CUDA_SUCCESS)
		return result;
	do
		result = gcp_real.cuLaunchKernel(
		    function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
		    shared_bytes, stream, parameters, extra);
	while (launch_reclaims(result));
	return result;
}

CUresult gcp_hook_cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x,
				      unsigned int grid_y, unsigned int grid_z,
				      unsigned int block_x, unsigned int block_y,
				      unsigned int block_z, unsigned int shared_bytes,
				      CUstream stream, void **parameters, void **extra)
{
	CUresult result = launch_on(stream, true);

	if (result != CUDA_SUCCESS)
		return result;
	do
		result = gcp_real.cuLaunchKernel_ptsz(
		    function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
		    shared_bytes, stream, parameters, extra);
	while (launch_reclaims(result));
	return result;
}

CUresult gcp_hook_cuLaunchKernelEx(const struct CUlaunchConfig_st *config,
				   CUfunction function, void **parameters, void **extra)
{
	CUresult result = config ? launch_on(config->hStream, false) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS)
		return result;
	if (config)
		launch_orders(config);
	do
		result = gcp_real.cuLaunchKernelEx(config, function, parameters, extra);
	while (launch_reclaims(result));
	return result;
}

CUresult gcp_hook_cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config,
					CUfunction function, void **parameters,
					void **extra)
{
	CUresult result = config ? launch_on(config->hStream, true) : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS)
		return result;
	if (config)
		launch_orders(config);
	do
		result =
		    gcp_real.cuLaunchKernelEx_ptsz(config, function, parameters, extra);
	while (launch_reclaims(result));
	return result;
}
