/* SPDX-License-Identifier: MIT */
/*
 * vmm_space.c - the books of mapped segments: which addresses have memory behind
 * them, where room could be made, and which chunks could be moved there.
 *
 * Called by vmm.c with vmm_lock and pool->lock held. Never calls the driver.
 *
 * A mapped segment is a long range of addresses, cut into blocks like any other.
 * Its HOLEs have nothing behind them; all else has, in chunks of 2 MiB:
 *
 *      | used | free |     hole     | free |   used   | free |  hole ...
 *      |  chunk  |  chunk  |        |   chunk  |   chunk  |
 *
 * To make room for a request a part of a hole gets memory, beginning where it
 * borders on other blocks, so that the chunk that they share is shared by the
 * request too. The memory comes from whole chunks that lie free elsewhere.
 *
 * Chunks of private heaps never move: graphs know their addresses.
 */
#include "vmm.h"

uint64_t gcp_space_chunk(const struct gcp_segment *segment, gcp_addr addr)
{
	assert(addr % GCP_CHUNK == segment->addr % GCP_CHUNK);
	return (addr - segment->addr) / GCP_CHUNK;
}

/* --- holes -------------------------------------------------------------------------
 */

static bool is_hole(const struct gcp_block *block)
{
	return block && atomic_load_explicit(&block->state, memory_order_relaxed) ==
			    GCP_BLOCK_HOLE;
}

static void hole_insert(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_pools *pools = heap->pool->pools;

	block->epoch = GCP_EPOCH_FRESH;
	if (is_hole(block->upper)) {
		TAILQ_REMOVE(&heap->holes, block->upper, link);
		gcp_block_coalesce_upper(pools, block, block->upper);
	}
	if (is_hole(block->lower)) {
		struct gcp_block *lower = block->lower;

		TAILQ_REMOVE(&heap->holes, lower, link);
		gcp_block_coalesce_upper(pools, lower, block);
		block = lower;
	}
	gcp_block_set_state(block, GCP_BLOCK_HOLE);
	TAILQ_INSERT_TAIL(&heap->holes, block, link);
}

static void mapped_change(struct gcp_heap *heap, struct gcp_segment *segment,
			  int64_t change)
{
	struct gcp_stats *stats = &heap->pool->stats;

	segment->mapped += (uint64_t)change;
	atomic_fetch_add_explicit(&heap->pool->vmm_mapped, (uint64_t)change,
				  memory_order_relaxed);
	heap->reserved_bytes += (uint64_t)change;
	gcp_reserved_count(heap->pool, change);
	if (heap->private)
		gcp_gauge_add(&stats->private_bytes, change);
}

int gcp_space_add(struct gcp_heap *heap, gcp_addr addr, uint64_t size,
		  enum gcp_kind kind, uint64_t *chunks)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_pools *pools = pool->pools;
	struct gcp_segment *segment = gcp_descriptor_alloc(&pools->segment_descriptors);
	struct gcp_block *hole;
	int result = -ENOMEM;

	if (!segment)
		return -ENOMEM;
	*segment = (struct gcp_segment){
	    .addr = addr,
	    .size = size,
	    .chunks = chunks,
	    .kind = kind,
	    .number = ++pool->last_segment,
	    .pool = pool,
	    .heap = heap,
	};
	hole = gcp_block_create(segment, addr, size, GCP_EPOCH_FRESH);
	if (hole)
		result = gcp_map_set(pools->map, addr, hole);
	if (result != 0) {
		if (hole) {
			gcp_block_set_state(hole, GCP_BLOCK_RELEASED);
			gcp_descriptor_free(&pools->block_descriptors, hole);
		}
		gcp_descriptor_free(&pools->segment_descriptors, segment);
		return result;
	}
	segment->first = hole;
	TAILQ_INSERT_TAIL(&heap->segments, segment, link);
	RB_INSERT(gcp_segment_tree, &pool->segments, segment);
	gcp_gauge_add(&pool->stats.segment, 1);
	hole_insert(heap, hole);
	return 0;
}

