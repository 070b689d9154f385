/* SPDX-License-Identifier: MIT */
/*
 * vmm_space.c - the records of mapped segments: which addresses have memory behind
 * them, where room could be made, and which handles could be moved there.
 *
 * Called by vmm.c with vmm_lock and pool->lock held. Never calls the driver.
 *
 * A mapped segment is a long range of addresses, cut into blocks like any other.
 * Its HOLEs have nothing behind them; all else has, in handles:
 *
 *      | used | free |     hole     | free |   used   | free |  hole ...
 *      |  handle  |  handle  |      |   handle  |  handle  |
 *
 * To make room for a request the lower part of a hole gets memory: where the block
 * below it is free, the handle at its end is shared by the request too. The memory
 * comes from whole handles that lie free elsewhere.
 *
 * Where many holes or free blocks would do a few are looked at: a better choice saves
 * memory, and is not worth a walk under the lock.
 *
 * Handles of private heaps never move: graphs know their addresses.
 */
#include "vmm.h"

/* --- holes ------------------------------------------------------------------------ */

/* Returns the hole that it is a part of now. */
static struct gcp_block *hole_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	block->epoch = GCP_EPOCH_FRESH;
	if (gcp_block_is(block->upper, GCP_BLOCK_HOLE)) {
		gcp_hole_remove(heap, block->upper);
		gcp_block_coalesce_upper(block);
	}
	if (gcp_block_is(block->lower, GCP_BLOCK_HOLE)) {
		block = block->lower;
		gcp_hole_remove(heap, block);
		gcp_block_coalesce_upper(block);
	}
	gcp_hole_insert(heap, block);
	return block;
}

int gcp_space_add(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		  struct gcp_chunk *chunks, bool small)
{
	struct gcp_segment *segment;
	int result = gcp_segment_create(heap, addr, size, chunks, small, &segment);

	if (result == 0)
		hole_insert(heap, segment->first);
	return result;
}

static void unmapping_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *older = TAILQ_LAST(&heap->unmapping, gcp_block_list);

	gcp_block_set_state(block, GCP_BLOCK_UNMAPPING);
	while (older && older->epoch > block->epoch)
		older = TAILQ_PREV(older, gcp_block_list, link);
	if (older)
		TAILQ_INSERT_AFTER(&heap->unmapping, older, block, link);
	else
		TAILQ_INSERT_HEAD(&heap->unmapping, block, link);
}

void gcp_space_join(struct gcp_heap *heap, struct gcp_heap *ending)
{
	struct gcp_block *hole;

	gcp_assert_held(GCP_RANK_POOL);
	while ((hole = TAILQ_FIRST(&ending->unmapping))) {
		TAILQ_REMOVE(&ending->unmapping, hole, link);
		unmapping_insert(heap, hole);
	}
	while ((hole = gcp_tree_lowest_fit(&ending->holes, GCP_CHUNK))) {
		gcp_hole_remove(ending, hole);
		gcp_hole_insert(heap, hole);
	}
}

/* --- where to make room ------------------------------------------------------- */

struct place {
	struct gcp_block *hole;
	uint64_t size;                /* bytes of its lower end to be mapped */
	const struct gcp_block *keep; /* what is free below it and helps */
	bool apart;                   /* only where nothing lies beside it */
	bool alone; /* what is free below it will not serve the request */
};

/* How many bytes a request for `bytes` may have at the end of a block below a hole, if
 * it is free: a handle ends there. Where that is only a part of its whole handles 0:
 * they had better move. */
static uint64_t bytes_below(const struct gcp_block *block, uint64_t bytes)
{
	const struct gcp_segment *segment = block ? block->segment : NULL;
	uint64_t begin, end, usable = 0;

	if (!gcp_block_is_free(block))
		return 0;
	begin = (block->addr - segment->addr) / GCP_CHUNK;
	end = (block->addr + block->size - segment->addr) / GCP_CHUNK;
	while (usable < bytes && begin < end &&
	       (segment->chunks[end - 1].count == 1 ||
		atomic_load(&segment->heap)->private)) {
		usable += GCP_CHUNK;
		end--;
	}
	if (usable < bytes && usable < gcp_block_unused(block))
		return 0;
	return usable < block->size ? usable : block->size / GCP_PAGE * GCP_PAGE;
}

