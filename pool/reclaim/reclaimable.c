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

/* Returns true if all of it is free when the work on it is done; NULL is not. */
static bool will_be_free(const struct gcp_block *block)
{
	uint8_t state = block ? atomic_load(&block->state) : GCP_BLOCK_RELEASED;

	return state == GCP_BLOCK_FREE || state == GCP_BLOCK_PENDING ||
	       state == GCP_BLOCK_HEAD;
}

/* What of the segment could go back then. */
static uint64_t segment_reclaimable(const struct gcp_segment *segment)
{
	struct gcp_block span = {.segment = segment->first->segment};
	uint64_t bytes = 0;

	for (struct gcp_block *block = segment->first; block; block = block->upper) {
		if (!will_be_free(block))
			continue;
		if (!will_be_free(block->lower)) {
			span.addr = block->addr;
			span.lower = block->lower;
		}
		span.size = block->addr + block->size - span.addr;
		span.upper = block->upper;
		if (!will_be_free(block->upper))
			bytes += gcp_block_unused(&span);
	}
	return bytes;
}

static uint64_t pool_reclaimable(struct gcp_pool *pool)
{
	const struct gcp_segment *segment;
	uint64_t bytes = 0;

	gcp_caches_flush(pool);
	GCP_LOCKED(&pool->lock);
	TAILQ_FOREACH (segment, &pool->common.segments, link)
		bytes += segment_reclaimable(segment);
	return bytes;
}

uint64_t gcp_pools_reclaimable(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	/* What a context had that may be gone is the driver's again. */
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin(pool))
			continue;
		bytes += pool_reclaimable(pool);
		gcp_pool_unpin(pool);
	}
	return bytes;
}
