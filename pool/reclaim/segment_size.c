/* SPDX-License-Identifier: MIT */
/*
 * segment_size.c - how large a segment should be that the driver is asked for: small
 * requests share one, and on a nearly full device a block has one of its own size.
 *
 * Takes no lock, and calls no driver function.
 */
#include "reclaim.h"

enum {
	/* So many segments at first; then none adds more than such a share of what is
	 * reserved. What is left over in the last ones is lost at the peak. */
	WHOLE_SEGMENTS = 2,
	GROWTH_SHARE = 12,
	/* A large pool grows by such a share at least: many segments made for one block
	 * each lose more. */
	LEAST_SHARE = 48,
};

static uint64_t shared_bytes(const struct gcp_pool *pool)
{
	const struct gcp_config *config = &pool->pools->config;
	uint64_t reserved =
	    atomic_load_explicit(&pool->reserved_hint, memory_order_relaxed);
	uint64_t most = config->segment_bytes, least = reserved / LEAST_SHARE;

	if (reserved >= WHOLE_SEGMENTS * most && most > reserved / GROWTH_SHARE)
		most = gcp_round_up(reserved / GROWTH_SHARE, GCP_CHUNK);
	if (least > config->split_limit)
		least = config->split_limit;
	if (least > pool->cache_limit)
		least = pool->cache_limit;
	return most > least ? most : gcp_round_up(least, GCP_CHUNK);
}

/* Most graphs have little: their first segment is as small as it can be, and others are
 * shared only by what does not fill one. */
static uint64_t private_bytes(const struct gcp_heap *heap, uint64_t size)
{
	return heap->reserved_bytes > 0 && size <= GCP_CHUNK - GCP_PAGE ? 2 * GCP_CHUNK
									: 0;
}

uint64_t gcp_segment_bytes(const struct gcp_heap *heap, enum gcp_kind kind,
			   uint64_t size)
{
	uint64_t shared =
	    heap->private ? private_bytes(heap, size) : shared_bytes(heap->pool);

	gcp_assert_held(GCP_RANK_POOL);
	if (kind == GCP_KIND_SLAB)
		return GCP_CHUNK;
	if (size > shared / 2 || gcp_pool_is_exact(heap->pool, size))
		return gcp_round_up(size, GCP_CHUNK);
	/* Blocks behind the head: a device may be filled with blocks of one size. */
	return gcp_round_up(shared / size * size + GCP_PAGE, GCP_CHUNK);
}
