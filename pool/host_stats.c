/*
 * host_stats.c - what is counted of pinned memory.
 *
 * What the program holds is counted at once, in atomic gauges, so that its peaks are
 * exact with any number of threads. Totals are sums over buckets, each exact under
 * its bucket's lock. A reset keeps the totals of that moment and subtracts them.
 */
#include "host_types.h"

void gcp_host_time_add(struct gcp_host *host, struct gcp_host_time *time,
		       uint64_t start_ns)
{
	uint64_t ns = host->pools->driver.clock_ns() - start_ns;

	gcp_spin_lock(&host->time_lock);
	if (time->count == 0 || ns < time->min_ns)
		time->min_ns = ns;
	if (ns > time->max_ns)
		time->max_ns = ns;
	time->count++;
	time->total_ns += ns;
	gcp_spin_unlock(&host->time_lock);
}

static uint32_t power_below(uint64_t bytes)
{
	return 63 - (uint32_t)__builtin_clzll(bytes);
}

static void bucket_add(struct gcp_host_bucket *bucket, void *arg)
{
	struct gcp_host_stats *sum = arg;
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
static void totals(struct gcp_pools *pools, struct gcp_host_stats *ret_stats)
{
	struct gcp_host *host = pools->host;

	*ret_stats = (struct gcp_host_stats){
	    .misses = host->misses,
	    .alloc_retries = host->alloc_retries,
	    .ooms = host->ooms,
	    .pages = host->closed,
	    .waits = host->waits,
	    .trims = host->trims,
	    .held_frees = host->held_frees,
	};
	gcp_host_buckets_visit(pools, bucket_add, ret_stats);
	ret_stats->hits = ret_stats->active_requests.allocated - ret_stats->misses;
	ret_stats->allocations.allocated = host->added;
	ret_stats->allocations.freed = host->gone;
	ret_stats->allocated_bytes.allocated = host->added_bytes;
	ret_stats->allocated_bytes.freed = host->gone_bytes;
	ret_stats->private_bytes.allocated = host->kept_bytes;
	ret_stats->private_bytes.freed = host->let_go_bytes;
	gcp_spin_lock(&host->time_lock);
#define GCP_X(name) ret_stats->name = host->name;
	GCP_HOST_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&host->time_lock);
}

int gcp_host_stats(struct gcp_pools *pools, struct gcp_host_stats *ret_stats)
{
	struct gcp_host *host = pools->host;

	if (!host)
		return -ENOSYS;
	totals(pools, ret_stats);
	pthread_mutex_lock(&host->lock);
#define GCP_X(name, meaning)                                                           \
	ret_stats->name.current = host->name.current;                                  \
	ret_stats->name.peak = host->name.peak;                                        \
	ret_stats->name.allocated -= host->base.name.allocated;                        \
	ret_stats->name.freed -= host->base.name.freed;
	GCP_HOST_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) ret_stats->name -= host->base.name;
	GCP_HOST_COUNTERS(GCP_X)
#undef GCP_X
	pthread_mutex_unlock(&host->lock);
	return 0;
}

void gcp_host_reset_peaks(struct gcp_pools *pools)
{
	struct gcp_host *host = pools->host;

	if (!host)
		return;
#define GCP_X(name, meaning)                                                           \
	atomic_store(&host->name.peak, atomic_load(&host->name.current));
	GCP_HOST_GAUGES(GCP_X)
#undef GCP_X
}

void gcp_host_reset_accumulated(struct gcp_pools *pools)
{
	struct gcp_host *host = pools->host;
	struct gcp_host_stats base;

	if (!host)
		return;
	totals(pools, &base);
	pthread_mutex_lock(&host->lock);
	host->base = base;
	pthread_mutex_unlock(&host->lock);
	gcp_spin_lock(&host->time_lock);
#define GCP_X(name) host->name = (struct gcp_host_time){0};
	GCP_HOST_CALLS(GCP_X)
#undef GCP_X
	gcp_spin_unlock(&host->time_lock);
}

/* --- checking ------------------------------------------------------------------------
 */

