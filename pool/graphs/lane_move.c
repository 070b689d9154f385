/* SPDX-License-Identifier: MIT */
/*
 * lane_move.c - a graph's scratch moves from one lane to another (lane.c).
 *
 * Handles are whole, so each run of scratch takes the largest handles that fit, those
 * of the lane first; what is missing comes from the lane that the heap leaves, as far
 * as no other heap is mapped to it, and is made new in the end, as for a capture
 * (handle.c): small enough for shorter runs. So two lanes never hold more than their
 * graphs would by themselves because one has moved.
 */
#include "lane.h"

/* How many handles of each size are taken from where. */
enum source { FROM_LANE, FROM_LEFT, FROM_DRIVER, SOURCES };
struct tiling {
	uint32_t there[SOURCES][GCP_HANDLE_MOST + 1];
	uint32_t taken[SOURCES][GCP_HANDLE_MOST + 1];
};

/* --- which handle goes where -------------------------------------------------- */

/* Chooses a handle for what is left of a run: the largest one that fits. */
static uint32_t tile(struct tiling *tiling, uint64_t run, uint64_t left,
		     enum source *ret_source)
{
	uint32_t most = left < GCP_HANDLE_MOST ? (uint32_t)left : GCP_HANDLE_MOST, size;

	for (enum source source = FROM_LANE; source < FROM_DRIVER; source++)
		for (size = most; size > 0; size--)
			if (tiling->taken[source][size] < tiling->there[source][size]) {
				tiling->taken[source][size]++;
				*ret_source = source;
				return size;
			}
	size = gcp_handle_chunks(run);
	size = size < most ? size : most;
	tiling->taken[FROM_DRIVER][size]++;
	*ret_source = FROM_DRIVER;
	return size;
}

/* --- moving ------------------------------------------------------------------- */

/* Makes what the plan wants, at the end of each stack, behind what comes from the lane
 * that is left. An error: nothing is made. */
static int tiling_make(struct gcp_lane *lane, const struct tiling *tiling)
{
	struct gcp_pool *pool = lane->pool;
	uint64_t bytes = 0, handle;
	uint32_t before[GCP_HANDLE_MOST + 1];
	int result = 0;

	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++) {
		before[size] = lane->stacks[size].count;
		bytes += tiling->taken[FROM_DRIVER][size] * (uint64_t)size * GCP_CHUNK;
		if (!gcp_lane_stack_reserve(&lane->stacks[size],
					    tiling->taken[FROM_DRIVER][size] +
						tiling->taken[FROM_LEFT][size]))
			return -ENOMEM;
	}
	if (bytes > 0 && !gcp_quota_allows(pool, bytes))
		return GCP_CUDA_OUT_OF_MEMORY;
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST && result == 0; size++)
		for (uint32_t i = 0;
		     i < tiling->taken[FROM_DRIVER][size] && result == 0; i++) {
			result = GCP_CALL(pool, vm_create, pool->device,
					  size * (uint64_t)GCP_CHUNK, &handle);
			if (result == 0)
				gcp_lane_add(lane, handle, size);
		}
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST && result != 0; size++)
		gcp_lane_release(lane, size, before[size]);
	return result;
}

static int block_map(struct gcp_lane *lane, struct gcp_block *block,
		     const uint32_t first[SOURCES][GCP_HANDLE_MOST + 1],
		     struct tiling *tiling)
{
	struct gcp_pool *pool = lane->pool;
	uint64_t count, done = 0;
	struct gcp_chunk *chunks = gcp_chunks_of(block, &count);
	int result = 0;

	while (result == 0 && done < count) {
		enum source source;
		uint32_t size = tile(tiling, count, count - done, &source);
		uint32_t index = first[source][size] + tiling->taken[source][size] - 1;

		assert(index < lane->stacks[size].count);
		result = GCP_CALL(pool, vm_map, block->addr + done * GCP_CHUNK,
				  size * (uint64_t)GCP_CHUNK,
				  lane->stacks[size].handles[index]);
		if (result == 0)
			gcp_chunks_set(&chunks[done], lane->stacks[size].handles[index],
				       size);
		done += size;
	}
	if (result == 0)
		result =
		    GCP_CALL(pool, vm_open, pool->device, block->addr, block->size);
	return result;
}

/* Follows the plan once more, now that all of it is in the lane: what was the lane's,
 * then what was made, then what was left. */
static int scratch_map(struct gcp_lane *lane, struct gcp_heap *heap,
		       const struct tiling *plan)
{
	uint32_t first[SOURCES][GCP_HANDLE_MOST + 1] = {{0}};
	struct tiling tiling = *plan;
	struct gcp_block *block;
	int result = 0;

	memset(tiling.taken, 0, sizeof(tiling.taken));
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++) {
		first[FROM_DRIVER][size] = plan->there[FROM_LANE][size];
		first[FROM_LEFT][size] =
		    first[FROM_DRIVER][size] + plan->taken[FROM_DRIVER][size];
	}
	TAILQ_FOREACH (block, &heap->unmapping, link)
		if (result == 0)
			result = block_map(lane, block, first, &tiling);
	return result;
}

int gcp_lane_enter(struct gcp_lane *lane, struct gcp_heap *heap, bool takes)
{
	struct gcp_pool *pool = lane->pool;
	const struct gcp_block *block;
	struct tiling plan;
	struct gcp_lane *from;
	enum source source;
	int result;

	GCP_LOCKED(&pool->pools->vmm_lock);
	from = heap->lane;
	assert(heap->pool == pool);
	if (lane->gone || from == lane)
		return lane->gone ? -ESTALE : 0;
	plan = (struct tiling){.there = {{0}}};
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++) {
		plan.there[FROM_LANE][size] = lane->stacks[size].count;
		if (from && takes)
			plan.there[FROM_LEFT][size] =
			    from->stacks[size].count - gcp_lane_used(from, size, heap);
	}
	TAILQ_FOREACH (block, &heap->unmapping, link)
		for (uint64_t run = block->size / GCP_CHUNK, left = run; left > 0;)
			left -= tile(&plan, run, left, &source);
	result = tiling_make(lane, &plan);
	if (result != 0)
		return result;
	result = gcp_lane_unmap(heap);
	gcp_lane_leave(heap);
	/* Handles of the lane that is left are mapped nowhere by now: no heap that
	 * stays there uses those at the end. */
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST && result == 0; size++)
		for (uint32_t i = 0; i < plan.taken[FROM_LEFT][size]; i++)
			gcp_lane_add(
			    lane,
			    from->stacks[size].handles[--from->stacks[size].count],
			    size);
	if (result == 0)
		result = scratch_map(lane, heap, &plan);
	if (from)
		gcp_lane_count(from);
	gcp_lane_count(lane);
	if (result != 0) {
		(void)gcp_lane_unmap(heap);
		return result;
	}
	/* The heap is mapped to all that the plan took: of each size first what was
	 * there. */
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		for (source = 0; source < SOURCES; source++)
			heap->lane_used[size] += plan.taken[source][size];
	heap->lane = lane;
	TAILQ_INSERT_TAIL(&lane->heaps, heap, lane_link);
	gcp_mutex_lock(&pool->lock);
	pool->stats.graph_remaps++;
	gcp_mutex_unlock(&pool->lock);
	return 0;
}
