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
 * Segments and slabs of a private heap never go away while it lives, so every
 * block of a checkpoint can be put back where it was.
 */
#include "../pool_types.h"

#include <stdlib.h>

struct live_block {
	gcp_addr addr;
	uint64_t size, requested;
	uint16_t size_class;
};

struct gcp_checkpoint {
	struct gcp_heap *heap;
	uint64_t heap_id;
	size_t count;
	struct live_block blocks[];
};

/* --- walking ------------------------------------------------------------------ */

typedef void block_callback(struct gcp_heap *heap, struct gcp_block *block, void *arg);

/* The program's, or lent. */
static bool is_taken(const struct gcp_block *block)
{
	return gcp_block_is_used(block) || atomic_load(&block->state) == GCP_BLOCK_LENT;
}

static void for_each_taken(struct gcp_heap *heap, block_callback *call, void *arg)
{
	struct gcp_segment *segment;
	struct gcp_block *block, *upper;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		for (block = segment->first; block; block = block->upper) {
			struct gcp_block *part =
			    atomic_load(&block->state) == GCP_BLOCK_RUN
				? block->slab->first
				: block;

			for (; part && (part->slab || part == block); part = upper) {
				upper = part->slab ? part->upper : NULL;
				if (is_taken(part))
					call(heap, part, arg);
			}
		}
	}
}

static void count_one(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	(void)heap;
	*(size_t *)arg += gcp_block_is_used(block);
}

static void note_one(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct gcp_checkpoint *checkpoint = arg;

	(void)heap;
	if (!gcp_block_is_used(block))
		return;
	checkpoint->blocks[checkpoint->count++] = (struct live_block){
	    .addr = block->addr,
	    .size = block->size,
	    .requested = block->requested,
	    .size_class = block->size_class,
	};
}

int gcp_heap_checkpoint(struct gcp_heap *heap, struct gcp_checkpoint **ret_checkpoint)
{
	struct gcp_checkpoint *checkpoint;
	int saved = errno;
	size_t count = 0;

	gcp_mutex_lock(&heap->pool->lock);
	for_each_taken(heap, count_one, &count);
	checkpoint =
	    calloc(1, sizeof(*checkpoint) + count * sizeof(checkpoint->blocks[0]));
	errno = saved;
	if (checkpoint) {
		checkpoint->heap = heap;
		checkpoint->heap_id = heap->id;
		for_each_taken(heap, note_one, checkpoint);
	}
	gcp_mutex_unlock(&heap->pool->lock);
	if (!checkpoint)
		return -ENOMEM;
	*ret_checkpoint = checkpoint;
	return 0;
}

void gcp_checkpoint_destroy(struct gcp_checkpoint *checkpoint)
{
	free(checkpoint);
}

/* --- restore ------------------------------------------------------------------ */

/* The heap's records as if the program had freed the block inside a capture. */
static void taken_collect(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct gcp_block_list *list = arg;

	if (atomic_load(&block->state) == GCP_BLOCK_LENT) {
		heap->lent_bytes -= block->size;
	} else {
		heap->used_blocks--;
		heap->used_bytes -= block->size;
		gcp_stats_delta_count(&heap->pool->delta, -1, block->requested,
				      block->size);
	}
	atomic_store(&block->state, GCP_BLOCK_PENDING);
	TAILQ_INSERT_TAIL(list, block, link);
}

static void free_everything(struct gcp_heap *heap)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_block *block;

	for_each_taken(heap, taken_collect, &list);
	gcp_heap_collect(heap, &list);
	TAILQ_FOREACH (block, &list, link) {
		block->epoch = GCP_EPOCH_NOW;
		block->group = GCP_GROUP_PAST;
	}
	gcp_heap_put_list(heap, &list);
}

/* Cannot fail: what was live fits where it was once all else is free. Only
 * memory for descriptors may be short; the block then stays larger. */
static void make_live(struct gcp_heap *heap, const struct live_block *live)
{
	struct gcp_block *block = gcp_heap_take_at(heap, live->addr, live->size);

	if (!block)
		return;
	block->requested = live->requested;
	block->watched = 0;
	block->apart = false;
	if (block->size == live->size)
		block->size_class = live->size_class;
	heap->used_blocks++;
	heap->used_bytes += block->size;
	gcp_stats_delta_count(&heap->pool->delta, 1, live->requested, block->size);
}

bool gcp_checkpoint_fits(const struct gcp_heap *heap,
			 const struct gcp_checkpoint *checkpoint)
{
	return checkpoint->heap == heap && checkpoint->heap_id == heap->id;
}

void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_checkpoint *checkpoint)
{
	struct gcp_pool *pool = heap->pool;

	gcp_mutex_lock(&pool->lock);
	free_everything(heap);
	for (size_t i = 0; checkpoint && i < checkpoint->count; i++)
		make_live(heap, &checkpoint->blocks[i]);
	heap->awaited_epoch = gcp_timeline_stamp(pool);
	gcp_stats_merge(pool, &pool->delta);
	gcp_mutex_unlock(&pool->lock);
}
