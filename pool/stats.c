/* SPDX-License-Identifier: MIT */
/*
 * stats.c - counting.
 *
 * A pool's gauges are exact under pool->lock. What threads do in their caches
 * they count for themselves (struct gcp_stats_delta) and hand over when it has
 * changed by GCP_STATS_LAG bytes, or when somebody asks. So current values are
 * exact whenever they are read, and so is a peak with one thread; with several
 * it may be off by at most that much for each.
 */
#include "cache.h"

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

void gcp_stats_delta_count(struct gcp_stats_delta *delta, int sign, uint64_t requested,
			   uint64_t size)
{
	if (sign < 0)
		gcp_stats_delta_free(delta, requested, size);
	else if (gcp_stats_delta_alloc(delta, requested, size))
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

	gauge_take(&stats->allocation, delta, GCP_STATS_LEVEL_BLOCKS);
	gauge_take(&stats->requested_bytes, delta, GCP_STATS_LEVEL_REQUESTED);
	if (gauge_take(&stats->allocated_bytes, delta, GCP_STATS_LEVEL_ALLOCATED))
		stats->reserved_at_peak_bytes = stats->reserved_bytes.current;
	stats->hits += delta->hits;
	memset(delta, 0, sizeof(*delta));
}

void gcp_call_count(struct gcp_pool *pool, enum gcp_driver_call call, uint64_t start_ns)
{
	static_assert(GCP_CALL_COUNT <= 24, "pools->calls has a row for each call");
	atomic_fetch_add_explicit(&pool->calls[call][0], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&pool->calls[call][1],
				  pool->pools->driver.clock_ns() - start_ns,
				  memory_order_relaxed);
}

/* Makes all threads' counts part of the pool's. */
static void pool_gather(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_cache *cache;

	pthread_mutex_lock(&pools->registry_lock);
	TAILQ_FOREACH (cache, &pools->caches, link)
		if (cache->pool == pool)
			gcp_cache_merge_stats(cache);
	pthread_mutex_unlock(&pools->registry_lock);
}

/* A thread may hand over a free while the allocation, another thread's, is still in a
 * delta that was gathered before it: below zero for a moment. */
static uint64_t current_of(const struct gcp_gauge *gauge)
{
	return (int64_t)gauge->current > 0 ? gauge->current : 0;
}

uint64_t gcp_pool_allocated(struct gcp_pool *pool)
{
	uint64_t bytes;

	pool_gather(pool);
	pthread_mutex_lock(&pool->lock);
	bytes = current_of(&pool->stats.allocated_bytes);
	pthread_mutex_unlock(&pool->lock);
	return bytes;
}

static void stats_add_pool(struct gcp_stats *sum, struct gcp_pool *pool)
{
	struct gcp_stats *stats = &pool->stats;
	uint64_t largest;

	pool_gather(pool);
	pthread_mutex_lock(&pool->lock);
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
	sum->name.count += atomic_load(&pool->calls[GCP_CALL_##name][0]);              \
	sum->name.ns += atomic_load(&pool->calls[GCP_CALL_##name][1]);
	GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
	sum->reserved_at_peak_bytes += stats->reserved_at_peak_bytes;
	largest = gcp_heap_largest_free(&pool->common);
	pthread_mutex_unlock(&pool->lock);
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

void gcp_pools_reset_peaks(struct gcp_pools *pools, int device)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (pool->device != device)
			continue;
		pool_gather(pool);
		pthread_mutex_lock(&pool->lock);
#define GCP_X(name, meaning) pool->stats.name.peak = pool->stats.name.current;
		GCP_GAUGES(GCP_X)
#undef GCP_X
		pool->stats.reserved_at_peak_bytes = pool->stats.reserved_bytes.current;
		pthread_mutex_unlock(&pool->lock);
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

/* --- quota ------------------------------------------------------------------------ */

static uint64_t reserved_on(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!pool->live || pool->device != device)
			continue;
		pthread_mutex_lock(&pool->lock);
		bytes += pool->stats.reserved_bytes.current;
		pthread_mutex_unlock(&pool->lock);
	}
	return bytes;
}

static __thread enum gcp_refusal thread_refusal
    __attribute__((tls_model("initial-exec")));

void gcp_refusal_set(enum gcp_refusal refusal)
{
	thread_refusal = refusal;
}

enum gcp_refusal gcp_pools_refusal(void)
{
	return thread_refusal;
}

bool gcp_quota_allows(struct gcp_pool *pool, uint64_t bytes)
{
	bool allowed = pool->quota == GCP_LIMIT_NONE ||
		       reserved_on(pool->pools, pool->device) + bytes <= pool->quota;

	gcp_refusal_set(allowed ? GCP_REFUSED_BY_DRIVER : GCP_REFUSED_BY_QUOTA);
	if (!allowed)
		GCP_LOG(pool->pools, "device %d: %llu KiB more are beyond the quota",
			pool->device, GCP_ULL(bytes >> 10));
	return allowed;
}

uint64_t gcp_pools_quota(struct gcp_pools *pools, int device)
{
	struct gcp_pool *pool = pools->first;

	while (pool && pool->device != device)
		pool = pool->next;
	return pool ? pool->quota : GCP_LIMIT_NONE;
}
