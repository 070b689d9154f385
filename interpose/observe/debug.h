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
#include "trace_stacks.h"

/* In the order of GCPOOL_DEBUG's choices. */
enum {
	GCP_DEBUG_POISON = 1,
	GCP_DEBUG_GUARD = 2,
	GCP_DEBUG_LEAKS = 4,
};

/* False: nothing is asked for. */
bool gcp_debug_start(const struct gcp_options *options);

/* Puts itself between pool/ and the driver: where memory comes new to addresses the
 * patterns of before are gone. */
void gcp_debug_driver(struct gcp_driver *driver);

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

void gcp_debug_context_gone(const void *ctx);

/* The process ends. No call of CUDA. */
void gcp_debug_end(struct gcp_pools *pools);

#endif
