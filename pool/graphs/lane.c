/* SPDX-License-Identifier: MIT */
/*
 * lane.c - lanes: physical memory that several captured graphs share, which never run
 * at the same time. capture/share.c decides which graphs those are.
 *
 * What is free in a private heap after the capture has no content between two launches
 * of its graph: it is scratch. Only the addresses matter, for the graph knows them.
 *
 *      heap of graph A     | output | scratch  |  scratch   |
 *                                        \            |
 *      lane                         |  handle  |   handle   |  handle  |
 *                                        |            |       /
 *      heap of graph B          |     scratch   |  scratch  | output |
 *
 * The handles that lie in scratch as a whole become the lane's. Their addresses are
 * UNMAPPING blocks: what is mapped there belongs to another one. Where nothing is
 * mapped (heap->lane is NULL) the graph must not be launched.
 *
 * THE RULE: addresses are mapped elsewhere only while no launch of the graph may be on
 * its way, and never before what the program submitted during the capture is completed.
 * The first the caller knows, the second is asked here.
 *
 * A lane is as large as the largest of its graphs: what none of them is mapped to any
 * more goes back. The last graph of a lane takes its memory along when it ends: it is
 * free behind a fence, where it was, and the next capture finds it there and need map
 * nothing.
 *
 * A graph's scratch moves from one lane to another, at first from one that it is alone
 * in. Handles are whole, so each run of scratch takes the largest handles that fit;
 * what is missing is made new, as for a capture (handle.c): small enough for shorter
 * runs, and before the heap leaves: without memory it stays where it is.
 *
 * vmm_lock guards lanes. It is held over calls of the driver, which never wait for the
 * device.
 */
#include "lane.h"

#include <stdlib.h>

/* --- the lane's handles ------------------------------------------------------- */

/* Room for so many handles more. False: no memory. */
static bool stack_reserve(struct gcp_lane_stack *stack, uint32_t more)
{
	GCP_KEEP_ERRNO;
	struct gcp_lane_handle *handles =
	    realloc(stack->handles, (stack->count + more) * sizeof(*handles));

	if (handles)
		stack->handles = handles;
	return handles;
}

/* There is room for it. */
static void lane_add(struct gcp_lane *lane, uint64_t handle, uint32_t chunks)
{
	struct gcp_lane_stack *stack = &lane->stacks[chunks];

	assert(chunks > 0 && chunks <= GCP_HANDLE_MOST);
	stack->handles[stack->count++] = (struct gcp_lane_handle){handle, 0};
}

/* Counts what the lane has by now. */
static void lane_count(struct gcp_lane *lane)
{
	struct gcp_pool *pool = lane->pool;
	uint64_t before = lane->bytes, bytes = 0;

	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		bytes += lane->stacks[size].count * (uint64_t)size * GCP_CHUNK;
	GCP_LOCKED(&pool->lock);
	lane->bytes = bytes;
	gcp_reserved_count(pool, (int64_t)(bytes - before), true, true);
	gcp_gauge_add(&pool->stats.lane_bytes, (int64_t)(bytes - before));
	gcp_gauge_add(&pool->stats.lane, (bytes > 0) - (before > 0));
}

/* Gives back what no heap is mapped to, and counts the rest. */
static void unused_release(struct gcp_lane *lane)
{
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++) {
		struct gcp_lane_stack *stack = &lane->stacks[size];

		while (stack->count > 0 &&
		       stack->handles[stack->count - 1].last_of == 0) /* X9 */
			(void)GCP_CALL(lane->pool, vm_release,
				       stack->handles[--stack->count].handle);
	}
	lane_count(lane);
}

/* --- heaps of a lane ---------------------------------------------------------- */

/* Unmaps all that the heap shares. */
static int lane_unmap(struct gcp_heap *heap)
{
	struct gcp_block *block;
	int result = 0;

	TAILQ_FOREACH (block, &heap->unmapping, link)
		if (result == 0)
			result = gcp_handles_unmap(heap->pool, block);
	return result;
}

