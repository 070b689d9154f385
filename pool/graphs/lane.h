/* SPDX-License-Identifier: MIT */
/*
 * lane.h - what lane.c and lane_move.c know of lanes, and check.c. vmm_lock
 * guards all of it.
 */
#ifndef GCP_POOL_LANE_H
#define GCP_POOL_LANE_H

#include "../space/vmm.h"

/* Handles of one size. */
struct gcp_lane_stack {
	uint64_t *handles;
	uint32_t count, room;
};

/*  X8 of each size a heap is mapped to the first `lane_used` handles
 *  X9 what is above that of all its heaps is mapped nowhere */
struct gcp_lane {
	struct gcp_pool *pool;
	uint64_t bytes;
	bool gone; /* with the context */
	TAILQ_HEAD(, gcp_heap) heaps;
	struct gcp_lane_stack stacks[GCP_HANDLE_MOST + 1]; /* [chunks] */
	TAILQ_ENTRY(gcp_lane) link;                        /* pool->lanes */
};

/* Room for so many handles more. False: no memory. */
bool gcp_lane_stack_reserve(struct gcp_lane_stack *stack, uint32_t more);
/* There is room for it. */
void gcp_lane_add(struct gcp_lane *lane, uint64_t handle, uint32_t chunks);
/* Gives the handles back that stand at `from` and above. */
void gcp_lane_release(struct gcp_lane *lane, uint32_t size, uint32_t from);
/* How many handles of that size the lane's heaps are mapped to; but for this one. */
uint32_t gcp_lane_used(const struct gcp_lane *lane, uint32_t size,
		       const struct gcp_heap *except);
/* Counts what the lane has by now. */
void gcp_lane_count(struct gcp_lane *lane);
/* Unmaps all that the heap shares. */
int gcp_lane_unmap(struct gcp_heap *heap);
/* The heap is in no lane any more. */
void gcp_lane_leave(struct gcp_heap *heap);

#endif
