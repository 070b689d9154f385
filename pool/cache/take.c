/* SPDX-License-Identifier: MIT */
/*
 * take.c - an allocation takes a block that is there and ready: from its thread's
 * cache, or from the heap.
 *
 * Called by alloc.c, miss.c and grow.c with no lock held, unless it says so. Never
 * calls the driver.
 */
#include "cache.h"

int gcp_request_init(struct gcp_request *request, struct gcp_heap *heap, uint64_t bytes)
{
	const struct gcp_classes *classes = &heap->pool->pools->classes;

	if (bytes == 0)
		return -EINVAL;
	if (bytes > UINT64_MAX / 2) /* rounding up must not wrap */
		return GCP_CUDA_OUT_OF_MEMORY;
	*request = (struct gcp_request){.heap = heap, .bytes = bytes};
	request->size_class = gcp_class_of(classes, bytes);
	request->size = request->size_class != GCP_CLASS_NONE
			    ? classes->sizes[request->size_class]
			    : gcp_round_up(bytes, GCP_PAGE);
	return 0;
}

struct gcp_cache *gcp_request_cache(const struct gcp_request *request)
{
	if (request->heap->private || request->size_class == GCP_CLASS_NONE)
		return NULL;
	return gcp_cache_of_thread(request->heap->pool);
}

static void count_taken(struct gcp_request *request, bool hit)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_block *block = request->block;

	gcp_assert_held(GCP_RANK_POOL);
	assert(block->size >= request->bytes && block->segment->pool == heap->pool);
	if (heap->private) {
		block->watched = request->use == GCP_USE_CAPTURED
				     ? 0
				     : atomic_load(&heap->pool->pools->eager_work);
		block->captured = atomic_load(&heap->pool->pools->captured_work);
		block->apart = request->use == GCP_USE_ANY;
		gcp_heap_count(heap, block, 1);
		heap->recycled |= block->group != GCP_GROUP_FRESH;
	}
	block->requested = request->bytes; /* where the group was */
	gcp_request_serve(request, request->counting, block);
	if (request->counting) {
		gcp_cache_held_add(request->counting, (int64_t)block->size);
		gcp_stats_delta_count(&request->counting->delta, request->bytes,
				      block->size);
		return;
	}
	gcp_stats_delta_count(&heap->pool->delta, request->bytes, block->size);
	*(hit ? &heap->pool->stats.hits : &heap->pool->stats.misses) += 1;
	gcp_stats_merge(heap->pool, &heap->pool->delta);
}

bool gcp_take_locked(struct gcp_request *request, bool hit)
{
	struct gcp_heap *heap = request->heap;
	bool fresh = heap->private && request->use == GCP_USE_ANY;

	request->block = gcp_heap_take(request, fresh);
	if (!request->block)
		request->block = gcp_heap_take_streamed(heap, request);
	if (!request->block && heap->private && gcp_heap_adopt(heap, request->size))
		request->block = gcp_heap_take(request, fresh);
	if (request->block)
		count_taken(request, hit);
	return request->block;
}

bool gcp_take_ready(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = gcp_cache_known(pool);

	assert(!request->block);
	gcp_pool_enter(pool, cache);
	gcp_pool_enter_heap(pool, cache);
	request->counting = cache;
	gcp_take_locked(request, true);
	request->counting = NULL;
	gcp_pool_leave(pool, cache);
	return request->block;
}

bool gcp_take_cached(struct gcp_request *request)
{
	struct gcp_cache *cache = gcp_request_cache(request);

	return cache && gcp_cache_take(cache, request);
}

bool gcp_take_anywhere(struct gcp_request *request)
{
	return gcp_take_cached(request) || gcp_take_ready(request);
}