#define MUST(condition, words)                                                         \
	do {                                                                           \
		if (!(condition))                                                      \
			return words;                                                  \
	} while (0)

static const char *blocks_check(struct gcp_host *host, struct gcp_host_bucket *bucket,
				uint32_t *ret_resting)
{
	struct gcp_host_block *block;
	uint64_t count = 0, held = 0;

	TAILQ_FOREACH (block, &bucket->blocks, all) {
		bool used = atomic_load(&block->state) == GCP_HOST_USED;

		count++;
		held += used;
		*ret_resting += block->rest == GCP_HOST_IN_BUCKET;
		MUST(gcp_host_block_find(host, block->p) == block,
		     "N1: the map does not find a pinned block");
		MUST(!used || block->rest == GCP_HOST_IN_HAND,
		     "N2: a pinned block is the program's and free at once");
		MUST(block->rest != GCP_HOST_IN_BUCKET || !atomic_load(&block->keep),
		     "N3: a kept block is in a bucket");
	}
	MUST(count == bucket->count, "N3: a bucket miscounts its blocks");
	MUST(held == bucket->taken - bucket->given,
	     "N4: a bucket miscounts what the program holds");
	return NULL;
}

static const char *bucket_check(struct gcp_host *host, struct gcp_host_bucket *bucket)
{
	struct gcp_host_block *block;
	uint32_t resting = 0, listed = 0;
	const char *broken = blocks_check(host, bucket, &resting);

	MUST(!broken, broken);
	TAILQ_FOREACH (block, &bucket->ready, link) {
		MUST(gcp_host_page_ready(host, block->page),
		     "N3: a ready pinned block's page is not completed");
		listed++;
	}
	TAILQ_FOREACH (block, &bucket->pending, link)
		listed++;
	MUST(listed == resting, "N3: a free pinned block is in no list");
	return NULL;
}

struct checking {
	struct gcp_host *host;
	uint64_t blocks, bytes, held, held_bytes;
	const char *broken;
};

static void check_one(struct gcp_host_bucket *bucket, void *arg)
{
	struct checking *checking = arg;

	gcp_spin_lock(&bucket->lock);
	if (!checking->broken)
		checking->broken = bucket_check(checking->host, bucket);
	checking->blocks += bucket->count;
	checking->bytes += bucket->count * bucket->size;
	checking->held += bucket->taken - bucket->given;
	checking->held_bytes += (bucket->taken - bucket->given) * bucket->size;
	gcp_spin_unlock(&bucket->lock);
}

static const char *pages_check(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;
	uint64_t last = pages->completed, bytes = 0;

	MUST(pages->completed < pages->open, "N5: a page is completed before closed");
	for (uint32_t i = 0; i < pages->count; i++) {
		const struct gcp_host_closed *closed =
		    &pages->queue[(pages->head + i) % GCP_HOST_QUEUE];

		MUST(closed->page > last && closed->page < pages->open,
		     "N5: the queue of closed pages is out of order");
		last = closed->page;
		bytes += closed->bytes;
	}
	MUST(bytes == pages->pending_bytes, "pending_bytes is not what is pending");
	return NULL;
}

const char *gcp_host_check(struct gcp_pools *pools)
{
	struct gcp_host *host = pools->host;
	struct checking checking = {.host = host};
	const char *broken;

	if (!host)
		return NULL;
	pthread_mutex_lock(&host->lock);
	gcp_host_buckets_visit(pools, check_one, &checking);
	pthread_mutex_unlock(&host->lock);
	MUST(!checking.broken, checking.broken);
	MUST(checking.blocks == host->allocations.current,
	     "allocations is not the number of pinned blocks");
	MUST(checking.bytes == host->allocated_bytes.current,
	     "allocated_bytes is not what pinned blocks occupy");
	MUST(checking.held == host->active_requests.current,
	     "active_requests is not the number of blocks that the program holds");
	MUST(checking.held_bytes == host->active_bytes.current,
	     "active_bytes is not what the program holds");
	pthread_mutex_lock(&pools->fence_lock);
	broken = pages_check(host);
	pthread_mutex_unlock(&pools->fence_lock);
	return broken;
}
