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

	atomic_fetch_sub(&pinned->giving, bytes);
	atomic_fetch_add_explicit(&pinned->trims, 1, memory_order_relaxed);
	return result;
}

/* --- what there is to wait for -------------------------------------------- */

bool gcp_pinned_has_unused(struct gcp_pools *pools)
{
	const struct gcp_pinned *pinned = pools->pinned;

	return pinned && atomic_load_explicit(&pinned->allocated_bytes.current,
					      memory_order_relaxed) !=
			     atomic_load_explicit(&pinned->active_bytes.current,
						  memory_order_relaxed);
}

struct unused {
	const struct gcp_pool *own;
	uint64_t unit, bytes;
};

static void unused_count(struct gcp_pinned_bucket *bucket, void *arg)
{
	const struct gcp_pinned_block *block;
	struct unused *unused = arg;
	uint64_t size = gcp_round_up(bucket->size, unused->unit);

	if (bucket->arena->pool != unused->own)
		return;
	gcp_spin_lock(&bucket->lock);
	TAILQ_FOREACH (block, &bucket->pending, link)
		unused->bytes += size;
	TAILQ_FOREACH (block, &bucket->ready, link)
		unused->bytes += size;
	gcp_spin_unlock(&bucket->lock);
}

uint64_t gcp_pinned_unused_own(struct gcp_pool *pool, uint64_t unit)
{
	struct unused unused = {.own = pool, .unit = unit};

	gcp_pinned_buckets_for_each(pool->pools, unused_count, &unused);
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

/* Of ready ones the longest unused, and then what is ready by now. Where fences do not
 * work the driver's free does the waiting, as ever; and where `pending` says so. */
static struct gcp_pinned_block *least_wanted(struct gcp_pinned_bucket *bucket,
					     bool pending)
{
	const struct gcp_pool *pool = bucket->arena->pool;
	struct gcp_pinned_block *block = TAILQ_LAST(&bucket->ready, gcp_pinned_list);

	if (block) {
		TAILQ_REMOVE(&bucket->ready, block, link);
		return block;
	}
	block = TAILQ_FIRST(&bucket->pending);
	if (!block || (!gcp_pinned_epoch_ready(pool, block->epoch) && !pending &&
		       !atomic_load(&pool->pools->pinned->off)))
		return NULL;
	TAILQ_REMOVE(&bucket->pending, block, link);
	return block;
}

/* The memory of an unused block, off its list; NULL: there is none. */
static void *bucket_shrink(struct gcp_pinned_bucket *bucket, bool pending)
{
	void *p = NULL;

	gcp_spin_lock(&bucket->lock);
	struct gcp_pinned_block *block = least_wanted(bucket, pending);
	if (block) {
		p = block->p;
		block->rest = GCP_PINNED_IN_HAND;
		/* First: a quota sees it in one of the two. */
		atomic_fetch_add(&bucket->arena->pool->pools->pinned->giving,
				 bucket->size);
		gcp_pinned_block_release(block);
	}
	gcp_spin_unlock(&bucket->lock);
	return p;
}

static void release_bucket(struct gcp_pinned_bucket *bucket, void *arg)
{
	struct gcp_pool *pool = bucket->arena->pool;
	struct giving *giving = arg;
	void *p;

	if ((giving->own && giving->own != pool) ||
	    !gcp_pinned_epoch_ready(pool, giving->idle))
		return;
	/* No thread destroys the context between a block's detach and its free: the
	 * address could be another's by then. */
	if (!gcp_pool_pin(pool))
		return;
	while (giving->given < giving->wanted &&
	       (p = bucket_shrink(bucket, giving->pending))) {
		giving->given += bucket->size;
		int result = gcp_pinned_memory_give(pool, p, bucket->size);
		if (giving->result == 0)
			giving->result = result;
	}
	gcp_pool_unpin(pool);
}

void gcp_pinned_givers_wait(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	for (int i = 0;
	     pinned && i < GCP_WAIT_LIMIT && atomic_load(&pinned->giving) > 0; i++)
		gcp_backoff();
}

uint64_t gcp_pinned_release(struct gcp_pinned *pinned, uint64_t bytes, uint64_t idle)
{
	struct giving giving = {.wanted = bytes, .idle = idle};

	gcp_pinned_buckets_for_each(pinned->pools, release_bucket, &giving);
	return giving.given;
}

int gcp_pinned_release_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct giving giving = {.own = pool, .wanted = bytes};

	gcp_pinned_buckets_for_each(pool->pools, release_bucket, &giving);
	return giving.result;
}

int gcp_pinned_finish_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct giving giving = {.own = pool, .wanted = bytes, .pending = true};
	uint64_t epoch = gcp_pinned_timeline_leave(pool);

	gcp_pinned_buckets_for_each(pool->pools, release_bucket, &giving);
	if (giving.given > 0 && giving.result == 0)
		gcp_pinned_timeline_left(pool, epoch);
	return giving.result;
}

