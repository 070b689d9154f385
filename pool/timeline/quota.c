/* SPDX-License-Identifier: MIT */
/*
 * quota.c - how much of a device the pools may take (GCPOOL_QUOTA), and why the calling
 * thread's latest request was refused.
 *
 * Called with no lock of the room but vmm_lock held. Never calls the driver.
 */
#include "timeline.h"

static uint64_t reserved_on(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if (!pool->live || pool->device != device)
			continue;
		gcp_mutex_lock(&pool->lock);
		bytes += pool->stats.reserved_bytes.current;
		gcp_mutex_unlock(&pool->lock);
	}
	return bytes;
}

static __thread enum gcp_refusal thread_refusal
    __attribute__((tls_model("initial-exec")));

void gcp_refusal_set(enum gcp_refusal refusal)
{
	thread_refusal = refusal;
}

enum gcp_refusal gcp_pools_refusal(void)
{
	return thread_refusal;
}

uint64_t gcp_quota_left(struct gcp_pool *pool)
{
	uint64_t reserved;

	if (pool->quota == GCP_LIMIT_NONE)
		return UINT64_MAX;
	reserved = reserved_on(pool->pools, pool->device);
	return reserved < pool->quota ? pool->quota - reserved : 0;
}

bool gcp_quota_allows(struct gcp_pool *pool, uint64_t bytes)
{
	assert(bytes <= UINT64_MAX / 2); /* the sum must not wrap */
	bool allowed = pool->quota == GCP_LIMIT_NONE ||
		       reserved_on(pool->pools, pool->device) + bytes <= pool->quota;

	gcp_refusal_set(allowed ? GCP_REFUSED_BY_DRIVER : GCP_REFUSED_BY_QUOTA);
	if (!allowed)
		GCP_LOG(pool->pools, "device %d: %llu KiB more are beyond the quota",
			pool->device, GCP_ULL(bytes >> 10));
	return allowed;
}

uint64_t gcp_pools_quota(struct gcp_pools *pools, int device)
{
	struct gcp_pool *pool = pools->first;

	while (pool && pool->device != device)
		pool = pool->next;
	return pool ? pool->quota : GCP_LIMIT_NONE;
}
