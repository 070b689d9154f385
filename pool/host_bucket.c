/*
 * host_bucket.c - the books of pinned memory: sizes, shelves, buckets, blocks.
 *
 * Each context has a shelf for each class (the flags of cuMemHostAlloc) and each
 * place (NUMA: see host_place in driver.h) that it has used, and a shelf has a bucket
 * for each size. So a block is only ever given to a request of its own kind: what is
 * written through, mapped, or near a processor stays so.
 *
 * Called by host.c, host_keep.c and host_reclaim.c. Calls no driver function.
 */
#include "host_types.h"

#include <sys/mman.h>

/* --- sizes ---------------------------------------------------------------------------
 */

/* Powers of two up to host_pow2_max, then host_steps of equal size for each power:
 * a power of two wastes up to half of what is large (PyTorch's most frequent
 * complaint about pinned memory). */
enum { UNIT_POWER = 9 };
static_assert(GCP_UNIT == 1 << UNIT_POWER, "the smallest class is one unit");

static uint64_t step_of(const struct gcp_config *config, uint32_t power)
{
	uint64_t step = ((1ull << power) + config->host_steps - 1) / config->host_steps;

	return gcp_round_up(step, GCP_UNIT);
}

uint32_t gcp_host_class_of(const struct gcp_host *host, uint64_t bytes)
{
	const struct gcp_config *config = &host->pools->config;
	uint32_t power = UNIT_POWER; /* of two, not below `bytes` */
	uint64_t over;

	if (bytes > GCP_UNIT)
		power = 64 - (uint32_t)__builtin_clzll(bytes - 1);
	if (bytes <= config->host_pow2_max)
		return power - UNIT_POWER;
	power--;
	over = bytes - (1ull << power);
	return host->pow2_count +
	       (power + 1 - UNIT_POWER - host->pow2_count) * config->host_steps +
	       (uint32_t)((over - 1) / step_of(config, power));
}

uint64_t gcp_host_class_size(const struct gcp_host *host, uint32_t class)
{
	const struct gcp_config *config = &host->pools->config;
	uint32_t power, step;

	if (class < host->pow2_count)
		return 1ull << (class + UNIT_POWER);
	power = (class - host->pow2_count) / config->host_steps + host->pow2_count +
		UNIT_POWER - 1;
	step = (class - host->pow2_count) % config->host_steps + 1;
	return (1ull << power) + step * step_of(config, power);
}

/* --- the map
 * -------------------------------------------------------------------------- */

/* A map of its own: cuMemFree must not take a pinned block for one of the device.
 * The entries are ours, so the type in between does not matter. */
static int map_set(struct gcp_host *host, struct gcp_host_block *block)
{
	gcp_addr addr = (gcp_addr)(uintptr_t)block->p;

	if (addr % GCP_UNIT != 0)
		return -ERANGE;
	return gcp_map_set(host->map, addr, (struct gcp_block *)(void *)block);
}

struct gcp_host_block *gcp_host_block_find(struct gcp_host *host, const void *p)
{
	return (void *)gcp_map_find(host->map, (gcp_addr)(uintptr_t)p);
}

/* --- shelves
 * ---------------------------------------------------------------------------- */

static struct gcp_host_shelf *shelf_find(struct gcp_pool *pool, uint32_t flags,
					 uint32_t place)
{
	struct gcp_host_shelf *shelf =
	    atomic_load_explicit(&pool->host_shelves, memory_order_acquire);

	while (shelf && (shelf->flags != flags || shelf->place != place))
		shelf = atomic_load_explicit(&shelf->next, memory_order_acquire);
	return shelf;
}

static struct gcp_host_shelf *shelf_create(struct gcp_pool *pool, uint32_t flags,
					   uint32_t place)
{
	const struct gcp_host *host = pool->pools->host;
	size_t bytes = sizeof(struct gcp_host_shelf) +
		       host->class_count * sizeof(struct gcp_host_bucket);
	int saved = errno;
	struct gcp_host_shelf *shelf = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	errno = saved;
	if (shelf == MAP_FAILED)
		return NULL;
	shelf->pool = pool;
	shelf->flags = flags;
	shelf->place = place;
	shelf->map_bytes = bytes;
	for (uint32_t i = 0; i < host->class_count; i++) {
		struct gcp_host_bucket *bucket = &shelf->buckets[i];

		bucket->shelf = shelf;
		bucket->size = gcp_host_class_size(host, i);
		TAILQ_INIT(&bucket->ready);
		TAILQ_INIT(&bucket->pending);
		TAILQ_INIT(&bucket->blocks);
	}
	return shelf;
}

static struct gcp_host_shelf *shelf_make(struct gcp_pool *pool, uint32_t flags,
					 uint32_t place)
{
	struct gcp_host *host = pool->pools->host;
	struct gcp_host_shelf *shelf;

	pthread_mutex_lock(&host->lock);
	shelf = shelf_find(pool, flags, place);
	if (!shelf) {
		shelf = shelf_create(pool, flags, place);
		if (shelf) {
			atomic_store(&shelf->next, atomic_load(&pool->host_shelves));
			atomic_store_explicit(&pool->host_shelves, shelf,
					      memory_order_release);
		}
	}
	pthread_mutex_unlock(&host->lock);
	return shelf;
}

struct gcp_host_bucket *gcp_host_bucket_get(struct gcp_pool *pool, uint64_t bytes,
					    uint32_t flags, uint32_t place)
{
	struct gcp_host_shelf *shelf = shelf_find(pool, flags, place);
	uint32_t class = gcp_host_class_of(pool->pools->host, bytes);

	if (class >= pool->pools->host->class_count)
		return NULL;
	if (!shelf)
		shelf = shelf_make(pool, flags, place);
	return shelf ? &shelf->buckets[class] : NULL;
}