/* What frees would have waited for on plain CUDA, of every context. */
static void wait_for_frees(struct gcp_pools *pools)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		(void)gcp_pinned_timeline_wait(pool, atomic_load(&pool->pinned_freed));
}

/* Of contexts that are idle, where no free of the driver's waits. */
uint64_t gcp_pinned_release_idle(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!gcp_pinned_has_unused(pools))
		return 0;
	uint64_t given =
	    gcp_pinned_release(pinned, UINT64_MAX, gcp_pinned_timeline_look(pinned));
	if (given > 0 || !gcp_pinned_has_unused(pools))
		return given;
	wait_for_frees(pools);
	return gcp_pinned_release(pinned, UINT64_MAX, gcp_pinned_timeline_look(pinned));
}

/* In this order: what is allocated meanwhile is not taken for unused. */
static uint64_t unused_beyond(const struct gcp_pinned *pinned, uint64_t keep_bytes)
{
	uint64_t active = atomic_load(&pinned->active_bytes.current);
	uint64_t total = atomic_load(&pinned->allocated_bytes.current);
	uint64_t unused = total > active ? total - active : 0;

	return unused > keep_bytes ? unused - keep_bytes : 0;
}

/* Beyond twice what was ever in use at once, and a window: sizes that do not come again
 * would add up. */
uint64_t gcp_pinned_over_limit(const struct gcp_pinned *pinned)
{
	uint64_t limit = pinned->pools->config.pinned_cache_limit;
	uint64_t most = 2 * atomic_load(&pinned->active_bytes.peak) -
			atomic_load(&pinned->active_bytes.current) +
			pinned->pools->config.pinned_window;

	return unused_beyond(pinned, most < limit ? most : limit);
}

void gcp_pinned_keep_limit(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	uint64_t over = pinned ? gcp_pinned_over_limit(pinned) : 0;

	if (over > 0)
		(void)gcp_pinned_release(pinned, over,
					 gcp_pinned_timeline_look(pinned));
}

uint64_t gcp_pinned_trim(struct gcp_pools *pools, uint64_t keep_bytes)
{
	struct gcp_pinned *pinned = pools->pinned;
	uint64_t over = pinned ? unused_beyond(pinned, keep_bytes) : 0, given;

	if (over == 0)
		return 0;
	(void)gcp_pinned_timeline_look(pinned);
	given = gcp_pinned_release(pinned, over, 0);
	if (given < over && gcp_pinned_has_unused(pools)) {
		wait_for_frees(pools);
		given += gcp_pinned_release(pinned, over - given, 0);
	}
	return given;
}

/* --- the end of a context ------------------------------------------------- */

static void count_orphaned(struct gcp_pinned *pinned, struct gcp_pinned_block *block)
{
	gcp_pinned_gauge_sub(&pinned->active_requests, 1);
	gcp_pinned_gauge_sub(&pinned->active_bytes, block->size);
	gcp_pinned_gauge_sub(&pinned->requested_bytes, block->requested);
	block->bucket->given++;
	block->bucket->given_bytes += block->requested;
}

/* Both locks are held. A block that is on its way through another thread is left to
 * that thread, which finds that its life is over. */
static void block_detach(struct gcp_pinned *pinned, struct gcp_pinned_block *block)
{
	uint8_t used = GCP_PINNED_USED;

	gcp_assert_held(GCP_RANK_PINNED);
	gcp_pinned_set_detach(block);
	if (block->rest == GCP_PINNED_IN_HAND) {
		if (!atomic_compare_exchange_strong(&block->state, &used,
						    GCP_PINNED_FREED))
			return;
		count_orphaned(pinned, block);
	}
	gcp_pinned_block_release(block);
}

static void bucket_reset(struct gcp_pinned *pinned, struct gcp_pinned_bucket *bucket)
{
	struct gcp_pinned_block *block, *next;

	gcp_spin_lock(&bucket->lock);
	TAILQ_INIT(&bucket->ready);
	TAILQ_INIT(&bucket->pending);
	for (block = TAILQ_FIRST(&bucket->blocks); block; block = next) {
		next = TAILQ_NEXT(block, all);
		block_detach(pinned, block);
	}
	gcp_spin_unlock(&bucket->lock);
}

void gcp_pinned_reset(struct gcp_pool *pool)
{
	struct gcp_pinned *pinned = pool->pools->pinned;

	atomic_fetch_add(&pool->pinned_generation, 1);
	if (!pinned)
		return;
	atomic_store(&pinned->off, false); /* a fence that fails still says so */
	gcp_mutex_lock(&pinned->lock);
	for (struct gcp_pinned_arena *arena = pool->pinned_arenas; arena;
	     arena = arena->next)
		for (uint32_t i = 0; i < pinned->class_count; i++)
			bucket_reset(pinned, &arena->buckets[i]);
	gcp_mutex_unlock(&pinned->lock);
}
