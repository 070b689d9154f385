/* SPDX-License-Identifier: MIT */
/*
 * async_pools.h - CUDA's own pools of stream-ordered memory, as far as the program sets
 * and asks them, and whether this library stands for the default one of a device.
 */
#ifndef GCP_INTERPOSE_ASYNC_POOLS_H
#define GCP_INTERPOSE_ASYNC_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "symbols.h"

struct gcp_pool;

/* Whether memory that would come from the default pool of `device` comes from `pool`
 * instead. named: the pool that the program named; NULL: the current one of the device.
 * Two loads, once the device is known. Only while pooling. */
bool gcp_async_serves(int device, const struct gcp_pool *pool, CUmemoryPool named);
/* Whether other devices reach the block at `addr`, which the caller has, when they have
 * access to the default pool of `device`, now or later. One load where there are none.
 */
bool gcp_async_reaches(int device, uint64_t addr);

/* The default pool of `device`; NULL: it is not known. */
CUmemoryPool gcp_async_default_pool(int device);

#endif
