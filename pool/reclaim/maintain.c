/* SPDX-License-Identifier: MIT */
/*
 * maintain.c - what is idle goes back to the driver: because nothing has used it for a
 * while, or because a limit says so.
 *
 * Called by free_end in alloc.c when a free has closed an epoch, with no lock held: one
 * step, which asks what is completed, chooses, and gives back (purge.c). Decay happens
 * in allocations that miss their thread's cache, too, and in the optional thread of
 * GCPOOL_THREAD: a program without that thread which calls nothing keeps what it has.
 *
 * DECAY (config.decay_ms). Time is counted in turns, of which GCP_DECAY_TURNS make up
 * that while. A segment that falls idle belongs to the turn; when so many whole turns
 * have passed since, it goes. So whatever a program uses again within that while stays,
 * every segment of it, and a program that repeats itself within it pays a look at the
 * clock for each epoch. Mapped segments give chunks from anywhere: of those, what was
 * idle at all times of these turns.
 *
 * THE LIMIT (config.cache_limit). What is unused beyond it goes.
 *
 * NO NEW WAITS (fence.c): the driver's free waits for the device, so memory goes back
 * only inside calls that free, where plain CUDA would have waited as well; never
 * because an allocation misses, but what goes without a wait (`gently`, purge.c).
 * Decay in a free waits for one that finds all work done, or else for twice the while;
 * that is at most one wait in the while. While a stream captures only the limit gives
 * back.
 */
#include "../cache/cache.h"
#include "../space/vmm.h"

enum { NS_PER_MS = 1000 * 1000 };

/* --- decay -------------------------------------------------------------------- */

/* The clock may have been read before another thread began the turn. */
static bool turn_is_over(const struct gcp_pool *pool, uint64_t now)
{
	uint64_t turn_ns =
	    (uint64_t)pool->pools->config.decay_ms * NS_PER_MS / GCP_DECAY_TURNS;
	uint64_t turned =
	    atomic_load_explicit(&pool->maintenance.turned_ns, memory_order_relaxed);

	return turn_ns > 0 &&
	       (turned == 0 || (int64_t)(now - turned) >= (int64_t)turn_ns);
}

/* Whole chunks of mapped segments that were idle all the time. pool->lock is held. */
static uint64_t chunks_overdue(const struct gcp_pool *pool)
{
	uint64_t bytes = pool->common.unused_bytes;

	for (int i = 0; i < GCP_DECAY_TURNS; i++)
		if (pool->maintenance.lows[i] < bytes)
			bytes = pool->maintenance.lows[i];
	return pool->vmm ? bytes / GCP_CHUNK * GCP_CHUNK : 0;
}

static bool all_is_done(const struct gcp_pool *pool)
{
	return atomic_load(&pool->timeline.completed) + 1 >=
	       atomic_load(&pool->timeline.open);
}

/* What threads keep that have freed nothing for so many turns goes to the heap, where
 * it can be seen to lie idle. */
static void quiet_threads_flush(struct gcp_pool *pool)
{
	struct gcp_maintenance *maintenance = &pool->maintenance;

	gcp_mutex_lock(&pool->lock);
	uint64_t epoch = maintenance->epochs[maintenance->turn % GCP_DECAY_TURNS];
	gcp_mutex_unlock(&pool->lock);
	if (epoch > 0 && gcp_caches_flush_quiet(pool, epoch))
		(void)gcp_timeline_poll_all(pool); /* an error shows again */
}

/* Begins a turn if the time has come. Returns whether a segment has been idle for the
 * whole while. */
static bool turn_begin(struct gcp_pool *pool, uint64_t now, uint64_t *ret_chunks)
{
	struct gcp_maintenance *maintenance = &pool->maintenance;
	struct gcp_heap *common = &pool->common;
	bool overdue = false;

	quiet_threads_flush(pool);
	gcp_mutex_lock(&pool->lock);
	/* A thread that lives from its own cache does not do that. */
	gcp_heap_advance(common);
	if (turn_is_over(pool, now)) { /* else another thread was faster */
		atomic_store_explicit(&maintenance->turned_ns, now,
				      memory_order_relaxed);
		gcp_heap_age(common, maintenance->turn);
		/* Never more than one, however long the last one was: what was used
		 * since belongs to it. */
		maintenance->epochs[maintenance->turn % GCP_DECAY_TURNS] =
		    atomic_load(&pool->timeline.open);
		maintenance->lows[maintenance->turn++ % GCP_DECAY_TURNS] =
		    common->unused_low;
		common->unused_low = common->unused_bytes;
		if (maintenance->turn > GCP_DECAY_TURNS) {
			overdue = gcp_heap_is_idle(common,
						   maintenance->turn - GCP_DECAY_TURNS);
			*ret_chunks = chunks_overdue(pool);
		}
	}
	gcp_mutex_unlock(&pool->lock);
	return overdue;
}

/* The turn before which segments were idle that go: when all work is done, or one was
 * idle for twice the while; 0: none goes. pool->lock is held. */
static uint64_t idle_since(const struct gcp_pool *pool)
{
	uint64_t turn = pool->maintenance.turn;

	if (all_is_done(pool) ||
	    (turn > 2 * GCP_DECAY_TURNS &&
	     gcp_heap_is_idle(&pool->common, turn - 2 * GCP_DECAY_TURNS)))
		return turn - GCP_DECAY_TURNS;
	return 0;
}

/* --- the step ----------------------------------------------------------------- */

