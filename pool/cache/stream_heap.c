/* SPDX-License-Identifier: MIT */
/*
 * stream_heap.c - an allocation in a stream takes what was freed in that stream and
 * waits in the heap for its epoch, which it need not wait for (stream_alloc.c).
 *
 * Called by take.c, with pool->lock held, when nothing is ready. Never calls the
 * driver.
 *
 * Blocks of one stream that touch each other, and what is ready beside them, serve as
 * one. What is left over goes on waiting as a whole, for the youngest epoch of its
 * parts.
 *
 *      |  FREE  | s: 7 | s: 9 | t: 8 |      a request in s, larger than any part
 *      |   request    |  s: 9 | t: 8 |
 */
#include "cache.h"

/* --- the blocks that serve as one --------------------------------------------- */

enum { FITS = 16 }; /* of which the smallest serves */

struct span {
	struct gcp_block *first, *last;
};

/* Bytes that a request of `size` may have there. */
static uint64_t span_bytes(const struct span *span, uint64_t size)
{
	gcp_addr begin = gcp_block_begin(span->first, size);
	gcp_addr end = span->last->addr + span->last->size;

	return begin < end ? end - begin : 0;
}

/* Whether the span, which is too small without it, has `next`, too. *left: neighbours
 * that may still be looked at. */
static bool span_has(const struct span *span, const struct gcp_block *next,
		     const struct gcp_request *request, uint32_t *left)
{
	bool usable =
	    gcp_block_is_free(next) ||
	    (gcp_block_is(next, GCP_BLOCK_PENDING) && next->stream == request->stream);

	if (!usable || *left == 0 || span_bytes(span, request->size) >= request->size)
		return false;
	--*left;
	return true;
}

static struct span span_around(struct gcp_block *block,
			       const struct gcp_request *request, uint32_t *left)
{
	struct span span = {block, block};

	while (span_has(&span, span.first->lower, request, left))
		span.first = span.first->lower;
	while (span_has(&span, span.last->upper, request, left))
		span.last = span.last->upper;
	return span;
}

/* A span that was seen is the same from wherever in it the look begins. */
static bool is_in(const struct gcp_block *block, const struct span *span)
{
	return span->first && block->addr >= span->first->addr &&
	       block->addr <= span->last->addr;
}

/* Takes a part off all lists; from here on it is active and in no list. */
static void part_remove(struct gcp_heap *heap, struct gcp_block *block)
{
	if (gcp_block_is_free(block)) {
		gcp_tree_remove(heap, block);
		gcp_block_set_state(block, GCP_BLOCK_PENDING);
		gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
		return;
	}
	gcp_pending_remove(heap, block);
}

static struct gcp_block *span_join(struct gcp_heap *heap, const struct span *span)
{
	struct gcp_block *first = span->first, *last = span->last, *next;
	bool more = first != last;

	part_remove(heap, first);
	while (more) {
		next = first->upper;
		more = next != last;
		part_remove(heap, next);
		gcp_block_coalesce_upper(first);
	}
	first->size_class = GCP_CLASS_NONE;
	return first;
}

/* Puts the rest of a span back, which waits in the stream; NULL: there is none. */
static void rest_put(struct gcp_heap *heap, struct gcp_block *rest,
		     const struct gcp_request *request)
{
	if (!rest)
		return;
	rest->stream = request->stream;
	gcp_heap_put(heap, rest);
}

static struct gcp_block *span_take(struct gcp_heap *heap, const struct span *span,
				   const struct gcp_request *request)
{
	struct gcp_block *block = span_join(heap, span), *rest = NULL;
	gcp_addr begin = gcp_block_begin(block, request->size);

	if (block->addr < begin)
		rest_put(heap, gcp_block_cut(block, begin - block->addr), request);
	begin = block->addr;
	block = gcp_block_trim(block, request->size, &rest);
	if (block->addr != begin) /* a head lies below it */
		gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)GCP_PAGE);
	rest_put(heap, rest, request);
	if (block->size == request->size)
		block->size_class = (uint16_t)request->size_class;
	return block;
}

/* The latest freed of which less than a chunk is left over, or of the latest that fit
 * the smallest: where small blocks cut large ones, new memory is taken for the next
 * large request, and the device may be far behind. */
static struct gcp_block *pending_take(struct gcp_heap *heap,
				      const struct gcp_request *request)
{
	struct gcp_block *block =
	    LIST_FIRST(gcp_streamed_of(heap->pool, request->stream));
	uint32_t left = request->looks_long ? UINT32_MAX : GCP_LOOKS, fits = 0;
	uint64_t least = UINT64_MAX, bytes;
	struct span seen = {0}, best = {0};

	for (; block && left > 0 && fits < FITS && least >= request->size + GCP_CHUNK;
	     block = LIST_NEXT(block, streamed)) {
		left--;
		if (block->stream != request->stream || is_in(block, &seen))
			continue;
		seen = span_around(block, request, &left);
		bytes = span_bytes(&seen, request->size);
		if (bytes < request->size ||
		    !gcp_block_may_divide(seen.first, request->size))
			continue;
		fits++;
		if (bytes < least) {
			least = bytes;
			best = seen;
		}
	}
	return best.first ? span_take(heap, &best, request) : NULL;
}

struct gcp_block *gcp_heap_take_streamed(struct gcp_heap *heap,
					 const struct gcp_request *request)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	if (!request->stream || heap->private)
		return NULL;
	block = pending_take(heap, request);
	if (!block)
		return NULL;
	/* A block of the open epoch does not wait for it any more. Parts of it may have
	 * been freed into older ones: what was added up never goes below zero. */
	int64_t size = (int64_t)block->size;
	if (block->epoch == GCP_LOAD(pool->timeline.open) &&
	    gcp_timeline_filled(&pool->timeline) >= size)
		(void)gcp_timeline_fill(pool, -size, 0);
	block->stream = 0;
	gcp_block_set_state(block, GCP_BLOCK_USED);
	return block;
}
