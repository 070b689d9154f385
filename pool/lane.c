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
 * A lane is as large as the largest of its graphs: handles are whole, so each run of
 * scratch takes the largest handles that fit, those of the lane first; what is missing
 * comes from the lane that the heap leaves, if no other heap is there, and is made new
 * in the end.
 *
 * vmm_lock guards lanes. It is held over calls of the driver, which never wait for the
 * device.
 */
#include "vmm.h"

#include <stdlib.h>

enum {
	SIZES = 32,     /* chunks: the largest handle of all */
	MADE_PART = 16, /* of a run: what is made new for it is not larger */
	MADE_MOST = 16, /* chunks */
};

/* Handles of one size. */
struct stack {
	uint64_t *handles;
	uint32_t count, room;
};

struct gcp_lane {
	struct gcp_pool *pool;
	uint64_t bytes;
	bool gone; /* with the context */
	TAILQ_HEAD(, gcp_heap) heaps;
	struct stack stacks[SIZES + 1]; /* [chunks] */
	TAILQ_ENTRY(gcp_lane) link;     /* pool->lanes */
};

/* How many handles of each size are taken from where. */
enum source { FROM_LANE, FROM_LEFT, FROM_DRIVER, SOURCES };
struct tiling {
	uint32_t there[SOURCES][SIZES + 1];
	uint32_t taken[SOURCES][SIZES + 1];
};

/* --- the lane's handles ------------------------------------------------------------
 */

static bool stack_reserve(struct stack *stack, uint32_t more)
{
	uint32_t room = stack->count + more;
	int saved = errno;
	uint64_t *handles;

	if (room <= stack->room)
		return true;
	room += room / 2;
	handles = realloc(stack->handles, room * sizeof(*handles));
	errno = saved;
	if (!handles)
		return false;
	stack->handles = handles;
	stack->room = room;
	return true;
}

/* pool->lock is held. */
static void bytes_change_locked(struct gcp_lane *lane, int64_t change)
{
	struct gcp_pool *pool = lane->pool;
	bool had = lane->bytes > 0;

	lane->bytes += (uint64_t)change;
	atomic_fetch_add_explicit(&pool->vmm_mapped, (uint64_t)change,
				  memory_order_relaxed);
	gcp_reserved_count(pool, change);
	gcp_gauge_add(&pool->stats.private_bytes, change);
	gcp_gauge_add(&pool->stats.lane_bytes, change);
	gcp_gauge_add(&pool->stats.lane, (lane->bytes > 0) - had);
}

static void bytes_change(struct gcp_lane *lane, int64_t change)
{
	gcp_mutex_lock(&lane->pool->lock);
	bytes_change_locked(lane, change);
	gcp_mutex_unlock(&lane->pool->lock);
}

/* There is room for it. */
static void handle_add(struct gcp_lane *lane, uint64_t handle, uint32_t chunks)
{
	struct stack *stack = &lane->stacks[chunks];

	assert(stack->count < stack->room);
	stack->handles[stack->count++] = handle;
}

static uint64_t handles_bytes(const struct gcp_lane *lane)
{
	uint64_t bytes = 0;

	for (uint32_t size = 1; size <= SIZES; size++)
		bytes += lane->stacks[size].count * (uint64_t)size * GCP_CHUNK;
	return bytes;
}

/* Gives the handles back that stand at `from` and above. */
static void handles_release(struct gcp_lane *lane, uint32_t size, uint32_t from)
{
	struct stack *stack = &lane->stacks[size];

	while (stack->count > from)
		(void)GCP_CALL(lane->pool, vm_release, stack->handles[--stack->count]);
}

/* Nothing is mapped to them any more. */
static void handles_release_all(struct gcp_lane *lane)
{
	for (uint32_t size = 1; size <= SIZES; size++)
		handles_release(lane, size, 0);
	if (!lane->gone)
		bytes_change(lane, -(int64_t)lane->bytes);
}

/* --- lanes --------------------------------------------------------------------------
 */

int gcp_lane_create(struct gcp_pool *pool, struct gcp_lane **ret_lane)
{
	int saved = errno;
	struct gcp_lane *lane = calloc(1, sizeof(*lane));

	errno = saved;
	if (!lane)
		return -ENOMEM;
	lane->pool = pool;
	TAILQ_INIT(&lane->heaps);
	gcp_mutex_lock(&pool->pools->vmm_lock);
	TAILQ_INSERT_TAIL(&pool->lanes, lane, link);
	gcp_mutex_unlock(&pool->pools->vmm_lock);
	*ret_lane = lane;
	return 0;
}

