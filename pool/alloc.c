/*
 * alloc.c - the way of an allocation, and the way of a free.
 *
 * An allocation looks, from cheap to dear:
 *   1. in the thread's own cache                          no lock, no driver
 *   2. in the heap, among what is ready                   pool->lock
 *   3. again, after asking which pages are completed      + a query
 *   4. behind a barrier, once enough memory circulates    + a device-side wait
 *   5. in the driver                                      + 50 to 800 us
 *   6. in the driver, after giving back all that is cached (reclaim.c)
 *
 * Between 4 and 5 lies the growth bound: while less than the window is pending
 * new memory is taken, so that work on other streams runs on undisturbed; from
 * then on a barrier on the oldest page that fits, which waits only for work of
 * long ago. The bound decides speed and memory, never safety.
 *
 * A free never waits (unless blocking_free says so) and may close a page.
 */
#include "types.h"

/* --- taking what is there ------------------------------------------------------------
 */

struct request {
	struct gcp_heap *heap;
	uint64_t bytes;      /* asked for */
	uint64_t size;       /* rounded up to a class or to units */
	uint32_t size_class; /* or GCP_CLASS_NONE */
};

static void request_init(struct request *request, struct gcp_heap *heap, uint64_t bytes)
{
	const struct gcp_classes *classes = &heap->pool->pools->classes;

	request->heap = heap;
	request->bytes = bytes;
	request->size_class = gcp_class_of(classes, bytes);
	request->size = request->size_class != GCP_CLASS_NONE
			    ? classes->sizes[request->size_class]
			    : gcp_round_up(bytes, GCP_UNIT);
}

/* What a segment must have room for to serve the request. */
static uint64_t request_run(const struct request *request)
{
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	return request->size_class < slab_count ? gcp_slab_bytes(request->size)
						: request->size;
}

static struct gcp_cache *request_cache(const struct request *request)
{
	if (request->heap->private || request->size_class == GCP_CLASS_NONE)
		return NULL;
	return gcp_cache_mine(request->heap->pool);
}

static struct gcp_block *take_cached(const struct request *request)
{
	struct gcp_cache *cache = request_cache(request);

	return cache ? gcp_cache_take(cache, request->size_class, request->bytes)
		     : NULL;
}

/* pool->lock is held. */
static void count_taken(const struct request *request, struct gcp_block *block,
			bool hit)
{
	struct gcp_heap *heap = request->heap;

	block->requested = request->bytes;
	if (heap->private) {
		heap->used_blocks++;
		heap->used_bytes += block->size;
		heap->recycled |= block->recycled != GCP_RECYCLED_NOT;
		block->recycled = GCP_RECYCLED_NOT;
	}
	gcp_tally_count(&heap->pool->tally, 1, request->bytes, block->size);
	if (hit)
		heap->pool->stats.hits++;
	else
		heap->pool->stats.misses++;
	gcp_tally_hand_over(heap->pool, &heap->pool->tally);
}

static struct gcp_block *take_from_heap(const struct request *request, bool hit)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_tally_local mine;
	struct gcp_block *block;

	gcp_cache_take_tally(pool, &mine);
	pthread_mutex_lock(&pool->lock);
	gcp_tally_hand_over(pool, &mine);
	block = gcp_heap_take(request->heap, request->size, request->size_class);
	if (!block && request->heap->private &&
	    gcp_heap_adopt(request->heap, gcp_heap_kind(pool->pools, request->size),
			   request_run(request)))
		block =
		    gcp_heap_take(request->heap, request->size, request->size_class);
	if (block)
		count_taken(request, block, hit);
	pthread_mutex_unlock(&pool->lock);
	return block;
}

static struct gcp_block *take_anywhere(const struct request *request)
{
	struct gcp_block *block = take_cached(request);

	return block ? block : take_from_heap(request, true);
}

/* --- barrier or growth
 * ------------------------------------------------------------------ */

/* Bytes, or for slabs blocks, that wait in the heap for their page and could
 * serve such a request. pool->lock is held. */
static bool heap_is_over_window(const struct request *request, uint64_t cached_bytes)
{
	const struct gcp_config *config = &request->heap->pool->pools->config;
	uint32_t slab_count = request->heap->pool->pools->classes.slab_count;

	if (request->size_class < slab_count &&
	    request->heap->classes[request->size_class].count >= config->window_blocks)
		return true;
	/* A loop over one large block would meet a barrier at every turn, and
	 * each costs the device a few microseconds: two may take turns. */
	uint64_t window = config->window_bytes;
	if (request->size <= 4 * window && window < 2 * request->size)
		window = 2 * request->size;
	return request->heap->pending_bytes + cached_bytes + request->size > window;
}

static uint64_t older_of(uint64_t page, uint64_t other)
{
	if (page == 0 || other == 0)
		return page | other;
	return page < other ? page : other;
}

