/* SPDX-License-Identifier: MIT */
/*
 * heap.c - segments, and the free blocks in them: fit, split, merge.
 *
 * Called with pool->lock held. Never calls the driver.
 *
 * A freed block first waits in `pending` (it has no owner, but its epoch is not
 * ready). When the epoch is ready it is coalesced: it merges with free neighbours
 * and goes into the tree of its kind. So everything in a tree is ready, and a
 * merged block carries the youngest epoch of its parts: it is as weak as its
 * weakest part.
 *
 *      USED --free--> PENDING --epoch ready--> FREE --lowest fit, split--> USED
 *
 * Blocks of slab classes go through slab.c instead of `pending`.
 */
#include "cache.h"
#include "vmm.h"

void gcp_heap_init(struct gcp_heap *heap, struct gcp_pool *pool,
		   struct gcp_class_list *classes, bool private)
{
	*heap = (struct gcp_heap){
	    .pool = pool,
	    .private = private,
	    .reuse = GCP_REUSE_FENCED,
	    .classes = classes,
	};
	TAILQ_INIT(&heap->segments);
	TAILQ_INIT(&heap->pending);
	TAILQ_INIT(&heap->deferred);
	TAILQ_INIT(&heap->unmapping);
	for (uint32_t i = 0; i < pool->pools->classes.slab_count; i++)
		TAILQ_INIT(&classes[i].list);
}

enum gcp_kind gcp_heap_kind(const struct gcp_pool *pool, uint64_t size)
{
	const struct gcp_classes *classes = &pool->pools->classes;

	if (classes->slab_count > 0 && size <= classes->sizes[classes->slab_count - 1])
		return GCP_KIND_SLAB;
	if (pool->vmm)
		return GCP_KIND_LARGE;
	return size <= pool->pools->config.split_limit ? GCP_KIND_LARGE : GCP_KIND_HUGE;
}

/* --- merging and splitting ---------------------------------------------------------
 */

void gcp_block_coalesce(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_pools *pools = heap->pool->pools;

	block->size_class = GCP_CLASS_NONE;
	block->stream = 0;
	if (gcp_block_is_free(block->upper)) {
		gcp_tree_remove(heap, block->upper);
		gcp_block_coalesce_upper(pools, block, block->upper);
	}
	if (gcp_block_is_free(block->lower)) {
		struct gcp_block *lower = block->lower;

		gcp_tree_remove(heap, lower);
		gcp_block_coalesce_upper(pools, lower, block);
		block = lower;
	}
	gcp_tree_insert(heap, block);
}

/* Cuts `block`, which is in no tree, so that it has `size`; the rest is free.
 * Without memory for a descriptor the block stays whole: larger, never wrong. */
static void block_split(struct gcp_heap *heap, struct gcp_block *block, uint64_t size)
{
	struct gcp_block *rest =
	    block->size == size ? NULL : gcp_block_cut(block, size);

	if (rest)
		gcp_tree_insert(heap, rest);
}

/* --- taking and putting ----------------------------------------------------------- */

/* A huge block is never split: it serves only what nearly fills it. The driver's
 * granularity is never too much, or a new one would not do. */
static struct gcp_block *huge_fit(struct gcp_heap *heap, uint64_t size)
{
	struct gcp_block *block = gcp_tree_lowest_fit(heap, GCP_KIND_HUGE, size);
	struct gcp_block *best = block;

	for (; block; block = gcp_tree_next_fit(block, size))
		if (block->size < best->size)
			best = block;
	if (best && best->size - size >= GCP_CHUNK &&
	    (best->size - size > size / 8 || gcp_pool_is_exact(heap->pool, size)))
		return NULL;
	return best;
}

/* What was taken is missing; what was only cut off it is back. */
static void unused_low_update(struct gcp_heap *heap)
{
	if (heap->unused_low > heap->unused_bytes)
		heap->unused_low = heap->unused_bytes;
}

