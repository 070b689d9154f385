/* SPDX-License-Identifier: MIT */
/*
 * replace.c - large handles give way to several that blocks share.
 *
 * A program that only takes memory gets a handle for each large block: that costs few
 * calls (handle.c). When such a block is freed, and others are to have a part of its
 * memory, they would keep all of it where it is. So the handle goes back to the driver
 * first, and shared ones come to the same addresses. That happens once to each: the
 * program frees, so no large ones are made any more.
 *
 *      |           free, one handle            |
 *      |  used   |  free   |  free   |  free   |   four handles
 *
 * Only what is completed can be replaced. What is still in use by the device is divided
 * as it is: nothing waits here.
 *
 * Called by vmm.c with vmm_lock held, over calls of the driver.
 */
#include "vmm.h"

enum { LOOKS = 64 }; /* blocks that are looked at */

/* The first large handle that lies in the block as a whole and ends above `from`
 * bytes: its chunks, and where in segment->chunks they begin. 0: there is none. */
static uint64_t large_in(const struct gcp_block *block, uint64_t from,
			 uint64_t *ret_first)
{
	const struct gcp_segment *segment = block->segment;
	uint64_t first = 0, count = gcp_block_handles(block, &first);
	uint64_t above = (block->addr + from - segment->addr) / GCP_CHUNK;
	uint64_t end = first + count, i = first;

	for (; i < end; i += segment->chunks[i].count)
		if (segment->chunks[i].count > gcp_handle_shared(segment->pool) &&
		    i + segment->chunks[i].count > above)
			break;
	*ret_first = i;
	return i < end ? segment->chunks[i].count : 0;
}

/* A block with a large handle that is completed and no part of the room in the making,
 * a small one; NULL: none is seen. */
static struct gcp_block *large_find(struct gcp_pool *pool, const struct gcp_move *move)
{
	uint64_t completed = atomic_load(&pool->timeline.completed), first;
	const struct gcp_bins *donors = &pool->common.donors;
	int bin = gcp_bins_from(donors, gcp_bin_of(gcp_handle_shared(pool) + 1));
	struct gcp_block *block;
	int looks = LOOKS;

	for (; bin >= 0 && looks > 0;
	     bin = bin + 1 < GCP_BINS ? gcp_bins_from(donors, bin + 1) : -1)
		LIST_FOREACH (block, &donors->bins[bin], bin) {
			if (looks-- == 0)
				break;
			if (block->epoch <= completed && block != move->keep[0] &&
			    block != move->keep[1] && large_in(block, 0, &first) > 0)
				return block;
		}
	return NULL;
}

/* The block whose large handle is in the way, and from where in it on; NULL. */
static struct gcp_block *in_the_way(const struct gcp_request *request,
				    enum gcp_kind kind, uint64_t bytes,
				    const struct gcp_move *move, uint64_t *ret_from)
{
	struct gcp_heap *heap = request->heap;
	struct gcp_block *block;

	*ret_from = 0;
	if (gcp_move_is_spare(move))
		return NULL;
	if (move->target)
		return move->donated < move->target->size ? large_find(heap->pool, move)
							  : NULL;
	if (kind != GCP_KIND_LARGE || heap->private || request->divides)
		return NULL;
	block = gcp_tree_lowest_fit(heap, kind, bytes);
	*ret_from = bytes;
	return block && gcp_fit_divides_large(block, bytes) ? block : NULL;
}

/* Takes the handle's addresses out of the block, and gives up what was planned. */
static bool large_take(const struct gcp_request *request, enum gcp_kind kind,
		       uint64_t bytes, struct gcp_move *move)
{
	struct gcp_pool *pool = request->heap->pool;
	uint64_t from, first, count;
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	block = in_the_way(request, kind, bytes, move, &from);
	count = block ? large_in(block, from, &first) : 0;
	if (count == 0)
		return false;
	block = gcp_space_cut(&pool->common, block, first, count * GCP_CHUNK);
	if (!block)
		return false;
	gcp_space_release(pool, move);
	gcp_space_change(&pool->common, block->segment, -(int64_t)block->size);
	*move = (struct gcp_move){.donors = TAILQ_HEAD_INITIALIZER(move->donors),
				  .heap = &pool->common,
				  .target = block,
				  .epoch = block->epoch};
	return true;
}

/* *ret_unmapped: the old handle is gone, whatever came after. */
static int handle_replace(struct gcp_pool *pool, const struct gcp_block *target,
			  bool *ret_unmapped)
{
	uint64_t count;
	struct gcp_chunk *chunks = gcp_chunks_of(target, &count);
	int result = GCP_CALL(pool, vm_unmap, target->addr, target->size);

	*ret_unmapped = result == 0;
	if (result != 0)
		return result;
	gcp_handles_release(pool, chunks, count);
	result = gcp_handles_make(pool, chunks, count, 0);
	return result == 0 ? gcp_handles_map(pool, target) : result;
}

int gcp_large_replace(const struct gcp_request *request, enum gcp_kind kind,
		      uint64_t bytes, struct gcp_move *move, bool *ret_replaced)
{
	struct gcp_pool *pool = request->heap->pool;
	bool unmapped = false;
	int result;

	gcp_assert_held(GCP_RANK_VMM);
	gcp_mutex_lock(&pool->lock);
	*ret_replaced = large_take(request, kind, bytes, move);
	gcp_mutex_unlock(&pool->lock);
	if (!*ret_replaced)
		return 0;
	result = handle_replace(pool, move->target, &unmapped);
	gcp_mutex_lock(&pool->lock);
	if (result == 0 || !unmapped)
		gcp_space_fill(move);
	else
		gcp_space_release(pool, move);
	gcp_mutex_unlock(&pool->lock);
	return result;
}
