/* SPDX-License-Identifier: MIT */
/*
 * grow.c - the way of an allocation that its thread's cache cannot serve.
 *
 * Called by alloc.c, with no lock held. It looks, from cheap to expensive:
 *   1. in the thread's own cache (alloc.c)                no lock, no driver
 *   2. in the heap, among what is ready                   pool->lock
 *   3. again, after asking which epochs are completed      + a query
 *   4. behind a barrier, once enough memory circulates    + a device-side wait
 *   5. in the driver                                      + 50 to 800 us
 *   6. in the driver, after giving back all that is cached (reclaim.c)
 *
 * Between 4 and 5 lies the growth bound: while less than the window is pending
 * new memory is taken, so that work on other streams runs on undisturbed; from
 * then on a barrier on the oldest epoch that fits, which waits only for work of
 * long ago. The bound decides speed and memory, never safety. No epoch is closed
 * here: fence.c, NO NEW WAITS.
 */
#include "cache.h"
#include "vmm.h"

/* --- taking what is there --------------------------------------------------------- */

/* What a segment must have room for to serve the request. */
static uint64_t request_run(const struct gcp_request *request)
{
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	return request->size_class < slab_count ? gcp_slab_bytes(request->size)
						: request->size;
}

/* pool->lock is held. */
static void count_taken(const struct gcp_request *request, struct gcp_block *block,
			bool hit)
{
	struct gcp_heap *heap = request->heap;

	if (heap->private) {
		heap->used_blocks++;
		heap->used_bytes += block->size;
		heap->recycled |= block->group != GCP_GROUP_FRESH;
	}
	block->requested = request->bytes;
	gcp_stats_delta_count(&heap->pool->delta, 1, request->bytes, block->size);
	if (hit)
		heap->pool->stats.hits++;
	else
		heap->pool->stats.misses++;
	gcp_stats_merge(heap->pool, &heap->pool->delta);
}

/* What the heap has ready of the same class, for the next allocations of the thread:
 * where many threads want its lock, each should want it rarely. pool->lock is held. */
static void take_stock(const struct gcp_request *request, uint32_t wanted,
		       struct gcp_chain *chain)
{
	while (chain->count + 1 < wanted) {
		struct gcp_block *block =
		    gcp_heap_take(request->heap, request->size, request->size_class);

		if (!block)
			return;
		if (block->size_class != request->size_class) { /* could not be cut */
			gcp_heap_put(request->heap, block);
			return;
		}
		gcp_block_set_state(block, GCP_BLOCK_CACHED);
		block->next = NULL;
		gcp_chain_append(chain, block, &block->next, 1);
	}
}

static struct gcp_block *take_from_heap(const struct gcp_request *request, bool hit)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = gcp_request_cache(request);
	uint32_t wanted = cache ? gcp_cache_wants(cache, request) : 1;
	struct gcp_chain stock;
	struct gcp_stats_delta counted;
	struct gcp_block *block;

	gcp_chain_init(&stock);
	gcp_cache_take_stats(pool, &counted);
	pthread_mutex_lock(&pool->lock);
	gcp_stats_merge(pool, &counted);
	block = gcp_heap_take(request->heap, request->size, request->size_class);
	if (!block && request->heap->private &&
	    gcp_heap_adopt(request->heap, gcp_heap_kind(pool, request->size),
			   request_run(request)))
		block =
		    gcp_heap_take(request->heap, request->size, request->size_class);
	if (block) {
		count_taken(request, block, hit);
		take_stock(request, wanted, &stock);
	}
	pthread_mutex_unlock(&pool->lock);
	if (cache)
		gcp_cache_stock(cache, &stock);
	return block;
}

static struct gcp_block *take_anywhere(const struct gcp_request *request)
{
	struct gcp_block *block = gcp_take_cached(request);

	return block ? block : take_from_heap(request, true);
}

/* --- barrier or growth --------------------------------------------------- */

/* Bytes, or for slabs blocks, that wait in the heap for their epoch and could
 * serve such a request. pool->lock is held. */