struct gcp_block *gcp_heap_take_run(struct gcp_heap *heap, uint64_t bytes)
{
	struct gcp_block *block = gcp_tree_lowest_fit(heap, GCP_KIND_SLAB, bytes);

	gcp_assert_held(GCP_RANK_POOL);
	if (!block)
		return NULL;
	gcp_tree_remove(heap, block);
	block_split(heap, block, bytes);
	unused_low_update(heap);
	return block;
}

static bool is_no_ones(const struct gcp_block *block)
{
	return atomic_load(&block->state) != GCP_BLOCK_USED;
}

/* Whether the program has nothing else in the block's segment. */
static bool is_segment_idle_soon(const struct gcp_block *block)
{
	const struct gcp_block *lower = block->lower, *upper = block->upper;

	while (lower && is_no_ones(lower))
		lower = lower->lower;
	while (upper && is_no_ones(upper))
		upper = upper->upper;
	return !lower && !upper;
}

/* Whether an idle segment would be cut for a block though the device may need the rest
 * of it elsewhere: it goes back, and a segment of the right size comes instead. One
 * that has just come is the right one. */
static bool is_too_large(const struct gcp_heap *heap, const struct gcp_block *block,
			 uint64_t size)
{
	uint64_t all = block->segment->size;
	bool wasted = gcp_pool_is_exact(heap->pool, size)
			  ? all - size >= GCP_CHUNK
			  : gcp_pool_is_tight(heap->pool) && all % size > all / 16;

	return wasted && block->epoch != GCP_EPOCH_FRESH && !heap->private &&
	       !heap->pool->vmm && is_segment_idle_soon(block);
}

/* Whether an idle segment that was made for blocks of the classes is kept from
 * one so large that the rest of it could not hold another: on a full device what is
 * left over would be missing. */
static bool is_reserved_for_classes(const struct gcp_heap *heap,
				    const struct gcp_block *block, uint64_t size)
{
	return block->segment->classed && !heap->private &&
	       size > heap->pool->pools->classes.largest &&
	       gcp_block_is_segment(block) && block->size % size > block->size / 8;
}

static struct gcp_block *take_unclassed(struct gcp_heap *heap, uint64_t size,
					uint32_t size_class)
{
	struct gcp_block *block = NULL;

	if (gcp_heap_kind(heap->pool, size) == GCP_KIND_HUGE)
		block = huge_fit(heap, size);
	if (!block)
		block = gcp_tree_lowest_fit(heap, GCP_KIND_LARGE, size);
	while (block && (is_reserved_for_classes(heap, block, size) ||
			 is_too_large(heap, block, size)))
		block = gcp_tree_next_fit(block, size);
	if (!block)
		return NULL;
	gcp_tree_remove(heap, block);
	if (gcp_block_is_segment(block))
		block->segment->classed = size <= heap->pool->pools->classes.largest &&
					  !block->segment->chunks;
	if (block->segment->kind != GCP_KIND_HUGE)
		block_split(heap, block, size);
	unused_low_update(heap);
	/* A block that could not be split is too large for its class. */
	block->size_class = block->size == size ? (uint16_t)size_class : GCP_CLASS_NONE;
	return block;
}

/* A block of just this size among the longest freed: programs that repeat
 * themselves need no merging and splitting. */
static struct gcp_block *take_repeated(struct gcp_heap *heap, uint64_t size,
				       uint32_t size_class)
{
	struct gcp_block *block = TAILQ_FIRST(&heap->pending);

	for (int i = 0; i < 4 && block; i++, block = TAILQ_NEXT(block, link)) {
		if (!gcp_epoch_ready(heap->pool, block->epoch))
			return NULL;
		if (block->size != size || block->size_class != size_class)
			continue;
		TAILQ_REMOVE(&heap->pending, block, link);
		heap->pending_bytes -= block->size;
		/* It was active all the time. */
		gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
		return block;
	}
	return NULL;
}

