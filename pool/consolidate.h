/* SPDX-License-Identifier: MIT */
/*
 * consolidate.h - what consolidate.c keeps in a pool, and what it does for alloc.c and
 * grow.c. Included by pool_types.h only.
 */
#ifndef GCP_POOL_CONSOLIDATE_H
#define GCP_POOL_CONSOLIDATE_H

#include <stdatomic.h>

#include "pool.h"

/* All fields but the flags: pool->lock. */
struct gcp_consolidation {
	_Atomic bool scattered;    /* an allocation missed: consolidation may help */
	_Atomic bool under_way;    /* a thread is at it */
	uint32_t epochs;           /* closed since the latest miss */
	uint64_t freed_bytes;      /* in large blocks, since it looked last */
	uint32_t idle_segments;    /* segments, none for slabs, that hold no block */
	uint64_t idle_bytes;       /* in them */
	uint64_t owed_bytes;       /* given back, to come again as one segment */
	uint64_t busy_peak;        /* highest active_bytes of this round, */
	uint64_t busy_peak_before; /* and of the round before */
	uint64_t flush_below;      /* used bytes below which caches are emptied */
	uint64_t looked_ns;        /* when debt_ns was last reckoned */
	uint64_t debt_ns;          /* time that it cost and that is not saved yet */
};

/* A large block was freed. True: the epoch should be closed, for a look at what is
 * idle, if the call may look. pool->lock is held. */
bool gcp_consolidation_is_due(struct gcp_pool *pool, uint64_t freed);

/* Gives idle segments back if that helps the next miss. Only inside a free, no
 * lock held. 0, or a sticky device error. */
int gcp_pool_consolidate(struct gcp_pool *pool);

/* An allocation needs a segment of `bytes` from the driver. Returns how large it
 * should be. pool->lock is held. */
uint64_t gcp_consolidation_on_miss(struct gcp_pool *pool, uint64_t bytes);

/* As if nothing had happened so far. pool->lock is held. */
void gcp_consolidation_reset(struct gcp_pool *pool);

#endif
