/* SPDX-License-Identifier: MIT */
/*
 * alloc.c - the way of an allocation that finds a block in the thread's own
 * cache, and the way of a free. What finds none there goes on in miss.c.
 *
 * Called with no lock of the room held. An allocation that hits takes
 * only its cache's lock and calls no driver function. A free may close an epoch, and
 * then wait, as plain CUDA does at each: for blocking_free, to give back
 * what decays, and where no barrier may be set (fence.c).
 */
#include "../reclaim/reclaim.h"

/* --- allocate ------------------------------------------------------------------- */

static __attribute__((noinline)) int alloc_any(struct gcp_heap *heap, uint64_t bytes,
					       uint64_t margin, enum gcp_heap_use use,
					       gcp_addr *ret_addr)
{
	struct gcp_request request;
	int result = gcp_request_init(&request, heap, bytes + margin);

	if (result != 0)
		return result;
	request.bytes = bytes;
	request.use = use;
	if (!gcp_take_cached(&request))
		return gcp_alloc_slow(&request, ret_addr);
	*ret_addr = request.addr;
	return 0;
}

int gcp_heap_alloc(struct gcp_heap *heap, uint64_t bytes, enum gcp_heap_use use,
		   gcp_addr *ret_addr)
{
	return alloc_any(heap, bytes, 0, use, ret_addr);
}

int gcp_pool_alloc_margin(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			  gcp_addr *ret_addr)
{
	return alloc_any(&pool->common, bytes, margin, GCP_USE_CAPTURED, ret_addr);
}

/* Serves a hit without calling another function. */
int gcp_pool_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	const struct gcp_classes *classes = &pool->pools->classes;
	struct gcp_cache *cache = gcp_tls.cache;

	/* 0 is one of the large ones here. */
	if (__builtin_expect(
		bytes - 1 >= classes->largest || gcp_tls.pool_key != pool->key, 0))
		return gcp_pool_alloc_margin(pool, bytes, 0, ret_addr);
	size_t index = gcp_class_of(classes, bytes);
	struct gcp_magazine *magazine = &cache->magazines[index];
	if (__builtin_expect(!gcp_owner_try(&cache->own), 0))
		return gcp_pool_alloc_margin(pool, bytes, 0, ret_addr);
	struct gcp_block *block = magazine->loaded.first;
	if (__builtin_expect(!block || !gcp_epoch_ready(pool, block->epoch), 0)) {
		gcp_owner_unlock(&cache->own);
		return gcp_pool_alloc_margin(pool, bytes, 0, ret_addr);
	}
	assert(block->size >= bytes && block->segment->pool == pool);
	*ret_addr = block->addr;
	if (gcp_cache_pop(cache, magazine, block, bytes))
		return gcp_cache_counted(cache);
	gcp_owner_unlock(&cache->own);
	return 0;
}

/* --- free ---------------------------------------------------------------- */

/* Called behind gcp_pool_enter, and leaves. True: the epoch should be closed. */
static bool free_to_heap(struct gcp_pool *pool, struct gcp_cache *cache,
			 struct gcp_block *block)
{
	int64_t size = (int64_t)block->size, filled = size;

	gcp_pool_enter_heap(pool, cache);
	if (cache) {
		filled = gcp_cache_count_free(cache, block);
	} else {
		gcp_stats_delta_free(&pool->delta, block->requested, block->size);
		gcp_stats_merge(pool, &pool->delta);
	}
	gcp_heap_put(&pool->common, block);
	gcp_pool_leave(pool, cache);
	return filled > 0 && gcp_timeline_fill(pool, filled, size);
}

/* A real free waits for the context, as plain CUDA's does in each free; for a program
 * that relies on that, also for what other devices do for it. Where there is no room
 * for it, more waits. */
static int wait_by_free(struct gcp_pool *pool)
{
	int result;

	if (!gcp_pool_pin(pool))
		return 0;
	result = gcp_pool_complete_by_free(pool, !pool->pools->config.blocking_free);
	gcp_pool_unpin(pool);
	return result == GCP_CUDA_OUT_OF_MEMORY ? 0 : result;
}

