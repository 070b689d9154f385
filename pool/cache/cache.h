/* SPDX-License-Identifier: MIT */
/*
 * cache.h - what a thread keeps for itself, and the few instructions by which it
 * takes a block from its cache and puts one back: inline for alloc.c, which is
 * where the hot path stands.
 *
 * A magazine holds the freed blocks of one class in two chains, oldest first:
 * `loaded`, from which allocations take, and `previous`, onto which frees put. When
 * `loaded` is used up `previous` takes its place; when `previous` has grown to a batch
 * and `loaded` is still there, that goes to others as a whole. So at most two batches
 * stay, and a chain moves in a few instructions, however long it is. A `loaded` whose
 * epoch is not ready is exchanged for what others left earlier, if there is such.
 */
#ifndef GCP_POOL_CACHE_H
#define GCP_POOL_CACHE_H

#include "../space/vmm.h"

/* CACHED blocks by ->next, oldest first. One that was emptied from its begin has a
 * `last` of no use. */
struct gcp_chain {
	struct gcp_block *first, **last; /* NULL; &first, if there is none */
	uint32_t count;
};

/* The blocks of one class: cache.h.
 *  M2 each chain is as long as its count says */
struct gcp_magazine {
	struct gcp_chain loaded;   /* taken from; older than previous */
	struct gcp_chain previous; /* put onto */
	uint32_t limit; /* of previous.count: then gcp_cache_put_slow looks */
	uint32_t batch; /* so many are left for others at once, or 0 */
	uint32_t seen;  /* loaded.count when that was done last; UINT32_MAX: some
			 * were wanted since */
};

enum {
	GCP_STREAM_BINS = 512, /* by stream and size */
	GCP_SERIALS = 1 << 16, /* that a thread takes at once */
};

/* What one thread keeps of one pool: no other thread touches it but to empty
 * it. All fields: own.
 *  M1 held - delta.net[GCP_STATS_LEVEL_ALLOCATED] is the sum of the sizes of its
 *     blocks: what it takes and puts is counted once for both
 *  M3 blocks of a magazine are of its class */
struct gcp_cache {
	struct gcp_owner own;
	struct gcp_pool *pool;
	uint64_t epoch;       /* the epoch that the next two fields are about */
	int64_t epoch_left;   /* bytes that the thread may free into it before it
			       * adds them up with others' */
	uint64_t epoch_least; /* what a block counts there at least */
	int64_t epoch_share;  /* the thread's share of an epoch */
	int64_t epoch_part; /* epoch_left at first: epoch_share, or what was missing */
	int64_t held;
	int64_t limit; /* bytes to hold at most */
	int64_t floor; /* delta.net[GCP_STATS_LEVEL_ALLOCATED] below this: too much is
			* held, or was counted */
	struct gcp_stats_delta delta;
	/* Blocks that it freed in a stream, the latest first. */
	struct gcp_block *streamed[GCP_STREAM_BINS];
	uint32_t streamed_count; /* of them */
	uint64_t serial; /* the next async block's; GCP_SERIALS divides it: none */
	TAILQ_ENTRY(gcp_cache) link;     /* pools->caches; registry_lock */
	struct gcp_cache *next;          /* of the thread; no lock: the owner's */
	struct gcp_magazine magazines[]; /* [class] */
};

/* Batches of one class that threads which free more than they allocate left for
 * threads that allocate more: CACHED blocks, oldest first. All fields: lock. */
struct gcp_depot {
	struct gcp_spin lock;
	struct gcp_block *first, *last; /* first blocks of batches, by batch.next */
	_Atomic uint64_t oldest; /* epoch of `first`; 0: none. Read without the lock */
};

/* --- cache.c, depot.c ------------------------------------------------------------ */

/* Taking and putting: below. */
/* The epoch of the block that would be taken next, 0 if none, and how many wait. */
uint64_t gcp_cache_next_epoch(struct gcp_cache *cache, uint32_t size_class,
			      uint32_t *ret_count);
/* So many blocks of one class are a batch, as many as may wait in the cache for the
 * device: half of what it holds at most. */
uint32_t gcp_cache_batch(const struct gcp_cache *cache, uint64_t size);
/* Counts a block that the thread frees into the open epoch and does not keep. Returns
 * the bytes that the thread has freed into that epoch if they reach the thread's share,
 * else 0. Called with cache->own held. */
int64_t gcp_cache_count_free(struct gcp_cache *cache, const struct gcp_block *block);
/* Adds up what the calling thread has freed into the open epoch, and kept, with what
 * others have: before it frees what it does not keep. */
void gcp_cache_add_counted(struct gcp_pool *pool);
/* Hands what the calling thread counted to the pool. Takes cache->own and pool->lock.
 */
void gcp_cache_merge_stats(struct gcp_cache *cache);
/* Returns true if the pool has grown by much since all caches were emptied. */
static inline bool gcp_pool_has_grown(const struct gcp_pool *pool)
{
	return GCP_LOAD(pool->reserved_hint) >= GCP_LOAD(pool->flush_at);
}
/* Empties the caches of all threads, and what threads have left for each other, into
 * the pool's common heap. */
