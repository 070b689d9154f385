/* SPDX-License-Identifier: MIT */
/*
 * stats.c - what the program is told: the counts of all threads, gathered
 * (stats_delta.c).
 */
#include "reclaim.h"

void gcp_pool_gather(struct gcp_pool *pool)
{
	GCP_LOCKED(&pool->pools->registry_lock);
	gcp_caches_lock(pool);
	gcp_caches_unlock(pool);
	gcp_mutex_unlock(&pool->lock);
}

/* A thread may hand over a free while the allocation, another thread's, is still in a
 * delta that was gathered before it: below zero for a moment. */
static uint64_t current_of(const struct gcp_gauge *gauge)
{
	return (int64_t)gauge->current > 0 ? gauge->current : 0;
}

static void stats_add_pool(struct gcp_stats *sum, struct gcp_pool *pool)
{
	struct gcp_stats *stats = &pool->stats;
	uint64_t largest;

	gcp_pool_gather(pool);
	gcp_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
#define GCP_X(name, meaning)                                                           \
	sum->name.current += current_of(&stats->name);                                 \
	sum->name.peak += stats->name.peak;                                            \
	sum->name.allocated += stats->name.allocated;                                  \
	sum->name.freed += stats->name.freed;
	GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) sum->name += stats->name;
	GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name)                                                                    \
	sum->name.count += atomic_load(&pool->calls[GCP_CALL_##name][GCP_COST_COUNT]); \
	sum->name.ns += atomic_load(&pool->calls[GCP_CALL_##name][GCP_COST_NS]);
	GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
	sum->epochs += atomic_load(&pool->timeline.closed);
	sum->graph_launches += atomic_load(&pool->graph_launches);
	sum->reserved_at_peak_bytes += stats->reserved_at_peak_bytes;
	assert(atomic_load(&pool->vmm_mapped) <= stats->reserved_bytes.current);
	sum->mapped_bytes += atomic_load(&pool->vmm_mapped);
	largest = gcp_tree_largest(&pool->common);
	gcp_mutex_unlock(&pool->lock);
	if (sum->largest_free_bytes < largest)
		sum->largest_free_bytes = largest;
}

int gcp_pools_stats(struct gcp_pools *pools, int device, struct gcp_stats *ret_stats)
{
	struct gcp_stats sum = {0};
	bool found = false;

	/* Pools of contexts that are gone keep their totals. */
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (pool->device == device) {
			stats_add_pool(&sum, pool);
			found = true;
		}
	}
	if (!found)
		return -ENOENT;
	sum.fences = sum.fence_record.count;
	sum.barriers = sum.fence_order.count;
	*ret_stats = sum;
	return 0;
}

void gcp_pools_reset_peaks(struct gcp_pools *pools, int device, bool async_alone)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		struct gcp_stats *stats = &pool->stats;

		if (pool->device != device)
			continue;
		gcp_pool_gather(pool);
		gcp_mutex_lock(&pool->lock);
		if (async_alone) {
			stats->async_bytes.peak = stats->async_bytes.current;
		} else {
#define GCP_X(name, meaning) stats->name.peak = stats->name.current;
			GCP_GAUGES(GCP_X)
#undef GCP_X
			stats->reserved_at_peak_bytes = stats->reserved_bytes.current;
		}
		gcp_mutex_unlock(&pool->lock);
	}
}

int gcp_pools_device_max(struct gcp_pools *pools)
{
	int max = -1;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->device > max)
			max = pool->device;
	return max;
}