struct gcp_block *gcp_heap_take(struct gcp_heap *heap, uint64_t size,
				uint32_t size_class)
{
	struct gcp_block *block = take_repeated(heap, size, size_class);

	gcp_assert_held(GCP_RANK_POOL);
	if (!block)
		gcp_heap_advance(heap);
	if (block)
		;
	else if (size_class < heap->pool->pools->classes.slab_count)
		block = gcp_slab_take(heap, size_class);
	else
		block = take_unclassed(heap, size, size_class);
	if (!block)
		return NULL;
	block->stream = 0;
	gcp_block_set_state(block, GCP_BLOCK_USED);
	gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
	return block;
}

/* The free block of this heap that holds all of [addr, addr + size). */
static struct gcp_block *free_block_over(struct gcp_heap *heap, gcp_addr addr,
					 uint64_t size)
{
	struct gcp_segment *segment;
	struct gcp_block *block;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		if (addr < segment->addr || addr >= segment->addr + segment->size)
			continue;
		block = gcp_map_find_below(heap->pool->pools->map, addr, segment->addr);
		return gcp_block_is_free(block) &&
			       addr + size <= block->addr + block->size
			   ? block
			   : NULL;
	}
	return NULL;
}

static struct gcp_block *take_slab_block_at(struct gcp_heap *heap, gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(heap->pool->pools->map, addr);

	if (!block || !block->slab || atomic_load(&block->state) != GCP_BLOCK_LISTED)
		return NULL;
	gcp_slab_take_block(heap, block);
	return block;
}

struct gcp_block *gcp_heap_take_at(struct gcp_heap *heap, gcp_addr addr, uint64_t size)
{
	struct gcp_block *block = take_slab_block_at(heap, addr);

	gcp_assert_held(GCP_RANK_POOL);
	if (!block) {
		block = free_block_over(heap, addr, size);
		if (!block)
			return NULL;
		gcp_tree_remove(heap, block);
		if (block->addr < addr) { /* leave what lies below free */
			struct gcp_block *below = block;

			block_split(heap, below, addr - below->addr);
			block = below->upper;
			gcp_tree_insert(heap, below);
			if (!block || block->addr != addr)
				return NULL; /* no memory for a descriptor */
			gcp_tree_remove(heap, block);
		}
		block_split(heap, block, size);
	}
	gcp_block_set_state(block, GCP_BLOCK_USED);
	gcp_gauge_add(&heap->pool->stats.active_bytes, (int64_t)block->size);
	return block;
}

static void block_wait(struct gcp_heap *heap, struct gcp_block *block)
{
	struct gcp_block *older = TAILQ_LAST(&heap->pending, gcp_block_list);

	gcp_block_set_state(block, GCP_BLOCK_PENDING);
	/* What comes from a thread's cache may have waited there for long. */
	while (older && older->epoch > block->epoch)
		older = TAILQ_PREV(older, gcp_block_list, link);
	if (older)
		TAILQ_INSERT_AFTER(&heap->pending, older, block, link);
	else
		TAILQ_INSERT_HEAD(&heap->pending, block, link);
	heap->pending_bytes += block->size;
}

/* A block that was active has become ready. A run is not active: its blocks
 * stopped being so when they came back. */
static void block_ready(struct gcp_heap *heap, struct gcp_block *block)
{
	if (block->size_class != GCP_CLASS_RUN)
		gcp_gauge_add(&heap->pool->stats.active_bytes, -(int64_t)block->size);
	gcp_block_coalesce(heap, block);
}

void gcp_heap_put(struct gcp_heap *heap, struct gcp_block *block)
{
	gcp_assert_held(GCP_RANK_POOL);
	if (block->slab)
		gcp_slab_put(heap, block);
	else if (gcp_epoch_ready(heap->pool, block->epoch))
		block_ready(heap, block);
	else
		block_wait(heap, block);
}

void gcp_heap_put_run(struct gcp_heap *heap, struct gcp_block *run)
{
	run->size_class = GCP_CLASS_RUN;
	gcp_heap_put(heap, run);
}

