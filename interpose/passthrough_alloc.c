/* SPDX-License-Identifier: MIT */
/*
 * passthrough_alloc.c - the hooks on functions that create memory of other kinds:
 * managed, arrays, virtual memory. They pass through;
 * when memory is out, the pools give theirs back, and the call gets a second
 * chance for as long as that helps. The last result is the program's.
 */
#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"
#include "report.h"
#include "shortage.h"

/* After the pools, what graphs have held that are gone since. */
bool gcp_passthrough_reclaim(CUresult result)
{
	CUdevice device;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || !gcp_process_pooling())
		return false;
	if (gcp_real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		device = -1;
	do
		if (gcp_pools_relieve(gcp_process.pools, device))
			return true;
	while (gcp_tracker_reclaim(gcp_process.tracker));
	return false;
}

/* Which statistics a call belongs to, and the bytes it asks for. */
#define GCP_COUNTED_OF_cuMemAllocManaged      GCP_COUNTED_mem_alloc_managed, bytes
#define GCP_COUNTED_OF_cuMemCreate            GCP_COUNTED_mem_create, bytes
#define GCP_COUNTED_OF_cuArrayCreate_v2       GCP_COUNTED_array_create, 0
#define GCP_COUNTED_OF_cuArray3DCreate_v2     GCP_COUNTED_array_create, 0
#define GCP_COUNTED_OF_cuMipmappedArrayCreate GCP_COUNTED_array_create, 0

static void creators_count(const char *call, uint64_t start, CUresult result,
			   enum gcp_counted_call call_stats, uint64_t bytes)
{
	gcp_call_stats_add(call_stats, start, bytes, (int)result);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		gcp_shortage_say(call, bytes, GCP_SHORTAGE_DRIVER);
}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		uint64_t start;                                                        \
		CUresult result;                                                       \
                                                                                       \
		if (gcp_process_started_mode() == GCP_RUN_PASSIVE)                     \
			return gcp_real.name arguments;                                \
		start = gcp_call_stats_clock();                                        \
		do                                                                     \
			result = gcp_real.name arguments;                              \
		while (gcp_passthrough_reclaim(result));                               \
		creators_count(#base, start, result, GCP_COUNTED_OF_##name);           \
		return result;                                                         \
	}
GCP_HOOKS_CREATORS(GCP_X)
