/* SPDX-License-Identifier: MIT */
/*
 * slab.c - small blocks: runs of memory cut into blocks of one size class.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * The free blocks of a class stand in one list: the ready ones first, then the
 * others, longest freed first. Only the head has to be asked for its epoch.
 * When no block of a slab is used its run can go back to the segment, to be
 * cut for another class or given back to the driver. When memory is out slabs are
 * broken up: their blocks are blocks like any other from then on, and what is free of
 * them serves blocks of any class, one by one (heap.c).
 */
#include "block.h"

/* Blocks that are ready stand before those that are not; but where an allocation for
 * any work had one, which the next such allocation cannot have, behind all that are. */
static void list_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_class_list *class = &heap->classes[block->size_class];
	struct gcp_block *last = TAILQ_LAST(&class->list, gcp_block_list);
	bool behind = heap->private && block->apart && last &&
		      gcp_epoch_ready(heap->pool, last->epoch);

	atomic_store_explicit(&block->state, GCP_BLOCK_LISTED, memory_order_release);
	if (gcp_epoch_ready(heap->pool, block->epoch) && !behind)
		TAILQ_INSERT_HEAD(&class->list, block, link);
	else
		TAILQ_INSERT_TAIL(&class->list, block, link);
	class->count++;
	gcp_streamed_insert(heap->pool, block);
	if (!heap->private && heap->pool->listed_epoch < block->epoch)
		heap->pool->listed_epoch = block->epoch;
	block->slab->listed++;
}

static void idle_add(struct gcp_heap *heap, struct gcp_slab *slab)
{
	if (slab->listed == slab->total)
		LIST_INSERT_HEAD(&heap->idle_slabs, slab, link);
}

void gcp_slab_take_block(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_class_list *class = &heap->classes[block->size_class];

	gcp_assert_held(GCP_RANK_POOL);
	if (block->slab->listed == block->slab->total)
		LIST_REMOVE(block->slab, link);
	TAILQ_REMOVE(&class->list, block, link);
	class->count--;
	gcp_streamed_remove(block);
	block->slab->listed--;
}

/* Cuts blocks off the run until it is full or memory for descriptors ends. */
static void slab_cut(struct gcp_heap *heap, struct gcp_slab *slab, uint32_t size_class)
{
	uint64_t size = heap->pool->pools->classes.sizes[size_class];
	struct gcp_block **link = &slab->first, *lower = NULL;

	for (uint64_t offset = 0; offset + size <= slab->run->size; offset += size) {
		struct gcp_block *block =
		    gcp_block_create(slab->run->segment, slab->run->addr + offset, size,
				     slab->run->epoch);

		if (!block)
			return;
		block->slab = slab;
		block->group = slab->run->group;
		block->lower = lower;
		block->size_class = (uint16_t)size_class;
		*link = lower = block;
		link = &block->upper;
		slab->total++;
		list_insert(heap, block);
	}
}

/* The run is one block again, as weak as the weakest of its blocks. */
static void slab_coalesce(struct gcp_heap *heap, struct gcp_slab *slab)
{
	struct gcp_map *map = heap->pool->pools->map;
	struct gcp_block *run = slab->run, *upper;

	assert(slab->listed == slab->total);
	if (slab->total == 0) { /* memory for descriptors ended at its first block */
		LIST_REMOVE(slab, link);
		gcp_map_replace(map, run->addr, NULL, run);
	}
	for (struct gcp_block *block = slab->first; block; block = upper) {
		upper = block->upper;
		if (run->epoch < block->epoch)
			run->epoch = block->epoch;
		if (run->group < block->group)
			run->group = block->group;
		gcp_slab_take_block(heap, block);
		/* The first block stands where the run does. */
		if (block->addr == run->addr)
			gcp_map_replace(map, run->addr, block, run);
		gcp_block_release(block);
	}
	gcp_descriptor_free(&heap->pool->slab_descriptors, slab);
	run->slab = NULL;
	gcp_heap_put_run(heap, run);
}

static bool slab_create(struct gcp_heap *heap, uint32_t size_class, bool fresh)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_slab *slab = gcp_descriptor_alloc(&pool->slab_descriptors);
	struct gcp_block *run;

	if (!slab)
		return false;
	run = gcp_heap_take_run(
	    heap, gcp_slab_bytes(pool->pools->classes.sizes[size_class]), fresh);
	if (!run) {
		gcp_descriptor_free(&pool->slab_descriptors, slab);
		return false;
	}
	*slab = (struct gcp_slab){.run = run};
	run->slab = slab;
	atomic_store_explicit(&run->state, GCP_BLOCK_RUN, memory_order_release);
	gcp_map_clear(pool->pools->map, run->addr, run);
	slab_cut(heap, slab, size_class);
	idle_add(heap, slab);
	if (slab->total > 0)
		return true;
	slab_coalesce(heap, slab);
	return false;
}

