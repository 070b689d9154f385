/* SPDX-License-Identifier: MIT */
/*
 * cache.c - what a thread keeps for itself: freed blocks of the classes, so
 * that the common allocation and free touch no shared state.
 *
 * A cache belongs to one thread and one pool. Its lock is there for other
 * threads that empty it (memory is out, statistics, the pool is reset); the owner
 * passes freely. Blocks wait in magazines, one for each class (cache.h); each carries
 * its epoch, so a cached block is no more ready than any other.
 *
 * Blocks freed in a stream wait for that stream, in bins by stream and size.
 *
 * A cache is bounded in bytes (thread_cache_bytes) and, for each class, in
 * blocks (twice the window); what is beyond goes to other threads (depot.c) or to
 * the common heap. At thread exit all of it does. All caches are emptied before the
 * pool grows or, where many threads allocate, once it has grown by much (miss.c).
 */
#include "cache.h"

#include <stdlib.h>

enum {
	FLUSH_GROWTH = 64 << 20, /* since all caches were emptied: they are again */
	BLOCKS_TO_PASS = 4,      /* in a bin of streams */
};

__thread struct gcp_tls gcp_tls
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* --- life ------------------------------------------------------------------------ */

static struct gcp_cache *cache_create(struct gcp_pool *pool)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_cache *cache;

	cache = calloc(1, sizeof(*cache) +
			      pools->classes.count * sizeof(cache->magazines[0]));
	if (!cache)
		return NULL;
	cache->pool = pool;
	for (uint32_t i = 0; i < pools->classes.count; i++) {
		gcp_chain_init(&cache->magazines[i].loaded);
		gcp_chain_init(&cache->magazines[i].previous);
	}
	/* Else the first flush would do it, and keep all threads waiting. */
	if (atomic_fetch_add(&pool->cache_count, 1) > 0)
		gcp_remote_prepare();
	cache->next = gcp_tls.caches;
	gcp_tls.caches = cache;
	GCP_LOCKED(&pools->registry_lock);
	TAILQ_INSERT_TAIL(&pools->caches, cache, link);
	return cache;
}

struct gcp_cache *gcp_cache_find(struct gcp_pool *pool)
{
	GCP_KEEP_ERRNO;

	if (pool->pools->config.thread_cache_bytes == 0)
		return NULL;
	if (gcp_tls.pools_id != pool->pools->id)
		gcp_tls = (struct gcp_tls){.pools_id = pool->pools->id};
	gcp_tls.cache = gcp_cache_if_any(pool);
	if (!gcp_tls.cache)
		gcp_tls.cache = cache_create(pool);
	gcp_tls.pool_key = gcp_tls.cache ? pool->key : 0;
	return gcp_tls.cache;
}

/* The calling thread's cache of `pool`, if there is one. */
struct gcp_cache *gcp_cache_if_any(struct gcp_pool *pool)
{
	struct gcp_cache *cache = NULL;

	if (gcp_tls.pools_id == pool->pools->id)
		for (cache = gcp_tls.caches; cache && cache->pool != pool;)
			cache = cache->next;
	return cache;
}

/* --- the records: cache->own is held ---------------------------------------------- */

/* Hands what the thread counted to the pool. pool->lock is held. */
static void delta_merge(struct gcp_cache *cache)
{
	cache->held -= cache->delta.net[GCP_STATS_LEVEL_ALLOCATED];
	cache->delta.hits = cache->delta.up[GCP_STATS_LEVEL_BLOCKS];
	gcp_stats_merge(cache->pool, &cache->delta);
	gcp_cache_floor_set(cache);
}

/* What the thread has freed into the open epoch and not added up with others' yet. */
static int64_t counted_take(struct gcp_cache *cache)
{
	int64_t counted = cache->epoch_part - cache->epoch_left;

	cache->epoch_part = cache->epoch_left;
	return cache->epoch == GCP_LOAD(cache->pool->timeline.open) ? counted : 0;
}

/* The first free into an epoch: looks up the thread's share of it, once for all frees
 * into it. A block counts for its size, and at least for its part in the number of
 * blocks, so that one figure stands for both bounds. */
