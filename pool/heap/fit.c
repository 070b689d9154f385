/* SPDX-License-Identifier: MIT */
/*
 * fit.c - free memory in pieces of any size: fit, split, merge.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * A freed block first waits in `pending` (it has no owner, but its epoch is not
 * ready). When the epoch is ready it is coalesced: it merges with free neighbours
 * and goes into the tree of its kind. So everything in a tree is ready, and a
 * merged block carries the youngest epoch of its parts: it is as weak as its
 * weakest part.
 *
 *      USED --free--> PENDING --epoch ready--> FREE --lowest fit, split--> USED
 */
#include "block.h"

/* --- merging and splitting ---------------------------------------------------- */

/* A block that an allocation for any work had stays apart from what the next such
 * allocation needs: memory that was never allocated (gcp_heap_use). */
bool gcp_blocks_merge(const struct gcp_block *a, const struct gcp_block *b)
{
	return !(a->apart || b->apart) ||
	       (a->group == GCP_GROUP_FRESH) == (b->group == GCP_GROUP_FRESH);
}

/* A lower neighbour keeps its place in the tree. */
struct gcp_block *gcp_block_coalesce(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *lower = block->lower, *upper = block->upper;

	block->size_class = GCP_CLASS_NONE;
	block->stream = 0;
	block->apart &= heap->private;
	if (gcp_block_is_free(upper) && gcp_blocks_merge(block, upper)) {
		gcp_tree_remove(heap, upper);
		gcp_block_coalesce_upper(block);
	}
	if (gcp_block_is_free(lower) && gcp_blocks_merge(lower, block)) {
		if (!gcp_block_is(lower->lower, GCP_BLOCK_HEAD)) {
			gcp_tree_change(heap, lower, -1);
			gcp_block_coalesce_upper(lower);
			gcp_tree_change(heap, lower, 1);
			return lower;
		}
		gcp_tree_remove(heap, lower);
		gcp_block_coalesce_upper(lower);
		block = lower;
	}
	if (gcp_block_is(block->lower, GCP_BLOCK_HEAD) && !block->upper) {
		block = block->lower;
		gcp_block_coalesce_upper(block);
	}
	gcp_tree_insert(heap, block);
	return block;
}

/* A block that begins its segment, which other processes can open with CUDA's own
 * handle, is not cut if a head would not fit, or less than a chunk would be left over,
 * which plain CUDA leaves, too. Without memory for a descriptor a block stays whole:
 * larger, never wrong. */
struct gcp_block *gcp_block_trim(struct gcp_block *block, uint64_t size,
				 struct gcp_block **ret_rest)
{
	struct gcp_block *part = NULL;

	*ret_rest = NULL;
	if (block->size == size)
		return block;
	if (gcp_block_begins_segment(block) &&
	    (block->size < size + GCP_PAGE ||
	     (size >= GCP_WHOLE_LEAST && block->size - size < GCP_CHUNK) ||
	     !gcp_block_make_head(block)))
		return block;
	if (block->size > size)
		part = gcp_block_cut(block, size);
	if (!part)
		return block;
	*ret_rest = block;
	return part;
}

/* --- taking ------------------------------------------------------------------- */

/* The first block of at least `size`, from `block` on, that will do for it. */
static struct gcp_block *first_fresh(struct gcp_block *block, uint64_t size, bool fresh)
{
	while (fresh && block && block->group != GCP_GROUP_FRESH)
		block = gcp_tree_next_fit(block, size);
	return block;
}

/* Returns true if an idle segment would be cut though the device may need the rest of
 * it elsewhere: it goes back, and a segment of the right size comes instead, or one
 * that small blocks share. One that has just come is the right one. */
static bool is_too_large(const struct gcp_heap *heap, const struct gcp_block *block,
			 uint64_t size)
{
	uint64_t all = block->segment->size;
	uint64_t most = size < 2 * GCP_CHUNK ? GCP_SHARED_MOST : 0;

	return all > most && all - size >= GCP_CHUNK && !heap->private &&
	       block->epoch != GCP_EPOCH_FRESH && gcp_pool_is_exact(heap->pool) &&
	       gcp_block_is_segment(block);
}

