/* SPDX-License-Identifier: MIT */
/*
 * pools.c - the life of pools: made at the first allocation of a context,
 * dropped with the context, never freed.
 *
 * A pool's struct outlives its context and serves a later one: threads keep
 * pointers to it in their caches.
 */
#include "../reclaim/reclaim.h"
#include "../pinned/pinned_types.h"

int gcp_pools_create(const struct gcp_config *config, const struct gcp_driver *driver,
		     struct gcp_pools **ret_pools)
{
	static _Atomic uint64_t last_id;
	struct gcp_pools *pools;

	pools = gcp_zeroed_map(sizeof(*pools));
	if (!pools)
		return -ENOMEM;
	pools->id = atomic_fetch_add(&last_id, 1) + 1;
	pools->config = *config;
	/* Nothing is to be kept: a free waits, as plain CUDA's does, and gives all
	 * back. */
	if (config->cache_limit == 0)
		pools->config.blocking_free = true;
	pools->driver = *driver;
	pools->quota = config->quota;
	pools->completed_only = config->completed_only;
	gcp_descriptor_pool_init(&pools->fence_descriptors, sizeof(struct gcp_fence));
	TAILQ_INIT(&pools->caches);
	gcp_mutex_init(&pools->vmm_lock, GCP_RANK_VMM);
	gcp_mutex_init(&pools->registry_lock, GCP_RANK_REGISTRY);
	gcp_mutex_init(&pools->fence_lock, GCP_RANK_FENCE);
	pools->map = gcp_map_create();
	/* Nothing is undone: the process makes no second attempt. */
	if (!pools->map || gcp_classes_init(&pools->classes, config) != 0 ||
	    gcp_pinned_create(pools) != 0)
		return -ENOMEM;
	atomic_store(&pools->eager_work, 1);
	*ret_pools = pools;
	return 0;
}

void gcp_pools_eager_work(struct gcp_pools *pools)
{
	atomic_fetch_add(&pools->eager_work, 1);
}

uint64_t gcp_pools_captured_work(struct gcp_pools *pools)
{
	atomic_fetch_add(&pools->captured_work, 1);
	return atomic_load(&pools->deferred_frees);
}

/* --- finding and making --------------------------------------------------- */

/* The pool of `ctx`, or NULL. One that leaves is of a context that may be gone already:
 * the handle may be another one's by now. With registry_lock held it stays. */
static struct gcp_pool *pool_of(struct gcp_pools *pools, void *ctx, bool leaving)
{
	struct gcp_pool *pool =
	    atomic_load_explicit(&pools->first, memory_order_acquire);

	while (pool &&
	       (!pool->live || (pool->detaching && !leaving) || pool->ctx != ctx))
		pool = atomic_load_explicit(&pool->next, memory_order_acquire);
	return pool;
}

static struct gcp_pool *pool_create(struct gcp_pools *pools)
{
	static _Atomic uint64_t last_key;
	size_t depots = pools->classes.count * sizeof(struct gcp_depot);
	struct gcp_pool *pool = gcp_zeroed_map(sizeof(*pool) + depots);

	if (!pool)
		return NULL;
	pool->depots = (struct gcp_depot *)(pool + 1);
	pool->pools = pools;
	pool->key = atomic_fetch_add(&last_key, 1) + 1;
	gcp_mutex_init(&pool->lock, GCP_RANK_POOL);
	gcp_descriptor_pool_init(&pool->block_descriptors, sizeof(struct gcp_block));
	gcp_descriptor_pool_init(&pool->segment_descriptors,
				 sizeof(struct gcp_segment));
	TAILQ_INIT(&pool->private_heaps);
	pool->segments = (struct gcp_treap){0};
	TAILQ_INIT(&pool->orphans);
	TAILQ_INIT(&pool->lanes);
	TAILQ_INIT(&pool->pinned_pending);
	gcp_timeline_init(&pool->timeline, pool);
	gcp_heap_init(&pool->common, pool, false);
	pool->pressure.had_completed = GCP_EPOCH_FIRST;
	return pool;
}

static uint64_t device_bytes(const struct gcp_pools *pools, int device)
{
	uint64_t (*ask)(int device) = pools->driver.device_memory;

	return (ask ? ask(device) : 0) ?: UINT64_MAX;
}

static int pool_make(struct gcp_pools *pools, void *ctx, int device,
		     struct gcp_pool **ret_pool)
{
	struct gcp_pool *pool = atomic_load(&pools->first);

