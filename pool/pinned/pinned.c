/* SPDX-License-Identifier: MIT */
/*
 * pinned.c - the pool of pinned host memory: the way of an allocation, and of a free.
 *
 * How it differs from the pool of device memory (alloc.c): blocks are whole
 * allocations of the driver, each in a bucket of its size, and are ready only when
 * their fence is completed (pinned_fence.c).
 *
 * An allocation looks, from cheap to expensive:
 *   1. in its bucket, among what is completed      a lock per bucket, no driver
 *   2. again, after asking for the oldest fence,   + a query, and perhaps a fence
 *      set now if what was freed has none yet
 *   3. in the driver                               + 100 us to 50 ms
 *   4. in the driver, after giving back all that is unused (pinned_reclaim.c)
 * It never waits for the device but in 4.
 *
 * A free beyond the window waits for the oldest epoch, which bounds what can pile up:
 * plain CUDA would have waited there for everything.
 */
#include "pinned_types.h"

#include <sys/mman.h>

/* --- life ----------------------------------------------------------------- */

int gcp_pinned_create(struct gcp_pools *pools)
{
	enum { POWER_MAX = 46 }; /* no larger pinned block than this power of two */
	const struct gcp_config *config = &pools->config;
	struct gcp_pinned *pinned;

	if (!config->pinned || !pools->driver.host_alloc)
		return 0;
	pinned = gcp_zeroed_map(sizeof(*pinned));
	if (!pinned)
		return -ENOMEM;
	pinned->map = gcp_map_create();
	if (!pinned->map) {
		munmap(pinned, sizeof(*pinned));
		return -ENOMEM;
	}
	pinned->pools = pools;
	gcp_descriptor_pool_init(&pinned->block_descriptors,
				 sizeof(struct gcp_pinned_block));
	gcp_mutex_init(&pinned->lock, GCP_RANK_PINNED);
	gcp_mutex_init(&pinned->quota_lock, GCP_RANK_PINNED_QUOTA);
	pinned->pow2_count = gcp_pinned_class_of(pinned, config->pinned_pow2_max) + 1;
	pinned->class_count = gcp_pinned_class_of(pinned, 1ull << POWER_MAX) + 1;
	assert(pinned->class_count <= GCP_PINNED_CLASSES_MAX);
	gcp_timeline_init(&pinned->timeline, pools, &gcp_pinned_fences);
	pools->pinned = pinned;
	return 0;
}

/* A quota counts all memory, also where none is used again. */
static struct gcp_pinned *pinned_counting(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	return pinned && (pools->config.pinned_quota != GCP_LIMIT_NONE ||
			  !atomic_load_explicit(&pinned->off, memory_order_relaxed))
		   ? pinned
		   : NULL;
}

static struct gcp_pinned *pinned_working(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	return pinned && !atomic_load_explicit(&pinned->off, memory_order_relaxed)
		   ? pinned
		   : NULL;
}

/* --- new memory ----------------------------------------------------------- */

struct request {
	struct gcp_pinned *pinned;
	struct gcp_pool *pool;
	struct gcp_pinned_bucket *bucket;
	uint64_t bytes;
	uint64_t generation; /* of the pool, when the request came */
};

static bool is_quota_set(const struct request *request)
{
	return request->pinned->pools->config.pinned_quota != GCP_LIMIT_NONE;
}

/* By how much a new block beside `held` bytes would be beyond the quota. */
static uint64_t beyond_quota(const struct request *request,
			     const struct gcp_pinned_gauge *held)
{
	uint64_t quota = request->pinned->pools->config.pinned_quota;
	uint64_t total = atomic_load(&held->current) + request->bucket->size;

	return total > quota ? total - quota : 0;
}

/* Beside what the driver has not back yet, too. In this order: what leaves the lists is
 * counted there before. */
static bool quota_allows(const struct request *request)
{
	struct gcp_pinned *pinned = request->pinned;
	uint64_t held = atomic_load(&pinned->allocated_bytes.current);

	held += atomic_load(&pinned->giving);
	return held + request->bucket->size <= pinned->pools->config.pinned_quota;
}