/* The last handle of that size that the heap is mapped to. */
static struct gcp_lane_handle *last_handle(const struct gcp_heap *heap, uint32_t size)
{
	return &heap->lane->stacks[size].handles[heap->lane_used[size] - 1];
}

/* The heap is mapped to the first `lane_used` handles. */
static void lane_join(struct gcp_heap *heap, struct gcp_lane *lane)
{
	assert(!heap->lane);
	heap->lane = lane;
	TAILQ_INSERT_TAIL(&lane->heaps, heap, lane_link);
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++) {
		assert(heap->lane_used[size] <= lane->stacks[size].count); /* X8 */
		if (heap->lane_used[size] > 0)
			last_handle(heap, size)->last_of++;
	}
}

void gcp_lane_leave(struct gcp_heap *heap)
{
	gcp_assert_held(GCP_RANK_VMM);
	struct gcp_block *block;
	uint64_t count;

	TAILQ_FOREACH (block, &heap->unmapping, link) {
		struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

		for (uint64_t i = 0; i < count; i++)
			if (chunks[i].handle)
				chunks[i].handle = GCP_CHUNK_MOVED;
	}
	for (uint32_t size = 1; heap->lane && size <= GCP_HANDLE_MOST; size++)
		if (heap->lane_used[size] > 0)
			last_handle(heap, size)->last_of--;
	if (heap->lane)
		TAILQ_REMOVE(&heap->lane->heaps, heap, lane_link);
	heap->lane = NULL;
	memset(heap->lane_used, 0, sizeof(heap->lane_used));
}

/* --- lanes -------------------------------------------------------------------- */

int gcp_lane_create(struct gcp_pool *pool, struct gcp_lane **ret_lane)
{
	GCP_KEEP_ERRNO;
	struct gcp_lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return -ENOMEM;
	lane->pool = pool;
	TAILQ_INIT(&lane->heaps);
	GCP_LOCKED(&pool->pools->vmm_lock);
	TAILQ_INSERT_TAIL(&pool->lanes, lane, link);
	*ret_lane = lane;
	return 0;
}

void gcp_lane_destroy(struct gcp_lane *lane)
{
	struct gcp_pools *pools = lane->pool->pools;

	gcp_mutex_lock(&pools->vmm_lock);
	assert(TAILQ_EMPTY(&lane->heaps));
	unused_release(lane);
	TAILQ_REMOVE(&lane->pool->lanes, lane, link);
	gcp_mutex_unlock(&pools->vmm_lock);
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		free(lane->stacks[size].handles);
	free(lane);
}

uint64_t gcp_lane_bytes(const struct gcp_lane *lane)
{
	GCP_LOCKED(&lane->pool->lock);
	return lane->bytes;
}

void gcp_lanes_release_unused(struct gcp_pool *pool)
{
	struct gcp_lane *lane;

	gcp_assert_held(GCP_RANK_VMM);
	TAILQ_FOREACH (lane, &pool->lanes, link)
		unused_release(lane);
}

/* --- what is scratch ---------------------------------------------------------- */

/* No allocation comes from the heap any more: what is free lies as one. Its memory
 * stays where it is until all work is done that was submitted until now. */
static void scratch_merge(struct gcp_heap *heap)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_block *block;

	gcp_heap_collect(heap, &list);
	TAILQ_FOREACH (block, &list, link) {
		block->epoch = GCP_EPOCH_NOW;
		block->apart = false;
	}
	gcp_heap_put_list(heap, &list);
}

/* Room in the lane for all handles of the block. */
static bool block_fits(struct gcp_lane *lane, const struct gcp_block *block)
{
	const struct gcp_chunk *chunks = block->segment->chunks;
	uint64_t first, count = gcp_block_handles(block, &first);

	for (uint64_t i = first; i < first + count; i += chunks[i].count) {
		assert(chunks[i].count <= GCP_HANDLE_MOST);
		if (!stack_reserve(&lane->stacks[chunks[i].count], (uint32_t)count))
			return false;
	}
	return count > 0;
}

