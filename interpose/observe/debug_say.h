/* SPDX-License-Identifier: MIT */
/*
 * debug_say.h - the lines of GCPOOL_DEBUG: one for each thing that is found. A thread
 * may hold any lock of debug.c.
 */
#ifndef GCP_INTERPOSE_DEBUG_SAY_H
#define GCP_INTERPOSE_DEBUG_SAY_H

#include "debug_device.h"

/* With the count and address of wrong bytes, where some are, and the stack of a second
 * free. */
void gcp_debug_say(enum gcp_debug_kind kind, const struct gcp_debug_block *block,
		   const struct gcp_debug_found *what);

/* A free of what begins no block: block: that lies around it; NULL: none. */
void gcp_debug_say_foreign(gcp_addr addr, const struct gcp_debug_block *block,
			   const struct gcp_debug_stack *by);

/* What the program holds at the end. */
void gcp_debug_say_leaks(uint64_t blocks, uint64_t bytes);

/* The driver refuses what is asked of it: once. */
void gcp_debug_say_error(int result);

#endif
