/* SPDX-License-Identifier: MIT */
/*
 * pinned_bucket.c - the records of pinned memory: sizes, arenas, buckets, blocks.
 *
 * Each context has an arena for each class (the flags of cuMemHostAlloc) and each
 * place (NUMA: see host_place in driver_table.h) that it has used, and an arena has a
 * bucket for each size. So a block is only ever given to a request of its own kind:
 * what is written through, mapped, or near a processor stays so.
 *
 * Called by pinned.c, pinned_set.c and pinned_reclaim.c. Calls no driver function.
 */
#include "pinned_types.h"

/* --- sizes ---------------------------------------------------------------- */

/* Powers of two up to pinned_pow2_max, then pinned_steps of equal size for each power:
 * a power of two wastes up to half of what is large (PyTorch's most frequent
 * complaint about pinned memory). */
enum { UNIT_POWER = 9 };
static_assert(GCP_UNIT == 1 << UNIT_POWER, "the smallest class is one unit");

static uint64_t step_of(const struct gcp_config *config, uint32_t power)
{
	uint64_t step =
	    ((1ull << power) + config->pinned_steps - 1) / config->pinned_steps;

	return gcp_round_up(step, GCP_UNIT);
}

uint32_t gcp_pinned_class_of(const struct gcp_pinned *pinned, uint64_t bytes)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint32_t power = UNIT_POWER; /* of two, not below `bytes` */
	uint64_t over;

	if (bytes > GCP_UNIT)
		power = 64 - (uint32_t)__builtin_clzll(bytes - 1);
	if (bytes <= config->pinned_pow2_max)
		return power - UNIT_POWER;
	power--;
	over = bytes - (1ull << power);
	return pinned->pow2_count +
	       (power + 1 - UNIT_POWER - pinned->pow2_count) * config->pinned_steps +
	       (uint32_t)((over - 1) / step_of(config, power));
}

static uint64_t class_size(const struct gcp_pinned *pinned, uint32_t class)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint32_t power, step;

	if (class < pinned->pow2_count)
		return 1ull << (class + UNIT_POWER);
	power = (class - pinned->pow2_count) / config->pinned_steps +
		pinned->pow2_count + UNIT_POWER - 1;
	step = (class - pinned->pow2_count) % config->pinned_steps + 1;
	return (1ull << power) + step * step_of(config, power);
}

/* --- the map -------------------------------------------------------------- */

/* A map of its own: cuMemFree must not take a pinned block for one of the device.
 * The entries are ours, so the type in between does not matter. */
static int map_set(struct gcp_pinned *pinned, struct gcp_pinned_block *block)
{
	gcp_addr addr = (gcp_addr)(uintptr_t)block->p;

	if (addr % GCP_UNIT != 0)
		return -ERANGE;
	return gcp_map_set(pinned->map, addr, (struct gcp_block *)(void *)block);
}

struct gcp_pinned_block *gcp_pinned_block_find(struct gcp_pinned *pinned, const void *p)
{
	return (void *)gcp_map_find(pinned->map, (gcp_addr)(uintptr_t)p);
}

/* --- arenas -------------------------------------------------------------- */

static struct gcp_pinned_arena *arena_find(struct gcp_pool *pool, uint32_t flags,
					   uint32_t place)
{
	struct gcp_pinned_arena *arena =
	    atomic_load_explicit(&pool->pinned_arenas, memory_order_acquire);

	while (arena && (arena->flags != flags || arena->place != place))
		arena = atomic_load_explicit(&arena->next, memory_order_acquire);
	return arena;
}

