/* SPDX-License-Identifier: MIT */
/*
 * handles_report.h - statistics of library handles.
 */
#ifndef GCP_INTERPOSE_HANDLES_REPORT_H
#define GCP_INTERPOSE_HANDLES_REPORT_H

#include <stdatomic.h>
#include <stdint.h>

#include "log.h"

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

/* A row for each library of which the pool knew a handle. */
void gcp_handles_text(struct gcp_text *text);
void gcp_handles_json(struct gcp_text *text);

#endif
