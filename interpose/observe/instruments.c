/* SPDX-License-Identifier: MIT */
/*
 * instruments.c - the entry of libgcpool-observe.so, and its table of events: hands
 * each to the instruments that want it.
 */

#include "debug.h"
#include "live.h"
#include "trace.h"

static bool debugs; /* constant after gcpool_observe */

struct gcp_services gcp;

/* --- the process ------------------------------------------------------------- */

static void load(void)
{
	if (debugs || gcp.process->options.trace_frames)
		gcp_stacks_load();
}

/* A thread that uses several contexts in turn comes here more often than once. */
static bool is_new_context(uint64_t ctx)
{
	static _Atomic uint64_t latest[64];

	return atomic_exchange(&latest[(ctx >> 6) % 64], ctx) != ctx;
}

static void end(bool quietly)
{
	struct gcp_pools *pools = gcp.process->pools;

	if (pools && !quietly)
		gcp_trace_sample(pools, true);
	gcp_trace_file_end();
	gcp_live_end();
	if (debugs && pools && !quietly)
		gcp_debug_end(pools);
}

/* --- device memory ----------------------------------------------------------- */

static void block_add(enum gcp_trace_kind kind, const struct gcp_block_info *info,
		      uint64_t arg)
{
	gcp_trace_add(kind, info->device, info->addr, info->requested, arg,
		      (uint32_t)(info->size / 512), true);
}

static void allocated(gcp_addr addr, struct gcp_observed_order order)
{
	struct gcp_block_info info;

	if (gcp.pools_held(gcp.process->pools, addr, &info) != 0)
		return;
	assert(info.addr == addr);
	if (debugs)
		gcp_debug_alloc(&info, order);
	block_add(info.heap ? GCP_TRACE_alloc_graph : GCP_TRACE_alloc, &info,
		  (uint64_t)(uintptr_t)info.heap);
}

/* more: 1, it is a block, freed already. */
static void free_wrong(gcp_addr addr, uint32_t more)
{
	assert(more == 1 || more == 2);
	gcp_trace_add(GCP_TRACE_free_wrong, gcp.device(), addr, 0, 0, more, true);
	if (debugs)
		gcp_debug_free_wrong(addr);
}

static void freeing(gcp_addr addr, struct gcp_observed_order order)
{
	struct gcp_pools *pools = gcp.process->pools;
	struct gcp_block_info info;
	int result;

	result = gcp.pools_held(pools, addr, &info);
	if (result == -EINVAL && !gcp.pools_exporter(pools, addr))
		free_wrong(addr, 1);
	if (result != 0)
		return;
	assert(info.addr == addr);
	if (debugs)
		gcp_debug_free(&info, order);
	if (info.heap)
		block_add(GCP_TRACE_free_graph, &info, (uint64_t)(uintptr_t)info.heap);
	else
		block_add(order.async ? GCP_TRACE_free_async : GCP_TRACE_free, &info,
			  (uint64_t)(uintptr_t)order.stream);
}

/* --- the rest ---------------------------------------------------------------- */

static void call(enum gcp_trace_kind kind, uint64_t addr, uint64_t bytes, uint64_t arg,
		 uint32_t more)
{
	if (kind == GCP_TRACE_free_wrong) {
		free_wrong(addr, more);
		return;
	}
	if (kind == GCP_TRACE_context && !is_new_context(addr))
		return;
	if (kind == GCP_TRACE_pass_alloc || kind == GCP_TRACE_pass_free) {
		more = gcp_trace_took(arg);
		arg = 0;
	}
	gcp_trace_add(kind, gcp.device(), addr, bytes, arg, more,
		      kind != GCP_TRACE_context);
	if (debugs && kind == GCP_TRACE_host_alloc)
		gcp_debug_host_alloc(addr, bytes);
	if (debugs && kind == GCP_TRACE_host_free)
		gcp_debug_host_free(addr);
}

/* --- the table --------------------------------------------------------------- */

static struct gcp_observer observer = {
    .load = load,
    .driver = gcp_trace_driver,
    .device = gcp_trace_device,
    .margin = gcp_debug_margin,
    .allocated = allocated,
    .freeing = freeing,
    .occasion = gcp_live_occasion,
    .call = call,
    .end = end,
};

__attribute__((visibility("default"))) bool
gcpool_observe(uint64_t version, const struct gcp_services *services,
	       const struct gcp_observer **ret_observer)
{
	const struct gcp_options *options = &services->process->options;

	if (version != GCP_OBSERVE_VERSION)
		return false;
	gcp = *services;
	debugs = gcp_debug_start(options);
	observer.events = gcp_trace_start(options) || debugs;
	*ret_observer = gcp_live_start(options) || observer.events ? &observer : NULL;
	return true;
}