/* Ends a free into `epoch`: closes the epoch if it is full, and gives back what decays.
 * close: the free has filled it; else nothing is done, unless memory is tight or each
 * free waits. (Another thread may have counted what this one has freed: then
 * gcp_cache_put_slow asks for nothing.)
 * waits: it is cudaFree, which waits for all work on plain CUDA; another call only
 * closes the epoch. A capture forbids fences: blocks that are freed meanwhile wait for
 * its end, up to a window. If no fence can be set, the free waits for its context, as
 * plain CUDA's does: an allocation could not tell later whether the work is done. */
static __attribute__((noinline)) int free_end(struct gcp_pool *pool, uint64_t epoch,
					      bool waits, bool close)
{
	const struct gcp_config *config = &pool->pools->config;
	int64_t most = (int64_t)config->window_bytes;
	int result = 0;

	if (!close && !gcp_pool_is_tight(pool) && !config->blocking_free)
		return 0;
	/* Then the block may be one that only its thread has counted. */
	if (gcp_pool_is_tight(pool))
		gcp_cache_add_counted(pool);
	if (!waits)
		return gcp_timeline_close_early(pool, true);
	if (gcp_timeline_is_held(&pool->timeline))
		waits = config->blocking_free ||
			gcp_timeline_filled(&pool->timeline) > most;
	else {
		result = config->blocking_free
			     ? gcp_timeline_complete(pool, epoch, false)
			     : gcp_timeline_close(pool, epoch);
		waits = result == -EBUSY || result == -ENOBUFS;
	}
	if (waits)
		result = wait_by_free(pool);
	if (result <= 0)
		result = gcp_pool_maintain(pool);
	gcp_tight_freed(pool);
	gcp_tick(pool->pools);
	return result == -EBUSY || result == -EAGAIN ? 0 : result;
}

static __attribute__((noinline)) int free_kept(struct gcp_cache *cache, uint32_t index,
					       uint64_t epoch, bool waits, bool much)
{
	bool close = much && gcp_cache_put_slow(cache, index);

	return free_end(cache->pool, epoch, waits, close);
}

/* The block is the caller's, for which no other thread may free it. */
static uint64_t block_stamp(struct gcp_pool *pool, struct gcp_block *block)
{
	assert(atomic_load(&block->state) == GCP_BLOCK_CACHED); /* E5: it is ours */
	return block->epoch = gcp_timeline_stamp_behind_rmw(pool);
}

static __attribute__((noinline)) int free_any(struct gcp_pool *pool,
					      struct gcp_cache *cache,
					      struct gcp_block *block, bool waits)
{
	uint64_t epoch = block_stamp(pool, block);
	uint32_t index = block->size_class;
	bool close = cache && index != GCP_CLASS_NONE
			 ? gcp_cache_put(cache, block, index)
			 : free_to_heap(pool, cache, block);

	return free_end(pool, epoch, waits, close);
}

static inline bool is_private(struct gcp_pool *pool, const struct gcp_block *block)
{
	return atomic_load_explicit(&block->segment->heap, memory_order_acquire) !=
	       &pool->common;
}

/* Plain CUDA waits in such a free, too: it closes the epoch where another would. */
static int free_private(struct gcp_pool *pool, struct gcp_cache *cache,
			struct gcp_block *block, bool waits)
{
	int64_t size = (int64_t)block->size;

	gcp_pool_enter_heap(pool, cache);
	gcp_private_free(pool, block);
	/* The free of a block that no graph can address waits beside a capture, too. */
	bool untouched = atomic_load(&block->state) == GCP_BLOCK_PENDING &&
			 block->group == GCP_GROUP_FRESH;
	gcp_pool_leave(pool, cache);
	if (!waits || (gcp_timeline_is_held(&pool->timeline) && !untouched))
		return 0;
	bool close = gcp_timeline_fill(pool, size, size);
	return free_end(pool, gcp_timeline_stamp(pool), true, close);
}

/* The calls that free: cudaFree, and cudaFreeAsync in a stream. */
struct free_call {
	bool waits;
	uint64_t stream;
};

/* `block` was found at `addr`, is no other thread's to free, and was in this state.
 * Called behind gcp_pool_enter, and leaves. */
