/* SPDX-License-Identifier: MIT */
/*
 * blocks.c - all blocks of a device, shown one by one, for statistics.
 *
 * Called with no lock held; takes one pool's lock at a time, and holds it while that
 * pool's blocks are shown. Nothing is changed, and no driver function is called. A
 * thread may take a block from its own cache meanwhile: it is shown as it was or as it
 * is, or for an instant as used with the bytes that its earlier holder asked for.
 */
#include "block.h"

struct showing {
	void (*show)(void *arg, const struct gcp_block_view *block);
	void *arg;
	const struct gcp_classes *classes;
};

/* A head is shown, as free memory. Addresses with nothing behind them are no blocks,
 * nor is memory on its way elsewhere, or what other processes alone have. */
static bool is_block(uint8_t state)
{
	return state != GCP_BLOCK_HOLE && state != GCP_BLOCK_UNMAPPING &&
	       state != GCP_BLOCK_MOVING && state != GCP_BLOCK_LENT;
}

static void block_show(const struct showing *showing, const struct gcp_block *block)
{
	uint8_t state = atomic_load(&block->state);
	struct gcp_block_view view = {
	    .addr = block->addr,
	    .size = block->size,
	    .requested = __atomic_load_n(&block->requested, __ATOMIC_RELAXED),
	    .used = state == GCP_BLOCK_USED || state == GCP_BLOCK_EXPORTED,
	};

	if (!is_block(state))
		return;
	if (block->size_class < showing->classes->count)
		view.class_size = showing->classes->sizes[block->size_class];
	showing->show(showing->arg, &view);
}

static void segment_show(const struct showing *showing,
			 const struct gcp_segment *segment)
{
	const struct gcp_block *block, *part;

	for (block = segment->first; block; block = block->upper) {
		if (atomic_load(&block->state) != GCP_BLOCK_RUN)
			block_show(showing, block);
		else
			for (part = block->slab->first; part; part = part->upper)
				block_show(showing, part);
	}
}

void gcp_pools_blocks(struct gcp_pools *pools, int device,
		      void (*show)(void *arg, const struct gcp_block_view *block),
		      void *arg)
{
	const struct showing showing = {show, arg, &pools->classes};
	struct gcp_segment *segment;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (pool->device != device || !pool->live)
			continue;
		gcp_mutex_lock(&pool->lock);
		for (segment = gcp_segments_first(&pool->segments); segment;
		     segment = gcp_segments_next(segment))
			segment_show(&showing, segment);
		gcp_mutex_unlock(&pool->lock);
	}
}