/* --- where to make room --------------------------------------------------------- */

struct place {
	struct gcp_block *hole;
	uint64_t size; /* bytes of the hole to be mapped */
	bool upper;    /* its upper part */
};

static uint64_t free_bytes(const struct gcp_block *block)
{
	return gcp_block_is_free(block) ? block->size : 0;
}

/* What has to be mapped beside `beside` free bytes. */
static uint64_t bytes_missing(uint64_t bytes, uint64_t beside)
{
	return beside >= bytes ? 0 : gcp_round_up(bytes - beside, GCP_CHUNK);
}

static bool place_is_better(const struct place *place, const struct place *than)
{
	if (!than->hole || place->size != than->size)
		return !than->hole || place->size < than->size;
	return place->hole->size < than->hole->size;
}

static void place_consider(struct gcp_block *hole, uint64_t bytes, struct place *best)
{
	uint64_t lower = free_bytes(hole->lower), upper = free_bytes(hole->upper);
	struct place place = {.hole = hole};

	if (lower + hole->size + upper < bytes)
		return;
	place.upper = upper > lower;
	place.size = bytes_missing(bytes, place.upper ? upper : lower);
	if (place.size > hole->size)
		place.size = hole->size; /* then both sides help */
	if (place.size > 0 && place_is_better(&place, best))
		*best = place;
}

/* Cuts the place out of its hole. NULL: no memory for a descriptor. */
static struct gcp_block *place_take(struct gcp_heap *heap, const struct place *place)
{
	struct gcp_block *hole = place->hole, *rest = NULL, *target = hole;

	TAILQ_REMOVE(&heap->holes, hole, link);
	if (place->size < hole->size) {
		rest = gcp_block_cut(hole, place->upper ? hole->size - place->size
							: place->size);
		if (!rest) {
			TAILQ_INSERT_TAIL(&heap->holes, hole, link);
			return NULL;
		}
		target = place->upper ? rest : hole;
		rest = place->upper ? hole : rest;
	}
	gcp_block_set_state(target, GCP_BLOCK_MOVING);
	if (rest)
		hole_insert(heap, rest);
	return target;
}

int gcp_space_place(struct gcp_heap *heap, enum gcp_kind kind, uint64_t bytes,
		    struct gcp_move *move)
{
	struct place best = {.hole = NULL};
	struct gcp_block *hole;

	TAILQ_FOREACH (hole, &heap->holes, link)
		if (hole->segment->kind == kind)
			place_consider(hole, bytes, &best);
	if (!best.hole)
		return -ENOSPC;
	move->heap = heap;
	move->target = place_take(heap, &best);
	return move->target ? 0 : -ENOMEM;
}

/* --- which chunks can move ---------------------------------------------------------
 */

static gcp_addr whole_begin(const struct gcp_block *block)
{
	return gcp_round_up(block->addr, GCP_CHUNK);
}

static bool may_donate(const struct gcp_block *block, uint64_t epoch,
		       const struct gcp_move *move)
{
	const struct gcp_block *target = move->target;

	if (!block->segment->chunks || block->epoch > epoch)
		return false;
	/* What the target will merge with stays. */
	return !target || (block != target->lower && block != target->upper);
}

/* The smallest block that has `bytes` in whole chunks, or else the one that has
 * most; NULL: none has any. */
static struct gcp_block *donor_find(struct gcp_pool *pool, uint64_t bytes,
				    uint64_t epoch, const struct gcp_move *move)
{
	struct gcp_block *block, *most = NULL;

	for (int kind = 0; kind < GCP_KINDS; kind++) {
		block = gcp_tree_lowest_fit(&pool->common, kind, GCP_CHUNK);
		for (; block; block = gcp_tree_next_fit(block, GCP_CHUNK)) {
			uint64_t most_bytes = most ? gcp_block_unused(most) : 0;

			if (!may_donate(block, epoch, move))
				continue;
			if (most_bytes < bytes && gcp_block_unused(block) > most_bytes)
				most = block;
			else if (most && most_bytes >= bytes &&
				 gcp_block_unused(block) >= bytes &&
				 block->size < most->size)
				most = block;
		}
	}
	return most;
}