/* What of the unused memory goes, for each of the two reasons. */
static void purge_choose(struct gcp_pool *pool, bool overdue, struct gcp_purge *purge)
{
	uint64_t limit = pool->cache_limit;

	gcp_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
	if (overdue)
		purge->idle_since = idle_since(pool);
	if (limit == 0) /* what threads keep as well */
		purge->bytes = UINT64_MAX;
	else if (pool->common.unused_bytes > limit)
		purge->bytes = pool->common.unused_bytes - limit;
	gcp_mutex_unlock(&pool->lock);
}

int gcp_pool_maintain(struct gcp_pool *pool)
{
	bool held = atomic_load_explicit(&pool->pools->holds, memory_order_relaxed) > 0;
	bool limited = pool->cache_limit != GCP_LIMIT_NONE;
	uint64_t chunks = 0;
	uint64_t now = pool->pools->driver.clock_ns();
	bool over = !held && turn_is_over(pool, now), overdue = false;
	struct gcp_purge purge = {.completed_only = true};
	int result = 0;

	/* Of mapped memory only what is ready can be seen to lie idle, and a thread
	 * that lives from its own cache does not ask. */
	if (over && pool->vmm)
		result = gcp_timeline_poll_all(pool);
	if (over && result == 0)
		overdue = turn_begin(pool, now, &chunks);
	/* A steady program goes no further. */
	if (result == 0 && (overdue || limited))
		result = gcp_timeline_poll_all(pool);
	if (result == 0 && (overdue || limited)) {
		purge_choose(pool, overdue, &purge);
		if (purge.bytes > 0 || purge.idle_since > 0)
			gcp_pool_purge(pool, &purge);
	}
	if (result == 0 && chunks > 0)
		(void)gcp_vmm_release(pool, chunks, true);
	return result;
}

/* Gives back what is idle, without a wait. `now` is in a new turn. */
static void decay_turn(struct gcp_pool *pool, uint64_t now)
{
	struct gcp_purge purge = {.completed_only = true, .gently = true};
	uint64_t chunks = 0;

	/* An error is for a call that reports it: the next free begins the turn. */
	if (gcp_timeline_poll_all(pool) != 0)
		return;
	if (turn_begin(pool, now, &chunks)) {
		gcp_mutex_lock(&pool->lock);
		purge.idle_since = pool->maintenance.turn - GCP_DECAY_TURNS;
		gcp_mutex_unlock(&pool->lock);
		gcp_pool_purge(pool, &purge);
	}
	if (chunks > 0)
		(void)gcp_vmm_release(pool, chunks, true);
}

static bool may_decay(const struct gcp_pool *pool)
{
	return (pool->vmm || pool->pools->driver.mem_release) &&
	       !gcp_timeline_is_held(&pool->timeline);
}

void gcp_pool_keep_limit(struct gcp_pool *pool)
{
	struct gcp_purge purge = {.gently = true, .completed_only = true};

	/* An error is for a call that reports it. */
	if (pool->cache_limit == GCP_LIMIT_NONE || !may_decay(pool) ||
	    gcp_timeline_poll_all(pool) != 0)
		return;
	purge_choose(pool, false, &purge);
	if (purge.bytes > 0)
		gcp_pool_purge(pool, &purge);
}

/* No free has begun the turn for so long that none may come. */
static bool turn_is_late(const struct gcp_pool *pool, uint64_t now)
{
	uint64_t turned =
	    atomic_load_explicit(&pool->maintenance.turned_ns, memory_order_relaxed);

	return turn_is_over(pool, now) &&
	       (turned == 0 || turn_is_over(pool, turned + (now - turned) / 2));
}

void gcp_pool_decay(struct gcp_pool *pool)
{
	uint64_t now;

	if (!may_decay(pool))
		return;
	now = pool->pools->driver.clock_ns();
	if (turn_is_late(pool, now))
		decay_turn(pool, now);
}

/* Whether no free has closed an epoch since the caller asked last. What threads keep
 * goes to the heap then, and the open epoch gets a fence. */
static bool is_quiet(struct gcp_pool *pool)
{
	uint64_t open = atomic_load(&pool->timeline.open);

	gcp_mutex_lock(&pool->lock);
	bool quiet = pool->maintenance.seen_epoch == open;
	pool->maintenance.seen_epoch = open;
	gcp_mutex_unlock(&pool->lock);
	if (!quiet)
		return false;
	gcp_caches_flush(pool);
	(void)gcp_timeline_close_early(pool, false); /* an error shows again */
	gcp_mutex_lock(&pool->lock);
	gcp_slab_coalesce_unused(&pool->common);
	pool->maintenance.seen_epoch = atomic_load(&pool->timeline.open);
	gcp_mutex_unlock(&pool->lock);
	return true;
}

static void decay_within(void *arg)
{
	struct gcp_pool *pool = arg;

	if (may_decay(pool) && is_quiet(pool))
		decay_turn(pool, pool->pools->driver.clock_ns());
}

void gcp_pools_decay(struct gcp_pools *pools,
		     void (*within)(void *ctx, void (*step)(void *arg), void *arg))
{
	struct gcp_pool *pool =
	    atomic_load_explicit(&pools->first, memory_order_acquire);

	for (; pool; pool = atomic_load_explicit(&pool->next, memory_order_acquire)) {
		if (!turn_is_over(pool, pools->driver.clock_ns()) ||
		    !gcp_pool_pin(pool))
			continue;
		within(pool->ctx, decay_within, pool);
		gcp_pool_unpin(pool);
	}
}

void gcp_maintenance_reset(struct gcp_pool *pool)
{
	memset(pool->maintenance.lows, 0, sizeof(pool->maintenance.lows));
	memset(pool->maintenance.epochs, 0, sizeof(pool->maintenance.epochs));
}
