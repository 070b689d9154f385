/* SPDX-License-Identifier: MIT */
/*
 * quota.c - how much of a device the program may have (GCPOOL_QUOTA), and why the
 * calling thread's latest request was refused.
 *
 * Memory that the pools have taken counts, and memory that passes through
 * (gcp_pools_pass in pools.c). A quota counts in whole chunks, as memory is taken; one
 * that is not smaller than the device is none. It may change at any time, also to less
 * than is taken.
 *
 * Called with no lock of the room but vmm_lock held, under which memory is taken and
 * counted. Never calls the driver.
 */
#include "timeline.h"

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

uint64_t gcp_limit_bytes(uint64_t limit, uint64_t memory)
{
	if (limit < GCP_LIMIT_SHARES || limit == GCP_LIMIT_NONE)
		return limit;
	return memory < UINT64_MAX ? memory * (limit - GCP_LIMIT_SHARES) / 10000
				   : GCP_LIMIT_NONE;
}

uint64_t gcp_pools_quota(const struct gcp_pools *pools, uint64_t memory)
{
	uint64_t bytes = gcp_limit_bytes(atomic_load(&pools->quota), memory);

	return bytes < memory ? bytes / GCP_CHUNK * GCP_CHUNK : GCP_LIMIT_NONE;
}

uint64_t gcp_pools_taken(const struct gcp_pools *pools, int device)
{
	uint64_t bytes = atomic_load(&pools->passed[device & 63]);

	bytes = gcp_round_up(bytes, GCP_CHUNK);
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->live && pool->device == device)
			bytes += atomic_load(&pool->reserved_hint);
	return bytes;
}

int64_t gcp_quota_left(const struct gcp_pool *pool)
{
	uint64_t quota = gcp_pools_quota(pool->pools, pool->memory);

	if (quota == GCP_LIMIT_NONE)
		return INT64_MAX;
	return (int64_t)(quota - gcp_pools_taken(pool->pools, pool->device));
}

bool gcp_quota_allows(const struct gcp_pool *pool, uint64_t bytes)
{
	assert(bytes <= INT64_MAX);
	bool allowed = (int64_t)bytes <= gcp_quota_left(pool);

	gcp_refusal_set(allowed ? GCP_REFUSED_BY_DRIVER : GCP_REFUSED_BY_QUOTA);
	return allowed;
}