/* *ret_refused: the driver's memory that found no room in the records. */
static int take_from_driver(const struct request *request,
			    struct gcp_pinned_block **ret_block, void **ret_refused)
{
	struct gcp_pinned *pinned = request->pinned;
	struct gcp_pinned_bucket *bucket = request->bucket;
	void *p;
	int result;

	if (!quota_allows(request)) {
		gcp_refusal_set(GCP_REFUSED_BY_QUOTA);
		return GCP_CUDA_OUT_OF_MEMORY;
	}
	gcp_refusal_set(GCP_REFUSED_BY_DRIVER);
	result = GCP_PINNED_CALL(pinned, host_alloc, host_alloc, request->pool->ctx,
				 bucket->size, bucket->arena->flags, &p);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		atomic_store_explicit(&pinned->out, true, memory_order_relaxed);
	if (result != 0)
		return result;
	result = gcp_pinned_block_create(bucket, p, request->generation, request->bytes,
					 ret_block);
	if (result != 0) {
		atomic_fetch_add(&pinned->giving, bucket->size);
		*ret_refused = p;
	}
	return result;
}

/* Under a quota one thread at a time asks for memory and counts it. */
static int take_new(const struct request *request, struct gcp_pinned_block **ret_block)
{
	struct gcp_pinned *pinned = request->pinned;
	struct gcp_pinned_bucket *bucket = request->bucket;
	bool quota = is_quota_set(request);
	void *refused = NULL;
	int result;

	if (quota)
		gcp_mutex_lock(&pinned->quota_lock);
	result = take_from_driver(request, ret_block, &refused);
	if (quota)
		gcp_mutex_unlock(&pinned->quota_lock);
	if (refused)
		(void)gcp_pinned_memory_give(request->pool, refused, bucket->size);
	if (result != 0)
		return result;
	atomic_fetch_add_explicit(&pinned->misses, 1, memory_order_relaxed);
	GCP_LOG(pinned->pools, "took %llu KiB of pinned memory for %llu bytes",
		GCP_ULL(bucket->size >> 10), GCP_ULL(request->bytes));
	return 0;
}

/* Asks the driver for that much, and gives it back. Under a quota that counts
 * meanwhile, too. */
static bool driver_has(const struct request *request, uint64_t bytes)
{
	struct gcp_pinned *pinned = request->pinned;
	bool quota = is_quota_set(request), has;
	void *p;

	if (quota)
		gcp_mutex_lock(&pinned->quota_lock);
	has = quota_allows(request);
	atomic_fetch_add(&pinned->giving, bytes);
	has = has && GCP_PINNED_CALL(pinned, host_alloc, host_alloc, request->pool->ctx,
				     bytes, request->bucket->arena->flags, &p) == 0;
	if (quota)
		gcp_mutex_unlock(&pinned->quota_lock);
	if (has)
		(void)gcp_pinned_memory_give(request->pool, p, bytes);
	else
		atomic_fetch_sub(&pinned->giving, bytes);
	return has;
}

/* Whether giving back what this context has unused can make room. The driver's limit is
 * not known, so the driver is asked for what would then still be missing: where it
 * refuses that, the request fails anyway, and must not wait. */
static bool may_help(const struct request *request)
{
	enum { PAGE = 4096 }; /* in which the driver may have rounded */
	const struct gcp_pinned *pinned = request->pinned;
	uint64_t own = gcp_pinned_unused_own(request->pool, PAGE);
	uint64_t over = beyond_quota(request, &pinned->allocated_bytes);
	uint64_t bytes = request->bytes;

	if (is_quota_set(request))
		bytes = request->bucket->size; /* CUDA is not asked for less */
	if (own == 0 || over > 0)
		return own > 0 && own >= over;
	return own + PAGE >= bytes || driver_has(request, bytes - own - PAGE);
}

/* Gives back what is unused; over the quota, only so much that there is room, and of
 * this context first. Only of contexts that are idle: the driver's free waits for all
 * work there, also for what came after the program's free. In the last rounds of this
 * context in any case, for without it the request fails. */
