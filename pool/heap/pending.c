/* SPDX-License-Identifier: MIT */
/*
 * pending.c - freed blocks that wait in the heap, in the order of their epochs.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * What comes from a thread's cache may have waited there for long, and belongs before
 * all that was freed meanwhile. So a second list has the last block of each epoch, and
 * a block's place is found by passing epochs, not blocks: no more than are not ready.
 *
 *      pending        5  5  5  6  8  8      oldest first
 *      pending_ends         5  6     8      a 7 is put behind the 6
 */
#include "block.h"

/* A miss reads it without the lock. */
static void pending_change(struct gcp_heap *heap, uint64_t change)
{
	__atomic_store_n(&heap->pending_bytes, heap->pending_bytes + change,
			 __ATOMIC_RELAXED);
}

void gcp_pending_init(struct gcp_heap *heap)
{
	TAILQ_INIT(&heap->pending);
	TAILQ_INIT(&heap->pending_ends);
	pending_change(heap, -heap->pending_bytes);
}

void gcp_pending_add(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *older = TAILQ_LAST(&heap->pending_ends, gcp_block_list);

	gcp_assert_held(GCP_RANK_POOL);
	assert(!block->async); /* B9 */
	while (older && older->epoch > block->epoch)
		older = TAILQ_PREV(older, gcp_block_list, end);
	if (older) {
		TAILQ_INSERT_AFTER(&heap->pending, older, block, link);
		TAILQ_INSERT_AFTER(&heap->pending_ends, older, block, end);
	} else {
		TAILQ_INSERT_HEAD(&heap->pending, block, link);
		TAILQ_INSERT_HEAD(&heap->pending_ends, block, end);
	}
	if (older && older->epoch == block->epoch)
		TAILQ_REMOVE(&heap->pending_ends, older, end);
	pending_change(heap, block->size);
	if (block->stream)
		LIST_INSERT_HEAD(gcp_streamed_of(heap->pool, block->stream), block,
				 streamed);
}

void gcp_pending_remove(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *older = TAILQ_PREV(block, gcp_block_list, link);
	struct gcp_block *younger = TAILQ_NEXT(block, link);

	gcp_assert_held(GCP_RANK_POOL);
	assert(!older || older->epoch <= block->epoch);   /* H3 */
	if (!younger || younger->epoch != block->epoch) { /* the last of its epoch */
		if (older && older->epoch == block->epoch)
			TAILQ_INSERT_BEFORE(block, older, end);
		TAILQ_REMOVE(&heap->pending_ends, block, end);
	}
	TAILQ_REMOVE(&heap->pending, block, link);
	pending_change(heap, -block->size);
	if (block->stream)
		LIST_REMOVE(block, streamed);
}

void gcp_pending_take_all(struct gcp_heap *heap, struct gcp_block_list *list)
{
	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_CONCAT(list, &heap->pending, link);
	gcp_pending_init(heap);
}
