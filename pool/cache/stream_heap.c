/* SPDX-License-Identifier: MIT */
/*
 * stream_heap.c - an allocation in a stream takes what was freed in that stream and
 * waits in the heap for its epoch, which it need not wait for (stream_cache.c).
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

struct span {
	struct gcp_block *first, *last;
	uint64_t bytes;
};

/* Whether the span, which is too small without it, has `next`, too. *left: neighbours
 * that may still be looked at. */
static bool span_has(const struct span *span, const struct gcp_block *next,
		     const struct gcp_request *request, uint32_t *left)
{
	bool usable = gcp_block_is_free(next) ||
		      (next && atomic_load(&next->state) == GCP_BLOCK_PENDING &&
		       next->stream == request->stream);

	if (!usable || span->bytes >= request->size || *left == 0)
		return false;
	--*left;
	return true;
}

static struct span span_around(struct gcp_block *block,
			       const struct gcp_request *request, uint32_t *left)
{
	struct span span = {block, block, block->size};

	while (span_has(&span, span.first->lower, request, left)) {
		span.first = span.first->lower;
		span.bytes += span.first->size;
	}
	while (span_has(&span, span.last->upper, request, left)) {
		span.last = span.last->upper;
		span.bytes += span.last->size;
	}
	return span;
}

/* A span that was too small is that from wherever in it the look begins. */
static bool is_in(const struct gcp_block *block, const struct span *span)
{
	return span->first && block->addr >= span->first->addr &&
	       block->addr <= span->last->addr;
}

/* A huge block is never split: it serves only what nearly fills it. */
static bool span_fits(const struct span *span, const struct gcp_request *request)
{
	uint64_t size = request->size;

	if (span->bytes < size)
		return false;
	if (span->first->segment->kind != GCP_KIND_HUGE)
		return gcp_block_may_divide(span->first, size);
	return span->bytes - size <= size / 8 || span->bytes - size < GCP_CHUNK;
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

static struct gcp_block *span_take(struct gcp_heap *heap, const struct span *span,
				   const struct gcp_request *request)
{
	struct gcp_block *block = span_join(heap, span), *rest = NULL;
	gcp_addr begin = block->addr;

	if (block->segment->kind != GCP_KIND_HUGE)
		block = gcp_block_trim(block, request->size, &rest);
	if (block->addr != begin) /* a head lies below it */
		gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)GCP_PAGE);
	if (rest) {
		rest->stream = request->stream;
		gcp_heap_put(heap, rest);
	}
	if (block->size == request->size)
		block->size_class = (uint16_t)request->size_class;
	return block;
}

/* The latest freed first: its memory is the most likely to be in the device's cache. */
static struct gcp_block *pending_take(struct gcp_heap *heap,
				      const struct gcp_request *request)
{
	enum gcp_kind kind = gcp_heap_kind(heap->pool, request->size);
	struct gcp_block *block =
	    LIST_FIRST(gcp_streamed_of(heap->pool, request->stream));
	uint32_t left = request->looks_long ? UINT32_MAX : GCP_LOOKS;
	struct span small = {0};

	for (; block && left > 0; block = LIST_NEXT(block, streamed)) {
		left--;
		if (block->stream != request->stream || block->segment->kind != kind ||
		    is_in(block, &small))
			continue;
		struct span span = span_around(block, request, &left);

		if (span_fits(&span, request))
			return span_take(heap, &span, request);
		if (span.bytes < request->size)
			small = span;
	}
	return NULL;
}

struct gcp_block *gcp_heap_take_streamed(struct gcp_heap *heap,
					 const struct gcp_request *request)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	if (!request->stream || heap->private)
		return NULL;
	block = pending_take(heap, request);
	if (!block)
		return NULL;
	block->stream = 0;
	gcp_block_set_state(block, GCP_BLOCK_USED);
	return block;
}
