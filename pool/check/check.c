/* SPDX-License-Identifier: MIT */
/*
 * check.c - checks the invariants that pool_types.h and pinned_types.h number. See
 * check.h.
 *
 * Each check gives NULL or a sentence that names what is broken. Takes the
 * locks itself; while threads allocate and free, only M1 and the lists are
 * meaningful at any moment, so tests call it when they are at rest.
 */
#include "../reclaim/reclaim.h"
#include "../graphs/lane.h"
#include "../pinned/pinned_types.h"
#include "check.h"

struct sums {
	uint64_t used, lent, cached, pending, free, holes, unmapping;
	uint64_t used_blocks, streamed;
	uint64_t segments, unused;
	uint64_t ready; /* of `free`, without the heads */
	uint64_t reserved, private, lanes, mapped;
};

static uint64_t *sum_of(struct sums *sums, enum gcp_block_state state)
{
	switch (state) {
	case GCP_BLOCK_USED:
	case GCP_BLOCK_CAPTURED:
	case GCP_BLOCK_EXPORTED:
		sums->used_blocks++;
		return &sums->used;
	case GCP_BLOCK_LENT:
		return &sums->lent;
	case GCP_BLOCK_CACHED:
		return &sums->cached;
	case GCP_BLOCK_PENDING:
		return &sums->pending;
	case GCP_BLOCK_FREE:
	case GCP_BLOCK_HEAD:
		return &sums->free;
	case GCP_BLOCK_HOLE:
		return &sums->holes;
	case GCP_BLOCK_UNMAPPING:
		return &sums->unmapping;
	case GCP_BLOCK_MOVING: /* only while a thread holds vmm_lock */
	case GCP_BLOCK_RELEASED:
		break;
	}
	return NULL;
}

static bool heap_is_private(const struct gcp_block *block)
{
	return atomic_load(&block->segment->heap)->private;
}

static const char *block_check(struct gcp_pool *pool, struct gcp_block *block,
			       struct sums *sums)
{
	enum gcp_block_state state = atomic_load(&block->state);
	uint64_t *sum = sum_of(sums, state);

	GCP_MUST(block->addr % GCP_UNIT == 0 && block->size % GCP_UNIT == 0 &&
		     block->size > 0,
		 "B1: a block is not a whole number of units");
	GCP_MUST(sum, "a block is in a state that it cannot be in");
	GCP_MUST(gcp_map_find(pool->pools->map, block->addr) == block,
		 "B2: the map does not find a block at its address");
	GCP_MUST(!block->upper || block->upper->addr == block->addr + block->size,
		 "B3: neighbours do not touch");
	GCP_MUST(!block->upper || block->upper->lower == block,
		 "B3: a neighbour looks elsewhere");
	if (state == GCP_BLOCK_FREE) {
		GCP_MUST(!block->upper ||
			     atomic_load(&block->upper->state) != GCP_BLOCK_FREE ||
			     (heap_is_private(block) &&
			      !gcp_blocks_merge(block, block->upper)),
			 "B4: two free neighbours are not merged");
		GCP_MUST(gcp_epoch_ready(pool, block->epoch),
			 "B5: a free block is not ready");
	}
	GCP_MUST(!block->stream || block->async || state == GCP_BLOCK_PENDING,
		 "B9: a block that does not wait has a stream");
	GCP_MUST(!block->async || gcp_block_is_used(block) ||
		     state == GCP_BLOCK_CACHED || state == GCP_BLOCK_LENT,
		 "B9: a free block is stream-ordered");
	*sum += block->size;
	sums->streamed += block->stream && state == GCP_BLOCK_PENDING;
	if (state == GCP_BLOCK_FREE && !heap_is_private(block))
		sums->unused += gcp_block_unused(block);
	sums->ready += state == GCP_BLOCK_FREE ? block->size : 0;
	return NULL;
}

