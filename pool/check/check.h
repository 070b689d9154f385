/* SPDX-License-Identifier: MIT */
/*
 * check.h - what tests have of pool/ beyond pool.h: checks of all invariants, and the
 * end of the pools. A library of its own (pool_check), never part of libgcpool.so.
 */
#ifndef GCP_POOL_CHECK_H
#define GCP_POOL_CHECK_H

#include "../pool_types.h"

/* Checks every invariant of every structure (pool_types.h and the headers beside it
 * number them). NULL, or a static sentence that names the broken one. Takes the locks
 * itself. */
const char *gcp_pools_check(struct gcp_pools *pools);

/* Frees everything, and calls no driver function but those that destroy fences and free
 * memory. No other thread may use the pools. Accepts NULL. */
void gcp_pools_destroy(struct gcp_pools *pools);

/* From a check: the invariant does not hold. */
#define GCP_MUST(condition, sentence)                                                  \
	do {                                                                           \
		if (!(condition))                                                      \
			return sentence;                                               \
	} while (0)

#endif
