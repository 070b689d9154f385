/*
 * process.h - the one struct of this process: what the library is doing, with
 * which options, on which pools.
 *
 * Written once by life.c under its lock, before `state` says so; read by every
 * hook without a lock.
 */
#ifndef GCP_INTERPOSE_PROCESS_H
#define GCP_INTERPOSE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../capture/capture.h"
#include "options.h"

enum gcp_state {
	GCP_STATE_FRESH,   /* no allocation yet: nothing is set up */
	GCP_STATE_POOL,    /* allocations are served from the pools */
	GCP_STATE_COUNT,   /* everything passes through, counted and timed */
	GCP_STATE_PASSIVE, /* everything passes through: off, or a forked child */
};

struct gcp_process {
	_Atomic(enum gcp_state) state;
	/* Valid once state left GCP_STATE_FRESH: */
	struct gcp_options options;
	struct gcp_pools *pools;           /* NULL unless GCP_STATE_POOL was reached */
	struct gcp_tracker *tracker;       /* the same */
	const _Atomic uint32_t *attention; /* the tracker's: gcp_process_busy */
};

extern struct gcp_process gcp_process;

static inline enum gcp_state gcp_process_state(void)
{
	return atomic_load_explicit(&gcp_process.state, memory_order_acquire);
}

static inline bool gcp_process_passive(void)
{
	return gcp_process_state() == GCP_STATE_PASSIVE;
}

static inline bool gcp_process_pooling(void)
{
	return gcp_process_state() == GCP_STATE_POOL;
}

/* gcp_tracker_busy for each allocation. Only while pooling. */
static inline bool gcp_process_busy(void)
{
	return atomic_load_explicit(gcp_process.attention, memory_order_relaxed) > 0;
}

/* Whether a stream capture is under way or about to begin. */
static inline bool gcp_process_capturing(void)
{
	return gcp_process_pooling() && gcp_tracker_capturing(gcp_process.tracker);
}

#endif
