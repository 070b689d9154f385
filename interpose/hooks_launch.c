/* SPDX-License-Identifier: MIT */
/*
 * hooks_launch.c - the hooks on kernel launches. They note the stream that a thread
 * works on while captures are under way, for memory that it allocates then may
 * belong to that stream's capture; and they tell the pools which streams are in
 * use, which costs two loads for one that was used of late. One that fails for want of
 * memory gets a second chance, as in hooks_memory.c.
 */
#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"
#include "streams.h"

static void launch_on(CUstream stream, bool per_thread)
{
	CUstream named = gcp_stream_named(stream, per_thread);

	if (!gcp_process_pooling())
		return;
	gcp_stream_used(named);
	if (gcp_tracker_capturing(gcp_process.tracker))
		gcp_stream_work_given(named);
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
static bool launch_reclaims(CUresult result)
{
	return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) &&
	       !gcp_process_capturing() && gcp_passthrough_reclaim(result);
}

CUresult gcp_hook_cuLaunchKernel(CUfunction function, unsigned int grid_x,
				 unsigned int grid_y, unsigned int grid_z,
				 unsigned int block_x, unsigned int block_y,
				 unsigned int block_z, unsigned int shared_bytes,
				 CUstream stream, void **parameters, void **extra)
{
	CUresult result;

	launch_on(stream, false);
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
	CUresult result;

	launch_on(stream, true);
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
	CUresult result;

	if (config) {
		launch_on(config->hStream, false);
		launch_orders(config);
	}
	do
		result = gcp_real.cuLaunchKernelEx(config, function, parameters, extra);
	while (launch_reclaims(result));
	return result;
}

CUresult gcp_hook_cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config,
					CUfunction function, void **parameters,
					void **extra)
{
	CUresult result;

	if (config) {
		launch_on(config->hStream, true);
		launch_orders(config);
	}
	do
		result =
		    gcp_real.cuLaunchKernelEx_ptsz(config, function, parameters, extra);
	while (launch_reclaims(result));
	return result;
}
