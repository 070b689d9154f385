/* SPDX-License-Identifier: MIT */
/*
 * call_stats.h - what report.c reads of call_stats.c; the hooks need report.h only.
 */
#ifndef GCP_INTERPOSE_CALL_STATS_H
#define GCP_INTERPOSE_CALL_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "report.h"
#include "../base/log.h"

/* Sums over the life of the process. */
struct gcp_call_stats_sum {
	uint64_t count, failed; /* calls */
	uint64_t bytes;         /* of calls that succeeded */
	uint64_t ns;
};

void gcp_call_stats_get(enum gcp_counted_call call, struct gcp_call_stats_sum *ret_sum);

/* When gcp_call_stats_begin was first called, or 0. */
uint64_t gcp_call_stats_start_ns(void);

/* Handles of one library that the pool knows. */
struct gcp_handle_counts {
	_Atomic uint64_t created;   /* by the library */
	_Atomic uint64_t reused;    /* creations that the pool served */
	_Atomic uint64_t destroyed; /* by the library */
	_Atomic uint64_t used;      /* the program has them now */
	_Atomic uint64_t peak;      /* the most that it had at one time */
};

/* By GCP_HANDLE_INDEX_. */
extern struct gcp_handle_counts gcp_handle_counts[];

/* One more is in use. */
void gcp_handle_counts_use(struct gcp_handle_counts *counts);

/* Of all libraries: those that the program has, and those kept for the next creation.
 */
void gcp_handle_counts_sum(uint64_t *ret_used, uint64_t *ret_kept);

/* A row for each library of which the pool knew a handle. */
void gcp_handles_text(struct gcp_text *text);
void gcp_handles_json(struct gcp_text *text);

#endif
