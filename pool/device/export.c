/* SPDX-License-Identifier: MIT */
/*
 * export.c - blocks that other processes may have open.
 *
 * Such a block is EXPORTED instead of USED: the free that it is freed by finds that out
 * where it would have found a free block, so frees of other blocks pay nothing. Nothing
 * takes it: what is EXPORTED is in no list, no tree and no cache, its chunks are not
 * unused, and what it shares a chunk with does not move either. interpose/ knows which
 * processes have it open, and says when that has ended. What the program frees before
 * is LENT: as free as any freed block to all that asks, and as taken as an EXPORTED
 * one.
 *
 * Called with no lock of the room held.
 */
#include "../reclaim/reclaim.h"

bool gcp_pools_is_exported(struct gcp_pools *pools, gcp_addr addr)
{
	const struct gcp_block *block = gcp_map_find(pools->map, addr);

	return block && atomic_load(&block->state) == GCP_BLOCK_EXPORTED;
}

int gcp_pools_export(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t used = GCP_BLOCK_USED;

	if (!block)
		return -ENOENT;
	if (atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_EXPORTED))
		return 0;
	return used == GCP_BLOCK_EXPORTED ? -EALREADY : -ENOENT;
}

int gcp_pools_unexport(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t exported = GCP_BLOCK_EXPORTED;

	if (!block ||
	    !atomic_compare_exchange_strong(&block->state, &exported, GCP_BLOCK_USED))
		return -ENOENT;
	return 0;
}

/* --- lent ------------------------------------------------------------------------- */

static struct gcp_block *lent_at(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	return block && atomic_load(&block->state) == GCP_BLOCK_LENT ? block : NULL;
}

bool gcp_pools_is_lent(struct gcp_pools *pools, gcp_addr addr)
{
	return lent_at(pools, addr) != NULL;
}

/* Its heap counts it as lent, or as the program's. pool->lock is held. */
static void lent_add(struct gcp_block *block, bool lent)
{
	gcp_assert_held(GCP_RANK_POOL);
	struct gcp_heap *heap = atomic_load(&block->segment->heap);

	assert(lent || heap->lent_bytes >= block->size);
	heap->lent_bytes += lent ? block->size : -block->size;
	if (heap->private) {
		heap->used_bytes += lent ? -block->size : block->size;
		heap->used_blocks += lent ? -UINT64_C(1) : 1;
	}
}

static void lent_count(struct gcp_pool *pool, const struct gcp_block *block)
{
	gcp_stats_delta_count(&pool->delta, -1, block->requested, block->size);
	if (block->async)
		gcp_stats_delta_async(&pool->delta, -(int64_t)block->requested);
	gcp_stats_merge(pool, &pool->delta);
}

int gcp_pools_lend(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t exported = GCP_BLOCK_EXPORTED;
	struct gcp_pool *pool;
	bool lent;

	/* Such a block stays in its segment. */
	if (!block || atomic_load(&block->state) != GCP_BLOCK_EXPORTED)
		return -ENOENT;
	pool = block->segment->pool;
	gcp_mutex_lock(&pool->lock);
	lent = atomic_compare_exchange_strong(&block->state, &exported, GCP_BLOCK_LENT);
	if (lent) {
		lent_add(block, true);
		lent_count(pool, block);
	}
	gcp_mutex_unlock(&pool->lock);
	return lent ? 0 : -ENOENT;
}

/* The free counts it once more: that is undone, and raises no peak. */
static void count_undo(struct gcp_pool *pool, int64_t requested, int64_t size,
		       bool async)
{
	struct gcp_stats_delta undo = {
	    .net = {1, requested, size, async ? requested : 0},
	};

	gcp_mutex_lock(&pool->lock);
	gcp_stats_merge(pool, &undo);
	gcp_mutex_unlock(&pool->lock);
}

/* The pool of the block is pinned. */
static int take_back(struct gcp_pool *pool, struct gcp_block *block)
{
	uint8_t lent = GCP_BLOCK_LENT;
	int64_t requested, size;
	bool async, back;
	int result;

	gcp_mutex_lock(&pool->lock);
	requested = (int64_t)block->requested;
	size = (int64_t)block->size;
	async = block->async;
	back = atomic_compare_exchange_strong(&block->state, &lent, GCP_BLOCK_USED);
	if (back)
		lent_add(block, false);
	gcp_mutex_unlock(&pool->lock);
	if (!back)
		return -ENOENT;
	result = gcp_pools_free_async(pool->pools, block->addr, 0);
	count_undo(pool, requested, size, async);
	return result;
}

int gcp_pools_take_back(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = lent_at(pools, addr);
	struct gcp_pool *pool = block ? block->segment->pool : NULL;
	int result = -ENOENT;

	if (!pool)
		return -ENOENT;
	if (!gcp_pool_pin(pool))
		return -EBUSY;
	if (lent_at(pools, addr) == block && block->segment->pool == pool)
		result = take_back(pool, block);
	gcp_pool_unpin(pool);
	return result;
}

/* --- work and handles ---------------------------------------------------------- */

int gcp_pool_finish(struct gcp_pool *pool)
{
	int result = gcp_timeline_complete_own(pool, gcp_timeline_stamp(pool));

	if (result < 0 && result != -EAGAIN)
		result = gcp_pool_complete_own_by_free(pool);
	/* What is left is covered by the epoch that the block is freed in. */
	return result == -EAGAIN ? 0 : result;
}

int gcp_pools_finish(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	if (!block || atomic_load(&block->state) != GCP_BLOCK_EXPORTED)
		return -ENOENT;
	return gcp_pool_finish(block->segment->pool);
}

int gcp_pools_for_each_handle(struct gcp_pools *pools, gcp_addr addr, gcp_addr from,
			      int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					  uint64_t bytes),
			      void *arg)
{
	const struct gcp_block *block;
	int result = -ENOENT;

	/* While it is held handles come and go nowhere, whatever happens to contexts.
	 */
	gcp_mutex_lock(&pools->vmm_lock);
	block = gcp_map_find(pools->map, addr);
	if (gcp_pools_is_exported(pools, addr) || gcp_pools_is_lent(pools, addr))
		result = gcp_vmm_for_each_handle(block, from, each, arg);
	gcp_mutex_unlock(&pools->vmm_lock);
	return result;
}