static bool heap_is_over_window(const struct gcp_request *request,
				uint64_t cached_bytes)
{
	struct gcp_window window = gcp_window(request->heap->pool);
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	if (window.streams == 1 && request->size > window.bytes / 4)
		return true;

	if (request->size_class < slab_count &&
	    request->heap->classes[request->size_class].count >= window.blocks)
		return true;
	/* A loop over one large block would meet a barrier at every turn, and
	 * each costs the device a few microseconds: two may take turns. */
	uint64_t large = (window.streams == 1 ? 2 : 4) * window.bytes;
	if (request->size <= large && window.bytes < 2 * request->size)
		window.bytes = 2 * request->size;
	return request->heap->pending_bytes + cached_bytes + request->size >
	       window.bytes;
}

/* What lies free in between is better used than memory higher up: blocks that
 * wait are made ready before one is taken, as far as that costs little. A query
 * for each epoch that was closed; and a barrier, if those are cheap, when a
 * window's worth waits. */
static int poll_pending(const struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_window window = gcp_window(pool);
	uint64_t open =
	    atomic_load_explicit(&pool->timeline.open, memory_order_relaxed);
	uint64_t pending;

	if (request->heap->private || pool->vmm ||
	    request->size_class < pool->pools->classes.slab_count)
		return 0;
	pthread_mutex_lock(&pool->lock);
	gcp_heap_advance(request->heap);
	pending = request->heap->pending_bytes;
	bool closed = pending >= window.epoch_bytes && pool->polled_epoch != open - 1;
	if (closed)
		pool->polled_epoch = open - 1;
	pthread_mutex_unlock(&pool->lock);
	if (!closed)
		return 0;
	int result = gcp_timeline_poll_all(pool);
	if (result != 0 || window.streams != 1 || pending < window.bytes)
		return result;
	result = gcp_timeline_make_ready(pool, open - 1);
	return result == -EBUSY ? 0 : result;
}

static uint64_t older_of(uint64_t epoch, uint64_t other)
{
	if (epoch == 0 || other == 0)
		return epoch | other;
	return epoch < other ? epoch : other;
}

/* The oldest epoch with a block for this request, in the thread's cache or in
 * the heap, if so much is pending already that the heap should not grow. */
static uint64_t epoch_worth_a_barrier(const struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = gcp_request_cache(request);
	uint64_t cached_epoch = 0, cached_bytes = 0, epoch = 0;
	uint32_t count = 0;

	if (cache) {
		cached_epoch = gcp_cache_next_epoch(cache, request->size_class, &count);
		cached_bytes = count * request->size +
			       (uint64_t)atomic_load_explicit(&pool->depot_bytes,
							      memory_order_relaxed);
	}
	struct gcp_window window = gcp_window_of_thread(pool);
	if (cached_epoch && count >= gcp_window_blocks(&window, request->size))
		return cached_epoch;

	pthread_mutex_lock(&pool->lock);
	if (heap_is_over_window(request, cached_bytes))
		epoch = older_of(cached_epoch,
				 gcp_heap_fitting_epoch(request->heap, request->size,
							request->size_class));
	pthread_mutex_unlock(&pool->lock);
	return epoch;
}

/* The same when the device is full: whatever fits, however little is pending. */
static uint64_t epoch_that_fits(const struct gcp_request *request)
{
	struct gcp_cache *cache = gcp_request_cache(request);
	uint64_t epoch = 0;
	uint32_t count;

	if (cache)
		epoch = gcp_cache_next_epoch(cache, request->size_class, &count);
	pthread_mutex_lock(&request->heap->pool->lock);
	epoch = older_of(epoch, gcp_heap_fitting_epoch(request->heap, request->size,
						       request->size_class));
	pthread_mutex_unlock(&request->heap->pool->lock);
	return epoch;
}

static int take_behind_barrier(const struct gcp_request *request, uint64_t epoch,
			       struct gcp_block **ret_block)
{
	int result;

	*ret_block = NULL;
	if (epoch == 0)
		return 0;
	result = gcp_timeline_make_ready(request->heap->pool, epoch);
	if (result == -EBUSY)
		return 0;
	if (result == 0)
		*ret_block = take_anywhere(request);
	return result;
}

/* --- new memory ---------------------------------------------------------- */

/* How much to ask the driver for, so that small requests share segments. */
static uint64_t segment_bytes(const struct gcp_request *request, enum gcp_kind kind)
{
	uint64_t shared;

	if (kind == GCP_KIND_SLAB)
		return GCP_CHUNK;
	if (request->heap->private) /* many graphs, each with little */
		return gcp_round_up(request->size, GCP_CHUNK);
	shared = gcp_segment_shared_bytes(request->heap->pool);
	/* A device may be filled with blocks of one size: none is lost. */
	return gcp_round_up(request->size <= shared / 2
				? shared / request->size * request->size
				: request->size,
			    GCP_CHUNK);
}

