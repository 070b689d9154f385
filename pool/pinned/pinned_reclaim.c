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
	gcp_pinned_lock(pinned);
	bool has =
	    pinned->stats.allocations.current != pinned->stats.active_requests.current;
	gcp_pinned_unlock(pinned);
	return has;
}

struct unused {
	const struct gcp_pool *own;
	uint64_t unit, bytes;
};

static void unused_count(struct gcp_pinned_bucket *bucket, void *arg)
{
	const struct gcp_pinned_block *block;
	struct unused *unused = arg;

	if (bucket->pool != unused->own)
		return;
	TAILQ_FOREACH (block, &bucket->blocks, all)
		if (atomic_load(&block->state) == GCP_PINNED_FREED)
			unused->bytes += gcp_round_up(bucket->size, unused->unit);
}

uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit)
{
	struct unused unused = {.own = pool, .unit = unit};

	gcp_pinned_buckets_for_each(pool->pools->pinned, unused_count, &unused);
	return unused.bytes;
}

/* --- giving back ---------------------------------------------------------- */

struct giving {
	const struct gcp_pool *own; /* NULL: of every context */
	uint64_t wanted, given;     /* bytes */
	bool pending;               /* those that are not ready, too */
	uint64_t idle; /* only of contexts where this epoch is ready: no free waits */
	int result;    /* the first error of the driver's free */
};

/* Where fences do not work the driver's free does the waiting, as ever. */
static void release_bucket(struct gcp_pinned_bucket *bucket, void *arg)
{
	struct gcp_pool *pool = bucket->pool;
	struct gcp_pinned *pinned = pool->pools->pinned;
	struct gcp_pinned_block *block;
	struct giving *giving = arg;

	if ((giving->own && giving->own != pool) ||
	    !gcp_pinned_epoch_ready(pool, giving->idle))
		return;
	/* No thread destroys the context between the end of a block's record and its
	 * free: the address could be another's by then. */
	if (!gcp_pool_pin(pool))
		return;
	while (giving->given < giving->wanted &&
	       (block = gcp_pinned_bucket_spare(
		    bucket, giving->pending || atomic_load(&pinned->off)))) {
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
	gcp_pinned_buckets_for_each(pools->pinned, release_bucket, &giving);
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

int gcp_pinned_release_own(struct gcp_pool *pool, uint64_t bytes)
{
	return release(pool->pools, (struct giving){.own = pool, .wanted = bytes})
	    .result;
}

int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct giving giving = {.own = pool, .wanted = bytes, .pending = true};
	uint64_t epoch = gcp_pinned_timeline_leave(pool);

	giving = release(pool->pools, giving);
	if (giving.given > 0 && giving.result == 0)
		gcp_pinned_timeline_left(pool, epoch);
	return giving.result;
}

void gcp_pinned_frees_wait(struct gcp_pools *pools, const struct gcp_pool *own)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (!own || own == pool)
			(void)gcp_pinned_timeline_wait(
			    pool, atomic_load(&pool->pinned_freed));
}

/* Of contexts that are idle, where no free of the driver's waits. */
uint64_t gcp_pinned_release_idle(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	uint64_t given = 0;

	for (int i = 0; i < 2 && given == 0 && gcp_pinned_has_unused(pools); i++) {
		if (i > 0)
			gcp_pinned_frees_wait(pools, NULL);
		given = gcp_pinned_release(pinned, UINT64_MAX,
					   gcp_pinned_timeline_look(pinned));
	}
	return given;
}

/* Beyond twice what was ever in use at once, and a window: sizes that do not come again
 * would add up. */
uint64_t gcp_pinned_over_limit(const struct gcp_pinned *pinned)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint64_t most = 2 * pinned->stats.active_bytes.peak + config->pinned_window;
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
	uint64_t over;

	if (!pinned)
		return;
	gcp_pinned_lock(pinned);
	over = gcp_pinned_over_limit(pinned);
	gcp_pinned_unlock(pinned);
	if (over > 0)
		(void)gcp_pinned_release(pinned, over,
					 gcp_pinned_timeline_look(pinned));
}

uint64_t gcp_pinned_trim(struct gcp_pools *pools, uint64_t keep_bytes)
{
	struct gcp_pinned *pinned = pools->pinned;
	uint64_t over = 0, given = 0;

	if (!pinned)
		return 0;
	gcp_pinned_lock(pinned);
	if (pinned->unused > keep_bytes)
		over = pinned->unused - keep_bytes;
	gcp_pinned_unlock(pinned);
	for (int i = 0; i < 2 && given < over && gcp_pinned_has_unused(pools); i++) {
		if (i > 0)
			gcp_pinned_frees_wait(pools, NULL);
		else
			(void)gcp_pinned_timeline_look(pinned);
		given += gcp_pinned_release(pinned, over - given, 0);
	}
	return given;
}

/* --- the end of a context ------------------------------------------------- */

static void bucket_reset(struct gcp_pinned_bucket *bucket, void *pool)
{
	struct gcp_pinned_block *block;

	if (bucket->pool != pool)
		return;
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
	atomic_store(&pinned->off, false); /* a fence that fails still says so */
	gcp_pinned_buckets_for_each(pinned, bucket_reset, pool);
}