	/* One of a context that is gone, on the same device: its totals go on. */
	while (pool && (pool->live || pool->device != device))
		pool = atomic_load(&pool->next);
	bool fresh = !pool;
	if (fresh)
		pool = pool_create(pools);
	if (!pool)
		return -ENOMEM;
	assert(!atomic_load(&pool->live) && pool->pools == pools);
	pool->ctx = ctx;
	/* Threads that saw it alive before may still look at one that is revived. */
	gcp_mutex_lock(&pools->fence_lock);
	pool->timeline.refused = pool->timeline.detached = false;
	gcp_mutex_unlock(&pools->fence_lock);
	if (fresh) {
		pool->device = device; /* and revived for no other one */
		pool->memory = device_bytes(pools, device);
		pool->cache_limit =
		    gcp_limit_bytes(pools->config.cache_limit, pool->memory);
		gcp_vmm_init(pool);
		atomic_store(&pool->next, atomic_load(&pools->first));
		atomic_store_explicit(&pools->first, pool, memory_order_release);
	}
	atomic_store(&pool->live, true);
	gcp_windows_update(pools);
	*ret_pool = pool;
	return 0;
}

int gcp_pool_get(struct gcp_pools *pools, void *ctx, int device,
		 struct gcp_pool **ret_pool)
{
	struct gcp_pool *pool = pool_of(pools, ctx, false);
	int result = 0;

	for (int turn = 0; !pool && result == 0; turn++) {
		gcp_mutex_lock(&pools->registry_lock);
		pool = pool_of(pools, ctx, true);
		if (!pool)
			result = pool_make(pools, ctx, device, &pool);
		gcp_mutex_unlock(&pools->registry_lock);
		/* Whether it is the one to have is not known before its context
		 * has ended or stays. What ends there may wait for work that waits
		 * for this thread. */
		if (pool && atomic_load(&pool->detaching)) {
			pool = NULL;
			result = turn < GCP_WAIT_LIMIT ? 0 : -EBUSY;
			gcp_backoff();
		}
	}
	if (result == 0)
		*ret_pool = pool;
	return result;
}

/* --- what passes through -------------------------------------------------- */

bool gcp_pools_pass(struct gcp_pools *pools, int device, int64_t bytes)
{
	uint64_t quota = GCP_LIMIT_NONE;

	if (bytes > 0 && atomic_load(&pools->quota) != GCP_LIMIT_NONE)
		quota = gcp_pools_quota(pools, device_bytes(pools, device));
	if (quota != GCP_LIMIT_NONE) /* else no call waits for one that maps memory */
		gcp_mutex_lock(&pools->vmm_lock);
	bool allowed = gcp_pools_taken(pools, device) + (uint64_t)bytes <= quota;
	if (allowed)
		atomic_fetch_add(&pools->passed[device & 63], bytes);
	if (quota != GCP_LIMIT_NONE)
		gcp_mutex_unlock(&pools->vmm_lock);
	gcp_refusal_set(allowed ? GCP_REFUSED_BY_DRIVER : GCP_REFUSED_BY_QUOTA);
	return allowed;
}

/* --- the end of a context ------------------------------------------------- */

void gcp_pool_detach(struct gcp_pools *pools, void *ctx)
{
	struct gcp_pool *pool = pool_of(pools, ctx, false);

	if (pool)
		atomic_store(&pool->detaching, true);
	/* A thread that walks over all pools' fences holds this lock. */
	gcp_mutex_lock(&pools->fence_lock);
	while (pool && atomic_load(&pool->pins) > 0) {
		gcp_mutex_unlock(&pools->fence_lock);
		gcp_backoff();
		gcp_mutex_lock(&pools->fence_lock);
	}
	if (pool)
		pool->timeline.detached = true;
	gcp_mutex_unlock(&pools->fence_lock);
}

void gcp_pool_reattach(struct gcp_pools *pools, void *ctx)
{
	struct gcp_pool *pool;

	gcp_mutex_lock(&pools->registry_lock);
	pool = pool_of(pools, ctx, true);
	gcp_mutex_unlock(&pools->registry_lock);
	if (!pool || !atomic_load(&pool->detaching))
		return;
	if (gcp_timeline_reattach(pool) != 0) {
		(void)gcp_pool_complete_by_free(pool, false); /* an error shows again */
		atomic_store(&pool->detaching, false);
	}
	gcp_pools_barriers_due(pools);
}

