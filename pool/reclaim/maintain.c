/* SPDX-License-Identifier: MIT */
/*
 * maintain.c - what is idle goes back to the driver: because nothing has used it for a
 * while, or because a limit says so.
 *
 * Called by free_end in alloc.c when a free has closed an epoch, with no lock held: one
 * step, which asks what is completed, chooses, and gives back (purge.c). Decay happens
 * in the optional thread of GCPOOL_THREAD, too: a program without that thread which
 * frees nothing keeps what it has.
 *
 * DECAY (config.decay_ms). Time is counted in turns of that while. At the end of one as
 * many bytes go as were idle all the time. So a program that repeats itself within that
 * while gives nothing back that it takes again, and pays a look at the clock for each
 * epoch. Pinned memory has turns of its own, and is asked at each of ours in a free.
 *
 * THE LIMIT (config.cache_limit). What is unused beyond it goes.
 *
 * NO NEW WAITS (fence.c): the driver's free waits for the device, so memory goes back
 * only inside calls that free, where plain CUDA would have waited as well; but
 * what goes without a wait (`gently`, purge.c).
 * Decay in a free waits, at most once in a turn, and so does a free of ordinary
 * segments that add up (keep_up). While a stream captures only these and the limit give
 * back.
 */
#include "../pinned/pinned_types.h"
#include "reclaim.h"

/* --- decay -------------------------------------------------------------------- */

/* Begins a turn if the time has come, and chooses what was idle for all of the last
 * one. */
static uint64_t turn_begin(struct gcp_pool *pool, uint64_t now)
{
	struct gcp_maintenance *maintenance = &pool->maintenance;
	struct gcp_heap *common = &pool->common;

	gcp_caches_flush(pool); /* to be seen lying idle */
	GCP_LOCKED(&pool->lock);
	/* A thread that lives from its own cache does not do that. */
	gcp_heap_advance(common);
	/* Another thread was faster. */
	if (!gcp_turn_is_over(pool->pools, maintenance, now))
		return 0;
	atomic_store_explicit(&maintenance->turned_ns, now, memory_order_relaxed);
	maintenance->epoch = atomic_load(&pool->timeline.open);
	uint64_t idle = common->unused_low;
	common->unused_low = common->unused_bytes;
	return idle;
}

/* --- the step ----------------------------------------------------------------- */

/* While more is taken than a quota that has become smaller nothing unused is kept. */
static uint64_t limit_now(const struct gcp_pool *pool)
{
	return gcp_quota_left(pool) < 0 ? 0 : pool->cache_limit;
}

/* The unused memory beyond the limit. */
static uint64_t bytes_beyond_limit(struct gcp_pool *pool)
{
	uint64_t limit = limit_now(pool);

	GCP_LOCKED(&pool->lock);
	gcp_heap_advance(&pool->common);
	if (limit == 0) /* what threads keep as well */
		return UINT64_MAX;
	return pool->common.unused_bytes > limit ? pool->common.unused_bytes - limit
						 : 0;
}

/* One step of the above. An error is the device's, and nothing is done. */
static int maintain(struct gcp_pool *pool, bool gently)
{
	struct gcp_purge purge = {.gently = gently, .exact = true};
	uint64_t now = pool->pools->driver.clock_ns();
	bool limit = limit_now(pool) != GCP_LIMIT_NONE;
	bool turn = !gcp_timeline_is_held(&pool->timeline) &&
		    gcp_turn_is_over(pool->pools, &pool->maintenance, now);
	int result = turn || limit ? gcp_timeline_poll_all(pool) : 0;

	if (result != 0)
		return result;
	assert(!turn || pool->pools->config.decay_ms > 0);
	if (turn && (purge.bytes = turn_begin(pool, now)) > 0)
		(void)gcp_pool_purge(pool, &purge);
	purge.exact = false;
	if (limit && (purge.bytes = bytes_beyond_limit(pool)) > 0)
		(void)gcp_pool_purge(pool, &purge);
	if (turn && !gently)
		(void)gcp_pinned_decay(pool); /* an error shows again */
	return 0;
}

/* Ordinary segments can go back only when their work is completed. Where there are more
 * than twice what the program ever held at once, and 128 MiB, a free waits for the
 * oldest of what frees have closed, as plain cudaFree does for all work; beside a
 * capture it has waited, and what it gives back waits once more. */
static void keep_up(struct gcp_pool *pool, bool held)
{
	const struct gcp_stats *stats = &pool->stats;
	struct gcp_purge purge = {.gently = !held};
	struct gcp_search search = {0};

	do {
		gcp_mutex_lock(&pool->lock);
		purge.bytes =
		    stats->reserved_bytes.current - stats->private_bytes.current -
		    2 * stats->allocated_bytes.peak - 64 * (uint64_t)GCP_CHUNK;
		gcp_mutex_unlock(&pool->lock);
		if ((int64_t)purge.bytes <= 0 ||
		    !(held || gcp_timeline_wait_oldest(pool, &search, 0)))
			return;
		(void)gcp_pool_purge(pool, &purge);
	} while (!held);
}

int gcp_pool_maintain(struct gcp_pool *pool)
{
	if (!gcp_pool_pin(pool))
		return 0;
	int result = maintain(pool, false);
	if (!pool->vmm)
		keep_up(pool, gcp_timeline_is_held(&pool->timeline));
	gcp_pool_unpin(pool);
	return result;
}

static bool may_decay(const struct gcp_pool *pool)
{
	return (pool->vmm || pool->pools->driver.mem_release) &&
	       !gcp_timeline_is_held(&pool->timeline);
}

void gcp_pool_maintain_gently(struct gcp_pool *pool)
{
	if (!may_decay(pool) || !gcp_pool_pin(pool))
		return;
	(void)maintain(pool, true); /* an error shows again */
	gcp_pool_unpin(pool);
}

void gcp_pools_set_quota(struct gcp_pools *pools, uint64_t limit)
{
	atomic_store(&pools->quota, limit);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		gcp_tight_out(pool);
		gcp_pool_maintain_gently(pool);
	}
}

/* Returns true if no free has closed an epoch since the caller asked last, or a turn
 * began. What threads keep goes to the heap then, and the open epoch gets a fence. */
static bool is_quiet(struct gcp_pool *pool)
{
	uint64_t open = atomic_load(&pool->timeline.open);

	gcp_mutex_lock(&pool->lock);
	bool quiet = pool->maintenance.epoch == open;
	pool->maintenance.epoch = open;
	gcp_mutex_unlock(&pool->lock);
	if (quiet) {
		gcp_caches_flush(pool);
		(void)gcp_timeline_close_early(pool, false); /* an error shows again */
	}
	return quiet;
}

static void decay_within(void *arg)
{
	struct gcp_pool *pool = arg;

	if (may_decay(pool) && is_quiet(pool))
		(void)maintain(pool, true);
}

void gcp_pools_decay(struct gcp_pools *pools,
		     void (*within)(void *ctx, void (*step)(void *arg), void *arg))
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!gcp_turn_is_over(pool->pools, &pool->maintenance,
				      pools->driver.clock_ns()) ||
		    !gcp_pool_pin(pool))
			continue;
		within(pool->ctx, decay_within, pool);
		gcp_pool_unpin(pool);
	}
}
