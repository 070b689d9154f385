/* SPDX-License-Identifier: MIT */
/*
 * private.c - heaps that belong to captured graphs.
 *
 * A private heap has segments of its own, so nothing that a graph addresses
 * has another owner before gcp_heap_release. capture/ decides when
 * its freed blocks may be allocated again (gcp_heap_set_reuse,
 * gcp_heap_release_groups), and when nothing can run on it any more.
 *
 * Rules of the heap of a captured graph:
 *  G1 an allocation belongs to every capture that its work may be in
 *  G2 what may belong to several captures is kept by all of them
 *  G3 memory that captured work has used serves no eager allocation
 *  G4 what is freed in a capture that has forked waits for a proof
 *  G5 proved: all nodes that existed at the free precede every open end
 *  G6 work at an end that rests is made to follow what was freed and given out again
 *  G7 a graph that the program may have edited proves nothing
 *  G8 a graph is launched behind the work that used its blocks before
 *  G9 a restored pool keeps what was live at its checkpoint
 *  G10 the end of one capture changes nothing for another one that uses the pool
 *  G11 a block of the common heap serves nothing else while a graph addresses it
 *  G12 a pinned block that a graph can address serves no other allocation
 *  G13 work at an end that rests follows no node younger than the latest free
 */
#include "../reclaim/reclaim.h"

#include <stdlib.h>

int gcp_heap_create(struct gcp_pool *pool, struct gcp_heap **ret_heap)
{
	GCP_KEEP_ERRNO;
	struct gcp_heap *heap = calloc(1, sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	gcp_heap_init(heap, pool, true);
	heap->id = atomic_fetch_add(&pool->pools->last_heap_id, 1) + 1;
	heap->group = GCP_GROUP_FIRST;
	heap->group_past = GCP_GROUP_PAST;
	gcp_mutex_lock(&pool->lock);
	TAILQ_INSERT_TAIL(&pool->private_heaps, heap, link);
	gcp_mutex_unlock(&pool->lock);
	*ret_heap = heap;
	return 0;
}

/* --- blocks that others have open ----------------------------------------------- */

/* The graph has the block open, as other processes have what was exported to them. If
 * the program frees it, it is LENT until the heap ends: no allocation gets it. */
void gcp_heap_borrow(struct gcp_heap *heap, gcp_addr addr)
{
	struct gcp_pool *pool = heap->pool;
	uint8_t used = GCP_BLOCK_USED;
	struct gcp_block *block;

	GCP_LOCKED(&pool->lock);
	block = gcp_map_find(pool->pools->map, addr);
	/* Else it went with its context just now. */
	if (!block ||
	    !atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_CAPTURED))
		return;
	assert(block->opens == 0 && block->segment->pool == pool); /* G11 */
	block->opens = 1;
	block->next = heap->borrowed;
	heap->borrowed = block;
}

void gcp_block_close(struct gcp_block *block)
{
	struct gcp_heap *heap = atomic_load(&block->segment->heap);
	struct gcp_pool *pool = heap->pool;

	gcp_assert_held(GCP_RANK_POOL);
	assert(block->opens > 0);
	if (--block->opens > 0 || atomic_load(&block->state) != GCP_BLOCK_LENT)
		return;
	assert(heap->lent_bytes >= block->size);
	heap->lent_bytes -= block->size;
	gcp_block_set_state(block, GCP_BLOCK_CACHED);
	/* The free counts it once more. */
	if (heap->private)
		gcp_heap_count(heap, block, 1);
	gcp_stats_delta_count(&pool->delta, block->requested, block->size);
	gcp_private_free(pool, block);
}

/* --- free groups -------------------------------------------------------------- */

/* A block that a capture frees gets the number of the heap's open group. Where the
 * order of the capture is one line it is ready at once, in a tree; else it waits in
 * `deferred`, which stands in the order of the groups, until its group or all groups
 * are released. The number stays with the block and tells, when the block is given
 * out, that it was freed before; and whether a capture under way has freed it. */

/* Waits in `deferred` for the release of the open group. */
static void block_defer(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	assert(TAILQ_EMPTY(&heap->deferred) || /* by group, growing */
	       TAILQ_LAST(&heap->deferred, gcp_block_list)->group <= heap->group);
	block->group = heap->group;
	atomic_fetch_add(&heap->pool->pools->deferred_frees, 1);
	atomic_store(&block->state, GCP_BLOCK_PENDING);
	TAILQ_INSERT_TAIL(&heap->deferred, block, link);
}

