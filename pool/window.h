/* SPDX-License-Identifier: MIT */
/*
 * window.h - how much freed memory may wait for the device. Part of pool_types.h.
 */
#ifndef GCP_POOL_WINDOW_H
#define GCP_POOL_WINDOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gcp_pool;
struct gcp_pools;

/* Streams that work went to: a bit for each, found by hashing. Hints. */
struct gcp_streams {
	_Atomic uint64_t now,
	    before;      /* since the latest turn, and in the turn before */
	uint32_t epochs; /* closed, of all pools; fence_lock */
};

/* How much freed memory may wait for the device. */
struct gcp_window {
	uint64_t bytes;        /* more than that pending: a barrier, not new memory */
	uint32_t blocks;       /* the same in blocks of one size */
	uint64_t epoch_bytes;  /* an epoch that has taken so much is closed */
	uint32_t epoch_blocks; /* or so many blocks of one thread */
	uint32_t streams;      /* in use of late; 0: not known, assume many */
};

/* window.c; any lock may be held. */

/* What may wait in the whole pool, and the calling thread's share of it. */
struct gcp_window gcp_window(const struct gcp_pool *pool);
struct gcp_window gcp_window_of_thread(const struct gcp_pool *pool);
/* How many bytes in closed epochs may wait where no barrier may be set. */
uint64_t gcp_window_multi_context(const struct gcp_pool *pool);
/* A barrier was set, an epoch was closed just now. fence_lock is held. */
void gcp_window_barrier_set(struct gcp_pool *pool);
void gcp_window_epoch_closed(struct gcp_pool *pool);
/* All that a thread keeps of a class waits for the device. */
void gcp_window_starved(struct gcp_pool *pool);
/* How many blocks of `size` that is: one at least. */
uint32_t gcp_window_blocks(const struct gcp_window *window, uint64_t size);
/* An epoch was closed: streams that are not used any more are forgotten in time.
 * fence_lock is held. */
void gcp_streams_epoch_closed(struct gcp_pools *pools);

#endif