static void epoch_enter(struct gcp_cache *cache, uint64_t epoch)
{
	struct gcp_pool *pool = cache->pool;

	if (cache->epoch == epoch)
		return;
	uint64_t bytes = gcp_limit_share(pool, GCP_LIMIT(pool, epoch_bytes));
	uint32_t blocks = pool->pools->config.epoch_blocks;

	cache->epoch = epoch;
	cache->epoch_share = (int64_t)bytes;
	cache->epoch_left = gcp_timeline_room(pool, cache->epoch_share);
	cache->epoch_part = cache->epoch_left;
	cache->epoch_least = bytes / blocks + (bytes % blocks != 0);
	cache->limit = gcp_cache_most(pool);
	gcp_cache_floor_set(cache);
}

/* --- magazines: cache->own is held -------------------------------------------- */

static void load_previous(struct gcp_magazine *magazine)
{
	assert(!magazine->loaded.first);
	magazine->loaded = magazine->previous;
	gcp_chain_init(&magazine->previous);
	magazine->limit = magazine->batch;
	magazine->seen = 0;
}

static void loaded_drain(struct gcp_cache *cache, struct gcp_magazine *magazine,
			 struct gcp_chain *chain)
{
	struct gcp_chain *loaded = &magazine->loaded;

	if (!loaded->first)
		return;
	gcp_cache_held_add(cache, -gcp_chain_bytes(loaded));
	gcp_chain_append(chain, loaded->first, loaded->last, loaded->count);
	gcp_chain_init(loaded);
}

static void streamed_drain(struct gcp_cache *cache, struct gcp_chain *chain)
{
	int64_t bytes = 0;

	/* Most threads free in no stream, and are asked at each look for memory. */
	for (int i = 0; cache->streamed_count > 0 && i < GCP_STREAM_BINS; i++) {
		struct gcp_block *block;

		while ((block = cache->streamed[i])) {
			cache->streamed[i] = block->next;
			block->async = false;
			block->next = NULL;
			bytes += (int64_t)block->size;
			gcp_chain_append(chain, block, &block->next, 1);
			cache->streamed_count--;
		}
	}
	gcp_cache_held_add(cache, -bytes);
	(void)gcp_timeline_fill(cache->pool, bytes, 0);
}

static void cache_drain(struct gcp_cache *cache, struct gcp_chain *chain)
{
	uint32_t i = cache->pool->pools->classes.count;

	/* Mostly a few large blocks. */
	while (i > 0 && gcp_cache_bytes(cache) > 0) {
		struct gcp_magazine *magazine = &cache->magazines[--i];

		loaded_drain(cache, magazine, chain);
		load_previous(magazine);
		loaded_drain(cache, magazine, chain);
	}
	if (gcp_cache_bytes(cache) > 0)
		streamed_drain(cache, chain);
	assert(gcp_cache_bytes(cache) == 0); /* M1 */
}

/* How many blocks go to others at once, of a thread that keeps `most` of them twice. */
static uint32_t batch_of(uint32_t most)
{
	enum { BATCH_LEAST = 8, BATCHES = 4 };

	if (most > BATCH_LEAST * BATCHES)
		return most / BATCHES;
	return most > BATCH_LEAST ? BATCH_LEAST : most;
}

/* `previous` may have grown to a batch, or the cache holds too much: looks how long a
 * batch is by now, and lets the older blocks go if the thread has not taken any since,
 * or holds all it may. What it does take it had better have freed itself: from another
 * thread it would come with cold cache lines. */
static void magazine_rotate(struct gcp_cache *cache, struct gcp_magazine *magazine,
			    bool over, struct gcp_chain *excess)
{
	uint32_t most = gcp_cache_batch(cache, magazine->previous.first->size);
	uint32_t count = magazine->previous.count + magazine->loaded.count;
	uint32_t batch = batch_of(most);

	if (magazine->loaded.first &&
	    (count >= 2 * most || (magazine->previous.count >= batch &&
				   (over || magazine->loaded.count == magazine->seen))))
		loaded_drain(cache, magazine, excess);
	if (!magazine->loaded.first && magazine->previous.count >= batch)
		load_previous(magazine);
	magazine->seen = magazine->loaded.count;
	magazine->batch = batch;
	magazine->limit =
	    magazine->previous.count < batch ? batch : magazine->previous.count + batch;
}

/* --- take and put: the slow halves -------------------------------------------- */

