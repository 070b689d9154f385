/* SPDX-License-Identifier: MIT */
/*
 * pinned_reclaim.c - pinned memory goes back to the driver: because memory is out,
 * because a limit says so, because the program asks; and the end of a context.
 *
 * A block leaves its lists before the driver gets it. The driver's free waits for
 * the block's context, so only calls that may wait give back.
 */
#include "pinned_types.h"

int gcp_pinned_memory_give(struct gcp_pool *pool, void *p, uint64_t bytes)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	int result = GCP_PINNED_CALL(pinned, host_free, host_free, pool->ctx, p);

	atomic_fetch_sub(&pinned->moving, bytes);
	return result;
}

/* --- what there is to wait for -------------------------------------------- */

bool gcp_pinned_has_unused(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return false;
	GCP_PINNED_LOCKED(pinned);
	return pinned->stats.allocations.current !=
	       pinned->stats.active_requests.current;
}

uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	const struct gcp_pinned_block *block;
	uint64_t bytes = 0;

	GCP_PINNED_LOCKED(pinned);
	for (struct gcp_pinned_bucket *bucket = pinned->latest; bucket;
	     bucket = bucket->older)
		TAILQ_FOREACH (block, &bucket->blocks, all)
			if (bucket->pool == pool &&
			    atomic_load(&block->state) == GCP_PINNED_FREED)
				bytes += gcp_round_up(bucket->size, unit);
	return bytes;
}

/* --- giving back ---------------------------------------------------------- */

struct giving {
	const struct gcp_pool *own; /* NULL: of every context */
	uint64_t wanted, given;     /* bytes */
	bool pending;               /* those that are not ready, too */
	uint64_t idle;   /* only of contexts where this epoch is ready: no free waits */
	uint64_t before; /* only what was freed in a turn before that; 0: all */
	int result;      /* the first error of the driver's free */
};

/* The lock is held, but not over the driver's free. */
static void release_bucket(struct gcp_pinned_bucket *bucket, struct giving *giving)
{
	struct gcp_pool *pool = bucket->pool;
	struct gcp_pinned *pinned = pool->pools->pinned;
	uint64_t before = giving->before ? giving->before : UINT64_MAX;
	struct gcp_pinned_block *block;

	gcp_assert_held(GCP_RANK_PINNED);
	if ((giving->own && giving->own != pool) ||
	    !gcp_pinned_epoch_ready(pool, giving->idle))
		return;
	/* No thread destroys the context between the end of a block's record and its
	 * free: the address could be another's by then. */
	if (!gcp_pool_pin(pool))
		return;
	while (giving->given < giving->wanted &&
	       (block = gcp_pinned_bucket_spare(bucket, before, giving->pending))) {
		void *p = block->p;

		/* First: a quota sees it in one of the two. */
		atomic_fetch_add(&pinned->moving, bucket->size);
		gcp_pinned_block_release(block);
		gcp_pinned_unlock(pinned);
		int result = gcp_pinned_memory_give(pool, p, bucket->size);
		gcp_pinned_lock(pinned);
		giving->given += bucket->size;
		if (giving->result == 0)
			giving->result = result;
	}
	gcp_pool_unpin(pool);
}

static struct giving release(struct gcp_pools *pools, struct giving giving)
{
	struct gcp_pinned *pinned = pools->pinned;

	GCP_PINNED_LOCKED(pinned);
	for (struct gcp_pinned_bucket *bucket = pinned->latest; bucket;
	     bucket = bucket->older)
		release_bucket(bucket, &giving);
	return giving;
}

void gcp_pinned_givers_wait(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	for (int i = 0;
	     pinned && i < GCP_WAIT_LIMIT && atomic_load(&pinned->moving) > 0; i++)
		gcp_backoff();
}

uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes, uint64_t idle)
{
	return release(pinned->pools, (struct giving){.wanted = bytes, .idle = idle})
	    .given;
}

int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_timeline *timeline = &pool->pools->pinned->timeline;
	struct giving giving = {.own = pool, .wanted = bytes, .pending = true};

	gcp_mutex_lock(&pool->pools->fence_lock);
	/* What other contexts have freed goes on waiting, for a fence. */
	uint64_t epoch = gcp_timeline_next(timeline);
	gcp_mutex_unlock(&pool->pools->fence_lock);
	giving = release(pool->pools, giving);
	if (giving.given > 0 && giving.result == 0)
		gcp_pinned_timeline_done(pool, epoch);
	return giving.result;
}