static void make_room(const struct request *request, uint64_t idle, bool last)
{
	struct gcp_pinned *pinned = request->pinned;
	uint64_t over = beyond_quota(request, &pinned->allocated_bytes);
	uint64_t wanted = over > 0 ? over : UINT64_MAX;

	if (last && may_help(request))
		(void)gcp_pinned_finish_own(request->pool, wanted);
	else if (gcp_pinned_epoch_ready(request->pool, idle))
		(void)gcp_pinned_release_own(request->pool, wanted);
	if (over > 0)
		wanted = beyond_quota(request, &pinned->allocated_bytes);
	if (wanted > 0)
		(void)gcp_pinned_release(pinned, wanted, idle);
}

/* Makes more of what is pending ready: first by looking; then by waiting for what frees
 * would have waited for on plain CUDA, of this context and then of the others; never
 * for work that came after the free. */
static uint64_t make_ready(const struct request *request, int round)
{
	struct gcp_pools *pools = request->pool->pools;

	for (struct gcp_pool *pool = pools->first; round > 0 && pool; pool = pool->next)
		if ((round == 1) == (pool == request->pool))
			(void)gcp_pinned_timeline_wait(
			    pool, atomic_load(&pool->pinned_freed));
	return gcp_pinned_timeline_look(request->pinned);
}

/* Whether other threads gave memory back, that which is on its way to the driver, too.
 */
static bool others_help(const struct request *request, struct gcp_search *search)
{
	if (beyond_quota(request, &request->pinned->active_bytes) > 0)
		return false;
	gcp_pinned_givers_wait(request->pinned->pools);
	return gcp_search_others(request->pinned->pools, search);
}

/* Memory is out: uses and gives back what is ready, then what can be made so. */
static int take_after_reclaim(const struct request *request,
			      struct gcp_pinned_block **ret_block)
{
	/* The last once for the quota, and once for a driver without room below it. */
	enum { LAST = 2, ROUNDS = 4 };
	struct gcp_pinned *pinned = request->pinned;
	int result = GCP_CUDA_OUT_OF_MEMORY;
	struct gcp_search search = {0};
	uint64_t epoch;

	(void)gcp_search_others(pinned->pools, &search); /* it is tried once more */
	/* Nothing helps if what the program holds fills the quota. */
	for (int round = 0; round < ROUNDS && result == GCP_CUDA_OUT_OF_MEMORY &&
			    beyond_quota(request, &pinned->active_bytes) == 0 &&
			    (round == 0 || gcp_pinned_has_unused(pinned->pools));
	     round++) {
		uint64_t idle = make_ready(request, round);

		atomic_fetch_add_explicit(&pinned->alloc_retries, 1,
					  memory_order_relaxed);
		*ret_block =
		    gcp_pinned_bucket_take(request->bucket, request->bytes, &epoch);
		if (*ret_block)
			return 0;
		make_room(request, idle, round >= LAST);
		result = take_new(request, ret_block);
	}
	for (int i = 0; i < GCP_TRIES_OTHERS && result == GCP_CUDA_OUT_OF_MEMORY &&
			others_help(request, &search);
	     i++) {
		*ret_block =
		    gcp_pinned_bucket_take(request->bucket, request->bytes, &epoch);
		if (*ret_block)
			return 0;
		result = take_new(request, ret_block);
	}
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		atomic_fetch_add_explicit(&pinned->ooms, 1, memory_order_relaxed);
	return result;
}

/* --- a fence, or growth --------------------------------------------------- */

/* Looks whether the block that would be next is completed, closing its epoch if that is
 * open. No new wait: see pinned_fence.c. A fence that cannot be asked is not completed,
 * nor one that cannot be set. Its error may be another context's: what the driver
 * itself says, if asked for new memory, is what plain CUDA would say. */
static void take_after_look(const struct request *request, uint64_t epoch,
			    struct gcp_pinned_block **ret_block)
{
	if (gcp_pinned_timeline_close_for(request->pinned, epoch) == 0 &&
	    gcp_pinned_timeline_poll(request->pinned, epoch) == 0)
		*ret_block =
		    gcp_pinned_bucket_take(request->bucket, request->bytes, &epoch);
}

static int alloc_slow(const struct request *request, uint64_t epoch,
		      struct gcp_pinned_block **ret_block)
{
	int result = 0;

	if (epoch != 0)
		take_after_look(request, epoch, ret_block);
	if (!*ret_block)
		result = take_new(request, ret_block);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		result = take_after_reclaim(request, ret_block);
	return result;
}

