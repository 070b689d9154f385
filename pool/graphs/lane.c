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
 * A lane is as large as the largest graph that it has had. What its graphs of now do
 * not need goes back when memory is out. The last graph of a lane takes its memory
 * along when it ends: it is free behind a fence, where it was, and the next capture
 * finds it there and need map nothing.
 *
 * A graph's scratch moves from one lane to another, at first from one that it is alone
 * in. Handles are whole, so each run of scratch takes the largest handles that fit,
 * those of the lane first; what is missing comes from the lane that the heap leaves, as
 * far as no other heap is mapped to it, and is made new in the end, as for a capture
 * (handle.c): small enough for shorter runs. So two lanes never hold more than their
 * graphs would by themselves because one has moved.
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
	uint32_t room = stack->count + more;
	GCP_KEEP_ERRNO;
	uint64_t *handles;

	if (room <= stack->room)
		return true;
	room += room / 2;
	handles = realloc(stack->handles, room * sizeof(*handles));
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
	gcp_reserved_count(pool, change, true, true);
	gcp_gauge_add(&pool->stats.lane_bytes, change);
	gcp_gauge_add(&pool->stats.lane, (lane->bytes > 0) - had);
}

/* There is room for it. */
static void lane_add(struct gcp_lane *lane, uint64_t handle, uint32_t chunks)
{
	struct gcp_lane_stack *stack = &lane->stacks[chunks];

	assert(stack->count < stack->room);
	stack->handles[stack->count++] = handle;
}

/* Gives the handles back that stand at `from` and above. */
static void lane_release(struct gcp_lane *lane, uint32_t size, uint32_t from)
{
	struct gcp_lane_stack *stack = &lane->stacks[size];

	while (stack->count > from)
		(void)GCP_CALL(lane->pool, vm_release, stack->handles[--stack->count]);
}

/* Counts what the lane has by now. */
static void lane_count(struct gcp_lane *lane)
{
	uint64_t bytes = 0;

	if (lane->gone)
		return;
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		bytes += lane->stacks[size].count * (uint64_t)size * GCP_CHUNK;
	GCP_LOCKED(&lane->pool->lock);
	bytes_change_locked(lane, (int64_t)(bytes - lane->bytes));
}

/* How many handles of that size the lane's heaps are mapped to; but for this one. */
static uint32_t lane_used_by(const struct gcp_lane *lane, uint32_t size,
			     const struct gcp_heap *except)
{
	const struct gcp_heap *heap;
	uint32_t used = 0;

	TAILQ_FOREACH (heap, &lane->heaps, lane_link)
		if (heap != except && heap->lane_used[size] > used)
			used = heap->lane_used[size];
	return used;
}

