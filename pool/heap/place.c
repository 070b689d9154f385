/* SPDX-License-Identifier: MIT */
/*
 * place.c - which handles of mapped memory a block may lie in.
 *
 * A handle is mapped and unmapped as a whole: while a block lies in it, no part of it
 * serves another address. So a handle of several chunks lies behind one block alone,
 * and a block keeps no more than its own chunks from the rest of the pool (D5, vmm.c).
 * Blocks share handles of one chunk; plain CUDA has them share its pages of that size:
 *
 *      |  2 MiB  |       8 MiB       |       8 MiB       |  2 MiB  |   handles
 *      | a  b  c |        a block of 16 MiB, or less than a chunk less |
 *
 * Where unused handles do not make up a block they are given back to the driver when
 * their work is completed, and the block gets new ones. Graphs share their handles:
 * theirs serve any block. What waits for its work cannot be given back: blocks of its
 * stream divide its handles, as they divide those of CUDA's own pools (stream_heap.c).
 *
 * Called by fit.c, stream_heap.c and vmm_space.c with pool->lock held. Never calls the
 * driver.
 */
#include "block.h"

/* Where the handle begins, or ends, that lies at `addr`. */
static gcp_addr handle_begin(const struct gcp_segment *segment, gcp_addr addr)
{
	uint64_t index = (addr - segment->addr) / GCP_CHUNK;

	assert(addr >= segment->addr && addr < segment->addr + segment->size);
	return segment->addr + (index - segment->chunks[index].before) * GCP_CHUNK;
}

static uint32_t handle_chunks(const struct gcp_segment *segment, gcp_addr addr)
{
	return segment->chunks[(addr - segment->addr) / GCP_CHUNK].count;
}

static gcp_addr handle_end(const struct gcp_segment *segment, gcp_addr addr)
{
	return handle_begin(segment, addr) +
	       handle_chunks(segment, addr) * (uint64_t)GCP_CHUNK;
}

/* Returns true if [begin, end) has all of the handle at `addr`, but less than a chunk
 * of its end, or may have a part of it. */
static bool may_have(const struct gcp_segment *segment, gcp_addr addr, gcp_addr begin,
		     gcp_addr end)
{
	return handle_chunks(segment, addr) == 1 ||
	       (begin <= handle_begin(segment, addr) &&
		handle_end(segment, addr) < end + GCP_CHUNK);
}

bool gcp_block_may_divide(const struct gcp_block *block, uint64_t size)
{
	const struct gcp_segment *segment = block->segment;

	return !segment->chunks || handle_end(segment, block->addr + size - 1) -
					   handle_begin(segment, block->addr) <=
				       4 * size + 2 * GCP_CHUNK;
}

gcp_addr gcp_block_place(const struct gcp_block *block, uint64_t size)
{
	const struct gcp_segment *segment = block->segment;
	gcp_addr at = gcp_block_begin(block, size), end;
	gcp_addr above = block->addr + block->size;

	gcp_assert_held(GCP_RANK_POOL);
	assert(size > 0);
	if (!segment->chunks || atomic_load(&segment->heap)->private)
		return at + size <= above ? at : 0;
	while (at + size <= above) {
		if (!may_have(segment, at, at, at + size)) {
			at = handle_end(segment, at);
			continue;
		}
		if (may_have(segment, at + size - 1, at, at + size))
			return at;
		/* To the end of that handle, or behind it. */
		end = handle_end(segment, at + size - 1);
		if (end - gcp_round_up(size, GCP_CHUNK) > at && end <= above)
			at = end - gcp_round_up(size, GCP_CHUNK);
		else
			at = end;
	}
	return 0;
}
