/* SPDX-License-Identifier: MIT */
/*
 * observe.c - calls of the program on the way on which they are observed: see
 * observe.h.
 */
#include "debug.h"
#include "../hooks/hooks_memory.h"
#include "live.h"
#include "../base/log.h"
#include "nvtx.h"
#include "observe.h"
#include "../process/process_life.h"
#include "trace.h"
#include "trace_file.h"

uint32_t gcp_observers;

/* Where the calling thread's latest call came from. */
static __thread struct gcp_caller caller __attribute__((tls_model("initial-exec")));

static __thread bool inside_runtime __attribute__((tls_model("initial-exec")));

/* What gcp_process.pending_events points to while calls are observed. */
static const _Atomic uint32_t always = 1;

void gcp_observe_start(const struct gcp_options *options)
{
	if (options->mode == GCP_MODE_POOL && gcp_trace_start(options))
		gcp_observers |= GCP_OBSERVE_TRACE;
	if (options->mode == GCP_MODE_POOL && gcp_live_start(options))
		gcp_observers |= GCP_OBSERVE_LIVE;
	if (options->mode == GCP_MODE_POOL && gcp_nvtx_wanted())
		gcp_observers |= GCP_OBSERVE_NVTX;
	if (options->mode == GCP_MODE_POOL &&
	    gcp_debug_start(options, gcp_observers & GCP_OBSERVE_TRACE))
		gcp_observers |= GCP_OBSERVE_DEBUG;
	if (gcp_observers)
		gcp_process.special = true;
}

void gcp_observe_load(void)
{
	if (gcp_observers & (GCP_OBSERVE_TRACE | GCP_OBSERVE_DEBUG))
		gcp_stacks_load();
}

const _Atomic uint32_t *gcp_observe_pending_events(void)
{
	return &always;
}

void gcp_observe_end(void)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_end(gcp_process.pools);
	if (gcp_observers & GCP_OBSERVE_LIVE)
		gcp_live_end();
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_end(gcp_process.pools);
}

void gcp_observe_leave_off(void)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_file_end();
	if (gcp_observers & GCP_OBSERVE_LIVE)
		gcp_live_end();
}

void gcp_observe_after_fork(void)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_after_fork();
	gcp_live_after_fork();
	gcp_observers = 0;
}

void gcp_observe_driver(struct gcp_driver *driver)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_driver(driver);
	if (gcp_observers & GCP_OBSERVE_NVTX)
		gcp_nvtx_driver(driver);
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_driver(driver);
}

void gcp_observe_device(int device, const struct gcp_gpu *gpu)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_device(device, gpu->name, gpu->bytes);
	if (gcp_observers & GCP_OBSERVE_LIVE)
		gcp_live_device_note(device, gpu);
}

/* Once for each, or for a thread that uses several in turn, more often. */
void gcp_observe_context(const void *ctx, int device)
{
	static const void *_Atomic latest[64];

	if (gcp_observers & GCP_OBSERVE_NVTX)
		gcp_nvtx_ready();
	if (!(gcp_observers & GCP_OBSERVE_TRACE) ||
	    atomic_exchange(&latest[((uintptr_t)ctx >> 6) % 64], ctx) == ctx)
		return;
	gcp_trace_add_rare(&(struct gcp_trace_facts){.kind = GCP_TRACE_context,
						     .device = device,
						     .addr = (uint64_t)(uintptr_t)ctx});
}

void gcp_observe_context_gone(CUcontext ctx)
{
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_context_gone(ctx);
}

void gcp_observe_enter(uintptr_t address, uintptr_t frame)
{
	if (!inside_runtime)
		caller = (struct gcp_caller){address, frame};
}

void gcp_observe_enter_frame(uintptr_t frame)
{
	if (!inside_runtime)
		caller.frame = frame;
}

void gcp_observe_enter_runtime(uintptr_t address, uintptr_t frame)
{
	caller = (struct gcp_caller){address, frame};
	inside_runtime = true;
}

void gcp_observe_leave_runtime(void)
{
	inside_runtime = false;
}

/* --- device memory ----------------------------------------------------------- */

enum {
	OBSERVE_BLOCKS = GCP_OBSERVE_TRACE | GCP_OBSERVE_NVTX | GCP_OBSERVE_DEBUG,
};

static void block_add(enum gcp_trace_kind kind, const struct gcp_block_info *info,
		      uint64_t arg)
{
	gcp_trace_add(&(struct gcp_trace_facts){.kind = kind,
						.device = info->device,
						.addr = info->addr,
						.bytes = info->requested,
						.arg = arg,
						.more = (uint32_t)(info->size / 512),
						.caller = &caller});
}

/* The program has been given a block. */
static void block_begins(gcp_addr addr, struct gcp_debug_order order)
{
	struct gcp_block_info info;

	if (gcp_pools_held(gcp_process.pools, addr, &info) != 0)
		return;
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_alloc(&info, order, &caller);
	if (gcp_observers & GCP_OBSERVE_NVTX)
		gcp_nvtx_alloc(&info);
	if (gcp_observers & GCP_OBSERVE_TRACE)
		block_add(info.heap ? GCP_TRACE_alloc_graph : GCP_TRACE_alloc, &info,
			  (uint64_t)(uintptr_t)info.heap);
}

/* known: it is a block, freed already. */
static void free_wrong_add(gcp_addr addr, bool known)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_add_rare(
		    &(struct gcp_trace_facts){.kind = GCP_TRACE_free_wrong,
					      .device = gcp_thread.device,
					      .addr = addr,
					      .more = known ? 1 : 2,
					      .caller = &caller});
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_free_wrong(addr, &caller);
}

