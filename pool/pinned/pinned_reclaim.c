/* SPDX-License-Identifier: MIT */
/*
 * pinned_reclaim.c - pinned memory goes back to the driver: because memory is out,
 * because a limit says so, because the program asks; and the end of a context.
 *
 * Nothing waits here but for what a free of the same context would have waited for on
 * plain CUDA (NO NEW WAITS, fence.c): an allocation that is out of memory for epochs
 * that frees had closed when it began, for later work may be what waits for this very
 * thread.
 *
 * A block leaves its lists before the driver gets it. The driver's free waits for
 * the block's context, so only calls that may wait give back.
 */
#include "pinned_types.h"

int gcp_pinned_memory_give(struct gcp_pool *pool, void *p, uint64_t bytes)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	assert(atomic_load(&pinned->moving) >= bytes);
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
	GCP_LOCKED(&pinned->lock);
	return pinned->stats.allocations.current !=
	       pinned->stats.active_requests.current;
}

uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit)
{
	const struct gcp_pinned_block *block;
	uint64_t bytes = 0;

	GCP_LOCKED(&pool->pools->pinned->lock);
	for (struct gcp_pinned_bucket *bucket = pool->pinned_buckets; bucket;
	     bucket = bucket->older)
		TAILQ_FOREACH (block, &bucket->blocks, all)
			if (atomic_load(&block->state) == GCP_PINNED_FREED &&
			    !block->set)
				bytes += gcp_round_up(bucket->size, unit);
	return bytes;
}

/* The epoch of the pending block that was freed first, or latest; 0: there is none, or
 * no more than `most` bytes are pending. */
static uint64_t pending_epoch(struct gcp_pool *pool, bool latest, uint64_t most)
{
	const struct gcp_pinned_block *block;

	GCP_LOCKED(&pool->pools->pinned->lock);
	gcp_pinned_advance(pool);
	block = latest ? TAILQ_LAST(&pool->pinned_pending, gcp_pinned_list)
		       : TAILQ_FIRST(&pool->pinned_pending);
	return block && pool->pinned_pending_bytes > most ? block->epoch : 0;
}

/* --- looking and waiting -------------------------------------------------- */

void gcp_pinned_look(struct gcp_pool *pool)
{
	uint64_t epoch = pending_epoch(pool, true, 0);

	if (epoch == 0)
		return;
	(void)gcp_timeline_close_to_look(pool, epoch);
	(void)gcp_timeline_poll_all(pool);
}

static void look_within(void *arg)
{
	gcp_pinned_look(arg);
}

bool gcp_pinned_poll(struct gcp_pools *pools,
		     void (*within)(void *ctx, void (*step)(void *arg), void *arg))
{
	struct gcp_pool *pool = pools->pinned ? pools->first : NULL;
	bool pending = false;

	for (; pool; pool = pool->next) {
		if (pending_epoch(pool, false, 0) == 0 || !gcp_pool_pin(pool))
			continue;
		if (within)
			within(pool->ctx, look_within, pool);
		else
			gcp_pinned_look(pool);
		pending |= pending_epoch(pool, false, 0) != 0;
		gcp_pool_unpin(pool);
	}
	return pending;
}

int gcp_pinned_keep(struct gcp_pool *pool, uint64_t most, uint64_t epoch)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	uint64_t oldest;
	int result = 0;

	while (result == 0 && (oldest = pending_epoch(pool, false, most)) != 0 &&
	       oldest <= epoch) {
		gcp_pinned_count(pinned, &pinned->stats.waits);
		result = gcp_timeline_complete(pool, oldest, true);
		if (result == -EBUSY)
			result = gcp_pinned_finish_own(pool, 1);
	}
	return result > 0 ? result : 0;
}

void gcp_pinned_frees_wait(struct gcp_pools *pools, struct gcp_search *search)
{
	uint64_t epoch;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!gcp_pool_pin(pool))
			continue;
		while ((epoch = pending_epoch(pool, false, 0)) != 0 &&
		       gcp_timeline_wait_oldest(pool, search, epoch))
			;
		gcp_pool_unpin(pool);
	}
}

/* --- giving back ---------------------------------------------------------- */

struct giving {
	uint64_t wanted, given; /* bytes */
	uint64_t before;        /* only what was freed in a turn before that; 0: all */
	bool pending;           /* those that are not completed, too */
	int result;             /* the first error of the driver's free */
};

/* No thread destroys the context between the end of a block's record and its free: the
 * address could be another's by then. So the pool is pinned. */
