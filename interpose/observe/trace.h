/* SPDX-License-Identifier: MIT */
/*
 * trace.h - a recording of what the program and the pool do (GCPOOL_TRACE): events into
 * the file of trace_file.h. Called by instruments.c and trace_driver.c, with any lock
 * held unless it says otherwise. Nothing here calls CUDA or the pool but
 * gcp_trace_sample and gcp_trace_held.
 */
#ifndef GCP_INTERPOSE_TRACE_H
#define GCP_INTERPOSE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/options.h"
#include "trace_format.h"
#include "trace_stacks.h"

/* Opens the recording that the options ask for. False: they ask for none, or it could
 * not be opened, which one line has said. */
bool gcp_trace_start(const struct gcp_options *options);
/* The process ends. pools: NULL, if there are none. */
void gcp_trace_end(struct gcp_pools *pools);

/* One event. device: -1, it is not known; stack: with the calling thread's. */
void gcp_trace_add(enum gcp_trace_kind kind, int device, uint64_t addr, uint64_t bytes,
		   uint64_t arg, uint32_t more, bool stack);

/* For `more`: ns since `start_ns`, or as many as fit. */
uint32_t gcp_trace_took(uint64_t start_ns);

/* How much memory there is, now and then, or `now`: no lock of the pools is held. */
void gcp_trace_sample(struct gcp_pools *pools, bool now);

/* A device is used for the first time. */
void gcp_trace_device(int device, const char *name, uint64_t bytes);

/* What follows the calls of pool/ into the driver: puts itself between. */
void gcp_trace_driver(struct gcp_driver *driver);

#endif
