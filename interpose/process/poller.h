/* SPDX-License-Identifier: MIT */
/*
 * poller.h - the optional thread (GCPOOL_THREAD): it looks whether fences of pinned
 * memory are done, so that allocations need not, and gives back what is idle.
 */
#ifndef GCP_INTERPOSE_POLLER_H
#define GCP_INTERPOSE_POLLER_H

/* Starts it, once; later calls cost a load. Only in GCP_RUN_POOL. */
void gcp_poller_start(void);

#endif
