/* SPDX-License-Identifier: MIT */
/*
 * stats_delta.h - what a thread has counted and not yet handed to its pool: the gauges
 * allocation, requested_bytes, allocated_bytes and async_bytes, at the cost of a few
 * additions.
 *
 * Part of pool_types.h. A delta is guarded by the lock of whatever it is part of.
 */
#ifndef GCP_POOL_STATS_DELTA_H
#define GCP_POOL_STATS_DELTA_H

#include <stdbool.h>
#include <stdint.h>

enum { GCP_STATS_LAG = 8 << 20 }; /* bytes by which a thread's count may lag */

enum gcp_stats_level {
	GCP_STATS_LEVEL_BLOCKS,
	GCP_STATS_LEVEL_REQUESTED,
	GCP_STATS_LEVEL_ALLOCATED,
	GCP_STATS_LEVEL_ASYNC, /* not of each block: gcp_stats_delta_async */
	GCP_STATS_LEVELS
};

/* What a thread counted and has not yet handed to its pool. A level for each of
 * the gauges allocation, requested_bytes, allocated_bytes and async_bytes.
 *  T1 net <= high, high >= 0 */
struct gcp_stats_delta {
	int64_t net[GCP_STATS_LEVELS];  /* since the last hand-over */
	int64_t high[GCP_STATS_LEVELS]; /* its maximum since */
	uint64_t up[GCP_STATS_LEVELS];  /* sum of all increases since */
	uint64_t hits; /* of a cache: up[GCP_STATS_LEVEL_BLOCKS], when handed over */
};

static inline bool gcp_stats_delta_rise(struct gcp_stats_delta *delta, int level,
					uint64_t by)
{
	delta->up[level] += by;
	delta->net[level] += (int64_t)by;
	return delta->net[level] > delta->high[level];
}

/* True: some net count has passed its high; gcp_stats_delta_raise. */
static inline bool gcp_stats_delta_alloc(struct gcp_stats_delta *delta,
					 uint64_t requested, uint64_t size)
{
	return gcp_stats_delta_rise(delta, GCP_STATS_LEVEL_BLOCKS, 1) |
	       gcp_stats_delta_rise(delta, GCP_STATS_LEVEL_REQUESTED, requested) |
	       gcp_stats_delta_rise(delta, GCP_STATS_LEVEL_ALLOCATED, size);
}

static inline void gcp_stats_delta_free(struct gcp_stats_delta *delta,
					uint64_t requested, uint64_t size)
{
	delta->net[GCP_STATS_LEVEL_BLOCKS] -= 1;
	delta->net[GCP_STATS_LEVEL_REQUESTED] -= (int64_t)requested;
	delta->net[GCP_STATS_LEVEL_ALLOCATED] -= (int64_t)size;
}

/* Stream-ordered memory: so many bytes more or (below 0) less of it. */
static inline void gcp_stats_delta_async(struct gcp_stats_delta *delta, int64_t change)
{
	if (change < 0)
		delta->net[GCP_STATS_LEVEL_ASYNC] += change;
	else if (gcp_stats_delta_rise(delta, GCP_STATS_LEVEL_ASYNC, (uint64_t)change))
		delta->high[GCP_STATS_LEVEL_ASYNC] = delta->net[GCP_STATS_LEVEL_ASYNC];
}

/* Makes `high` what it should be. */
void gcp_stats_delta_raise(struct gcp_stats_delta *delta);
/* One block more, with all that belongs to it. */
void gcp_stats_delta_count(struct gcp_stats_delta *delta, uint64_t requested,
			   uint64_t size);

#endif
