/* SPDX-License-Identifier: MIT */
/*
 * window.h - how much freed memory may wait for the device, and what is measured to
 * find that out. Part of pool_types.h.
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

/* The limits of a pool: how much freed memory may wait for the device. Computed when
 * an epoch is closed, a context begins or ends, or a stream is seen for the first
 * time; read without a lock. Each figure is good on its own. */
struct gcp_limits {
	_Atomic uint64_t bytes;       /* more than that pending: a barrier */
	_Atomic uint64_t epoch_bytes; /* an epoch that has taken so much is closed */
	_Atomic uint32_t blocks;      /* bytes, in blocks of one size */
	_Atomic uint32_t streams;     /* in use of late; 0: not known, assume many */
	_Atomic uint32_t scale;       /* times the limits were doubled */
	_Atomic uint64_t depot_bytes; /* in all depots of the pool */
	_Atomic uint32_t cached; /* so many size classes, from the smallest on, stay
				  * in thread caches */
};

/* All fields but starved: fence_lock. */
struct gcp_pressure {
	_Atomic bool starved;   /* a thread had to wait for the latest epochs */
	uint32_t short_epochs;  /* in a row */
	uint64_t closed_at_ns;  /* when the latest epoch was closed */
	uint64_t had_completed; /* epochs, when the limits last doubled */
};

/* A copy of the limits. */
struct gcp_window {
	uint64_t bytes;
	uint32_t blocks;
	uint64_t epoch_bytes;
	uint32_t epoch_blocks; /* or so many blocks of one thread: an epoch is closed */
	uint32_t streams;
};

/* window.c; any lock may be held. */

/* What may wait in the whole pool, and the calling thread's share of it. */
struct gcp_window gcp_window(const struct gcp_pool *pool);
struct gcp_window gcp_window_of_thread(const struct gcp_pool *pool);
/* How many bytes in closed epochs may wait where no barrier may be set. */
uint64_t gcp_window_multi_context(const struct gcp_pool *pool);
/* How many blocks of `size` the window has room for: one at least. */
uint32_t gcp_window_blocks(const struct gcp_window *window, uint64_t size);
/* How often the limits were doubled. */
uint32_t gcp_window_scale(const struct gcp_pool *pool);
/* Returns true if little of the pool's memory need wait: it is mapped, and can serve
 * any size, threads hardly meet at the pool's locks, streams do not run beside each
 * other, and fences cost little. */
bool gcp_window_is_narrow(const struct gcp_pool *pool);
/* How much threads may leave for each other. */
uint64_t gcp_window_depot_bytes(const struct gcp_pool *pool);

/* An epoch was closed just now. fence_lock is held. */
void gcp_window_epoch_closed(struct gcp_pool *pool);
/* All that a thread keeps of a class waits for the device. */
void gcp_window_starved(struct gcp_pool *pool);
/* A context has begun or ended: the limits of all pools are computed anew. */
void gcp_windows_update(struct gcp_pools *pools);

#endif
