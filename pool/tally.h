/*
 * tally.h - what a thread has counted and not yet handed to its pool: the gauges
 * allocation, requested_bytes and allocated_bytes, at the cost of a few additions.
 *
 * Part of types.h. A tally is guarded by the lock of whatever it is part of.
 */
#ifndef GCP_POOL_TALLY_H
#define GCP_POOL_TALLY_H

#include <stdbool.h>
#include <stdint.h>

enum { GCP_TALLY_LAG = 8 << 20 }; /* bytes by which a thread's count may lag */

enum gcp_level {
	GCP_LEVEL_BLOCKS,
	GCP_LEVEL_REQUESTED,
	GCP_LEVEL_ALLOCATED,
	GCP_LEVELS
};

/* What a thread counted and has not yet handed to its pool. A level for each of
 * the gauges allocation, requested_bytes and allocated_bytes.
 *  T1 delta <= high, high >= 0 */
struct gcp_tally {
	int64_t delta[GCP_LEVELS]; /* since the last hand-over */
	int64_t high[GCP_LEVELS];  /* its maximum since */
	uint64_t up[GCP_LEVELS];   /* sum of all increases since */
	uint64_t hits; /* of a cache: up[GCP_LEVEL_BLOCKS], when handed over */
};

/* True: some delta has passed its high; gcp_tally_raise. */
static inline bool gcp_tally_take(struct gcp_tally *tally, uint64_t requested,
				  uint64_t size)
{
	const int64_t change[GCP_LEVELS] = {1, (int64_t)requested, (int64_t)size};
	bool passed = false;

	for (int i = 0; i < GCP_LEVELS; i++) {
		tally->up[i] += (uint64_t)change[i];
		tally->delta[i] += change[i];
		passed |= tally->delta[i] > tally->high[i];
	}
	return passed;
}

static inline void gcp_tally_put(struct gcp_tally *tally, uint64_t requested,
				 uint64_t size)
{
	tally->delta[GCP_LEVEL_BLOCKS] -= 1;
	tally->delta[GCP_LEVEL_REQUESTED] -= (int64_t)requested;
	tally->delta[GCP_LEVEL_ALLOCATED] -= (int64_t)size;
}

/* Makes `high` what it should be. */
void gcp_tally_raise(struct gcp_tally *tally);
/* One block more (sign 1) or less (-1), with all that belongs to it. */
void gcp_tally_count(struct gcp_tally *tally, int sign, uint64_t requested,
		     uint64_t size);

#endif