struct gcp_block *gcp_fit_find(struct gcp_heap *heap, uint64_t size, bool fresh,
			       gcp_addr *ret_at)
{
	struct gcp_block *block =
	    first_fresh(gcp_tree_lowest_for(&heap->free, size, size), size, fresh);

	for (int looks = GCP_LOOKS;
	     block && looks > 0 && size >= gcp_segment_least(block->segment); looks--) {
		*ret_at = gcp_block_place(block, size);
		if (*ret_at && !is_too_large(heap, block, size))
			return block;
		block = first_fresh(gcp_tree_next_fit(block, size), size, fresh);
	}
	*ret_at = 0;
	return NULL;
}

/* The rest of the block keeps its place in the tree if it can. */
struct gcp_block *gcp_fit_cut(struct gcp_heap *heap, struct gcp_block *block,
			      gcp_addr at, uint64_t size)
{
	struct gcp_block *part = NULL, *below = NULL, *rest;

	assert(at >= block->addr && at + size <= block->addr + block->size);
	gcp_tree_change(heap, block, -1);
	if (at > block->addr && gcp_block_begins_segment(block))
		(void)gcp_block_make_head(block);
	if (at > block->addr && !gcp_block_begins_segment(block))
		below = gcp_block_cut(block, at - block->addr);
	else if (block->size > size && !gcp_block_begins_segment(block))
		part = gcp_block_cut(block, size);
	gcp_tree_change(heap, block, 1);
	if (below)
		gcp_tree_insert(heap, below);
	if (part)
		return part;
	gcp_tree_remove(heap, block);
	if (at != block->addr) {
		gcp_block_coalesce(heap, block);
		return NULL;
	}
	block = gcp_block_trim(block, size, &rest);
	if (rest)
		gcp_tree_insert(heap, rest);
	return block;
}

struct gcp_block *gcp_fit_take(const struct gcp_request *request, bool fresh)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_block *block = request->made;
	uint64_t size = request->size;
	gcp_addr at = 0;

	if (block)
		at = gcp_block_place(block, size);
	else
		block = gcp_fit_find(heap, size, fresh, &at);
	if (!at || !(block = gcp_fit_cut(heap, block, at, size)))
		return NULL;
	/* What was taken is missing; what was only cut off it is back. */
	if (heap->unused_low > heap->unused_bytes)
		heap->unused_low = heap->unused_bytes;
	assert(gcp_block_place(block, size) == block->addr);
	/* A block that was not split is too large for its class. */
	block->size_class =
	    block->size == size ? (uint16_t)request->size_class : GCP_CLASS_NONE;
	return block;
}

/* --- putting ------------------------------------------------------------------ */

void gcp_heap_put(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(atomic_load(&block->segment->heap) == heap);
	assert(!gcp_block_is_used(block) && !gcp_block_is_free(block)); /* E5 */
	if (!gcp_epoch_ready(heap->pool, block->epoch)) {
		gcp_block_set_state(block, GCP_BLOCK_PENDING);
		gcp_pending_add(heap, block);
		return;
	}
	gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
	gcp_block_coalesce(heap, block);
}

void gcp_heap_advance(struct gcp_heap *heap)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	while ((block = TAILQ_FIRST(&heap->pending)) &&
	       gcp_epoch_ready(heap->pool, block->epoch)) {
		gcp_pending_remove(heap, block);
		gcp_heap_put(heap, block);
	}
}

void gcp_heap_collect(struct gcp_heap *heap, struct gcp_block_list *list)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_CONCAT(list, &heap->deferred, link);
	gcp_pending_take_all(heap, list);
	while ((block = gcp_tree_lowest_fit(&heap->free, GCP_UNIT))) {
		gcp_tree_remove(heap, block);
		gcp_block_set_state(block, GCP_BLOCK_PENDING);
		gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
		TAILQ_INSERT_TAIL(list, block, link);
	}
}