static int driver_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	if (!gcp_quota_allows(pool, bytes))
		return GCP_CUDA_OUT_OF_MEMORY;
	return GCP_CALL(pool, mem_alloc, pool->ctx, bytes, ret_addr);
}

/* Adds a segment of `bytes` and takes the block from it. *ret_refused: the driver's
 * memory that found no room in the books. */
static int take_segment(const struct gcp_request *request, enum gcp_kind kind,
			uint64_t bytes, struct gcp_block **ret_block,
			gcp_addr *ret_refused)
{
	struct gcp_pool *pool = request->heap->pool;
	gcp_addr addr;
	int result = driver_alloc(pool, bytes, &addr);

	if (result != 0)
		return result;
	pthread_mutex_lock(&pool->lock);
	result = gcp_heap_add_segment(request->heap, addr, bytes, kind);
	if (result == 0) {
		*ret_block =
		    gcp_heap_take(request->heap, request->size, request->size_class);
		if (*ret_block)
			count_taken(request, *ret_block, false);
	}
	pthread_mutex_unlock(&pool->lock);
	GCP_LOG(pool->pools,
		"device %d: took a segment of %llu KiB at 0x%llx for %llu bytes",
		pool->device, GCP_ULL(bytes >> 10), GCP_ULL(addr),
		GCP_ULL(request->bytes));
	*ret_refused = result != 0 ? addr : 0;
	/* Added, but another thread was faster to take it: come again. */
	return result;
}

/* Under a quota one thread at a time asks for memory and books it. */
static int take_new(const struct gcp_request *request, enum gcp_kind kind,
		    uint64_t bytes, struct gcp_block **ret_block)
{
	struct gcp_pool *pool = request->heap->pool;
	bool quota = pool->quota != GCP_LIMIT_NONE;
	gcp_addr refused = 0;

	if (quota)
		pthread_mutex_lock(&pool->pools->vmm_lock);
	int result = take_segment(request, kind, bytes, ret_block, &refused);
	if (quota)
		pthread_mutex_unlock(&pool->pools->vmm_lock);
	if (refused)
		(void)GCP_CALL(pool, mem_free, pool->ctx, refused);
	return result;
}

/* The epoch up to which the pool's memory should be ready, so that no more than
 * half a window waits; 0: the window is not full. */
static uint64_t epoch_beyond_window(struct gcp_pool *pool)
{
	uint64_t most = gcp_window(pool).bytes, bytes = 0, epoch = 0;
	struct gcp_block *block;

	pthread_mutex_lock(&pool->lock);
	if (pool->common.pending_bytes > most)
		TAILQ_FOREACH_REVERSE(block, &pool->common.pending, gcp_block_list,
				      link)
		{
			bytes += block->size;
			epoch = block->epoch;
			if (bytes > most / 2)
				break;
		}
	pthread_mutex_unlock(&pool->lock);
	return epoch;
}

/* Where memory is mapped by hand, what waits is made ready before memory that is
 * ready is cut up further: the less is cut, the less has to be moved. */
static int order_beyond_window(struct gcp_pool *pool)
{
	uint64_t epoch = epoch_beyond_window(pool);
	int result = epoch ? gcp_timeline_make_ready(pool, epoch) : 0;

	return result == -EBUSY ? 0 : result;
}

/* Before memory is mapped, which costs more than all of this: what threads keep
 * for themselves, and frees that wait for others to share their fence. */
static int take_gathered(const struct gcp_request *request,
			 struct gcp_block **ret_block)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = 0;

	gcp_caches_flush(pool);
	pthread_mutex_lock(&pool->lock);
	struct gcp_block *last = TAILQ_LAST(&pool->common.pending, gcp_block_list);
	bool open = last && last->epoch >= gcp_timeline_stamp(pool);
	pthread_mutex_unlock(&pool->lock);
	if (open)
		result = gcp_timeline_close_early(pool, false);
	if (result == 0)
		result = gcp_timeline_poll_all(pool);
	if (result == 0)
		result = order_beyond_window(pool);
	if (result == 0)
		*ret_block = take_from_heap(request, true);
	return result;
}

