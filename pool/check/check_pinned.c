/* SPDX-License-Identifier: MIT */
/*
 * check_pinned.c - checks the invariants of pinned memory, which pinned_types.h
 * numbers. See check.h.
 */
#include "../pinned_types.h"
#include "check.h"

static const char *blocks_check(struct gcp_pinned *pinned,
				struct gcp_pinned_bucket *bucket, uint32_t *ret_resting)
{
	struct gcp_pinned_block *block;
	uint64_t count = 0, held = 0;

	TAILQ_FOREACH (block, &bucket->blocks, all) {
		bool used = atomic_load(&block->state) == GCP_PINNED_USED;

		count++;
		held += used;
		*ret_resting += block->rest == GCP_PINNED_IN_BUCKET;
		GCP_MUST(gcp_pinned_block_find(pinned, block->p) == block,
			 "N1: the map does not find a pinned block");
		GCP_MUST(!used || block->rest == GCP_PINNED_IN_HAND,
			 "N2: a pinned block is the program's and free at once");
		GCP_MUST(block->rest != GCP_PINNED_IN_BUCKET ||
			     !atomic_load(&block->set),
			 "N3: a kept block is in a bucket");
	}
	GCP_MUST(count == bucket->count, "N3: a bucket miscounts its blocks");
	GCP_MUST(held == bucket->taken - bucket->given,
		 "N4: a bucket miscounts what the program holds");
	return NULL;
}

static const char *bucket_check(struct gcp_pinned *pinned,
				struct gcp_pinned_bucket *bucket)
{
	struct gcp_pinned_block *block;
	uint32_t resting = 0, listed = 0;
	const char *broken = blocks_check(pinned, bucket, &resting);

	GCP_MUST(!broken, broken);
	TAILQ_FOREACH (block, &bucket->ready, link) {
		GCP_MUST(gcp_pinned_epoch_ready(bucket->arena->pool, block->epoch),
			 "N3: a ready pinned block's epoch is not completed");
		listed++;
	}
	TAILQ_FOREACH (block, &bucket->pending, link)
		listed++;
	GCP_MUST(listed == resting, "N3: a free pinned block is in no list");
	return NULL;
}

struct checking {
	struct gcp_pinned *pinned;
	uint64_t blocks, bytes, held, held_bytes;
	const char *broken;
};

static void check_one(struct gcp_pinned_bucket *bucket, void *arg)
{
	struct checking *checking = arg;

	gcp_spin_lock(&bucket->lock);
	if (!checking->broken)
		checking->broken = bucket_check(checking->pinned, bucket);
	checking->blocks += bucket->count;
	checking->bytes += bucket->count * bucket->size;
	checking->held += bucket->taken - bucket->given;
	checking->held_bytes += (bucket->taken - bucket->given) * bucket->size;
	gcp_spin_unlock(&bucket->lock);
}

const char *gcp_pinned_check(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct checking checking = {.pinned = pinned};
	const char *broken;

	if (!pinned)
		return NULL;
	gcp_mutex_lock(&pinned->lock);
	gcp_pinned_buckets_for_each(pools, check_one, &checking);
	gcp_mutex_unlock(&pinned->lock);
	GCP_MUST(!checking.broken, checking.broken);
	GCP_MUST(checking.blocks == pinned->allocations.current,
		 "allocations is not the number of pinned blocks");
	GCP_MUST(checking.bytes == pinned->allocated_bytes.current,
		 "allocated_bytes is not what pinned blocks occupy");
	GCP_MUST(checking.held == pinned->active_requests.current,
		 "active_requests is not the number of blocks that the program holds");
	GCP_MUST(checking.held_bytes == pinned->active_bytes.current,
		 "active_bytes is not what the program holds");
	gcp_mutex_lock(&pools->fence_lock);
	broken = gcp_timeline_check(&pinned->timeline);
	gcp_mutex_unlock(&pools->fence_lock);
	return broken;
}
