/* SPDX-License-Identifier: MIT */
/*
 * maintain.h - what maintain.c keeps in a pool. Included by pool_types.h only.
 */
#ifndef GCP_POOL_MAINTAIN_H
#define GCP_POOL_MAINTAIN_H

#include <stdatomic.h>

#include "../pool.h"

enum { GCP_DECAY_TURNS = 4 }; /* in the time that memory may lie idle */

/* All fields but the atomic ones: pool->lock. */
struct gcp_maintenance {
	_Atomic bool scattered; /* an allocation missed: larger segments may help */
	_Atomic bool under_way; /* a thread gives back what is idle */
	uint32_t quiet_epochs;  /* closed since the latest miss */
	uint64_t freed_bytes;   /* in large blocks, since the idle ones were counted */
	uint64_t owed_bytes;    /* given back, to come again as one segment */
	uint64_t flush_below;   /* used bytes below which caches are emptied */
	uint64_t looked_ns;     /* when debt_ns was last reckoned */
	uint64_t debt_ns;       /* time that it cost and that is not saved yet */
	uint64_t turn;          /* of decay, the one that is under way */
	_Atomic uint64_t turned_ns; /* when it began; 0: there was none yet */
	uint64_t seen_epoch;        /* the open one when is_quiet asked last */
	/* Mapped segments: bytes that at no time of earlier turns were of use. */
	uint64_t lows[GCP_DECAY_TURNS];
	uint64_t epochs[GCP_DECAY_TURNS]; /* the open ones when these turns began */
};

/* A large block was freed. True: the epoch should be closed, for a look at what is
 * idle, if the call may look. pool->lock is held. */
bool gcp_maintenance_is_due(struct gcp_pool *pool, uint64_t freed);

/* Gives back what is idle and helps more with the driver than here. Only inside a free
 * that closed an epoch, no lock held. 0, or a sticky device error. */
int gcp_pool_maintain(struct gcp_pool *pool);

/* The cache limit alone, by what is completed, and without a wait: inside a free that
 * does not wait (stream_alloc.c), after it closed an epoch. No lock held. */
void gcp_pool_keep_limit(struct gcp_pool *pool);

/* The decay of the above alone, and without a wait: inside an allocation that missed
 * its thread's cache. No lock held. */
void gcp_pool_decay(struct gcp_pool *pool);

/* An allocation needs a segment of `bytes` from the driver. Returns how large it
 * should be. pool->lock is held. */
uint64_t gcp_maintenance_on_miss(struct gcp_pool *pool, uint64_t bytes);

/* As if nothing had happened so far. pool->lock is held. */
void gcp_maintenance_reset(struct gcp_pool *pool);

#endif
