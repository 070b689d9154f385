/* SPDX-License-Identifier: MIT */
/*
 * pinned_bucket.c - the records of pinned memory: sizes, buckets, blocks.
 *
 * There is a bucket for each context, class (the flags of cuMemHostAlloc), place (NUMA:
 * see host_place in driver_table.h) and size that the program has used. So a block is
 * only ever given to a request of its own kind: what is written through, mapped, or
 * near a processor stays so.
 *
 * Called by pinned.c, pinned_set.c and pinned_reclaim.c, with pinned->lock held. Calls
 * no driver function.
 */
#include "pinned_types.h"

/* --- sizes and buckets ---------------------------------------------------- */

/* Powers of two as far as there are size classes, then as many steps of equal size for
 * each power as these have: a power of two wastes up to half of what is large
 * (PyTorch's most frequent complaint about pinned memory). */
static uint64_t size_of(const struct gcp_config *config, uint64_t bytes)
{
	uint64_t power = GCP_UNIT, below, step;

	if (bytes > GCP_UNIT)
		power = 1ull << (64 - __builtin_clzll(bytes - 1)); /* not below bytes */
	if (bytes <= config->class_max)
		return power;
	below = power / 2;
	step = (below + config->class_steps - 1) / config->class_steps;
	return below + gcp_round_up(bytes - below, gcp_round_up(step, GCP_UNIT));
}

struct gcp_pinned_bucket *gcp_pinned_bucket_get(struct gcp_pool *pool, uint64_t bytes,
						uint32_t flags, uint32_t place)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	uint64_t size = size_of(&pool->pools->config, bytes);
	uint64_t key = (((uintptr_t)pool >> 12) + size / GCP_UNIT) * 0x9e3779b97f4a7c15;
	struct gcp_pinned_bucket **list =
	    &pinned->buckets[key >> 32 & (GCP_PINNED_BUCKETS - 1)];
	struct gcp_pinned_bucket *bucket = *list;

	while (bucket && (bucket->size != size || bucket->flags != flags ||
			  bucket->pool != pool || bucket->place != place))
		bucket = bucket->next;
	if (__builtin_expect(bucket != NULL, 1))
		return bucket;
	bucket = gcp_descriptor_alloc(&pinned->bucket_descriptors);
	if (!bucket)
		return NULL;
	*bucket = (struct gcp_pinned_bucket){.pool = pool,
					     .size = size,
					     .flags = flags,
					     .place = place,
					     .next = *list,
					     .older = pool->pinned_buckets};
	TAILQ_INIT(&bucket->ready);
	TAILQ_INIT(&bucket->blocks);
	return *list = pool->pinned_buckets = bucket;
}

/* --- free blocks ---------------------------------------------------------- */

static void pending_remove(struct gcp_pool *pool, struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;

	gcp_assert_held(GCP_RANK_PINNED);
	assert(bucket->pool == pool && bucket->waiting > 0);
	TAILQ_REMOVE(&pool->pinned_pending, block, link);
	bucket->waiting--;
	pool->pinned_pending_bytes -= bucket->size;
}

void gcp_pinned_advance(struct gcp_pool *pool)
{
	struct gcp_pinned_block *block;

	while ((block = TAILQ_FIRST(&pool->pinned_pending)) &&
	       gcp_pinned_epoch_ready(pool, block->epoch)) {
		pending_remove(pool, block);
		TAILQ_INSERT_HEAD(&block->bucket->ready, block, link);
	}
}

struct gcp_pinned_block *gcp_pinned_bucket_take(struct gcp_pinned_bucket *bucket)
{
	struct gcp_pinned_block *block;

	if (TAILQ_EMPTY(&bucket->ready) && bucket->waiting > 0)
		gcp_pinned_advance(bucket->pool);
	block = TAILQ_FIRST(&bucket->ready);
	if (__builtin_expect(!block, 0))
		return NULL;
	assert(atomic_load(&block->state) == GCP_PINNED_FREED && !block->set);
	assert(gcp_pinned_epoch_ready(bucket->pool, block->epoch)); /* E3 */
	TAILQ_REMOVE(&bucket->ready, block, link);
	bucket->pool->pools->pinned->unused -= bucket->size;
	return block;
}

struct gcp_pinned_block *gcp_pinned_spare(struct gcp_pool *pool, uint64_t before,
					  bool pending)
{
	struct gcp_pinned_bucket *bucket = pool->pinned_buckets;
	struct gcp_pinned_block *block = NULL;

	gcp_pinned_advance(pool);
	for (; bucket && !block; bucket = bucket->older) {
		block = TAILQ_LAST(&bucket->ready, gcp_pinned_list);
		if (block && block->turn >= before)
			block = NULL;
	}
	if (block) {
		TAILQ_REMOVE(&block->bucket->ready, block, link);
	} else if (pending && (block = TAILQ_FIRST(&pool->pinned_pending))) {
		pending_remove(pool, block);
	}
	if (block)
		pool->pools->pinned->unused -= block->bucket->size;
	return block;
}

