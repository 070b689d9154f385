/* SPDX-License-Identifier: MIT */
/*
 * reclaim.c - what happens when memory is out: the pools give theirs back, stage by
 * stage, and the call that failed is tried again.
 *
 *      stage        gives back                              costs
 *      COMPLETED    unused memory whose epochs are done     the driver's frees
 *      DRIVER       the driver's own caches                 a call
 *      WAIT         all unused memory                       a wait for the device
 *
 * The stages are climbed by
 *
 *      gcp_reclaim_and_retry       an allocation of a pool; it is tried after each
 * stage gcp_pools_relieve           a driver call for memory of another kind: on its
 *                                  device, on each, and then pinned memory
 *      gcp_pools_trim              the program, as far as it says
 *      gcp_pool_complete_by_free   a wait during a capture, on a full device
 *
 * Memory of live graphs is never given back. Called with no lock held.
 */
#include "cache.h"
#include "vmm.h"

/* --- the stages ----------------------------------------------------------------------
 */

static uint64_t give_completed(struct gcp_pool *pool, uint64_t bytes)
{
	const struct gcp_purge purge = {.bytes = bytes, .completed_only = true};

	(void)gcp_timeline_poll_all(pool);
	return gcp_pool_purge(pool, &purge);
}

static uint64_t trim_driver(struct gcp_pool *pool, uint64_t bytes)
{
	uint64_t start = pool->pools->driver.clock_ns();

	(void)bytes;
	pool->pools->driver.mem_trim(pool->ctx);
	gcp_call_count(pool, GCP_CALL_mem_trim, start);
	return 0;
}

static bool is_giving(struct gcp_pool *pool)
{
	gcp_mutex_lock(&pool->lock);
	bool giving = pool->giving > 0;
	gcp_mutex_unlock(&pool->lock);
	return giving;
}

static uint64_t youngest_epoch(const struct gcp_block_list *list, uint64_t epoch)
{
	const struct gcp_block *block;

	TAILQ_FOREACH (block, list, link)
		epoch = block->epoch > epoch ? block->epoch : epoch;
	return epoch;
}

/* The youngest epoch that any free block still waits for; a completed one: nothing
 * waits. pool->lock is held. */
static uint64_t youngest_awaited_epoch(struct gcp_pool *pool)
{
	struct gcp_heap *common = &pool->common, *heap;
	uint64_t epoch = atomic_load(&pool->timeline.ready); /* free, and held back */

	gcp_assert_held(GCP_RANK_POOL);
	/* What was freed there may be waiting for launches of a graph that is gone. */
	TAILQ_FOREACH (heap, &pool->private_heaps, link)
		epoch = heap->last_free_epoch > epoch ? heap->last_free_epoch : epoch;
	for (uint32_t i = 0; i < pool->pools->classes.slab_count; i++)
		epoch = youngest_epoch(&common->classes[i].list, epoch);
	epoch = youngest_epoch(&common->unmapping, epoch);
	return youngest_epoch(&common->pending, epoch);
}

/* Where nothing is pending there is nothing to wait for: plain CUDA does not wait when
 * an allocation fails, and work under way may wait for what comes after it. What others
 * give back just now is pending: their free waits for all work. */
static void complete_all(struct gcp_pool *pool)
{
	int result;

	gcp_mutex_lock(&pool->lock);
	uint64_t epoch =
	    pool->giving > 0 ? gcp_timeline_stamp(pool) : youngest_awaited_epoch(pool);
	bool waits = epoch > atomic_load(&pool->timeline.completed);
	pool->stats.waits += waits;
	gcp_mutex_unlock(&pool->lock);
	if (!waits)
		return;
	result = gcp_timeline_complete(pool, epoch);
	if (result == -EBUSY)
		(void)gcp_pool_complete_by_free(pool);
	for (int i = 0; i < GCP_WAIT_LIMIT && is_giving(pool); i++)
		gcp_backoff();
}

static uint64_t give_all(struct gcp_pool *pool, uint64_t bytes)
{
	const struct gcp_purge purge = {.bytes = bytes};

	complete_all(pool);
	return gcp_pool_purge(pool, &purge);
}

/* Returns the bytes given back; stops when they are enough. */
static const struct stage {
	uint64_t (*give)(struct gcp_pool *pool, uint64_t bytes);
	bool own;   /* of the pool, not of the driver */
	bool waits; /* for the device */
	const char *what;
} stages[] = {
    {give_completed, true, false, "what is unused and completed"},
    {trim_driver, false, false, "what the driver's own pools keep (not counted here)"},
    {give_all, true, true, "all that is unused, after waiting for the device"},
};

enum { STAGES = sizeof(stages) / sizeof(stages[0]) };

/* In all pools of the device (-1: each). A pool whose context may be ending is waited
 * for: it may have what is missing. */
static uint64_t stage_run(const struct stage *stage, struct gcp_pools *pools,
			  int device)
{
	uint64_t given = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin_wait(pool))
			continue;
		given += stage->give(pool, UINT64_MAX);
		gcp_pool_unpin(pool);
	}
	GCP_LOG(pools, "memory is short: gave back %s: %llu KiB", stage->what,
		GCP_ULL(given >> 10));
	return given;
}

