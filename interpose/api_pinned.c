/* SPDX-License-Identifier: MIT */
/*
 * api_pinned.c - the functions of gcpool.h about pinned memory.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "gcpool.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "process.h"

/* The public struct is pool.h's, field by field. */
#define GCP_X(name, ...)                                                               \
	static_assert(offsetof(struct gcpool_host_stats, name) ==                      \
			      offsetof(struct gcp_pinned_stats, name) &&               \
			  sizeof(((struct gcpool_host_stats *)0)->name) ==             \
			      sizeof(((struct gcp_pinned_stats *)0)->name),            \
		      #name " is the same in gcpool.h");
GCP_PINNED_GAUGES(GCP_X)
GCP_PINNED_COUNTERS(GCP_X)
GCP_PINNED_CALLS(GCP_X)
GCP_X(bucket_allocation)
GCP_X(bucket_active)
#undef GCP_X
static_assert(sizeof(struct gcpool_host_stats) == sizeof(struct gcp_pinned_stats),
	      "gcpool.h has no field that pool.h lacks");

static bool host_is_pooled(void)
{
	struct gcp_pinned_stats stats;

	return gcp_process_pooling() &&
	       gcp_pinned_stats(gcp_process.pools, &stats) == 0;
}

int gcpool_get_host_stats(struct gcpool_host_stats *stats, size_t size)
{
	struct gcp_pinned_stats full;

	if (!stats || size == 0)
		return -EINVAL;
	if (!gcp_process_pooling())
		return -ENOENT;
	gcp_tracker_collect(gcp_process.tracker);
	if (gcp_pinned_stats(gcp_process.pools, &full) != 0)
		return -ENOENT;
	memset(stats, 0, size);
	memcpy(stats, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int gcpool_reset_host_peaks(void)
{
	if (!host_is_pooled())
		return -ENOENT;
	gcp_pinned_reset_peaks(gcp_process.pools);
	return 0;
}

int gcpool_reset_host_accumulated(void)
{
	if (!host_is_pooled())
		return -ENOENT;
	gcp_pinned_reset_accumulated(gcp_process.pools);
	return 0;
}

uint64_t gcpool_trim_host(uint64_t keep_bytes)
{
	if (!gcp_process_pooling())
		return 0;
	gcp_tracker_collect(gcp_process.tracker);
	return gcp_pinned_trim(gcp_process.pools, keep_bytes);
}