static __attribute__((noinline)) int
free_claimed(struct gcp_pool *pool, struct gcp_cache *cache, struct gcp_block *block,
	     gcp_addr addr, uint8_t state, struct free_call call)
{
	if (__builtin_expect(block->addr != addr, 0)) {
		/* The descriptor has changed hands since we looked: the program
		 * frees twice, from two threads. */
		atomic_store(&block->state, state);
		gcp_pool_enter_heap(pool, cache);
		gcp_pool_leave(pool, cache);
		return -EINVAL;
	}
	if (state == GCP_BLOCK_CAPTURED || is_private(pool, block))
		return free_private(pool, cache, block, call.waits);
	if (block->async)
		return gcp_stream_free(pool, cache, block,
				       call.waits ? block->stream : call.stream);
	return free_any(pool, cache, block, call.waits);
}

/* Also of a block that is not USED, -EREMOTE: it is exported; -EINVAL: it is free. And
 * by a thread that has no cache of the pool yet, which it gets for a block that it may
 * keep. */
static __attribute__((noinline)) int free_slow(struct gcp_block *block, gcp_addr addr,
					       struct free_call call)
{
	struct gcp_pool *pool = block->segment->pool;
	bool keeps = (block->async || block->size_class != GCP_CLASS_NONE) &&
		     !is_private(pool, block);
	struct gcp_cache *cache =
	    keeps ? gcp_cache_of_thread(pool) : gcp_cache_known(pool);
	uint8_t state = GCP_BLOCK_USED;

	gcp_pool_enter(pool, cache);
	if (atomic_compare_exchange_strong(&block->state, &state, GCP_BLOCK_CACHED) ||
	    (state == GCP_BLOCK_CAPTURED &&
	     atomic_compare_exchange_strong(&block->state, &state, GCP_BLOCK_CACHED)))
		return free_claimed(pool, cache, block, addr, state, call);
	gcp_pool_enter_heap(pool, cache);
	gcp_pool_leave(pool, cache);
	return state == GCP_BLOCK_EXPORTED ? -EREMOTE : -EINVAL;
}

/* Frees a block of the usual kind without calling another function. */
static inline __attribute__((always_inline)) int
free_found(struct gcp_block *block, gcp_addr addr, struct free_call call)
{
	struct gcp_pool *pool = block->segment->pool;
	struct gcp_cache *cache = gcp_tls.cache;
	uint8_t used = GCP_BLOCK_USED;

	if (__builtin_expect(
		gcp_tls.pool_key != pool->key || !gcp_owner_try(&cache->own), 0))
		return free_slow(block, addr, call);
	/* One of two threads that free the same block wins; and from here on the block
	 * is ours alone. Sequentially consistent: block_stamp relies on it. */
	if (__builtin_expect(
		!atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_CACHED),
		0)) {
		gcp_owner_unlock(&cache->own);
		return free_slow(block, addr, call);
	}
	size_t index = block->size_class;
	if (!call.waits && block->async && block->addr == addr)
		return gcp_stream_free(pool, cache, block, call.stream);
	if (__builtin_expect(block->addr != addr || is_private(pool, block) ||
				 index == GCP_CLASS_NONE || block->async,
			     0))
		return free_claimed(pool, cache, block, addr, used, call);
	uint64_t epoch = block_stamp(pool, block);
	if (__builtin_expect(cache->epoch != epoch, 0))
		return free_any(pool, cache, block, call.waits);
	bool much = gcp_cache_push(cache, block, index);
	gcp_owner_unlock(&cache->own);
	if (__builtin_expect(much || gcp_pool_is_tight(pool), 0))
		return free_kept(cache, index, epoch, call.waits, much);
	return 0;
}

int gcp_pools_free(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	if (__builtin_expect(!block, 0))
		return -ENOENT;
	return free_found(block, addr, (struct free_call){.waits = true});
}

static __attribute__((noinline)) int free_async(struct gcp_block *block, gcp_addr addr,
						uint64_t stream)
{
	return free_found(block, addr, (struct free_call){.stream = stream});
}

int gcp_pools_free_async(struct gcp_pools *pools, gcp_addr addr, uint64_t stream)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	return block ? free_async(block, addr, stream) : -ENOENT;
}

int gcp_pool_free_stream(struct gcp_pool *pool, gcp_addr addr, uint64_t stream)
{
	struct gcp_block *block = gcp_map_find(pool->pools->map, addr);

	if (!block)
		return -ENOENT;
	/* As in gcp_pools_held: only a block that is used stays in its segment. */
	if (!gcp_block_is_used(block))
		return -EINVAL;
	if (block->segment->pool != pool || !gcp_pool_is_fenced(pool))
		return -EXDEV;
	return free_async(block, addr, stream);
}
