/* SPDX-License-Identifier: MIT */
/*
 * pinned_stats.c - what is counted of pinned memory.
 *
 * What the program holds is counted at once, in atomic gauges, so that its peaks are
 * exact with any number of threads. Totals are sums over buckets, each exact under
 * its bucket's lock. A reset keeps the totals of that moment and subtracts them.
 */
#include "pinned_types.h"

void gcp_pinned_time_add(struct gcp_pinned *pinned, struct gcp_pinned_time *time,
			 uint64_t start_ns)
{
	uint64_t ns = pinned->pools->driver.clock_ns() - start_ns;

	gcp_assert_driver_call();
	gcp_spin_lock(&pinned->time_lock);
	if (time->count == 0 || ns < time->min_ns)
		time->min_ns = ns;
	if (ns > time->max_ns)
		time->max_ns = ns;
	time->count++;
	time->total_ns += ns;
	gcp_spin_unlock(&pinned->time_lock);
}

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
	ret_stats->allocations.allocated = pinned->added;
	ret_stats->allocations.freed = pinned->gone;
	ret_stats->allocated_bytes.allocated = pinned->added_bytes;
	ret_stats->allocated_bytes.freed = pinned->gone_bytes;
	ret_stats->private_bytes.allocated = pinned->set_added_bytes;
	ret_stats->private_bytes.freed = pinned->set_released_bytes;
	gcp_spin_lock(&pinned->time_lock);
#define GCP_X(name) ret_stats->name = pinned->name;
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&pinned->time_lock);
}

int gcp_pinned_stats(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return -ENOSYS;
	totals(pools, ret_stats);
	gcp_mutex_lock(&pinned->lock);
#define GCP_X(name, meaning)                                                           \
	ret_stats->name.current = pinned->name.current;                                \
	ret_stats->name.peak = pinned->name.peak;                                      \
	ret_stats->name.allocated -= pinned->base.name.allocated;                      \
	ret_stats->name.freed -= pinned->base.name.freed;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) ret_stats->name -= pinned->base.name;
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
	gcp_mutex_unlock(&pinned->lock);
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

void gcp_pinned_reset_accumulated(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct gcp_pinned_stats base;

	if (!pinned)
		return;
	totals(pools, &base);
	gcp_mutex_lock(&pinned->lock);
	pinned->base = base;
	gcp_mutex_unlock(&pinned->lock);
	gcp_spin_lock(&pinned->time_lock);
#define GCP_X(name) pinned->name = (struct gcp_pinned_time){0};
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&pinned->time_lock);
}
