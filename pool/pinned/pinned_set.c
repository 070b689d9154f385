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
 * that could use it is gone. pinned->lock guards pinned sets and what they hold.
 */
#include "pinned_types.h"

#include <stdlib.h>

int gcp_pinned_set_create(struct gcp_pools *pools, struct gcp_pinned_set **ret_set)
{
	int saved = errno;
	struct gcp_pinned_set *set = pools->pinned ? malloc(sizeof(*set)) : NULL;

	errno = saved;
	if (!set)
		return pools->pinned ? -ENOMEM : -ENOSYS;
	set->pinned = pools->pinned;
	LIST_INIT(&set->blocks);
	*ret_set = set;
	return 0;
}

void gcp_pinned_set_add(struct gcp_pinned_set *set, struct gcp_pinned_block *block)
{
	struct gcp_pinned *pinned = set->pinned;

	gcp_mutex_lock(&pinned->lock);
	LIST_INSERT_HEAD(&set->blocks, block, kept);
	atomic_store(&block->set, set);
	gcp_mutex_unlock(&pinned->lock);
	gcp_pinned_gauge_total(&pinned->private_bytes, block->size);
}

void gcp_pinned_set_detach(struct gcp_pinned_block *block)
{
	struct gcp_pinned_set *set = atomic_load(&block->set);

	gcp_assert_held(GCP_RANK_PINNED);
	if (!set)
		return;
	LIST_REMOVE(block, kept);
	gcp_pinned_gauge_sub(&set->pinned->private_bytes, block->size);
	/* From here on a free takes it, and its descriptor may be another block's. */
	atomic_store(&block->set, NULL);
}

bool gcp_pinned_set_put(struct gcp_pinned *pinned, struct gcp_pinned_block *block)
{
	bool kept;

	gcp_mutex_lock(&pinned->lock);
	kept = atomic_load(&block->set) != NULL;
	if (kept) {
		assert(block->rest == GCP_PINNED_IN_HAND);
		block->rest = GCP_PINNED_IN_SET;
		gcp_pinned_bucket_count_given(block);
	}
	gcp_mutex_unlock(&pinned->lock);
	return kept;
}

void gcp_pinned_set_release(struct gcp_pinned_set *set)
{
	struct gcp_pinned_list list = TAILQ_HEAD_INITIALIZER(list);
	struct gcp_pinned_block *block;

	if (!set)
		return;
	gcp_mutex_lock(&set->pinned->lock);
	/* Launches may be under way, and work that the program submitted itself may
	 * still use what it has freed. */
	uint64_t epoch = gcp_pinned_timeline_stamp(set->pinned);
	while ((block = LIST_FIRST(&set->blocks))) {
		bool kept = block->rest == GCP_PINNED_IN_SET;

		gcp_pinned_set_detach(block);
		if (!kept)
			continue; /* the program's: it follows when freed */
		block->rest = GCP_PINNED_IN_HAND;
		block->epoch = epoch;
		TAILQ_INSERT_TAIL(&list, block, link);
	}
	gcp_mutex_unlock(&set->pinned->lock);
	while ((block = TAILQ_FIRST(&list))) {
		TAILQ_REMOVE(&list, block, link);
		(void)gcp_pinned_timeline_count(set->pinned, block->size);
		gcp_pinned_bucket_put(block);
	}
	free(set);
}
