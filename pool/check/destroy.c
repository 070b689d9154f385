/* SPDX-License-Identifier: MIT */
/*
 * destroy.c - takes pools down, for tests: see check.h. The library itself never
 * destroys its pools.
 */
#include "../reclaim/reclaim.h"
#include "../pinned/pinned_types.h"
#include "check.h"

#include <stdlib.h>
#include <sys/mman.h>

static void timeline_destroy(struct gcp_timeline *timeline,
			     void (*destroy)(void *handle))
{
	gcp_mutex_lock(&timeline->pools->fence_lock);
	for (uint32_t i = 0; i < timeline->count; i++)
		destroy(gcp_timeline_at(timeline, i)->fence->handle);
	for (struct gcp_fence *fence = timeline->spare; fence; fence = fence->next)
		destroy(fence->handle);
	gcp_mutex_unlock(&timeline->pools->fence_lock);
}

/* Leaves are named in pages that were written alone. */
static void map_destroy(struct gcp_map *map)
{
	enum { SLOTS = GCP_PAGE / sizeof(map->leaves[0]) };
	unsigned char written[sizeof(*map) / GCP_PAGE] = {0};

	(void)mincore(map, sizeof(*map), written);
	for (size_t page = 0; page < sizeof(written); page++)
		for (size_t i = 0; written[page] && i < SLOTS; i++)
			if (map->leaves[page * SLOTS + i])
				munmap(map->leaves[page * SLOTS + i],
				       sizeof(struct gcp_map_leaf));
	munmap(map, sizeof(*map));
}

static void pinned_blocks_free(struct gcp_pool *pool)
{
	struct gcp_pinned_block *block;

	for (struct gcp_pinned_bucket *bucket = pool->pinned_buckets; bucket;
	     bucket = bucket->older)
		TAILQ_FOREACH (block, &bucket->blocks, all)
			if (pool->live)
				(void)pool->pools->driver.host_free(pool->ctx,
								    block->p);
}

static void pinned_destroy(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return;
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		pinned_blocks_free(pool);
	map_destroy(pinned->map);
	munmap(pinned, sizeof(*pinned));
	pools->pinned = NULL;
}

static void pool_destroy(struct gcp_pools *pools, struct gcp_pool *pool)
{
	struct gcp_segment *segment;

	while ((segment = gcp_segments_first(&pool->segments))) {
		gcp_segments_remove(&pool->segments, segment);
		if (segment->chunks)
			TAILQ_INSERT_TAIL(&pool->orphans, segment, link);
		else if (pool->live)
			(void)pools->driver.mem_free(pool->ctx, segment->addr);
	}
	gcp_mutex_lock(&pools->vmm_lock);
	gcp_vmm_release_orphans(pool);
	gcp_mutex_unlock(&pools->vmm_lock);
	timeline_destroy(&pool->timeline, pools->driver.fence_discard);
	munmap(pool, sizeof(*pool) + pools->classes.count * sizeof(*pool->depots));
}

void gcp_pools_destroy(struct gcp_pools *pools)
{
	struct gcp_pool *pool, *next;
	struct gcp_cache *cache;

	if (!pools)
		return;
	while ((cache = TAILQ_FIRST(&pools->caches))) {
		TAILQ_REMOVE(&pools->caches, cache, link);
		free(cache);
	}
	pinned_destroy(pools);
	for (pool = pools->first; pool; pool = next) {
		next = pool->next;
		pool_destroy(pools, pool);
	}
	free(pools->classes.of_units);
	map_destroy(pools->map);
	munmap(pools, sizeof(*pools));
}
