/*
 * state.c - checkpoint and restore of a private heap: which of its blocks are
 * live.
 *
 * A replayed graph writes its outputs where its capture had them, without
 * allocating. Before another capture may use the same heap its books must say
 * again what was live when that graph's capture ended. Nothing moves and no
 * driver function is called: only the books change.
 *
 * Segments and slabs of a private heap never go away while it lives, so every
 * block of a checkpoint can be put back where it was.
 */
#include "types.h"

#include <stdlib.h>

struct live_block {
	gcp_addr addr;
	uint64_t size, requested;
	uint16_t size_class;
};

struct gcp_heap_state {
	struct gcp_heap *heap;
	uint64_t heap_id;
	size_t count;
	struct live_block blocks[];
};

/* --- walking ------------------------------------------------------------------------
 */

typedef void block_visitor(struct gcp_heap *heap, struct gcp_block *block, void *arg);

static void visit_used(struct gcp_heap *heap, block_visitor *visit, void *arg)
{
	struct gcp_segment *segment;
	struct gcp_block *block, *upper;

	TAILQ_FOREACH (segment, &heap->segments, link) {
		for (block = segment->first; block; block = block->upper) {
			struct gcp_block *part =
			    atomic_load(&block->state) == GCP_BLOCK_RUN
				? block->slab->first
				: block;

			for (; part && (part->slab || part == block); part = upper) {
				upper = part->slab ? part->upper : NULL;
				if (atomic_load(&part->state) == GCP_BLOCK_USED)
					visit(heap, part, arg);
			}
		}
	}
}

static void count_one(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	(void)heap, (void)block;
	++*(size_t *)arg;
}

static void note_one(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct gcp_heap_state *state = arg;

	(void)heap;
	state->blocks[state->count++] = (struct live_block){
	    .addr = block->addr,
	    .size = block->size,
	    .requested = block->requested,
	    .size_class = block->size_class,
	};
}

int gcp_heap_checkpoint(struct gcp_heap *heap, struct gcp_heap_state **ret_state)
{
	struct gcp_heap_state *state;
	int saved = errno;
	size_t count = 0;

	pthread_mutex_lock(&heap->pool->lock);
	visit_used(heap, count_one, &count);
	state = calloc(1, sizeof(*state) + count * sizeof(state->blocks[0]));
	errno = saved;
	if (state) {
		state->heap = heap;
		state->heap_id = heap->id;
		visit_used(heap, note_one, state);
	}
	pthread_mutex_unlock(&heap->pool->lock);
	if (!state)
		return -ENOMEM;
	*ret_state = state;
	return 0;
}

void gcp_heap_state_destroy(struct gcp_heap_state *state)
{
	free(state);
}

/* --- restore
 * -------------------------------------------------------------------------- */

/* The heap's books as if the program had freed the block inside a capture. */
static void used_collect(struct gcp_heap *heap, struct gcp_block *block, void *arg)
{
	struct gcp_block_list *list = arg;

	atomic_store(&block->state, GCP_BLOCK_PENDING);
	TAILQ_INSERT_TAIL(list, block, link);
	heap->used_blocks--;
	heap->used_bytes -= block->size;
	gcp_tally_count(&heap->pool->tally, -1, block->requested, block->size);
}

static void free_everything(struct gcp_heap *heap)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_block *block;

	visit_used(heap, used_collect, &list);
	gcp_heap_collect(heap, &list);
	TAILQ_FOREACH (block, &list, link) {
		block->page = GCP_PAGE_NOW;
		block->recycled = GCP_RECYCLED_BEFORE;
	}
	gcp_heap_put_list(heap, &list);
}

/* Cannot fail: what was live fits where it was once all else is free. Only
 * memory for descriptors may be short; the block then stays larger. */
static void make_live(struct gcp_heap *heap, const struct live_block *live)
{
	struct gcp_block *block = gcp_heap_take_at(heap, live->addr, live->size);

	if (!block)
		return;
	block->requested = live->requested;
	if (block->size == live->size)
		block->size_class = live->size_class;
	heap->used_blocks++;
	heap->used_bytes += block->size;
	gcp_tally_count(&heap->pool->tally, 1, live->requested, block->size);
}

bool gcp_heap_state_fits(const struct gcp_heap *heap,
			 const struct gcp_heap_state *state)
{
	return state->heap == heap && state->heap_id == heap->id;
}

void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_heap_state *state)
{
	struct gcp_pool *pool = heap->pool;

	pthread_mutex_lock(&pool->lock);
	free_everything(heap);
	for (size_t i = 0; state && i < state->count; i++)
		make_live(heap, &state->blocks[i]);
	heap->last_free_page = gcp_pages_tag(pool);
	gcp_tally_hand_over(pool, &pool->tally);
	pthread_mutex_unlock(&pool->lock);
}
