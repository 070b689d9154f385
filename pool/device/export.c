/* SPDX-License-Identifier: MIT */
/*
 * export.c - blocks that other processes may have open.
 *
 * Such a block is EXPORTED instead of USED: the free that it is freed by finds that out
 * where it would have found a free block, so frees of other blocks pay nothing. Nothing
 * takes it: what is EXPORTED is in no list, no tree and no cache, its chunks are not
 * unused, and what it shares a chunk with does not move either. interpose/ knows which
 * processes have it open, and says when that has ended.
 *
 * Called with no lock of the room held.
 */
#include "../pool_types.h"
#include "../space/vmm.h"

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

int gcp_pools_finish(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	struct gcp_pool *pool;
	int result;

	if (!block || atomic_load(&block->state) != GCP_BLOCK_EXPORTED)
		return -ENOENT;
	pool = block->segment->pool;
	result = gcp_timeline_complete_own(pool, gcp_timeline_stamp(pool));
	if (result == -EAGAIN) /* the epoch that the block is freed in covers it */
		return 0;
	return result == -EBUSY ? gcp_pool_complete_by_free(pool) : result;
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
	if (block && atomic_load(&block->state) == GCP_BLOCK_EXPORTED)
		result = gcp_vmm_for_each_handle(block, from, each, arg);
	gcp_mutex_unlock(&pools->vmm_lock);
	return result;
}