static const char *hole_check(const struct gcp_block *hole)
{
	const struct gcp_block *upper = hole->upper;

	GCP_MUST(hole->segment->chunks, "B6: a hole in a segment that is not mapped");
	GCP_MUST(hole->addr % GCP_CHUNK == 0 && hole->size % GCP_CHUNK == 0,
		 "B6: a hole is not made of whole chunks");
	GCP_MUST(!upper || atomic_load(&upper->state) != GCP_BLOCK_HOLE,
		 "B6: two holes are not merged");
	return NULL;
}

/* B10, of an ordinary segment. A HUGE one has one block. */
static const char *head_check(const struct gcp_segment *segment)
{
	const struct gcp_block *first = segment->first;

	GCP_MUST(gcp_block_is(first, GCP_BLOCK_HEAD) == (first->upper != NULL),
		 "B10: an ordinary segment has no head, or one for no other block");
	GCP_MUST(!gcp_block_is(first, GCP_BLOCK_HEAD) ||
		     !gcp_block_is_free(first->upper) || first->upper->upper,
		 "B10: a free segment keeps its head");
	for (const struct gcp_block *block = first->upper; block; block = block->upper)
		GCP_MUST(!gcp_block_is(block, GCP_BLOCK_HEAD),
			 "B10: a head is not the first");
	return NULL;
}

static bool chunks_are_empty(const struct gcp_chunk *chunks, uint64_t count)
{
	uint64_t handles = 0;

	for (uint64_t i = 0; i < count; i++)
		handles |= chunks[i].handle;
	return handles == 0;
}

/* Walks blocks and chunks side by side. */
static const char *chunks_check(const struct gcp_segment *segment)
{
	const struct gcp_block *block = segment->first;

	for (uint64_t i = 0; i < segment->size / GCP_CHUNK; i++) {
		gcp_addr addr = segment->addr + i * GCP_CHUNK;
		const struct gcp_chunk *chunk = &segment->chunks[i];

		while (block->addr + block->size <= addr)
			block = block->upper;
		enum gcp_block_state state = atomic_load(&block->state);
		if (state == GCP_BLOCK_HOLE) { /* of whole chunks: B6 */
			GCP_MUST(chunks_are_empty(chunk, block->size / GCP_CHUNK),
				 "S3: a chunk and its handle disagree");
			i += block->size / GCP_CHUNK - 1;
			continue;
		}
		GCP_MUST(state == GCP_BLOCK_UNMAPPING || chunk->handle != 0,
			 "S3: a chunk and its handle disagree");
		GCP_MUST(chunk->handle != GCP_CHUNK_MOVED ||
			     state == GCP_BLOCK_UNMAPPING,
			 "S3: a chunk has left, and its block has not");
		if (chunk->handle == GCP_CHUNK_MOVED)
			continue;
		GCP_MUST(!chunk->handle || i == 0 || chunk->before == 0 ||
			     chunk[-1].before + 1 == chunk->before,
			 "S4: a handle is torn");
		GCP_MUST(!chunk->handle || chunk->before + 1 == chunk->count ||
			     (i + 1 < segment->size / GCP_CHUNK &&
			      chunk[1].before == chunk->before + 1),
			 "S4: a handle ends too early");
	}
	return NULL;
}

static const char *segment_check(struct gcp_pool *pool, struct gcp_segment *segment,
				 struct sums *sums)
{
	uint64_t at = segment->addr, unmapped = sums->holes + sums->unmapping;

	for (struct gcp_block *block = segment->first; block; block = block->upper) {
		const char *broken = block_check(pool, block, sums);

		GCP_MUST(block->addr == at, "S1: blocks do not cover their segment");
		GCP_MUST(block->segment == segment,
			 "S1: a block names another segment");
		at += block->size;
		GCP_MUST(!broken, broken);
		if (atomic_load(&block->state) == GCP_BLOCK_HOLE)
			broken = hole_check(block);
		GCP_MUST(!broken, broken);
	}
	GCP_MUST(at == segment->addr + segment->size,
		 "S1: blocks do not fill their segment");
	GCP_MUST(segment->mapped ==
		     segment->size - (sums->holes + sums->unmapping - unmapped),
		 "S2: mapped bytes are miscounted");
	return segment->chunks ? chunks_check(segment) : head_check(segment);
}

