/* SPDX-License-Identifier: MIT */
/*
 * consolidate.c - gives segments that fell empty back to the driver, so that their
 * memory comes again as one large segment; or does not come again at all.
 *
 * Called by free_end when it closed an epoch, with no lock held.
 *
 * A pool grows by what is asked for, and so ends up in many small segments: a
 * block larger than each of them finds no room though most of them are empty.
 * The driver cannot move or join them. But programs have tides: at the end of a
 * step nearly all of a step's memory is free at once. Then
 *
 *      miss ----> scattered ----> much is idle ----> given back: owed
 *      (grow.c)                   (a free)               |
 *                 not scattered <---- next miss: one segment of all that is owed
 *
 * So a pool never reserves more than it did before, and a program that repeats
 * itself soon stops missing, and from then on pays nothing. What is owed and has
 * not been of use for a whole round is not taken again.
 *
 * NO NEW WAITS (fence.c): the driver's free waits for the device, so memory goes
 * back only inside calls that free, where plain CUDA would have waited as well;
 * never because an allocation misses. And only for a small part of the time.
 */
#include "cache.h"

enum {
	/* Nothing is given back of a pool of no more than so many windows. */
	SMALL_WINDOWS = 2,
	/* Worth it when 1/SHARE of the reserved memory is idle; and 1/MORE_SHARE
	 * again when the tide falls further. */
	SHARE = 7,
	MORE_SHARE = 64,
	/* Looks when such a share has been freed since it looked last. */
	LOOK_SHARE = 16,
	/* At most 1/COST_SHARE of the time goes into giving back, */
	COST_SHARE = 32,
	/* but for so much at once: a program whose sizes never repeat has a tide
	 * every few microseconds. */
	COST_BURST_NS = 4 * 1000 * 1000,
	/* of which waiting counts for a part. */
	WAIT_SHARE = 8,
	/* Epochs closed since the latest miss, after which no tide is expected. */
	EPOCHS_WITHOUT_MISS = 1024,
	/* Of what is busy, so much lies idle between its blocks. */
	BETWEEN_SHARE = 12,
};

/* A pool hardly larger than what may wait for the device falls idle at each turn of a
 * loop: what it gave back would come again at the next turn, for a hundred times the
 * price of that. Any lock, or none, may be held. */
static bool is_small(const struct gcp_pool *pool, uint64_t windows)
{
	uint64_t window = gcp_window(pool).bytes; /* wider under high churn */

	if (window < pool->pools->config.window_bytes)
		window = pool->pools->config.window_bytes;
	return atomic_load_explicit(&pool->reserved_hint, memory_order_relaxed) /
		   windows <=
	       window;
}

/* Whether consolidation may help. pool->lock is held. */
static void scattered_set(struct gcp_pool *pool, bool scattered)
{
	pool->consolidation.epochs = 0;
	pool->consolidation.flush_below = UINT64_MAX;
	atomic_store_explicit(&pool->consolidation.scattered, scattered,
			      memory_order_relaxed);
}

/* pool->lock is held. */
static bool is_worth_it(const struct gcp_pool *pool)
{
	uint64_t all =
	    pool->stats.reserved_bytes.current + pool->consolidation.owed_bytes;

	if (pool->consolidation.owed_bytes > 0)
		return pool->consolidation.idle_bytes > all / MORE_SHARE;
	return pool->consolidation.idle_segments > 1 &&
	       !is_small(pool, SMALL_WINDOWS) &&
	       pool->consolidation.idle_bytes > all / SHARE;
}

/* Whether much is free that may be kept from falling idle by what threads cache.
 * Each time that another part of it was freed: threads want to keep it. pool->lock
 * is held. */
static bool is_worth_a_flush(struct gcp_pool *pool)
{
	uint64_t reserved = pool->stats.reserved_bytes.current;
	uint64_t used =
	    pool->stats.allocated_bytes.current + pool->consolidation.idle_bytes;

	if (used + reserved / SHARE > reserved ||
	    used >= pool->consolidation.flush_below)
		return false;
	pool->consolidation.flush_below =
	    used > reserved / 16 ? used - reserved / 16 : 0;
	return true;
}

/* Whether the time that it costs has been saved. pool->lock is held. */
static bool is_affordable(struct gcp_pool *pool, uint64_t now)
{
	uint64_t saved = (now - pool->consolidation.looked_ns) / COST_SHARE;

	pool->consolidation.looked_ns = now;
	pool->consolidation.debt_ns -=
	    saved < pool->consolidation.debt_ns ? saved : pool->consolidation.debt_ns;
	return pool->consolidation.debt_ns < COST_BURST_NS;
}

/* Takes the idle segments, all ready, out of the books. */
static void unlink_idle(struct gcp_pool *pool, struct gcp_segment_list *list)
{
	pthread_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
	pool->consolidation.owed_bytes += gcp_heap_unlink_idle(&pool->common, list);
	pool->stats.consolidations++;
	pthread_mutex_unlock(&pool->lock);
}

