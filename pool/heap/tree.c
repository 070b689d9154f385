/* SPDX-License-Identifier: MIT */
/*
 * tree.c - the free blocks of a heap, one tree for each kind, in the order of
 * their places: the oldest segment first, in it the lowest address.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * Used blocks should lie close together: then free ones do too, whole segments
 * fall empty, and large blocks find room. So the block is wanted that lies lowest
 * of all that are large enough. Each block in a tree knows the largest block of the
 * subtree below it, so that the way to it is known at each turn: a few steps,
 * however many blocks are free.
 */
#include "../pool_types.h"
#include "../space/vmm.h"

static int block_order(const struct gcp_block *a, const struct gcp_block *b)
{
	if (a->segment != b->segment)
		return a->segment->number < b->segment->number ? -1 : 1;
	return (a->addr > b->addr) - (a->addr < b->addr);
}

static bool below_fits(const struct gcp_block *block, uint64_t size)
{
	return block && block->largest >= size;
}

/* Looks again which block below, or this one itself, is the largest. */
static void largest_update(struct gcp_block *block)
{
	const struct gcp_block *left = RB_LEFT(block, node);
	const struct gcp_block *right = RB_RIGHT(block, node);
	uint64_t largest = block->size;

	if (below_fits(left, largest))
		largest = left->largest;
	if (below_fits(right, largest))
		largest = right->largest;
	block->largest = largest;
}

/* Keeps rotations right. Of what lies above a place that changed <bsd/sys/tree.h>
 * looks at the next block only: tell_above does the rest. */
#undef RB_AUGMENT
#define RB_AUGMENT(block) largest_update(block)
RB_PROTOTYPE(gcp_block_tree, gcp_block, node, block_order)
RB_GENERATE(gcp_block_tree, gcp_block, node, block_order)

static void tell_above(struct gcp_block *block)
{
	for (; block; block = RB_PARENT(block, node))
		largest_update(block);
}

/* --- in and out ------------------------------------------------------------------- */

/* Free memory that could be given back, and what was of use lately. */
static void unused_count(struct gcp_heap *heap, const struct gcp_block *block, int sign)
{
	heap->unused_bytes += (uint64_t)(sign * (int64_t)gcp_block_unused(block));
	if (!gcp_block_is_segment(block))
		return;
	block->segment->touched = true;
	if (block->segment->kind == GCP_KIND_SLAB || block->segment->chunks)
		return;
	heap->idle.segments += (uint64_t)sign;
	heap->idle.bytes += (uint64_t)(sign * (int64_t)block->size);
}

/* What has whole handles can be moved, but for the memory of graphs. */
static void donors_change(struct gcp_heap *heap, struct gcp_block *block,
			  void (*change)(struct gcp_bins *bins, struct gcp_block *block,
					 uint64_t chunks))
{
	uint64_t chunks, first;

	if (heap->private || !block->segment->chunks)
		return;
	chunks = gcp_block_handles(block, &first);
	if (chunks > 0)
		change(&heap->donors, block, chunks);
}

void gcp_tree_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	gcp_block_set_state(block, GCP_BLOCK_FREE);
	block->largest = block->size;
	donors_change(heap, block, gcp_bins_insert);
	RB_INSERT(gcp_block_tree, &heap->free[block->segment->kind], block);
	tell_above(block);
	unused_count(heap, block, 1);
}

/* The lowest block whose subtree changes when `block` goes: in its place comes the
 * next one, if it has two children. */
static struct gcp_block *lowest_changed(struct gcp_block *block)
{
	struct gcp_block *next = RB_RIGHT(block, node);

	if (!RB_LEFT(block, node) || !next)
		return RB_PARENT(block, node);
	while (RB_LEFT(next, node))
		next = RB_LEFT(next, node);
	return RB_PARENT(next, node) == block ? next : RB_PARENT(next, node);
}

void gcp_tree_remove(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *changed = lowest_changed(block);

	gcp_assert_held(GCP_RANK_POOL);
	donors_change(heap, block, gcp_bins_remove);
	RB_REMOVE(gcp_block_tree, &heap->free[block->segment->kind], block);
	tell_above(changed);
	unused_count(heap, block, -1);
}

/* --- which block fits --------------------------------------------------------- */

static struct gcp_block *lowest_below(struct gcp_block *block, uint64_t size)
{
	while (below_fits(block, size)) {
		if (below_fits(RB_LEFT(block, node), size))
			block = RB_LEFT(block, node);
		else if (block->size >= size)
			return block;
		else
			block = RB_RIGHT(block, node);
	}
	return NULL;
}

struct gcp_block *gcp_tree_lowest_fit(struct gcp_heap *heap, enum gcp_kind kind,
				      uint64_t size)
{
	return lowest_below(RB_ROOT(&heap->free[kind]), size);
}

struct gcp_block *gcp_tree_next_fit(struct gcp_block *block, uint64_t size)
{
	struct gcp_block *parent;

	if (below_fits(RB_RIGHT(block, node), size))
		return lowest_below(RB_RIGHT(block, node), size);
	for (; (parent = RB_PARENT(block, node)); block = parent) {
		if (block != RB_LEFT(parent, node))
			continue;
		if (parent->size >= size)
			return parent;
		if (below_fits(RB_RIGHT(parent, node), size))
			return lowest_below(RB_RIGHT(parent, node), size);
	}
	return NULL;
}

uint64_t gcp_tree_largest(const struct gcp_heap *heap, enum gcp_kind kind)
{
	const struct gcp_block *root = RB_ROOT(&heap->free[kind]);

	return root ? root->largest : 0;
}
