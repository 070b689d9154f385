/* SPDX-License-Identifier: MIT */
/*
 * call_stats.h - what report.c reads of call_stats.c; the hooks need report.h only.
 */
#ifndef GCP_INTERPOSE_CALL_STATS_H
#define GCP_INTERPOSE_CALL_STATS_H

#include "report.h"

/* Sums over the life of the process. */
struct gcp_call_stats_sum {
	uint64_t count, failed; /* calls */
	uint64_t bytes;         /* of calls that succeeded */
	uint64_t ns;
	uint64_t held; /* bytes that the program has now */
};

/* The program has got `bytes` by it, or given them back (< 0). */
void gcp_call_stats_hold(enum gcp_counted_call call, int64_t bytes);

void gcp_call_stats_get(enum gcp_counted_call call, struct gcp_call_stats_sum *ret_sum);

/* When gcp_call_stats_begin was first called, or 0. */
uint64_t gcp_call_stats_start_ns(void);

#endif
