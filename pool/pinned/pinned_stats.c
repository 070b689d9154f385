/* SPDX-License-Identifier: MIT */
/*
 * pinned_stats.c - what is counted of pinned memory.
 *
 * What the program holds is counted at once, in atomic gauges, so that its peaks are
 * exact with any number of threads. Totals are sums over buckets, each exact under
 * its bucket's lock. A reset keeps the totals of that moment and subtracts them.
 */
#include "pinned_types.h"

static uint32_t power_below(uint64_t bytes)
{
	return 63 - (uint32_t)__builtin_clzll(bytes);
}

static void bucket_add(struct gcp_pinned_bucket *bucket, void *arg)
{
	struct gcp_pinned_stats *sum = arg;
	uint32_t power = power_below(bucket->size);

	gcp_spin_lock(&bucket->lock);
	sum->active_requests.allocated += bucket->taken;
	sum->active_requests.freed += bucket->given;
	sum->active_bytes.allocated += bucket->taken * bucket->size;
	sum->active_bytes.freed += bucket->given * bucket->size;
	sum->requested_bytes.allocated += bucket->taken_bytes;
	sum->requested_bytes.freed += bucket->given_bytes;
	sum->bucket_allocation[power] += bucket->count;
	sum->bucket_active[power] += bucket->taken - bucket->given;
	gcp_spin_unlock(&bucket->lock);
}

static void gauge_total(struct gcp_gauge *total, struct gcp_pinned_gauge *gauge)
{
	uint64_t current = atomic_load(&gauge->current);

	total->allocated = atomic_load(&gauge->allocated);
	total->freed = total->allocated > current ? total->allocated - current : 0;
}

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

/* All but what a reset has taken off. */
static void totals(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	*ret_stats = (struct gcp_pinned_stats){
	    .misses = pinned->misses,
	    .alloc_retries = pinned->alloc_retries,
	    .ooms = pinned->ooms,
	    .epochs = pinned->timeline.closed,
	    .waits = pinned->waits,
	    .trims = pinned->trims,
	    .deferred_frees = pinned->deferred_frees,
	};
	gcp_pinned_buckets_for_each(pools, bucket_add, ret_stats);
	ret_stats->hits = ret_stats->active_requests.allocated - ret_stats->misses;
	gauge_total(&ret_stats->allocations, &pinned->allocations);
	gauge_total(&ret_stats->allocated_bytes, &pinned->allocated_bytes);
	gauge_total(&ret_stats->private_bytes, &pinned->private_bytes);
#define GCP_X(name) time_read(&ret_stats->name, pinned->calls[GCP_PINNED_CALL_##name]);
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
}

int gcp_pinned_stats(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return -ENOSYS;
	totals(pools, ret_stats);
#define GCP_X(name, meaning)                                                           \
	ret_stats->name.current = pinned->name.current;                                \
	ret_stats->name.peak = pinned->name.peak;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
	return 0;
}

void gcp_pinned_reset_peaks(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return;
#define GCP_X(name, meaning)                                                           \
	atomic_store(&pinned->name.peak, atomic_load(&pinned->name.current));
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
}
