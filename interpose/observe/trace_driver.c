/* SPDX-License-Identifier: MIT */
/*
 * trace_driver.c - what pool/ asks of the driver, recorded: a table of functions that
 * stands between pool/ and the real one while a recording is made. Locks of pool/ may
 * be held. pool/ knows nothing of it.
 */
#include "../base/clock.h"
#include "call_stats.h"
#include "../base/process.h"
#include "trace.h"

static struct gcp_driver real; /* constant after gcp_trace_driver */

/* Rare events and frequent ones: which devices they belong to is not known here but
 * where the driver's function says so; the context tells. */
static void rare(enum gcp_trace_kind kind, uint64_t addr, uint64_t bytes, uint64_t arg,
		 uint32_t more)
{
	gcp_trace_add_rare(&(struct gcp_trace_facts){.kind = kind,
						     .device = -1,
						     .addr = addr,
						     .bytes = bytes,
						     .arg = arg,
						     .more = more});
}

static void often(enum gcp_trace_kind kind, uint64_t addr, uint64_t arg, uint32_t more)
{
	gcp_trace_add(&(struct gcp_trace_facts){
	    .kind = kind, .device = -1, .addr = addr, .arg = arg, .more = more});
}

#define PTR(p) ((uint64_t)(uintptr_t)(p))

/* --- memory ------------------------------------------------------------------ */

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	uint64_t start = gcp_clock_ns();
	int result = real.mem_alloc(ctx, bytes, ret_addr);

	if (result == 0)
		rare(GCP_TRACE_segment_alloc, *ret_addr, bytes, PTR(ctx),
		     gcp_trace_took(start));
	else
		rare(GCP_TRACE_segment_refused, 0, bytes, PTR(ctx), (uint32_t)result);
	return result;
}

/* What mem_release could not give back, of the calling thread: mem_free follows. */
static __thread gcp_addr refused __attribute__((tls_model("initial-exec")));

/* Before the real call: another thread may get the same addresses at once. */
static int mem_free(void *ctx, gcp_addr addr)
{
	uint64_t start = gcp_clock_ns();
	int result;

	if (refused != addr)
		rare(GCP_TRACE_segment_free, addr, 0, PTR(ctx), 0);
	refused = 0;
	result = real.mem_free(ctx, addr);
	often(GCP_TRACE_context_wait, 0, PTR(ctx), gcp_trace_took(start));
	return result;
}

static int mem_release(void *ctx, gcp_addr addr)
{
	int result;

	rare(GCP_TRACE_segment_free, addr, 0, PTR(ctx), 0);
	result = real.mem_release(ctx, addr);
	refused = result == 0 ? 0 : addr;
	return result;
}

static void mem_trim(void *ctx)
{
	uint64_t start = gcp_clock_ns();

	real.mem_trim(ctx);
	rare(GCP_TRACE_driver_trim, 0, 0, PTR(ctx), gcp_trace_took(start));
}

static int vm_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	uint64_t start = gcp_clock_ns();
	int result = real.vm_reserve(bytes, alignment, ret_addr);

	if (result == 0)
		rare(GCP_TRACE_vm_reserve, *ret_addr, bytes, 0, gcp_trace_took(start));
	return result;
}

static int vm_unreserve(gcp_addr addr, uint64_t bytes)
{
	rare(GCP_TRACE_vm_unreserve, addr, bytes, 0, 0);
	return real.vm_unreserve(addr, bytes);
}

static int vm_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	uint64_t start = gcp_clock_ns();
	int result = real.vm_create(device, bytes, ret_handle);

	if (result == 0)
		gcp_trace_add_rare(
		    &(struct gcp_trace_facts){.kind = GCP_TRACE_vm_create,
					      .device = device,
					      .addr = *ret_handle,
					      .bytes = bytes,
					      .more = gcp_trace_took(start)});
	else
		rare(GCP_TRACE_segment_refused, 0, bytes, 0, (uint32_t)result);
	return result;
}

static int vm_release(uint64_t handle)
{
	rare(GCP_TRACE_vm_release, handle, 0, 0, 0);
	return real.vm_release(handle);
}

static int vm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	uint64_t start = gcp_clock_ns();
	int result = real.vm_map(addr, bytes, handle);

	if (result == 0)
		rare(GCP_TRACE_vm_map, addr, bytes, handle, gcp_trace_took(start));
	return result;
}

static int vm_unmap(gcp_addr addr, uint64_t bytes)
{
	rare(GCP_TRACE_vm_unmap, addr, bytes, 0, 0);
	return real.vm_unmap(addr, bytes);
}

/* --- fences ------------------------------------------------------------------ */

static int fence_record(void *ctx, void *fence)
{
	uint64_t start = gcp_clock_ns();
	int result = real.fence_record(ctx, fence);

	if (result == 0)
		often(GCP_TRACE_fence_record, PTR(fence), PTR(ctx),
		      gcp_trace_took(start));
	return result;
}

static int fence_order(void *fence, bool alone)
{
	uint64_t start = gcp_clock_ns();
	int result = real.fence_order(fence, alone);

	if (result == 0)
		often(GCP_TRACE_fence_order, PTR(fence), 0, gcp_trace_took(start));
	return result;
}

static int fence_query(void *fence)
{
	int result = real.fence_query(fence);

	if (result == 0)
		often(GCP_TRACE_fence_done, PTR(fence), 0, 0);
	return result;
}

static int fence_wait(void *fence)
{
	uint64_t start = gcp_clock_ns();
	int result = real.fence_wait(fence);

	often(GCP_TRACE_fence_wait, PTR(fence), 0, gcp_trace_took(start));
	return result;
}

static int ctx_sync(void *ctx)
{
	uint64_t start = gcp_clock_ns();
	int result = real.ctx_sync(ctx);

	often(GCP_TRACE_context_wait, 0, PTR(ctx), gcp_trace_took(start));
	return result;
}

/* --- pinned memory ----------------------------------------------------------- */

static int host_alloc(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p)
{
	uint64_t start = gcp_clock_ns();
	int result = real.host_alloc(ctx, bytes, flags, ret_p);

	if (result == 0)
		rare(GCP_TRACE_host_segment_alloc, PTR(*ret_p), bytes, PTR(ctx),
		     gcp_trace_took(start));
	return result;
}

static int host_free(void *ctx, void *p)
{
	rare(GCP_TRACE_host_segment_free, PTR(p), 0, PTR(ctx), 0);
	return real.host_free(ctx, p);
}

/* --- the table --------------------------------------------------------------- */

static void tick(void)
{
	gcp_trace_sample(gcp_process.pools, false);
	if (real.tick)
		real.tick();
}

void gcp_trace_driver(struct gcp_driver *driver)
{
	real = *driver;
	driver->tick = tick;
#define GCP_X(name)                                                                    \
	if (real.name)                                                                 \
		driver->name = name;
	GCP_X(mem_alloc)
	GCP_X(mem_free)
	GCP_X(mem_release)
	GCP_X(mem_trim)
	GCP_X(vm_reserve)
	GCP_X(vm_unreserve)
	GCP_X(vm_create)
	GCP_X(vm_release)
	GCP_X(vm_map)
	GCP_X(vm_unmap)
	GCP_X(fence_record)
	GCP_X(fence_order)
	GCP_X(fence_query)
	GCP_X(fence_wait)
	GCP_X(ctx_sync)
	GCP_X(host_alloc)
	GCP_X(host_free)
#undef GCP_X
}
