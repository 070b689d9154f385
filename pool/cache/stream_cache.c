/* SPDX-License-Identifier: MIT */
/*
 * stream_cache.c - blocks that a thread freed in a stream and keeps for that stream, by
 * their size: a part of the thread's cache (cache.c).
 *
 * Takes cache->own, or is called with it held. Never calls the driver.
 */
#include "cache.h"

#include <stdlib.h>

enum { BLOCKS_TO_PASS = 4 };

static uint32_t bin_of(uint64_t size)
{
	if (size >= GCP_WHOLE_LEAST)
		size = gcp_round_up(size, GCP_CHUNK);
	return (uint32_t)(size / GCP_UNIT * UINT64_C(0x9e3779b97f4a7c15) >> 58) %
	       GCP_STREAM_BINS;
}

/* --- take: cache->own is held ------------------------------------------------- */

static struct gcp_block *bin_take(struct gcp_block **link, uint64_t size)
{
	for (int i = 0; *link && i < BLOCKS_TO_PASS; i++, link = &(*link)->next) {
		struct gcp_block *block = *link;

		if (!gcp_block_suits(block, size))
			continue;
		*link = block->next;
		return block;
	}
	return NULL;
}

void gcp_stream_cache_number(struct gcp_cache *cache, struct gcp_block *block)
{
	if (cache->serial % GCP_SERIALS == 0)
		cache->serial = atomic_fetch_add_explicit(
		    &cache->pool->pools->serials, GCP_SERIALS, memory_order_relaxed);
	__atomic_store_n(&block->serial, cache->serial++, __ATOMIC_RELAXED);
}

/* The block becomes the program's. True: the thread should hand over its counts. */
static bool block_give(struct gcp_cache *cache, struct gcp_block *block,
		       uint64_t requested)
{
	struct gcp_stats_delta *delta = &cache->delta;

	__atomic_store_n(&block->requested, requested, __ATOMIC_RELAXED);
	gcp_stream_cache_number(cache, block);
	atomic_store_explicit(&block->state, GCP_BLOCK_USED, memory_order_release);
	gcp_stats_delta_async(delta, (int64_t)requested);
	if (gcp_stats_delta_alloc(delta, requested, block->size))
		gcp_stats_delta_raise(delta);
	return delta->net[GCP_STATS_LEVEL_ALLOCATED] > GCP_STATS_LAG;
}

struct gcp_block *gcp_stream_cache_take(struct gcp_cache *cache, uint64_t stream,
					uint64_t size, uint64_t requested,
					bool *ret_full)
{
	struct gcp_block *block = NULL;

	gcp_owner_lock(&cache->own);
	struct gcp_stream_cache *streamed = cache->streams[stream % GCP_STREAM_SLOTS];
	if (streamed && streamed->stream == stream)
		block = bin_take(&streamed->bins[bin_of(size)], size);
	if (block)
		*ret_full = block_give(cache, block, requested);
	gcp_owner_unlock(&cache->own);
	return block;
}

/* --- drain: cache->own is held ------------------------------------------------ */

static void streamed_drain(struct gcp_cache *cache, struct gcp_stream_cache *streamed,
			   struct gcp_chain *chain)
{
	int64_t bytes = 0;

	for (int i = 0; i < GCP_STREAM_BINS; i++) {
		struct gcp_block *block;

		while ((block = streamed->bins[i])) {
			streamed->bins[i] = block->next;
			block->async = false;
			block->stream = streamed->stream;
			block->next = NULL;
			bytes += (int64_t)block->size;
			gcp_chain_append(chain, block, &block->next, 1);
		}
	}
	gcp_cache_held_add(cache, -bytes);
	(void)gcp_timeline_fill(cache->pool, bytes, 0);
}

void gcp_stream_cache_drain(struct gcp_cache *cache, struct gcp_chain *chain)
{
	for (int i = 0; i < GCP_STREAM_SLOTS; i++)
		if (cache->streams[i])
			streamed_drain(cache, cache->streams[i], chain);
}

void gcp_stream_cache_destroy(struct gcp_cache *cache)
{
	for (int i = 0; i < GCP_STREAM_SLOTS; i++)
		free(cache->streams[i]);
}

/* --- put ---------------------------------------------------------------------- */

/* The blocks of `stream`; those of another one with the same place go to `excess`.
 * NULL: no memory. cache->own is held. */
static struct gcp_stream_cache *streamed_of(struct gcp_cache *cache, uint64_t stream,
					    struct gcp_chain *excess)
{
	struct gcp_stream_cache **place = &cache->streams[stream % GCP_STREAM_SLOTS];

	if (!*place) {
		GCP_KEEP_ERRNO;

		*place = calloc(1, sizeof(**place));
	}
	if (*place && (*place)->stream != stream) {
		streamed_drain(cache, *place, excess);
		(*place)->stream = stream;
	}
	return *place;
}

bool gcp_stream_cache_put(struct gcp_cache *cache, uint64_t stream,
			  struct gcp_block *block, struct gcp_chain *excess,
			  bool *ret_full)
{
	assert(block->async && atomic_load(&block->state) == GCP_BLOCK_CACHED); /* E5 */
	int64_t limit = gcp_cache_most(cache->pool);
	struct gcp_stream_cache *streamed = NULL;
	uint64_t size = block->size;

	gcp_owner_lock(&cache->own);
	if ((int64_t)size <= limit / 2)
		streamed = streamed_of(cache, stream, excess);
	if (streamed && gcp_cache_bytes(cache) + (int64_t)size > limit)
		gcp_stream_cache_drain(cache, excess);
	if (streamed) {
		struct gcp_block **link = &streamed->bins[bin_of(size)];

		gcp_stats_delta_async(&cache->delta, -(int64_t)block->requested);
		gcp_stats_delta_free(&cache->delta, block->requested, size);
		block->next = *link;
		*link = block;
	}
	*ret_full = cache->delta.net[GCP_STATS_LEVEL_ALLOCATED] < -GCP_STATS_LAG;
	gcp_owner_unlock(&cache->own);
	return streamed;
}
