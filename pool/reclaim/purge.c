/* SPDX-License-Identifier: MIT */
/*
 * purge.c - segments that hold no block go back to the driver.
 *
 * Called by maintain.c, which says when, and reclaim.c, which needs the memory, with no
 * lock held; none is held around calls of the driver. A segment leaves its lists
 * before the driver gets it, so an address that the driver hands out again elsewhere is
 * never still in our map.
 *
 * Only what is completed goes. The driver's free waits for all work of its context, and
 * costs what cudaFree costs. Without a wait memory can go back (`gently`) unless the
 * driver has no free but that one, or a barrier is pending: it holds back all that is
 * submitted to the context, and so what gives memory back in the order of a stream. The
 * driver may also refuse that stream for want of memory. A segment that cannot go
 * stays. So that it can when memory is out, the stream is made before a pool takes much
 * memory, and not in a program that never does: one more stream may change which
 * streams of the program run side by side.
 */
#include "reclaim.h"

/* An error is the device's, sticky, and the program's next call reports it; the memory
 * is not ours any more either way. Then the second call does not wait; it waits on a
 * device that has no stream-ordered free, as on drivers that have none. */
static void segments_free(struct gcp_pool *pool, struct gcp_segment_list *list,
			  bool gently)
{
	struct gcp_segment *segment;

	TAILQ_FOREACH (segment, list, link)
		if (!gently || GCP_TIMED(pool->pools, pool->calls[GCP_CALL_mem_free],
					 mem_release, pool->ctx, segment->addr) != 0)
			(void)GCP_CALL(pool, mem_free, pool->ctx, segment->addr);
	gcp_mutex_lock(&pool->lock);
	while ((segment = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, segment, link);
		assert(pool->giving > 0 && !segment->chunks && pool->pins > 0);
		gcp_descriptor_free(&pool->segment_descriptors, segment);
		pool->stats.trims++;
		pool->giving--;
	}
	gcp_mutex_unlock(&pool->lock);
}

/* Barriers of any pool stand in every context. */
static bool is_behind_barrier(struct gcp_pool *pool)
{
	for (struct gcp_pool *any = pool->pools->first; any; any = any->next) {
		if (!gcp_timeline_is_any_ordered(any))
			continue;
		if (!gcp_pool_pin(any))
			return true;
		(void)gcp_timeline_poll_all(any); /* an error shows again */
		gcp_pool_unpin(any);
		if (gcp_timeline_is_any_ordered(any))
			return true;
	}
	return false;
}

bool gcp_release_prepare(struct gcp_pool *pool)
{
	const struct gcp_driver *driver = &pool->pools->driver;

	return !driver->mem_release_prepare || driver->mem_release_prepare(pool->ctx);
}

/* Everything that is ready goes where whole segments can be seen, and those that fit
 * go back; what is missing of the bytes comes from mapped segments. */
uint64_t gcp_pool_purge(struct gcp_pool *pool, const struct gcp_purge *purge)
{
	struct gcp_segment_list list = TAILQ_HEAD_INITIALIZER(list);
	uint64_t taken = 0;

	gcp_caches_flush(pool);
	/* Not behind a graph that a launch has to follow (launch.c). */
	bool segments = !purge->gently ||
			(pool->pools->driver.mem_release &&
			 gcp_pool_work_is_done(pool, atomic_load(&pool->held_back)) &&
			 (purge->behind_barriers || !is_behind_barrier(pool)));
	gcp_mutex_lock(&pool->lock);
	gcp_heap_advance(&pool->common);
	segments = segments && gcp_heap_unlink_unused(&pool->common, purge, NULL) > 0;
	gcp_mutex_unlock(&pool->lock);
	if (segments && (!purge->gently || gcp_release_prepare(pool))) {
		gcp_mutex_lock(&pool->lock);
		taken = gcp_heap_unlink_unused(&pool->common, purge, &list);
		gcp_mutex_unlock(&pool->lock);
		segments_free(pool, &list, purge->gently);
	}
	if (taken < purge->bytes)
		taken += gcp_vmm_release(pool, purge->bytes - taken, purge->exact);
	return taken;
}