/* New memory in a mapped segment: unused memory from elsewhere, if there is. Where a
 * peer of the device cannot reach that, an ordinary segment: as plain CUDA's, it is
 * open to all peers, or refused with the driver's code. */
static int grow_mapped(const struct gcp_request *request, enum gcp_kind kind,
		       struct gcp_block **ret_block)
{
	bool new;
	int result = take_gathered(request, ret_block);

	if (result != 0 || *ret_block)
		return result;
	result = gcp_vmm_provide(request->heap, kind, request_run(request), &new);
	if (result == 0)
		*ret_block = take_from_heap(request, !new);
	if (result == -EACCES)
		result =
		    take_new(request, kind,
			     gcp_round_up(request_run(request), GCP_CHUNK), ret_block);
	return result;
}

/* The segment that is asked for: shared, and as large as what was given back. */
static void segment_choose(const struct gcp_request *request, enum gcp_kind *ret_kind,
			   uint64_t *ret_bytes)
{
	struct gcp_pool *pool = request->heap->pool;
	enum gcp_kind kind = gcp_heap_kind(pool, request->size);
	uint64_t bytes = segment_bytes(request, kind), consolidated = 0;

	if (kind >= GCP_KIND_LARGE && !request->heap->private) {
		pthread_mutex_lock(&pool->lock);
		consolidated = gcp_consolidation_on_miss(pool, bytes);
		pthread_mutex_unlock(&pool->lock);
	}
	*ret_kind = consolidated > bytes ? GCP_KIND_LARGE : kind;
	*ret_bytes = consolidated > bytes ? consolidated : bytes;
}

/* Asks for that segment, then for no more than needed. */
static int grow(const struct gcp_request *request, struct gcp_block **ret_block)
{
	uint64_t bytes, least = gcp_round_up(request->size, GCP_CHUNK);
	enum gcp_kind kind;
	int result;

	if (request->heap->pool->vmm)
		return grow_mapped(request,
				   gcp_heap_kind(request->heap->pool, request->size),
				   ret_block);
	segment_choose(request, &kind, &bytes);
	result = take_new(request, kind, bytes, ret_block);
	if (result == GCP_CUDA_OUT_OF_MEMORY && least < bytes) {
		kind = gcp_heap_kind(request->heap->pool, request->size);
		result = take_new(request, kind, least, ret_block);
	}
	return result;
}

static void count_retry(struct gcp_pool *pool, bool out)
{
	pthread_mutex_lock(&pool->lock);
	if (out)
		pool->stats.ooms++;
	else
		pool->stats.alloc_retries++;
	pthread_mutex_unlock(&pool->lock);
}

/* The driver is full: takes what is pending behind a barrier, or else gives
 * back, stage by stage, and asks again. */
static int grow_after_reclaim(const struct gcp_request *request,
			      struct gcp_block **ret_block)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = take_behind_barrier(request, epoch_that_fits(request), ret_block);

	if (result != 0 || *ret_block)
		return result;
	for (int stage = 0; stage < GCP_RECLAIM_STAGES; stage++) {
		count_retry(pool, false);
		gcp_reclaim_stage(pool->pools, pool->device, stage, UINT64_MAX);
		*ret_block = take_anywhere(request);
		if (*ret_block)
			return 0;
		result = grow(request, ret_block);
		if (result != GCP_CUDA_OUT_OF_MEMORY)
			return result;
	}
	count_retry(pool, true);
	return result;
}

/* --- allocate ------------------------------------------------------------ */

/* Asks for one epoch, and for more of them only if that did not help. Once the answer
 * was no (*advanced), asking again is in vain. */
static int take_after_poll(const struct gcp_request *request,
			   struct gcp_block *(*take)(const struct gcp_request *request),
			   bool *advanced, struct gcp_block **ret_block)
{
	for (uint32_t depth = 0; *advanced && !*ret_block; depth = 2 * depth + 1) {
		int result = gcp_timeline_poll(request->heap->pool, depth, advanced);

		if (result != 0 || !*advanced)
			return result;
		*ret_block = take(request);
	}
	return 0;
}

/* What threads keep for themselves may be the very room that is needed. */
static int take_after_flush(const struct gcp_request *request,
			    struct gcp_block **ret_block)
{
	struct gcp_pool *pool = request->heap->pool;