/* --- allocate ------------------------------------------------------------- */

int gcp_pinned_alloc(struct gcp_pool *pool, uint64_t bytes, uint32_t flags,
		     struct gcp_pinned_set *set, void **ret_p)
{
	struct request request = {
	    .pinned = pinned_counting(pool->pools),
	    .pool = pool,
	    .bytes = bytes,
	    .generation = atomic_load(&pool->pinned_generation),
	};
	struct gcp_pinned_block *block;
	uint64_t epoch = 0;
	int result = 0;

	if (!request.pinned)
		return -ENOSYS;
	request.bucket =
	    gcp_pinned_bucket_get(pool, bytes, flags, pool->pools->driver.host_place());
	if (!request.bucket)
		return -ENOSYS; /* larger than anything: the driver says so */
	block = gcp_pinned_bucket_take(request.bucket, bytes, &epoch);
	if (__builtin_expect(!block, 0))
		result = alloc_slow(&request, epoch, &block);
	if (__builtin_expect(result != 0, 0))
		return result;
	block->requested = bytes;
	if (set)
		gcp_pinned_set_add(set, block);
	gcp_pinned_gauge_add(&request.pinned->active_requests, 1);
	gcp_pinned_gauge_add(&request.pinned->active_bytes, block->size);
	gcp_pinned_gauge_add(&request.pinned->requested_bytes, bytes);
	*ret_p = block->p;
	atomic_store_explicit(&block->state, GCP_PINNED_USED, memory_order_release);
	return 0;
}

/* --- free ----------------------------------------------------------------- */

/* Whether each free closes its own epoch, or where a capture forbids that is waited
 * for: an allocation may have to wait for it alone. */
static bool closes_each(const struct gcp_pinned *pinned, uint64_t size)
{
	return size >= GCP_PINNED_LARGE ||
	       pinned->pools->config.pinned_quota != GCP_LIMIT_NONE ||
	       pinned->pools->config.blocking_free ||
	       atomic_load_explicit(&pinned->out, memory_order_relaxed);
}

/* More is pending than the window allows: waits for what is oldest, in this context
 * alone. Where no fence can be set a real free does that. */
static int keep_window(struct gcp_pinned *pinned, struct gcp_pool *pool)
{
	uint64_t window = pinned->pools->config.pinned_window;
	int result = gcp_pinned_timeline_keep_window(pool);

	if (result == 0 && gcp_timeline_filled(&pinned->timeline) > (int64_t)window)
		result = gcp_pinned_finish_own(pool, 1);
	return result;
}

/* By what this context has: a free waits for no other, and the driver's would. */
static int enforce_limit(struct gcp_pinned *pinned, struct gcp_pool *pool)
{
	uint64_t over = gcp_pinned_over_limit(pinned);

	if (over == 0)
		return 0;
	(void)gcp_timeline_advance_all(&pinned->timeline);
	return gcp_pinned_finish_own(pool, over);
}

/* The block was freed into `epoch`, which should be closed. */
static int free_closes(struct gcp_pinned *pinned, struct gcp_pool *pool, uint64_t epoch,
		       bool each)
{
	int result = 0;

	/* The error may be any context's. The driver knows: it frees, and says what
	 * plain CUDA would. */
	if (each ? gcp_pinned_timeline_close_for(pinned, epoch) != 0
		 : gcp_pinned_timeline_close(pinned) != 0)
		return gcp_pinned_release_own(pool, UINT64_MAX);
	gcp_pinned_timeline_freed(pool, epoch);
	if (pinned->pools->config.blocking_free)
		result = gcp_pinned_timeline_wait(pool, epoch);
	if (result == 0 &&
	    gcp_pinned_timeline_pending(pinned) > pinned->pools->config.pinned_window)
		result = keep_window(pinned, pool);
	return result;
}

/* A capture forbids fences: what this context frees meanwhile waits for its end, up to
 * the window. Then the driver frees a block, and waits as it does. */
