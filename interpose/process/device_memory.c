/* SPDX-License-Identifier: MIT */
/*
 * device_memory.c - the hooks on how much memory there is.
 *
 * What the pools could give back counts as free: programs size their own caches by it.
 *
 * Rules of what programs are told:
 *  Q8 with a quota the device is that large
 *  Q9 what is called free is not beyond the quota
 */
#include <stdlib.h>

#include "../base/clock.h"
#include "../cuda/call.h"
#include "calling_thread.h"
#include "passed.h"
#include "process_life.h"

/* Returns true if the pools answer. A quota is in force before the first allocation. */
static bool pools_answer(void)
{
	if (gcp_process_run_mode() == GCP_RUN_FRESH && secure_getenv("GCPOOL_QUOTA"))
		(void)gcp_process_start();
	return gcp_process_pooling();
}

GCP_HOOKED(cuDeviceTotalMem_v2)
{
	CUresult result = gcp_real.cuDeviceTotalMem_v2(ret_bytes, device);
	uint64_t quota = GCP_LIMIT_NONE;

	if (result == CUDA_SUCCESS && pools_answer())
		quota = gcp_pools_quota(gcp_process.pools, *ret_bytes);
	if (quota != GCP_LIMIT_NONE)
		*ret_bytes = quota;
	return result;
}

static void left_correct(size_t *available, size_t *total)
{
	struct gcp_pools *pools = gcp_process.pools;
	bool pool = gcp_thread_pool() != NULL;
	int device = pool ? gcp_thread.device : gcp_device_here();
	uint64_t quota = gcp_pools_quota(pools, *total), back = 0;
	int64_t left;

	if (pool) {
		gcp_tracker_collect(gcp_process.tracker);
		back = gcp_pools_reclaimable(pools, device);
		*available += back;
	}
	if (quota != GCP_LIMIT_NONE) {
		left = (int64_t)(quota + back - gcp_pools_taken(pools, device));
		if (left < (int64_t)*available)
			*available = left > 0 ? (size_t)left : 0;
		*total = quota;
	}
	if (*available > *total)
		*available = *total;
}

/* Either may be NULL. */
GCP_HOOKED(cuMemGetInfo_v2)
{
	uint64_t start = gcp_clock_ns();
	size_t available = 0, total = 0;
	CUresult result;

	result = gcp_real.cuMemGetInfo_v2(&available, &total);
	gcp_call_stats_add(GCP_COUNTED_mem_get_info, start, 0, result);
	if (result != CUDA_SUCCESS)
		return result;
	if (pools_answer())
		left_correct(&available, &total);
	assert(available <= total);
	if (ret_free)
		*ret_free = available;
	if (ret_total)
		*ret_total = total;
	return CUDA_SUCCESS;
}
