/* SPDX-License-Identifier: MIT */
/*
 * numa.h - where the operating system puts memory of the calling thread.
 */
#ifndef GCP_INTERPOSE_NUMA_H
#define GCP_INTERPOSE_NUMA_H

#include <stdint.h>

/* Equal numbers, equal places; 0 on a machine with one place. Any thread, no lock;
 * keeps errno. */
uint32_t gcp_numa_place(void);

#endif