static bool stands_before(const struct gcp_block *a, const struct gcp_block *b)
{
	if (a->segment != b->segment)
		return a->segment->number < b->segment->number;
	return a->addr < b->addr;
}

GCP_TREAP(free_blocks, gcp_block, node, stands_before, NULL)

/* True if the links, the priorities and the order below `node` are right. */
static bool tree_is_valid(const struct gcp_treap_node *node)
{
	const struct gcp_treap_node *next;

	if (!node)
		return true;
	for (int side = 0; side < 2; side++)
		if (node->child[side] &&
		    (node->child[side]->parent != node ||
		     gcp_treap_priority(node->child[side]) > gcp_treap_priority(node) ||
		     !tree_is_valid(node->child[side])))
			return false;
	next = gcp_treap_step(node, 1);
	return !next || free_blocks_before(node, next);
}

static bool largest_is_right(const struct gcp_block *block)
{
	uint64_t largest = block->size;

	for (int side = 0; side < 2; side++) {
		const struct gcp_block *child = free_blocks_of(block->node.child[side]);

		if (child && child->largest > largest)
			largest = child->largest;
	}
	return block->largest == largest;
}

/* Adds up the bytes. */
static const char *tree_check(const struct gcp_treap *tree, enum gcp_block_state state,
			      uint64_t *bytes)
{
	const struct gcp_block *block = free_blocks_first(tree);

	GCP_MUST(tree_is_valid(tree->root), "B7: a tree of blocks is out of order");
	for (; block; block = free_blocks_next(block)) {
		GCP_MUST(largest_is_right(block),
			 "B7: a block does not know the largest of its subtree");
		GCP_MUST(atomic_load(&block->state) == state,
			 "B8: a block is in the tree of another kind");
		*bytes += block->size;
	}
	return NULL;
}

/* Blocks that wait for a stream, or may be taken by it at once. */
static uint64_t streamed_blocks(const struct gcp_pool *pool)
{
	const struct gcp_block *block;
	uint64_t count = 0;

	for (uint64_t i = 0; i < GCP_STREAMED; i++)
		LIST_FOREACH (block, &pool->streamed[i], streamed)
			count += block->stream % GCP_STREAMED == i;
	return count;
}

static const char *pending_check(const struct gcp_heap *heap)
{
	const struct gcp_block *block, *end = TAILQ_FIRST(&heap->pending_ends);
	uint64_t waiting = 0;

	TAILQ_FOREACH (block, &heap->pending, link) {
		struct gcp_block *next = TAILQ_NEXT(block, link);

		GCP_MUST(!next || next->epoch >= block->epoch,
			 "H3: a younger epoch stands before an older one");
		waiting += block->size;
		if (next && next->epoch == block->epoch)
			continue;
		GCP_MUST(end == block,
			 "H4: an epoch's last block is not known as such");
		end = TAILQ_NEXT(end, end);
	}
	GCP_MUST(!end, "H4: a block that does not wait is an epoch's last");
	GCP_MUST(waiting == heap->pending_bytes, "pending bytes are miscounted");
	return NULL;
}

static const char *heap_check(struct gcp_pool *pool, struct gcp_heap *heap,
			      struct sums *total)
{
	struct gcp_segment *segment;
	struct gcp_block *block;
	struct sums sums = {0};
	uint64_t reserved = 0, holes = 0, free = 0, unmapping = 0;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		const char *broken = segment_check(pool, segment, &sums);