static int free_held(struct gcp_pinned *pinned, struct gcp_pool *pool, uint64_t size)
{
	const struct gcp_config *config = &pinned->pools->config;
	uint64_t held = atomic_fetch_add(&pool->pinned_held, size) + size;

	atomic_fetch_add_explicit(&pinned->deferred_frees, 1, memory_order_relaxed);
	if (held <= config->pinned_window && !config->blocking_free &&
	    config->pinned_quota == GCP_LIMIT_NONE && !atomic_load(&pinned->out))
		return 0;
	return gcp_pinned_finish_own(pool, 1);
}

static int free_common(struct gcp_pinned *pinned, struct gcp_pinned_block *block)
{
	struct gcp_pool *pool = block->bucket->arena->pool;
	uint64_t epoch = gcp_pinned_timeline_stamp(pinned), size = block->size;
	bool each = closes_each(pinned, size);
	int result = 0, limited;

	block->epoch = epoch;
	if (__builtin_expect(atomic_load_explicit(&pinned->off, memory_order_relaxed),
			     0)) {
		gcp_pinned_bucket_give(block); /* for the driver to free, and wait */
		return gcp_pinned_release_own(pool, UINT64_MAX);
	}
	gcp_pinned_bucket_give(block);
	if (__builtin_expect(gcp_pinned_timeline_count(pinned, size) | each, 0) &&
	    !gcp_timeline_is_held(&pinned->timeline))
		result = free_closes(pinned, pool, epoch, each);
	else if (__builtin_expect(gcp_timeline_is_held(&pinned->timeline), 0))
		result = free_held(pinned, pool, size);
	limited = enforce_limit(pinned, pool);
	return result != 0 ? result : limited;
}

/* Keeps a block that a captured graph may address. False: none does any more. */
static bool free_kept(struct gcp_pinned *pinned, struct gcp_pinned_block *block,
		      int *ret_result)
{
	struct gcp_pool *pool = block->bucket->arena->pool;
	uint64_t epoch = gcp_pinned_timeline_stamp(pinned);

	if (!gcp_pinned_set_put(pinned, block))
		return false;
	/* Nothing is waited for while a stream is captured: it has not run yet. */
	if (pinned->pools->config.blocking_free &&
	    gcp_pinned_timeline_close_for(pinned, epoch) == 0)
		*ret_result = gcp_pinned_timeline_wait(pool, epoch);
	if (*ret_result == 0) /* of others: graphs that ended may have left them */
		*ret_result = enforce_limit(pinned, pool);
	return true;
}

int gcp_pinned_free(struct gcp_pools *pools, void *p)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct gcp_pinned_block *block =
	    pinned ? gcp_pinned_block_find(pinned, p) : NULL;
	uint8_t used = GCP_PINNED_USED;
	int result = 0;

	if (!block)
		return -ENOENT;
	/* One of two threads that free the same block wins; and from here on the
	 * block is ours alone. */
	if (!atomic_compare_exchange_strong(&block->state, &used, GCP_PINNED_FREED))
		return -EINVAL;
	if (__builtin_expect(block->p != p, 0)) {
		/* The descriptor has changed hands since we looked: the program
		 * frees twice, from two threads. */
		atomic_store(&block->state, GCP_PINNED_USED);
		return -EINVAL;
	}
	gcp_pinned_gauge_sub(&pinned->active_requests, 1);
	gcp_pinned_gauge_sub(&pinned->active_bytes, block->size);
	gcp_pinned_gauge_sub(&pinned->requested_bytes, block->requested);
	if (__builtin_expect(atomic_load(&block->set) != NULL, 0) &&
	    free_kept(pinned, block, &result))
		return result;
	return free_common(pinned, block);
}

int gcp_pinned_find(struct gcp_pools *pools, const void *p, uint64_t *ret_requested)
{
	struct gcp_pinned_block *block =
	    pools->pinned ? gcp_pinned_block_find(pools->pinned, p) : NULL;

	if (!block)
		return -ENOENT;
	if (atomic_load(&block->state) != GCP_PINNED_USED)
		return -EINVAL;
	*ret_requested = block->requested;
	return 0;
}

bool gcp_pinned_poll(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pinned_working(pools);

	if (!pinned)
		return false;
	if (gcp_timeline_filled(&pinned->timeline) > 0)
		(void)gcp_pinned_timeline_close(pinned);
	(void)gcp_timeline_advance_all(&pinned->timeline);
	return gcp_pinned_timeline_pending(pinned) > 0;
}