static struct gcp_pinned_arena *arena_create(struct gcp_pool *pool, uint32_t flags,
					     uint32_t place)
{
	const struct gcp_pinned *pinned = pool->pools->pinned;
	size_t bytes = sizeof(struct gcp_pinned_arena) +
		       pinned->class_count * sizeof(struct gcp_pinned_bucket);
	struct gcp_pinned_arena *arena = gcp_zeroed_map(bytes);

	if (!arena)
		return NULL;
	arena->pool = pool;
	arena->flags = flags;
	arena->place = place;
	arena->map_bytes = bytes;
	for (uint32_t i = 0; i < pinned->class_count; i++) {
		struct gcp_pinned_bucket *bucket = &arena->buckets[i];

		bucket->arena = arena;
		bucket->size = class_size(pinned, i);
		TAILQ_INIT(&bucket->ready);
		TAILQ_INIT(&bucket->pending);
		TAILQ_INIT(&bucket->blocks);
	}
	return arena;
}

static struct gcp_pinned_arena *arena_make(struct gcp_pool *pool, uint32_t flags,
					   uint32_t place)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	struct gcp_pinned_arena *arena;

	gcp_mutex_lock(&pinned->lock);
	arena = arena_find(pool, flags, place);
	if (!arena) {
		arena = arena_create(pool, flags, place);
		if (arena) {
			atomic_store(&arena->next, atomic_load(&pool->pinned_arenas));
			atomic_store_explicit(&pool->pinned_arenas, arena,
					      memory_order_release);
		}
	}
	gcp_mutex_unlock(&pinned->lock);
	return arena;
}

struct gcp_pinned_bucket *gcp_pinned_bucket_get(struct gcp_pool *pool, uint64_t bytes,
						uint32_t flags, uint32_t place)
{
	struct gcp_pinned_arena *arena = arena_find(pool, flags, place);
	uint32_t class = gcp_pinned_class_of(pool->pools->pinned, bytes);

	if (class >= pool->pools->pinned->class_count)
		return NULL;
	if (!arena)
		arena = arena_make(pool, flags, place);
	return arena ? &arena->buckets[class] : NULL;
}

void gcp_pinned_buckets_for_each(struct gcp_pools *pools,
				 void (*each)(struct gcp_pinned_bucket *bucket,
					      void *arg),
				 void *arg)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		for (struct gcp_pinned_arena *arena = pool->pinned_arenas; arena;
		     arena = arena->next)
			for (uint32_t i = 0; i < pools->pinned->class_count; i++)
				each(&arena->buckets[i], arg);
}

/* --- buckets -------------------------------------------------------------- */

static struct gcp_pinned *pinned_of(const struct gcp_pinned_bucket *bucket)
{
	return bucket->arena->pool->pools->pinned;
}

/* Under the lock: moves what is completed to where it can be taken. */
static void advance(struct gcp_pinned_bucket *bucket)
{
	const struct gcp_pool *pool = bucket->arena->pool;
	struct gcp_pinned_block *block;

	while ((block = TAILQ_FIRST(&bucket->pending)) &&
	       gcp_pinned_epoch_ready(pool, block->epoch)) {
		TAILQ_REMOVE(&bucket->pending, block, link);
		TAILQ_INSERT_HEAD(&bucket->ready, block, link);
	}
}

struct gcp_pinned_block *gcp_pinned_bucket_take(struct gcp_pinned_bucket *bucket,
						uint64_t requested, uint64_t *ret_epoch)
{
	struct gcp_pinned_block *block;

	gcp_spin_lock(&bucket->lock);
	if (TAILQ_EMPTY(&bucket->ready))
		advance(bucket);
	block = TAILQ_FIRST(&bucket->ready);
	if (__builtin_expect(block != NULL, 1)) {
		assert(block->rest == GCP_PINNED_IN_BUCKET &&
		       !atomic_load(&block->set));
		assert(atomic_load(&block->state) == GCP_PINNED_FREED);
		TAILQ_REMOVE(&bucket->ready, block, link);
		block->rest = GCP_PINNED_IN_HAND;
		bucket->taken++;
		bucket->taken_bytes += requested;
	} else {
		block = TAILQ_FIRST(&bucket->pending);
		*ret_epoch = block ? block->epoch : 0;
		block = NULL;
	}
	gcp_spin_unlock(&bucket->lock);
	return block;
}

