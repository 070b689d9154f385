/* SPDX-License-Identifier: MIT */
/*
 * block.h - what the files of heap/ share, and what space/ and cache/ want of them.
 */
#ifndef GCP_POOL_BLOCK_H
#define GCP_POOL_BLOCK_H

#include "../timeline/timeline.h"

/* --- pending.c: pool->lock is held ------------------------------------------------ */

/* Blocks that wait, by the stream that freed them last: what an allocation of that
 * stream looks through (stream_heap.c).
 * The list of a stream's blocks; a block that waits comes to it, and goes. */
static inline struct gcp_streamed *gcp_streamed_of(struct gcp_pool *pool,
						   uint64_t stream)
{
	return &pool->streamed[stream % GCP_STREAMED];
}

/* --- block.c: pool->lock is held --------------------------------------------- */

/* Cuts off the lower `size` of a block, and returns it, in no list; `block` is the
 * rest, and where it was. NULL: no memory for a descriptor, nothing is cut. */
struct gcp_block *gcp_block_cut(struct gcp_block *block, uint64_t size);
/* `lower` takes in its upper neighbour; neither is in a list. */
void gcp_block_coalesce_upper(struct gcp_block *lower);
/* Ends a block that is in no list: the map does not name it any more. */
void gcp_block_release(struct gcp_block *block);
/* Bytes of a free block that could be given back. */
uint64_t gcp_block_unused(const struct gcp_block *block);
/* Of a block of a mapped segment: the chunks of the handles that lie in it as a whole,
 * side by side, and where in segment->chunks they begin. 0: there are none. */
uint64_t gcp_block_handles(const struct gcp_block *block, uint64_t *ret_first);

/* Returns the least size of a block in the segment. Small blocks lie in segments of one
 * chunk or in ranges of small blocks, and pin no large memory: of the driver's segments
 * those of less than 32 KiB, of others those of less than 1 MiB, which have no handle
 * of their own. */
static inline uint64_t gcp_segment_least(const struct gcp_segment *segment)
{
	bool ordinary = !segment->chunks && !atomic_load(&segment->heap)->private;

	return segment->number < GCP_NUMBER_LARGE ? 0 : GCP_CHUNK / (ordinary ? 64 : 2);
}

/* Where in a block one of `size` may begin: of whole pages at a page. But in a graph's
 * heap, where nothing is to lie between what is apart. */
static inline gcp_addr gcp_block_begin(const struct gcp_block *block, uint64_t size)
{
	uint64_t beyond = (block->addr - block->segment->addr) % GCP_PAGE;
	bool whole = size % GCP_PAGE == 0 && beyond &&
		     !atomic_load(&block->segment->heap)->private;

	return whole ? block->addr + GCP_PAGE - beyond : block->addr;
}

/* --- fit.c: pool->lock is held ---------------------------------------------- */

/* The lowest free block in which `size` may lie, and where in it. NULL: none is seen.
 */
struct gcp_block *gcp_fit_find(struct gcp_heap *heap, uint64_t size, bool fresh,
			       gcp_addr *ret_at);
/* A block whose epoch is ready becomes free memory: the block that it is a part of. */
struct gcp_block *gcp_block_coalesce(struct gcp_heap *heap, struct gcp_block *block);

#endif
