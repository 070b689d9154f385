/* SPDX-License-Identifier: MIT */
/*
 * spill.h - memory of the host, behind addresses of the device, for what a full device
 * has no memory for (GCPOOL_SPILL). It is outside the pools: to them, and to the quota,
 * such a block has passed through to CUDA.
 */
#ifndef GCP_INTERPOSE_SPILL_H
#define GCP_INTERPOSE_SPILL_H

#include "../base/process.h"

/* Gives a block for the context of the pool. False: the host has no memory for it, or a
 * stream captures. Asks the device what is done, and never waits. Called without
 * locks. */
bool gcp_spill_alloc(struct gcp_pool *pool, uint64_t bytes, bool async,
		     gcp_addr *ret_addr);
/* -ENOENT: no block of these; -EINVAL: none begins there; > 0: it is freed, and the
 * context has this error. waits: as cuMemFree does, for all work of the block's
 * context, if it is not stream-ordered. */
int gcp_spill_free(CUdeviceptr addr, bool waits);

/* Finds the block that holds `ptr`, as gcp_pools_find: without pool and heap. */
bool gcp_spill_find(CUdeviceptr ptr, struct gcp_block_info *ret_info);
/* The same of the pools first. */
int gcp_block_find(CUdeviceptr ptr, struct gcp_block_info *ret_info);

/* Gives back what no block needs. */
void gcp_spill_trim(void);
/* Called when all work is done and no call of the program comes, with sleep.c's lock
 * held: blocks move to their devices, the oldest first, as far as there is room. look:
 * none moves, and true says that one would. */
bool gcp_spill_return(bool look);

/* As context observers. */
void gcp_spill_device_joined(int device);
void gcp_spill_context_gone(CUcontext ctx);

#endif
