/*
 * cache.c - what a thread keeps for itself: freed blocks of the classes, so
 * that the common allocation and free touch no shared state.
 *
 * A cache belongs to one thread and one pool. Its lock is there for those who
 * empty it (memory is out, statistics, the pool is dropped); the owner finds
 * it free. Blocks wait in magazines, one for each class, oldest first; each
 * carries its page, so a cached block is no more ready than any other.
 *
 * A cache is bounded in bytes (thread_cache_bytes) and, for each class, in
 * blocks (twice the window); what is beyond goes to the common heap. At thread
 * exit all of it does.
 */
#include "types.h"

#include <stdlib.h>

/* The calling thread's caches. Valid for the pools whose id it names. */
static __thread struct {
	uint64_t pools_id;
	struct gcp_cache *caches[GCP_POOL_SLOTS];
} mine __attribute__((tls_model("initial-exec")));

/* --- pages ---------------------------------------------------------------------- */

/* Counts a free into the thread's page. True: the page has taken enough to be
 * closed, so that a barrier at the end of the window waits for work of several
 * pages ago. */
static bool page_count(struct gcp_cache *cache, const struct gcp_block *block)
{
	if (cache->page != block->page) {
		struct gcp_window window = gcp_window_of_thread(cache->pool);

		cache->page = block->page;
		cache->page_blocks = 0;
		cache->page_bytes = 0;
		cache->page_blocks_full = window.page_blocks;
		cache->page_bytes_full = window.page_bytes;
	}
	cache->page_blocks++;
	cache->page_bytes += block->size;
	return cache->page_blocks >= cache->page_blocks_full ||
	       cache->page_bytes >= cache->page_bytes_full;
}

/* --- life ---------------------------------------------------------------------------
 */

static struct gcp_cache *cache_create(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	uint32_t count = pools->classes.count;
	struct gcp_cache *cache;

	cache = calloc(1, sizeof(*cache) + count * sizeof(cache->magazines[0]));
	if (!cache)
		return NULL;
	cache->pool = pool;
	for (uint32_t i = 0; i < count; i++)
		TAILQ_INIT(&cache->magazines[i].list);
	pthread_mutex_lock(&pools->registry_lock);
	TAILQ_INSERT_TAIL(&pools->caches, cache, link);
	pthread_mutex_unlock(&pools->registry_lock);
	atomic_fetch_add(&pool->cache_count, 1);
	return cache;
}

static struct gcp_cache *cache_find_or_create(struct gcp_pool *pool)
{
	int saved = errno;

	if (pool->pools->config.thread_cache_bytes == 0 || pool->slot < 0)
		return NULL;
	if (mine.pools_id != pool->pools->id) {
		memset(&mine, 0, sizeof(mine));
		mine.pools_id = pool->pools->id;
	}
	if (!mine.caches[pool->slot])
		mine.caches[pool->slot] = cache_create(pool);
	errno = saved;
	return mine.caches[pool->slot];
}

struct gcp_cache *gcp_cache_mine(struct gcp_pool *pool)
{
	if (__builtin_expect(mine.pools_id == pool->pools->id && pool->slot >= 0 &&
				 mine.caches[pool->slot],
			     1))
		return mine.caches[pool->slot];
	return cache_find_or_create(pool);
}

/* --- take and put: the hot path
 * -------------------------------------------------------- */

struct gcp_block *gcp_cache_take(struct gcp_cache *cache, uint32_t size_class,
				 uint64_t requested)
{
	struct gcp_magazine *magazine = &cache->magazines[size_class];
	struct gcp_block *block;

	gcp_spin_lock(&cache->lock);
	block = TAILQ_FIRST(&magazine->list);
	if (!block || !gcp_page_ready(cache->pool, block->page)) {
		gcp_spin_unlock(&cache->lock);
		return NULL;
	}
	TAILQ_REMOVE(&magazine->list, block, link);
	magazine->count--;
	cache->bytes -= block->size;
	block->requested = requested;
	atomic_store_explicit(&block->state, GCP_BLOCK_USED, memory_order_release);
	cache->tally.hits++;
	bool full = gcp_tally_count(&cache->tally, 1, requested, block->size);
	gcp_spin_unlock(&cache->lock);
	if (__builtin_expect(full, 0))
		gcp_cache_hand_over(cache);
	return block;
}

/* Moves the older half of a magazine, or all of it, to `list`. */
static void magazine_drain(struct gcp_cache *cache, struct gcp_magazine *magazine,
			   uint32_t keep, struct gcp_block_list *list)
{
	while (magazine->count > keep) {
		struct gcp_block *block = TAILQ_FIRST(&magazine->list);

		TAILQ_REMOVE(&magazine->list, block, link);
		magazine->count--;
		cache->bytes -= block->size;
		TAILQ_INSERT_TAIL(list, block, link);
	}
}

/* A magazine has reached its limit: looks how wide the window is by now, and
 * drains half if that is still too much. */
static void magazine_limit(struct gcp_cache *cache, struct gcp_magazine *magazine,
			   uint64_t size, struct gcp_block_list *list)
{
	struct gcp_window window = gcp_window_of_thread(cache->pool);

	magazine->limit = 2 * gcp_window_blocks(&window, size);
	if (magazine->count > magazine->limit)
		magazine_drain(cache, magazine, magazine->count / 2, list);
}

