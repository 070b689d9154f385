/* SPDX-License-Identifier: MIT */
/*
 * debug_say.h - the lines of GCPOOL_DEBUG: one for each thing that is found. A thread
 * may hold any lock of debug.c.
 */
#ifndef GCP_INTERPOSE_DEBUG_SAY_H
#define GCP_INTERPOSE_DEBUG_SAY_H

#include "debug_device.h"

/* Bytes behind a block, or of one that was freed, are not as they were written. */
void gcp_debug_say_written(const struct gcp_debug_block *block,
			   enum gcp_debug_pattern pattern,
			   const struct gcp_debug_found *what);

/* A free by the program of a block that is freed already. */
void gcp_debug_say_freed_twice(const struct gcp_debug_block *block,
			       const struct gcp_debug_stack *again);

/* A free of what begins no block: block: that lies around it; NULL: none. */
void gcp_debug_say_foreign(gcp_addr addr, const struct gcp_debug_block *block,
			   const struct gcp_debug_stack *by);

/* A block that the program holds at the end; and the sum of those. */
void gcp_debug_say_leak(const struct gcp_debug_block *block);
void gcp_debug_say_leaks(uint64_t blocks, uint64_t bytes);

/* The driver refuses what is asked of it: once. */
void gcp_debug_say_error(int result);

#endif