/* The oldest page with a block for this request, in the thread's cache or in
 * the heap, if so much is pending already that the heap should not grow. */
static uint64_t page_worth_a_barrier(const struct request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = request_cache(request);
	uint64_t cached_page = 0, page = 0;
	uint32_t count = 0;

	if (cache)
		cached_page = gcp_cache_next_page(cache, request->size_class, &count);
	if (cached_page && count >= gcp_cache_window(pool, request->size))
		return cached_page;

	pthread_mutex_lock(&pool->lock);
	if (heap_is_over_window(request, count * request->size))
		page = older_of(cached_page,
				gcp_heap_fitting_page(request->heap, request->size,
						      request->size_class));
	pthread_mutex_unlock(&pool->lock);
	return page;
}

/* The same when the device is full: whatever fits, however little is pending. */
static uint64_t page_that_fits(const struct request *request)
{
	struct gcp_cache *cache = request_cache(request);
	uint64_t page = 0;
	uint32_t count;

	if (cache)
		page = gcp_cache_next_page(cache, request->size_class, &count);
	pthread_mutex_lock(&request->heap->pool->lock);
	page = older_of(page, gcp_heap_fitting_page(request->heap, request->size,
						    request->size_class));
	pthread_mutex_unlock(&request->heap->pool->lock);
	return page;
}

static int take_behind_barrier(const struct request *request, uint64_t page,
			       struct gcp_block **ret_block)
{
	int result;

	*ret_block = NULL;
	if (page == 0)
		return 0;
	result = gcp_pages_make_ready(request->heap->pool, page);
	if (result == -EBUSY)
		return 0;
	if (result == 0)
		*ret_block = take_anywhere(request);
	return result;
}

/* --- new memory
 * ------------------------------------------------------------------------------ */

/* How much to ask the driver for, so that small requests share segments. */
static uint64_t segment_bytes(const struct request *request, enum gcp_kind kind)
{
	const struct gcp_config *config = &request->heap->pool->pools->config;

	if (kind == GCP_KIND_SLAB)
		return GCP_CHUNK;
	if (request->heap->private) /* many graphs, each with little */
		return gcp_round_up(request->size, GCP_CHUNK);
	if (kind == GCP_KIND_MEDIUM || request->size <= config->segment_bytes / 2)
		return config->segment_bytes;
	return gcp_round_up(request->size, GCP_CHUNK);
}

static uint64_t reserved_on(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!pool->live || pool->device != device)
			continue;
		pthread_mutex_lock(&pool->lock);
		bytes += pool->stats.reserved_bytes.current;
		pthread_mutex_unlock(&pool->lock);
	}
	return bytes;
}

static int driver_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	struct gcp_pools *pools = pool->pools;
	uint64_t quota = pools->config.quota;

	if (quota && reserved_on(pools, pool->device) + bytes > quota)
		return GCP_CUDA_OUT_OF_MEMORY;
	return GCP_CALL(pool, mem_alloc, pool->ctx, bytes, ret_addr);
}

/* Adds a segment of `bytes` and takes the block from it. */
static int take_new(const struct request *request, enum gcp_kind kind, uint64_t bytes,
		    struct gcp_block **ret_block)
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
	if (result != 0)
		(void)GCP_CALL(pool, mem_free, pool->ctx, addr);
	/* Added, but another thread was faster to take it: come again. */
	return result;
}