void gcp_caches_flush(struct gcp_pool *pool);
/* Takes the locks of all caches of the pool, and pool->lock, and adds what the threads
 * have counted to the pool's statistics. gcp_caches_unlock releases the caches alone.
 * Called with registry_lock held. */
void gcp_caches_lock(struct gcp_pool *pool);
void gcp_caches_unlock(struct gcp_pool *pool);
/* Moves all blocks of the caches and depots to the chain. Called between these two. */
void gcp_caches_drain(struct gcp_pool *pool, struct gcp_chain *chain);

/* A thread that holds a free block which is in no list holds the lock of its cache or,
 * without a cache, pool->lock, so that the pool is not reset meanwhile. gcp_pool_enter
 * takes that lock, gcp_pool_enter_heap also pool->lock, gcp_pool_leave releases both.
 */
void gcp_pool_enter(struct gcp_pool *pool, struct gcp_cache *cache);
void gcp_pool_enter_heap(struct gcp_pool *pool, struct gcp_cache *cache);
void gcp_pool_leave(struct gcp_pool *pool, struct gcp_cache *cache);
/* Leaves the cache, and hands to the pool what it has counted, if that is much. */
void gcp_cache_leave(struct gcp_cache *cache);

/* Whether there are other threads to leave batches for. */
bool gcp_depot_is_open(const struct gcp_pool *pool);
/* Leaves a batch of one class for other threads; `chain` is empty then. If there is no
 * room for it, `chain` is as it was. */
void gcp_depot_put(struct gcp_pool *pool, struct gcp_chain *chain);
/* The oldest batch of a class, for `chain` if that is not empty. False: there is
 * none, or none that is older; `chain` is as it was. */
bool gcp_depot_exchange(struct gcp_pool *pool, uint32_t size_class,
			struct gcp_chain *chain);
/* Adds all batches to the chain. */
void gcp_depot_drain(struct gcp_pool *pool, struct gcp_chain *chain);
void gcp_chain_init(struct gcp_chain *chain);
/* Of blocks of one size. */
int64_t gcp_chain_bytes(const struct gcp_chain *chain);
/* Its blocks go to the common heap. Takes pool->lock, unless it is empty. */
void gcp_chain_to_heap(struct gcp_pool *pool, const struct gcp_chain *chain);
void gcp_chain_append(struct gcp_chain *chain, struct gcp_block *first,
		      struct gcp_block **last, uint32_t count);

/* --- memory in the order of streams ----------------------------------------------- */

/* Takes a block of exactly that size that the calling thread freed in `stream`, if it
 * has one. Takes cache->own. */
bool gcp_cache_take_streamed(struct gcp_cache *cache, uint64_t stream,
			     struct gcp_request *request);
/* The request has the block. cache->own is held, or (NULL) pool->lock. */
static inline void gcp_request_serve(struct gcp_request *request,
				     struct gcp_cache *cache, struct gcp_block *block)
{
	struct gcp_pool *pool = request->heap->pool;
	uint64_t none = 0, *serial = cache ? &cache->serial : &none;

	/* Its number tells a stream-ordered allocation from every other one. */
	request->block = block;
	request->addr = block->addr;
	if (!request->async)
		return;
	block->async = true;
	block->stream = request->async_stream;
	if (*serial % GCP_SERIALS == 0)
		*serial = atomic_fetch_add_explicit(&pool->pools->serials, GCP_SERIALS,
						    memory_order_relaxed);
	__atomic_store_n(&block->serial, (*serial)++, __ATOMIC_RELAXED);
	gcp_stats_delta_async(cache ? &cache->delta : &pool->delta,
			      (int64_t)request->bytes);
}
/* Keeps a block that is CACHED by the caller; false: it is still the caller's. Blocks
 * on `excess` are for the heap in any case. cache->own is held. */
bool gcp_cache_put_streamed(struct gcp_cache *cache, uint64_t stream,
			    struct gcp_block *block, struct gcp_chain *excess);
/* Takes back a block that is CACHED by the caller and was stream-ordered. 0: the stream
 * is not known. As gcp_pools_free. Called behind gcp_pool_enter, and leaves. */
int gcp_stream_free(struct gcp_pool *pool, struct gcp_cache *cache,
		    struct gcp_block *block, uint64_t stream);

/* --- the hot path --------------------------------------------------------------- */

/* The calling thread's caches. Those of the pools whose id it names are valid. */
struct gcp_tls {
	uint64_t pool_key; /* of the pool used last: its cache is `cache` */
	struct gcp_cache *cache;
	uint64_t pools_id;
	struct gcp_cache *caches; /* by next */
};
extern __thread struct gcp_tls gcp_tls
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct gcp_cache *gcp_cache_find(struct gcp_pool *pool);
/* That of the calling thread, if it has one. */
struct gcp_cache *gcp_cache_if_any(struct gcp_pool *pool);

