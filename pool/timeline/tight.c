/* SPDX-License-Identifier: MIT */
/*
 * tight.c - whether a device, or its quota, is nearly full. Then each free closes its
 * epoch, so that an allocation that finds no memory has nothing to wait for but what
 * plain cudaFree has waited for (fence.c, NO NEW WAITS): an epoch that an allocation
 * had to close would cover work that was submitted after the free.
 *
 * Asked by frees, with any lock held; told by allocations and frees without a lock. The
 * driver is asked how much is left, seldom: other processes take memory too.
 */
#include "timeline.h"

enum {
	/* Memory is tight when so many epochs' worth is left. */
	TIGHT_EPOCHS = 2,
	/* The driver is asked again when so many frees have closed their epochs, */
	ASK_FREES = 256,
	/* or the pool has taken this part of the memory. Segments are as large as their
	 * one block when this part of it is taken, and can go back without a wait. */
	MUCH_PART = 8,
};

/* What the program may have at most. */
static uint64_t all_bytes(const struct gcp_pool *pool)
{
	uint64_t quota = gcp_pools_quota(pool->pools, pool->memory);

	return quota < pool->memory ? quota : pool->memory;
}

/* All contexts of the device share its memory. */
bool gcp_pool_has_much(const struct gcp_pool *pool, uint64_t bytes)
{
	return gcp_pools_taken(pool->pools, pool->device) + bytes >
	       all_bytes(pool) / MUCH_PART;
}

bool gcp_pool_is_exact(const struct gcp_pool *pool)
{
	return gcp_pool_is_ordinary(pool) &&
	       (gcp_pool_is_tight(pool) || gcp_pool_has_much(pool, 0));
}

uint64_t gcp_pool_left(struct gcp_pool *pool)
{
	const struct gcp_driver *driver = &pool->pools->driver;
	int64_t quota_left = gcp_quota_left(pool);
	uint64_t left = UINT64_MAX;

	if (quota_left <= 0)
		return 0;
	if (!driver->mem_left || driver->mem_left(pool->ctx, &left) != 0)
		left = UINT64_MAX;
	return left < (uint64_t)quota_left ? left : (uint64_t)quota_left;
}

static void tight_ask(struct gcp_pool *pool)
{
	uint64_t least = TIGHT_EPOCHS * GCP_LOAD(pool->limits.epoch_bytes);
	uint64_t left = gcp_pool_left(pool);
	uint64_t all = all_bytes(pool);
	uint64_t step = all == UINT64_MAX ? GCP_CHUNK : all / MUCH_PART;
	uint64_t room = left > least ? left - least : 0;

	GCP_STORE(pool->tightness.frees, 0);
	GCP_STORE(pool->tightness.headroom, room < step ? room : step);
	GCP_STORE(pool->tightness.tight, left < least);
}

void gcp_tight_grown(struct gcp_pool *pool, uint64_t bytes)
{
	uint64_t headroom = GCP_LOAD(pool->tightness.headroom);

	if (headroom > bytes)
		GCP_STORE(pool->tightness.headroom, headroom - bytes);
	else if (!gcp_pool_is_tight(pool))
		tight_ask(pool);
}

void gcp_tight_freed(struct gcp_pool *pool)
{
	if (!gcp_pool_is_tight(pool))
		return;
	uint32_t frees =
	    atomic_fetch_add_explicit(&pool->tightness.frees, 1, memory_order_relaxed) +
	    1;

	if (frees % ASK_FREES == 0)
		tight_ask(pool);
}

void gcp_tight_out(struct gcp_pool *own)
{
	struct gcp_pool *pool = own->pools->first;

	for (; pool; pool = pool->next) {
		if (pool->device != own->device)
			continue;
		GCP_STORE(pool->tightness.tight, true);
		GCP_STORE(pool->tightness.frees, 0);
	}
}