/* Gives back what no heap is mapped to. */
static void unused_release(struct gcp_lane *lane)
{
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
		lane_release(lane, size, lane_used_by(lane, size, NULL));
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

/* The heap is in no lane any more. */
static void lane_leave(struct gcp_heap *heap)
{
	struct gcp_block *block;
	uint64_t count;

	TAILQ_FOREACH (block, &heap->unmapping, link) {
		struct gcp_chunk *chunks = gcp_chunks_of(block, &count);

		for (uint64_t i = 0; i < count; i++)
			if (chunks[i].handle)
				chunks[i].handle = GCP_CHUNK_MOVED;
	}
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
	if (!lane->gone)
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

void gcp_lanes_reset(struct gcp_pool *pool)
{
	struct gcp_lane *lane;
	struct gcp_heap *heap;

	gcp_assert_held(GCP_RANK_VMM);
	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_FOREACH (lane, &pool->lanes, link) {
		while ((heap = TAILQ_FIRST(&lane->heaps)))
			lane_leave(heap);
		bytes_change_locked(lane, -(int64_t)lane->bytes);
		lane->gone = true;
	}
}

void gcp_lanes_release_gone(struct gcp_pool *pool)
{
	struct gcp_lane *lane, *next;

	gcp_assert_held(GCP_RANK_VMM);
	for (lane = TAILQ_FIRST(&pool->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, link);
		if (!lane->gone)
			continue;
		TAILQ_REMOVE(&pool->lanes, lane, link);
		unused_release(lane);
	}
}

/* --- what is scratch ---------------------------------------------------------- */

/* -EBUSY: work that was submitted beside the capture may still be on its way to what is
 * scratch. */
static int scratch_ready(struct gcp_heap *heap)
{
	uint64_t completed = atomic_load(&heap->pool->timeline.completed);
	struct gcp_segment *segment;
	struct gcp_block *block;
	bool busy = false;

	if (heap->awaited_epoch > completed)
		return -EBUSY;
	gcp_heap_advance(heap);
	TAILQ_FOREACH (segment, &heap->segments, link) {
		if (!segment->chunks)
			continue;
		/* No allocation comes from it any more: what is free lies as one. */
		for (block = segment->first; block; block = block->upper)
			if (gcp_block_is_free(block))
				block->apart = false;
		for (block = segment->first; block; block = block->upper) {
			while (gcp_block_is_free(block) &&
			       gcp_block_is_free(block->upper)) {
				gcp_tree_remove(heap, block);
				block = gcp_block_coalesce(heap, block);
			}
			busy |= gcp_block_is_free(block) && block->epoch > completed;
		}
	}
	return busy ? -EBUSY : 0;
}

/* Room in the lane for all handles of the block. */
static bool block_fits(struct gcp_lane *lane, const struct gcp_block *block)
{
	const struct gcp_chunk *chunks = block->segment->chunks;
	uint64_t first, count = gcp_block_handles(block, &first);

	for (uint64_t i = first; i < first + count; i += chunks[i].count)
		if (chunks[i].count > GCP_HANDLE_MOST ||
		    !stack_reserve(&lane->stacks[chunks[i].count], (uint32_t)count))
			return false;
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

int gcp_heap_share(struct gcp_heap *heap, struct gcp_lane *lane)
{
	struct gcp_pool *pool = heap->pool;
	int result;

	gcp_mutex_lock(&pool->pools->vmm_lock);
	gcp_mutex_lock(&pool->lock);
	assert(heap->private && !heap->lane && TAILQ_EMPTY(&heap->unmapping));
	assert(heap->reuse == GCP_REUSE_SEALED); /* X3 */
	result = lane->gone ? -ESTALE : scratch_ready(heap);
	if (result == 0)
		scratch_take(heap, lane);
	gcp_mutex_unlock(&pool->lock);
	if (result == 0 && TAILQ_EMPTY(&heap->unmapping)) {
		result = -ENOENT;
	} else if (result == 0) {
		/* The lane is made of this heap, which is mapped to all handles. */
		for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
			heap->lane_used[size] = lane->stacks[size].count;
		heap->lane = lane;
		TAILQ_INSERT_TAIL(&lane->heaps, heap, lane_link);
		lane_count(lane);
	}
	gcp_mutex_unlock(&pool->pools->vmm_lock);
	return result;
}

struct gcp_lane *gcp_heap_lane(const struct gcp_heap *heap)
{
	return heap->lane;
}

uint64_t gcp_lane_purge(struct gcp_lane *lane, bool all)
{
	struct gcp_heap *heap;
	uint64_t bytes;
	int result = 0;

	GCP_LOCKED(&lane->pool->pools->vmm_lock);
	bytes = lane->bytes;
	while (all && result == 0 && (heap = TAILQ_FIRST(&lane->heaps))) {
		result = lane_unmap(heap);
		lane_leave(heap);
	}
	if (result == 0 && !lane->gone)
		unused_release(lane);
	return bytes - lane->bytes;
}

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
		if (!stack_reserve(&lane->stacks[size],
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
				lane_add(lane, handle, size);
		}
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST && result != 0; size++)
		lane_release(lane, size, before[size]);
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
			    from->stacks[size].count - lane_used_by(from, size, heap);
	}
	TAILQ_FOREACH (block, &heap->unmapping, link)
		for (uint64_t run = block->size / GCP_CHUNK, left = run; left > 0;)
			left -= tile(&plan, run, left, &source);
	result = tiling_make(lane, &plan);
	if (result != 0)
		return result;
	result = lane_unmap(heap);
	lane_leave(heap);
	/* Handles of the lane that is left are mapped nowhere by now: no heap that
	 * stays there uses those at the end. */
	for (uint32_t size = 1; size <= GCP_HANDLE_MOST && result == 0; size++)
		for (uint32_t i = 0; i < plan.taken[FROM_LEFT][size]; i++)
			lane_add(lane,
				 from->stacks[size].handles[--from->stacks[size].count],
				 size);
	if (result == 0)
		result = scratch_map(lane, heap, &plan);
	if (from)
		lane_count(from);
	lane_count(lane);
	if (result != 0) {
		(void)lane_unmap(heap);
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

/* --- the end of a heap -------------------------------------------------------- */

/* What others of the lane are mapped to, too, is unmapped by vmm.c behind the epoch. */
void gcp_lane_heap_ends(struct gcp_heap *heap)
{
	struct gcp_pool *pool = heap->pool;
	struct gcp_lane *lane;
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_block *block;
	uint64_t count, epoch;
	bool alone;

	gcp_mutex_lock(&pool->pools->vmm_lock);
	lane = heap->lane;
	alone =
	    lane && TAILQ_FIRST(&lane->heaps) == heap && !TAILQ_NEXT(heap, lane_link);
	if (alone) { /* it has what it is mapped to, and the lane nothing */
		unused_release(lane);
		for (uint32_t size = 1; size <= GCP_HANDLE_MOST; size++)
			lane->stacks[size].count = 0;
		lane_count(lane);
	} else {
		lane_leave(heap);
	}
	gcp_mutex_lock(&pool->lock);
	epoch = gcp_timeline_stamp(pool);
	TAILQ_CONCAT(&list, &heap->unmapping, link);
	while ((block = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, block, link);
		block->epoch = epoch; /* X5 */
		if (!alone) {
			gcp_space_free(block, !gcp_chunks_of(block, &count)->handle);
			continue;
		}
		/* The handles are the heap's own again: free behind that epoch. */
		gcp_space_change(heap, block->segment, (int64_t)block->size);
		gcp_block_set_state(block, GCP_BLOCK_PENDING);
		gcp_gauge_add(&pool->stats.active_bytes, (int64_t)block->size);
		TAILQ_INSERT_TAIL(&heap->once, block, link);
	}
	lane_leave(heap);
	gcp_mutex_unlock(&pool->lock);
	gcp_vmm_release_orphans(pool);
	gcp_mutex_unlock(&pool->pools->vmm_lock);
}
