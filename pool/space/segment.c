/* SPDX-License-Identifier: MIT */
/*
 * segment.c - segments: put onto a heap's lists, moved between heaps, given
 * back, detached.
 *
 * Called with pool->lock held. Never calls the driver.
 */
#include "vmm.h"

/* --- segments ----------------------------------------------------------------- */

void gcp_reserved_count(struct gcp_pool *pool, int64_t change, bool mapped,
			bool private)
{
	gcp_assert_held(GCP_RANK_POOL);
	gcp_gauge_add(&pool->stats.reserved_bytes, change);
	atomic_store_explicit(&pool->reserved_hint, pool->stats.reserved_bytes.current,
			      memory_order_relaxed);
	if (mapped)
		atomic_fetch_add_explicit(&pool->vmm_mapped, (uint64_t)change,
					  memory_order_relaxed);
	if (private)
		gcp_gauge_add(&pool->stats.private_bytes, change);
}

void gcp_space_change(struct gcp_heap *heap, struct gcp_segment *segment,
		      int64_t change)
{
	segment->mapped += (uint64_t)change;
	heap->reserved_bytes += (uint64_t)change;
	assert(segment->mapped <= segment->size);   /* S2 */
	assert((int64_t)heap->reserved_bytes >= 0); /* H1 */
	gcp_reserved_count(heap->pool, change, segment->chunks, heap->private);
}

int gcp_segment_create(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		       struct gcp_chunk *chunks, bool small,
		       struct gcp_segment **ret_segment)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_segment *segment = gcp_descriptor_alloc(&pool->segment_descriptors);
	uint64_t order = size == GCP_CHUNK ? 1 : small ? 0 : chunks ? 3 : 2;

	gcp_assert_held(GCP_RANK_POOL);
	if (!segment)
		return -ENOMEM;
	/* One by one: a thread that frees what has gone with its context may read the
	 * pool, which is always the same, and the heap. */
	segment->addr = addr;
	segment->size = size;
	segment->chunks = chunks;
	segment->number =
	    order << 62 | (atomic_fetch_add(&pool->pools->last_segment, 1) + 1);
	segment->pool = pool;
	segment->heap = heap;
	segment->private_epoch = segment->mapped = 0;
	segment->first = gcp_block_create(segment, addr, size, GCP_EPOCH_FRESH);
	if (!segment->first) {
		gcp_descriptor_free(&pool->segment_descriptors, segment);
		return gcp_map_reaches(addr) ? -ENOMEM : -ERANGE;
	}
	TAILQ_INSERT_TAIL(&heap->segments, segment, link);
	gcp_segments_insert(&pool->segments, segment);
	gcp_gauge_add(&pool->stats.segment, 1);
	*ret_segment = segment;
	return 0;
}

/* Takes a block off its list, which the driver has freed: false where it stays. */
static bool block_drop(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_stats_delta counted = {0};
	uint8_t used = GCP_BLOCK_USED;

	if (gcp_block_is_free(block)) {
		gcp_tree_remove(heap, block);
		return true;
	}
	if (atomic_load(&block->state) == GCP_BLOCK_PENDING) {
		gcp_pending_remove(heap, block);
	} else {
		if (!atomic_compare_exchange_strong(&block->state, &used,
						    GCP_BLOCK_CACHED))
			return false;
		gcp_stats_delta_free(&counted, block->requested, block->size);
		if (block->async)
			gcp_stats_delta_async(&counted, -(int64_t)block->requested);
		gcp_stats_merge(heap->pool, &counted);
	}
	gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
	return true;
}

/* The driver has given out addresses that are still in the books: a block that filled
 * its segment was freed by code which does not pass through here. */
static void segments_drop(struct gcp_pool *pool, gcp_addr addr, uint64_t size)
{
	struct gcp_segment key = {.addr = addr + size}, *segment, *lower;

	segment = gcp_segments_below(&pool->segments, &key);
	for (; segment && segment->addr + segment->size > addr; segment = lower) {
		struct gcp_block *block = segment->first;

		lower = gcp_segments_below(&pool->segments, segment);
		if (segment->chunks || !gcp_block_is_segment(block) ||
		    atomic_load(&segment->heap) != &pool->common ||
		    !block_drop(&pool->common, block))
			continue;
		gcp_segment_unlink(&pool->common, segment);
		gcp_block_release(block);
		gcp_descriptor_free(&pool->segment_descriptors, segment);
	}
}

int gcp_heap_add_segment(struct gcp_heap *heap, gcp_addr addr, uint64_t size)
{
	struct gcp_segment *segment;
	int result;

	segments_drop(heap->pool, addr, size);
	result = gcp_segment_create(heap, addr, size, NULL, false, &segment);
	if (result != 0)
		return result;
	if (heap->pool->vmm && !heap->private)
		atomic_store(&heap->pool->vmm_mixed, true);
	gcp_space_change(heap, segment, (int64_t)size);
	gcp_tree_insert(heap, segment->first);
	return 0;
}

