/* SPDX-License-Identifier: MIT */
/*
 * pinned.c - the pool of pinned host memory: the way of an allocation, and of a free.
 *
 * How it differs from the pool of device memory (alloc.c): blocks are whole
 * allocations of the driver, each in a bucket of its size, and are ready only when all
 * work of their context up to their epoch is done.
 *
 * An allocation looks, from cheap to expensive:
 *   1. in its bucket, among what is completed      a lock, no driver
 *   2. again, after asking which are completed     + queries
 *   3. in the driver                               + 100 us to 50 ms
 *   4. in the driver, after giving back all that is unused (pinned_reclaim.c)
 * It never waits for the device but in 4.
 *
 * Each free closes the open epoch of the block's context. Beyond the window it waits
 * for the oldest epoch of that context, which bounds what can pile up: plain CUDA would
 * have waited there for everything.
 */
#include "pinned_types.h"

/* --- life ----------------------------------------------------------------- */

int gcp_pinned_create(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned;

	if (!pools->config.pinned || !pools->driver.host_alloc)
		return 0;
	pinned = gcp_zeroed_map(sizeof(*pinned));
	if (!pinned)
		return -ENOMEM;
	pinned->map = gcp_map_create();
	if (!pinned->map)
		return -ENOMEM;
	gcp_mutex_init(&pinned->lock, GCP_RANK_PINNED);
	pinned->pools = pools;
	gcp_descriptor_pool_init(&pinned->block_descriptors,
				 sizeof(struct gcp_pinned_block));
	gcp_descriptor_pool_init(&pinned->bucket_descriptors,
				 sizeof(struct gcp_pinned_bucket));
	pools->pinned = pinned;
	return 0;
}

/* --- new memory ----------------------------------------------------------- */

struct request {
	struct gcp_pinned *pinned;
	struct gcp_pool *pool;
	struct gcp_pinned_bucket *bucket; /* NULL: not looked for yet */
	struct gcp_pinned_set *set;
	uint64_t bytes;
	uint32_t flags, place;
	uint32_t generation; /* of the pool, when the request came */
	void *p;             /* what it gets; NULL: nothing yet */
};

static bool has_quota(const struct gcp_pinned *pinned)
{
	return pinned->pools->config.pinned_quota != GCP_LIMIT_NONE;
}

/* By how much a new block beside what is held would be beyond the quota; active: held
 * by the program. */
static uint64_t beyond_quota(const struct request *request, bool active)
{
	struct gcp_pinned *pinned = request->pinned;
	uint64_t quota = pinned->pools->config.pinned_quota;
	uint64_t total = request->bucket->size;

	GCP_LOCKED(&pinned->lock);
	total += active ? pinned->stats.active_bytes.current
			: pinned->stats.allocated_bytes.current;
	return total > quota ? total - quota : 0;
}

/* Counts so many bytes as moving if the quota allows them, beside what the driver has
 * not back yet, too. */
static bool quota_takes(struct gcp_pinned *pinned, uint64_t bytes)
{
	GCP_LOCKED(&pinned->lock);
	if (pinned->stats.allocated_bytes.current + atomic_load(&pinned->moving) +
		bytes >
	    pinned->pools->config.pinned_quota)
		return false;
	atomic_fetch_add(&pinned->moving, bytes);
	return true;
}

/* Writes new memory down and gives it to the request. But memory whose context has
 * ended meanwhile is as gone as plain CUDA's. */
static int take_over(struct request *request, void *p)
{
	struct gcp_pinned *pinned = request->pinned;
	struct gcp_pinned_block *block;
	int result;

	GCP_LOCKED(&pinned->lock);
	if (request->generation == atomic_load(&request->pool->timeline.generation)) {
		result = gcp_pinned_block_create(request->bucket, p, &block);
		if (result != 0)
			return result;
		gcp_pinned_block_use(block, request->bytes, request->set);
	}
	pinned->stats.misses++;
	atomic_fetch_sub(&pinned->moving, request->bucket->size);
	request->p = p;
	return 0;
}

static int take_new(struct request *request)
{
	struct gcp_pinned *pinned = request->pinned;
	uint64_t size = request->bucket->size;
	void *p;
	int result;

	if (!quota_takes(pinned, size)) {
		gcp_refusal_set(GCP_REFUSED_BY_QUOTA);
		return GCP_CUDA_OUT_OF_MEMORY;
	}
	gcp_refusal_set(GCP_REFUSED_BY_DRIVER);
	result = GCP_PINNED_CALL(pinned, host_alloc, host_alloc, request->pool->ctx,
				 size, request->bucket->flags, &p);
	if (result != 0) {
		atomic_fetch_sub(&pinned->moving, size);
		return result;
	}
	result = take_over(request, p);
	if (result != 0)
		(void)gcp_pinned_memory_give(request->pool, p, size);
	return result;
}