/* registry_lock and vmm_lock are held. */
static void pool_reset(struct gcp_pool *pool)
{
	struct gcp_chain chain;
	struct gcp_heap *heap;

	gcp_assert_held(GCP_RANK_VMM);
	gcp_assert_held(GCP_RANK_REGISTRY);
	atomic_store(&pool->live, false);
	atomic_store(&pool->detaching, false);
	atomic_store(&pool->held_back, 0);
	gcp_windows_update(pool->pools);
	gcp_timeline_reset(&pool->timeline);
	gcp_pinned_reset(pool);
	gcp_caches_lock(pool);
	gcp_caches_drain(pool, &chain); /* they end with their segments */
	GCP_STORE(pool->flush_at, 0);
	gcp_heap_reset(&pool->common);
	pool->maintenance.epoch = 0;
	TAILQ_FOREACH (heap, &pool->private_heaps, link) {
		gcp_lane_leave(heap);
		gcp_heap_reset(heap);
	}
	struct gcp_stats *stats = &pool->stats;
	struct gcp_gauge *of_blocks[] = {&stats->allocation, &stats->requested_bytes,
					 &stats->allocated_bytes, &stats->async_bytes,
					 &stats->active_bytes};
	for (size_t i = 0; i < sizeof(of_blocks) / sizeof(of_blocks[0]); i++)
		gcp_gauge_add(of_blocks[i], -(int64_t)of_blocks[i]->current);
	gcp_caches_unlock(pool);
	gcp_mutex_unlock(&pool->lock);
}

void gcp_pool_reset(struct gcp_pools *pools, void *ctx)
{
	struct gcp_pool *pool;

	/* Held to the end: until then no thread may revive the pool, or carry
	 * blocks from a cache to it. */
	GCP_LOCKED(&pools->vmm_lock);
	gcp_mutex_lock(&pools->registry_lock);
	while ((pool = pool_of(pools, ctx, true)))
		pool_reset(pool);
	gcp_mutex_unlock(&pools->registry_lock);
	for (pool = pools->first; pool; pool = pool->next) {
		gcp_vmm_release_orphans(pool);
		gcp_lanes_release_unused(pool);
	}
}

/* Fences of a context that may be ending must not be touched. Most calls that leave it
 * alive are over in a moment: worth a short wait, but no more, for its work may wait
 * for this context's. If it stays, gcp_timeline_reattach follows. */
void gcp_pools_context_joined(struct gcp_pools *pools, void *ctx,
			      int (*order)(void *ctx, void *fence))
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!gcp_timeline_is_any_ordered(pool) || !gcp_pool_pin_wait(pool))
			continue;
		if (gcp_timeline_join(pool, ctx, order) != 0) /* an error shows again */
			(void)gcp_pool_complete_by_free(pool, false);
		gcp_pool_unpin(pool);
	}
}

/* --- captures ------------------------------------------------------------- */

void gcp_pools_fences_hold(struct gcp_pools *pools)
{
	GCP_LOCKED(&pools->fence_lock);
	atomic_fetch_add(&pools->holds, 1);
}

void gcp_pools_fences_release(struct gcp_pools *pools)
{
	GCP_LOCKED(&pools->fence_lock);
	assert(atomic_load(&pools->holds) > 0);
	atomic_fetch_sub(&pools->holds, 1);
}

/* --- asking about addresses ----------------------------------------------- */

uint64_t gcp_pool_life(const struct gcp_pool *pool)
{
	return atomic_load(&pool->timeline.generation);
}

bool gcp_pool_is_fenced(const struct gcp_pool *pool)
{
	return !GCP_LOAD(pool->timeline.refused);
}

bool gcp_pool_is_mapped(const struct gcp_pool *pool)
{
	return pool->vmm;
}

bool gcp_pool_maps(const struct gcp_pool *pool)
{
	return !gcp_pool_is_ordinary(pool);
}

/* The block that holds `addr`. */
static struct gcp_block *pool_block_at(struct gcp_pool *pool, gcp_addr addr)
{
	struct gcp_segment key = {.addr = addr + 1}; /* the last one before this */
	struct gcp_segment *segment = gcp_segments_below(&pool->segments, &key);
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	if (!segment || addr >= segment->addr + segment->size)
		return NULL;
	block = gcp_map_find_below(pool->pools->map, addr, segment->addr);
	return block && addr < block->addr + block->size ? block : NULL;
}

