/* SPDX-License-Identifier: MIT */
/*
 * stats_delta.c - counting.
 *
 * A pool's gauges are exact under pool->lock. What threads do in their caches
 * they count for themselves (struct gcp_stats_delta) and hand over when it has
 * changed by GCP_STATS_LAG bytes, or when the statistics are read. So current values
 * are exact whenever they are read, and so is a peak with one thread; with several
 * it may be off by at most that much for each.
 */
#include "../pool_types.h"

void gcp_gauge_add(struct gcp_gauge *gauge, int64_t change)
{
	gauge->current += (uint64_t)change;
	if (change > 0)
		gauge->allocated += (uint64_t)change;
	else
		gauge->freed += (uint64_t)-change;
	if ((int64_t)gauge->current > (int64_t)gauge->peak)
		gauge->peak = gauge->current;
}

void gcp_stats_delta_raise(struct gcp_stats_delta *delta)
{
	for (int i = 0; i < GCP_STATS_LEVELS; i++)
		if (delta->high[i] < delta->net[i])
			delta->high[i] = delta->net[i];
}

void gcp_stats_delta_count(struct gcp_stats_delta *delta, uint64_t requested,
			   uint64_t size)
{
	if (gcp_stats_delta_alloc(delta, requested, size))
		gcp_stats_delta_raise(delta);
}

/* `current` may go below zero for a moment: a thread hands its frees over
 * before another one its allocations. The sum is right when all have. */
static bool gauge_take(struct gcp_gauge *gauge, const struct gcp_stats_delta *delta,
		       enum gcp_stats_level level)
{
	int64_t high = (int64_t)gauge->current + delta->high[level];
	bool raised = high > (int64_t)gauge->peak;

	if (raised)
		gauge->peak = (uint64_t)high;
	gauge->current += (uint64_t)delta->net[level];
	gauge->allocated += delta->up[level];
	gauge->freed += delta->up[level] - (uint64_t)delta->net[level];
	return raised;
}

void gcp_stats_merge(struct gcp_pool *pool, struct gcp_stats_delta *delta)
{
	struct gcp_stats *stats = &pool->stats;

	gcp_assert_held(GCP_RANK_POOL);
	gauge_take(&stats->allocation, delta, GCP_STATS_LEVEL_BLOCKS);
	gauge_take(&stats->requested_bytes, delta, GCP_STATS_LEVEL_REQUESTED);
	if (gauge_take(&stats->allocated_bytes, delta, GCP_STATS_LEVEL_ALLOCATED))
		stats->reserved_at_peak_bytes = stats->reserved_bytes.current;
	gauge_take(&stats->async_bytes, delta, GCP_STATS_LEVEL_ASYNC);
	stats->hits += delta->hits;
	memset(delta, 0, sizeof(*delta));
}
