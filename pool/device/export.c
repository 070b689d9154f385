/* SPDX-License-Identifier: MIT */
/*
 * export.c - blocks that other processes may have open.
 *
 * Such a block is EXPORTED instead of USED: the free that it is freed by finds that out
 * where it would have found a free block, so frees of other blocks pay nothing. Nothing
 * takes it: what is EXPORTED is in no list, no tree and no cache, its chunks are not
 * unused, and what it shares a chunk with does not move either. interpose/ says when
 * another process opens and closes it. What the program frees while it is open is LENT:
 * as free as any freed block to all that asks, and as taken as an EXPORTED one.
 *
 * Called with no lock of the room held.
 */
#include "../reclaim/reclaim.h"

static bool is_shared(const struct gcp_block *block)
{
	uint8_t state = block ? atomic_load(&block->state) : GCP_BLOCK_RELEASED;

	return state == GCP_BLOCK_EXPORTED || state == GCP_BLOCK_LENT;
}

struct gcp_pool *gcp_pools_exporter(struct gcp_pools *pools, gcp_addr addr)
{
	const struct gcp_block *block = gcp_map_find(pools->map, addr);

	return block && atomic_load(&block->state) == GCP_BLOCK_EXPORTED
		   ? block->segment->pool
		   : NULL;
}

bool gcp_pools_export(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t state = GCP_BLOCK_USED;

	while (block && (state == GCP_BLOCK_USED || state == GCP_BLOCK_CAPTURED))
		if (atomic_compare_exchange_strong(&block->state, &state,
						   GCP_BLOCK_EXPORTED))
			return true;
	return block && state == GCP_BLOCK_EXPORTED;
}

/* Returns an EXPORTED or LENT block with pool->lock held, or NULL with no lock held.
 * Such a block stays in its segment. */
static struct gcp_block *shared_lock(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	struct gcp_pool *pool;

	if (!is_shared(block))
		return NULL;
	pool = block->segment->pool;
	gcp_mutex_lock(&pool->lock);
	/* Until then the descriptor may have become another block's. */
	if (gcp_map_find(pools->map, addr) == block && is_shared(block) &&
	    block->segment->pool == pool)
		return block;
	gcp_mutex_unlock(&pool->lock);
	return NULL;
}

uint64_t gcp_pools_open(struct gcp_pools *pools, gcp_addr addr, uint64_t id)
{
	struct gcp_block *block = shared_lock(pools, addr);
	uint64_t bytes = 0;

	if (!block)
		return 0;
	if (atomic_load(&block->state) == GCP_BLOCK_EXPORTED &&
	    gcp_block_id(block) == id && block->opens < UINT16_MAX) {
		block->opens++;
		bytes = block->requested;
	}
	gcp_mutex_unlock(&block->segment->pool->lock);
	return bytes;
}

/* --- lent ------------------------------------------------------------------------- */

int gcp_pools_unexport(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = shared_lock(pools, addr);
	int result = -ENOENT;

	if (!block)
		return -ENOENT;
	struct gcp_pool *pool = block->segment->pool;
	if (atomic_load(&block->state) == GCP_BLOCK_EXPORTED)
		result = block->opens > 0;
	if (result == 0)
		gcp_block_set_state(block, GCP_BLOCK_USED);
	if (result == 1) {
		gcp_block_set_state(block, GCP_BLOCK_CACHED);
		gcp_private_free(pool, block);
	}
	gcp_mutex_unlock(&pool->lock);
	return result;
}

void gcp_pools_close(struct gcp_pools *pools, gcp_addr addr, uint64_t id)
{
	struct gcp_block *block = shared_lock(pools, addr);
	struct gcp_pool *pool;

	if (!block)
		return;
	pool = block->segment->pool;
	if (block->opens > 0 && gcp_block_id(block) == id)
		gcp_block_close(block);
	gcp_mutex_unlock(&pool->lock);
}

/* --- work and handles ---------------------------------------------------------- */

int gcp_pool_finish(struct gcp_pool *pool)
{
	int result = gcp_timeline_complete(pool, gcp_timeline_stamp(pool), true);

	if (result < 0 && result != -EAGAIN)
		result = gcp_pool_complete_by_free(pool, true);
	/* What is left is covered by the epoch that the block is freed in. */
	return result == -EAGAIN ? 0 : result;
}

int gcp_pools_for_each_handle(struct gcp_pools *pools, gcp_addr addr, gcp_addr from,
			      int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					  uint64_t bytes),
			      void *arg)
{
	/* While it is held handles come and go nowhere, whatever happens to contexts.
	 */
	GCP_LOCKED(&pools->vmm_lock);
	const struct gcp_block *block = gcp_map_find(pools->map, addr);

	return is_shared(block) ? gcp_vmm_for_each_handle(block, from, each, arg)
				: -ENOENT;
}