static void release(struct gcp_pool *pool, struct giving *giving)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	uint64_t before = giving->before ? giving->before : UINT64_MAX;
	struct gcp_pinned_block *block;

	assert(atomic_load(&pool->pins) > 0);
	GCP_LOCKED(&pinned->lock);
	while (giving->given < giving->wanted &&
	       (block = gcp_pinned_spare(pool, before, giving->pending))) {
		uint64_t bytes = block->bucket->size;
		void *p = block->p;

		/* First: a quota sees it in one of the two. */
		atomic_fetch_add(&pinned->moving, bytes);
		gcp_pinned_block_release(block);
		gcp_mutex_unlock(&pinned->lock);
		int result = gcp_pinned_memory_give(pool, p, bytes);
		gcp_mutex_lock(&pinned->lock);
		giving->given += bytes;
		if (giving->result == 0)
			giving->result = result;
	}
}

void gcp_pinned_givers_wait(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	for (int i = 0;
	     pinned && i < GCP_WAIT_LIMIT && atomic_load(&pinned->moving) > 0; i++)
		gcp_backoff();
}

uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes, bool idle)
{
	struct gcp_pool *pool = pinned->pools->first;
	struct giving giving = {.wanted = bytes};

	for (; pool && giving.given < bytes; pool = pool->next) {
		if (!gcp_pool_pin(pool))
			continue;
		if (gcp_pinned_unused_own(pool, 1) > 0 &&
		    (!idle || gcp_timeline_is_idle(pool)))
			release(pool, &giving);
		gcp_pool_unpin(pool);
	}
	return giving.given;
}

int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct giving giving = {.wanted = bytes, .pending = true};
	struct gcp_real_free begun;

	assert(bytes > 0);
	if (!gcp_pool_pin(pool))
		return -EAGAIN;
	begun = gcp_real_free_begin(pool);
	release(pool, &giving);
	if (giving.given == 0) /* nothing is done by it: it counts on */
		(void)gcp_timeline_fill(pool, begun.filled, 0);
	if (giving.result == 0)
		giving.result =
		    giving.given > 0 ? gcp_real_free_end(pool, &begun, true) : -EAGAIN;
	gcp_pool_unpin(pool);
	return giving.result;
}

/* Looks, and where that helps nothing waits; idle: no more than one of the two finds.
 */
uint64_t gcp_pinned_trim(struct gcp_pools *pools, uint64_t keep_bytes, bool idle)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct gcp_search search = {0};
	uint64_t unused = 0, sum = 0;

	if (pinned) {
		GCP_LOCKED(&pinned->lock);
		unused = pinned->unused;
	}
	if (unused <= keep_bytes)
		return 0;
	unused -= keep_bytes;
	for (int i = 0; i < 2 && sum < (idle ? 1 : unused); i++) {
		if (i > 0)
			gcp_pinned_frees_wait(pools, &search);
		(void)gcp_pinned_poll(pools, NULL);
		sum += gcp_pinned_release(pinned, unused - sum, idle);
	}
	return sum;
}

int gcp_pinned_decay(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_maintenance *turns = &pool->pinned_turns;
	struct giving giving = {.wanted = UINT64_MAX};
	uint64_t now = pools->driver.clock_ns();

	if (!pools->pinned || gcp_timeline_is_held(&pool->timeline) ||
	    !gcp_turn_is_over(pools, turns, now) || !gcp_pool_pin(pool))
		return 0;
	gcp_mutex_lock(&pools->pinned->lock);
	if (gcp_turn_is_over(pools, turns, now)) { /* else another was faster */
		atomic_store_explicit(&turns->turned_ns, now, memory_order_relaxed);
		giving.before = turns->turn++;
	}
	gcp_mutex_unlock(&pools->pinned->lock);
	if (giving.before > 0) {
		(void)gcp_timeline_poll_all(pool);
		release(pool, &giving);
	}
	gcp_pool_unpin(pool);
	return giving.result;
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
	gcp_mutex_lock(&pinned->lock);
	uint64_t over = gcp_pinned_over_limit(pinned);
	gcp_mutex_unlock(&pinned->lock);
	(void)gcp_pinned_release(pinned, over, true);
}

/* --- the end of a context ------------------------------------------------- */

void gcp_pinned_reset(struct gcp_pool *pool)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	struct gcp_pinned_block *block;

	if (!pinned)
		return;
	GCP_LOCKED(&pinned->lock);
	while ((block = gcp_pinned_spare(pool, UINT64_MAX, true)))
		gcp_pinned_block_release(block);
	for (struct gcp_pinned_bucket *bucket = pool->pinned_buckets; bucket;
	     bucket = bucket->older)
		while ((block = TAILQ_FIRST(&bucket->blocks))) {
			if (atomic_load(&block->state) == GCP_PINNED_USED)
				gcp_pinned_block_count(block, -1);
			gcp_pinned_block_detach(block);
			gcp_pinned_block_release(block);
		}
}
