/* SPDX-License-Identifier: MIT */
/*
 * stream_cache.h - stream-ordered memory: what its frees and allocations share. Part of
 * cache.h.
 */
#ifndef GCP_POOL_STREAM_CACHE_H
#define GCP_POOL_STREAM_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct gcp_block;
struct gcp_cache;
struct gcp_chain;
struct gcp_pool;
struct gcp_request;

enum {
	GCP_STREAM_SLOTS = 32, /* streams that a thread keeps blocks of: power of two */
	GCP_STREAM_BINS = 64,  /* of the blocks of one stream: power of two */
	GCP_SERIALS = 1 << 16, /* that a thread takes at once */
};

/* The blocks that a thread freed in one stream. All fields: cache->own. */
struct gcp_stream_cache {
	uint64_t stream;
	struct gcp_block *bins[GCP_STREAM_BINS]; /* by size; the latest freed first */
};

/* A block of exactly `size` that the calling thread freed in `stream`, now USED; NULL:
 * it has none. *ret_full: the thread should hand over its counts. Takes cache->own. */
struct gcp_block *gcp_stream_cache_take(struct gcp_cache *cache, uint64_t stream,
					uint64_t size, uint64_t requested,
					bool *ret_full);
/* Tells a stream-ordered allocation from every other one. cache->own is held. */
void gcp_stream_cache_number(struct gcp_cache *cache, struct gcp_block *block);
/* Keeps a block that is CACHED by the caller; false: it is still the caller's. Blocks
 * on `excess` are for the heap in any case. The same of *ret_full. Takes cache->own. */
bool gcp_stream_cache_put(struct gcp_cache *cache, uint64_t stream,
			  struct gcp_block *block, struct gcp_chain *excess,
			  bool *ret_full);
/* All blocks of all streams, each marked with its own. cache->own is held. */
void gcp_stream_cache_drain(struct gcp_cache *cache, struct gcp_chain *chain);
void gcp_stream_cache_destroy(struct gcp_cache *cache); /* they are drained */

/* stream_alloc.c: takes back a block that is CACHED by the caller and was
 * stream-ordered. 0: the stream is not known. As gcp_pools_free. */
int gcp_stream_free(struct gcp_pool *pool, struct gcp_block *block, uint64_t stream);

#endif
