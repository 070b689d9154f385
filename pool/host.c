/*
 * host.c - the pool of pinned host memory: the way of an allocation, and of a free.
 *
 * How it differs from the pool of device memory (alloc.c): blocks are whole
 * allocations of the driver, each in a bucket of its size, and are ready only when
 * their fence is completed (host_fence.c).
 *
 * An allocation looks, from cheap to dear:
 *   1. in its bucket, among what is completed      a lock per bucket, no driver
 *   2. again, after asking for the oldest fence    + a query
 *   3. again, after a fence for what was freed     + a fence, and up to 20 us of
 *      since the last one                            queries
 *   4. in the driver                               + 100 us to 50 ms
 *   5. in the driver, after giving back all that is unused (host_reclaim.c)
 * It never waits for the device but in 5.
 *
 * A free beyond the window waits for the oldest page, which bounds what can pile up:
 * plain CUDA would have waited there for everything.
 */
#include "host_types.h"

#include <sys/mman.h>

/* --- life
 * ------------------------------------------------------------------------------
 */

int gcp_host_create(struct gcp_pools *pools)
{
	enum { POWER_MAX = 46 }; /* no larger pinned block than this power of two */
	const struct gcp_config *config = &pools->config;
	int saved = errno;
	struct gcp_host *host;

	if (!config->host || !pools->driver.host_alloc || !pools->driver.world_record)
		return 0;
	host = mmap(NULL, sizeof(*host), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = saved;
	if (host == MAP_FAILED)
		return -ENOMEM;
	host->map = gcp_map_create();
	if (!host->map) {
		munmap(host, sizeof(*host));
		return -ENOMEM;
	}
	host->pools = pools;
	gcp_meta_init(&host->block_meta, sizeof(struct gcp_host_block));
	gcp_meta_init(&host->fence_meta, sizeof(struct gcp_host_fence));
	pthread_mutex_init(&host->lock, NULL);
	pthread_mutex_init(&host->quota_lock, NULL);
	host->pow2_count = gcp_host_class_of(host, config->host_pow2_max) + 1;
	host->class_count = gcp_host_class_of(host, 1ull << POWER_MAX) + 1;
	assert(host->class_count <= GCP_HOST_CLASSES_MAX);
	atomic_store(&host->pages.open, GCP_PAGE_FIRST);
	atomic_store(&host->pages.completed, GCP_PAGE_FIRST - 1);
	pools->host = host;
	return 0;
}

static struct gcp_host *host_working(struct gcp_pools *pools)
{
	struct gcp_host *host = pools->host;

	return host && !atomic_load_explicit(&host->off, memory_order_relaxed) ? host
									       : NULL;
}

/* --- new memory
 * --------------------------------------------------------------------------
 */

struct request {
	struct gcp_host *host;
	struct gcp_pool *pool;
	struct gcp_host_bucket *bucket;
	uint64_t bytes;
	uint64_t life; /* of the pool, when the request came */
};

/* By how much a new block beside `held` bytes would be beyond the quota. */
static uint64_t beyond_quota(const struct request *request,
			     const struct gcp_host_gauge *held)
{
	uint64_t quota = request->host->pools->config.host_quota;
	uint64_t total = atomic_load(&held->current) + request->bucket->size;

	return quota && total > quota ? total - quota : 0;
}

/* *ret_refused: the driver's memory that found no room in the books. */
static int take_from_driver(const struct request *request,
			    struct gcp_host_block **ret_block, void **ret_refused)
{
	struct gcp_host *host = request->host;
	struct gcp_host_bucket *bucket = request->bucket;
	void *p;
	int result;

	if (beyond_quota(request, &host->allocated_bytes) > 0)
		return GCP_CUDA_OUT_OF_MEMORY;
	result = GCP_HOST_CALL(host, host_alloc, host_alloc, request->pool->ctx,
			       bucket->size, bucket->shelf->flags, &p);
	if (result != 0)
		return result;
	result =
	    gcp_host_block_create(bucket, p, request->life, request->bytes, ret_block);
	*ret_refused = result != 0 ? p : NULL;
	return result;
}

/* Under a quota one thread at a time asks for memory and books it. */
static int take_new(const struct request *request, struct gcp_host_block **ret_block)
{
	struct gcp_host *host = request->host;
	struct gcp_host_bucket *bucket = request->bucket;
	bool quota = host->pools->config.host_quota > 0;
	uint64_t start = host->pools->driver.clock_ns();
	void *refused = NULL;
	int result;

	if (quota)
		pthread_mutex_lock(&host->quota_lock);
	result = take_from_driver(request, ret_block, &refused);
	if (quota)
		pthread_mutex_unlock(&host->quota_lock);
	if (refused)
		(void)gcp_host_memory_free(request->pool, refused);
	if (result != 0)
		return result;
	gcp_spin_lock(&bucket->lock);
	bucket->alloc_ns = host->pools->driver.clock_ns() - start;
	bucket->spent_ns = 0;
	gcp_spin_unlock(&bucket->lock);
	atomic_fetch_add_explicit(&host->misses, 1, memory_order_relaxed);
	return 0;
}

/* All that is unused; over the quota, only so much that there is room, and of this
 * context first. */
static void make_room(const struct request *request)
{
	struct gcp_host *host = request->host;
	uint64_t over = beyond_quota(request, &host->allocated_bytes);

	if (over > 0) {
		(void)gcp_host_give_back_own(request->pool, over);
		over = beyond_quota(request, &host->allocated_bytes);
	} else {
		over = UINT64_MAX;
	}
	if (over > 0)
		(void)gcp_host_give_back(host, over);
}

/* Memory is out: gives back what is completed, then waits for all there is, if there
 * is anything. */
static int take_after_reclaim(const struct request *request,
			      struct gcp_host_block **ret_block)
{
	struct gcp_host *host = request->host;
	int result = GCP_CUDA_OUT_OF_MEMORY;
	uint64_t page;

	/* Nothing helps if what the program holds fills the quota. */
	for (int round = 0; round < 2 && result == GCP_CUDA_OUT_OF_MEMORY &&
			    beyond_quota(request, &host->active_bytes) == 0;
	     round++) {
		if (round == 1 && !gcp_host_is_any_unused(host))
			break;
		atomic_fetch_add_explicit(&host->alloc_retries, 1,
					  memory_order_relaxed);
		if (round == 0) {
			(void)gcp_host_pages_close(host);
			(void)gcp_host_pages_poll_all(host);
		} else {
			(void)gcp_host_pages_complete(host);
		}
		*ret_block =
		    gcp_host_bucket_take(request->bucket, request->bytes, &page);
		if (*ret_block)
			return 0;
		make_room(request);
		result = take_new(request, ret_block);
	}
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		atomic_fetch_add_explicit(&host->ooms, 1, memory_order_relaxed);
	return result;
}

/* --- a fence, or growth
 * --------------------------------------------------------------------
 */

/* A fence costs a third of a microsecond, one more block of the bucket once 100 us
 * to 50 ms and its memory for good; with more blocks in turn each fence serves more
 * of them. When as much time has gone into fences as a block would have cost, the
 * bucket grows: never more than twice what the better choice had been. */
static bool is_growth_worth_it(const struct request *request)
{
	struct gcp_host_bucket *bucket = request->bucket;
	uint64_t window = request->host->pools->config.host_window;
	bool worth;

	gcp_spin_lock(&bucket->lock);
	worth = bucket->spent_ns > bucket->alloc_ns &&
		bucket->count < GCP_HOST_GROW_MAX &&
		(bucket->count + 1) * bucket->size <= window;
	gcp_spin_unlock(&bucket->lock);
	return worth;
}

/* How long to look for a fence that was set just now: on an idle device it is done
 * in a moment. An eighth of what growing costs, and not when that was in vain. */
static uint64_t spin_budget(struct gcp_host_bucket *bucket)
{
	uint64_t budget = 0;

	gcp_spin_lock(&bucket->lock);
	if (bucket->distrust > 0)
		bucket->distrust--;
	else
		budget = bucket->alloc_ns / 8;
	gcp_spin_unlock(&bucket->lock);
	return budget < GCP_HOST_SPIN_NS ? budget : GCP_HOST_SPIN_NS;
}

static void spin_over(struct gcp_host_bucket *bucket, bool in_vain, uint64_t ns)
{
	gcp_spin_lock(&bucket->lock);
	if (in_vain)
		bucket->distrust = GCP_HOST_DISTRUST;
	else
		bucket->spent_ns += ns;
	gcp_spin_unlock(&bucket->lock);
}

/* Closes the page of the block that would be next, and looks whether it is done.
 * No new wait: see host_fence.c. */
static void take_after_close(const struct request *request, uint64_t page,
			     struct gcp_host_block **ret_block)
{
	struct gcp_host *host = request->host;
	uint64_t start = host->pools->driver.clock_ns(), now = start;
	uint64_t budget = spin_budget(request->bucket);
	int result = gcp_host_pages_close_for(host, page);

	while (result == 0) {
		if (gcp_host_pages_poll(host, page) != 0)
			break;
		*ret_block =
		    gcp_host_bucket_take(request->bucket, request->bytes, &page);
		now = host->pools->driver.clock_ns();
		if (*ret_block || now - start >= budget || page == 0)
			break;
	}
	spin_over(request->bucket, !*ret_block, now - start);
}

static int alloc_slow(const struct request *request, uint64_t page,
		      struct gcp_host_block **ret_block)
{
	struct gcp_host *host = request->host;
	int result = 0;

	/* A fence that cannot be asked is not completed, nor one that cannot be set.
	 * Its error may be another context's: what the driver itself says, if asked
	 * for new memory, is what plain CUDA would say. */
	if (page != 0 && page < gcp_host_pages_tag(host) &&
	    gcp_host_pages_poll(host, page) == 0)
		*ret_block =
		    gcp_host_bucket_take(request->bucket, request->bytes, &page);
	if (!*ret_block && page != 0 && !is_growth_worth_it(request))
		take_after_close(request, page, ret_block);
	if (!*ret_block) {
		result = take_new(request, ret_block);
		if (result == GCP_CUDA_OUT_OF_MEMORY)
			result = take_after_reclaim(request, ret_block);
	}
	return result;
}

/* --- allocate
 * --------------------------------------------------------------------------------
 */

int gcp_host_alloc(struct gcp_pool *pool, uint64_t bytes, uint32_t flags,
		   struct gcp_host_keep *keep, void **ret_p)
{
	struct request request = {
	    .host = host_working(pool->pools),
	    .pool = pool,
	    .bytes = bytes,
	    .life = atomic_load(&pool->host_life),
	};
	struct gcp_host_block *block;
	uint64_t page = 0;
	int result = 0;

	if (!request.host)
		return -ENOSYS;
	request.bucket =
	    gcp_host_bucket_get(pool, bytes, flags, pool->pools->driver.host_place());
	if (!request.bucket)
		return -ENOSYS; /* larger than anything: the driver says so */
	block = gcp_host_bucket_take(request.bucket, bytes, &page);
	if (__builtin_expect(!block, 0))
		result = alloc_slow(&request, page, &block);
	if (__builtin_expect(result != 0, 0))
		return result;
	block->requested = bytes;
	if (keep)
		gcp_host_keep_add(keep, block);
	gcp_host_gauge_add(&request.host->active_requests, 1);
	gcp_host_gauge_add(&request.host->active_bytes, block->size);
	gcp_host_gauge_add(&request.host->requested_bytes, bytes);
	*ret_p = block->p;
	atomic_store_explicit(&block->state, GCP_HOST_USED, memory_order_release);
	return 0;
}

/* --- free
 * --------------------------------------------------------------------------------------
 */

/* More is pending than the window allows: waits, from old to young, until it is
 * not. Other contexts' work is not waited for: then it stays more for a while. */
static int keep_to_window(struct gcp_host *host, struct gcp_pool *pool)
{
	bool advanced = true;
	int result = 0;

	while (result == 0 && advanced &&
	       gcp_host_pages_pending(host) > host->pools->config.host_window)
		result = gcp_host_pages_wait_oldest(host, pool->ctx, &advanced);
	return result;
}

/* By what this context has: a free waits for no other, and the driver's would. */
static void keep_to_limit(struct gcp_host *host, struct gcp_pool *pool)
{
	uint64_t limit = host->pools->config.host_cache_limit;
	uint64_t total, active;

	(void)gcp_host_pages_poll_all(host);
	active = atomic_load(&host->active_bytes.current);
	total = atomic_load(&host->allocated_bytes.current);
	if (total > active + limit)
		(void)gcp_host_give_back_own(pool, total - active - limit);
}

/* The block was freed into `page`, which should be closed. */
static int free_closes(struct gcp_host *host, struct gcp_pool *pool, uint64_t page)
{
	const struct gcp_config *config = &host->pools->config;
	bool held = atomic_load(&host->pools->holds) > 0;
	int result = 0;

	if (held)
		return 0;
	/* Whose error it is the driver knows: it frees, and says what plain CUDA
	 * would. */
	if (config->blocking_free ? gcp_host_pages_close_for(host, page) != 0
				  : gcp_host_pages_close(host) != 0)
		return gcp_host_give_back_own(pool, UINT64_MAX);
	if (config->blocking_free)
		result = gcp_host_pages_wait_for(host, page, pool->ctx);
	if (result == 0 && gcp_host_pages_pending(host) > config->host_window)
		result = keep_to_window(host, pool);
	if (config->host_cache_limit)
		keep_to_limit(host, pool);
	return result;
}

/* Fences do not work here any more: the driver frees, and waits as it does. */
static int free_by_driver(struct gcp_host_block *block)
{
	struct gcp_host_bucket *bucket = block->bucket;
	struct gcp_pool *pool = bucket->shelf->pool;
	void *p = block->p;
	bool there = gcp_pool_visit(pool), alive;
	int result = 0;

	gcp_host_bucket_count_given(block);
	gcp_spin_lock(&bucket->lock);
	alive = block->life == atomic_load(&pool->host_life);
	gcp_host_block_retire(block);
	gcp_spin_unlock(&bucket->lock);
	if (there && alive)
		result = gcp_host_memory_free(pool, p);
	if (there)
		gcp_pool_visit_end(pool);
	(void)gcp_host_give_back_own(pool, UINT64_MAX);
	return result;
}

static int free_common(struct gcp_host *host, struct gcp_host_block *block)
{
	struct gcp_pool *pool = block->bucket->shelf->pool;
	uint64_t page = gcp_host_pages_tag(host), size = block->size;

	block->page = page;
	if (__builtin_expect(atomic_load_explicit(&host->off, memory_order_relaxed),
			     0)) {
		return free_by_driver(block);
	}
	if (__builtin_expect(
		atomic_load_explicit(&host->pools->holds, memory_order_relaxed) > 0, 0))
		atomic_fetch_add_explicit(&host->held_frees, 1, memory_order_relaxed);
	gcp_host_bucket_give(block);
	if (__builtin_expect(gcp_host_pages_count(host, size) ||
				 host->pools->config.blocking_free,
			     0))
		return free_closes(host, pool, page);
	return 0;
}

int gcp_host_free(struct gcp_pools *pools, void *p)
{
	struct gcp_host *host = pools->host;
	struct gcp_host_block *block = host ? gcp_host_block_find(host, p) : NULL;
	uint8_t used = GCP_HOST_USED;

	if (!block)
		return -ENOENT;
	/* One of two threads that free the same block wins; and from here on the
	 * block is ours alone. */
	if (!atomic_compare_exchange_strong(&block->state, &used, GCP_HOST_FREED))
		return -EINVAL;
	if (__builtin_expect(block->p != p, 0)) {
		/* The descriptor has changed hands since we looked: the program
		 * frees twice, from two threads. */
		atomic_store(&block->state, GCP_HOST_USED);
		return -EINVAL;
	}
	gcp_host_gauge_sub(&host->active_requests, 1);
	gcp_host_gauge_sub(&host->active_bytes, block->size);
	gcp_host_gauge_sub(&host->requested_bytes, block->requested);
	if (__builtin_expect(atomic_load(&block->keep) != NULL, 0) &&
	    gcp_host_keep_put(host, block))
		return 0;
	return free_common(host, block);
}

int gcp_host_find(struct gcp_pools *pools, const void *p, uint64_t *ret_requested)
{
	struct gcp_host_block *block =
	    pools->host ? gcp_host_block_find(pools->host, p) : NULL;

	if (!block || atomic_load(&block->state) != GCP_HOST_USED)
		return -ENOENT;
	*ret_requested = block->requested;
	return 0;
}

bool gcp_host_poll(struct gcp_pools *pools)
{
	struct gcp_host *host = host_working(pools);

	if (!host)
		return false;
	if (atomic_load_explicit(&host->pages.load, memory_order_relaxed) > 0)
		(void)gcp_host_pages_close(host);
	(void)gcp_host_pages_poll_all(host);
	return gcp_host_pages_pending(host) > 0;
}