void gcp_lane_destroy(struct gcp_lane *lane)
{
	struct gcp_pools *pools = lane->pool->pools;

	gcp_mutex_lock(&pools->vmm_lock);
	assert(TAILQ_EMPTY(&lane->heaps));
	handles_release_all(lane);
	if (!lane->gone)
		TAILQ_REMOVE(&lane->pool->lanes, lane, link);
	gcp_mutex_unlock(&pools->vmm_lock);
	for (uint32_t size = 1; size <= SIZES; size++)
		free(lane->stacks[size].handles);
	free(lane);
}

uint64_t gcp_lane_bytes(const struct gcp_lane *lane)
{
	uint64_t bytes;

	gcp_mutex_lock(&lane->pool->lock);
	bytes = lane->bytes;
	gcp_mutex_unlock(&lane->pool->lock);
	return bytes;
}

uint64_t gcp_lanes_bytes(const struct gcp_pool *pool)
{
	const struct gcp_lane *lane;
	uint64_t bytes = 0;

	TAILQ_FOREACH (lane, &pool->lanes, link)
		bytes += lane->bytes;
	return bytes;
}

void gcp_lanes_reset(struct gcp_pool *pool)
{
	struct gcp_lane *lane;
	struct gcp_heap *heap;

	gcp_assert_held(GCP_RANK_VMM);
	gcp_assert_held(GCP_RANK_POOL);
	while ((lane = TAILQ_FIRST(&pool->lanes))) {
		TAILQ_REMOVE(&pool->lanes, lane, link);
		while ((heap = TAILQ_FIRST(&lane->heaps))) {
			TAILQ_REMOVE(&lane->heaps, heap, lane_link);
			heap->lane = NULL;
		}
		bytes_change_locked(lane, -(int64_t)lane->bytes);
		lane->gone = true;
	}
}

/* --- what is scratch ----------------------------------------------------------------
 */

/* No allocation comes from this heap any more: what is free lies as one. */
static void free_blocks_merge(struct gcp_heap *heap, struct gcp_segment *segment)
{
	struct gcp_block *block;

	for (block = segment->first; block; block = block->upper)
		if (gcp_block_is_free(block))
			block->apart = false;
	for (block = segment->first; block; block = block->upper)
		while (gcp_block_is_free(block) && gcp_block_is_free(block->upper)) {
			gcp_tree_remove(heap, block);
			gcp_block_coalesce(heap, block);
		}
}

/* Bytes that are scratch; -EBUSY: work that was submitted beside the capture may still
 * be on its way there. */
static int64_t scratch_find(struct gcp_heap *heap)
{
	uint64_t completed = atomic_load(&heap->pool->timeline.completed);
	struct gcp_segment *segment;
	uint64_t first, bytes = 0;

	if (heap->last_free_epoch > completed)
		return -EBUSY;
	gcp_heap_advance(heap);
	gcp_slab_coalesce_unused(heap);
	TAILQ_FOREACH (segment, &heap->segments, link) {
		if (!segment->chunks)
			continue;
		free_blocks_merge(heap, segment);
		for (struct gcp_block *block = segment->first; block;
		     block = block->upper) {
			if (!gcp_block_is_free(block))
				continue;
			if (block->epoch > completed)
				return -EBUSY;
			bytes += gcp_block_handles(block, &first) * GCP_CHUNK;
		}
	}
	return (int64_t)bytes;
}

/* The handles of a block become the lane's; the block stays where it is mapped. */
static void block_give(struct gcp_lane *lane, struct gcp_block *block)
{
	uint64_t count;
	struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

	for (uint64_t i = 0; i < count; i += chunks[i].count)
		handle_add(lane, chunks[i].handle, chunks[i].count);
	gcp_chunks_moved(chunks, count);
}

/* Room in the lane for all handles of the block. */
static bool block_fits(struct gcp_lane *lane, const struct gcp_block *block)
{
	const struct gcp_chunk *chunks = block->segment->chunks;
	uint64_t first, count = gcp_block_handles(block, &first);

	for (uint64_t i = first; i < first + count; i += chunks[i].count)
		if (chunks[i].count > SIZES ||
		    !stack_reserve(&lane->stacks[chunks[i].count], (uint32_t)count))
			return false;
	return count > 0;
}

static void scratch_take(struct gcp_heap *heap, struct gcp_lane *lane)
{
	struct gcp_segment *segment;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		struct gcp_block *block = segment->chunks ? segment->first : NULL;

		for (; block; block = block->upper) {
			struct gcp_block *taken = NULL;

			if (gcp_block_is_free(block) && block_fits(lane, block))
				taken = gcp_space_take_scratch(heap, block);
			if (!taken)
				continue;
			block_give(lane, taken);
			block = taken;
		}
	}
}