/* --- an allocation of a pool ---------------------------------------------------------
 */

static void count_retry(struct gcp_pool *pool, bool out)
{
	gcp_mutex_lock(&pool->lock);
	if (out)
		pool->stats.ooms++;
	else
		pool->stats.alloc_retries++;
	gcp_mutex_unlock(&pool->lock);
}

int gcp_reclaim_and_retry(struct gcp_request *request,
			  int (*retry)(struct gcp_request *request))
{
	struct gcp_pool *pool = request->heap->pool;

	for (int i = 0; i < STAGES; i++) {
		count_retry(pool, false);
		stage_run(&stages[i], pool->pools, pool->device);
		int result = retry(request);
		if (result != GCP_CUDA_OUT_OF_MEMORY)
			return result;
	}
	count_retry(pool, true);
	return GCP_CUDA_OUT_OF_MEMORY;
}

/* --- memory of other kinds -----------------------------------------------------------
 */

uint64_t gcp_pools_reclaim(struct gcp_pools *pools, int device)
{
	uint64_t given = 0;

	for (int i = 0; i < STAGES; i++)
		if (!stages[i].waits || given == 0)
			given += stage_run(&stages[i], pools, device);
	return given;
}

/* Pinned memory has no device, and cuMemCreate names its own: so all of them. Managed
 * memory may be short of pinned memory. */
bool gcp_pools_relieve(struct gcp_pools *pools, int device)
{
	return (device >= 0 && gcp_pools_reclaim(pools, device) > 0) ||
	       gcp_pools_reclaim(pools, -1) > 0 || gcp_pinned_trim(pools, 0) > 0;
}

/* --- the program trims ---------------------------------------------------------------
 */

/* Bytes of the pool that are reserved and that no block of the program holds: all of
 * them could go back, for a live graph keeps also what is free in its heap. */
static uint64_t pool_unheld(struct gcp_pool *pool)
{
	uint64_t kept = gcp_pool_allocated(pool), reserved;
	struct gcp_heap *heap;

	gcp_mutex_lock(&pool->lock);
	reserved = pool->stats.reserved_bytes.current;
	TAILQ_FOREACH (heap, &pool->private_heaps, link)
		kept += heap->reserved_bytes - heap->used_bytes;
	gcp_mutex_unlock(&pool->lock);
	return reserved > kept ? reserved - kept : 0;
}

static uint64_t pool_trim(struct gcp_pool *pool, uint64_t keep_bytes)
{
	uint64_t unheld = pool_unheld(pool), given = 0;

	for (int i = 0; i < STAGES; i++)
		if (stages[i].own && unheld > keep_bytes + given)
			given += stages[i].give(pool, unheld - keep_bytes - given);
	return given;
}

uint64_t gcp_pools_trim(struct gcp_pools *pools, int device, uint64_t keep_bytes)
{
	uint64_t given = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin(pool))
			continue;
		given += pool_trim(pool, keep_bytes);
		gcp_pool_unpin(pool);
	}
	return given;
}

uint64_t gcp_pools_reclaimable(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->live && (device < 0 || pool->device == device))
			bytes += pool_unheld(pool);
	return bytes;
}

/* --- waiting where no fence may be set -----------------------------------------------
 */

/* Freeing pinned memory waits for the context as well, and needs nothing of the
 * device. */
static int complete_by_host_free(struct gcp_pool *pool)
{
	const struct gcp_driver *driver = &pool->pools->driver;
	void *p;
	int result = driver->host_alloc(pool->ctx, GCP_UNIT, 0, &p);

	if (result != 0)
		return result;
	uint64_t epoch = gcp_timeline_advance(pool);
	result = driver->host_free(pool->ctx, p);
	if (result == 0)
		gcp_timeline_completed_by_free(pool, epoch);
	return result;
}

/* A capture forbids fences, but a real free is legal then and waits for the
 * context as well: allocates and frees the least there is. */
int gcp_pool_complete_by_free(struct gcp_pool *pool)
{
	gcp_addr addr;
	int result = GCP_CALL(pool, mem_alloc, pool->ctx, GCP_UNIT, &addr);

	/* Full to the last unit: what is unused and done makes room. */
	if (result == GCP_CUDA_OUT_OF_MEMORY && give_completed(pool, GCP_UNIT) > 0)
		result = GCP_CALL(pool, mem_alloc, pool->ctx, GCP_UNIT, &addr);
	if (result == GCP_CUDA_OUT_OF_MEMORY && pool->pools->driver.host_alloc)
		return complete_by_host_free(pool);
	if (result != 0)
		return result;
	uint64_t epoch = gcp_timeline_advance(pool);
	result = GCP_CALL(pool, mem_free, pool->ctx, addr);
	if (result == 0)
		gcp_timeline_completed_by_free(pool, epoch);
	return result;
}
