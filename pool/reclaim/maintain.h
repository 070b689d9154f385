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
	uint64_t turn;              /* of decay, the one that is under way */
	_Atomic uint64_t turned_ns; /* when it began; 0: there was none yet */
	uint64_t seen_epoch;        /* the open one when is_quiet asked last */
	/* Mapped segments: bytes that at no time of earlier turns were of use. */
	uint64_t lows[GCP_DECAY_TURNS];
	uint64_t epochs[GCP_DECAY_TURNS]; /* the open ones when these turns began */
};

/* Gives back what has been idle for long, or is beyond a limit. Only inside a free
 * that closed an epoch, no lock held. 0, or a sticky device error. */
int gcp_pool_maintain(struct gcp_pool *pool);

/* The cache limit alone, by what is completed, and without a wait: inside a free that
 * does not wait (stream_alloc.c), after it closed an epoch. No lock held. */
void gcp_pool_keep_limit(struct gcp_pool *pool);

/* The decay of the above alone, and without a wait: inside an allocation that missed
 * its thread's cache. No lock held. */
void gcp_pool_decay(struct gcp_pool *pool);

/* As if nothing had happened so far. pool->lock is held. */
void gcp_maintenance_reset(struct gcp_pool *pool);

#endif
