/* SPDX-License-Identifier: MIT */
/*
 * tree.c - the free blocks of a heap, and its holes, each in a tree, in the order of
 * their places: segments by their numbers, in a segment by address.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * Used blocks should lie close together: then free ones do too, whole segments
 * fall empty, and large blocks find room. So the block is wanted that lies lowest
 * of all that are large enough. Each block in a tree knows the largest block of the
 * subtree below it, so that the way to it is known at each turn: a few steps,
 * however many blocks are free.
 */
#include "block.h"

static bool block_before(const struct gcp_block *a, const struct gcp_block *b)
{
	return a->segment == b->segment ? a->addr < b->addr
					: a->segment->number < b->segment->number;
}

static gcp_treap_update largest_update;
GCP_TREAP(blocks, gcp_block, node, block_before, largest_update)

static struct gcp_block *lower(const struct gcp_block *block)
{
	return blocks_of(block->node.child[0]);
}

static struct gcp_block *higher(const struct gcp_block *block)
{
	return blocks_of(block->node.child[1]);
}

static bool below_fits(const struct gcp_block *block, uint64_t size)
{
	return block && block->largest >= size;
}

/* Sets `largest` from the block's size and its children. Returns true if it changed. */
static bool largest_update(struct gcp_treap_node *node)
{
	struct gcp_block *block = blocks_of(node);
	uint64_t largest = block->size;

	if (below_fits(lower(block), largest))
		largest = lower(block)->largest;
	if (below_fits(higher(block), largest))
		largest = higher(block)->largest;
	if (block->largest == largest)
		return false;
	block->largest = largest;
	return true;
}

/* --- in and out ------------------------------------------------------------------- */

/* Counts what of the block could be given back. */
static void unused_change(struct gcp_heap *heap, struct gcp_block *block, int sign)
{
	heap->unused_bytes += (uint64_t)(sign * (int64_t)gcp_block_unused(block));
}

void gcp_tree_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(gcp_epoch_ready(heap->pool, block->epoch)); /* B5 */
	assert(!block->async);                             /* B9 */
	gcp_block_set_state(block, GCP_BLOCK_FREE);
	unused_change(heap, block, 1);
	blocks_insert(&heap->free, block);
}

void gcp_tree_remove(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(gcp_block_is_free(block));
	unused_change(heap, block, -1);
	blocks_remove(&heap->free, block);
}

void gcp_tree_change(struct gcp_heap *heap, struct gcp_block *block, int sign)
{
	gcp_assert_held(GCP_RANK_POOL);
	unused_change(heap, block, sign);
	if (sign > 0)
		gcp_treap_update_up(&block->node, &block->node, largest_update);
}

void gcp_hole_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(block->size % GCP_CHUNK == 0); /* B6 */
	gcp_block_set_state(block, GCP_BLOCK_HOLE);
	blocks_insert(&heap->holes, block);
}

void gcp_hole_remove(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(atomic_load(&block->state) == GCP_BLOCK_HOLE); /* B8 */
	blocks_remove(&heap->holes, block);
}

/* --- which block fits --------------------------------------------------------- */

static struct gcp_block *lowest_below(struct gcp_block *block, uint64_t size)
{
	while (below_fits(block, size)) {
		if (below_fits(lower(block), size))
			block = lower(block);
		else if (block->size >= size)
			return block;
		else
			block = higher(block);
	}
	return NULL;
}

struct gcp_block *gcp_tree_lowest_fit(const struct gcp_treap *tree, uint64_t size)
{
	return lowest_below(blocks_of(tree->root), size);
}

struct gcp_block *gcp_tree_next_fit(struct gcp_block *block, uint64_t size)
{
	struct gcp_block *parent;

	if (below_fits(higher(block), size))
		return lowest_below(higher(block), size);
	for (; (parent = blocks_of(block->node.parent)); block = parent) {
		if (block != lower(parent))
			continue;
		if (parent->size >= size)
			return parent;
		if (below_fits(higher(parent), size))
			return lowest_below(higher(parent), size);
	}
	return NULL;
}

struct gcp_block *gcp_tree_lowest_for(const struct gcp_treap *tree, uint64_t size,
				      uint64_t bytes)
{
	struct gcp_segment segment = {.number = GCP_NUMBER_ANY};
	const struct gcp_block key = {.segment = &segment};
	struct gcp_block *block;

	if (bytes < GCP_CHUNK / 2)
		return gcp_tree_lowest_fit(tree, size);
	block = blocks_from(tree, &key);
	return !block || block->size >= size ? block : gcp_tree_next_fit(block, size);
}

uint64_t gcp_tree_largest(const struct gcp_heap *heap)
{
	const struct gcp_block *root = blocks_of(heap->free.root);

	return root ? root->largest : 0;
}
