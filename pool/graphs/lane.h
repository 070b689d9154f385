/* SPDX-License-Identifier: MIT */
/*
 * lane.h - what lane.c knows of lanes, and check.c. vmm_lock
 * guards all of it.
 */
#ifndef GCP_POOL_LANE_H
#define GCP_POOL_LANE_H

#include "../space/vmm.h"

/* Handles of one size. `last_of`: so many heaps are mapped to this one, and to none
 * above it. */
struct gcp_lane_stack {
	struct gcp_lane_handle {
		uint64_t handle;
		uint32_t last_of;
	} * handles;
	uint32_t count;
};

/*  X8 of each size a heap is mapped to the first `lane_used` handles
 *  X9 above that of all its heaps it has none */
struct gcp_lane {
	struct gcp_pool *pool;
	uint64_t bytes;
	TAILQ_HEAD(, gcp_heap) heaps;
	struct gcp_lane_stack stacks[GCP_HANDLE_MOST + 1]; /* [chunks] */
	TAILQ_ENTRY(gcp_lane) link;                        /* pool->lanes */
};

#endif
