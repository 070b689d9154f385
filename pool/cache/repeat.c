/* SPDX-License-Identifier: MIT */
/*
 * repeat.c - a thread that asks for one size, not a small one, again and again keeps
 * its blocks of that size, whatever other blocks of the pool it may keep.
 *
 * A program whose sizes vary is better off when each block that it frees can be merged
 * at once. A loop over one size has no use for that, and would go to the heap, and
 * through its locks, at each turn. So the thread counts how often in a row its cache
 * could not serve that size; the first other size puts what it kept into the heap.
 * Blocks of no class have a magazine of their own.
 *
 * Called by miss.c with no lock held. Never calls the driver.
 */
#include "cache.h"

enum { REPEATS = 16 }; /* so often in a row */

void gcp_request_repeat_count(const struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_cache *cache = NULL;

	if (!request->heap->private && request->size > GCP_SMALL)
		cache = gcp_cache_of_thread(pool);
	if (!cache)
		return;
	struct gcp_repeat repeat = cache->repeat;
	bool same = repeat.size == request->size;
	repeat.size = request->size;
	repeat.count = same ? repeat.count + (repeat.count < REPEATS) : 0;
	/* The cache has room for a block in use and one that waits. */
	repeat.keeps = repeat.count >= REPEATS &&
		       request->size <= pool->pools->config.thread_cache_bytes / 2;
	if (cache->repeat.keeps && !repeat.keeps &&
	    repeat.index >=
		atomic_load_explicit(&pool->limits.cached, memory_order_relaxed))
		gcp_cache_drain_class(cache, repeat.index);
	repeat.index = gcp_magazine_of(cache, request->size_class);
	cache->repeat = repeat;
}
