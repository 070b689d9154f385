/* SPDX-License-Identifier: MIT */
/*
 * pinned_set.c - pinned sets: blocks that captured graphs can address.
 *
 * A copy that was captured reads its pinned block at every launch of the graph, and
 * the program fills the block before each launch, by host code that no capture sees.
 * So the order of a graph proves nothing here: a block that was given out with a
 * pinned set is given out to no other request while the pinned set lives, not even to
 * the same capture.
 *
 * capture/ has one pinned set for each graph pool, and releases it when the last graph
 * that could use it is gone.
 */
#include "pinned_types.h"

#include <stdlib.h>

int gcp_pinned_set_create(struct gcp_pools *pools, struct gcp_pinned_set **ret_set)
{
	GCP_KEEP_ERRNO;
	struct gcp_pinned_set *set = pools->pinned ? malloc(sizeof(*set)) : NULL;

	if (!set)
		return pools->pinned ? -ENOMEM : -ENOSYS;
	set->pinned = pools->pinned;
	LIST_INIT(&set->blocks);
	*ret_set = set;
	return 0;
}

bool gcp_pinned_set_is_away(struct gcp_pinned_set *set, const void *ctx,
			    const void *home)
{
	const struct gcp_pinned_block *block;
	bool away = false;

	GCP_LOCKED(&set->pinned->lock);
	LIST_FOREACH (block, &set->blocks, kept) {
		const void *own = block->bucket->pool->ctx;

		away |= own != ctx && own != home;
	}
	return away;
}

void gcp_pinned_set_release(struct gcp_pinned_set *set)
{
	struct gcp_pinned_block *block;

	if (!set)
		return;
	gcp_mutex_lock(&set->pinned->lock);
	/* Launches may be under way, and work that the program submitted itself may
	 * still use what it has freed. What the program has follows when freed. */
	while ((block = LIST_FIRST(&set->blocks))) {
		gcp_pinned_block_detach(block);
		if (atomic_load(&block->state) == GCP_PINNED_FREED)
			gcp_pinned_block_put(block);
	}
	gcp_mutex_unlock(&set->pinned->lock);
	free(set);
}
