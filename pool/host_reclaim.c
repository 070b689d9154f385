/*
 * host_reclaim.c - pinned memory goes back to the driver: because memory is out,
 * because a limit says so, because the program asks; and the end of a context.
 *
 * The books give a block up before the driver gets it. The driver's free waits for
 * the block's context, so giving back is for those who may wait.
 */
#include "host_types.h"

#include <sys/mman.h>

int gcp_host_memory_free(struct gcp_pool *pool, void *p)
{
	struct gcp_host *host = pool->pools->host;
	int result = GCP_HOST_CALL(host, host_free, host_free, pool->ctx, p);

	atomic_fetch_add_explicit(&host->trims, 1, memory_order_relaxed);
	return result;
}

/* --- what there is to wait for
 * ---------------------------------------------------------- */

static void look_for_unused(struct gcp_host_bucket *bucket, void *arg)
{
	bool *any = arg;

	gcp_spin_lock(&bucket->lock);
	*any |= !TAILQ_EMPTY(&bucket->pending) || !TAILQ_EMPTY(&bucket->ready);
	gcp_spin_unlock(&bucket->lock);
}

/* In the books: a fence that failed leaves blocks that no page counts. And what is
 * ready by now was pending a moment ago, when it could not be given back. */
bool gcp_host_is_any_unused(struct gcp_host *host)
{
	bool any = false;

	gcp_host_buckets_visit(host->pools, look_for_unused, &any);
	return any;
}

/* --- giving back
 * ------------------------------------------------------------------------ */

struct giving {
	const struct gcp_pool *own; /* NULL: of every context */
	uint64_t wanted, given;     /* bytes */
	int result;                 /* the first error of the driver's free */
};

/* Of ready ones the longest unused, and then what is completed by now. Where fences
 * do not work the driver's free does the waiting, as ever. */
static struct gcp_host_block *least_wanted(struct gcp_host_bucket *bucket)
{
	const struct gcp_host *host = bucket->shelf->pool->pools->host;
	struct gcp_host_block *block = TAILQ_LAST(&bucket->ready, gcp_host_list);

	if (block) {
		TAILQ_REMOVE(&bucket->ready, block, link);
		return block;
	}
	block = TAILQ_FIRST(&bucket->pending);
	if (!block ||
	    (!gcp_host_page_ready(host, block->page) && !atomic_load(&host->off)))
		return NULL;
	TAILQ_REMOVE(&bucket->pending, block, link);
	return block;
}

/* The memory of a block that nobody uses, out of the books; NULL: there is none. */
static void *bucket_shrink(struct gcp_host_bucket *bucket)
{
	struct gcp_host_block *block;
	void *p = NULL;

	gcp_spin_lock(&bucket->lock);
	block = least_wanted(bucket);
	if (block) {
		p = block->p;
		block->rest = GCP_HOST_IN_HAND;
		gcp_host_block_retire(block);
	}
	gcp_spin_unlock(&bucket->lock);
	return p;
}

static void give_back_bucket(struct gcp_host_bucket *bucket, void *arg)
{
	struct gcp_pool *pool = bucket->shelf->pool;
	struct giving *giving = arg;
	int result;
	void *p;

	if (giving->own && giving->own != pool)
		return;
	/* Nobody destroys the context between a block's retreat and its end: the
	 * address could be another's by then. */
	if (!gcp_pool_visit(pool))
		return;
	while (giving->given < giving->wanted && (p = bucket_shrink(bucket))) {
		giving->given += bucket->size;
		result = gcp_host_memory_free(pool, p);
		if (giving->result == 0)
			giving->result = result;
	}
	gcp_pool_visit_end(pool);
}

uint64_t gcp_host_give_back(struct gcp_host *host, uint64_t bytes)
{
	struct giving giving = {.wanted = bytes};

	gcp_host_buckets_visit(host->pools, give_back_bucket, &giving);
	return giving.given;
}

int gcp_host_give_back_own(struct gcp_pool *pool, uint64_t bytes)
{
	struct giving giving = {.own = pool, .wanted = bytes};

	gcp_host_buckets_visit(pool->pools, give_back_bucket, &giving);
	return giving.result;
}

