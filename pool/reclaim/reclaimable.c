/* SPDX-License-Identifier: MIT */
/*
 * reclaimable.c - how much of what the pools hold one allocation of any size could
 * have: what cuMemGetInfo counts as free beside the driver's own.
 *
 * Called by the hooks with no lock held. Calls no driver function.
 *
 * That is what could go back to the driver, now or when the work on it is done: whole
 * handles of mapped memory, and ordinary segments that hold no block. What lies free
 * beside a block in use, in one handle or segment with it, can serve smaller requests,
 * but it could not be had as a whole: a program that sized its buffers by it would fail
 * where plain CUDA does not. It is left out, as plain CUDA leaves out what is free
 * beside small blocks in the driver's pages of 2 MiB. So is what live graphs keep.
 *
 * What threads keep goes to the heap first: blocks there cannot be seen to lie side by
 * side.
 *
 * Rules of amounts:
 *  Q1 what is called free can be allocated
 *  Q2 no more than the quota is taken from a device
 *  Q3 a full device gets back what all its contexts have cached
 *  Q4 before memory is out the driver's own caches are emptied
 *  Q5 with a limit of 0 nothing that is unused is kept
 *  Q6 what passes through counts against the quota
 *  Q7 while more is taken than the quota nothing that is unused is kept
 */
#include "reclaim.h"

/* Of the free memory around a block that waits for its epoch, what could go back when
 * all of it is ready, beyond what could already. 0: it is another block's turn to say,
 * the lowest that waits there. */
static uint64_t unused_around(const struct gcp_block *block)
{
	const struct gcp_block *first = block, *last = block;
	struct gcp_block span = {.segment = block->segment};
	uint64_t counted = 0;

	while (gcp_block_is_free(first->lower)) {
		first = first->lower;
		counted += gcp_block_unused(first);
	}
	if (gcp_block_is(first->lower, GCP_BLOCK_PENDING))
		return 0;
	while (gcp_block_is_free(last->upper) ||
	       gcp_block_is(last->upper, GCP_BLOCK_PENDING)) {
		last = last->upper;
		if (!gcp_block_is(last, GCP_BLOCK_PENDING))
			counted += gcp_block_unused(last);
	}
	if (gcp_block_is(first->lower, GCP_BLOCK_HEAD) && !last->upper)
		first = first->lower;
	span.addr = first->addr;
	span.size = last->addr + last->size - first->addr;
	span.lower = first->lower;
	span.upper = last->upper;
	return gcp_block_unused(&span) - counted;
}

/* Does not go through the blocks in use: programs ask in each of their steps. */
uint64_t gcp_pools_reclaimable(struct gcp_pools *pools, int device)
{
	const struct gcp_block *block;
	uint64_t bytes = 0;

	/* What a context had that may be gone is the driver's again. */
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin(pool))
			continue;
		gcp_caches_flush(pool);
		gcp_mutex_lock(&pool->lock);
		gcp_heap_advance(&pool->common);
		bytes += pool->common.unused_bytes;
		TAILQ_FOREACH (block, &pool->common.pending, link)
			bytes += unused_around(block);
		gcp_mutex_unlock(&pool->lock);
		gcp_pool_unpin(pool);
	}
	return bytes;
}
