/* SPDX-License-Identifier: MIT */
/*
 * pinned_stats.c - what is counted of pinned memory.
 *
 * What the program holds is counted at once, in atomic gauges, so that its peaks are
 * exact with any number of threads. Totals are sums over buckets, each exact under
 * its bucket's lock. A reset keeps the totals of that moment and subtracts them.
 */
#include "pinned_types.h"

void gcp_pinned_time_add(struct gcp_pinned *pinned, struct gcp_pinned_time *time,
			 uint64_t start_ns)
{
	uint64_t ns = pinned->pools->driver.clock_ns() - start_ns;

	gcp_spin_lock(&pinned->time_lock);
	if (time->count == 0 || ns < time->min_ns)
		time->min_ns = ns;
	if (ns > time->max_ns)
		time->max_ns = ns;
	time->count++;
	time->total_ns += ns;
	gcp_spin_unlock(&pinned->time_lock);
}

static uint32_t power_below(uint64_t bytes)
{
	return 63 - (uint32_t)__builtin_clzll(bytes);
}

static void bucket_add(struct gcp_pinned_bucket *bucket, void *arg)
{
	struct gcp_pinned_stats *sum = arg;
	uint32_t power = power_below(bucket->size);

	gcp_spin_lock(&bucket->lock);
	sum->active_requests.allocated += bucket->taken;
	sum->active_requests.freed += bucket->given;
	sum->active_bytes.allocated += bucket->taken * bucket->size;
	sum->active_bytes.freed += bucket->given * bucket->size;
	sum->requested_bytes.allocated += bucket->taken_bytes;
	sum->requested_bytes.freed += bucket->given_bytes;
	sum->bucket_allocation[power] += bucket->count;
	sum->bucket_active[power] += bucket->taken - bucket->given;
	gcp_spin_unlock(&bucket->lock);
}

/* All but what a reset has taken off. */
static void totals(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	*ret_stats = (struct gcp_pinned_stats){
	    .misses = pinned->misses,
	    .alloc_retries = pinned->alloc_retries,
	    .ooms = pinned->ooms,
	    .epochs = pinned->closed,
	    .waits = pinned->waits,
	    .trims = pinned->trims,
	    .deferred_frees = pinned->deferred_frees,
	};
	gcp_pinned_buckets_for_each(pools, bucket_add, ret_stats);
	ret_stats->hits = ret_stats->active_requests.allocated - ret_stats->misses;
	ret_stats->allocations.allocated = pinned->added;
	ret_stats->allocations.freed = pinned->gone;
	ret_stats->allocated_bytes.allocated = pinned->added_bytes;
	ret_stats->allocated_bytes.freed = pinned->gone_bytes;
	ret_stats->private_bytes.allocated = pinned->set_added_bytes;
	ret_stats->private_bytes.freed = pinned->set_released_bytes;
	gcp_spin_lock(&pinned->time_lock);
#define GCP_X(name) ret_stats->name = pinned->name;
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&pinned->time_lock);
}

int gcp_pinned_stats(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return -ENOSYS;
	totals(pools, ret_stats);
	pthread_mutex_lock(&pinned->lock);
#define GCP_X(name, meaning)                                                           \
	ret_stats->name.current = pinned->name.current;                                \
	ret_stats->name.peak = pinned->name.peak;                                      \
	ret_stats->name.allocated -= pinned->base.name.allocated;                      \
	ret_stats->name.freed -= pinned->base.name.freed;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) ret_stats->name -= pinned->base.name;
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
	pthread_mutex_unlock(&pinned->lock);
	return 0;
}

void gcp_pinned_reset_peaks(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;

	if (!pinned)
		return;
#define GCP_X(name, meaning)                                                           \
	atomic_store(&pinned->name.peak, atomic_load(&pinned->name.current));
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
}

void gcp_pinned_reset_accumulated(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct gcp_pinned_stats base;

	if (!pinned)
		return;
	totals(pools, &base);
	pthread_mutex_lock(&pinned->lock);
	pinned->base = base;
	pthread_mutex_unlock(&pinned->lock);
	gcp_spin_lock(&pinned->time_lock);
#define GCP_X(name) pinned->name = (struct gcp_pinned_time){0};
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&pinned->time_lock);
}

/* --- checking ------------------------------------------------------------------------
 */

#define MUST(condition, words)                                                         \
	do {                                                                           \
		if (!(condition))                                                      \
			return words;                                                  \
	} while (0)

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
		MUST(gcp_pinned_block_find(pinned, block->p) == block,
		     "N1: the map does not find a pinned block");
		MUST(!used || block->rest == GCP_PINNED_IN_HAND,
		     "N2: a pinned block is the program's and free at once");
		MUST(block->rest != GCP_PINNED_IN_BUCKET || !atomic_load(&block->set),
		     "N3: a kept block is in a bucket");
	}
	MUST(count == bucket->count, "N3: a bucket miscounts its blocks");
	MUST(held == bucket->taken - bucket->given,
	     "N4: a bucket miscounts what the program holds");
	return NULL;
}

static const char *bucket_check(struct gcp_pinned *pinned,
				struct gcp_pinned_bucket *bucket)
{
	struct gcp_pinned_block *block;
	uint32_t resting = 0, listed = 0;
	const char *broken = blocks_check(pinned, bucket, &resting);

	MUST(!broken, broken);
	TAILQ_FOREACH (block, &bucket->ready, link) {
		MUST(gcp_pinned_epoch_ready(pinned, block->epoch),
		     "N3: a ready pinned block's epoch is not completed");
		listed++;
	}
	TAILQ_FOREACH (block, &bucket->pending, link)
		listed++;
	MUST(listed == resting, "N3: a free pinned block is in no list");
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

static const char *timeline_check(struct gcp_pinned *pinned)
{
	struct gcp_pinned_timeline *timeline = &pinned->timeline;
	uint64_t last = timeline->completed, bytes = 0;

	MUST(timeline->completed < timeline->open,
	     "N5: an epoch is completed before closed");
	for (uint32_t i = 0; i < timeline->count; i++) {
		const struct gcp_pinned_closed_epoch *closed =
		    &timeline->queue[(timeline->head + i) % GCP_PINNED_QUEUE];

		MUST(closed->epoch > last && closed->epoch < timeline->open,
		     "N5: the queue of closed epochs is out of order");
		last = closed->epoch;
		bytes += closed->bytes;
	}
	MUST(bytes == timeline->pending_bytes, "pending_bytes is not what is pending");
	return NULL;
}

const char *gcp_pinned_check(struct gcp_pools *pools)
{
	struct gcp_pinned *pinned = pools->pinned;
	struct checking checking = {.pinned = pinned};
	const char *broken;

	if (!pinned)
		return NULL;
	pthread_mutex_lock(&pinned->lock);
	gcp_pinned_buckets_for_each(pools, check_one, &checking);
	pthread_mutex_unlock(&pinned->lock);
	MUST(!checking.broken, checking.broken);
	MUST(checking.blocks == pinned->allocations.current,
	     "allocations is not the number of pinned blocks");
	MUST(checking.bytes == pinned->allocated_bytes.current,
	     "allocated_bytes is not what pinned blocks occupy");
	MUST(checking.held == pinned->active_requests.current,
	     "active_requests is not the number of blocks that the program holds");
	MUST(checking.held_bytes == pinned->active_bytes.current,
	     "active_bytes is not what the program holds");
	pthread_mutex_lock(&pools->fence_lock);
	broken = timeline_check(pinned);
	pthread_mutex_unlock(&pools->fence_lock);
	return broken;
}