	if (request->heap->private || pool->vmm ||
	    !gcp_caches_may_help(pool, gcp_heap_kind(pool, request->size)))
		return 0;
	gcp_caches_flush(pool);
	*ret_block = take_from_heap(request, true);
	if (*ret_block)
		return 0;
	return take_behind_barrier(request, epoch_worth_a_barrier(request), ret_block);
}

/* Whether enough of this class waits in the thread's cache to ask what of it is
 * completed, or to set a barrier. */
static bool cache_is_full(const struct gcp_request *request, bool ask)
{
	struct gcp_cache *cache = gcp_request_cache(request);
	uint32_t count = 0;

	if (!cache || !gcp_cache_next_epoch(cache, request->size_class, &count))
		return false;
	struct gcp_window window = gcp_window_of_thread(request->heap->pool);
	if (count < (ask ? gcp_cache_batch(cache, request->size)
			 : gcp_window_blocks(&window, request->size)))
		return false;
	gcp_window_starved(request->heap->pool);
	return true;
}

/* Enough of this class waits in the thread's cache: it is better than to carry more
 * and more over from the heap. */
static int take_from_full_cache(const struct gcp_request *request, bool ask,
				bool *advanced, struct gcp_block **ret_block)
{
	enum { POLL_BACKOFF = 8 };
	struct gcp_cache *cache = gcp_request_cache(request);
	int result;

	if (!ask)
		return take_behind_barrier(request, epoch_worth_a_barrier(request),
					   ret_block);
	if (cache->poll_backoff > 0) {
		cache->poll_backoff--;
		return 0;
	}
	result = take_after_poll(request, gcp_take_cached, advanced, ret_block);
	if (!*advanced)
		cache->poll_backoff = POLL_BACKOFF;
	return result;
}

static int gather_ready(struct gcp_pool *pool)
{
	int result = gcp_timeline_poll_all(pool);

	return result == 0 ? order_beyond_window(pool) : result;
}

/* Whether to ask which epochs are completed before a barrier is set. Asking costs the
 * host several times what a barrier costs it; and to the device a barrier is next to
 * nothing when its epoch is as old as the window, or all work is on one stream. But
 * where only completion counts a barrier waits, and one that makes several contexts
 * wait is expensive. */
static bool asks_first(struct gcp_pool *pool)
{
	return gcp_window(pool).streams == 0 ||
	       atomic_load_explicit(&pool->pools->completed_only, memory_order_relaxed);
}

/* Who does not ask does so all the same once in a while, so that fences can be used
 * again. */
static int ask_at_times(struct gcp_pool *pool)
{
	enum { BARRIERS_BEFORE_ASKING = 8 };
	bool advanced;

	if (atomic_fetch_add_explicit(&pool->unasked, 1, memory_order_relaxed) %
		BARRIERS_BEFORE_ASKING !=
	    BARRIERS_BEFORE_ASKING - 1)
		return 0;
	return gcp_timeline_poll(pool, GCP_POLL_HALF, &advanced);
}

int gcp_alloc_slow(const struct gcp_request *request, gcp_addr *ret_addr)
{
	bool ask = asks_first(request->heap->pool);
	bool advanced = true;
	struct gcp_block *block = NULL;
	int result = ask ? 0 : ask_at_times(request->heap->pool);

	if (result == 0 && cache_is_full(request, ask))
		result = take_from_full_cache(request, ask, &advanced, &block);
	if (result == 0 && !block && request->heap->pool->vmm)
		result = gather_ready(request->heap->pool);
	if (result == 0 && !block)
		result = poll_pending(request);
	if (result == 0 && !block)
		block = take_from_heap(request, true);
	if (result == 0 && !block && ask)
		result = take_after_poll(request, take_anywhere, &advanced, &block);
	if (result == 0 && !block)
		result = take_behind_barrier(request, epoch_worth_a_barrier(request),
					     &block);
	if (result == 0 && !block && !ask)
		result = take_after_poll(request, take_anywhere, &advanced, &block);
	if (result == 0 && !block)
		result = take_after_flush(request, &block);
	/* New memory may go to other threads before we get at it, but not for
	 * ever: then it is descriptors that are short. */
	for (int round = 0; result == 0 && !block; round++) {
		if (round == 16)
			return -ENOMEM;
		result = grow(request, &block);
		if (result == GCP_CUDA_OUT_OF_MEMORY)
			result = grow_after_reclaim(request, &block);
	}
	if (result == 0)
		*ret_addr = block->addr;
	gcp_tick(request->heap->pool->pools);
	return result;
}