int gcp_heap_share(struct gcp_heap *heap, struct gcp_lane *lane)
{
	struct gcp_pool *pool = heap->pool;
	int64_t bytes;

	gcp_mutex_lock(&pool->pools->vmm_lock);
	gcp_mutex_lock(&pool->lock);
	assert(heap->private && !heap->lane && TAILQ_EMPTY(&heap->unmapping));
	bytes = lane->gone ? -ESTALE : scratch_find(heap);
	if (bytes > 0)
		scratch_take(heap, lane);
	gcp_mutex_unlock(&pool->lock);
	if (bytes > 0 && !TAILQ_EMPTY(&heap->unmapping)) {
		heap->lane = lane;
		TAILQ_INSERT_TAIL(&lane->heaps, heap, lane_link);
		bytes_change(lane, (int64_t)handles_bytes(lane));
	} else if (bytes >= 0) {
		bytes = -ENOENT;
	}
	gcp_mutex_unlock(&pool->pools->vmm_lock);
	return bytes < 0 ? (int)bytes : 0;
}

bool gcp_heap_is_shared(const struct gcp_heap *heap)
{
	return !TAILQ_EMPTY(&heap->unmapping);
}

struct gcp_lane *gcp_heap_lane(const struct gcp_heap *heap)
{
	return heap->lane;
}

/* --- which handle goes where ---------------------------------------------------------
 */

/* The largest size up to `most` of which a source has a handle left; 0: none. */
static uint32_t source_find(const struct tiling *tiling, enum source source,
			    uint32_t most)
{
	uint32_t size = most < SIZES ? most : SIZES;

	while (size > 0 && tiling->taken[source][size] == tiling->there[source][size])
		size--;
	return size;
}

/* Chooses a handle for what is left of a run. */
static uint32_t tile(struct tiling *tiling, uint64_t run, uint64_t left,
		     enum source *ret_source)
{
	uint32_t most = left < SIZES ? (uint32_t)left : SIZES;
	uint32_t size = source_find(tiling, FROM_LANE, most);

	*ret_source = FROM_LANE;
	if (size == 0) {
		*ret_source = FROM_LEFT;
		size = source_find(tiling, FROM_LEFT, most);
	}
	if (size == 0) {
		*ret_source = FROM_DRIVER;
		size = run / MADE_PART < MADE_MOST ? (uint32_t)(run / MADE_PART)
						   : MADE_MOST;
		size = size < 1 ? 1 : size < most ? size : most;
	}
	tiling->taken[*ret_source][size]++;
	return size;
}

static void tiling_plan(const struct gcp_heap *heap, struct tiling *tiling)
{
	const struct gcp_block *block;
	enum source source;

	TAILQ_FOREACH (block, &heap->unmapping, link) {
		uint64_t run = block->size / GCP_CHUNK;

		for (uint64_t left = run; left > 0;)
			left -= tile(tiling, run, left, &source);
	}
}

/* --- moving --------------------------------------------------------------------------
 */

/* Makes what the plan wants, at the end of each stack, behind what comes from the lane
 * that is left. An error: nothing is made. */
static int tiling_make(struct gcp_lane *lane, const struct tiling *tiling)
{
	struct gcp_pool *pool = lane->pool;
	uint64_t bytes = 0, handle;
	uint32_t before[SIZES + 1];
	int result = 0;

	for (uint32_t size = 1; size <= SIZES; size++) {
		before[size] = lane->stacks[size].count;
		bytes += tiling->taken[FROM_DRIVER][size] * (uint64_t)size * GCP_CHUNK;
		if (!stack_reserve(&lane->stacks[size],
				   tiling->taken[FROM_DRIVER][size] +
				       tiling->taken[FROM_LEFT][size]))
			return -ENOMEM;
	}
	if (bytes > 0 && !gcp_quota_allows(pool, bytes))
		return GCP_CUDA_OUT_OF_MEMORY;
	for (uint32_t size = 1; size <= SIZES && result == 0; size++)
		for (uint32_t i = 0;
		     i < tiling->taken[FROM_DRIVER][size] && result == 0; i++) {
			result = GCP_CALL(pool, vm_create, pool->device,
					  size * (uint64_t)GCP_CHUNK, &handle);
			if (result == 0)
				handle_add(lane, handle, size);
		}
	for (uint32_t size = 1; size <= SIZES && result != 0; size++)
		handles_release(lane, size, before[size]);
	return result;
}

/* Handles of the lane that is left become the other one's. They are mapped nowhere. */
static void left_move(struct gcp_lane *from, struct gcp_lane *to,
		      const struct tiling *tiling)
{
	for (uint32_t size = 1; size <= SIZES; size++)
		for (uint32_t i = 0; i < tiling->taken[FROM_LEFT][size]; i++)
			handle_add(
			    to, from->stacks[size].handles[--from->stacks[size].count],
			    size);
}

