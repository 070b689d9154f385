/* SPDX-License-Identifier: MIT */
/*
 * clock.h - the clock of the library.
 */
#ifndef GCP_INTERPOSE_CLOCK_H
#define GCP_INTERPOSE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds. */
static inline uint64_t gcp_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
