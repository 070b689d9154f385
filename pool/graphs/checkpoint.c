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
 * checkpoint can be put back where it was. Slabs may have come and gone there: they are
 * coalesced, and blocks of slabs come back as blocks of their own.
 */
#include "../space/vmm.h"

#include <stdlib.h>

struct gcp_noted_block {
	uint64_t heap_id; /* another one after the end of its context */
	gcp_addr addr;
	uint64_t size, requested;
	uint16_t size_class;
};

typedef void block_callback(struct gcp_heap *heap, struct gcp_block *block, void *arg);

static void for_each_used(struct gcp_heap *heap, block_callback *call, void *arg)
{
	gcp_assert_held(GCP_RANK_POOL);
	struct gcp_segment *segment;
	struct gcp_block *block, *part, *upper;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		for (block = segment->first; block; block = block->upper) {
			bool run = atomic_load(&block->state) == GCP_BLOCK_RUN;

			for (part = run ? block->slab->first : block; part;
			     part = upper) {
				upper = run ? part->upper : NULL;
				if (gcp_block_is_used(part))
					call(heap, part, arg);
			}
		}
	}
}

/* --- checkpoint --------------------------------------------------------------- */

static void note_one(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct gcp_noted *live = arg;

	live->blocks[live->count++] = (struct gcp_noted_block){
	    .heap_id = heap->id,
	    .addr = block->addr,
	    .size = block->size,
	    .requested = block->requested,
	    .size_class = block->slab ? GCP_CLASS_NONE : block->size_class,
	};
}

int gcp_heap_note(struct gcp_heap *heap, struct gcp_noted *live)
{
	struct gcp_noted_block *blocks;
	GCP_KEEP_ERRNO;

	assert(!heap->mixes);
	GCP_LOCKED(&heap->pool->lock);
	blocks = realloc(live->blocks,
			 (live->count + heap->used_blocks + 1) * sizeof(*blocks));
	if (blocks) {
		live->blocks = blocks;
		for_each_used(heap, note_one, live);
	}
	return blocks ? 0 : -ENOMEM;
}

/* --- restore ------------------------------------------------------------------ */

static void find_exported(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	(void)heap;
	*(bool *)arg |= atomic_load(&block->state) == GCP_BLOCK_EXPORTED;
}

bool gcp_heap_is_exported(struct gcp_heap *heap)
{
	bool exported;

	GCP_LOCKED(&heap->pool->lock);
	exported = heap->lent_bytes > 0;
	for_each_used(heap, find_exported, &exported);
	return exported;
}

size_t gcp_heap_noted(const struct gcp_heap *heap, const struct gcp_noted *live)
{
	size_t count = 0;

	for (size_t i = 0; i < live->count; i++)
		count += live->blocks[i].heap_id == heap->id;
	return count;
}

/* The heap's records as if the program had freed the block inside a capture. */
static void block_free(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	heap->used_blocks--;
	heap->used_bytes -= block->size;
	gcp_stats_delta_count(&heap->pool->delta, -1, block->requested, block->size);
	atomic_store(&block->state, GCP_BLOCK_PENDING);
	TAILQ_INSERT_TAIL((struct gcp_block_list *)arg, block, link);
}

static void free_everything(struct gcp_heap *heap)
{
	struct gcp_block_list freed = TAILQ_HEAD_INITIALIZER(freed);
	struct gcp_block *block;

	for_each_used(heap, block_free, &freed);
	gcp_heap_collect(heap, &freed);
	TAILQ_FOREACH (block, &freed, link) {
		block->epoch = GCP_EPOCH_NOW;
		block->group = GCP_GROUP_PAST;
	}
	gcp_heap_put_list(heap, &freed);
	gcp_slab_coalesce_unused(heap);
}

/* Cannot fail: what was live fits where it was once all else is free. Only
 * memory for descriptors may be short; the block then stays larger. */
static void make_live(struct gcp_heap *heap, const struct gcp_noted_block *live)
{
	struct gcp_block *block = gcp_heap_take_at(heap, live->addr, live->size);

	if (!block)
		return;
	block->requested = live->requested;
	block->watched = 0;
	block->apart = false;
	if (block->size == live->size && !block->slab)
		block->size_class = live->size_class;
	heap->used_blocks++;
	heap->used_bytes += block->size;
	gcp_stats_delta_count(&heap->pool->delta, 1, live->requested, block->size);
}

void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_noted *live)
{
	struct gcp_pool *pool = heap->pool;

	GCP_LOCKED(&pool->lock);
	assert(heap->lent_bytes == 0);
	free_everything(heap);
	for (size_t i = 0; i < live->count; i++)
		if (live->blocks[i].heap_id == heap->id)
			make_live(heap, &live->blocks[i]);
	heap->awaited_epoch = gcp_timeline_stamp(pool);
	gcp_stats_merge(pool, &pool->delta);
}
