/* SPDX-License-Identifier: MIT */
/*
 * sync_memops.h - blocks with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: copies and fills of
 * such memory that are not asynchronous in name return when they are done.
 */
#ifndef GCP_INTERPOSE_SYNC_MEMOPS_H
#define GCP_INTERPOSE_SYNC_MEMOPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cuda/symbols.h"

/* Sets or ends the attribute of the block at `addr`. `id`: of its allocation
 * (gcp_pools_find). False: the host has no memory. */
bool gcp_sync_memops_set(CUdeviceptr addr, uint64_t id, bool on);
bool gcp_sync_memops_get(CUdeviceptr addr, uint64_t id);

extern atomic_bool gcp_sync_memops_seen __attribute__((visibility("hidden")));

/* True once any block has had it. A relaxed load. */
static inline bool gcp_sync_memops_any(void)
{
	return atomic_load_explicit(&gcp_sync_memops_seen, memory_order_relaxed);
}

/* After a copy or fill in the default stream gave `result`: waits for that stream if
 * one of the addresses is in a block with the attribute. */
CUresult gcp_sync_memops_wait(CUresult result, CUdeviceptr to, CUdeviceptr from,
			      bool per_thread);

#endif
