/* SPDX-License-Identifier: MIT */
/*
 * check.c - checks the invariants that pool_types.h numbers; for tests.
 *
 * Each check gives NULL or a sentence that names what is broken. Takes the
 * locks itself; while threads allocate and free, only C1 and the lists are
 * meaningful at any moment, so tests call it when they are at rest.
 */
#include "cache.h"
#include "vmm.h"

#define MUST(condition, sentence)                                                      \
	do {                                                                           \
		if (!(condition))                                                      \
			return sentence;                                               \
	} while (0)

struct sums {
	uint64_t used, cached, pending, listed, free, holes, unmapping;
	uint64_t used_blocks;
	uint64_t pending_runs; /* of pending, those of slabs: nobody had them */
	uint64_t segments, unused;
	uint64_t reserved, private;
};

static uint64_t *sum_of(struct sums *sums, enum gcp_block_state state)
{
	switch (state) {
	case GCP_BLOCK_USED:
		sums->used_blocks++;
		return &sums->used;
	case GCP_BLOCK_CACHED:
		return &sums->cached;
	case GCP_BLOCK_PENDING:
		return &sums->pending;
	case GCP_BLOCK_LISTED:
		return &sums->listed;
	case GCP_BLOCK_FREE:
		return &sums->free;
	case GCP_BLOCK_HOLE:
		return &sums->holes;
	case GCP_BLOCK_UNMAPPING:
		return &sums->unmapping;
	case GCP_BLOCK_MOVING: /* never while nobody holds vmm_lock */
	case GCP_BLOCK_RELEASED:
	case GCP_BLOCK_RUN:
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

	MUST(block->addr % GCP_UNIT == 0 && block->size % GCP_UNIT == 0 &&
		 block->size > 0,
	     "B1: a block is not a whole number of units");
	MUST(sum, "a block is in a state that it cannot be in");
	MUST(gcp_map_find(pool->pools->map, block->addr) == block,
	     "B2: the map does not find a block at its address");
	MUST(!block->upper || block->upper->addr == block->addr + block->size,
	     "B3: neighbours do not touch");
	MUST(!block->upper || block->upper->lower == block,
	     "B3: a neighbour looks elsewhere");
	if (state == GCP_BLOCK_FREE) {
		MUST(!block->upper ||
			 atomic_load(&block->upper->state) != GCP_BLOCK_FREE,
		     "B4: two free neighbours are not merged");
		MUST(gcp_epoch_ready(pool, block->epoch),
		     "B5: a free block is not ready");
	}
	*sum += block->size;
	if (state == GCP_BLOCK_FREE && !heap_is_private(block))
		sums->unused += gcp_block_unused(block);
	if (state == GCP_BLOCK_PENDING && block->size_class == GCP_CLASS_RUN)
		sums->pending_runs += block->size;
	return NULL;
}

static const char *slab_check(struct gcp_pool *pool, struct gcp_slab *slab,
			      struct sums *sums)
{
	uint64_t before = sums->listed, end = slab->run->addr;
	uint32_t total = 0;

	for (struct gcp_block *block = slab->first; block; block = block->upper) {
		const char *broken = block_check(pool, block, sums);

		MUST(!broken, broken);
		MUST(block->slab == slab, "L1: a block belongs to another slab");
		end = block->addr + block->size;
		total++;
	}
	MUST(total == slab->total, "L1: a slab has lost a block");
	MUST(sums->listed - before == slab->listed * slab->first->size,
	     "L1: a slab miscounts its listed blocks");
	MUST(end <= slab->run->addr + slab->run->size, "L1: a slab runs over its end");
	/* What no block covers is nobody's, and stays free. */
	sums->free += slab->run->addr + slab->run->size - end;
	return NULL;
}

static const char *hole_check(const struct gcp_block *hole)
{
	const struct gcp_block *upper = hole->upper;

	MUST(hole->segment->chunks, "B6: a hole in a segment that is not mapped");
	MUST(hole->addr % GCP_CHUNK == 0 && hole->size % GCP_CHUNK == 0,
	     "B6: a hole is not made of whole chunks");
	MUST(!upper || atomic_load(&upper->state) != GCP_BLOCK_HOLE,
	     "B6: two holes are not merged");
	return NULL;
}

/* Walks blocks and chunks side by side. */
static const char *chunks_check(const struct gcp_segment *segment)
{
	const struct gcp_block *block = segment->first;

	for (uint64_t i = 0; i < segment->size / GCP_CHUNK; i++) {
		gcp_addr addr = segment->addr + i * GCP_CHUNK;

		while (block->addr + block->size <= addr)
			block = block->upper;
		enum gcp_block_state state = atomic_load(&block->state);
		MUST(state == GCP_BLOCK_UNMAPPING ||
			 (state == GCP_BLOCK_HOLE) == (segment->chunks[i] == 0),
		     "S3: a chunk and its handle disagree");
		MUST(segment->chunks[i] != GCP_CHUNK_MOVED ||
			 state == GCP_BLOCK_UNMAPPING,
		     "S3: a chunk has left, and its block has not");
	}
	return NULL;
}

static const char *segment_check(struct gcp_pool *pool, struct gcp_segment *segment,
				 struct sums *sums)
{
	uint64_t at = segment->addr, unmapped = sums->holes + sums->unmapping;

	for (struct gcp_block *block = segment->first; block; block = block->upper) {
		const char *broken;

		MUST(block->addr == at, "S1: blocks do not cover their segment");
		MUST(block->segment == segment, "S1: a block names another segment");
		at += block->size;
		if (atomic_load(&block->state) == GCP_BLOCK_RUN)
			broken = slab_check(pool, block->slab, sums);
		else
			broken = block_check(pool, block, sums);
		MUST(!broken, broken);
		if (atomic_load(&block->state) == GCP_BLOCK_HOLE)
			broken = hole_check(block);
		MUST(!broken, broken);
	}
	MUST(at == segment->addr + segment->size,
	     "S1: blocks do not fill their segment");
	MUST(segment->mapped ==
		 segment->size - (sums->holes + sums->unmapping - unmapped),
	     "S2: mapped bytes are miscounted");
	return segment->chunks ? chunks_check(segment) : NULL;
}

static const char *heap_check(struct gcp_pool *pool, struct gcp_heap *heap,
			      struct sums *total)
{
	struct gcp_segment *segment;
	struct gcp_block *block;
	struct sums sums = {0};
	uint64_t reserved = 0, waiting = 0, holes = 0, unmapping = 0;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		const char *broken = segment_check(pool, segment, &sums);

		MUST(!broken, broken);
		MUST(atomic_load(&segment->heap) == heap,
		     "H1: a segment names another heap");
		reserved += segment->mapped;
		total->segments++;
	}
	MUST(reserved == heap->reserved_bytes, "H1: reserved bytes are miscounted");
	for (int kind = 0; kind < GCP_KINDS; kind++)
		MUST(gcp_tree_is_sound(heap, kind),
		     "B7: a tree of free blocks does not know the largest, or its "
		     "order");
	MUST(sums.used + sums.cached + sums.pending + sums.listed + sums.free ==
		 reserved,
	     "H2: bytes are lost or counted twice");
	TAILQ_FOREACH (block, &heap->holes, link)
		holes += block->size;
	MUST(holes == sums.holes, "B6: a hole is in no list");
	TAILQ_FOREACH (block, &heap->unmapping, link)
		unmapping += block->size;
	MUST(unmapping == sums.unmapping, "an unmapping block is in no list");
	TAILQ_FOREACH (block, &heap->pending, link) {
		struct gcp_block *next = TAILQ_NEXT(block, link);

		MUST(!next || next->epoch >= block->epoch,
		     "H3: a younger epoch stands before an older one");
		waiting += block->size;
	}
	MUST(waiting == heap->pending_bytes, "pending bytes are miscounted");
	MUST(!heap->private || heap->used_bytes == sums.used,
	     "a private heap miscounts what the program holds");
	total->unused += sums.unused;
	total->reserved += reserved;
	total->private += heap->private ? reserved : 0;
	total->pending += sums.pending;
	total->pending_runs += sums.pending_runs;
	total->used += sums.used;
	total->used_blocks += sums.used_blocks;
	total->cached += sums.cached;
	return NULL;
}

