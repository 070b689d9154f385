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

/* Asks for what is missing to `bytes` of the device (0: unknown, some), which that of
 * `ctx` (NULL: of the current one) is. Returns true if any came: the driver may have
 * memory now. Takes 300 ms at most. No lock is held but that of sleep.c. */
bool gcp_help_ask(int device, uint64_t bytes, CUcontext ctx);

/* Another process asks: gives so many bytes back, without a wait for the device.
 * Returns how many it gave. */
uint64_t gcp_help_give(int device, uint64_t bytes);

#endif