void gcp_chain_to_heap(struct gcp_pool *pool, const struct gcp_chain *chain)
{
	if (!chain->first)
		return;
	GCP_LOCKED(&pool->lock);
	gcp_heap_put_chain(&pool->common, chain);
}

static bool loaded_is_ready(const struct gcp_cache *cache,
			    const struct gcp_magazine *magazine)
{
	return magazine->loaded.first &&
	       gcp_epoch_ready(cache->pool, magazine->loaded.first->epoch);
}

void gcp_cache_leave(struct gcp_cache *cache)
{
	int64_t net = cache->delta.net[GCP_STATS_LEVEL_ALLOCATED];

	gcp_owner_unlock(&cache->own);
	if (net > GCP_STATS_LAG || net < -GCP_STATS_LAG)
		gcp_cache_merge_stats(cache);
}

/* So high it was not since the last hand-over, when all was zero: no need to ask at
 * other times. */
int gcp_cache_counted(struct gcp_cache *cache)
{
	gcp_stats_delta_raise(&cache->delta);
	assert(cache->delta.net[GCP_STATS_LEVEL_ALLOCATED] <= /* T1 */
	       cache->delta.high[GCP_STATS_LEVEL_ALLOCATED]);
	gcp_cache_leave(cache);
	return 0;
}

void gcp_pool_enter(struct gcp_pool *pool, struct gcp_cache *cache)
{
	if (cache)
		gcp_owner_lock(&cache->own);
	else
		gcp_mutex_lock(&pool->lock);
}

void gcp_pool_enter_heap(struct gcp_pool *pool, struct gcp_cache *cache)
{
	if (cache)
		gcp_mutex_lock(&pool->lock);
}

void gcp_pool_leave(struct gcp_pool *pool, struct gcp_cache *cache)
{
	gcp_mutex_unlock(&pool->lock);
	if (cache)
		gcp_cache_leave(cache);
}

bool gcp_cache_take(struct gcp_cache *cache, struct gcp_request *request)
{
	struct gcp_magazine *magazine = &cache->magazines[request->size_class];
	struct gcp_block *block;

	gcp_owner_lock(&cache->own);
	if (!loaded_is_ready(cache, magazine)) {
		magazine->seen = UINT32_MAX;
		if (!magazine->loaded.first)
			load_previous(magazine);
		int64_t had = gcp_chain_bytes(&magazine->loaded);
		/* Takes a batch that others left for this class, if it is older. */
		if (!loaded_is_ready(cache, magazine) &&
		    gcp_depot_exchange(cache->pool, request->size_class,
				       &magazine->loaded))
			gcp_cache_held_add(cache,
					   gcp_chain_bytes(&magazine->loaded) - had);
	}
	block = loaded_is_ready(cache, magazine) ? magazine->loaded.first : NULL;
	if (block)
		gcp_request_serve(request, cache, block);
	if (block && gcp_cache_pop(cache, magazine, block, request->bytes))
		gcp_cache_counted(cache);
	else
		gcp_owner_unlock(&cache->own);
	return block;
}

/* What the thread has freed into the epoch, if that is its share of it; else 0.
 * cache->own is held. */
static int64_t share_take(struct gcp_cache *cache)
{
	int64_t filled = cache->epoch_part - cache->epoch_left;

	if (cache->epoch_left > 0)
		return 0;
	cache->epoch_left = cache->epoch_part = cache->epoch_share;
	return filled;
}

/* After a put that left something to do; others may have emptied the cache since.
 * True: the epoch should be closed. */
bool gcp_cache_put_slow(struct gcp_cache *cache, uint32_t index)
{
	struct gcp_magazine *magazine = &cache->magazines[index];
	struct gcp_chain excess;

	gcp_chain_init(&excess);
	gcp_owner_lock(&cache->own);
	int64_t filled = share_take(cache);
	bool over = gcp_cache_bytes(cache) > cache->limit;

	if (magazine->previous.first &&
	    (over || magazine->previous.count >= magazine->limit))
		magazine_rotate(cache, magazine, over, &excess);
	bool everything = gcp_cache_bytes(cache) > cache->limit;
	if (everything)
		cache_drain(cache, &excess);
	if (excess.first && !everything)
		gcp_depot_put(cache->pool, &excess);
	if (excess.first) {
		if (everything || gcp_depot_is_open(cache->pool))
			gcp_window_starved(cache->pool);
		gcp_chain_to_heap(cache->pool, &excess);
	}
	gcp_cache_leave(cache);
	return filled > 0 && gcp_timeline_fill(cache->pool, filled, filled);
}

