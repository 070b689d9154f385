/* SPDX-License-Identifier: MIT */
/*
 * help.h - the last step before memory of a device is out: other processes of the same
 * user that were started with GCPOOL_CONTROL=1, as this one, give unused memory of that
 * device back.
 */
#ifndef GCP_INTERPOSE_HELP_H
#define GCP_INTERPOSE_HELP_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>

/* Asks for what the device of `ctx` (NULL: the current one) lacks of these bytes (0:
 * not known, it asks for some). Returns true if any came: the driver may have memory
 * now. Takes 300 ms at most. Called without locks but that of sleep.c. */
bool gcp_help_ask(int device, uint64_t bytes, CUcontext ctx);

/* Gives so many bytes back because another process asks, without a wait for the device.
 * Returns how many. */
uint64_t gcp_help_give(int device, uint64_t bytes);

#endif