		GCP_MUST(!broken, broken);
		GCP_MUST(atomic_load(&segment->heap) == heap,
			 "H1: a segment names another heap");
		reserved += segment->mapped;
		total->mapped += segment->chunks ? segment->mapped : 0;
		total->segments++;
	}
	GCP_MUST(reserved == heap->reserved_bytes, "H1: reserved bytes are miscounted");
	const char *broken = tree_check(&heap->free, GCP_BLOCK_FREE, &free);
	if (!broken)
		broken = tree_check(&heap->holes, GCP_BLOCK_HOLE, &holes);
	GCP_MUST(!broken, broken);
	GCP_MUST(sums.used + sums.lent + sums.cached + sums.pending + sums.free ==
		     reserved,
		 "H2: bytes are lost or counted twice");
	GCP_MUST(holes == sums.holes, "B8: a hole is in no tree");
	GCP_MUST(free == sums.ready, "B8: a free block is in no tree");
	GCP_MUST(heap->private || sums.streamed == streamed_blocks(pool),
		 "B9: a block of a stream is not in its list");
	TAILQ_FOREACH (block, &heap->unmapping, link)
		unmapping += block->size;
	GCP_MUST(unmapping == sums.unmapping, "an unmapping block is in no list");
	broken = pending_check(heap);
	GCP_MUST(!broken, broken);
	GCP_MUST(!heap->private || heap->used_bytes == sums.used,
		 "a private heap miscounts what the program holds");
	GCP_MUST(heap->lent_bytes == sums.lent,
		 "a heap miscounts what it has lent to other processes");
	total->unused += sums.unused;
	total->reserved += reserved;
	total->private += heap->private ? reserved : 0;
	total->pending += sums.pending;
	total->used += sums.used;
	total->lent += sums.lent;
	total->used_blocks += sums.used_blocks;
	total->cached += sums.cached;
	return NULL;
}

static const char *timeline_check(struct gcp_timeline *timeline)
{
	uint64_t completed = atomic_load(&timeline->completed),
		 ready = atomic_load(&timeline->ready);
	uint64_t last = completed, bytes = 0;

	GCP_MUST(completed <= ready, "E6: a completed epoch is not ready");
	GCP_MUST(ready < atomic_load(&timeline->open), "E6: the open epoch is ready");
	for (uint32_t i = 0; i < timeline->count; i++) {
		GCP_MUST(gcp_timeline_at(timeline, i)->epoch > last,
			 "E7: closed epochs are out of order");
		last = gcp_timeline_at(timeline, i)->epoch;
		bytes += gcp_timeline_at(timeline, i)->bytes;
	}
	GCP_MUST(last < atomic_load(&timeline->open), "E7: the open epoch is closed");
	GCP_MUST(bytes == timeline->pending_bytes,
		 "E8: bytes of closed epochs are miscounted");
	return NULL;
}

/* Adds up a chain; false: it is not `count` blocks long. */
static bool chain_bytes(const struct gcp_block *block, uint32_t count, int64_t *bytes)
{
	for (; block && count > 0; block = block->next, count--)
		*bytes += (int64_t)block->size;
	return !block && count == 0;
}

static const char *depots_check(struct gcp_pool *pool, uint64_t *bytes)
{
	int64_t found = 0;

	for (uint32_t i = 0; i < pool->pools->classes.count; i++) {
		const struct gcp_block *first = pool->depots[i].first;

		for (; first; first = first->batch.next)
			GCP_MUST(chain_bytes(first, first->batch.count, &found),
				 "M2: a batch is not as long as it says");
	}
	GCP_MUST(found == atomic_load(&pool->depot_bytes),
		 "a pool miscounts the bytes in its depots");
	*bytes += (uint64_t)found;
	return NULL;
}

/* Blocks that wait in their stream's cache. */
static const char *streams_check(const struct gcp_cache *cache, int64_t *bytes)
{
	uint32_t count = 0;

	for (int bin = 0; bin < GCP_STREAM_BINS; bin++) {
		struct gcp_block *block = cache->streamed[bin];

		for (; block; block = block->next) {
			GCP_MUST(block->async, "B9: a block of a stream's cache is not "
					       "stream-ordered");
			*bytes += (int64_t)block->size;
			count++;
		}
	}
	GCP_MUST(count == cache->streamed_count,
		 "M1: a cache has another number of blocks of streams");
	return NULL;
}