bool gcp_cache_put(struct gcp_cache *cache, struct gcp_block *block, uint32_t index)
{
	epoch_enter(cache, block->epoch);
	bool much = gcp_cache_push(cache, block, index);
	gcp_owner_unlock(&cache->own);
	return much && gcp_cache_put_slow(cache, index);
}

int64_t gcp_cache_count_free(struct gcp_cache *cache, const struct gcp_block *block)
{
	epoch_enter(cache, block->epoch);
	gcp_cache_freed(cache, block);
	gcp_cache_held_add(cache, -(int64_t)block->size);
	return share_take(cache);
}

uint64_t gcp_cache_next_epoch(struct gcp_cache *cache, uint32_t size_class,
			      uint32_t *ret_count)
{
	struct gcp_magazine *magazine = &cache->magazines[size_class];
	struct gcp_block *block;

	gcp_owner_lock(&cache->own);
	block = magazine->loaded.first ?: magazine->previous.first;
	uint64_t epoch = block ? block->epoch : 0;
	*ret_count = magazine->loaded.count + magazine->previous.count;
	gcp_owner_unlock(&cache->own);
	return epoch;
}

uint32_t gcp_cache_batch(const struct gcp_cache *cache, uint64_t size)
{
	uint64_t most = cache->pool->pools->config.thread_cache_bytes / 2 / size;
	uint32_t blocks = gcp_window_blocks(cache->pool, size);

	if (blocks > most)
		blocks = (uint32_t)most;
	return blocks ? blocks : 1;
}

/* --- streams ---------------------------------------------------------------------- */

static struct gcp_block **bin_of(struct gcp_cache *cache, uint64_t stream,
				 uint64_t size)
{
	const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);

	if (size >= GCP_WHOLE_LEAST)
		size = gcp_round_up(size, GCP_CHUNK);
	size = (stream * odd + size / GCP_UNIT) * odd >> 32;
	return &cache->streamed[size % GCP_STREAM_BINS];
}

/* cache->own is held. */
static struct gcp_block *bin_take(struct gcp_block **link, uint64_t stream,
				  uint64_t size)
{
	for (int i = 0; *link && i < BLOCKS_TO_PASS; i++, link = &(*link)->next) {
		struct gcp_block *block = *link;

		if (block->stream != stream || !gcp_block_suits(block, size))
			continue;
		*link = block->next;
		return block;
	}
	return NULL;
}

bool gcp_cache_take_streamed(struct gcp_cache *cache, uint64_t stream,
			     struct gcp_request *request)
{
	uint64_t size = request->size;

	gcp_owner_lock(&cache->own);
	struct gcp_block *block = bin_take(bin_of(cache, stream, size), stream, size);
	if (block) {
		cache->streamed_count--;
		gcp_request_serve(request, cache, block);
	}
	if (block && gcp_cache_give(cache, block, request->bytes))
		gcp_cache_counted(cache);
	else
		gcp_owner_unlock(&cache->own);
	return block;
}

bool gcp_cache_put_streamed(struct gcp_cache *cache, uint64_t stream,
			    struct gcp_block *block, struct gcp_chain *excess)
{
	assert(block->async && atomic_load(&block->state) == GCP_BLOCK_CACHED); /* E5 */
	struct gcp_block **bin = bin_of(cache, stream, block->size);
	int64_t limit = gcp_cache_most(cache->pool), size = (int64_t)block->size;

	if (size > limit / 2)
		return false;
	if (gcp_cache_bytes(cache) + size > limit)
		streamed_drain(cache, excess);
	gcp_stats_delta_async(&cache->delta, -(int64_t)block->requested);
	gcp_stats_delta_free(&cache->delta, block->requested, block->size);
	block->stream = stream;
	block->next = *bin;
	*bin = block;
	cache->streamed_count++;
	return true;
}

/* --- for others ------------------------------------------------------------------- */

