/*
 * cache.h - the few instructions by which a thread takes a block from its cache and
 * puts one back: inline for alloc.c, which is where the hot path stands. All else
 * about caches is in cache.c.
 *
 * A magazine holds the freed blocks of one class in two chains, oldest first:
 * `serve`, from which allocations take, and `fill`, onto which frees put. When
 * `serve` is used up `fill` takes its place; when `fill` has grown to a batch and
 * `serve` is still there, that goes to others as a whole. So at most two batches
 * stay, and a chain moves in a few instructions, however long it is.
 */
#ifndef GCP_POOL_CACHE_H
#define GCP_POOL_CACHE_H

#include "types.h"

/* The calling thread's caches. Those of the pools whose id it names are valid. */
struct gcp_mine {
	uint64_t pool_key; /* of the pool used last: its cache is `cache` */
	struct gcp_cache *cache;
	uint64_t pools_id;
	struct gcp_cache *caches[GCP_POOL_SLOTS];
};
extern __thread struct gcp_mine gcp_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct gcp_cache *gcp_cache_find(struct gcp_pool *pool);

/* The calling thread's cache of `pool`, made when needed; NULL: it has none. */
static inline struct gcp_cache *gcp_cache_mine(struct gcp_pool *pool)
{
	if (__builtin_expect(gcp_mine.pool_key == pool->key, 1))
		return gcp_mine.cache;
	return gcp_cache_find(pool);
}

/* The slow halves of taking and putting. */
struct gcp_block *gcp_cache_take_slow(struct gcp_cache *cache, uint32_t size_class,
				      uint64_t requested);
bool gcp_cache_put_slow(struct gcp_cache *cache, uint32_t size_class);
/* cache->own is held. */
void gcp_cache_turn_page(struct gcp_cache *cache, uint64_t page);

/* The head of `serve`, which is ready, becomes USED. cache->own is held. True: the
 * thread has counted so much that it should be handed over. */
static inline bool gcp_cache_pop(struct gcp_cache *cache, struct gcp_magazine *magazine,
				 struct gcp_block *block, uint64_t requested)
{
	struct gcp_tally *tally = &cache->tally;

	magazine->serve = block->next;
	magazine->serve_count--;
	block->requested = requested;
	atomic_store_explicit(&block->state, GCP_BLOCK_USED, memory_order_release);
	if (__builtin_expect(!gcp_tally_take(tally, requested, block->size), 1))
		return false;
	/* So high it was not since the last hand-over, when all was zero: no
	 * need to ask at other times. */
	gcp_tally_raise(tally);
	return tally->delta[GCP_LEVEL_ALLOCATED] > GCP_TALLY_LAG;
}

/* A ready block, now USED; NULL: there is none. */
static inline struct gcp_block *gcp_cache_take(struct gcp_cache *cache,
					       uint32_t size_class, uint64_t requested)
{
	struct gcp_magazine *magazine = &cache->magazines[size_class];
	struct gcp_block *block;

	gcp_own_enter(&cache->own);
	block = magazine->serve;
	if (__builtin_expect(!block || !gcp_page_ready(cache->pool, block->page), 0)) {
		gcp_own_leave(&cache->own);
		return gcp_cache_take_slow(cache, size_class, requested);
	}
	bool full = gcp_cache_pop(cache, magazine, block, requested);
	gcp_own_leave(&cache->own);
	if (__builtin_expect(full, 0))
		gcp_cache_hand_over(cache);
	return block;
}

/* Takes a block that is CACHED by the caller. True: its page should be closed. */
static inline bool gcp_cache_put(struct gcp_cache *cache, struct gcp_block *block)
{
	struct gcp_magazine *magazine = &cache->magazines[block->size_class];
	uint64_t size = block->size;

	block->next = NULL;
	gcp_own_enter(&cache->own);
	if (__builtin_expect(cache->page != block->page, 0))
		gcp_cache_turn_page(cache, block->page);
	cache->page_left -=
	    (int64_t)(size > cache->page_least ? size : cache->page_least);
	gcp_tally_put(&cache->tally, block->requested, size);
	*magazine->fill_last = block;
	magazine->fill_last = &block->next;
	magazine->fill_count++;
	bool much = cache->page_left <= 0 || magazine->fill_count >= magazine->batch ||
		    cache->tally.delta[GCP_LEVEL_ALLOCATED] < cache->floor;
	gcp_own_leave(&cache->own);
	return __builtin_expect(much, 0) &&
	       gcp_cache_put_slow(cache, block->size_class);
}

#endif