static void count_given(struct gcp_pinned_bucket *bucket,
			struct gcp_pinned_block *block)
{
	assert(bucket->given < bucket->taken);
	bucket->given++;
	bucket->given_bytes += block->requested;
}

/* Under the lock. Its context may have gone while it was in hand, and the memory
 * with it. */
static void put(struct gcp_pinned_bucket *bucket, struct gcp_pinned_block *block)
{
	if (__builtin_expect(
		block->generation !=
		    atomic_load_explicit(&bucket->arena->pool->pinned_generation,
					 memory_order_relaxed),
		0)) {
		gcp_pinned_block_release(block);
		return;
	}
	assert(block->rest == GCP_PINNED_IN_HAND && !atomic_load(&block->set));
	assert(atomic_load(&block->state) == GCP_PINNED_FREED);
	block->rest = GCP_PINNED_IN_BUCKET;
	TAILQ_INSERT_TAIL(&bucket->pending, block, link);
}

void gcp_pinned_bucket_count_given(struct gcp_pinned_block *block)
{
	gcp_spin_lock(&block->bucket->lock);
	count_given(block->bucket, block);
	gcp_spin_unlock(&block->bucket->lock);
}

void gcp_pinned_bucket_give(struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;

	gcp_spin_lock(&bucket->lock);
	count_given(bucket, block);
	put(bucket, block);
	gcp_spin_unlock(&bucket->lock);
}

void gcp_pinned_bucket_put(struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;

	gcp_spin_lock(&bucket->lock);
	put(bucket, block);
	gcp_spin_unlock(&bucket->lock);
}

/* --- blocks --------------------------------------------------------------- */

int gcp_pinned_block_create(struct gcp_pinned_bucket *bucket, void *p,
			    uint64_t generation, uint64_t requested,
			    struct gcp_pinned_block **ret_block)
{
	struct gcp_pinned *pinned = pinned_of(bucket);
	struct gcp_pinned_block *block =
	    gcp_descriptor_alloc(&pinned->block_descriptors);
	int result;

	if (!block)
		return -ENOMEM;
	block->p = p;
	block->size = bucket->size;
	block->bucket = bucket;
	block->generation = generation;
	block->epoch = GCP_EPOCH_FRESH;
	block->rest = GCP_PINNED_IN_HAND;
	atomic_store(&block->set, NULL);
	atomic_store(&block->state, GCP_PINNED_FREED);
	result = map_set(pinned, block);
	if (result != 0) {
		atomic_store(&block->state, GCP_PINNED_RELEASED);
		gcp_descriptor_free(&pinned->block_descriptors, block);
		return result;
	}
	gcp_spin_lock(&bucket->lock);
	TAILQ_INSERT_TAIL(&bucket->blocks, block, all);
	bucket->count++;
	bucket->taken++;
	bucket->taken_bytes += requested;
	gcp_spin_unlock(&bucket->lock);
	gcp_pinned_gauge_total(&pinned->allocations, 1);
	gcp_pinned_gauge_total(&pinned->allocated_bytes, block->size);
	*ret_block = block;
	return 0;
}

void gcp_pinned_block_release(struct gcp_pinned_block *block)
{
	struct gcp_pinned_bucket *bucket = block->bucket;
	struct gcp_pinned *pinned = pinned_of(bucket);

	gcp_map_clear(pinned->map, (gcp_addr)(uintptr_t)block->p,
		      (struct gcp_block *)(void *)block);
	assert(bucket->count > 0 && atomic_load(&block->state) == GCP_PINNED_FREED);
	atomic_store(&block->state, GCP_PINNED_RELEASED);
	TAILQ_REMOVE(&bucket->blocks, block, all);
	bucket->count--;
	gcp_pinned_gauge_sub(&pinned->allocations, 1);
	gcp_pinned_gauge_sub(&pinned->allocated_bytes, block->size);
	gcp_descriptor_free(&pinned->block_descriptors, block);
}