/* Before the real free: another thread may be given the block at once. */
static void block_ends(gcp_addr addr, enum gcp_trace_kind kind,
		       struct gcp_debug_order order)
{
	struct gcp_block_info info;
	int result = gcp_pools_held(gcp_process.pools, addr, &info);

	if (result == -EINVAL && !gcp_pools_is_exported(gcp_process.pools, addr))
		free_wrong_add(addr, true);
	if (result != 0)
		return;
	if (gcp_observers & GCP_OBSERVE_NVTX)
		gcp_nvtx_free(&info);
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_free(&info, order, &caller);
	if (!(gcp_observers & GCP_OBSERVE_TRACE))
		return;
	if (info.heap)
		block_add(GCP_TRACE_free_graph, &info, (uint64_t)(uintptr_t)info.heap);
	else
		block_add(kind, &info, (uint64_t)(uintptr_t)order.stream);
}

/* With a margin behind the block, if memory is there for it. */
static int alloc_margin(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			gcp_addr *ret_addr)
{
	gcp_tracker_collect(gcp_process.tracker);
	return gcp_pool_alloc_margin(pool, bytes, margin, ret_addr);
}

int gcp_observe_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr)
{
	uint64_t margin = gcp_debug_margin();
	int result = GCP_CUDA_OUT_OF_MEMORY;

	if (margin)
		result = alloc_margin(pool, bytes, margin, ret_addr);
	if (result != GCP_CUDA_OUT_OF_MEMORY)
		;
	else if (gcp_tracker_has_pending_events(gcp_process.tracker))
		result = gcp_tracker_alloc(gcp_process.tracker, pool, gcp_thread.ctx,
					   gcp_thread.stream, bytes, ret_addr);
	else
		result = gcp_pool_alloc(pool, bytes, ret_addr);
	gcp_live_occasion(false);
	if ((gcp_observers & OBSERVE_BLOCKS) && result == 0)
		block_begins(*ret_addr, (struct gcp_debug_order){0});
	return result;
}

int gcp_observe_free(gcp_addr addr)
{
	int result;

	if (gcp_observers & OBSERVE_BLOCKS)
		block_ends(addr, GCP_TRACE_free, (struct gcp_debug_order){0});
	result = gcp_pools_free(gcp_process.pools, addr);
	gcp_live_occasion(true);
	return result;
}

int gcp_observe_free_async(gcp_addr addr, uint64_t order, void *stream)
{
	if (gcp_observers & OBSERVE_BLOCKS)
		block_ends(addr, GCP_TRACE_free_async,
			   (struct gcp_debug_order){true, order != 0, stream});
	int result = gcp_pools_free_async(gcp_process.pools, addr, order);
	gcp_live_occasion(false); /* plain CUDA waits for nothing here */
	return result;
}

int gcp_observe_alloc_async(struct gcp_pool *pool, uint64_t bytes, void *stream,
			    uint64_t order, gcp_addr *ret_addr)
{
	uint64_t margin = gcp_debug_margin();
	int result = GCP_CUDA_OUT_OF_MEMORY;

	if (margin)
		result =
		    gcp_pool_alloc_stream_margin(pool, bytes, margin, order, ret_addr);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		result = gcp_pool_alloc_stream(pool, bytes, order, ret_addr);
	if ((gcp_observers & OBSERVE_BLOCKS) && result == 0)
		block_begins(*ret_addr, (struct gcp_debug_order){true, true, stream});
	return result;
}

/* --- the rest ---------------------------------------------------------------- */

static void call_add(enum gcp_trace_kind kind, uint64_t addr, uint64_t bytes,
		     uint64_t arg, uint32_t more)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		gcp_trace_add(&(struct gcp_trace_facts){.kind = kind,
							.device = gcp_thread.device,
							.addr = addr,
							.bytes = bytes,
							.arg = arg,
							.more = more,
							.caller = &caller});
}

void gcp_observe_pass_alloc(gcp_addr addr, uint64_t bytes, uint64_t start_ns)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		call_add(GCP_TRACE_pass_alloc, addr, bytes, 0,
			 gcp_trace_took(start_ns));
}

void gcp_observe_pass_free(gcp_addr addr, uint64_t start_ns)
{
	if (gcp_observers & GCP_OBSERVE_TRACE)
		call_add(GCP_TRACE_pass_free, addr, 0, 0, gcp_trace_took(start_ns));
}

void gcp_observe_free_unknown(gcp_addr addr)
{
	free_wrong_add(addr, false);
}

void gcp_observe_free_again(gcp_addr addr)
{
	free_wrong_add(addr, true);
}

void gcp_observe_host_alloc(const void *p, uint64_t bytes, uint32_t flags)
{
	call_add(GCP_TRACE_host_alloc, (uint64_t)(uintptr_t)p, bytes, 0, flags);
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_host_alloc(p, bytes, &caller);
}

void gcp_observe_host_free(const void *p)
{
	call_add(GCP_TRACE_host_free, (uint64_t)(uintptr_t)p, 0, 0, 0);
	if (gcp_observers & GCP_OBSERVE_DEBUG)
		gcp_debug_host_free(p);
}

void gcp_observe_shortage(uint64_t bytes, uint32_t why)
{
	call_add(GCP_TRACE_out_of_memory, 0, bytes, 0, why);
}

void gcp_observe_capture(bool begins, const void *stream, uint32_t more)
{
	call_add(begins ? GCP_TRACE_capture_begin : GCP_TRACE_capture_end, 0, 0,
		 (uint64_t)(uintptr_t)stream, more);
}