/* The first of the class that is ready; NULL: none is. */
static struct gcp_block *first_ready(struct gcp_heap *heap, uint32_t size_class,
				     bool fresh)
{
	struct gcp_block *block = TAILQ_FIRST(&heap->classes[size_class].list);

	while (fresh && block && block->group != GCP_GROUP_FRESH)
		block = TAILQ_NEXT(block, link);
	return block && gcp_epoch_ready(heap->pool, block->epoch) ? block : NULL;
}

struct gcp_block *gcp_slab_take(struct gcp_heap *heap, uint32_t size_class, bool fresh)
{
	struct gcp_block *block = first_ready(heap, size_class, fresh);

	gcp_assert_held(GCP_RANK_POOL);
	if (!block && slab_create(heap, size_class, fresh))
		block = first_ready(heap, size_class, fresh);
	if (!block)
		return NULL;
	gcp_slab_take_block(heap, block);
	return block;
}

void gcp_slab_put(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_slab *slab = block->slab;

	gcp_assert_held(GCP_RANK_POOL);
	list_insert(heap, block);
	assert(slab->listed <= slab->total);
	idle_add(heap, slab);
	gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
}

void gcp_slab_coalesce_unused(struct gcp_heap *heap)
{
	struct gcp_slab *slab;

	gcp_assert_held(GCP_RANK_POOL);
	while ((slab = LIST_FIRST(&heap->idle_slabs)))
		slab_coalesce(heap, slab);
}

/* Makes one of its blocks a block like any other, behind `lower`. */
static void block_leave(struct gcp_heap *heap, struct gcp_block *block,
			struct gcp_block *lower, struct gcp_block_list *free)
{
	if (atomic_load(&block->state) == GCP_BLOCK_LISTED) {
		gcp_slab_take_block(heap, block);
		block->stream = 0;
		TAILQ_INSERT_TAIL(free, block, link);
	}
	block->slab = NULL;
	block->lower = lower;
	if (lower)
		lower->upper = block;
	else
		block->segment->first = block;
}

/* The rest of the run behind its blocks keeps the run's descriptor. Returns false if
 * there is no memory for its place in the map. */
static bool slab_break_up(struct gcp_heap *heap, struct gcp_slab *slab)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_block *run = slab->run, *lower = run->lower, *upper = run->upper;
	struct gcp_block_list free = TAILQ_HEAD_INITIALIZER(free);
	struct gcp_block *block = slab->first, *next;
	uint64_t bytes = slab->total * block->size;

	if (bytes < run->size &&
	    gcp_map_set(pool->pools->map, run->addr + bytes, run) != 0)
		return false;
	for (; block; lower = block, block = next) {
		next = block->upper;
		block_leave(heap, block, lower, &free);
	}
	run->addr += bytes;
	run->size -= bytes;
	run->slab = NULL;
	if (run->size > 0) {
		run->lower = lower;
		lower->upper = run;
		lower = run;
		TAILQ_INSERT_TAIL(&free, run, link);
	} else {
		gcp_block_release(run);
	}
	lower->upper = upper;
	if (upper)
		upper->lower = lower;
	gcp_descriptor_free(&pool->slab_descriptors, slab);
	while ((block = TAILQ_FIRST(&free))) {
		TAILQ_REMOVE(&free, block, link);
		gcp_heap_put_run(heap, block);
	}
	return true;
}

void gcp_slabs_break_up(struct gcp_heap *heap)
{
	struct gcp_segment *segment;

	gcp_assert_held(GCP_RANK_POOL);
	assert(!heap->private);
	heap->loose = true;
	TAILQ_FOREACH (segment, &heap->segments, link) {
		struct gcp_block *block = segment->first, *next;

		for (; block; block = next) {
			next = block->upper;
			if (!block->slab)
				continue;
			if (gcp_block_is_free(next)) /* it may become a part */
				next = next->upper;
			if (!slab_break_up(heap, block->slab))
				return;
		}
	}
}

void gcp_slab_collect(struct gcp_heap *heap, struct gcp_block_list *list)
{
	uint32_t count = heap->pool->pools->classes.slab_count;
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	for (uint32_t i = 0; i < count; i++) {
		while ((block = TAILQ_FIRST(&heap->classes[i].list))) {
			gcp_slab_take_block(heap, block);
			gcp_gauge_add(&heap->pool->stats.active_bytes,
				      (int64_t)block->size);
			TAILQ_INSERT_TAIL(list, block, link);
		}
	}
}
