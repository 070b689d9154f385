/* SPDX-License-Identifier: MIT */
/*
 * fake_pinned.h - the pinned memory of the driver of fake.h.
 */
#ifndef GCP_TESTS_FAKE_HOST_H
#define GCP_TESTS_FAKE_HOST_H

#include "fake.h"

struct fake_pinned {
	uint64_t used;   /* bytes */
	uint64_t blocks; /* live allocations */
	uint64_t calls;
	int free_result; /* what host_free gives, which frees all the same */
	uint32_t place;  /* what host_place gives */
};
extern struct fake_pinned fake_pinned;

/* Fills the table, and resets everything. */
void fake_fill_pinned(struct gcp_driver *driver);

#endif
