/* SPDX-License-Identifier: MIT */
/*
 * debug.c - GCPOOL_DEBUG: see debug.h.
 *
 * The book (debug_book.h) has a range for each block that is held, and for what is left
 * of freed ones. `lock` is held for the book alone, and never while anything waits or
 * the driver is called: pool/ comes here with locks of its own when it maps memory.
 */
#include <stdlib.h>

#include "debug.h"
#include "debug_say.h"
#include "instrument.h"

enum {
	MARGIN_LEAST = 256, /* bytes that are asked for more */
	MARGIN_MOST = 4096, /* bytes that are looked at */
	PARTS_MAX = 64,     /* of freed blocks that one allocation looks at */
};

static uint32_t wanted, frames_wanted; /* constant after start */
static struct gcp_mutex lock = GCP_MUTEX(GCP_RANK_DEBUG);
static struct gcp_driver real; /* constant after gcp_debug_driver */

bool gcp_debug_start(const struct gcp_options *options)
{
	wanted = options->debug;
	frames_wanted = options->trace_frames ? options->trace_frames : 1;
	if (frames_wanted > GCP_DEBUG_FRAMES)
		frames_wanted = GCP_DEBUG_FRAMES;
	return wanted;
}

static void stack_fill(struct gcp_debug_stack *stack)
{
	stack->count = gcp_stacks_walk(frames_wanted, stack->frames);
}

uint64_t gcp_debug_margin(void)
{
	return wanted & GCP_DEBUG_GUARD && !gcp.process_capturing() ? MARGIN_LEAST : 0;
}

/* Whether device memory may be written and read now. */
static bool device_allowed(void)
{
	return wanted & (GCP_DEBUG_POISON | GCP_DEBUG_GUARD) &&
	       !gcp.process_capturing();
}

static bool good(int result)
{
	if (result > 0)
		gcp_debug_say_error(result);
	return result == 0;
}

/* --- what is between pool/ and the driver ------------------------------------ */

static void addresses_are_new(gcp_addr addr, uint64_t bytes)
{
	gcp.mutex_lock(&lock);
	gcp_debug_book_cut(addr, bytes, NULL, NULL);
	gcp.mutex_unlock(&lock);
}

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	int result = real.mem_alloc(ctx, bytes, ret_addr);

	if (result == 0)
		addresses_are_new(*ret_addr, bytes);
	return result;
}

static int vm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	int result = real.vm_map(addr, bytes, handle);

	if (result == 0)
		addresses_are_new(addr, bytes);
	return result;
}

void gcp_debug_driver(struct gcp_driver *driver)
{
	real = *driver;
	driver->mem_alloc = mem_alloc;
	if (real.vm_map)
		driver->vm_map = vm_map;
}

/* --- a block is given out ---------------------------------------------------- */

/* Freed parts of what is given out now. */
struct freed_parts {
	struct gcp_debug_range ranges[PARTS_MAX];
	uint32_t count;
	uint64_t marked; /* bytes in all of them, those too many included */
};

static void part_note(void *arg, const struct gcp_debug_range *range)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	struct freed_parts *parts = arg;

	if (!range->marked)
		return;
	parts->marked += range->bytes;
	if (parts->count < PARTS_MAX)
		parts->ranges[parts->count++] = *range;
}

/* Returns true if the pattern is there; says where it is not. */
static bool pattern_look(void *ctx, enum gcp_debug_kind pattern,
			 const struct gcp_debug_block *block, gcp_addr addr,
			 uint64_t bytes)
{
	struct gcp_debug_found found;

	if (!good(gcp_debug_compare(ctx, pattern, addr, bytes, &found)))
		return false;
	if (found.wrong)
		gcp_debug_say(pattern, block, &found);
	return found.wrong == 0;
}

/* Waits for what may still use a block of stream-ordered memory. */
static bool order_wait(void *ctx, struct gcp_observed_order order)
{
	return !order.async || good(gcp_debug_wait_stream(ctx, order.stream));
}