/* --- blocks --------------------------------------------------------------- */

void gcp_pinned_block_count(const struct gcp_pinned_block *block, int64_t sign)
{
	struct gcp_pinned *pinned = block->bucket->pool->pools->pinned;

	gcp_assert_held(GCP_RANK_PINNED);
	gcp_gauge_add(&pinned->stats.active_requests, sign);
	gcp_gauge_add(&pinned->stats.active_bytes, sign * (int64_t)block->bucket->size);
	gcp_gauge_add(&pinned->stats.requested_bytes, sign * (int64_t)block->requested);
	if (pinned->most < pinned->stats.active_bytes.current)
		pinned->most = pinned->stats.active_bytes.current;
}

void gcp_pinned_block_detach(struct gcp_pinned_block *block)
{
	struct gcp_pinned_set *set = block->set;

	gcp_assert_held(GCP_RANK_PINNED);
	if (!set)
		return;
	LIST_REMOVE(block, kept);
	block->set = NULL;
	gcp_gauge_add(&set->pinned->stats.private_bytes, -(int64_t)block->bucket->size);
}

void gcp_pinned_block_use(struct gcp_pinned_block *block, uint64_t requested,
			  struct gcp_pinned_set *set)
{
	struct gcp_pinned *pinned = block->bucket->pool->pools->pinned;

	gcp_assert_held(GCP_RANK_PINNED);
	assert(!block->set);
	block->requested = requested;
	block->set = set;
	if (set) {
		LIST_INSERT_HEAD(&set->blocks, block, kept);
		gcp_gauge_add(&pinned->stats.private_bytes,
			      (int64_t)block->bucket->size);
	}
	gcp_pinned_block_count(block, 1);
	atomic_store_explicit(&block->state, GCP_PINNED_USED, memory_order_release);
}

void gcp_pinned_block_unuse(struct gcp_pinned_block *block)
{
	assert(atomic_load(&block->state) == GCP_PINNED_USED);
	gcp_pinned_block_count(block, -1);
	atomic_store_explicit(&block->state, GCP_PINNED_FREED, memory_order_relaxed);
	if (!block->set)
		gcp_pinned_block_put(block);
}

void gcp_pinned_block_put(struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;
	struct gcp_pool *pool = bucket->pool;
	struct gcp_pinned *pinned = pool->pools->pinned;
	const struct gcp_pinned_block *before;

	gcp_assert_held(GCP_RANK_PINNED);
	assert(!block->set && atomic_load(&block->state) == GCP_PINNED_FREED);
	block->epoch = gcp_timeline_stamp(pool); /* E1 */
	block->turn = pool->pinned_turns.turn;
	before = TAILQ_LAST(&pool->pinned_pending, gcp_pinned_list);
	assert(!before || before->epoch <= block->epoch);
	TAILQ_INSERT_TAIL(&pool->pinned_pending, block, link);
	bucket->waiting++;
	pinned->unused += bucket->size;
	pool->pinned_pending_bytes += bucket->size;
}

int gcp_pinned_block_create(struct gcp_pinned_bucket *bucket, void *p,
			    struct gcp_pinned_block **ret_block)
{
	struct gcp_pinned *pinned = bucket->pool->pools->pinned;
	struct gcp_pinned_block *block =
	    gcp_descriptor_alloc(&pinned->block_descriptors);
	int result;

	gcp_assert_held(GCP_RANK_PINNED);
	if (!block)
		return -ENOMEM;
	block->p = p;
	block->bucket = bucket;
	block->set = NULL;
	result = gcp_map_set(pinned->map, (gcp_addr)(uintptr_t)p, block);
	if (result != 0) {
		gcp_descriptor_free(&pinned->block_descriptors, block);
		return result;
	}
	TAILQ_INSERT_TAIL(&bucket->blocks, block, all);
	gcp_gauge_add(&pinned->stats.allocations, 1);
	gcp_gauge_add(&pinned->stats.allocated_bytes, (int64_t)bucket->size);
	*ret_block = block;
	return 0;
}

void gcp_pinned_block_release(struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;
	struct gcp_pinned *pinned = bucket->pool->pools->pinned;

	gcp_assert_held(GCP_RANK_PINNED);
	gcp_map_clear(pinned->map, (gcp_addr)(uintptr_t)block->p, block);
	atomic_store(&block->state, GCP_PINNED_RELEASED);
	TAILQ_REMOVE(&bucket->blocks, block, all);
	gcp_gauge_add(&pinned->stats.allocations, -1);
	gcp_gauge_add(&pinned->stats.allocated_bytes, -(int64_t)bucket->size);
	gcp_descriptor_free(&pinned->block_descriptors, block);
}
