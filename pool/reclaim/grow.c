/* SPDX-License-Identifier: MIT */
/*
 * grow.c - an allocation gets new memory from the driver.
 *
 * Called by miss.c with no lock held, when nothing that is there will do. Small
 * requests share segments; on a nearly full device a block has one of its own size. Of
 * a pool that maps its own memory unused chunks are mapped to other addresses first
 * (vmm.c).
 */
#include "reclaim.h"

/* A segment that blocks share adds such a part of what is reserved: of a larger one
 * more is left over at the peak, and of many small ones more altogether. */
enum { SHARED_PART = 14 };

/* How much to ask the driver for. */
static uint64_t segment_bytes(const struct gcp_heap *heap, uint64_t size)
{
	uint64_t shared = atomic_load(&heap->pool->reserved_hint) / SHARED_PART;

	gcp_assert_held(GCP_RANK_POOL);
	if (shared > GCP_SHARED_MOST)
		shared = GCP_SHARED_MOST;
	if (shared > heap->pool->cache_limit)
		shared = heap->pool->cache_limit;
	shared = gcp_round_up(shared, GCP_CHUNK);
	if (size < GCP_CHUNK / (heap->private ? 2 : 64))
		return GCP_CHUNK;
	/* Most graphs have little: their first segment is as small as it can be, and
	 * others are shared only by what does not fill one. */
	if (heap->private)
		shared = heap->reserved_bytes > 0 && size <= GCP_CHUNK - GCP_PAGE
			     ? 2 * GCP_CHUNK
			     : 0;
	if (size > shared / 2 ||
	    (size >= 2 * GCP_CHUNK && gcp_pool_is_exact(heap->pool)))
		return gcp_round_up(size, GCP_CHUNK);
	/* Blocks behind the head: a device may be filled with blocks of one size. */
	return gcp_round_up(shared / size * size + GCP_PAGE, GCP_CHUNK);
}

/* Adds a segment of `bytes` and takes the block from it, unless another thread is
 * faster. *ret_refused: the driver's memory that found no room in the records. */
static int take_segment(struct gcp_request *request, uint64_t bytes,
			gcp_addr *ret_refused)
{
	struct gcp_pool *pool = request->heap->pool;
	gcp_addr addr;
	assert(bytes >= request->size && bytes % GCP_CHUNK == 0);
	assert(atomic_load(&pool->pins) > 0); /* K4 */
	int result = gcp_quota_allows(pool, bytes)
			 ? GCP_CALL(pool, mem_alloc, pool->ctx, bytes, &addr)
			 : GCP_CUDA_OUT_OF_MEMORY;

	if (result != 0)
		return result;
	gcp_mutex_lock(&pool->lock);
	result = gcp_heap_add_segment(request->heap, addr, bytes);
	if (result == 0)
		gcp_take_locked(request, false);
	gcp_mutex_unlock(&pool->lock);
	*ret_refused = result != 0 ? addr : 0;
	return result;
}

/* Idle segments go back before the pool has an eighth more than was ever in use at
 * once: segments of sizes that do not come again would add up. Without a wait; beside a
 * capture only memory that is mapped, which takes no stream of the library. */
static void give_excess(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_purge purge = {.gently = true};

	gcp_mutex_lock(&pool->lock);
	const struct gcp_gauge *active = &pool->stats.active_bytes;
	uint64_t with = pool->stats.reserved_bytes.current + bytes;
	uint64_t most = active->current + bytes;
	most = (most > active->peak ? most : active->peak) / 8 * 9;
	purge.bytes = with > most ? with - most : 0;
	gcp_mutex_unlock(&pool->lock);
	if (purge.bytes > 0 && gcp_timeline_is_held(&pool->timeline))
		(void)gcp_vmm_release(pool, purge.bytes, false);
	else if (purge.bytes > 0)
		(void)gcp_pool_purge(pool, &purge);
}

/* Under a quota one thread at a time asks for memory and counts it. */
static int take_new(struct gcp_request *request, uint64_t bytes)
{
	struct gcp_pool *pool = request->heap->pool;
	bool quota = gcp_quota_left(pool) != INT64_MAX;
	gcp_addr refused = 0;

	if (!gcp_pool_pin(pool)) /* what it got would not go with the context */
		return -EBUSY;
	give_excess(pool, bytes);
	if (gcp_pool_has_much(pool, bytes))
		(void)gcp_release_prepare(pool); /* purge.c */
	if (quota)
		gcp_mutex_lock(&pool->pools->vmm_lock);
	int result = take_segment(request, bytes, &refused);
	if (quota)
		gcp_mutex_unlock(&pool->pools->vmm_lock);
	if (refused)
		(void)GCP_CALL(pool, mem_free, pool->ctx, refused);
	gcp_pool_unpin(pool);
	if (result == 0)
		gcp_tight_grown(pool, bytes);
	return result;
}

int gcp_grow_plain(struct gcp_request *request)
{
	uint64_t bytes, least = gcp_round_up(request->size, GCP_CHUNK);

	gcp_mutex_lock(&request->heap->pool->lock);
	bytes = segment_bytes(request->heap, request->size);
	gcp_mutex_unlock(&request->heap->pool->lock);
	int result = take_new(request, bytes);
	if (result == GCP_CUDA_OUT_OF_MEMORY && least < bytes)
		result = take_new(request, least);
	return result;
}

/* In a mapped segment, with unused memory from elsewhere, if there is. What cannot be
 * mapped is taken as plain CUDA would: it is served, or refused with the driver's code.
 */
int gcp_grow(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	uint64_t new = 0;
	int result = GCP_NOT_MAPPED;

	if (pool->vmm)
		result = gcp_vmm_provide(request, gcp_take_locked, &new);
	if (result == GCP_NOT_MAPPED)
		return gcp_grow_plain(request);
	if (result == 0 && !request->block)
		gcp_take_ready(request);
	if (result == 0 && new > 0)
		gcp_tight_grown(pool, new);
	return result;
}
