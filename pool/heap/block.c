/* SPDX-License-Identifier: MIT */
/*
 * block.c - descriptors of blocks: made, cut and joined with a neighbour.
 *
 * Called with pool->lock held by all that keep blocks in order: heap.c, fit.c,
 * segment.c, vmm_space.c. Knows no list and no tree. Never calls the driver.
 */
#include "block.h"

void gcp_block_set_state(struct gcp_block *block, enum gcp_block_state state)
{
	atomic_store_explicit(&block->state, state, memory_order_release);
}

bool gcp_block_is(const struct gcp_block *block, enum gcp_block_state state)
{
	return block &&
	       atomic_load_explicit(&block->state, memory_order_relaxed) == state;
}

bool gcp_block_is_free(const struct gcp_block *block)
{
	return gcp_block_is(block, GCP_BLOCK_FREE);
}

bool gcp_block_is_used(const struct gcp_block *block)
{
	uint8_t state = atomic_load_explicit(&block->state, memory_order_acquire);

	return state == GCP_BLOCK_USED || state == GCP_BLOCK_CAPTURED ||
	       state == GCP_BLOCK_EXPORTED;
}

bool gcp_block_is_segment(const struct gcp_block *block)
{
	return !block->lower && !block->upper;
}

bool gcp_block_begins_segment(const struct gcp_block *block)
{
	const struct gcp_segment *segment = block->segment;

	return !segment->chunks && block->addr == segment->addr &&
	       !gcp_block_is(block, GCP_BLOCK_HEAD);
}

bool gcp_block_make_head(struct gcp_block *block)
{
	struct gcp_block *head = gcp_block_cut(block, GCP_PAGE);

	if (!head)
		return false;
	head->epoch = GCP_EPOCH_FRESH;
	head->group = GCP_GROUP_FRESH;
	head->apart = false;
	gcp_block_set_state(head, GCP_BLOCK_HEAD);
	return true;
}

struct gcp_block *gcp_block_create(struct gcp_segment *segment, gcp_addr addr,
				   uint64_t size, uint64_t epoch)
{
	struct gcp_pool *pool = segment->pool;
	struct gcp_block *block = gcp_descriptor_alloc(&pool->block_descriptors);

	gcp_assert_held(GCP_RANK_POOL);
	assert(size > 0 && size % GCP_UNIT == 0 && addr % GCP_UNIT == 0); /* B1 */
	if (!block)
		return NULL;
	block->addr = addr;
	block->size = size;
	block->requested = block->stream = 0;
	GCP_STORE(block->opens, 0);
	block->epoch = epoch;
	block->segment = segment;
	block->async = block->apart = false;
	block->lower = block->upper = NULL;
	block->size_class = GCP_CLASS_NONE;
	gcp_block_set_state(block, GCP_BLOCK_PENDING);
	if (gcp_map_set(pool->pools->map, addr, block) == 0)
		return block;
	gcp_block_release(block);
	return NULL;
}

void gcp_block_release(struct gcp_block *block)
{
	struct gcp_pool *pool = block->segment->pool;

	gcp_assert_held(GCP_RANK_POOL);
	assert(atomic_load(&block->state) != GCP_BLOCK_RELEASED);
	gcp_map_clear(pool->pools->map, block->addr, block);
	gcp_block_set_state(block, GCP_BLOCK_RELEASED);
	gcp_descriptor_free(&pool->block_descriptors, block);
}

/* Looks at chunks of this block only: those of others may change. */
uint64_t gcp_block_handles(const struct gcp_block *block, uint64_t *ret_first)
{
	const struct gcp_chunk *chunks = block->segment->chunks;
	uint64_t offset = block->addr - block->segment->addr;
	uint64_t first = (offset + GCP_CHUNK - 1) / GCP_CHUNK;
	uint64_t end = (offset + block->size) / GCP_CHUNK;

	if (first >= end)
		return 0;
	if (chunks[first].before > 0)
		first += chunks[first].count - chunks[first].before;
	if (chunks[end - 1].before + 1 < chunks[end - 1].count)
		end -= chunks[end - 1].before + 1;
	if (first >= end)
		return 0;
	*ret_first = first;
	return end - first;
}

/* Mapped: whole handles; else the whole segment, if it is. */
uint64_t gcp_block_unused(const struct gcp_block *block)
{
	uint64_t first;

	if (block->size < GCP_CHUNK)
		return 0;
	if (block->segment->chunks)
		return gcp_block_handles(block, &first) * GCP_CHUNK;
	return gcp_block_is_segment(block) ? block->size : 0;
}

void gcp_block_coalesce_upper(struct gcp_block *lower)
{
	struct gcp_block *upper = lower->upper;

	assert(lower->addr + lower->size == upper->addr &&
	       upper->lower == lower); /* B3 */
	lower->size += upper->size;
	if (lower->epoch < upper->epoch)
		lower->epoch = upper->epoch;
	if (lower->group < upper->group)
		lower->group = upper->group;
	assert(lower->epoch >= upper->epoch && lower->group >= upper->group); /* E4 */
	lower->apart |= upper->apart;
	if (lower->stream != upper->stream)
		lower->stream = 0;
	lower->upper = upper->upper;
	if (upper->upper)
		upper->upper->lower = lower;
	gcp_block_release(upper);
}

struct gcp_block *gcp_block_cut(struct gcp_block *block, uint64_t size)
{
	struct gcp_map *map = block->segment->pool->pools->map;
	struct gcp_block *lower;

	assert(size < block->size && size % GCP_UNIT == 0); /* B1 */
	if (gcp_map_set(map, block->addr + size, block) != 0)
		return NULL;
	lower = gcp_block_create(block->segment, block->addr, size, block->epoch);
	if (!lower) {
		gcp_map_clear(map, block->addr + size, block);
		return NULL;
	}
	assert(lower->epoch == block->epoch); /* E4 */
	lower->group = block->group;
	lower->apart = block->apart;
	lower->lower = block->lower;
	if (lower->lower)
		lower->lower->upper = lower;
	else
		block->segment->first = lower;
	lower->upper = block;
	block->lower = lower;
	block->addr += size;
	block->size -= size;
	return lower;
}

void gcp_heap_usage(struct gcp_heap *heap, uint64_t *reserved, uint64_t *held,
		    uint64_t *shared)
{
	const struct gcp_block *block;

	GCP_LOCKED(&heap->pool->lock);
	*reserved += heap->reserved_bytes;
	*held += heap->used_bytes;
	TAILQ_FOREACH (block, &heap->unmapping, link)
		*shared += block->size;
}