/* The handles of scratch become the lane's; it stays where it is mapped. */
static void scratch_take(struct gcp_heap *heap, struct gcp_lane *lane)
{
	struct gcp_segment *segment;
	struct gcp_block *block;
	uint64_t count;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		for (block = segment->chunks ? segment->first : NULL; block;
		     block = block->upper) {
			struct gcp_block *taken;

			if (!gcp_block_is_free(block) || !block_fits(lane, block) ||
			    !(taken = gcp_space_take_scratch(heap, block)))
				continue;
			block = taken;
			struct gcp_chunk *chunks = gcp_chunks_of(block, &count);
			for (uint64_t i = 0; i < count; i += chunks[i].count)
				lane_add(lane, chunks[i].handle, chunks[i].count);
		}
	}
}

bool gcp_heap_share(struct gcp_heap *heap, struct gcp_lane *lane)
{
	struct gcp_pool *pool = heap->pool;

	GCP_LOCKED(&pool->pools->vmm_lock);
	gcp_mutex_lock(&pool->lock);
	assert(heap->private && !heap->lane && TAILQ_EMPTY(&heap->unmapping));
	assert(heap->reuse == GCP_REUSE_SEALED); /* X3 */
	scratch_merge(heap);
	scratch_take(heap, lane);
	gcp_mutex_unlock(&pool->lock);
	if (TAILQ_EMPTY(&heap->unmapping))
		return false;
	/* The lane is made of this heap, which is mapped to all handles. */
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		heap->lane_used[size] = lane->stacks[size].count;
	lane_join(heap, lane);
	lane_count(lane);
	return true;
}

struct gcp_lane *gcp_heap_lane(const struct gcp_heap *heap)
{
	return heap->lane;
}

uint64_t gcp_lane_purge(struct gcp_lane *lane)
{
	struct gcp_heap *heap;
	uint64_t bytes;

	GCP_LOCKED(&lane->pool->pools->vmm_lock);
	bytes = lane->bytes;
	while ((heap = TAILQ_FIRST(&lane->heaps))) {
		(void)lane_unmap(heap); /* an error shows again where it enters one */
		gcp_lane_leave(heap);
	}
	unused_release(lane);
	return bytes - lane->bytes;
}

/* --- moving ------------------------------------------------------------------- */

/* How many handles of each size a lane has before a heap enters it. */
typedef uint32_t tiling[GCP_HANDLE_MOST + 1];

/* Returns the chunks of the handle that what is left of a run gets: the largest one
 * there that fits, or a new one. */
static uint32_t tile(const tiling there, const uint32_t *used, uint64_t run,
		     uint64_t left)
{
	uint32_t most = left < GCP_HANDLE_MOST ? (uint32_t)left : GCP_HANDLE_MOST, size;

	for (size = most; size > 0 && used[size] >= there[size];)
		size--;
	if (size > 0)
		return size;
	size = gcp_handle_chunks(run, GCP_HANDLE_PARTS / 2);
	return size < most ? size : most;
}

/* Makes what is missing for the heap, at the ends of the stacks. */
static int tiling_make(struct gcp_lane *lane, const struct gcp_heap *heap,
		       const tiling there)
{
	struct gcp_pool *pool = lane->pool;
	uint32_t used[GCP_HANDLE_MOST + 1] = {0}, size;
	const struct gcp_block *block;
	uint64_t made = 0, handle;
	int result;

	TAILQ_FOREACH (block, &heap->unmapping, link)
		for (uint64_t run = block->size / GCP_CHUNK, left = run; left > 0;
		     left -= size) {
			size = tile(there, used, run, left);
			if (used[size]++ < lane->stacks[size].count)
				continue;
			made += size * (uint64_t)GCP_CHUNK;
			if (!stack_reserve(&lane->stacks[size], 1))
				return -ENOMEM;
			if (!gcp_quota_allows(pool, made))
				return GCP_CUDA_OUT_OF_MEMORY;
			result = GCP_CALL(pool, vm_create, pool->device,
					  size * (uint64_t)GCP_CHUNK, &handle);
			if (result != 0)
				return result;
			lane_add(lane, handle, size);
		}
	return 0;
}

