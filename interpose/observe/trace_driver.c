/* SPDX-License-Identifier: MIT */
/*
 * trace_driver.c - what pool/ asks of the driver, recorded, and told to GCPOOL_DEBUG: a
 * table of functions that stands between pool/ and the real one. Locks of pool/ may be
 * held. pool/ knows nothing of it.
 */
#include "debug.h"
#include "instrument.h"
#include "trace.h"

static struct gcp_driver real; /* constant after gcp_trace_driver */

/* Which device it belongs to is not known here but where the driver's function says so:
 * the context tells. */
static void add(enum gcp_trace_kind kind, uint64_t addr, uint64_t bytes, uint64_t arg,
		uint32_t more)
{
	gcp_trace_add(kind, -1, addr, bytes, arg, more, false);
	if (kind == GCP_TRACE_segment_alloc || kind == GCP_TRACE_vm_map)
		gcp_debug_new(addr, bytes);
}

#define PTR(p) ((uint64_t)(uintptr_t)(p))

/* --- memory ------------------------------------------------------------------ */

static int mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	uint64_t start = gcp_clock_ns();
	int result = real.mem_alloc(ctx, bytes, ret_addr);

	if (result == 0)
		add(GCP_TRACE_segment_alloc, *ret_addr, bytes, PTR(ctx),
		    gcp_trace_took(start));
	else
		add(GCP_TRACE_segment_refused, 0, bytes, PTR(ctx), (uint32_t)result);
	return result;
}

/* What mem_release could not give back, of the calling thread: mem_free follows. */
static __thread gcp_addr refused;

/* Before the real call: another thread may get the same addresses at once. */
static int mem_free(void *ctx, gcp_addr addr)
{
	uint64_t start = gcp_clock_ns();
	int result;

	if (refused != addr)
		add(GCP_TRACE_segment_free, addr, 0, PTR(ctx), 0);
	refused = 0;
	result = real.mem_free(ctx, addr);
	add(GCP_TRACE_context_wait, 0, 0, PTR(ctx), gcp_trace_took(start));
	return result;
}

static int mem_release(void *ctx, gcp_addr addr)
{
	int result;

	add(GCP_TRACE_segment_free, addr, 0, PTR(ctx), 0);
	result = real.mem_release(ctx, addr);
	refused = result == 0 ? 0 : addr;
	return result;
}

static void mem_trim(void *ctx)
{
	uint64_t start = gcp_clock_ns();

	real.mem_trim(ctx);
	add(GCP_TRACE_driver_trim, 0, 0, PTR(ctx), gcp_trace_took(start));
}

static int vm_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	uint64_t start = gcp_clock_ns();
	int result = real.vm_create(device, bytes, ret_handle);

	if (result == 0)
		gcp_trace_add(GCP_TRACE_vm_create, device, *ret_handle, bytes, 0,
			      gcp_trace_took(start), false);
	else
		add(GCP_TRACE_segment_refused, 0, bytes, 0, (uint32_t)result);
	return result;
}

/* X(name, parameters, arguments, kind, addr, bytes, arg): recorded before the call. */
#define BEFORE(X)                                                                      \
	X(vm_unreserve, (gcp_addr addr, uint64_t bytes), (addr, bytes), vm_unreserve,  \
	  addr, bytes, 0)                                                              \
	X(vm_release, (uint64_t handle), (handle), vm_release, handle, 0, 0)           \
	X(vm_unmap, (gcp_addr addr, uint64_t bytes), (addr, bytes), vm_unmap, addr,    \
	  bytes, 0)                                                                    \
	X(host_free, (void *ctx, void *p), (ctx, p), host_segment_free, PTR(p), 0,     \
	  PTR(ctx))

/* Behind it, if it succeeds, with the time that it took. */
#define BEHIND(X)                                                                      \
	X(vm_reserve, (uint64_t bytes, uint64_t alignment, gcp_addr * ret_addr),       \
	  (bytes, alignment, ret_addr), vm_reserve, *ret_addr, bytes, 0)               \
	X(vm_map, (gcp_addr addr, uint64_t bytes, uint64_t handle),                    \
	  (addr, bytes, handle), vm_map, addr, bytes, handle)                          \
	X(fence_record, (void *ctx, void *fence), (ctx, fence), fence_record,          \
	  PTR(fence), 0, PTR(ctx))                                                     \
	X(fence_order, (void *fence, bool alone), (fence, alone), fence_order,         \
	  PTR(fence), 0, 0)                                                            \
	X(fence_query, (void *fence), (fence), fence_done, PTR(fence), 0, 0)           \
	X(fence_wait, (void *fence, bool own), (fence, own), fence_wait, PTR(fence),   \
	  0, 0)                                                                        \
	X(host_alloc, (void *ctx, uint64_t bytes, uint32_t flags, void **ret_p),       \
	  (ctx, bytes, flags, ret_p), host_segment_alloc, PTR(*ret_p), bytes,          \
	  PTR(ctx))

#define BEFORE_ROW(name, parameters, arguments, kind, addr, bytes, arg)                \
	static int name parameters                                                     \
	{                                                                              \
		add(GCP_TRACE_##kind, addr, bytes, arg, 0);                            \
		return real.name arguments;                                            \
	}
BEFORE(BEFORE_ROW)
#define BEHIND_ROW(name, parameters, arguments, kind, addr, bytes, arg)                \
	static int name parameters                                                     \
	{                                                                              \
		uint64_t start = gcp_clock_ns();                                       \
		int result = real.name arguments;                                      \
                                                                                       \
		if (result == 0)                                                       \
			add(GCP_TRACE_##kind, addr, bytes, arg,                        \
			    gcp_trace_took(start));                                    \
		return result;                                                         \
	}
BEHIND(BEHIND_ROW)

/* --- the table --------------------------------------------------------------- */

static void tick(void)
{
	gcp_trace_sample(gcp.process->pools, false);
}

void gcp_trace_driver(struct gcp_driver *driver)
{
	real = *driver;
	driver->tick = tick;
#define STANDS_BETWEEN(name, ...)                                                      \
	if (real.name)                                                                 \
		driver->name = name;
	STANDS_BETWEEN(mem_alloc)
	STANDS_BETWEEN(mem_free)
	STANDS_BETWEEN(mem_release)
	STANDS_BETWEEN(mem_trim)
	STANDS_BETWEEN(vm_create)
	BEFORE(STANDS_BETWEEN)
	BEHIND(STANDS_BETWEEN)
}