static void place_consider(struct gcp_block *hole, uint64_t bytes, struct place *best)
{
	uint64_t below = best->alone ? 0 : bytes_below(hole->lower, bytes);
	uint64_t size = below >= bytes ? 0 : gcp_round_up(bytes - below, GCP_CHUNK);

	if (size == 0 || size > hole->size ||
	    bytes < gcp_segment_least(hole->segment) ||
	    (best->apart && !gcp_block_is_segment(hole)))
		return;
	if (best->hole && (size > best->size ||
			   (size == best->size && hole->size >= best->hole->size)))
		return;
	best->hole = hole;
	best->size = size;
	best->keep = below > 0 ? hole->lower : NULL;
}

/* Holes of at least `size`. */
static void place_by_holes(const struct gcp_treap *holes, uint64_t size, uint64_t bytes,
			   struct place *best)
{
	struct gcp_block *hole = gcp_tree_lowest_for(holes, size, bytes);

	for (int looks = GCP_LOOKS; hole && looks > 0; looks--) {
		place_consider(hole, bytes, best);
		hole = gcp_tree_next_fit(hole, size);
	}
}

/* Cuts the place out of its hole. NULL: no memory for a descriptor. */
static struct gcp_block *place_take(struct gcp_heap *heap, const struct place *place)
{
	struct gcp_block *hole = place->hole, *target = hole;

	gcp_hole_remove(heap, hole);
	if (place->size < hole->size) {
		target = gcp_block_cut(hole, place->size);
		hole_insert(heap, hole);
	}
	if (target)
		gcp_block_set_state(target, GCP_BLOCK_MOVING);
	return target;
}

/* --- which handles can move --------------------------------------------------- */

/* Of the handles in a free block, how many bytes are taken from the first one on: at
 * least `bytes`, if there are so many, and never more than the move has room for. */
static uint64_t donor_bytes(const struct gcp_block *block, uint64_t bytes,
			    const struct gcp_move *move)
{
	uint64_t first, count = gcp_block_handles(block, &first), taken = 0;
	const struct gcp_chunk *chunks = block->segment->chunks;

	while (taken < count && taken * GCP_CHUNK < bytes) {
		uint64_t more = taken + chunks[first + taken].count;

		if (more * GCP_CHUNK > move->room - move->donated)
			break;
		taken = more;
	}
	return taken * GCP_CHUNK;
}

static bool may_donate(const struct gcp_block *block, uint64_t bytes, uint64_t epoch,
		       const struct gcp_move *move)
{
	return block->segment->chunks && block->epoch <= epoch && block != move->keep &&
	       donor_bytes(block, bytes, move) > 0;
}

/* Of the blocks of `bytes`, or else half of that, and so on, the smallest that is seen
 * with handles to give; NULL: none is. */
static struct gcp_block *donor_find(struct gcp_pool *pool, uint64_t bytes,
				    uint64_t epoch, const struct gcp_move *move)
{
	const struct gcp_treap *free = &pool->common.free;
	struct gcp_block *best = NULL, *block;

	for (uint64_t count = bytes / GCP_CHUNK; !best && count > 0; count /= 2) {
		uint64_t least = count * GCP_CHUNK;

		block = gcp_tree_lowest_fit(free, least);
		for (int looks = GCP_LOOKS; block && looks > 0; looks--) {
			if ((!best || block->size < best->size) &&
			    may_donate(block, bytes, epoch, move))
				best = block;
			block = gcp_tree_next_fit(block, least);
		}
	}
	return best;
}

/* What waits in the request's stream serves it at once, elsewhere too. The latest
 * first: what was freed before it may soon serve others. */
static struct gcp_block *streamed_find(struct gcp_pool *pool, uint64_t bytes,
				       struct gcp_move *move)
{
	struct gcp_block *block = LIST_FIRST(gcp_streamed_of(pool, move->stream));

	for (; block && move->looks > 0;
	     block = LIST_NEXT(block, streamed), move->looks--)
		if (block->stream == move->stream && block->segment->chunks &&
		    donor_bytes(block, bytes, move) > 0)
			return block;
	return NULL;
}

/* What has a stream waits; all else is free. */
static void block_put_back(struct gcp_heap *heap, struct gcp_block *block,
			   uint64_t stream)
{
	block->stream = stream;
	if (!stream) {
		gcp_block_coalesce(heap, block);
		return;
	}
	gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
	gcp_heap_put(heap, block);
}

/* Cuts so many bytes of handles out of a block that is free, or waits in its stream,
 * from that chunk of its segment on: MOVING; the rest stays what it was. NULL: no
 * memory for a descriptor. */