void gcp_host_buckets_visit(struct gcp_pools *pools,
			    void (*visit)(struct gcp_host_bucket *bucket, void *arg),
			    void *arg)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		for (struct gcp_host_shelf *shelf = pool->host_shelves; shelf;
		     shelf = shelf->next)
			for (uint32_t i = 0; i < pools->host->class_count; i++)
				visit(&shelf->buckets[i], arg);
}

/* --- buckets
 * ------------------------------------------------------------------------------
 */

static struct gcp_host *host_of(const struct gcp_host_bucket *bucket)
{
	return bucket->shelf->pool->pools->host;
}

/* Under the lock: moves what is completed to where it can be taken. */
static void advance(struct gcp_host_bucket *bucket)
{
	const struct gcp_host *host = host_of(bucket);
	struct gcp_host_block *block;

	while ((block = TAILQ_FIRST(&bucket->pending)) &&
	       gcp_host_page_ready(host, block->page)) {
		TAILQ_REMOVE(&bucket->pending, block, link);
		TAILQ_INSERT_HEAD(&bucket->ready, block, link);
	}
}

struct gcp_host_block *gcp_host_bucket_take(struct gcp_host_bucket *bucket,
					    uint64_t requested, uint64_t *ret_page)
{
	struct gcp_host_block *block;

	gcp_spin_lock(&bucket->lock);
	if (TAILQ_EMPTY(&bucket->ready))
		advance(bucket);
	block = TAILQ_FIRST(&bucket->ready);
	if (__builtin_expect(block != NULL, 1)) {
		TAILQ_REMOVE(&bucket->ready, block, link);
		block->rest = GCP_HOST_IN_HAND;
		bucket->taken++;
		bucket->taken_bytes += requested;
	} else {
		block = TAILQ_FIRST(&bucket->pending);
		*ret_page = block ? block->page : 0;
		block = NULL;
	}
	gcp_spin_unlock(&bucket->lock);
	return block;
}

static void count_given(struct gcp_host_bucket *bucket, struct gcp_host_block *block)
{
	bucket->given++;
	bucket->given_bytes += block->requested;
}

/* Under the lock. Its context may have gone while it was in hand, and the memory
 * with it. */
static void put(struct gcp_host_bucket *bucket, struct gcp_host_block *block)
{
	if (__builtin_expect(block->life !=
				 atomic_load_explicit(&bucket->shelf->pool->host_life,
						      memory_order_relaxed),
			     0)) {
		gcp_host_block_retire(block);
		return;
	}
	block->rest = GCP_HOST_IN_BUCKET;
	TAILQ_INSERT_TAIL(&bucket->pending, block, link);
}

void gcp_host_bucket_count_given(struct gcp_host_block *block)
{
	gcp_spin_lock(&block->bucket->lock);
	count_given(block->bucket, block);
	gcp_spin_unlock(&block->bucket->lock);
}

void gcp_host_bucket_give(struct gcp_host_block *block)
{
	struct gcp_host_bucket *bucket = block->bucket;

	gcp_spin_lock(&bucket->lock);
	count_given(bucket, block);
	put(bucket, block);
	gcp_spin_unlock(&bucket->lock);
}

void gcp_host_bucket_put(struct gcp_host_block *block)
{
	struct gcp_host_bucket *bucket = block->bucket;

	gcp_spin_lock(&bucket->lock);
	put(bucket, block);
	gcp_spin_unlock(&bucket->lock);
}

/* --- blocks
 * --------------------------------------------------------------------------------
 */

int gcp_host_block_create(struct gcp_host_bucket *bucket, void *p, uint64_t life,
			  uint64_t requested, struct gcp_host_block **ret_block)
{
	struct gcp_host *host = host_of(bucket);
	struct gcp_host_block *block = gcp_meta_take(&host->block_meta);
	int result;

	if (!block)
		return -ENOMEM;
	block->p = p;
	block->size = bucket->size;
	block->bucket = bucket;
	block->life = life;
	block->page = GCP_PAGE_FRESH;
	block->rest = GCP_HOST_IN_HAND;
	atomic_store(&block->keep, NULL);
	atomic_store(&block->state, GCP_HOST_FREED);
	result = map_set(host, block);
	if (result != 0) {
		atomic_store(&block->state, GCP_HOST_RETIRED);
		gcp_meta_give(&host->block_meta, block);
		return result;
	}
	gcp_spin_lock(&bucket->lock);
	TAILQ_INSERT_TAIL(&bucket->blocks, block, all);
	bucket->count++;
	bucket->taken++;
	bucket->taken_bytes += requested;
	gcp_spin_unlock(&bucket->lock);
	gcp_host_gauge_add(&host->allocations, 1);
	gcp_host_gauge_add(&host->allocated_bytes, block->size);
	atomic_fetch_add_explicit(&host->added, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&host->added_bytes, block->size,
				  memory_order_relaxed);
	*ret_block = block;
	return 0;
}

void gcp_host_block_retire(struct gcp_host_block *block)
{
	struct gcp_host_bucket *bucket = block->bucket;
	struct gcp_host *host = host_of(bucket);

	gcp_map_clear(host->map, (gcp_addr)(uintptr_t)block->p,
		      (struct gcp_block *)(void *)block);
	atomic_store(&block->state, GCP_HOST_RETIRED);
	TAILQ_REMOVE(&bucket->blocks, block, all);
	bucket->count--;
	gcp_host_gauge_sub(&host->allocations, 1);
	gcp_host_gauge_sub(&host->allocated_bytes, block->size);
	atomic_fetch_add_explicit(&host->gone, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&host->gone_bytes, block->size, memory_order_relaxed);
	gcp_meta_give(&host->block_meta, block);
}
