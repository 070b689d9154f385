/* SPDX-License-Identifier: MIT */
/*
 * reclaim.h - growth, decay and what happens when memory is out.
 */
#ifndef GCP_POOL_RECLAIM_H
#define GCP_POOL_RECLAIM_H

#include "../cache/cache.h"

/* --- maintain.c: what a pool gives back by itself --------------------------------- */

/* Gives back what has been idle for long, or is beyond a limit. Only inside a free
 * that closed an epoch, no lock held. 0, or a sticky device error. */
int gcp_pool_maintain(struct gcp_pool *pool);

/* The same by what is completed, and without a wait: inside a free that does not wait
 * (stream_alloc.c), after it closed an epoch. No lock held. */
void gcp_pool_maintain_gently(struct gcp_pool *pool);

/* --- grow.c ----------------------------------------------------------------------- */

/* New memory. 0 without a block: another thread was faster to take it. */
int gcp_grow(struct gcp_request *request);
int gcp_grow_plain(struct gcp_request *request); /* a segment of the driver's memory */

/* --- reclaim.c, purge.c, stats.c -------------------------------------------------- */

/* Waits for all work of the context also while a capture forbids fences. own: but not
 * for what other devices do for others; -EAGAIN: that is left. */
int gcp_pool_complete_by_free(struct gcp_pool *pool, bool own);
/* The device is full: gives back, stage by stage, and tries after each, until the
 * result is something else than GCP_CUDA_OUT_OF_MEMORY. */
int gcp_reclaim_and_retry(struct gcp_request *request);
/* For what is larger than the device: the driver says so, and nothing else is tried. */
int gcp_refuse(struct gcp_request *request);
/* Gives back what fits; returns the bytes. No lock held. */
uint64_t gcp_pool_purge(struct gcp_pool *pool, const struct gcp_purge *purge);
/* Makes what gives segments of the pool back without a wait, unless it is there. False:
 * not for now. No lock of the room is held. */
bool gcp_release_prepare(struct gcp_pool *pool);
/* Makes all threads' counts part of the pool's. */
void gcp_pool_gather(struct gcp_pool *pool);
/* Waits for all work until the end of `epoch`, and beside a capture for all of the
 * context. An error of the device. */
int gcp_pool_complete(struct gcp_pool *pool, uint64_t epoch);

#endif
