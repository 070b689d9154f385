/* SPDX-License-Identifier: MIT */
/*
 * debug.c - GCPOOL_DEBUG: see debug.h.
 *
 * The book's lock is never held while anything waits or the driver is called: pool/
 * comes here with locks of its own when it maps memory.
 */
#include "debug.h"
#include "instrument.h"
#include "trace.h"

enum {
	MARGIN_LEAST = 256, /* bytes that are asked for more */
	MARGIN_MOST = 4096, /* bytes that are looked at */
};

static uint32_t wanted, frames_wanted; /* constant after start */

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

void gcp_debug_new(gcp_addr addr, uint64_t bytes)
{
	struct gcp_debug_block part;

	while (gcp_debug_book_take(addr, bytes, &part))
		;
}

/* --- a block is given out ---------------------------------------------------- */

/* Returns true if the pattern is there; says where it is not. */
static bool pattern_look(enum gcp_debug_kind pattern,
			 const struct gcp_debug_block *block, gcp_addr addr,
			 uint64_t bytes)
{
	struct gcp_debug_found found;

	if (!good(gcp_debug_compare(block->info.ctx, pattern, addr, bytes, &found)))
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

static gcp_addr margin_at(const struct gcp_debug_block *block)
{
	return block->info.addr + block->info.requested;
}

static uint64_t margin_of(const struct gcp_debug_block *block)
{
	uint64_t margin = block->info.size - block->info.requested;

	return margin < MARGIN_MOST ? margin : MARGIN_MOST;
}

/* Takes what is known of freed memory from where `block` is now, and compares it if
 * `look`. Returns true if all of the block has the pattern. */
static bool freed_take(const struct gcp_block_info *block, bool look)
{
	struct gcp_debug_block part;
	uint64_t marked = 0;
	bool whole = true;

	while (gcp_debug_book_take(block->addr, block->size, &part)) {
		if (!part.freed || !part.marked)
			continue;
		marked += part.range.bytes;
		if (look)
			whole &= pattern_look(GCP_DEBUG_FREED, &part, part.range.at,
					      part.range.bytes);
	}
	return whole && marked == block->size;
}

void gcp_debug_alloc(const struct gcp_block_info *info, struct gcp_observed_order order)
{
	struct gcp_debug_block block = {
	    .range = {.at = info->addr, .bytes = info->size},
	    .info = *info,
	    .order = order,
	};
	bool look = !info->heap && device_allowed() && order_wait(info->ctx, order);
	bool poisoned = freed_take(info, look && wanted & GCP_DEBUG_POISON);

	stack_fill(&block.alloc);
	/* New memory has the pattern, too. */
	if (look && wanted & GCP_DEBUG_POISON && !poisoned)
		(void)good(gcp_debug_write(info->ctx, GCP_DEBUG_FREED, info->addr,
					   info->size));
	block.marked = look && wanted & GCP_DEBUG_GUARD && margin_of(&block) > 0 &&
		       good(gcp_debug_write(info->ctx, GCP_DEBUG_MARGIN,
					    margin_at(&block), margin_of(&block)));
	gcp_debug_book_add(&block);
}

/* --- a block is freed -------------------------------------------------------- */

/* The patterns of a freed block. True: all of it is poison. What is written here comes
 * before the fence of the block's epoch, for the block is freed after this. */
static bool old_patterns(const struct gcp_debug_block *block, bool async,
			 struct gcp_observed_order order)
{
	const struct gcp_block_info *info = &block->info;

	/* cudaFree of stream-ordered memory waits for nothing on plain CUDA. */
	if (order.async ? !order.known : async)
		return false;
	/* Nothing uses it any more, as after the wait of plain cudaFree. */
	if (!order_wait(info->ctx, order) ||
	    (!order.async &&
	     gcp.pools_wait_before_free(gcp.process->pools, info->addr) != 0))
		return false;
	if (block->marked)
		(void)pattern_look(GCP_DEBUG_MARGIN, block, margin_at(block),
				   margin_of(block));
	return wanted & GCP_DEBUG_POISON &&
	       good(gcp_debug_write(info->ctx, GCP_DEBUG_FREED, info->addr,
				    block->range.bytes));
}

/* Takes a held block. False: there is none. */
static bool held_take(gcp_addr addr, struct gcp_debug_block *ret_block)
{
	return gcp_debug_book_from(addr, ret_block) && !ret_block->freed &&
	       ret_block->range.at == addr &&
	       gcp_debug_book_take(addr, ret_block->range.bytes, ret_block);
}

void gcp_debug_free(const struct gcp_block_info *info, struct gcp_observed_order order)
{
	struct gcp_debug_block block;

	if (!held_take(info->addr, &block))
		return;
	stack_fill(&block.free);
	block.freed = true;
	block.marked =
	    !info->heap && device_allowed() && old_patterns(&block, info->async, order);
	gcp_debug_book_add(&block);
}

void gcp_debug_free_wrong(gcp_addr addr)
{
	struct gcp_debug_found found = {0};
	struct gcp_debug_block block;
	bool inside = gcp_debug_book_from(addr, &block) && block.range.at <= addr;

	stack_fill(&found.by);
	if (inside && block.freed && block.info.addr == addr)
		gcp_debug_say(GCP_DEBUG_FREED_TWICE, &block, &found);
	else
		gcp_debug_say_foreign(addr, inside ? &block : NULL, &found.by);
}

/* --- pinned memory ----------------------------------------------------------- */

void gcp_debug_host_alloc(gcp_addr addr, uint64_t bytes)
{
	struct gcp_debug_block block = {
	    .range = {.at = addr, .bytes = bytes},
	    .info = {.addr = addr, .requested = bytes, .size = bytes, .device = -1},
	};

	stack_fill(&block.alloc);
	gcp_debug_book_add(&block);
}

void gcp_debug_host_free(gcp_addr addr)
{
	struct gcp_debug_block block;

	(void)held_take(addr, &block);
}

/* --- the end ----------------------------------------------------------------- */

/* Blocks go with their contexts, too: the pools know. */
static bool is_held(struct gcp_pools *pools, const struct gcp_debug_block *block)
{
	struct gcp_block_info info;
	uint64_t requested;

	if (block->info.device >= 0)
		return gcp.pools_held(pools, block->info.addr, &info) == 0;
	return gcp.pinned_find(pools, (void *)(uintptr_t)block->info.addr,
			       &requested) == 0;
}

void gcp_debug_end(struct gcp_pools *pools)
{
	struct gcp_debug_block block;
	uint64_t blocks = 0, bytes = 0;

	if (!(wanted & GCP_DEBUG_LEAKS))
		return;
	for (gcp_addr from = 0; gcp_debug_book_from(from, &block);
	     from = block.range.at + block.range.bytes) {
		if (block.freed || !is_held(pools, &block))
			continue;
		gcp_debug_say(GCP_DEBUG_LEAK, &block, &(struct gcp_debug_found){0});
		blocks++;
		bytes += block.info.requested;
	}
	if (blocks)
		gcp_debug_say_leaks(blocks, bytes);
}
