/* SPDX-License-Identifier: MIT */
/*
 * debug_book.c - the ranges of GCPOOL_DEBUG: see debug_book.h. Ranges never overlap.
 */
#include <errno.h>
#include <stdlib.h>

#include "debug_book.h"
#include "instrument.h"

static bool range_before(const struct gcp_debug_range *a,
			 const struct gcp_debug_range *b)
{
	return a->at < b->at;
}

GCP_TREAP(ranges, gcp_debug_range, node, range_before, NULL)

static struct gcp_treap ranges;

/* The first range that ends behind `addr`. */
static struct gcp_debug_range *range_from(gcp_addr addr)
{
	struct gcp_debug_range key = {.at = addr + 1};
	struct gcp_debug_range *before = ranges_below(&ranges, &key);

	if (before && before->at + before->bytes > addr)
		return before;
	return ranges_from(&ranges, &key);
}

struct gcp_debug_range *gcp_debug_book_find(gcp_addr addr)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	struct gcp_debug_range *range = range_from(addr);

	return range && range->at <= addr ? range : NULL;
}

static void range_insert(const struct gcp_debug_range *range)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	assert(range->bytes > 0 && range->block.requested <= range->block.size);
	int saved = errno;
	struct gcp_debug_range *copy = malloc(sizeof(*copy));

	errno = saved;
	if (!copy)
		return;
	*copy = *range;
	ranges_insert(&ranges, copy);
}

void gcp_debug_book_remove(struct gcp_debug_range *range)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	ranges_remove(&ranges, range);
	free(range);
}

/* What of `range` lies in [from, to) goes; what is left stays. */
static void range_cut(struct gcp_debug_range *range, gcp_addr from, gcp_addr to)
{
	assert(range->at < to && range->at + range->bytes > from);
	struct gcp_debug_range rest = *range;
	gcp_addr end = range->at + range->bytes;

	if (range->at < from)
		range->bytes = from - range->at;
	else
		gcp_debug_book_remove(range);
	if (end > to) {
		rest.at = to;
		rest.bytes = end - to;
		range_insert(&rest);
	}
}

void gcp_debug_book_cut(gcp_addr addr, uint64_t bytes,
			void (*part)(void *arg, const struct gcp_debug_range *range),
			void *arg)
{
	struct gcp_debug_range *range, taken;

	while ((range = range_from(addr)) && range->at < addr + bytes) {
		gcp_addr end = range->at + range->bytes;

		taken = *range;
		taken.at = range->at > addr ? range->at : addr;
		taken.bytes = (end < addr + bytes ? end : addr + bytes) - taken.at;
		range_cut(range, taken.at, taken.at + taken.bytes);
		if (part && taken.freed)
			part(arg, &taken);
	}
}

void gcp_debug_book_add(const struct gcp_debug_range *range)
{
	gcp_debug_book_cut(range->at, range->bytes, NULL, NULL);
	range_insert(range);
}

void gcp_debug_book_each(void (*scope)(void *arg, const struct gcp_debug_range *range),
			 void *arg)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	struct gcp_debug_range *range;

	for (range = ranges_first(&ranges); range; range = ranges_next(range))
		scope(arg, range);
}