/* Asks the driver for that much, and gives it back. Under a quota that counts
 * meanwhile, too. */
static bool driver_has(const struct request *request, uint64_t bytes)
{
	struct gcp_pinned *pinned = request->pinned;
	void *p;

	if (!quota_takes(pinned, bytes))
		return false;
	bool has = GCP_PINNED_CALL(pinned, host_alloc, host_alloc, request->pool->ctx,
				   bytes, request->bucket->flags, &p) == 0;
	if (has)
		(void)gcp_pinned_memory_give(request->pool, p, bytes);
	else
		atomic_fetch_sub(&pinned->moving, bytes);
	return has;
}

/* --- memory is out -------------------------------------------------------- */

/* Whether giving back what this context has unused can make room. The driver's limit is
 * not known, so the driver is asked for what would then still be missing: where it
 * refuses that, the request fails anyway, and must not wait. */
static bool may_help(const struct request *request)
{
	/* The driver may have rounded to pages. */
	uint64_t own = gcp_pinned_unused_own(request->pool, GCP_PAGE);
	uint64_t over = beyond_quota(request, false);
	uint64_t bytes = request->bytes;

	if (has_quota(request->pinned))
		bytes = request->bucket->size; /* CUDA is not asked for less */
	if (own == 0 || over > 0)
		return own > 0 && own >= over;
	return own + GCP_PAGE >= bytes || driver_has(request, bytes - own - GCP_PAGE);
}

/* Gives back what is unused; over the quota, only so much that there is room. Only of
 * contexts that are idle: the driver's free waits for all work there, also for what
 * came after the program's free. In the last rounds of this context in any case, for
 * without it the request fails. */
static void make_room(const struct request *request, bool last)
{
	uint64_t over = beyond_quota(request, false);
	uint64_t wanted = over > 0 ? over : UINT64_MAX;

	if (last && may_help(request))
		(void)gcp_pinned_finish_own(request->pool, wanted);
	if (over > 0)
		wanted = beyond_quota(request, false);
	(void)gcp_pinned_release(request->pinned, wanted, true);
}

/* Whether other threads gave memory back, that which is on its way to the driver, too.
 */
static bool others_help(const struct request *request, struct gcp_search *search)
{
	if (beyond_quota(request, true) > 0)
		return false;
	gcp_pinned_givers_wait(request->pinned->pools);
	return gcp_search_others(request->pinned->pools, search);
}

/* A completed block for the request. */
static bool take(struct request *request)
{
	struct gcp_pinned_block *block = NULL;

	GCP_LOCKED(&request->pinned->lock);
	if (!request->bucket)
		request->bucket = gcp_pinned_bucket_get(request->pool, request->bytes,
							request->flags, request->place);
	if (__builtin_expect(request->bucket != NULL, 1))
		block = gcp_pinned_bucket_take(request->bucket);
	if (__builtin_expect(!block, 0))
		return false;
	gcp_pinned_block_use(block, request->bytes, request->set);
	request->p = block->p;
	return true;
}

/* Uses and gives back what is ready, then what can be made so: first by looking; then
 * by waiting for what frees would have waited for on plain CUDA, never for work that
 * came after the free: once for the quota, and once for a driver without room below it.
 */
static int take_after_reclaim(struct request *request)
{
	struct gcp_pinned *pinned = request->pinned;
	int result = GCP_CUDA_OUT_OF_MEMORY;
	struct gcp_search search = {0};

	(void)gcp_search_others(pinned->pools, &search); /* it is tried once more */
	/* Nothing helps if what the program holds fills the quota. */
	for (int round = 0; round < 3 && result == GCP_CUDA_OUT_OF_MEMORY &&
			    beyond_quota(request, true) == 0 &&
			    (round == 0 || gcp_pinned_has_unused(pinned->pools));
	     round++) {
		if (round > 0)
			gcp_pinned_frees_wait(pinned->pools, &search);
		(void)gcp_pinned_poll(pinned->pools, NULL);
		gcp_pinned_count(pinned, &pinned->stats.alloc_retries);
		if (take(request))
			return 0;
		make_room(request, round > 0);
		result = take_new(request);
	}
	for (int i = 0; i < GCP_TRIES_OTHERS && result == GCP_CUDA_OUT_OF_MEMORY &&
			others_help(request, &search);
	     i++)
		result = take(request) ? 0 : take_new(request);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		gcp_pinned_count(pinned, &pinned->stats.ooms);
	return result;
}

/* --- allocate ------------------------------------------------------------- */

