/* SPDX-License-Identifier: MIT */
/*
 * heap.c - the free blocks of a heap: taken by size or address, put back, collected.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * Which free block serves a request says fit.c.
 */
#include "cache.h"

void gcp_heap_init(struct gcp_heap *heap, struct gcp_pool *pool, bool private)
{
	*heap = (struct gcp_heap){
	    .pool = pool,
	    .private = private,
	};
	TAILQ_INIT(&heap->segments);
	gcp_pending_init(heap);
	TAILQ_INIT(&heap->deferred);
	TAILQ_INIT(&heap->once);
	TAILQ_INIT(&heap->unmapping);
}

/* --- taking and putting ----------------------------------------------------------- */

struct gcp_block *gcp_heap_take(const struct gcp_request *request, bool fresh)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	if (!request->made) /* which would become a part of another one */
		gcp_heap_advance(heap);
	block = gcp_fit_take(request, fresh);
	if (!block)
		return NULL;
	assert(gcp_epoch_ready(heap->pool, block->epoch)); /* E3 */
	block->stream = 0;
	gcp_block_set_state(block, GCP_BLOCK_USED);
	gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
	return block;
}

struct gcp_block *gcp_heap_take_at(struct gcp_heap *heap, gcp_addr least, gcp_addr addr,
				   uint64_t size)
{
	struct gcp_block *block =
	    gcp_map_find_below(heap->pool->pools->map, addr, least);

	gcp_assert_held(GCP_RANK_POOL);
	if (!gcp_block_is_free(block) || addr + size > block->addr + block->size)
		return NULL;
	block = gcp_fit_cut(heap, block, addr, size);
	if (!block)
		return NULL;
	gcp_block_set_state(block, GCP_BLOCK_USED);
	gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
	return block;
}

void gcp_heap_count(struct gcp_heap *heap, struct gcp_block *block, int sign)
{
	gcp_assert_held(GCP_RANK_POOL);
	heap->used_bytes += (uint64_t)sign * block->size;
	assert(heap->used_bytes < UINT64_MAX / 2);
}

void gcp_heap_put_list(struct gcp_heap *heap, struct gcp_block_list *list)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	while ((block = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, block, link);
		gcp_heap_put(heap, block);
	}
}

void gcp_heap_put_chain(struct gcp_heap *heap, const struct gcp_chain *chain)
{
	gcp_assert_held(GCP_RANK_POOL);
	for (struct gcp_block *block = chain->first, *next; block; block = next) {
		next = block->next;
		assert(atomic_load(&block->state) == GCP_BLOCK_CACHED); /* E5 */
		gcp_heap_put(heap, block);
	}
}

/* The epoch that would have to be ready for `block` and what is free below it to serve
 * `size`, with as much of what lies above it as is needed; 0 if that is too small.
 * *looks: how many blocks may be looked at, and are. */
static uint64_t span_epoch(const struct gcp_block *block, uint64_t size, int *looks)
{
	uint64_t bytes = gcp_block_is_free(block->lower) ? block->lower->size : 0;
	uint64_t epoch = 0;

	for (; (bytes < size || epoch == 0) && *looks > 0 &&
	       (gcp_block_is_free(block) || gcp_block_is(block, GCP_BLOCK_PENDING));
	     block = block->upper, --*looks) {
		bytes += block->size;
		epoch = block->epoch > epoch ? block->epoch : epoch;
	}
	return bytes >= size ? epoch : 0;
}

uint64_t gcp_heap_fitting_epoch(struct gcp_heap *heap, uint64_t size)
{
	struct gcp_block *block;
	uint64_t oldest = 0, together = 0, bytes = 0;
	int looks = 16 * GCP_LOOKS;

	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_FOREACH (block, &heap->pending, link) {
		if ((oldest && block->epoch >= oldest) || looks <= 0)
			break;
		bytes += heap->pool->vmm && !heap->private ? block->size : 0;
		if (!together && bytes >= size)
			together = block->epoch;
		uint64_t epoch = span_epoch(block, size, &looks);
		if (epoch && (!oldest || epoch < oldest))
			oldest = epoch;
	}
	/* No look is left: once these blocks are ready the next search gets further. */
	if (!together && block)
		together = block->epoch;
	return oldest ? oldest : together;
}
