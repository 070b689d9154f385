/* SPDX-License-Identifier: MIT */
/*
 * debug.h - GCPOOL_DEBUG: finds mistakes of the program in its use of memory.
 *
 *   poison   free and new device memory is filled with a pattern; where the pattern of
 *            a free block is gone when its memory is given out again, the block was
 *            written after its free
 *   guard    a margin behind each block has a pattern, which the free looks at
 *   leaks    blocks that the program holds at exit
 *
 * and, with each of them, frees of what is freed already or begins no block.
 *
 * WHAT IS WRITTEN WHEN. A stream-ordered call (cudaMallocAsync, cudaFreeAsync) waits
 * for its stream, and cudaFree for the context, as plain CUDA does. Then the patterns
 * are read and written in a stream of the library's own, and waited for. But for the
 * wait of cudaFree plain CUDA has none of these waits: a kernel that ends only when the
 * host, behind such a call, tells it to holds the program up.
 *
 * While a capture is under way, and in memory of graph pools, nothing is written.
 *
 * Called by instruments.c with no lock held, in the place of other observers.
 */
#ifndef GCP_INTERPOSE_DEBUG_H
#define GCP_INTERPOSE_DEBUG_H

#include "observer.h"
#include "ranges.h"

/* In the order of GCPOOL_DEBUG's choices. */
enum {
	GCP_DEBUG_POISON = 1,
	GCP_DEBUG_GUARD = 2,
	GCP_DEBUG_LEAKS = 4,
};

/* False: nothing is asked for. */
bool gcp_debug_start(const struct gcp_options *options);

/* Memory comes new to addresses: the patterns of before are gone. With any lock of
 * pool/ held. */
void gcp_debug_new(gcp_addr addr, uint64_t bytes);

/* The bytes that an allocation of now should have behind it. */
uint64_t gcp_debug_margin(void);

/* A block was given to the program; it is about to be freed, and is still the
 * program's. */
void gcp_debug_alloc(const struct gcp_block_info *block,
		     struct gcp_observed_order order);
void gcp_debug_free(const struct gcp_block_info *block,
		    struct gcp_observed_order order);

/* The program frees what is freed already, or what is none of ours and of CUDA's. */
void gcp_debug_free_wrong(gcp_addr addr);

/* Pinned memory, which is only looked for at exit. */
void gcp_debug_host_alloc(gcp_addr addr, uint64_t bytes);
void gcp_debug_host_free(gcp_addr addr);

/* The process ends. No call of CUDA. */
void gcp_debug_end(struct gcp_pools *pools);

/* --- debug_book.c: what is known of blocks ------------------------------------ */

/* A range of addresses for each block that the program holds, and for each part of a
 * freed one that was not given out again. Ranges never overlap. With any lock of pool/
 * held; calls nothing of the pools and never CUDA. */

/* More do not fit into a line. */
enum { GCP_DEBUG_FRAMES = 12 };

struct gcp_debug_stack {
	uint32_t count; /* 0: not known */
	uintptr_t frames[GCP_DEBUG_FRAMES];
};

struct gcp_debug_block {
	struct gcp_range range; /* first */
	bool freed;
	bool marked; /* held: the margin is written; freed: all of the range is poison
		      */
	/* As it was given out; device: -1, pinned host memory. */
	struct gcp_block_info info;
	struct gcp_observed_order order;
	struct gcp_debug_stack alloc, free;
};

/* A copy of the first range that ends behind `addr`. False: there is none. */
bool gcp_debug_book_from(gcp_addr addr, struct gcp_debug_block *ret_block);

/* Adds a copy, in the place of what is there. Without memory for it nothing is added.
 */
void gcp_debug_book_add(const struct gcp_debug_block *block);

/* Takes the first part of a range that lies in [addr, addr + bytes) out. False: none
 * does. */
bool gcp_debug_book_take(gcp_addr addr, uint64_t bytes,
			 struct gcp_debug_block *ret_part);

/* --- debug_device.c: patterns in device memory -------------------------------- */

/* Work is given to the library's stream of the context (contexts.h), which no work of
 * the program waits for. With no lock held, and never while a capture is under
 * way. All results but 0 are errors of the driver. */

/* Kinds of findings. The first two also name the pattern that was overwritten. */
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

/* Writes a pattern, and waits for it. FREED: multiples of 4. */
int gcp_debug_write(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		    uint64_t bytes);
/* Compares now. */
int gcp_debug_compare(void *ctx, enum gcp_debug_kind pattern, gcp_addr addr,
		      uint64_t bytes, struct gcp_debug_found *ret_found);
/* Waits for a stream of the program. */
int gcp_debug_wait_stream(void *ctx, void *stream);

/* --- debug_say.c: a line for each thing that is found ------------------------- */

/* With the count and address of wrong bytes, where some are, and the stack of a second
 * free. */
void gcp_debug_say(enum gcp_debug_kind kind, const struct gcp_debug_block *block,
		   const struct gcp_debug_found *what);

/* A free of what begins no block: block: that lies around it; NULL: none. */
void gcp_debug_say_foreign(gcp_addr addr, const struct gcp_debug_block *block,
			   const struct gcp_debug_stack *by);

/* Reports the blocks that the program holds at the end. */
void gcp_debug_say_leaks(uint64_t blocks, uint64_t bytes);

/* The driver refuses what is asked of it: once. */
void gcp_debug_say_error(int result);

#endif
