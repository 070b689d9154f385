/* SPDX-License-Identifier: MIT */
/*
 * poller.h - the optional thread that looks whether fences of pinned memory are done
 * (GCPOOL_HOST_THREAD), so that allocations need not.
 */
#ifndef GCP_INTERPOSE_POLLER_H
#define GCP_INTERPOSE_POLLER_H

#include <stdbool.h>

/* Starts it, once; later calls cost a load. Only in GCP_RUN_POOL. */
void gcp_poller_start(void);

#endif