uint64_t gcp_host_trim(struct gcp_pools *pools, uint64_t keep_bytes)
{
	struct gcp_host *host = pools->host;
	uint64_t unused, given = 0;

	if (!host)
		return 0;
	/* In this order: what is allocated meanwhile is not taken for unused. */
	uint64_t active = atomic_load(&host->active_bytes.current);
	uint64_t total = atomic_load(&host->allocated_bytes.current);
	unused = total > active ? total - active : 0;
	if (unused <= keep_bytes)
		return 0;
	(void)gcp_host_pages_poll_all(host);
	given = gcp_host_give_back(host, unused - keep_bytes);
	if (given < unused - keep_bytes && gcp_host_is_any_unused(host) &&
	    gcp_host_pages_complete(host) == 0)
		given += gcp_host_give_back(host, unused - keep_bytes - given);
	return given;
}

/* --- the end of a context
 * ---------------------------------------------------------------- */

static void count_lost(struct gcp_host *host, struct gcp_host_block *block)
{
	gcp_host_gauge_sub(&host->active_requests, 1);
	gcp_host_gauge_sub(&host->active_bytes, block->size);
	gcp_host_gauge_sub(&host->requested_bytes, block->requested);
	block->bucket->given++;
	block->bucket->given_bytes += block->requested;
}

/* Both locks are held. A block that is on its way through another thread is left to
 * that thread, which finds that its life is over. */
static void block_drop(struct gcp_host *host, struct gcp_host_block *block)
{
	uint8_t used = GCP_HOST_USED;

	gcp_host_keep_forget(block);
	if (block->rest == GCP_HOST_IN_HAND) {
		if (!atomic_compare_exchange_strong(&block->state, &used,
						    GCP_HOST_FREED))
			return;
		count_lost(host, block);
	}
	gcp_host_block_retire(block);
}

static void bucket_drop(struct gcp_host *host, struct gcp_host_bucket *bucket)
{
	struct gcp_host_block *block, *next;

	gcp_spin_lock(&bucket->lock);
	TAILQ_INIT(&bucket->ready);
	TAILQ_INIT(&bucket->pending);
	for (block = TAILQ_FIRST(&bucket->blocks); block; block = next) {
		next = TAILQ_NEXT(block, all);
		block_drop(host, block);
	}
	gcp_spin_unlock(&bucket->lock);
}

void gcp_host_drop(struct gcp_pool *pool)
{
	struct gcp_host *host = pool->pools->host;

	atomic_fetch_add(&pool->host_life, 1);
	if (!host)
		return;
	atomic_store(&host->off, false); /* a fence that fails still says so */
	pthread_mutex_lock(&host->lock);
	for (struct gcp_host_shelf *shelf = pool->host_shelves; shelf;
	     shelf = shelf->next)
		for (uint32_t i = 0; i < host->class_count; i++)
			bucket_drop(host, &shelf->buckets[i]);
	pthread_mutex_unlock(&host->lock);
}

/* --- the end, for tests
 * ---------------------------------------------------------------------
 */

static void bucket_free_all(struct gcp_host_bucket *bucket, void *arg)
{
	struct gcp_pool *pool = bucket->shelf->pool;
	struct gcp_host_block *block;

	(void)arg;
	TAILQ_FOREACH (block, &bucket->blocks, all)
		if (pool->live)
			(void)pool->pools->driver.host_free(pool->ctx, block->p);
}

void gcp_host_destroy(struct gcp_pools *pools)
{
	struct gcp_host *host = pools->host;

	if (!host)
		return;
	gcp_host_buckets_visit(pools, bucket_free_all, NULL);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		struct gcp_host_shelf *shelf = pool->host_shelves, *next;

		for (; shelf; shelf = next) {
			next = shelf->next;
			munmap(shelf, shelf->map_bytes);
		}
	}
	gcp_host_pages_finish(host);
	gcp_map_destroy(host->map);
	munmap(host, sizeof(*host));
	pools->host = NULL;
}