/* Asks for a shared segment, then for no more than needed. */
static int grow(const struct request *request, struct gcp_block **ret_block)
{
	enum gcp_kind kind = gcp_heap_kind(request->heap->pool->pools, request->size);
	uint64_t bytes = segment_bytes(request, kind);
	uint64_t least = gcp_round_up(request->size, GCP_CHUNK);
	int result = take_new(request, kind, bytes, ret_block);

	if (result == GCP_CUDA_OUT_OF_MEMORY && least < bytes)
		result = take_new(request, kind, least, ret_block);
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
static int grow_after_reclaim(const struct request *request,
			      struct gcp_block **ret_block)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = take_behind_barrier(request, page_that_fits(request), ret_block);

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

/* --- allocate
 * -------------------------------------------------------------------------------- */

/* Asks for one page, and for more of them only if that did not help. */
static int take_after_poll(const struct request *request,
			   struct gcp_block *(*take)(const struct request *request),
			   struct gcp_block **ret_block)
{
	bool advanced = true;

	for (uint32_t depth = 0; !*ret_block; depth = 2 * depth + 1) {
		int result = gcp_pages_poll(request->heap->pool, depth, &advanced);

		if (result != 0 || !advanced)
			return result;
		*ret_block = take(request);
	}
	return 0;
}

static bool cache_is_full(const struct request *request)
{
	struct gcp_cache *cache = request_cache(request);
	uint32_t count = 0;

	return cache && gcp_cache_next_page(cache, request->size_class, &count) &&
	       count >= gcp_cache_window(request->heap->pool, request->size);
}

static int alloc_slow(const struct request *request, gcp_addr *ret_addr)
{
	struct gcp_block *block = NULL;
	int result = 0;

	/* Enough of this class waits in the thread's cache: it is better than
	 * to carry more and more over from the heap. */
	if (cache_is_full(request))
		result = take_after_poll(request, take_cached, &block);
	if (result == 0 && !block)
		block = take_from_heap(request, true);
	if (result == 0 && !block)
		result = take_after_poll(request, take_anywhere, &block);
	if (result == 0 && !block)
		result =
		    take_behind_barrier(request, page_worth_a_barrier(request), &block);
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
	return result;
}

int gcp_alloc_from(struct gcp_heap *heap, uint64_t bytes, gcp_addr *ret_addr)
{
	struct request request;
	struct gcp_block *block;

	if (__builtin_expect(bytes == 0, 0))
		return -EINVAL;
	if (bytes > UINT64_MAX / 2) /* rounding up must not wrap */
		return GCP_CUDA_OUT_OF_MEMORY;
	request_init(&request, heap, bytes);
	block = take_cached(&request);
	if (__builtin_expect(!block, 0))
		return alloc_slow(&request, ret_addr);
	*ret_addr = block->addr;
	return 0;
}

int gcp_pool_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	return gcp_alloc_from(&pool->common, bytes, ret_addr);
}

int gcp_heap_alloc(struct gcp_heap *heap, uint64_t bytes, gcp_addr *ret_addr)
{
	return gcp_alloc_from(heap, bytes, ret_addr);
}

/* --- free
 * -------------------------------------------------------------------------------------
 */

/* pool->lock is held. True: the page has taken enough to be closed. */
static bool pool_page_count(struct gcp_pool *pool, const struct gcp_block *block)
{
	if (pool->page_seen != block->page) {
		pool->page_seen = block->page;
		pool->page_bytes = 0;
	}
	pool->page_bytes += block->size;
	/* Larger blocks than threads cache: few fit the window, and half of it to
	 * a page leaves each fence its work. */
	return pool->page_bytes >= pool->pools->config.window_bytes / 2;
}

static bool free_to_heap(struct gcp_pool *pool, struct gcp_block *block)
{
	struct gcp_tally_local mine;
	bool close;

	gcp_cache_take_tally(pool, &mine);
	pthread_mutex_lock(&pool->lock);
	gcp_tally_hand_over(pool, &mine);
	close = pool_page_count(pool, block);
	gcp_tally_count(&pool->tally, -1, block->requested, block->size);
	gcp_tally_hand_over(pool, &pool->tally);
	gcp_heap_put(&pool->common, block);
	pthread_mutex_unlock(&pool->lock);
	return close;
}

static void count_held_free(struct gcp_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->stats.held_frees++;
	pthread_mutex_unlock(&pool->lock);
}

static int free_common(struct gcp_pool *pool, struct gcp_block *block)
{
	struct gcp_cache *cache = NULL;
	uint64_t page = gcp_pages_tag(pool);
	bool close;

	block->page = page;
	if (__builtin_expect(
		atomic_load_explicit(&pool->pools->holds, memory_order_relaxed) > 0, 0))
		count_held_free(pool);
	if (block->size_class != GCP_CLASS_NONE)
		cache = gcp_cache_mine(pool);
	close = cache ? gcp_cache_put(cache, block) : free_to_heap(pool, block);

	int result = 0;
	if (__builtin_expect(pool->pools->config.blocking_free, 0))
		result = gcp_pages_complete(pool, page);
	else if (__builtin_expect(close, 0))
		result = gcp_pages_close(pool);
	if (__builtin_expect(close && pool->pools->config.cache_limit, 0))
		gcp_pool_limit(pool);
	return result == -EBUSY ? 0 : result;
}

int gcp_pools_free(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t used = GCP_BLOCK_USED;

	if (!block)
		return -ENOENT;
	/* One of two threads that free the same block wins; and from here on
	 * the block is ours alone. */
	if (!atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_CACHED))
		return -EINVAL;
	if (__builtin_expect(block->addr != addr, 0)) {
		/* The descriptor has changed hands since we looked: the program
		 * frees twice, from two threads. */
		atomic_store(&block->state, GCP_BLOCK_USED);
		return -EINVAL;
	}
	struct gcp_pool *pool = block->segment->pool;
	if (__builtin_expect(
		atomic_load_explicit(&block->segment->heap, memory_order_acquire) !=
		    &pool->common,
		0))
		return gcp_private_free(pool, block);
	return free_common(pool, block);
}