static int consolidate(struct gcp_pool *pool)
{
	struct gcp_segment_list list = TAILQ_HEAD_INITIALIZER(list);
	uint64_t start = pool->pools->driver.clock_ns(), waited;
	int result = gcp_timeline_complete(pool, gcp_timeline_stamp(pool));

	waited = pool->pools->driver.clock_ns() - start;
	if (result == 0) {
		gcp_caches_flush(pool);
		unlink_idle(pool, &list);
		gcp_segments_release(pool, &list, "it is to come again as one");
	}
	pthread_mutex_lock(&pool->lock);
	/* While the host waits the device works; to take it again costs as much. */
	pool->consolidation.debt_ns +=
	    waited / WAIT_SHARE + 2 * (pool->pools->driver.clock_ns() - start - waited);
	pthread_mutex_unlock(&pool->lock);
	return result == -EBUSY ? 0 : result;
}

static bool is_look_due(const struct gcp_pool *pool)
{
	return !is_small(pool, 1) &&
	       pool->consolidation.freed_bytes >=
		   pool->stats.reserved_bytes.current / LOOK_SHARE;
}

bool gcp_consolidation_is_due(struct gcp_pool *pool, uint64_t freed)
{
	struct gcp_consolidation *consolidation = &pool->consolidation;

	if (!atomic_load_explicit(&consolidation->scattered, memory_order_relaxed) ||
	    consolidation->debt_ns >= COST_BURST_NS)
		return false;
	consolidation->freed_bytes += freed;
	return is_look_due(pool);
}

int gcp_pool_consolidate(struct gcp_pool *pool)
{
	int result = 0;
	bool wanted, flush;

	/* A steady program goes no further. */
	if (!atomic_load_explicit(&pool->consolidation.scattered,
				  memory_order_relaxed) ||
	    is_small(pool, 1))
		return 0;
	if (atomic_load_explicit(&pool->pools->holds, memory_order_relaxed) > 0)
		return 0;
	result = gcp_timeline_poll_all(pool);
	if (result != 0)
		return result;
	pthread_mutex_lock(&pool->lock);
	if (is_look_due(pool))
		pool->consolidation.freed_bytes = 0;
	gcp_heap_advance(&pool->common);
	flush = !is_worth_it(pool) && is_worth_a_flush(pool);
	pthread_mutex_unlock(&pool->lock);
	if (flush)
		gcp_caches_flush(pool);
	pthread_mutex_lock(&pool->lock);
	if (++pool->consolidation.epochs == EPOCHS_WITHOUT_MISS)
		gcp_consolidation_reset(pool);
	wanted =
	    is_worth_it(pool) && is_affordable(pool, pool->pools->driver.clock_ns());
	pthread_mutex_unlock(&pool->lock);
	/* One thread is enough. */
	if (!wanted || atomic_exchange(&pool->consolidation.under_way, true))
		return 0;
	result = consolidate(pool);
	atomic_store(&pool->consolidation.under_way, false);
	return result;
}

/* How much of what is owed should come again: what was busy at most, and some more
 * for what lies between blocks. pool->lock is held. */
static uint64_t still_wanted(const struct gcp_pool *pool)
{
	const struct gcp_consolidation *consolidation = &pool->consolidation;
	uint64_t reserved = pool->stats.reserved_bytes.current;
	uint64_t busy = consolidation->busy_peak > consolidation->busy_peak_before
			    ? consolidation->busy_peak
			    : consolidation->busy_peak_before;

	busy += busy / BETWEEN_SHARE;
	if (busy <= reserved)
		return 0;
	return busy - reserved < consolidation->owed_bytes ? busy - reserved
							   : consolidation->owed_bytes;
}

uint64_t gcp_consolidation_on_miss(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_consolidation *consolidation = &pool->consolidation;
	uint64_t wanted = still_wanted(pool), most = pool->pools->config.split_limit;

	if (consolidation->owed_bytes == 0) {
		scattered_set(pool, true);
		return bytes;
	}
	if (most > pool->cache_limit)
		most = pool->cache_limit;
	consolidation->owed_bytes = wanted > most ? wanted - most : 0;
	if (wanted > most)
		wanted = most;
	if (consolidation->owed_bytes == 0) {
		consolidation->busy_peak_before = consolidation->busy_peak;
		consolidation->busy_peak = pool->stats.active_bytes.current;
		scattered_set(pool, false);
	}
	/* A device may be filled with blocks of one size: none is lost. */
	return wanted > bytes ? wanted / bytes * bytes : bytes;
}

void gcp_consolidation_reset(struct gcp_pool *pool)
{
	pool->consolidation.owed_bytes = pool->consolidation.busy_peak =
	    pool->consolidation.busy_peak_before = 0;
	scattered_set(pool, false);
}
