/* SPDX-License-Identifier: MIT */
/*
 * ranges.h - sets of ranges of addresses, of debug_book.c, sleep.c and spill.c. Ranges
 * of one set do not overlap. The caller holds the lock of the set.
 */
#ifndef GCP_INTERPOSE_RANGES_H
#define GCP_INTERPOSE_RANGES_H

#include "../../pool/base/treap.h"
#include "../../pool/pool.h"

/* The first field of what a set holds. */
struct gcp_range {
	struct gcp_treap_node node;
	gcp_addr at;
	uint64_t bytes;
};

static inline bool gcp_range_before(const struct gcp_range *a,
				    const struct gcp_range *b)
{
	return a->at < b->at;
}

GCP_TREAP(gcp_ranges, gcp_range, node, gcp_range_before, NULL)

/* The first item that ends behind `addr`. */
static inline void *gcp_ranges_behind(const struct gcp_treap *set, gcp_addr addr)
{
	struct gcp_range key = {.at = addr + 1};
	struct gcp_range *before = gcp_ranges_below(set, &key);

	assert(!before || before->bytes > 0);
	return before && before->at + before->bytes > addr ? before
							   : gcp_ranges_from(set, &key);
}

#endif
