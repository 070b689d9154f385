/* SPDX-License-Identifier: MIT */
/*
 * debug_device.h - what GCPOOL_DEBUG does on the device: patterns are written, and
 * compared with what is there.
 *
 * Called by debug.c with none of its locks held. Work is given to a non-blocking stream
 * of this file, one for each context, which no work of the program waits for. Never
 * called while a capture is under way. All results but 0 are errors of the driver.
 */
#ifndef GCP_INTERPOSE_DEBUG_DEVICE_H
#define GCP_INTERPOSE_DEBUG_DEVICE_H

#include "debug_book.h"

/* What is found. The first two are also the patterns that were written over. */
enum gcp_debug_kind {
	GCP_DEBUG_MARGIN, /* behind a block: one byte, again and again */
	GCP_DEBUG_FREED,  /* in free and new memory: words of 4 bytes that are no number
			   * as float, double, half or bfloat16 */
	GCP_DEBUG_FREED_TWICE,
	GCP_DEBUG_LEAK,
	GCP_DEBUG_KINDS,
};

/* `first` is the address of the first wrong byte, of `wrong` many. */
struct gcp_debug_found {
	gcp_addr first;
	uint64_t wrong;
	struct gcp_debug_stack by; /* FREED_TWICE */
};

/* Writes a pattern, which is there after gcp_debug_wait. FREED: multiples of 4. */
int gcp_debug_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		    uint64_t bytes);

/* Waits for the stream of this file for `ctx`. */
int gcp_debug_wait(void *ctx);
/* Waits for a stream of the program. */
int gcp_debug_wait_stream(void *ctx, void *stream);

/* Compares now. */
int gcp_debug_compare(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found);

/* The context is gone, and its stream with it. */
void gcp_debug_device_context_gone(const void *ctx);

#endif