static struct gcp_block *block_cut_out(struct gcp_heap *heap, struct gcp_block *block,
				       uint64_t first, uint64_t bytes)
{
	uint64_t below = block->segment->addr + first * GCP_CHUNK - block->addr;
	uint64_t stream = block->stream;
	struct gcp_block *part, *above = NULL;

	assert(bytes > 0 && bytes % GCP_CHUNK == 0);
	if (stream) {
		gcp_pending_remove(heap, block);
		gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
	} else {
		gcp_tree_remove(heap, block);
	}
	gcp_block_set_state(block, GCP_BLOCK_MOVING);
	if (below > 0) {
		part = gcp_block_cut(block, below);
		block_put_back(heap, part ? part : block, stream);
		if (!part)
			return NULL;
	}
	if (block->size > bytes) {
		above = block;
		block = gcp_block_cut(above, bytes);
		if (block)
			gcp_block_set_state(block, GCP_BLOCK_MOVING);
		block_put_back(heap, above, stream);
	}
	if (block)
		block->stream = stream;
	return block;
}

static bool donor_take(struct gcp_pool *pool, struct gcp_block *block, uint64_t bytes,
		       struct gcp_move *move)
{
	uint64_t first;

	(void)gcp_block_handles(block, &first);
	block = block_cut_out(&pool->common, block, first, bytes);
	if (!block)
		return false;
	TAILQ_INSERT_TAIL(&move->donors, block, link);
	move->donated += block->size;
	return true;
}

/* Picks unused handles whose epoch is `epoch` at most, or what waits in the request's
 * stream (0), until `bytes` are donated. */
static void collect(struct gcp_pool *pool, uint64_t bytes, uint64_t epoch,
		    struct gcp_move *move)
{
	gcp_assert_held(GCP_RANK_POOL);
	while (move->donated < bytes) {
		uint64_t missing = bytes - move->donated;
		struct gcp_block *donor = epoch ? donor_find(pool, missing, epoch, move)
						: streamed_find(pool, missing, move);

		if (!donor ||
		    !donor_take(pool, donor, donor_bytes(donor, missing, move), move))
			return;
	}
}

/* One walk over all that could go, and over no blocks in use: the device is full, or
 * what is idle is given back, with GCPOOL_CACHE_LIMIT=0 in each free. */
void gcp_space_collect_completed(struct gcp_pool *pool, uint64_t bytes, bool exact,
				 struct gcp_move *move)
{
	uint64_t completed = atomic_load(&pool->timeline.completed);
	struct gcp_block *next = gcp_tree_lowest_fit(&pool->common.free, GCP_CHUNK);
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	move->room = exact ? bytes : UINT64_MAX;
	while ((block = next) && move->donated < bytes) {
		uint64_t missing = bytes - move->donated;

		next = gcp_tree_next_fit(block, GCP_CHUNK);
		if (may_donate(block, missing, completed, move) &&
		    !donor_take(pool, block, donor_bytes(block, missing, move), move))
			return;
	}
}

/* Returns true if the pool takes new memory though handles are unused: the program has
 * needed about as much as there is, or so many requests were served by mapping handles
 * elsewhere that a little more is cheaper. */
static bool should_grow(const struct gcp_heap *heap, uint64_t bytes)
{
	enum { REMAPS_PER_CHUNK = 6 };
	const struct gcp_stats *stats = &heap->pool->stats;
	uint64_t chunks = stats->remaps / REMAPS_PER_CHUNK;

	if (chunks > GCP_HANDLE_MOST)
		chunks = GCP_HANDLE_MOST;
	return chunks > 0 && !heap->private && !gcp_pool_is_tight(heap->pool) &&
	       heap->pool->cache_limit == GCP_LIMIT_NONE &&
	       heap->reserved_bytes + bytes <=
		   stats->allocated_bytes.peak + chunks * GCP_CHUNK;
}

int gcp_space_plan(struct gcp_heap *heap, uint64_t bytes, struct gcp_move *move,
		   struct gcp_move *useless)
{
	struct gcp_pool *pool = heap->pool;
	struct place best = {.apart = move->apart};
	bool grows;