static const char *timeline_check(struct gcp_pool *pool)
{
	struct gcp_timeline *timeline = &pool->timeline;
	uint64_t completed = atomic_load(&timeline->completed),
		 ready = atomic_load(&timeline->ready);
	uint64_t last = completed;

	MUST(completed <= ready, "F1: a completed epoch is not ready");
	MUST(ready < atomic_load(&timeline->open), "F1: the open epoch is ready");
	for (uint32_t i = 0; i < timeline->count; i++) {
		uint64_t epoch =
		    timeline->queue[(timeline->head + i) % GCP_FENCE_QUEUE].epoch;

		MUST(epoch > last, "F2: closed epochs are out of order");
		last = epoch;
	}
	MUST(last < atomic_load(&timeline->open), "F2: the open epoch is closed");
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
			MUST(chain_bytes(first, first->batch.count, &found),
			     "C2: a batch is not as long as it says");
	}
	MUST(found == atomic_load(&pool->depot_bytes),
	     "a pool miscounts the bytes in its depots");
	*bytes += (uint64_t)found;
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

			MUST(chain_bytes(magazine->loaded, magazine->loaded_count,
					 &bytes) &&
				 chain_bytes(magazine->previous,
					     magazine->previous_count, &bytes),
			     "C2: a magazine miscounts its blocks");
		}
		MUST(bytes == cache->held - cache->delta.net[GCP_STATS_LEVEL_ALLOCATED],
		     "C1: a cache miscounts its bytes");
		for (int i = 0; i < GCP_STATS_LEVELS; i++)
			MUST(cache->delta.net[i] <= cache->delta.high[i],
			     "T1: a thread has missed a peak");
		*ret_bytes += (uint64_t)bytes;
	}
	return depots_check(pool, ret_bytes);
}

