/*
 * cache.h - what a thread keeps for itself, and the few instructions by which it
 * takes a block from its cache and puts one back: inline for alloc.c, which is
 * where the hot path stands.
 *
 * A magazine holds the freed blocks of one class in two chains, oldest first:
 * `serve`, from which allocations take, and `fill`, onto which frees put. When
 * `serve` is used up `fill` takes its place; when `fill` has grown to a batch and
 * `serve` is still there, that goes to others as a whole. So at most two batches
 * stay, and a chain moves in a few instructions, however long it is. A `serve` whose
 * page is not ready is exchanged for what others left earlier, if there is such.
 */
#ifndef GCP_POOL_CACHE_H
#define GCP_POOL_CACHE_H

#include "types.h"

/* CACHED blocks by ->next, oldest first. */
struct gcp_chain {
	struct gcp_block *first, **last; /* NULL; &first, if there is none */
	uint32_t count;
};

/* The blocks of one class: cache.h.
 *  C2 each chain is as long as its count says */
struct gcp_magazine {
	struct gcp_block *serve; /* taken from; older than fill */
	struct gcp_block **serve_last;
	struct gcp_block *fill; /* put onto */
	struct gcp_block **fill_last;
	uint16_t serve_count, fill_count;
	uint16_t limit;  /* of fill_count: then gcp_cache_put_slow looks */
	uint16_t batch;  /* so many are left for others at once, or 0 */
	uint16_t seen;   /* serve_count when that was done last; UINT16_MAX: some
			  * were wanted since */
	uint16_t misses; /* times the heap was asked since the cache was emptied */
};

/* What one thread keeps of one pool: no other thread touches it but to empty
 * it. All fields: own.
 *  C1 held - tally.delta[GCP_LEVEL_ALLOCATED] is the sum of the sizes of its
 *     blocks: what it takes and puts is counted once for both */
struct gcp_cache {
	struct gcp_own own;
	struct gcp_pool *pool;
	uint64_t page;       /* the page that the next two fields are about */
	int64_t page_left;   /* bytes that the thread may free into it before it
			      * adds them up with others' */
	uint64_t page_least; /* what a block counts there at least */
	int64_t page_share;  /* the thread's share of a page */
	int64_t page_part;   /* page_left at first: page_share, or what was missing */
	int64_t held;
	int64_t limit;    /* bytes to hold at most */
	uint32_t in_vain; /* slow takes till it is asked again what is completed */
	int64_t floor;    /* tally.delta[GCP_LEVEL_ALLOCATED] below this: too much is
			   * held, or was counted */
	struct gcp_tally tally;
	TAILQ_ENTRY(gcp_cache) link;     /* pools->caches; registry_lock */
	struct gcp_magazine magazines[]; /* [class] */
};

/* Batches of one class that threads which free more than they allocate left for
 * those who allocate more: CACHED blocks, oldest first. All fields: lock. */
struct gcp_depot {
	struct gcp_spin lock;
	struct gcp_block *first, *last; /* first blocks of batches, by batch.next */
};

/* --- cache.c, depot.c ------------------------------------------------------------ */

/* Taking and putting: below. */
/* The page of the block that would be taken next, 0 if none, and how many wait. */
uint64_t gcp_cache_next_page(struct gcp_cache *cache, uint32_t size_class,
			     uint32_t *ret_count);
/* So many blocks of one class are a batch, as many as may wait in the cache for the
 * device: half of what it holds at most. */
uint32_t gcp_cache_batch(const struct gcp_cache *cache, uint64_t size);
/* Adds CACHED blocks of one class, which are ready: the next to be taken. */
void gcp_cache_stock(struct gcp_cache *cache, const struct gcp_chain *chain);
/* How many blocks of a class it pays to take from the heap at once; they are the
 * cache's batch, or fewer. */
uint32_t gcp_cache_wants(struct gcp_cache *cache, const struct gcp_request *request);
/* What the calling thread counted and has not handed over yet: it is the
 * caller's now. */
void gcp_cache_take_tally(struct gcp_pool *pool, struct gcp_tally *ret_tally);
/* Hands what the thread counted to the pool. Takes pool->lock. */
void gcp_cache_hand_over(struct gcp_cache *cache);
/* Whether to empty all caches before the pool grows by a segment of that kind. */
bool gcp_caches_may_help(struct gcp_pool *pool, enum gcp_kind kind);
/* As if they had not been emptied yet: the pool's memory is gone. */
void gcp_caches_flush_soon(struct gcp_pool *pool);
/* Empties the caches of all threads into the pool's common heap. */
void gcp_caches_flush(struct gcp_pool *pool);
/* The same for a pool whose context is gone: blocks are forgotten. */
void gcp_caches_forget(struct gcp_pool *pool);

/* Whether there is anybody to leave batches for. */
bool gcp_depot_is_open(const struct gcp_pool *pool);
/* Leaves a batch for other threads; false: there is no room for it. */
bool gcp_depot_put(struct gcp_pool *pool, const struct gcp_chain *chain);
/* The oldest batch of a class, for `chain` if that is not empty. False: there is
 * none, or none that is older; `chain` is as it was. */
bool gcp_depot_exchange(struct gcp_pool *pool, uint32_t size_class,
			struct gcp_chain *chain);
/* All batches, as one chain. */
void gcp_depot_drain(struct gcp_pool *pool, struct gcp_chain *chain);
void gcp_chain_init(struct gcp_chain *chain);
void gcp_chain_append(struct gcp_chain *chain, struct gcp_block *first,
		      struct gcp_block **last, uint32_t count);

/* --- the hot path --------------------------------------------------------------- */

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

/* Takes a block that is CACHED by the caller. True: its page should be closed. Once
 * the cache is left, a flush by another thread may have merged the block away. */
static inline bool gcp_cache_put(struct gcp_cache *cache, struct gcp_block *block)
{
	uint32_t size_class = block->size_class;
	struct gcp_magazine *magazine = &cache->magazines[size_class];
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
	bool much = cache->page_left <= 0 || magazine->fill_count >= magazine->limit ||
		    cache->tally.delta[GCP_LEVEL_ALLOCATED] < cache->floor;
	gcp_own_leave(&cache->own);
	return __builtin_expect(much, 0) && gcp_cache_put_slow(cache, size_class);
}

#endif
