/* SPDX-License-Identifier: MIT */
/*
 * shortage.h - one line for the program's allocations that fail for want of memory.
 *
 * Called by the hooks when the last word is spoken: with no lock held, in any thread,
 * also while captures are under way, which it never breaks. Leaves errno alone.
 */
#ifndef GCP_INTERPOSE_SHORTAGE_H
#define GCP_INTERPOSE_SHORTAGE_H

#include <stdbool.h>
#include <stdint.h>

enum gcp_shortage {
	GCP_SHORTAGE_POOL,    /* the driver or a quota: the pool knows which */
	GCP_SHORTAGE_DRIVER,  /* the driver, which was asked directly */
	GCP_SHORTAGE_CAPTURE, /* plain memory, which a capture cannot have */
};

/* `call` (cuMemAlloc, ...) found no `bytes` (0: unknown) on the current device; host:
 * of pinned memory. */
void gcp_shortage_say(const char *call, uint64_t bytes, enum gcp_shortage why,
		      bool host);

#endif