void gcp_pinned_frees_wait(struct gcp_pools *pools)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		(void)gcp_pinned_timeline_wait(pool, atomic_load(&pool->pinned_freed));
}

/* Looks, and where that helps nothing waits; idle: no more than one of the two finds.
 */
uint64_t gcp_pinned_trim(struct gcp_pools *pools, uint64_t keep_bytes, bool idle)
{
	struct gcp_pinned *pinned = pools->pinned;
	uint64_t unused = 0, sum = 0;

	if (pinned) {
		GCP_PINNED_LOCKED(pinned);
		unused = pinned->unused;
	}
	if (unused <= keep_bytes)
		return 0;
	unused -= keep_bytes;
	for (int i = 0; i < 2 && sum < (idle ? 1 : unused); i++) {
		if (i > 0)
			gcp_pinned_frees_wait(pools);
		uint64_t at = gcp_pinned_timeline_look(pinned);
		sum += gcp_pinned_release(pinned, unused - sum, idle ? at : 0);
	}
	return sum;
}

int gcp_pinned_decay(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_maintenance *turns = &pool->pinned_turns;
	struct giving giving = {.own = pool, .wanted = UINT64_MAX};
	uint64_t now = pools->driver.clock_ns();

	if (!pools->pinned || gcp_timeline_is_held(&pools->pinned->timeline) ||
	    !gcp_turn_is_over(pools, turns, now))
		return 0;
	gcp_pinned_lock(pools->pinned);
	if (gcp_turn_is_over(pools, turns, now)) { /* else another was faster */
		atomic_store_explicit(&turns->turned_ns, now, memory_order_relaxed);
		giving.before = turns->turn++;
	}
	gcp_pinned_unlock(pools->pinned);
	if (giving.before > 0)
		(void)gcp_timeline_advance_all(&pools->pinned->timeline);
	return giving.before > 0 ? release(pools, giving).result : 0;
}

/* Beyond twice what was ever in use at once, and a window: sizes that do not come again
 * would add up. */
uint64_t gcp_pinned_over_limit(const struct gcp_pinned *pinned)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint64_t most = 2 * pinned->most + config->pinned_window;
	uint64_t total = pinned->stats.allocated_bytes.current;
	uint64_t unused = pinned->unused, over = total > most ? total - most : 0;

	gcp_assert_held(GCP_RANK_PINNED);
	if (unused > config->pinned_cache_limit &&
	    unused - config->pinned_cache_limit > over)
		over = unused - config->pinned_cache_limit;
	return over < unused ? over : unused;
}

void gcp_pinned_keep_limit(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return;
	gcp_pinned_lock(pinned);
	uint64_t over = gcp_pinned_over_limit(pinned);
	gcp_pinned_unlock(pinned);
	if (over > 0)
		(void)gcp_pinned_release(pinned, over,
					 gcp_pinned_timeline_look(pinned));
}

/* --- the end of a context ------------------------------------------------- */

static void bucket_reset(struct gcp_pinned_bucket *bucket)
{
	struct gcp_pinned_block *block;

	gcp_assert_held(GCP_RANK_PINNED);
	TAILQ_INIT(&bucket->ready);
	TAILQ_INIT(&bucket->pending);
	while ((block = TAILQ_FIRST(&bucket->blocks))) {
		uint8_t state = atomic_load(&block->state);

		gcp_pinned_block_detach(block);
		if (state == GCP_PINNED_USED)
			gcp_pinned_block_count(block, -1);
		else if (state == GCP_PINNED_FREED)
			bucket->pool->pools->pinned->unused -= bucket->size;
		gcp_pinned_block_release(block);
	}
}

void gcp_pinned_reset(struct gcp_pool *pool)
{
	struct gcp_pinned *pinned = pool->pools->pinned;

	atomic_fetch_add(&pool->pinned_generation, 1);
	if (!pinned)
		return;
	GCP_PINNED_LOCKED(pinned);
	for (struct gcp_pinned_bucket *bucket = pinned->latest; bucket;
	     bucket = bucket->older)
		if (bucket->pool == pool)
			bucket_reset(bucket);
}
