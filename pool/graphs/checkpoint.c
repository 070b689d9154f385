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
 *
 * A block that another process has open keeps its place: it is EXPORTED if it is live
 * again, else LENT until that process closes it. It becomes free only if other blocks
 * are live in its place, or if it is memory that the driver shares.
 */
#include "../space/vmm.h"

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
	    .size_class = block->slab ? GCP_CLASS_NONE : block->size_class,
	};
}

int gcp_heap_checkpoint(struct gcp_heap *heap, struct gcp_checkpoint **ret_checkpoint)
{
	struct gcp_checkpoint *checkpoint;
	int saved = errno;
	size_t count = 0;

	assert(!heap->mixes);
	gcp_mutex_lock(&heap->pool->lock);
	for_each_taken(heap, count_one, &count);
	checkpoint = calloc(1, sizeof(*checkpoint) + count * sizeof(struct live_block));
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

struct restoring {
	const struct gcp_checkpoint *checkpoint; /* NULL: no block is live */
	struct gcp_block_list freed;
};

/* What becomes of a block that other processes may have open. */
static enum gcp_block_state state_restored(const struct gcp_block *block,
					   const struct gcp_checkpoint *checkpoint)
{
	gcp_addr end = block->addr + block->size;

	for (size_t i = 0; checkpoint && i < checkpoint->count; i++) {
		const struct live_block *live = &checkpoint->blocks[i];

		if (live->addr == block->addr && live->size == block->size)
			return GCP_BLOCK_EXPORTED;
		if (live->addr < end && block->addr < live->addr + live->size)
			return GCP_BLOCK_PENDING;
	}
	return block->opens > 0 ? GCP_BLOCK_LENT : GCP_BLOCK_PENDING;
}

/* The heap's records as if the program had freed the block inside a capture. */
static void block_free(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct restoring *restoring = arg;
	enum gcp_block_state state = GCP_BLOCK_PENDING;

	if (atomic_load(&block->state) != GCP_BLOCK_USED)
		state = state_restored(block, restoring->checkpoint);
	if (atomic_load(&block->state) == GCP_BLOCK_LENT) {
		heap->lent_bytes -= block->size;
	} else {
		heap->used_blocks--;
		heap->used_bytes -= block->size;
		gcp_stats_delta_count(&heap->pool->delta, -1, block->requested,
				      block->size);
	}
	atomic_store(&block->state, state);
	if (state == GCP_BLOCK_LENT)
		heap->lent_bytes += block->size;
	else if (state == GCP_BLOCK_PENDING)
		TAILQ_INSERT_TAIL(&restoring->freed, block, link);
}

static void free_everything(struct gcp_heap *heap,
			    const struct gcp_checkpoint *checkpoint)
{
	struct restoring restoring = {.checkpoint = checkpoint};
	struct gcp_block *block;

	TAILQ_INIT(&restoring.freed);
	for_each_taken(heap, block_free, &restoring);
	gcp_heap_collect(heap, &restoring.freed);
	TAILQ_FOREACH (block, &restoring.freed, link) {
		block->epoch = GCP_EPOCH_NOW;
		block->group = GCP_GROUP_PAST;
		block->opens = 0;
	}
	gcp_heap_put_list(heap, &restoring.freed);
	gcp_slab_coalesce_unused(heap);
}

/* Those that are exported now are live again. */
static struct gcp_block *exported_at(struct gcp_heap *heap, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(heap->pool->pools->map, addr);

	return block && atomic_load(&block->state) == GCP_BLOCK_EXPORTED ? block : NULL;
}

/* Cannot fail: what was live fits where it was once all else is free. Only
 * memory for descriptors may be short; the block then stays larger. */
static void make_live(struct gcp_heap *heap, const struct live_block *live)
{
	struct gcp_block *block = exported_at(heap, live->addr);

	if (!block && !(block = gcp_heap_take_at(heap, live->addr, live->size)))
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

bool gcp_checkpoint_fits(const struct gcp_heap *heap,
			 const struct gcp_checkpoint *checkpoint)
{
	return checkpoint->heap == heap && checkpoint->heap_id == heap->id;
}

void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_checkpoint *checkpoint)
{
	struct gcp_pool *pool = heap->pool;

	gcp_mutex_lock(&pool->lock);
	free_everything(heap, checkpoint);
	for (size_t i = 0; checkpoint && i < checkpoint->count; i++)
		make_live(heap, &checkpoint->blocks[i]);
	heap->awaited_epoch = gcp_timeline_stamp(pool);
	gcp_stats_merge(pool, &pool->delta);
	gcp_mutex_unlock(&pool->lock);
}
