/* SPDX-License-Identifier: MIT */
/*
 * results.c - what memory holds, and above all what captures leave: a block that the
 * program still has when its capture ends is a result of the graph. It keeps its
 * content for as long as anything made of the graph is there, also once the program has
 * freed it: other graphs may read it (captures.md, "Graphs that share memory").
 *
 * Not taken for results are blocks that a later capture may be given again or that may
 * be several graphs': of a pool that the program named, of several captures, and of
 * those whose capture the program cannot be sure of.
 *
 * All that the model knows to be in memory is looked for there, past the driver and
 * without order, as soon as the host knows the latest write to be done. So also work
 * that came in order, and wrote where others have their content, is found.
 */
#include "explore.h"

enum { LOOK_WORDS = 64 };

void results_note(struct model *w, uint32_t pool)
{
	if (w->pools[pool].id)
		return;
	for (struct block *block = w->blocks; block; block = block->next)
		/* Taken in that capture alone, as far as the program knows, and in any
		 * case. */
		if (block->live && !block->host && block->pools == pool_bit(pool) &&
		    block->plain_pools == block->pools && !block->named_pool)
			block->result = true;
}

bool block_is_result(const struct model *w, const struct block *block)
{
	return block->result && block_is_kept(w, block);
}

bool result_of_other(const struct body *body, const struct block *block)
{
	return block->result && !body_keeps(body, block);
}

static void region_check(struct model *w, const struct block *block,
			 const struct region *region)
{
	uint64_t at = block->addr + region->offset;
	uint32_t words[LOOK_WORDS];
	uint32_t count = region->known < LOOK_WORDS ? region->known : LOOK_WORDS;

	if (gcpsim_peek(at, words, count * 4ull) != 0)
		failure(w, "there is no memory at 0x%lx, %s", at,
			block->live ? "which is live" : "a graph's result");
	for (uint32_t i = 0; i < count; i++)
		if (words[i] != region->value)
			failure(w, "word %u of 0x%lx, %s, is %u and should be %u", i,
				at, block->live ? "which is live" : "a graph's result",
				words[i], region->value);
}

void results_check(struct model *w)
{
	if (library.asleep && library.asleep()) /* the host has them */
		return;
	for (const struct block *block = w->blocks; block; block = block->next) {
		if (!block->live && !block_is_result(w, block))
			continue;
		for (unsigned r = 0; r < REGIONS; r++) {
			const struct region *region = &block->regions[r];

			if (region->known > 0 && clock_covers(&w->host, region->writer))
				region_check(w, block, region);
		}
	}
}
