/* SPDX-License-Identifier: MIT */
/*
 * debug_book.h - what GCPOOL_DEBUG knows of blocks: a range of addresses for each block
 * that the program holds, and for each part of a freed one that was not given out
 * again.
 *
 * Called by debug.c, with its lock held. Calls nothing of the pools and never CUDA.
 */
#ifndef GCP_INTERPOSE_DEBUG_BOOK_H
#define GCP_INTERPOSE_DEBUG_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "../../pool/base/treap.h"
#include "../../pool/pool.h"
#include "trace_stacks.h"

/* More do not fit into a line. */
enum { GCP_DEBUG_FRAMES = 12 };

struct gcp_debug_stack {
	uint32_t count; /* 0: not known */
	uintptr_t frames[GCP_DEBUG_FRAMES];
};

/* What is said of a block. */
struct gcp_debug_block {
	gcp_addr addr;
	uint64_t requested, size; /* bytes: asked for; occupied */
	int device;               /* -1: pinned host memory */
	void *ctx;
	bool async;   /* stream-ordered, of: */
	void *stream; /* as the program named it; 0: the default one */
	struct gcp_debug_stack alloc, free;
};

struct gcp_debug_range {
	struct gcp_treap_node node;
	gcp_addr at;
	uint64_t bytes;
	bool freed;
	bool
	    marked; /* held: the margin is written; freed: all of the range is poison */
	struct gcp_debug_block block;
};

/* The range that holds `addr`; NULL: none. */
struct gcp_debug_range *gcp_debug_book_find(gcp_addr addr);

/* Adds a copy, in the place of what is there. Without memory for it nothing is added.
 */
void gcp_debug_book_add(const struct gcp_debug_range *range);

void gcp_debug_book_remove(struct gcp_debug_range *range);

/* Takes [addr, addr + bytes) out of all ranges. Calls part(arg, range), if it is not
 * NULL, for each part that is taken out of a range that is freed. */
void gcp_debug_book_cut(gcp_addr addr, uint64_t bytes,
			void (*part)(void *arg, const struct gcp_debug_range *range),
			void *arg);

/* All ranges, by rising addresses. */
void gcp_debug_book_each(void (*scope)(void *arg, const struct gcp_debug_range *range),
			 void *arg);

#endif