/* An odd number: a product with it keeps apart what it is multiplied with. */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* An address is given out again only after the epoch in which it was freed, and freed
 * again in a later one; what is mapped there anew begins with a later one, and other
 * memory of the driver is another segment. (Inside one capture it is the same
 * allocation to all others.) But to its own stream it is given at once: so
 * stream-ordered allocations are counted. The highest bit tells it from the driver's
 * numbers, which count from 1. */
uint64_t gcp_block_id(const struct gcp_block *block)
{
	if (block->async)
		return UINT64_C(3) << 62 |
		       __atomic_load_n(&block->serial, __ATOMIC_RELAXED);
	return UINT64_C(1) << 63 |
	       ((block->segment->number * GOLDEN + block->epoch) * GOLDEN +
		block->addr) >>
		   1;
}

static void info_fill(struct gcp_block *block, struct gcp_block_info *info)
{
	struct gcp_pool *pool = block->segment->pool;
	struct gcp_heap *heap = atomic_load(&block->segment->heap);

	*info = (struct gcp_block_info){
	    .addr = block->addr,
	    .requested = block->requested,
	    .size = block->size,
	    .segment_addr = block->segment->addr,
	    .segment_size = block->segment->size,
	    .mapped = block->segment->chunks != NULL,
	    .async = block->async,
	    .ctx = pool->ctx,
	    .device = pool->device,
	    .id = gcp_block_id(block),
	    .pool = pool,
	    .heap = heap != &pool->common || block->opens > 0 ? heap : NULL,
	};
}

int gcp_pools_find(struct gcp_pools *pools, gcp_addr addr,
		   struct gcp_block_info *ret_info)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		struct gcp_block *block;

		if (!pool->live)
			continue;
		gcp_mutex_lock(&pool->lock);
		block = pool_block_at(pool, addr);
		bool used = block && gcp_block_is_used(block);
		if (used)
			info_fill(block, ret_info);
		gcp_mutex_unlock(&pool->lock);
		if (block)
			return used ? 0 : -EINVAL;
	}
	return -ENOENT;
}

int gcp_pools_held(struct gcp_pools *pools, gcp_addr addr,
		   struct gcp_block_info *ret_info)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	if (!block)
		return -ENOENT;
	if (!gcp_block_is_used(block))
		return -EINVAL;
	info_fill(block, ret_info);
	return 0;
}

/* Waits for all work of every context, or, where that cannot be told, of those that
 * have a pool. The errors of contexts other than the block's are not the caller's. */
static int complete_everywhere(struct gcp_pool *own)
{
	struct gcp_pools *pools = own->pools;
	const struct gcp_driver *driver = &pools->driver;
	int result = -EBUSY;
	uint64_t moment;

	gcp_mutex_lock(&pools->fence_lock);
	if (driver->foreign_everywhere && !gcp_timeline_is_held(&own->timeline))
		result = driver->foreign_everywhere(&moment);
	gcp_mutex_unlock(&pools->fence_lock);
	if (result == 0)
		result = driver->foreign_wait(NULL, moment, false);
	for (struct gcp_pool *pool = pools->first; result != 0 && pool;
	     pool = pool->next) {
		if (pool == own || !gcp_pool_pin_wait(pool))
			continue;
		(void)gcp_pool_complete(pool, gcp_timeline_stamp(pool));
		gcp_pool_unpin(pool);
	}
	return gcp_pool_complete(own, gcp_timeline_stamp(own));
}

int gcp_pools_wait_before_free(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	if (!block || !gcp_block_is_used(block))
		return -ENOENT;
	struct gcp_pool *pool = block->segment->pool;
	return gcp_timeline_complete(pool, gcp_timeline_stamp(pool), false);
}

int gcp_pools_complete(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	if (!block || !gcp_block_is_used(block))
		return -ENOENT;
	struct gcp_segment *segment = block->segment;
	struct gcp_pool *pool = segment->pool;
	/* Graphs may have run on memory of a graph pool since it was freed, in any
	 * context. The heap itself may go at any time, with its graphs. */
	if (atomic_load(&segment->heap) != &pool->common)
		return complete_everywhere(pool);
	return gcp_pool_complete(pool, block->epoch > segment->private_epoch
					   ? block->epoch
					   : segment->private_epoch);
}
