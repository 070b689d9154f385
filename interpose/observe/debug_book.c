/* SPDX-License-Identifier: MIT */
/*
 * debug_book.c - what GCPOOL_DEBUG knows of blocks: see debug.h.
 */
#include <stdlib.h>

#include "debug.h"
#include "instrument.h"

static struct gcp_mutex lock = GCP_MUTEX(GCP_RANK_DEBUG);
static struct gcp_treap blocks; /* lock */

static void block_insert(const struct gcp_debug_block *block)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	assert(block->range.bytes > 0 && block->info.requested <= block->info.size);
	struct gcp_debug_block *copy = malloc(sizeof(*copy));

	if (!copy)
		return;
	*copy = *block;
	gcp_ranges_insert(&blocks, &copy->range);
}

/* Takes out the first part in [addr, end). What else its range has stays. */
static bool part_take(gcp_addr addr, gcp_addr end, struct gcp_debug_block *ret_part)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	struct gcp_debug_block *block = gcp_ranges_behind(&blocks, addr), rest;
	gcp_addr to;

	if (!block || block->range.at >= end)
		return false;
	*ret_part = rest = *block;
	to = block->range.at + block->range.bytes;
	if (block->range.at < addr) {
		block->range.bytes = addr - block->range.at;
		ret_part->range.at = addr;
	} else {
		gcp_ranges_remove(&blocks, &block->range);
		free(block);
	}
	if (to > end) {
		rest.range.at = end;
		rest.range.bytes = to - end;
		block_insert(&rest);
	}
	ret_part->range.bytes = (to < end ? to : end) - ret_part->range.at;
	assert(ret_part->range.bytes > 0 && ret_part->range.bytes <= end - addr);
	return true;
}

bool gcp_debug_book_from(gcp_addr addr, struct gcp_debug_block *ret_block)
{
	struct gcp_debug_block *block;

	GCP_LOCKED(&lock);
	block = gcp_ranges_behind(&blocks, addr);
	if (block)
		*ret_block = *block;
	return block;
}

void gcp_debug_book_add(const struct gcp_debug_block *block)
{
	gcp_addr addr = block->range.at, end = addr + block->range.bytes;
	struct gcp_debug_block before;

	GCP_LOCKED(&lock);
	while (part_take(addr, end, &before))
		;
	block_insert(block);
}

bool gcp_debug_book_take(gcp_addr addr, uint64_t bytes,
			 struct gcp_debug_block *ret_part)
{
	GCP_LOCKED(&lock);
	return part_take(addr, addr + bytes, ret_part);
}