/* Cuts up to `bytes` of whole chunks out of a free block; the rest stays free. */
static struct gcp_block *donor_cut(struct gcp_heap *heap, struct gcp_block *block,
				   uint64_t bytes)
{
	gcp_addr begin = whole_begin(block);
	struct gcp_block *below = NULL, *above = NULL;

	if (bytes > gcp_block_unused(block))
		bytes = gcp_block_unused(block);
	assert(bytes > 0 && bytes % GCP_CHUNK == 0);
	gcp_tree_remove(heap, block);
	if (block->addr < begin) {
		below = block;
		block = gcp_block_cut(below, begin - below->addr);
		gcp_tree_insert(heap, below);
		if (!block)
			return NULL;
	}
	if (block->size > bytes) {
		above = gcp_block_cut(block, bytes);
		if (!above) {
			gcp_block_coalesce(heap, block);
			return NULL;
		}
	}
	gcp_block_set_state(block, GCP_BLOCK_MOVING);
	if (above)
		gcp_tree_insert(heap, above);
	return block;
}

void gcp_space_collect(struct gcp_pool *pool, uint64_t bytes, uint64_t epoch,
		       struct gcp_move *move)
{
	gcp_assert_held(GCP_RANK_POOL);
	while (move->donated < bytes) {
		uint64_t missing = bytes - move->donated;
		struct gcp_block *donor = donor_find(pool, missing, epoch, move);

		if (donor)
			donor = donor_cut(&pool->common, donor, missing);
		if (!donor)
			return;
		TAILQ_INSERT_TAIL(&move->donors, donor, link);
		move->donated += donor->size;
	}
}

/* --- the end of a move -------------------------------------------------------------
 */

void gcp_space_free(struct gcp_block *block, bool unmapped)
{
	struct gcp_heap *heap = atomic_load(&block->segment->heap);

	if (unmapped) {
		hole_insert(heap, block);
		return;
	}
	gcp_block_set_state(block, GCP_BLOCK_UNMAPPING);
	TAILQ_INSERT_TAIL(&heap->unmapping, block, link);
}

void gcp_space_detach(struct gcp_move *move, struct gcp_block *donor, bool unmapped)
{
	struct gcp_heap *heap = atomic_load(&donor->segment->heap);

	TAILQ_REMOVE(&move->donors, donor, link);
	mapped_change(heap, donor->segment, -(int64_t)donor->size);
	if (move->epoch < donor->epoch)
		move->epoch = donor->epoch;
	gcp_space_free(donor, unmapped);
}

struct gcp_block *gcp_space_next_unmapping(struct gcp_pool *pool)
{
	uint64_t completed = atomic_load(&pool->timeline.completed);
	struct gcp_block *block;

	TAILQ_FOREACH (block, &pool->common.unmapping, link) {
		if (block->epoch > completed)
			continue;
		TAILQ_REMOVE(&pool->common.unmapping, block, link);
		gcp_block_set_state(block, GCP_BLOCK_MOVING);
		return block;
	}
	return NULL;
}

void gcp_space_fill(struct gcp_move *move)
{
	mapped_change(move->heap, move->target->segment, (int64_t)move->target->size);
	move->target->epoch = move->epoch;
	gcp_block_coalesce(move->heap, move->target);
	move->target = NULL;
}

/* Whether unmapping has failed: all of it is tried again later. */
static bool is_mapped_somewhere(const struct gcp_block *block)
{
	uint64_t first = gcp_space_chunk(block->segment, block->addr);

	for (uint64_t i = 0; i < block->size / GCP_CHUNK; i++)
		if (block->segment->chunks[first + i])
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
		gcp_block_coalesce(&pool->common, donor);
	}
	move->donated = 0;
}
