/* SPDX-License-Identifier: MIT */
/*
 * shortage.c - see shortage.h.
 *
 * A program may find out how much memory there is by asking until it is refused: the
 * line is said as often as any other (gcp_log). cuMemGetInfo is legal during captures
 * (facts: capture legality), and runs in the relaxed mode all the same.
 */
#include "../observe/observer.h"
#include "shortage.h"

/* Adds how much memory the driver says is free. Returns the device's memory, or
 * UINT64_MAX. */
static uint64_t driver_add(struct gcp_text *text)
{
	size_t available = 0, total = 0;

	if (GCP_WITHIN(NULL, gcp_real.cuMemGetInfo_v2(&available, &total)) !=
	    CUDA_SUCCESS)
		return UINT64_MAX;
	gcp_text_add_bytes(text, "; the device has ", total);
	gcp_text_add_bytes(text, ", of which free ", available);
	return total;
}

static void held_add(struct gcp_text *text, uint64_t held, uint64_t cached,
		     const char *graphs, uint64_t by_graphs, uint64_t quota)
{
	gcp_text_add_bytes(text, "; the program holds ", held);
	gcp_text_add_bytes(text, ", cached ", cached);
	gcp_text_add_bytes(text, graphs, by_graphs);
	if (quota == GCP_LIMIT_NONE)
		gcp_text_add(text, ", no quota");
	else
		gcp_text_add_bytes(text, ", quota ", quota);
}

static void pools_add(struct gcp_text *text, int device, uint64_t memory)
{
	struct gcp_pools *pools = gcp_process.pools;
	struct gcp_stats stats;

	if (gcp_pools_stats(pools, device, &stats) == 0)
		held_add(text, stats.allocated_bytes.current,
			 gcp_pools_unheld(pools, device), ", held by graphs ",
			 stats.private_bytes.current, gcp_pools_quota(pools, memory));
}

static const char *refuser(enum gcp_shortage why, const char *quota)
{
	if (why == GCP_SHORTAGE_CAPTURE)
		return "the capture under way, which would lose plain memory";
	if (why == GCP_SHORTAGE_POOL && gcp_pools_refusal() == GCP_REFUSED_BY_QUOTA)
		return quota;
	return "the driver";
}

static void device_add(struct gcp_text *text, enum gcp_shortage why)
{
	CUdevice device;

	if (gcp_real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		device = -1;
	gcp_text_add(text, " on device %d refused by %s", (int)device,
		     refuser(why, "the quota (GCPOOL_QUOTA)"));
	pools_add(text, device, driver_add(text));
}

static void host_add(struct gcp_text *text, enum gcp_shortage why)
{
	struct gcp_pinned_stats stats;

	gcp_text_add(text, " of pinned memory refused by %s",
		     refuser(why, "the quota (GCPOOL_HOST_QUOTA)"));
	gcp_text_add_bytes(text, "; the host has ", gcp_host_memory());
	if (gcp_pinned_stats(gcp_process.pools, &stats) == 0)
		held_add(text, stats.active_bytes.current,
			 stats.allocated_bytes.current - stats.active_bytes.current,
			 ", of both held by graphs ", stats.private_bytes.current,
			 gcp_process.options.pool.pinned_quota);
}

void gcp_shortage_say(const char *call, uint64_t bytes, enum gcp_shortage why,
		      bool host)
{
	GCP_TEXT(text, GCP_LINE_MAX);
	GCP_KEEP_ERRNO;

	if (!host)
		gcp_observe_call(GCP_TRACE_out_of_memory, 0, bytes, 0, (uint32_t)why);
	if (!gcp_process_pooling() || !gcp_log_wanted(GCP_LOG_WARNING))
		return;
	assert(why <= GCP_SHORTAGE_CAPTURE);
	gcp_text_add(&text, "%s", call);
	if (bytes)
		gcp_text_add_bytes(&text, " of ", bytes);
	(host ? host_add : device_add)(&text, why);
	gcp_log(GCP_LOG_WARNING, "out of memory: %s", text.bytes);
}