/* Maps a heap that is in no lane to this one, which has what it takes. An error: it is
 * mapped to nothing. */
static int lane_map(struct gcp_lane *lane, struct gcp_heap *heap, const tiling there)
{
	struct gcp_pool *pool = lane->pool;
	uint32_t *used = heap->lane_used, size;
	struct gcp_block *block;
	int result = 0;

	assert(!heap->lane);
	TAILQ_FOREACH (block, &heap->unmapping, link) {
		uint64_t count, handle;
		struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

		for (uint64_t at = 0; at < count && result == 0; at += size) {
			size = tile(there, used, count, count - at);
			assert(used[size] < lane->stacks[size].count);
			handle = lane->stacks[size].handles[used[size]++].handle;
			result = GCP_CALL(pool, vm_map, block->addr + at * GCP_CHUNK,
					  size * (uint64_t)GCP_CHUNK, handle);
			if (result == 0)
				gcp_chunks_set(&chunks[at], handle, size);
		}
		if (result == 0)
			result = GCP_CALL(pool, vm_open, pool->device, block->addr,
					  block->size);
	}
	if (result == 0) {
		lane_join(heap, lane);
	} else {
		(void)lane_unmap(heap);
		gcp_lane_leave(heap);
	}
	return result;
}

int gcp_lane_enter(struct gcp_lane *lane, struct gcp_heap *heap)
{
	struct gcp_pool *pool = lane->pool;
	struct gcp_lane *from;
	tiling there;
	int result;

	GCP_LOCKED(&pool->pools->vmm_lock);
	from = heap->lane;
	assert(heap->pool == pool);
	if (from == lane)
		return 0;
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		there[size] = lane->stacks[size].count;
	result = tiling_make(lane, heap, there);
	if (result == 0) {
		result = lane_unmap(heap);
		gcp_lane_leave(heap);
		if (result == 0)
			result = lane_map(lane, heap, there);
	}
	if (from)
		unused_release(from);
	unused_release(lane); /* after an error, all that was made */
	gcp_mutex_lock(&pool->lock);
	pool->stats.graph_remaps += result == 0;
	gcp_mutex_unlock(&pool->lock);
	return result;
}

/* --- the end of a heap -------------------------------------------------------- */

bool gcp_heap_keep_lane(struct gcp_heap *heap)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_block *block;
	struct gcp_lane *lane;

	GCP_LOCKED(&pool->pools->vmm_lock);
	lane = heap->lane;
	if (!lane || TAILQ_FIRST(&lane->heaps) != heap || TAILQ_NEXT(heap, lane_link))
		return false;
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		lane->stacks[size].count = 0; /* they stay with the heap */
	lane_count(lane);
	gcp_mutex_lock(&pool->lock);
	TAILQ_FOREACH (block, &heap->unmapping, link) {
		gcp_space_change(heap, block->segment, (int64_t)block->size);
		gcp_block_set_state(block, GCP_BLOCK_PENDING);
		gcp_gauge_add(&pool->stats.active_bytes, (int64_t)block->size);
	}
	TAILQ_CONCAT(&heap->once, &heap->unmapping, link); /* X5: until the heap ends */
	gcp_lane_leave(heap);
	gcp_mutex_unlock(&pool->lock);
	return true;
}

/* What others of the lane are mapped to, too, is unmapped by vmm.c behind the epoch. */
void gcp_lane_heap_ends(struct gcp_heap *heap)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_lane *lane;
	struct gcp_block *block;
	uint64_t count, epoch;

	GCP_LOCKED(&pool->pools->vmm_lock);
	lane = heap->lane;
	gcp_lane_leave(heap);
	if (lane)
		unused_release(lane);
	gcp_mutex_lock(&pool->lock);
	epoch = gcp_timeline_stamp(pool);
	TAILQ_CONCAT(&list, &heap->unmapping, link);
	while ((block = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, block, link);
		block->epoch = epoch; /* X5 */
		gcp_space_free(block, !gcp_chunks_of(block, &count)->handle);
	}
	gcp_mutex_unlock(&pool->lock);
	gcp_vmm_release_orphans(pool);
}