static const char *caches_check(struct gcp_pool *pool, uint64_t *ret_bytes)
{
	struct gcp_cache *cache;

	*ret_bytes = 0;
	TAILQ_FOREACH (cache, &pool->pools->caches, link) {
		int64_t bytes = 0;

		if (cache->pool != pool)
			continue;
		for (uint32_t i = 0; i < pool->pools->classes.count; i++) {
			const struct gcp_magazine *magazine = &cache->magazines[i];

			GCP_MUST(chain_bytes(magazine->loaded.first,
					     magazine->loaded.count, &bytes) &&
				     chain_bytes(magazine->previous.first,
						 magazine->previous.count, &bytes),
				 "M2: a magazine miscounts its blocks");
		}
		const char *broken = streams_check(cache, &bytes);
		GCP_MUST(!broken, broken);
		GCP_MUST(bytes ==
			     cache->held - cache->delta.net[GCP_STATS_LEVEL_ALLOCATED],
			 "M1: a cache miscounts its bytes");
		for (int i = 0; i < GCP_STATS_LEVELS; i++)
			GCP_MUST(cache->delta.net[i] <= cache->delta.high[i],
				 "T1: a thread has missed a peak");
		*ret_bytes += (uint64_t)bytes;
	}
	return depots_check(pool, ret_bytes);
}

/* The statistics against what is there; held: used, cached or pending. */
static const char *stats_check(struct gcp_pool *pool, const struct sums *sums)
{
	const struct gcp_stats *stats = &pool->stats;
	uint64_t held = sums->used + sums->lent + sums->cached + sums->pending;

	GCP_MUST(stats->allocated_bytes.current == sums->used,
		 "allocated_bytes is not what the program holds");
	GCP_MUST(stats->allocation.current == sums->used_blocks,
		 "allocation is not the number of blocks that the program holds");
	GCP_MUST(stats->active_bytes.current == held,
		 "active_bytes is not what is held or waits for its epoch");
	GCP_MUST(stats->segment.current == sums->segments, "segments are miscounted");
	GCP_MUST(stats->reserved_bytes.current == sums->reserved,
		 "reserved_bytes is not the size of all segments");
	GCP_MUST(stats->private_bytes.current == sums->private,
		 "private_bytes is not the size of private segments");
	GCP_MUST(atomic_load(&pool->vmm_mapped) == sums->mapped + sums->lanes,
		 "vmm_mapped is not what is mapped");
	GCP_MUST(stats->lane_bytes.current == sums->lanes,
		 "lane_bytes is not the size of all lanes");
	GCP_MUST(pool->common.unused_bytes == sums->unused,
		 "unused segments are miscounted");
	return NULL;
}

static const char *pool_check(struct gcp_pool *pool)
{
	const struct gcp_lane *lane;
	struct gcp_heap *heap;
	struct sums sums = {0};
	uint64_t cached;
	const char *broken = heap_check(pool, &pool->common, &sums);

	GCP_MUST(!broken, broken);
	TAILQ_FOREACH (heap, &pool->private_heaps, link) {
		broken = heap_check(pool, heap, &sums);
		GCP_MUST(!broken, broken);
	}
	gcp_mutex_lock(&pool->pools->fence_lock);
	broken = timeline_check(&pool->timeline);
	gcp_mutex_unlock(&pool->pools->fence_lock);
	GCP_MUST(!broken, broken);
	broken = caches_check(pool, &cached);
	GCP_MUST(!broken, broken);
	GCP_MUST(cached == sums.cached, "M1: cached blocks are in no cache");
	TAILQ_FOREACH (lane, &pool->lanes, link)
		sums.lanes += lane->bytes;
	sums.reserved += sums.lanes;
	sums.private += sums.lanes;
	return stats_check(pool, &sums);
}

/* --- pinned memory: pinned_types.h ------------------------------------------------ */

struct pinned_checking {
	struct gcp_pinned *pinned;
	uint64_t blocks, bytes, held, held_bytes, unused, pending;
};

static const char *pinned_blocks_check(struct gcp_pinned_bucket *bucket,
				       struct pinned_checking *checking)
{
	struct gcp_pinned_block *block;
	uint64_t free = 0, listed = 0, waiting = 0;

