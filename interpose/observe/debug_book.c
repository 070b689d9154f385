/* SPDX-License-Identifier: MIT */
/*
 * debug_book.c - the ranges of GCPOOL_DEBUG: see debug_book.h. Ranges never overlap.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "debug_book.h"
#include "trace_format.h"

RB_HEAD(gcp_debug_tree, gcp_debug_range);

static int range_compare(const struct gcp_debug_range *a,
			 const struct gcp_debug_range *b)
{
	return a->at < b->at ? -1 : a->at > b->at;
}

RB_PROTOTYPE(gcp_debug_tree, gcp_debug_range, link, range_compare)
RB_GENERATE(gcp_debug_tree, gcp_debug_range, link, range_compare)

static struct gcp_debug_tree tree = RB_INITIALIZER(&tree);

void gcp_debug_stack_fill(struct gcp_debug_stack *stack,
			  const struct gcp_caller *caller)
{
	uintptr_t frames[GCP_TRACE_FRAMES_MAX];
	uint32_t count = gcp_stacks_walk(caller, frames);

	stack->count = count < GCP_DEBUG_FRAMES ? count : GCP_DEBUG_FRAMES;
	memcpy(stack->frames, frames, stack->count * sizeof(frames[0]));
}

/* The first range that ends behind `addr`. */
static struct gcp_debug_range *range_from(gcp_addr addr)
{
	struct gcp_debug_range key = {.at = addr + 1};
	struct gcp_debug_range *behind = RB_NFIND(gcp_debug_tree, &tree, &key);
	struct gcp_debug_range *before = behind ? RB_PREV(gcp_debug_tree, &tree, behind)
						: RB_MAX(gcp_debug_tree, &tree);

	return before && before->at + before->bytes > addr ? before : behind;
}

struct gcp_debug_range *gcp_debug_book_find(gcp_addr addr)
{
	struct gcp_debug_range *range = range_from(addr);

	return range && range->at <= addr ? range : NULL;
}

static void range_insert(const struct gcp_debug_range *range)
{
	int saved = errno;
	struct gcp_debug_range *copy = malloc(sizeof(*copy));

	errno = saved;
	if (!copy)
		return;
	*copy = *range;
	RB_INSERT(gcp_debug_tree, &tree, copy);
}

void gcp_debug_book_remove(struct gcp_debug_range *range)
{
	RB_REMOVE(gcp_debug_tree, &tree, range);
	free(range);
}

/* What of `range` lies in [from, to) goes; what is left stays. */
static void range_cut(struct gcp_debug_range *range, gcp_addr from, gcp_addr to)
{
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
	struct gcp_debug_range *range;

	RB_FOREACH (range, gcp_debug_tree, &tree)
		scope(arg, range);
}
