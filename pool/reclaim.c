/* SPDX-License-Identifier: MIT */
/*
 * reclaim.c - giving memory back to the driver: because it is full, because a
 * limit says so, or because the program asks.
 *
 * Runs without locks around calls of the driver. The books give a segment up
 * before the driver gets it, so an address that the driver hands out again
 * elsewhere is never still in our map.
 *
 * The driver's free waits for all work of its context, so a segment whose
 * epochs are pending may be given back too: it then costs what cudaFree costs.
 * Memory of live graphs is never given back.
 */
#include "cache.h"
#include "vmm.h"

void gcp_segments_release(struct gcp_pool *pool, struct gcp_segment_list *list,
			  const char *why)
{
	struct gcp_pools *pools = pool->pools;
	struct gcp_segment *segment;
	uint64_t count = 0;

	while ((segment = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, segment, link);
		/* An error is the device's, sticky, and the program's next call
		 * reports it; the memory is not ours any more either way. */
		(void)GCP_CALL(pool, mem_free, pool->ctx, segment->addr);
		GCP_LOG(pools,
			"device %d: gave back a segment of %llu KiB at 0x%llx: %s",
			pool->device, GCP_ULL(segment->size >> 10),
			GCP_ULL(segment->addr), why);
		gcp_descriptor_free(&pools->segment_descriptors, segment);
		count++;
	}
	pthread_mutex_lock(&pool->lock);
	pool->stats.trims += count;
	pool->giving -= count;
	pthread_mutex_unlock(&pool->lock);
}

/* Everything that is ready goes where whole segments can be seen, and unused
 * ones go back. */
static uint64_t release_unused(struct gcp_pool *pool, bool completed_only,
			       uint64_t bytes)
{
	struct gcp_segment_list list = TAILQ_HEAD_INITIALIZER(list);
	uint64_t taken;

	gcp_caches_flush(pool);
	pthread_mutex_lock(&pool->lock);
	gcp_slab_coalesce_unused(&pool->common);
	gcp_heap_advance(&pool->common);
	taken = gcp_heap_unlink_unused(&pool->common, completed_only, bytes, &list);
	pool->consolidation.owed_bytes = 0; /* others need it */
	pthread_mutex_unlock(&pool->lock);
	gcp_segments_release(pool, &list, "memory is wanted, or a limit says so");
	if (taken < bytes)
		taken += gcp_vmm_release(pool, bytes - taken);
	return taken;
}

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
	if (result == GCP_CUDA_OUT_OF_MEMORY &&
	    release_unused(pool, true, GCP_UNIT) > 0)
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

static bool is_giving(struct gcp_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	bool giving = pool->giving > 0;
	pthread_mutex_unlock(&pool->lock);
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

	pthread_mutex_lock(&pool->lock);
	uint64_t epoch =
	    pool->giving > 0 ? gcp_timeline_stamp(pool) : youngest_awaited_epoch(pool);
	bool waits = epoch > atomic_load(&pool->timeline.completed);
	pool->stats.waits += waits;
	pthread_mutex_unlock(&pool->lock);
	if (!waits)
		return;
	result = gcp_timeline_complete(pool, epoch);
	if (result == -EBUSY)
		(void)gcp_pool_complete_by_free(pool);
	for (int i = 0; i < GCP_WAIT_LIMIT && is_giving(pool); i++)
		gcp_backoff();
}

static uint64_t pool_reclaim(struct gcp_pool *pool, enum gcp_reclaim_stage stage,
			     uint64_t bytes)
{
	switch (stage) {
	case GCP_RECLAIM_COMPLETED:
		(void)gcp_timeline_poll_all(pool);
		return release_unused(pool, true, bytes);
	case GCP_RECLAIM_DRIVER: {
		uint64_t start = pool->pools->driver.clock_ns();

		pool->pools->driver.mem_trim(pool->ctx);
		gcp_call_count(pool, GCP_CALL_mem_trim, start);
		return 0;
	}
	case GCP_RECLAIM_WAIT:
		complete_all(pool);
		return release_unused(pool, false, bytes);
	case GCP_RECLAIM_STAGES:
		break;
	}
	return 0;
}

static const char *const stage_words[GCP_RECLAIM_STAGES] = {
    [GCP_RECLAIM_COMPLETED] = "what is unused and completed",
    [GCP_RECLAIM_DRIVER] = "what the driver's own pools keep (not counted here)",
    [GCP_RECLAIM_WAIT] = "all that is unused, after waiting for the device",
};

uint64_t gcp_reclaim_stage(struct gcp_pools *pools, int device,
			   enum gcp_reclaim_stage stage, uint64_t bytes)
{
	uint64_t given = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (given >= bytes || (device >= 0 && pool->device != device) ||
		    !gcp_pool_pin_wait(pool))
			continue;
		given += pool_reclaim(pool, stage, bytes - given);
		gcp_pool_unpin(pool);
	}
	GCP_LOG(pools, "memory is short: gave back %s: %llu KiB", stage_words[stage],
		GCP_ULL(given >> 10));
	return given;
}

uint64_t gcp_pools_reclaim(struct gcp_pools *pools, int device)
{
	uint64_t given =
	    gcp_reclaim_stage(pools, device, GCP_RECLAIM_COMPLETED, UINT64_MAX);

	gcp_reclaim_stage(pools, device, GCP_RECLAIM_DRIVER, UINT64_MAX);
	if (given == 0)
		given = gcp_reclaim_stage(pools, device, GCP_RECLAIM_WAIT, UINT64_MAX);
	return given;
}

/* Bytes of the pool that are reserved and that no block of the program holds: all of
 * them could go back, for a live graph keeps also what is free in its heap. */
static uint64_t pool_unheld(struct gcp_pool *pool)
{
	uint64_t kept = gcp_pool_allocated(pool), reserved;
	struct gcp_heap *heap;

	pthread_mutex_lock(&pool->lock);
	reserved = pool->stats.reserved_bytes.current;
	TAILQ_FOREACH (heap, &pool->private_heaps, link)
		kept += heap->reserved_bytes - heap->used_bytes;
	pthread_mutex_unlock(&pool->lock);
	return reserved > kept ? reserved - kept : 0;
}

static uint64_t pool_trim(struct gcp_pool *pool, uint64_t keep_bytes)
{
	uint64_t unheld = pool_unheld(pool), given = 0;

	if (unheld > keep_bytes)
		given = pool_reclaim(pool, GCP_RECLAIM_COMPLETED, unheld - keep_bytes);
	if (unheld > keep_bytes + given)
		given +=
		    pool_reclaim(pool, GCP_RECLAIM_WAIT, unheld - keep_bytes - given);
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

/* Called after a free that may have left more cached than the limit allows. */
int gcp_pool_limit(struct gcp_pool *pool)
{
	uint64_t limit = pool->cache_limit, unused;
	int result = gcp_timeline_poll_all(pool);

	if (result != 0)
		return result;
	pthread_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
	unused = pool->unused_bytes;
	pthread_mutex_unlock(&pool->lock);
	if (limit == 0) /* what threads keep as well */
		(void)pool_reclaim(pool, GCP_RECLAIM_COMPLETED, UINT64_MAX);
	else if (unused > limit)
		(void)pool_reclaim(pool, GCP_RECLAIM_COMPLETED, unused - limit);
	return 0;
}