	TAILQ_FOREACH (block, &bucket->blocks, all) {
		bool used = atomic_load(&block->state) == GCP_PINNED_USED;

		checking->blocks++;
		checking->bytes += bucket->size;
		checking->held += used;
		checking->held_bytes += used * bucket->size;
		free += atomic_load(&block->state) == GCP_PINNED_FREED && !block->set;
		GCP_MUST(gcp_map_find(checking->pinned->map,
				      (gcp_addr)(uintptr_t)block->p) == block,
			 "N1: the map does not find a pinned block");
	}
	TAILQ_FOREACH (block, &bucket->ready, link) {
		GCP_MUST(atomic_load(&block->state) == GCP_PINNED_FREED,
			 "N2: a pinned block is the program's and free at once");
		GCP_MUST(gcp_pinned_epoch_ready(bucket->pool, block->epoch),
			 "N3: a ready pinned block's epoch is not completed");
		GCP_MUST(!block->set, "N3: a kept block is in a bucket");
		listed++;
	}
	TAILQ_FOREACH (block, &bucket->pool->pinned_pending, link) {
		if (block->bucket != bucket)
			continue;
		GCP_MUST(atomic_load(&block->state) == GCP_PINNED_FREED,
			 "N2: a pinned block is the program's and free at once");
		GCP_MUST(!block->set, "N3: a kept block is in a bucket");
		checking->pending += bucket->size;
		waiting++;
	}
	listed += waiting;
	GCP_MUST(waiting == bucket->waiting,
		 "N4: waiting pinned blocks are miscounted");
	GCP_MUST(listed == free, "N3: a free pinned block is in no list");
	checking->unused += free * bucket->size;
	return NULL;
}

static const char *pinned_pool_check(struct gcp_pool *pool,
				     struct pinned_checking *checking)
{
	const char *broken = NULL;

	checking->pending = 0;
	for (struct gcp_pinned_bucket *bucket = pool->pinned_buckets; bucket && !broken;
	     bucket = bucket->older)
		broken = pinned_blocks_check(bucket, checking);
	GCP_MUST(!broken, broken);
	GCP_MUST(checking->pending == pool->pinned_pending_bytes,
		 "N4: pinned_pending_bytes is not what waits");
	return NULL;
}

static const char *pinned_check(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct pinned_checking checking = {.pinned = pinned};
	const struct gcp_pinned_stats *stats;
	const char *broken = NULL;

	if (!pinned)
		return NULL;
	stats = &pinned->stats;
	gcp_mutex_lock(&pinned->lock);
	for (struct gcp_pool *pool = pools->first; pool && !broken; pool = pool->next)
		broken = pinned_pool_check(pool, &checking);
	gcp_mutex_unlock(&pinned->lock);
	GCP_MUST(!broken, broken);
	GCP_MUST(checking.blocks == stats->allocations.current,
		 "N4: allocations is not the number of pinned blocks");
	GCP_MUST(checking.bytes == stats->allocated_bytes.current,
		 "N4: allocated_bytes is not what pinned blocks occupy");
	GCP_MUST(
	    checking.held == stats->active_requests.current,
	    "N4: active_requests is not the number of blocks that the program has");
	GCP_MUST(checking.held_bytes == stats->active_bytes.current,
		 "N4: active_bytes is not what the program has");
	GCP_MUST(checking.unused == pinned->unused,
		 "N4: unused is not what free pinned blocks occupy");
	return NULL;
}

/* --- all ---------------------------------------------------------------------- */

const char *gcp_pools_check(struct gcp_pools *pools)
{
	const char *broken = NULL;

	for (struct gcp_pool *pool = pools->first; pool && !broken; pool = pool->next) {
		gcp_pool_gather(pool);
		gcp_mutex_lock(&pools->vmm_lock);
		gcp_mutex_lock(&pools->registry_lock);
		gcp_mutex_lock(&pool->lock);
		broken = pool_check(pool);
		gcp_mutex_unlock(&pool->lock);
		gcp_mutex_unlock(&pools->registry_lock);
		gcp_mutex_unlock(&pools->vmm_lock);
	}
	return broken ? broken : pinned_check(pools);
}
