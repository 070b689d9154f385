/* SPDX-License-Identifier: MIT */
/*
 * lane_work.c - what capture/launch.c and gcpool_work ask of a pool: they wait for
 * work, and count launches. The fences are those of frees (fence.c, context_fence.c).
 */
#include "../reclaim/reclaim.h"

uint64_t gcp_pool_work_now(struct gcp_pool *pool)
{
	return gcp_timeline_stamp(pool);
}

int gcp_pool_work_wait(struct gcp_pool *pool, uint64_t moment)
{
	int result;

	if (!gcp_pool_pin_wait(pool))
		return 0;
	result = gcp_pool_complete(pool, moment);
	gcp_pool_unpin(pool);
	return result;
}

int gcp_pool_work_ready(struct gcp_pool *pool, uint64_t moment)
{
	assert(atomic_load(&pool->pins) > 0);
	if (gcp_pool_work_is_done(pool, moment))
		return 0;
	return gcp_timeline_make_ready(pool, moment);
}

void gcp_pool_work_is_held_back(struct gcp_pool *pool)
{
	atomic_store(&pool->held_back, gcp_pool_work_now(pool));
}

void *gcp_pool_context(const struct gcp_pool *pool)
{
	return pool->ctx;
}

int gcp_pool_device(const struct gcp_pool *pool)
{
	return pool->device;
}

bool gcp_pool_is_only(const struct gcp_pool *pool)
{
	const struct gcp_pool *other = pool->pools->first;

	for (; other; other = other->next)
		if (other != pool && other->live)
			return false;
	return pool->live;
}

bool gcp_pools_captures_hold(struct gcp_pools *pools)
{
	gcp_mutex_lock(&pools->fence_lock);
	if (atomic_load(&pools->holds) == 0)
		return true;
	gcp_mutex_unlock(&pools->fence_lock);
	return false;
}

void gcp_pools_captures_release(struct gcp_pools *pools)
{
	gcp_mutex_unlock(&pools->fence_lock);
}

void gcp_pool_count_graph(struct gcp_pool *pool, bool moves)
{
	GCP_LOCKED(&pool->lock);
	*(moves ? &pool->stats.graph_moves : &pool->stats.graph_waits) += 1;
}

/* Of each launch: a load and a store. */
void gcp_pool_count_graph_launch(struct gcp_pool *pool)
{
	uint64_t launches =
	    atomic_load_explicit(&pool->graph_launches, memory_order_relaxed);

	atomic_store_explicit(&pool->graph_launches, launches + 1,
			      memory_order_relaxed);
}
