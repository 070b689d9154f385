/* SPDX-License-Identifier: MIT */
/*
 * streamed.h - blocks that wait, or are in a slab's list, by the stream that freed them
 * last: what an allocation of that stream looks through (stream_heap.c).
 *
 * Called by pending.c, slab.c and stream_heap.c with pool->lock held.
 */
#ifndef GCP_POOL_STREAMED_H
#define GCP_POOL_STREAMED_H

#include "../pool_types.h"

/* The list of a stream's blocks; a block that waits comes to it, and goes. */
static inline struct gcp_bin *gcp_streamed_of(struct gcp_pool *pool, uint64_t stream)
{
	return &pool->streamed[stream % GCP_STREAMED];
}

static inline void gcp_streamed_insert(struct gcp_pool *pool, struct gcp_block *block)
{
	if (block->stream)
		LIST_INSERT_HEAD(gcp_streamed_of(pool, block->stream), block, streamed);
}

static inline void gcp_streamed_remove(struct gcp_block *block)
{
	if (block->stream)
		LIST_REMOVE(block, streamed);
}

#endif