/* New memory has the pattern: where it was not left by a free it is written. */
static void new_poison(const struct gcp_block_info *block,
		       const struct freed_parts *parts)
{
	bool whole = parts->marked == block->size;

	for (uint32_t i = 0; i < parts->count; i++) {
		const struct gcp_debug_range *part = &parts->ranges[i];

		whole &= pattern_look(block->ctx, GCP_DEBUG_FREED, &part->block,
				      part->at, part->bytes);
	}
	if (!whole)
		(void)good(gcp_debug_write(block->ctx, GCP_DEBUG_FREED, block->addr,
					   block->size));
}

static uint64_t margin_of(const struct gcp_debug_range *range)
{
	uint64_t margin = range->bytes - range->block.requested;

	return margin < MARGIN_MOST ? margin : MARGIN_MOST;
}

static bool new_margin(void *ctx, const struct gcp_debug_range *range)
{
	uint64_t margin = margin_of(range);

	return margin > 0 &&
	       good(gcp_debug_write(ctx, GCP_DEBUG_MARGIN,
				    range->at + range->block.requested, margin));
}

/* The patterns of a new block. True: it has a margin. */
static bool new_patterns(const struct gcp_debug_range *range,
			 const struct gcp_block_info *block,
			 struct gcp_observed_order order,
			 const struct freed_parts *parts)
{
	bool margin = false;

	if (!order_wait(block->ctx, order))
		return false;
	if (wanted & GCP_DEBUG_POISON)
		new_poison(block, parts);
	if (wanted & GCP_DEBUG_GUARD)
		margin = new_margin(block->ctx, range);
	return good(gcp_debug_wait(block->ctx)) && margin;
}

static void range_fill(struct gcp_debug_range *range,
		       const struct gcp_block_info *block,
		       struct gcp_observed_order order)
{
	*range = (struct gcp_debug_range){
	    .at = block->addr,
	    .bytes = block->size,
	    .block = {.addr = block->addr,
		      .requested = block->requested,
		      .size = block->size,
		      .device = block->device,
		      .ctx = block->ctx,
		      .async = order.async,
		      .stream = order.stream},
	};
	stack_fill(&range->block.alloc);
}

void gcp_debug_alloc(const struct gcp_block_info *block,
		     struct gcp_observed_order order)
{
	struct freed_parts *parts = calloc(1, sizeof(*parts));
	struct gcp_debug_range range;

	range_fill(&range, block, order);
	gcp.mutex_lock(&lock);
	gcp_debug_book_cut(block->addr, block->size, parts ? part_note : NULL, parts);
	gcp.mutex_unlock(&lock);
	if (parts && !block->heap && device_allowed())
		range.marked = new_patterns(&range, block, order, parts);
	free(parts);
	gcp.mutex_lock(&lock);
	gcp_debug_book_add(&range);
	gcp.mutex_unlock(&lock);
}

/* --- a block is freed -------------------------------------------------------- */

/* The patterns of a freed block. True: all of it is poison. What is written here comes
 * before the fence of the block's epoch, for the block is freed after this. */
static bool old_patterns(const struct gcp_debug_range *range,
			 const struct gcp_block_info *block,
			 struct gcp_observed_order order)
{
	void *ctx = range->block.ctx;

	/* cudaFree of stream-ordered memory waits for nothing on plain CUDA. */
	if (order.async ? !order.known : block->async)
		return false;
	/* Nothing uses it any more, as after the wait of plain cudaFree. */
	if (!order_wait(ctx, order) ||
	    (!order.async &&
	     gcp.pools_wait_before_free(gcp.process->pools, range->at) != 0))
		return false;
	if (range->marked)
		(void)pattern_look(ctx, GCP_DEBUG_MARGIN, &range->block,
				   range->at + range->block.requested,
				   margin_of(range));
	return wanted & GCP_DEBUG_POISON &&
	       good(gcp_debug_write(ctx, GCP_DEBUG_FREED, range->at, range->bytes)) &&
	       good(gcp_debug_wait(ctx));
}