	gcp_assert_held(GCP_RANK_VMM);
	/* What waits there may come to the target, which then does not merge. */
	best.alone = move->stream && !LIST_EMPTY(gcp_streamed_of(pool, move->stream));
	place_by_holes(&heap->holes, gcp_round_up(bytes, GCP_CHUNK), bytes, &best);
	place_by_holes(&heap->holes, GCP_CHUNK, bytes, &best);
	if (!best.hole)
		return -ENOSPC;
	move->heap = heap;
	/* I8: no free of what was mapped there before has a later one. */
	move->epoch = atomic_load(&pool->timeline.completed);
	move->room = heap->private ? best.hole->size : best.size;
	move->keep = best.keep;
	grows = should_grow(heap, best.size);
	if (!grows) {
		collect(pool, best.size, atomic_load(&pool->timeline.completed), move);
		collect(pool, best.size, atomic_load(&pool->timeline.ready), move);
	}
	collect(pool, best.size, 0, move);
	if (move->donated > best.size)
		best.size = move->donated;
	move->target = place_take(heap, &best);
	if (!move->target)
		return -ENOMEM;
	assert(move->donated <= move->target->size);
	useless->room = UINT64_MAX;
	useless->keep = best.keep;
	if (!grows)
		collect(pool, best.size - move->donated,
			atomic_load(&pool->timeline.completed), useless);
	return 0;
}

/* --- the end of a move -------------------------------------------------------- */

void gcp_space_free(struct gcp_block *block, bool unmapped)
{
	struct gcp_segment *segment = block->segment;
	struct gcp_heap *heap = atomic_load(&segment->heap);

	gcp_assert_held(GCP_RANK_POOL);
	if (!unmapped) {
		unmapping_insert(heap, block);
		return;
	}
	block = hole_insert(heap, block);
	if (!gcp_block_is_segment(block))
		return;
	gcp_hole_remove(heap, block);
	gcp_block_release(block);
	gcp_segment_unlink(heap, segment);
	TAILQ_INSERT_TAIL(&heap->pool->orphans, segment, link);
}

void gcp_space_detach(struct gcp_move *move, struct gcp_block *donor, bool unmapped)
{
	struct gcp_heap *heap = atomic_load(&donor->segment->heap);

	TAILQ_REMOVE(&move->donors, donor, link);
	move->donated -= donor->size;
	gcp_space_change(heap, donor->segment, -(int64_t)donor->size);
	if (move->epoch < donor->epoch)
		move->epoch = donor->epoch;
	assert(!donor->stream || donor->stream == move->stream); /* U1 */
	donor->stream = 0;
	gcp_space_free(donor, unmapped);
}

struct gcp_block *gcp_space_take_scratch(struct gcp_heap *heap, struct gcp_block *block)
{
	uint64_t first, count = gcp_block_handles(block, &first);

	gcp_assert_held(GCP_RANK_POOL);
	block = count > 0 ? block_cut_out(heap, block, first, count * GCP_CHUNK) : NULL;
	if (!block)
		return NULL;
	gcp_space_change(heap, block->segment, -(int64_t)block->size);
	unmapping_insert(heap, block);
	return block;
}

struct gcp_block *gcp_space_next_unmapping(struct gcp_pool *pool)
{
	uint64_t completed = atomic_load(&pool->timeline.completed);
	struct gcp_block *block = TAILQ_FIRST(&pool->common.unmapping);

	if (!block || block->epoch > completed)
		return NULL;
	TAILQ_REMOVE(&pool->common.unmapping, block, link);
	gcp_block_set_state(block, GCP_BLOCK_MOVING);
	return block;
}

struct gcp_block *gcp_space_fill(struct gcp_move *move)
{
	struct gcp_block *target = move->target;

	move->target = NULL;
	gcp_space_change(move->heap, target->segment, (int64_t)target->size);
	target->epoch = move->epoch;
	if (!gcp_epoch_ready(move->heap->pool, move->epoch)) { /* U1 */
		assert(move->stream);
		block_put_back(move->heap, target, move->stream);
		return NULL;
	}
	/* For captured work, and room was made counting on what is free beside it. */
	if (gcp_block_is_free(target->lower))
		target->lower->apart = false;
	if (gcp_block_is_free(target->upper))
		target->upper->apart = false;
	return gcp_block_coalesce(move->heap, target);
}

/* Whether unmapping has failed: all of it is tried again later. */
static bool is_mapped_somewhere(const struct gcp_block *block)
{
	uint64_t count;
	const struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

	for (uint64_t i = 0; i < count; i++)
		if (chunks[i].handle)
			return true;
	return false;
}

void gcp_space_release(struct gcp_pool *pool, struct gcp_move *move)
{
	struct gcp_block *donor;

	if (move->target)
		gcp_space_free(move->target, !is_mapped_somewhere(move->target));
	move->target = NULL;
	while ((donor = TAILQ_FIRST(&move->donors))) {
		TAILQ_REMOVE(&move->donors, donor, link);
		block_put_back(&pool->common, donor, donor->stream);
	}
	move->donated = 0;
}