void gcp_heap_put_list(struct gcp_heap *heap, struct gcp_block_list *list)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	while ((block = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, block, link);
		gcp_heap_put(heap, block);
	}
}

void gcp_heap_put_chain(struct gcp_heap *heap, const struct gcp_chain *chain)
{
	struct gcp_block *block = chain->first;

	gcp_assert_held(GCP_RANK_POOL);
	while (block) {
		struct gcp_block *next = block->next;

		gcp_heap_put(heap, block);
		block = next;
	}
}

void gcp_heap_collect(struct gcp_heap *heap, struct gcp_block_list *list)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	TAILQ_CONCAT(list, &heap->deferred, link);
	TAILQ_CONCAT(list, &heap->pending, link);
	heap->pending_bytes = 0;
	gcp_slab_collect(heap, list);
	for (int kind = 0; kind < GCP_KINDS; kind++) {
		while ((block = gcp_tree_lowest_fit(heap, kind, GCP_UNIT))) {
			gcp_tree_remove(heap, block);
			gcp_block_set_state(block, GCP_BLOCK_PENDING);
			gcp_gauge_add(&heap->pool->stats.active_bytes,
				      (int64_t)block->size);
			TAILQ_INSERT_TAIL(list, block, link);
		}
	}
}

void gcp_heap_advance(struct gcp_heap *heap)
{
	struct gcp_block *block;

	gcp_assert_held(GCP_RANK_POOL);
	while ((block = TAILQ_FIRST(&heap->pending)) &&
	       gcp_epoch_ready(heap->pool, block->epoch)) {
		TAILQ_REMOVE(&heap->pending, block, link);
		heap->pending_bytes -= block->size;
		block_ready(heap, block);
	}
}

static bool block_will_be_free(const struct gcp_block *block)
{
	enum gcp_block_state state = atomic_load(&block->state);

	return state == GCP_BLOCK_FREE || state == GCP_BLOCK_PENDING;
}

/* The epoch that would have to be ready for `block` and what it then merges
 * with to serve `size`; 0 if even that is too small. */
static uint64_t span_epoch(const struct gcp_block *block, uint64_t size)
{
	uint64_t bytes = block->size, epoch = block->epoch;
	const struct gcp_block *other;

	for (other = block->lower; other && bytes < size && block_will_be_free(other);
	     other = other->lower) {
		bytes += other->size;
		epoch = other->epoch > epoch ? other->epoch : epoch;
	}
	for (other = block->upper; other && bytes < size && block_will_be_free(other);
	     other = other->upper) {
		bytes += other->size;
		epoch = other->epoch > epoch ? other->epoch : epoch;
	}
	return bytes >= size ? epoch : 0;
}

uint64_t gcp_heap_fitting_epoch(struct gcp_heap *heap, uint64_t size,
				uint32_t size_class)
{
	enum gcp_kind kind = gcp_heap_kind(heap->pool, size);
	struct gcp_block *block;
	uint64_t oldest = 0;

	gcp_assert_held(GCP_RANK_POOL);
	if (size_class < heap->pool->pools->classes.slab_count) {
		block = TAILQ_FIRST(&heap->classes[size_class].list);
		return block ? block->epoch : 0;
	}
	TAILQ_FOREACH (block, &heap->pending, link) {
		uint64_t epoch = 0;

		if (oldest && block->epoch >= oldest)
			break;
		if (block->segment->kind == kind ||
		    (kind == GCP_KIND_HUGE && block->segment->kind == GCP_KIND_LARGE))
			epoch = span_epoch(block, size);
		if (epoch && (!oldest || epoch < oldest))
			oldest = epoch;
	}
	return oldest;
}

uint64_t gcp_heap_largest_free(struct gcp_heap *heap)
{
	uint64_t largest = 0;

	for (int kind = 0; kind < GCP_KINDS; kind++) {
		uint64_t bytes = gcp_tree_largest(heap, kind);

		if (bytes > largest)
			largest = bytes;
	}
	return largest;
}
