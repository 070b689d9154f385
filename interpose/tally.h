/*
 * tally.h - what report.c reads of tally.c; the hooks need report.h only.
 */
#ifndef GCP_INTERPOSE_TALLY_H
#define GCP_INTERPOSE_TALLY_H

#include <stdint.h>

#include "report.h"

/* Sums over the life of the process. */
struct gcp_tally_sum {
	uint64_t count, failed; /* calls */
	uint64_t bytes;         /* of calls that succeeded */
	uint64_t ns;
};

void gcp_tally_call_get(enum gcp_tally call, struct gcp_tally_sum *ret_sum);

/* When gcp_tally_begin was first called, or 0. */
uint64_t gcp_tally_start_ns(void);

#endif