/* The smallest segment of `size` to `most` bytes that is free as a whole. */
static struct gcp_block *unused_segment(struct gcp_heap *heap, uint64_t size,
					uint64_t most)
{
	struct gcp_block *block = gcp_tree_lowest_for(&heap->free, size, size),
			 *best = NULL;

	for (int i = 0; block && i < GCP_LOOKS;
	     i++, block = gcp_tree_next_fit(block, size))
		if (block->size <= most && gcp_block_is_segment(block) &&
		    (!best || block->size < best->size))
			best = block;
	return best;
}

bool gcp_heap_adopt(struct gcp_heap *heap, uint64_t size)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_heap *common = &pool->common;
	struct gcp_block *block;
	struct gcp_segment *segment;
	uint64_t most =
	    size < GCP_CHUNK / 2 ? GCP_CHUNK : 2 * gcp_round_up(size, GCP_CHUNK);

	gcp_assert_held(GCP_RANK_POOL);
	gcp_heap_advance(common);
	block = unused_segment(common, size, most);
	if (!block)
		return false;
	segment = block->segment;
	gcp_tree_remove(common, block);
	TAILQ_REMOVE(&common->segments, segment, link);
	common->reserved_bytes -= segment->size;
	atomic_store_explicit(&segment->heap, heap, memory_order_release);
	TAILQ_INSERT_TAIL(&heap->segments, segment, link);
	heap->reserved_bytes += segment->size;
	gcp_gauge_add(&pool->stats.private_bytes, (int64_t)segment->size);
	block->group = GCP_GROUP_FRESH;
	block->apart = false;
	gcp_tree_insert(heap, block); /* with its epoch: ordered is not completed */
	return true;
}

void gcp_segment_unlink(struct gcp_heap *heap, struct gcp_segment *segment)
{
	struct gcp_pool *pool = heap->pool;

	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_REMOVE(&heap->segments, segment, link);
	gcp_segments_remove(&pool->segments, segment);
	gcp_gauge_add(&pool->stats.segment, -1);
	gcp_space_change(heap, segment, -(int64_t)segment->mapped);
}

uint64_t gcp_heap_unlink_unused(struct gcp_heap *heap, const struct gcp_purge *purge,
				struct gcp_segment_list *list)
{
	uint64_t completed = atomic_load(&heap->pool->timeline.completed), taken = 0;
	struct gcp_segment *segment = TAILQ_FIRST(&heap->segments), *next;

	gcp_assert_held(GCP_RANK_POOL);
	for (; segment; segment = next) {
		struct gcp_block *block = segment->first;

		next = TAILQ_NEXT(segment, link);
		if (segment->chunks || !gcp_block_is_free(block) ||
		    block->epoch > completed || taken >= purge->bytes ||
		    (purge->exact && taken + segment->size > purge->bytes))
			continue;
		assert(gcp_block_is_segment(block)); /* B10 */
		taken += segment->size;
		if (!list)
			continue;
		gcp_tree_remove(heap, block);
		gcp_block_release(block);
		gcp_segment_unlink(heap, segment);
		TAILQ_INSERT_TAIL(list, segment, link);
		heap->pool->giving++;
	}
	return taken;
}

void gcp_heap_reset(struct gcp_heap *heap)
{
	struct gcp_pools *pools = heap->pool->pools;
	struct gcp_segment *segment;

	while ((segment = TAILQ_FIRST(&heap->segments))) {
		struct gcp_block *block = segment->first, *upper;

		for (; block; block = upper) {
			upper = block->upper;
			gcp_block_release(block);
		}
		gcp_segment_unlink(heap, segment);
		/* What we mapped did not go with the context. */
		if (segment->chunks)
			TAILQ_INSERT_TAIL(&heap->pool->orphans, segment, link);
		else
			gcp_descriptor_free(&heap->pool->segment_descriptors, segment);
	}
	heap->free = heap->holes = (struct gcp_treap){0};
	if (!heap->private)
		memset(heap->pool->streamed, 0, sizeof(heap->pool->streamed));
	gcp_pending_init(heap);
	TAILQ_INIT(&heap->deferred);
	TAILQ_INIT(&heap->once);
	TAILQ_INIT(&heap->unmapping);
	heap->recycled = false;
	heap->borrowed = NULL;
	heap->used_bytes = heap->lent_bytes = heap->unused_bytes = heap->unused_low = 0;
	heap->id = atomic_fetch_add(&pools->last_heap_id, 1) + 1;
}