/* The calling thread's cache of `pool`, made when needed; NULL: it has none. */
static inline struct gcp_cache *gcp_cache_of_thread(struct gcp_pool *pool)
{
	if (__builtin_expect(gcp_tls.pool_key == pool->key, 1))
		return gcp_tls.cache;
	return gcp_cache_find(pool);
}

/* The same; NULL: the thread has none yet. */
static inline struct gcp_cache *gcp_cache_known(struct gcp_pool *pool)
{
	return gcp_tls.pool_key == pool->key ? gcp_tls.cache : gcp_cache_if_any(pool);
}

/* The most bytes that a thread's cache holds, whose part of the cache limit may be
 * less. The thread has one. */
static inline int64_t gcp_cache_most(struct gcp_pool *pool)
{
	uint64_t most = pool->pools->config.thread_cache_bytes;
	uint64_t limit = pool->cache_limit;

	if (limit != GCP_LIMIT_NONE && limit / atomic_load(&pool->cache_count) < most)
		most = limit / atomic_load(&pool->cache_count);
	return (int64_t)(most & INT64_MAX);
}

/* The records: cache->own is held. The bytes of the cache's blocks: */
static inline int64_t gcp_cache_bytes(const struct gcp_cache *cache)
{
	return cache->held - cache->delta.net[GCP_STATS_LEVEL_ALLOCATED];
}

static inline void gcp_cache_floor_set(struct gcp_cache *cache)
{
	int64_t floor = cache->held - cache->limit;

	cache->floor = floor > -GCP_STATS_LAG ? floor : -GCP_STATS_LAG;
}

/* Blocks came or went without being taken or put by the program. */
static inline void gcp_cache_held_add(struct gcp_cache *cache, int64_t bytes)
{
	cache->held += bytes;
	gcp_cache_floor_set(cache);
}

/* Takes a ready block of the request's class, if there is one. Takes cache->own. */
bool gcp_cache_take(struct gcp_cache *cache, struct gcp_request *request);
/* Takes a block that is CACHED by the caller into a magazine. Returns true if its epoch
 * should be closed. Once the cache is left, a flush by another thread may have merged
 * the block away. Called with cache->own held, and leaves it. */
bool gcp_cache_put(struct gcp_cache *cache, struct gcp_block *block, uint32_t index);
/* The slow half, if gcp_cache_push has returned true. */
bool gcp_cache_put_slow(struct gcp_cache *cache, uint32_t index);

/* Leaves the cache after gcp_cache_give has returned true. Returns 0. */
int gcp_cache_counted(struct gcp_cache *cache);

/* A block that has left its list becomes USED. Returns true if a net count has passed
 * its high. cache->own is held. */
static inline bool gcp_cache_give(struct gcp_cache *cache, struct gcp_block *block,
				  uint64_t requested)
{
	/* blocks.c may be looking. */
	__atomic_store_n(&block->requested, requested, __ATOMIC_RELAXED);
	atomic_store_explicit(&block->state, GCP_BLOCK_USED, memory_order_release);
	return gcp_stats_delta_alloc(&cache->delta, requested, block->size);
}

/* The same of `block`, which is the head of `loaded`, and ready. */
static inline bool gcp_cache_pop(struct gcp_cache *cache, struct gcp_magazine *magazine,
				 struct gcp_block *block, uint64_t requested)
{
	assert(block == magazine->loaded.first);
	magazine->loaded.first = block->next;
	magazine->loaded.count--;
	return gcp_cache_give(cache, block, requested);
}

/* The thread has freed the block into cache->epoch. cache->own is held. */
static inline void gcp_cache_freed(struct gcp_cache *cache,
				   const struct gcp_block *block)
{
	uint64_t size = block->size;

	assert(cache->epoch == block->epoch);
	cache->epoch_left -=
	    (int64_t)(size > cache->epoch_least ? size : cache->epoch_least);
	gcp_stats_delta_free(&cache->delta, block->requested, size);
}

/* The same, and keeps it. Returns true if gcp_cache_put_slow has something to do. */
static inline bool gcp_cache_push(struct gcp_cache *cache, struct gcp_block *block,
				  size_t index)
{
	struct gcp_magazine *magazine = &cache->magazines[index];

	assert(block->size_class == index); /* M3 */
	block->next = NULL;
	gcp_cache_freed(cache, block);
	*magazine->previous.last = block;
	magazine->previous.last = &block->next;
	magazine->previous.count++;
	return cache->epoch_left <= 0 || magazine->previous.count >= magazine->limit ||
	       cache->delta.net[GCP_STATS_LEVEL_ALLOCATED] < cache->floor;
}

/* Returns true if the block is what a request of `size` gets: that, or as much more as
 * an ordinary segment, of gcpool_malloc, has left for no other block (fit.c). */
static inline bool gcp_block_suits(const struct gcp_block *block, uint64_t size)
{
	return block->size == size ||
	       (size >= GCP_WHOLE_LEAST && block->size > size &&
		block->size - size < GCP_CHUNK && !block->segment->chunks);
}

#endif