static void magazines_drain_all(struct gcp_cache *cache, struct gcp_block_list *list)
{
	for (uint32_t i = 0; i < cache->pool->pools->classes.count; i++)
		magazine_drain(cache, &cache->magazines[i], 0, list);
}

static void list_to_heap(struct gcp_pool *pool, struct gcp_block_list *list)
{
	if (TAILQ_EMPTY(list))
		return;
	pthread_mutex_lock(&pool->lock);
	gcp_heap_put_list(&pool->common, list);
	pthread_mutex_unlock(&pool->lock);
}

bool gcp_cache_put(struct gcp_cache *cache, struct gcp_block *block)
{
	struct gcp_pool *pool = cache->pool;
	struct gcp_magazine *magazine = &cache->magazines[block->size_class];
	struct gcp_block_list excess = TAILQ_HEAD_INITIALIZER(excess);

	gcp_spin_lock(&cache->lock);
	bool close = page_count(cache, block);
	bool full = gcp_tally_count(&cache->tally, -1, block->requested, block->size);

	TAILQ_INSERT_TAIL(&magazine->list, block, link);
	magazine->count++;
	cache->bytes += block->size;
	if (cache->bytes > pool->pools->config.thread_cache_bytes)
		magazines_drain_all(cache, &excess);
	else if (magazine->count > magazine->limit)
		magazine_limit(cache, magazine, block->size, &excess);
	gcp_spin_unlock(&cache->lock);

	list_to_heap(pool, &excess);
	if (__builtin_expect(full, 0))
		gcp_cache_hand_over(cache);
	return close;
}

uint64_t gcp_cache_next_page(struct gcp_cache *cache, uint32_t size_class,
			     uint32_t *ret_count)
{
	struct gcp_magazine *magazine = &cache->magazines[size_class];
	struct gcp_block *block;

	gcp_spin_lock(&cache->lock);
	block = TAILQ_FIRST(&magazine->list);
	uint64_t page = block ? block->page : 0;
	*ret_count = magazine->count;
	gcp_spin_unlock(&cache->lock);
	return page;
}

/* --- for others
 * ------------------------------------------------------------------------- */

void gcp_cache_take_tally(struct gcp_pool *pool, struct gcp_tally_local *ret_tally)
{
	struct gcp_cache *cache = NULL;

	if (mine.pools_id == pool->pools->id && pool->slot >= 0)
		cache = mine.caches[pool->slot];
	memset(ret_tally, 0, sizeof(*ret_tally));
	if (!cache)
		return;
	gcp_spin_lock(&cache->lock);
	*ret_tally = cache->tally;
	memset(&cache->tally, 0, sizeof(cache->tally));
	gcp_spin_unlock(&cache->lock);
}

/* Lock order: the cache's before the pool's. */
void gcp_cache_hand_over(struct gcp_cache *cache)
{
	gcp_spin_lock(&cache->lock);
	struct gcp_tally_local tally = cache->tally;
	memset(&cache->tally, 0, sizeof(cache->tally));
	gcp_spin_unlock(&cache->lock);

	pthread_mutex_lock(&cache->pool->lock);
	gcp_tally_hand_over(cache->pool, &tally);
	pthread_mutex_unlock(&cache->pool->lock);
}

void gcp_caches_flush(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_cache *cache;

	pthread_mutex_lock(&pools->registry_lock);
	TAILQ_FOREACH (cache, &pools->caches, link) {
		if (cache->pool != pool)
			continue;
		gcp_spin_lock(&cache->lock);
		magazines_drain_all(cache, &list);
		gcp_spin_unlock(&cache->lock);
	}
	list_to_heap(pool, &list);
	pthread_mutex_unlock(&pools->registry_lock);
}

/* The blocks' descriptors are retired with their segments. registry_lock is
 * held. */
void gcp_caches_forget(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_cache *cache;

	TAILQ_FOREACH (cache, &pools->caches, link) {
		struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);

		if (cache->pool != pool)
			continue;
		gcp_spin_lock(&cache->lock);
		magazines_drain_all(cache, &list);
		gcp_spin_unlock(&cache->lock);
		gcp_cache_hand_over(cache);
	}
}

static void cache_destroy(struct gcp_pools *pools, struct gcp_cache *cache)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);

	pthread_mutex_lock(&pools->registry_lock);
	TAILQ_REMOVE(&pools->caches, cache, link);
	gcp_spin_lock(&cache->lock);
	magazines_drain_all(cache, &list);
	gcp_spin_unlock(&cache->lock);
	atomic_fetch_sub(&cache->pool->cache_count, 1);
	gcp_cache_hand_over(cache);
	list_to_heap(cache->pool, &list);
	pthread_mutex_unlock(&pools->registry_lock);
	free(cache);
}

void gcp_pools_thread_exit(struct gcp_pools *pools)
{
	if (mine.pools_id != pools->id)
		return;
	for (int i = 0; i < GCP_POOL_SLOTS; i++) {
		if (mine.caches[i])
			cache_destroy(pools, mine.caches[i]);
		mine.caches[i] = NULL;
	}
}
