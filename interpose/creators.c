/*
 * creators.c - the hooks on functions that create memory of other kinds:
 * managed, stream-ordered, arrays, virtual memory. They pass through;
 * when memory is out, the pools give theirs back, and the call gets a second
 * chance for as long as that helps. The last result is the program's.
 */
#include "hooks.h"
#include "life.h"
#include "memory.h"
#include "report.h"

/* First the current device, then any: pinned memory has no device, and cuMemCreate
 * names its own. Then pinned memory, which managed memory may be short of; and then
 * what graphs have held that are gone since. */
bool gcp_creators_reclaim(CUresult result)
{
	CUdevice device;

	if (result != CUDA_ERROR_OUT_OF_MEMORY || !gcp_process_pooling())
		return false;
	if (gcp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    gcp_pools_reclaim(gcp_process.pools, device) > 0)
		return true;
	if (gcp_pools_reclaim(gcp_process.pools, -1) > 0 ||
	    gcp_host_trim(gcp_process.pools, 0) > 0)
		return true;
	while (gcp_tracker_reclaim(gcp_process.tracker))
		if (gcp_pools_reclaim(gcp_process.pools, -1) > 0 ||
		    gcp_host_trim(gcp_process.pools, 0) > 0)
			return true;
	return false;
}

/* Which tally a call belongs to, and the bytes it asks for. */
#define GCP_TALLY_OF_cuMemAllocManaged            GCP_TALLY_mem_alloc_managed, bytes
#define GCP_TALLY_OF_cuMemAllocAsync              GCP_TALLY_mem_alloc_async, bytes
#define GCP_TALLY_OF_cuMemAllocAsync_ptsz         GCP_TALLY_mem_alloc_async, bytes
#define GCP_TALLY_OF_cuMemAllocFromPoolAsync      GCP_TALLY_mem_alloc_from_pool, bytes
#define GCP_TALLY_OF_cuMemAllocFromPoolAsync_ptsz GCP_TALLY_mem_alloc_from_pool, bytes
#define GCP_TALLY_OF_cuMemCreate                  GCP_TALLY_mem_create, bytes
#define GCP_TALLY_OF_cuArrayCreate_v2             GCP_TALLY_array_create, 0
#define GCP_TALLY_OF_cuArray3DCreate_v2           GCP_TALLY_array_create, 0
#define GCP_TALLY_OF_cuMipmappedArrayCreate       GCP_TALLY_array_create, 0

static void creators_count(uint64_t start, CUresult result, enum gcp_tally tally,
			   uint64_t bytes)
{
	gcp_tally_call(tally, start, bytes, (int)result);
}

#define GCP_X(name, base, version, flags, need, parameters, arguments)                 \
	CUresult gcp_hook_##name parameters                                            \
	{                                                                              \
		uint64_t start;                                                        \
		CUresult result;                                                       \
                                                                                       \
		if (gcp_life_state() == GCP_STATE_PASSIVE)                             \
			return gcp_real.name arguments;                                \
		start = gcp_tally_clock();                                             \
		do                                                                     \
			result = gcp_real.name arguments;                              \
		while (gcp_creators_reclaim(result));                                  \
		creators_count(start, result, GCP_TALLY_OF_##name);                    \
		return result;                                                         \
	}
GCP_HOOKS_CREATORS(GCP_X)
