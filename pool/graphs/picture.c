/* SPDX-License-Identifier: MIT */
/*
 * picture.c - the blocks of a private heap as they are at a moment, copied for people
 * to look at.
 */
#include "../pool_types.h"

#include <stdlib.h>

/* A copy that grows; `failed`: memory is out. */
struct picture {
	struct gcp_block_picture *blocks;
	size_t count, room;
	bool failed;
};

static enum gcp_picture_state state_of(const struct gcp_block *block)
{
	switch (atomic_load(&block->state)) {
	case GCP_BLOCK_USED:
	case GCP_BLOCK_EXPORTED:
		return GCP_PICTURE_HELD;
	case GCP_BLOCK_LENT:
		return GCP_PICTURE_PENDING;
	case GCP_BLOCK_PENDING:
		return block->group >= GCP_GROUP_FIRST ? GCP_PICTURE_FREED_IN_CAPTURE
						       : GCP_PICTURE_PENDING;
	case GCP_BLOCK_UNMAPPING:
		return GCP_PICTURE_LANE;
	default:
		return block->group == GCP_GROUP_FRESH ? GCP_PICTURE_FRESH
						       : GCP_PICTURE_FREE;
	}
}

/* What is lent has what was asked for in its place. */
static uint64_t group_of(const struct gcp_block *block, enum gcp_picture_state state)
{
	if (atomic_load(&block->state) == GCP_BLOCK_LENT)
		return GCP_GROUP_PAST;
	return state == GCP_PICTURE_HELD ? 0 : block->group;
}

static void block_add(struct picture *picture, const struct gcp_block *block)
{
	struct gcp_block_picture *more = picture->blocks;
	enum gcp_picture_state state = state_of(block);

	if (picture->count == picture->room) {
		picture->room = picture->room ? 2 * picture->room : 64;
		more = realloc(more, picture->room * sizeof(*more));
		if (!more) {
			picture->failed = true;
			return;
		}
		picture->blocks = more;
	}
	more[picture->count++] = (struct gcp_block_picture){
	    .device = block->segment->pool->device,
	    .segment = block->segment->addr,
	    .segment_size = block->segment->size,
	    .addr = block->addr,
	    .size = block->size,
	    .requested = state == GCP_PICTURE_HELD ? block->requested : 0,
	    .group = group_of(block, state),
	    .state = state,
	};
}

/* A block, or those that it was cut into. */
static void run_add(struct picture *picture, const struct gcp_block *block)
{
	if (atomic_load(&block->state) != GCP_BLOCK_RUN) {
		block_add(picture, block);
		return;
	}
	for (block = block->slab->first; block && !picture->failed;
	     block = block->upper)
		block_add(picture, block);
}

int gcp_heap_picture(struct gcp_heap *heap, struct gcp_block_picture **ret_blocks,
		     size_t *ret_count)
{
	const struct gcp_segment *segment;
	struct picture picture = {0};
	int saved = errno;

	gcp_mutex_lock(&heap->pool->lock);
	TAILQ_FOREACH (segment, &heap->segments, link)
		for (const struct gcp_block *block = segment->first;
		     block && !picture.failed; block = block->upper)
			run_add(&picture, block);
	gcp_mutex_unlock(&heap->pool->lock);
	errno = saved;
	if (picture.failed) {
		free(picture.blocks);
		return -ENOMEM;
	}
	*ret_blocks = picture.blocks;
	*ret_count = picture.count;
	return 0;
}
