/* SPDX-License-Identifier: MIT */
/*
 * pinned_stats.c - what is counted of pinned memory. All is counted at once, under
 * pinned->lock or with the calls of the driver, so it is exact, peaks too.
 */
#include "pinned_types.h"

static void time_read(struct gcp_pinned_time *time, _Atomic uint64_t cost[GCP_COSTS])
{
	*time = (struct gcp_pinned_time){
	    .count = atomic_load(&cost[GCP_COST_COUNT]),
	    .total_ns = atomic_load(&cost[GCP_COST_NS]),
	    .max_ns = atomic_load(&cost[GCP_COST_MAX_NS]),
	};
	if (time->count > 0)
		time->min_ns = UINT64_MAX - atomic_load(&cost[GCP_COST_MIN_NS]);
}

int gcp_pinned_stats(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return -ENOSYS;
	gcp_mutex_lock(&pinned->lock);
	*ret_stats = pinned->stats;
	gcp_mutex_unlock(&pinned->lock);
#define PINNED_CALLS_ROW(name)                                                         \
	time_read(&ret_stats->name, pinned->calls[GCP_PINNED_CALL_##name]);
	GCP_PINNED_CALLS(PINNED_CALLS_ROW)
	ret_stats->hits = ret_stats->active_requests.allocated - ret_stats->misses;
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		ret_stats->epochs += atomic_load(&pool->timeline.closed);
	ret_stats->trims = ret_stats->host_free.count;
	return 0;
}

void gcp_pinned_reset_peaks(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return;
	GCP_LOCKED(&pinned->lock);
#define PINNED_GAUGES_ROW(name, meaning)                                               \
	pinned->stats.name.peak = pinned->stats.name.current;
	GCP_PINNED_GAUGES(PINNED_GAUGES_ROW)
}