/* The statistics against what is there; held: used, cached or pending. */
static const char *stats_check(struct gcp_pool *pool, const struct sums *sums)
{
	const struct gcp_stats *stats = &pool->stats;
	uint64_t held = sums->used + sums->cached + sums->pending;

	MUST(stats->allocated_bytes.current == sums->used,
	     "allocated_bytes is not what the program holds");
	MUST(stats->allocation.current == sums->used_blocks,
	     "allocation is not the number of blocks that the program holds");
	MUST(stats->active_bytes.current == held - sums->pending_runs,
	     "active_bytes is not what is held or waits for its epoch");
	MUST(stats->segment.current == sums->segments, "segments are miscounted");
	MUST(stats->reserved_bytes.current == sums->reserved,
	     "reserved_bytes is not the size of all segments");
	MUST(stats->private_bytes.current == sums->private,
	     "private_bytes is not the size of private segments");
	MUST(pool->unused_bytes == sums->unused, "unused segments are miscounted");
	return NULL;
}

static const char *pool_check(struct gcp_pool *pool)
{
	struct gcp_heap *heap;
	struct sums sums = {0};
	uint64_t cached;
	const char *broken = heap_check(pool, &pool->common, &sums);

	MUST(!broken, broken);
	TAILQ_FOREACH (heap, &pool->private_heaps, link) {
		broken = heap_check(pool, heap, &sums);
		MUST(!broken, broken);
	}
	broken = timeline_check(pool);
	MUST(!broken, broken);
	broken = caches_check(pool, &cached);
	MUST(!broken, broken);
	MUST(cached == sums.cached, "C1: cached blocks are in no cache");
	return stats_check(pool, &sums);
}

const char *gcp_pools_check(struct gcp_pools *pools)
{
	const char *broken = NULL;

	for (struct gcp_pool *pool = pools->first; pool && !broken; pool = pool->next) {
		(void)gcp_pool_allocated(pool); /* gathers the threads' counts */
		pthread_mutex_lock(&pools->vmm_lock);
		pthread_mutex_lock(&pools->registry_lock);
		pthread_mutex_lock(&pool->lock);
		broken = pool_check(pool);
		pthread_mutex_unlock(&pool->lock);
		pthread_mutex_unlock(&pools->registry_lock);
		pthread_mutex_unlock(&pools->vmm_lock);
	}
	return broken ? broken : gcp_pinned_check(pools);
}