static int scratch_unmap(struct gcp_heap *heap)
{
	struct gcp_block *block;
	int result = 0;

	TAILQ_FOREACH (block, &heap->unmapping, link)
		if (result == 0)
			result = gcp_handles_unmap(heap->pool, block);
	return result;
}

static int block_map(struct gcp_lane *lane, struct gcp_block *block,
		     const uint32_t first[SOURCES][SIZES + 1], struct tiling *tiling)
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
			gcp_chunks_moved(&chunks[done], size);
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
	uint32_t first[SOURCES][SIZES + 1] = {{0}};
	struct tiling tiling = *plan;
	struct gcp_block *block;
	int result = 0;

	memset(tiling.taken, 0, sizeof(tiling.taken));
	for (uint32_t size = 1; size <= SIZES; size++) {
		first[FROM_DRIVER][size] = plan->there[FROM_LANE][size];
		first[FROM_LEFT][size] =
		    first[FROM_DRIVER][size] + plan->taken[FROM_DRIVER][size];
	}
	TAILQ_FOREACH (block, &heap->unmapping, link)
		if (result == 0)
			result = block_map(lane, block, first, &tiling);
	return result;
}

static void lane_leave(struct gcp_heap *heap)
{
	if (heap->lane)
		TAILQ_REMOVE(&heap->lane->heaps, heap, lane_link);
	heap->lane = NULL;
}

static int lane_enter(struct gcp_lane *lane, struct gcp_heap *heap)
{
	struct gcp_lane *from = heap->lane;
	bool last = from && !TAILQ_NEXT(TAILQ_FIRST(&from->heaps), lane_link);
	struct tiling plan = {.there = {{0}}};
	int result;

	for (uint32_t size = 1; size <= SIZES; size++) {
		plan.there[FROM_LANE][size] = lane->stacks[size].count;
		plan.there[FROM_LEFT][size] = last ? from->stacks[size].count : 0;
	}
	tiling_plan(heap, &plan);
	result = tiling_make(lane, &plan);
	if (result != 0)
		return result;
	result = scratch_unmap(heap);
	lane_leave(heap);
	if (result == 0 && last)
		left_move(from, lane, &plan);
	if (result == 0)
		result = scratch_map(lane, heap, &plan);
	if (from)
		bytes_change(from, (int64_t)(handles_bytes(from) - from->bytes));
	bytes_change(lane, (int64_t)(handles_bytes(lane) - lane->bytes));
	if (result != 0) {
		(void)scratch_unmap(heap);
		return result;
	}
	heap->lane = lane;
	TAILQ_INSERT_TAIL(&lane->heaps, heap, lane_link);
	gcp_mutex_lock(&lane->pool->lock);
	lane->pool->stats.graph_remaps++;
	gcp_mutex_unlock(&lane->pool->lock);
	return 0;
}

int gcp_lane_enter(struct gcp_lane *lane, struct gcp_heap *heap)
{
	struct gcp_pools *pools = lane->pool->pools;
	int result = 0;

	gcp_mutex_lock(&pools->vmm_lock);
	assert(heap->pool == lane->pool);
	if (lane->gone)
		result = -ESTALE;
	else if (heap->lane != lane)
		result = lane_enter(lane, heap);
	gcp_mutex_unlock(&pools->vmm_lock);
	return result;
}

uint64_t gcp_lane_purge(struct gcp_lane *lane)
{
	struct gcp_pools *pools = lane->pool->pools;
	struct gcp_heap *heap;
	uint64_t bytes;
	int result = 0;

	gcp_mutex_lock(&pools->vmm_lock);
	while (result == 0 && (heap = TAILQ_FIRST(&lane->heaps))) {
		result = scratch_unmap(heap);
		lane_leave(heap);
	}
	bytes = lane->bytes;
	if (result == 0)
		handles_release_all(lane);
	gcp_mutex_unlock(&pools->vmm_lock);
	return result == 0 ? bytes : 0;
}

/* Nothing runs on the addresses any more. Those that cannot be unmapped now are tried
 * again by vmm.c. */
void gcp_lane_heap_ends(struct gcp_heap *heap)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_block *block, *next;

	gcp_mutex_lock(&pool->pools->vmm_lock);
	(void)scratch_unmap(heap);
	lane_leave(heap);
	gcp_mutex_lock(&pool->lock);
	for (block = TAILQ_FIRST(&heap->unmapping); block; block = next) {
		uint64_t count;
		const struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

		next = TAILQ_NEXT(block, link);
		if (chunks[0].handle)
			continue;
		TAILQ_REMOVE(&heap->unmapping, block, link);
		gcp_space_free(block, true);
	}
	gcp_mutex_unlock(&pool->lock);
	gcp_mutex_unlock(&pool->pools->vmm_lock);
}
