/* SPDX-License-Identifier: MIT */
/*
 * decay.h - what decay.c keeps in a pool, and what it does for alloc.c. Included by
 * pool_types.h only.
 */
#ifndef GCP_POOL_DECAY_H
#define GCP_POOL_DECAY_H

#include <stdatomic.h>

#include "pool.h"

enum { GCP_DECAY_TURNS = 4 }; /* in the time that memory may lie idle */

/* All fields but turned_ns: pool->lock. */
struct gcp_decay {
	uint64_t turn;              /* the one that is under way */
	_Atomic uint64_t turned_ns; /* when it began; 0: nobody looked yet */
	/* Mapped segments: bytes that at no time of this turn, and of those before,
	 * were of use. */
	uint64_t low_bytes, lows[GCP_DECAY_TURNS];
};

/* Gives memory back that nothing has used for config.decay_ms. Only inside a free that
 * closed an epoch, no lock held. 0, or a sticky device error. */
int gcp_pool_decay(struct gcp_pool *pool);

/* What was idle in an earlier life says nothing. pool->lock is held. */
void gcp_decay_reset(struct gcp_pool *pool);

#endif
