/* SPDX-License-Identifier: MIT */
/*
 * debug_device.h - what GCPOOL_DEBUG does on the device: patterns are written, and
 * compared with what is there.
 *
 * Called by debug.c with none of its locks held. Work is given either to a stream that
 * the program named, or to a non-blocking stream of this file, one for each context
 * (`own`), which no work of the program waits for. Never called while a capture is
 * under way. All results but 0 are errors of the driver.
 */
#ifndef GCP_INTERPOSE_DEBUG_DEVICE_H
#define GCP_INTERPOSE_DEBUG_DEVICE_H

#include "debug_book.h"
#include "../cuda/symbols.h"

enum gcp_debug_pattern {
	GCP_DEBUG_MARGIN, /* behind a block: one byte, again and again */
	GCP_DEBUG_FREED,  /* in free and new memory: words of 4 bytes that are no number
			   * as float, double, half or bfloat16 */
};

/* Where work is given to. */
struct gcp_debug_queue {
	void *ctx;
	bool own; /* the stream of this file for ctx; else: */
	CUstream stream;
};

/* What was found: `first` is the address of the first wrong byte, of `wrong` many. */
struct gcp_debug_found {
	gcp_addr first;
	uint64_t wrong;
};

/* Writes a pattern, in the order of the queue. FREED: multiples of 4. */
int gcp_debug_write(const struct gcp_debug_queue *queue, enum gcp_debug_pattern pattern,
		    gcp_addr addr, uint64_t bytes);

/* Waits for the own stream of `ctx`. */
int gcp_debug_wait(void *ctx);

/* Compares now, in the own stream of `ctx`, and waits for it. */
int gcp_debug_compare(void *ctx, enum gcp_debug_pattern pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found);

/* Compares in the order of a stream of the program, of which nothing waits: what was
 * found is handed to found(block, pattern, what) at a later call of
 * gcp_debug_device_poll or _end. At most GCP_DEBUG_LATER_MAX bytes, from `addr` on.
 * Without a place for it nothing is compared. */
enum { GCP_DEBUG_LATER_MAX = 4096 };
int gcp_debug_compare_later(const struct gcp_debug_queue *queue,
			    const struct gcp_debug_block *block,
			    enum gcp_debug_pattern pattern, gcp_addr addr,
			    uint64_t bytes);

typedef void gcp_debug_found_fn(const struct gcp_debug_block *block,
				enum gcp_debug_pattern pattern,
				const struct gcp_debug_found *what);
/* What has arrived; at the end without a call of CUDA. */
void gcp_debug_device_poll(gcp_debug_found_fn *found);
void gcp_debug_device_end(gcp_debug_found_fn *found);

/* The context is gone, and all work in it. */
void gcp_debug_device_context_gone(void *ctx, gcp_debug_found_fn *found);

#endif
