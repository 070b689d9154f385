/* SPDX-License-Identifier: MIT */
/*
 * checkpoint.c - checkpoint and restore of a private heap: which of its blocks are
 * live.
 *
 * A replayed graph writes its outputs where its capture had them, without
 * allocating. Before another capture may use the same heap its records must
 * say again what was live when that graph's capture ended. Nothing moves and no
 * driver function is called: only the records change.
 *
 * Segments of a private heap never go away while it lives, so every block of a
 * checkpoint can be put back where it was.
 */
#include "../space/vmm.h"

/* --- checkpoint --------------------------------------------------------------- */

static void note_one(void *arg, struct gcp_block *block)
{
	struct gcp_noted *live = arg;

	if (gcp_block_is_used(block) && live->blocks)
		live->blocks[live->count] = (struct gcp_noted_block){
		    atomic_load(&block->segment->heap)->id, block->segment->addr,
		    block->addr, block->size, block->requested};
	live->count += gcp_block_is_used(block);
}

void gcp_heap_note(struct gcp_heap *heap, struct gcp_noted *live)
{
	GCP_LOCKED(&heap->pool->lock);
	gcp_heap_each(heap, note_one, live);
}

static void find_exported(void *arg, struct gcp_block *block)
{
	*(bool *)arg |= atomic_load(&block->state) == GCP_BLOCK_EXPORTED;
}

bool gcp_heap_noted(struct gcp_heap *heap, const struct gcp_noted *live, size_t *count)
{
	GCP_LOCKED(&heap->pool->lock);
	bool shared = heap->lent_bytes > 0;

	gcp_heap_each(heap, find_exported, &shared);
	for (size_t i = 0; i < live->count; i++)
		*count += live->blocks[i].heap_id == heap->id;
	return !shared;
}

/* --- restore ------------------------------------------------------------------ */

/* The heap's records as if the program had freed the block inside a capture. */
static void block_free(void *arg, struct gcp_block *block)
{
	struct gcp_heap *heap = atomic_load(&block->segment->heap);
	uint8_t used = GCP_BLOCK_USED;

	/* A free that was faster, or an export, needs no lock for that. */
	if (!atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_PENDING))
		return;
	gcp_heap_count(heap, block, -1);
	gcp_stats_delta_free(&heap->pool->delta, block->requested, block->size);
	TAILQ_INSERT_TAIL((struct gcp_block_list *)arg, block, link);
}

void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_noted *live)
{
	struct gcp_block_list freed = TAILQ_HEAD_INITIALIZER(freed);
	struct gcp_block *block;

	GCP_LOCKED(&heap->pool->lock);
	assert(heap->lent_bytes == 0);
	gcp_heap_each(heap, block_free, &freed);
	gcp_heap_collect(heap, &freed);
	TAILQ_FOREACH (block, &freed, link) {
		block->epoch = GCP_EPOCH_NOW;
		block->group = GCP_GROUP_PAST;
	}
	gcp_heap_put_list(heap, &freed);
	/* What was live fits where it was once all else is free. Only memory for
	 * descriptors may be short; the block then stays larger. */
	for (size_t i = 0; i < live->count; i++) {
		const struct gcp_noted_block *one = &live->blocks[i];

		if (one->heap_id != heap->id)
			continue;
		block = gcp_heap_take_at(heap, one->segment_addr, one->addr, one->size);
		if (!block)
			continue;
		block->requested = one->requested;
		block->watched = block->apart = 0;
		gcp_heap_count(heap, block, 1);
		gcp_stats_delta_count(&heap->pool->delta, one->requested, block->size);
	}
	gcp_stats_merge(heap->pool, &heap->pool->delta);
}