/* The order that made blocks ready holds no more: those that captures under way have
 * freed wait again. */
static void free_blocks_defer(struct gcp_heap *heap)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_block *block;

	gcp_heap_collect(heap, &list);
	while ((block = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, block, link);
		if (block->group > heap->group_past)
			block_defer(heap, block);
		else
			gcp_heap_put(heap, block);
	}
}

/* Blocks of groups up to `group` are ready: their place in the order of captures is
 * proof enough. */
static void groups_release(struct gcp_heap *heap, uint64_t group)
{
	struct gcp_block *block;

	while ((block = TAILQ_FIRST(&heap->deferred)) && block->group <= group) {
		TAILQ_REMOVE(&heap->deferred, block, link);
		block->epoch = GCP_EPOCH_NOW;
		gcp_heap_put(heap, block);
	}
}

void gcp_heap_set_reuse(struct gcp_heap *heap, enum gcp_reuse reuse, uint64_t group)
{
	GCP_LOCKED(&heap->pool->lock);
	assert(heap->reuse != GCP_REUSE_SEALED);
	assert(group >= heap->group + (reuse <= GCP_REUSE_SEALED));
	if (reuse <= GCP_REUSE_SEALED) { /* no capture is under way any more */
		TAILQ_CONCAT(&heap->deferred, &heap->once, link);
		groups_release(heap, UINT64_MAX);
		heap->group_past = group - 1;
	} else if (reuse == GCP_REUSE_LATER && heap->group_freed > heap->group_past) {
		free_blocks_defer(heap);
	}
	heap->reuse = reuse;
	heap->group = group;
}

uint64_t gcp_heap_close_group(struct gcp_heap *heap, uint64_t next)
{
	GCP_LOCKED(&heap->pool->lock);
	struct gcp_block *latest = TAILQ_LAST(&heap->deferred, gcp_block_list);
	bool any = latest && latest->group == heap->group;
	heap->group = next;
	return any ? atomic_load(&heap->pool->pools->deferred_frees) : 0;
}

void gcp_heap_release_groups(struct gcp_heap *heap, uint64_t group)
{
	GCP_LOCKED(&heap->pool->lock);
	assert(group < heap->group); /* it is closed: no free gets it any more */
	groups_release(heap, group);
}

void gcp_private_free(struct gcp_pool *pool, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	/* Now that the lock is held the heap is certain. */
	struct gcp_heap *heap = atomic_load(&block->segment->heap);
	enum gcp_reuse reuse = heap->private ? heap->reuse : GCP_REUSE_FENCED;
	uint64_t epoch = gcp_timeline_stamp(pool);

	gcp_stats_delta_free(&pool->delta, block->requested, block->size);
	gcp_stats_merge(pool, &pool->delta);
	if (heap->private)
		gcp_heap_count(heap, block, -1);
	if (block->opens > 0) { /* once they have closed it */
		heap->lent_bytes += block->size;
		gcp_block_set_state(block, GCP_BLOCK_LENT);
		return;
	}
	bool late = reuse == GCP_REUSE_SEALED, open = reuse > GCP_REUSE_SEALED;
	/* Eager work may have used it, so no allocation of this capture may be given
	 * it: that may be for eager work too, on another stream. */
	bool once = open && block->watched > 0 &&
		    block->watched != atomic_load(&pool->pools->eager_work);
	/* No graph can address it: behind its fence it is as it was before. */
	bool untouched = open && block->apart &&
			 block->captured == atomic_load(&pool->pools->captured_work);
	block->group = untouched ? GCP_GROUP_FRESH : GCP_GROUP_PAST;
	/* Captured work runs behind the barrier at its capture's end. */
	block->epoch = heap->private && !once && !late ? GCP_EPOCH_NOW : epoch;
	if (untouched) {
		gcp_heap_put(heap, block);
		return;
	}
	if (open)
		block->group = heap->group_freed = heap->group;
	/* Why the memory does not serve the next allocation. */
	if (once)
		pool->stats.reuse_eager_work++;
	else if (reuse == GCP_REUSE_LATER)
		pool->stats.reuse_order_unknown++;
	if (once || late) { /* it waits for the end of all captures, or of the heap */
		atomic_store(&block->state, GCP_BLOCK_PENDING);
		TAILQ_INSERT_TAIL(&heap->once, block, link);
	} else if (reuse == GCP_REUSE_LATER)
		block_defer(heap, block);
	else
		gcp_heap_put(heap, block);
}