/* Asks whether a block that waits is completed, and closes its epoch if that is open: a
 * capture or a graph has ended since. No new wait: the fence holds nothing back. If the
 * fence cannot be asked, the block is not completed, and the driver is asked for new
 * memory: its error is the one that plain CUDA returns. */
static int alloc_slow(struct request *request)
{
	int result;

	if (gcp_graphs_look(request->pool->pools) && take(request))
		return 0;
	if (request->bucket->waiting > 0) {
		gcp_pinned_look(request->pool);
		if (take(request))
			return 0;
	}
	result = take_new(request);
	return result == GCP_CUDA_OUT_OF_MEMORY ? take_after_reclaim(request) : result;
}

int gcp_pinned_alloc(struct gcp_pool *pool, uint64_t bytes, uint32_t flags,
		     struct gcp_pinned_set *set, void **ret_p)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	int result = 0;

	if (!pinned)
		return -ENOSYS;
	struct request request = {
	    .pinned = pinned,
	    .pool = pool,
	    .set = set,
	    .bytes = bytes,
	    .flags = flags,
	    .place = pool->pools->driver.host_place(),
	    .generation = atomic_load(&pool->timeline.generation),
	};
	if (__builtin_expect(!take(&request), 0))
		result = request.bucket ? alloc_slow(&request) : -ENOMEM;
	assert(!request.bucket ||
	       (request.bucket->size >= bytes && request.bucket->flags == flags));
	if (result == 0)
		*ret_p = request.p;
	return result;
}

/* --- free ----------------------------------------------------------------- */

/* False: no fence is to be had. A context that may be ending has none set, and the wait
 * of a free does not keep it from ending. */
static bool close_epoch(struct gcp_pool *pool, uint64_t epoch)
{
	int result = 0;

	if (gcp_pool_pin(pool)) {
		result = gcp_pool_work_close(pool, epoch);
		gcp_pool_unpin(pool);
	}
	return result != -ENOBUFS;
}

/* Ends a free into `epoch`: closes the epoch, and waits for the oldest epochs of the
 * context beyond the window, where plain CUDA waits for all its work. While a capture
 * forbids fences, freed blocks wait for its end, up to the window; with a quota they do
 * not, because an allocation may have to wait for them. If no fence can be set, the
 * driver frees. */
static int free_end(struct gcp_pool *pool, uint64_t epoch)
{
	struct gcp_pinned *pinned = pool->pools->pinned;
	bool held = gcp_timeline_is_held(&pool->timeline);
	bool waits = pool->pools->config.blocking_free;
	int result;

	if (held)
		gcp_pinned_count(pinned, &pinned->stats.deferred_frees);
	if (held ? has_quota(pinned) : !close_epoch(pool, epoch))
		waits = true;
	result =
	    gcp_pinned_keep(pool, waits ? 0 : pool->pools->config.pinned_window, epoch);
	return result != 0 ? result : gcp_pinned_decay(pool);
}

int gcp_pinned_free(struct gcp_pools *pools, void *p)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct gcp_pinned_block *block;
	int result = 0, limited;

	if (!pinned)
		return -ENOENT;
	gcp_mutex_lock(&pinned->lock);
	block = gcp_map_find(pinned->map, (gcp_addr)(uintptr_t)p);
	if (!block || atomic_load(&block->state) != GCP_PINNED_USED) {
		gcp_mutex_unlock(&pinned->lock);
		return block ? -EINVAL : -ENOENT;
	}
	struct gcp_pool *pool = block->bucket->pool;
	bool kept = block->set != NULL;
	gcp_pinned_block_unuse(block);
	uint64_t epoch = block->epoch, over = gcp_pinned_over_limit(pinned);
	gcp_mutex_unlock(&pinned->lock);

	if (!kept)
		result = free_end(pool, epoch);
	/* A captured graph may address it, and its set keeps it. While a stream is
	 * captured nothing is waited for: it has not run yet. */
	else if (pools->config.blocking_free)
		result = gcp_timeline_complete(pool, gcp_timeline_stamp(pool), true);
	/* By what this context has: a free waits for no other, and the driver's would.
	 */
	if (__builtin_expect(over > 0, 0)) {
		(void)gcp_timeline_poll_all(pool);
		limited = gcp_pinned_finish_own(pool, over);
		result = result > 0 ? result : limited;
	}
	return result > 0 ? result : 0;
}

int gcp_pinned_find(struct gcp_pools *pools, const void *p, uint64_t *ret_requested)
{
	const struct gcp_pinned_block *block = NULL;

	if (pools->pinned)
		block = gcp_map_find(pools->pinned->map, (gcp_addr)(uintptr_t)p);
	if (!block)
		return -ENOENT;
	if (atomic_load(&block->state) != GCP_PINNED_USED)
		return -EINVAL;
	*ret_requested = block->requested;
	return 0;
}