void gcp_cache_add_counted(struct gcp_pool *pool)
{
	struct gcp_cache *cache = gcp_cache_if_any(pool);
	int64_t counted;

	if (!cache)
		return;
	gcp_owner_lock(&cache->own);
	counted = counted_take(cache);
	gcp_owner_unlock(&cache->own);
	if (counted > 0)
		(void)gcp_timeline_fill(pool, counted, 0);
}

void gcp_cache_merge_stats(struct gcp_cache *cache)
{
	gcp_pool_enter(cache->pool, cache);
	gcp_pool_enter_heap(cache->pool, cache);
	delta_merge(cache);
	gcp_pool_leave(cache->pool, cache);
}

#define CACHES_FOREACH(cache, of_pool)                                                 \
	TAILQ_FOREACH (cache, &(of_pool)->pools->caches, link)                         \
		if ((cache)->pool == (of_pool))

/* One barrier serves all. The calling thread's own needs none: if it is inside, a
 * signal handler that ends the process has interrupted it there. */
void gcp_caches_lock(struct gcp_pool *pool)
{
	const struct gcp_cache *mine = gcp_cache_if_any(pool);
	struct gcp_cache *cache;
	bool others = false;

	CACHES_FOREACH(cache, pool)
	{
		gcp_remote_announce(&cache->own);
		others |= cache != mine;
	}
	if (others)
		gcp_remote_barrier();
	gcp_rank_take(GCP_RANK_CACHE);
	CACHES_FOREACH(cache, pool)
	gcp_remote_lock(&cache->own);
	gcp_mutex_lock(&pool->lock);
	CACHES_FOREACH(cache, pool)
	delta_merge(cache);
}

void gcp_caches_unlock(struct gcp_pool *pool)
{
	struct gcp_cache *cache;

	CACHES_FOREACH(cache, pool)
	gcp_remote_unlock(&cache->own);
	gcp_rank_drop(GCP_RANK_CACHE);
}

/* In mapped memory an allocation may close the epoch now, and what was counted for it
 * is to bring a free to close the next one, or none ever would. */
void gcp_caches_drain(struct gcp_pool *pool, struct gcp_chain *chain)
{
	struct gcp_cache *cache;
	int64_t counted = 0;

	gcp_assert_held(GCP_RANK_CACHE);
	gcp_chain_init(chain);
	CACHES_FOREACH(cache, pool)
	{
		cache_drain(cache, chain);
		counted += pool->vmm ? counted_take(cache) : 0;
	}
	gcp_depot_drain(pool, chain);
	if (counted > 0)
		(void)gcp_timeline_fill(pool, counted, 0);
}

void gcp_caches_flush(struct gcp_pool *pool)
{
	struct gcp_chain chain;

	GCP_LOCKED(&pool->pools->registry_lock);
	gcp_caches_lock(pool);
	gcp_caches_drain(pool, &chain);
	gcp_caches_unlock(pool);
	gcp_heap_put_chain(&pool->common, &chain);
	gcp_mutex_unlock(&pool->lock);
	GCP_STORE(pool->flush_at, GCP_LOAD(pool->reserved_hint) + FLUSH_GROWTH);
}

/* The calling thread's. */
static void cache_destroy(struct gcp_pools *pools, struct gcp_cache *cache)
{
	struct gcp_chain chain;

	gcp_chain_init(&chain);
	gcp_mutex_lock(&pools->registry_lock);
	TAILQ_REMOVE(&pools->caches, cache, link);
	gcp_cache_merge_stats(cache);
	cache_drain(cache, &chain);
	atomic_fetch_sub(&cache->pool->cache_count, 1);
	/* The next free closes the epoch if this fills it. */
	(void)gcp_timeline_fill(cache->pool, counted_take(cache), 0);
	gcp_chain_to_heap(cache->pool, &chain);
	gcp_mutex_unlock(&pools->registry_lock);
	free(cache);
}

void gcp_pools_thread_exit(struct gcp_pools *pools)
{
	if (gcp_tls.pools_id != pools->id)
		return;
	while (gcp_tls.caches) {
		struct gcp_cache *cache = gcp_tls.caches;

		gcp_tls.caches = cache->next;
		cache_destroy(pools, cache);
	}
	gcp_tls.pool_key = 0;
}
