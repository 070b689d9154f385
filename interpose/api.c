/* SPDX-License-Identifier: MIT */
/*
 * api.c - the public functions of gcpool.h, for programs that ask. They answer
 * from the pools, or in count mode from the call statistics; before the first
 * allocation and in forked children there is nothing to answer.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "gcpool.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "process.h"
#include "report.h"

/* --- the public struct holds exactly what pool.h counts ------------------------- */

#define GCP_X(name, meaning)                                                           \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) ==                      \
			  sizeof(struct gcpool_gauge),                                 \
		      #name " is a gauge in gcpool.h as well");
GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning)                                                           \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) == sizeof(uint64_t),    \
		      #name " is a counter in gcpool.h as well");
GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name)                                                                    \
	static_assert(sizeof(((struct gcpool_stats *)0)->name) ==                      \
			  sizeof(struct gcpool_calls),                                 \
		      #name " is a driver call in gcpool.h as well");
GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
static_assert(sizeof(struct gcpool_stats) == sizeof(struct gcp_stats),
	      "gcpool.h has no field that pool.h lacks");

/* -------------------------------------------------------------------------------- */

static int stats_get(int device, struct gcp_stats *ret_stats)
{
	switch (gcp_process_run_mode()) {
	case GCP_RUN_POOL:
		/* Memory of graphs that are gone is not theirs any more. */
		gcp_tracker_collect(gcp_process.tracker);
		return gcp_pools_stats(gcp_process.pools, device, ret_stats);
	case GCP_RUN_COUNT:
		return gcp_call_stats_stats(device, ret_stats);
	case GCP_RUN_FRESH:
	case GCP_RUN_PASSIVE:
		break;
	}
	return -ENOENT;
}

static void gauge_copy(struct gcpool_gauge *to, const struct gcp_gauge *from)
{
	*to = (struct gcpool_gauge){
	    .current = from->current,
	    .peak = from->peak,
	    .allocated = from->allocated,
	    .freed = from->freed,
	};
}

static void stats_copy(struct gcpool_stats *to, const struct gcp_stats *from)
{
#define GCP_X(name, meaning) gauge_copy(&to->name, &from->name);
	GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) to->name = from->name;
	GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name) to->name = (struct gcpool_calls){from->name.count, from->name.ns};
	GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
	to->largest_free_bytes = from->largest_free_bytes;
	to->reserved_at_peak_bytes = from->reserved_at_peak_bytes;
}

int gcpool_version(void)
{
	return GCPOOL_VERSION;
}

int gcpool_active(void)
{
	return gcp_process_pooling();
}

int gcpool_get_stats(int device, struct gcpool_stats *stats, size_t size)
{
	struct gcpool_stats full = {0};
	struct gcp_stats inner;
	int result;

	if (!stats || size == 0)
		return -EINVAL;
	result = stats_get(device, &inner);
	if (result != 0)
		return result;
	stats_copy(&full, &inner);
	memset(stats, 0, size);
	memcpy(stats, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int gcpool_reset_peaks(int device)
{
	struct gcp_stats stats;
	int result = stats_get(device, &stats);

	if (result != 0)
		return result;
	if (gcp_process_pooling())
		gcp_pools_reset_peaks(gcp_process.pools, device);
	else
		gcp_call_stats_reset_peaks(device);
	return 0;
}

uint64_t gcpool_trim(int device, uint64_t keep_bytes)
{
	if (device < 0 || !gcp_process_pooling())
		return 0;
	gcp_tracker_collect(gcp_process.tracker);
	return gcp_pools_trim(gcp_process.pools, device, keep_bytes);
}