/* Takes the range of a held block. False: there is none. */
static bool held_take(gcp_addr addr, struct gcp_debug_range *ret_range)
{
	struct gcp_debug_range *range;
	bool held;

	gcp.mutex_lock(&lock);
	range = gcp_debug_book_find(addr);
	held = range && !range->freed && range->at == addr;
	if (held) {
		*ret_range = *range;
		gcp_debug_book_remove(range);
	}
	gcp.mutex_unlock(&lock);
	return held;
}

void gcp_debug_free(const struct gcp_block_info *block, struct gcp_observed_order order)
{
	struct gcp_debug_range range;

	if (!held_take(block->addr, &range))
		return;
	stack_fill(&range.block.free);
	range.freed = true;
	range.marked =
	    !block->heap && device_allowed() && old_patterns(&range, block, order);
	gcp.mutex_lock(&lock);
	gcp_debug_book_add(&range);
	gcp.mutex_unlock(&lock);
}

void gcp_debug_free_wrong(gcp_addr addr)
{
	struct gcp_debug_found found = {0};
	struct gcp_debug_range copy, *range;

	stack_fill(&found.by);
	gcp.mutex_lock(&lock);
	range = gcp_debug_book_find(addr);
	if (range)
		copy = *range;
	gcp.mutex_unlock(&lock);
	if (range && copy.freed && copy.block.addr == addr)
		gcp_debug_say(GCP_DEBUG_FREED_TWICE, &copy.block, &found);
	else
		gcp_debug_say_foreign(addr, range ? &copy.block : NULL, &found.by);
}

/* --- pinned memory ----------------------------------------------------------- */

void gcp_debug_host_alloc(gcp_addr addr, uint64_t bytes)
{
	struct gcp_debug_range range = {
	    .at = addr,
	    .bytes = bytes,
	    .block = {.addr = addr, .requested = bytes, .size = bytes, .device = -1},
	};

	stack_fill(&range.block.alloc);
	gcp.mutex_lock(&lock);
	gcp_debug_book_add(&range);
	gcp.mutex_unlock(&lock);
}

void gcp_debug_host_free(gcp_addr addr)
{
	struct gcp_debug_range range;

	(void)held_take(addr, &range);
}

/* --- ends -------------------------------------------------------------------- */

void gcp_debug_context_gone(const void *ctx)
{
	if (wanted & (GCP_DEBUG_POISON | GCP_DEBUG_GUARD))
		gcp_debug_device_context_gone(ctx);
}

struct leaks {
	struct gcp_pools *pools;
	uint64_t blocks, bytes;
};

/* Blocks go with their contexts, too: the pools know. */
static void leak_look(void *arg, const struct gcp_debug_range *range)
{
	gcp_assert_held(GCP_RANK_DEBUG);
	struct leaks *leaks = arg;
	struct gcp_block_info info;
	uint64_t requested;
	int held;

	if (range->freed)
		return;
	held = range->block.device < 0
		   ? gcp.pinned_find(leaks->pools, (void *)(uintptr_t)range->at,
				     &requested)
		   : gcp.pools_held(leaks->pools, range->at, &info);
	if (held != 0)
		return;
	gcp_debug_say(GCP_DEBUG_LEAK, &range->block, &(struct gcp_debug_found){0});
	leaks->blocks++;
	leaks->bytes += range->block.requested;
}

void gcp_debug_end(struct gcp_pools *pools)
{
	struct leaks leaks = {.pools = pools};

	if (!(wanted & GCP_DEBUG_LEAKS) || !pools)
		return;
	gcp.mutex_lock(&lock);
	gcp_debug_book_each(leak_look, &leaks);
	gcp.mutex_unlock(&lock);
	if (leaks.blocks)
		gcp_debug_say_leaks(leaks.blocks, leaks.bytes);
}