void gcp_heap_capture_ends(struct gcp_heap *heap)
{
	GCP_LOCKED(&heap->pool->lock);
	if (heap->recycled)
		atomic_fetch_add(&heap->pool->barriers_asked, 1);
	heap->recycled = false;
}

/* With several contexts none is set for reuse (fence.c, NO NEW WAITS), but here there
 * is no choice: blocks of which no fence knows have been given out, because no fence
 * can be set in a capture; a capture that waited for them would have to keep all that
 * it ever used apart; and the graph may be launched, and its memory be used, in any
 * context. So one may wait for another, but only after a moment in which that work is
 * not done: what waits for other threads on other devices has had their help by then.
 */
static void barrier_set(struct gcp_pool *pool, uint64_t asked)
{
	enum { WAIT_ROUNDS = 20 };
	uint64_t epoch = gcp_timeline_stamp(pool);
	int result = gcp_timeline_barrier(pool, epoch, true);

	for (int i = 0; result == -EXDEV && i < WAIT_ROUNDS; i++) {
		if (i > 0)
			gcp_backoff();
		(void)gcp_timeline_poll_all(pool); /* an error shows again */
		if (gcp_timeline_is_completed(&pool->timeline, epoch))
			result = 0;
	}
	if (result == -EXDEV)
		result = gcp_timeline_barrier(pool, epoch, false);
	/* Whatever was in its way: the launch must not come before that work. */
	if (result != 0)
		result = gcp_pool_complete_by_free(pool, false);
	if (result == 0) /* else an error shows again */
		gcp_raise(&pool->barriers_set, asked);
	gcp_pool_unpin(pool);
}

/* A graph pool may hold memory of several contexts, each of which may be gone, or be
 * ending in another thread: if it stays after all, gcp_pool_reattach makes up for it.
 * It stays before it looks whether a barrier is due, so that is said before we look
 * whether it stays: one of us sees the other. A barrier that another thread is just
 * setting is none yet. */
void gcp_pools_barriers_due(struct gcp_pools *pools)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (atomic_load(&pool->barriers_set) <
			atomic_load(&pool->barriers_asked) &&
		    gcp_pool_pin(pool))
			barrier_set(pool, atomic_load(&pool->barriers_asked));
}

void gcp_pools_close_full(struct gcp_pools *pools)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!gcp_pool_pin(pool))
			continue;
		/* errors show again */
		(void)gcp_timeline_close_early(pool, true);
		(void)gcp_timeline_poll_all(pool);
		gcp_pool_unpin(pool);
	}
}

void gcp_heap_release(struct gcp_heap *heap)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_pool *pool = heap->pool;
	struct gcp_segment *segment;
	struct gcp_block *block;
	uint64_t freed;

	if (!TAILQ_EMPTY(&heap->unmapping) && !gcp_heap_keep_lane(heap))
		gcp_lane_heap_ends(heap);
	gcp_mutex_lock(&pool->lock);
	while ((block = heap->borrowed)) {
		heap->borrowed = block->next;
		gcp_block_close(block);
	}
	/* Launches of the graph may be under way, and so may be work that the program
	 * itself submitted before it freed them. */
	uint64_t epoch = gcp_timeline_stamp(pool);
	gcp_gauge_add(&pool->stats.private_bytes, -(int64_t)heap->reserved_bytes);
	pool->common.reserved_bytes += heap->reserved_bytes;
	pool->common.lent_bytes += heap->lent_bytes;
	TAILQ_FOREACH (segment, &heap->segments, link) {
		/* Live blocks, too, may be on memory that a capture gave out again
		 * before such work was done. */
		assert(segment->private_epoch <= epoch);
		segment->private_epoch = epoch;
		atomic_store_explicit(&segment->heap, &pool->common,
				      memory_order_release);
	}
	TAILQ_CONCAT(&pool->common.segments, &heap->segments, link);
	gcp_space_join(&pool->common, heap);
	gcp_heap_collect(heap, &list); /* every free block */
	TAILQ_CONCAT(&list, &heap->once, link);
	TAILQ_FOREACH (block, &list, link)
		block->epoch = block->epoch > epoch ? block->epoch : epoch;
	gcp_heap_put_list(&pool->common, &list);
	TAILQ_REMOVE(&pool->private_heaps, heap, link);
	freed = heap->reserved_bytes - heap->used_bytes - heap->lent_bytes;
	gcp_mutex_unlock(&pool->lock);
	(void)gcp_timeline_fill(pool, (int64_t)freed, 0);
	free(heap);
}
