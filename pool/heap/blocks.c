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
};

/* A head is shown, as free memory. Addresses with nothing behind them are no blocks,
 * nor is memory on its way elsewhere. Of memory of graphs what captures have freed has
 * no content once the heap is sealed; what was freed later is a result, which other
 * graphs may read. So may be what is lent. */
static void block_show(void *arg, struct gcp_block *block)
{
	const struct showing *showing = arg;
	const struct gcp_heap *heap = atomic_load(&block->segment->heap);
	uint8_t state = atomic_load(&block->state);
	struct gcp_block_view view = {
	    .addr = block->addr,
	    .size = block->size,
	    .requested = __atomic_load_n(&block->requested, __ATOMIC_RELAXED),
	    .used = gcp_block_is_used(block),
	    .ctx = block->segment->chunks ? heap->pool->ctx : NULL,
	};

	if (state == GCP_BLOCK_HOLE || state == GCP_BLOCK_UNMAPPING ||
	    state == GCP_BLOCK_MOVING)
		return;
	view.content = view.used || state == GCP_BLOCK_LENT ||
		       (heap->private && /* Z2 */
			(state != GCP_BLOCK_FREE || heap->reuse != GCP_REUSE_SEALED));
	showing->show(showing->arg, &view);
}

static void segment_each(const struct gcp_segment *segment, gcp_each_block *each,
			 void *arg)
{
	for (struct gcp_block *block = segment->first; block; block = block->upper)
		each(arg, block);
}

void gcp_heap_each(struct gcp_heap *heap, gcp_each_block *each, void *arg)
{
	struct gcp_segment *segment;

	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_FOREACH (segment, &heap->segments, link)
		segment_each(segment, each, arg);
}

void gcp_pools_blocks(struct gcp_pools *pools, int device,
		      void (*show)(void *arg, const struct gcp_block_view *block),
		      void *arg)
{
	struct showing showing = {show, arg};
	struct gcp_segment *segment;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (pool->device != device || !pool->live)
			continue;
		gcp_mutex_lock(&pool->lock);
		for (segment = gcp_segments_first(&pool->segments); segment;
		     segment = gcp_segments_next(segment))
			segment_each(segment, block_show, &showing);
		gcp_mutex_unlock(&pool->lock);
	}
}
