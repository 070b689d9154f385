/* SPDX-License-Identifier: MIT */
/*
 * cuda_backend.c - see cuda_backend.h. Called by pool/ and capture/ with their locks
 * held; takes no lock but that of contexts.c, and never calls back into the rooms.
 *
 * Memory calls and waits run in the relaxed capture mode always: two exchanges
 * cost 0.09 us beside calls of 5 us to 800 us, and a capture that begins at
 * this very moment cannot be hurt. Fences need no such care: pool/ sets
 * none while a capture is under way, and CUDA would refuse them in any mode.
 * An event in one stream may be recorded beside a capture, in each mode, but it is
 * asked for while one may begin: in the relaxed mode.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "cuda_backend.h"
#include "../base/process_identity.h"
#include "../base/process.h"
#include "../statistics/report.h"
#include "../cuda/resolve.h"
#include "../cuda/foreign_work.h"
#include "../cuda/third_party_dma.h"

_Static_assert((int)GCP_CUDA_OUT_OF_MEMORY == (int)CUDA_ERROR_OUT_OF_MEMORY, "cuda.h");
_Static_assert((int)GCP_CUDA_NOT_READY == (int)CUDA_ERROR_NOT_READY, "cuda.h");
_Static_assert(sizeof(CUdeviceptr) == sizeof(gcp_addr), "64-bit only");

/* --- memory ------------------------------------------------------------------ */

static int driver_mem_alloc(void *ctx, uint64_t bytes, gcp_addr *ret_addr)
{
	assert(ctx && bytes > 0);
	return GCP_WITHIN(
	    ctx, gcp_real.cuMemAlloc_v2((CUdeviceptr *)(void *)ret_addr, bytes));
}

static int driver_mem_free(void *ctx, gcp_addr addr)
{
	assert(ctx && addr);
	CUresult result = GCP_WITHIN(ctx, gcp_real.cuMemFree_v2(addr));
	gcp_given();
	return result;
}

/* Where memory is open to more devices than the program asked for, cuMemFree waits for
 * fewer copies than on plain CUDA. */
static int driver_foreign_wait(void *ctx, uint64_t moment, bool own)
{
	CUresult result = gcp_foreign_work_wait(ctx, moment, own);

	if (result == CUDA_SUCCESS && own)
		result = gcp_foreign_work_ask(ctx, moment, false);
	return result == CUDA_ERROR_NOT_READY ? -EAGAIN : (int)result;
}

static int driver_mem_left(void *ctx, uint64_t *ret_bytes)
{
	size_t total;

	assert(ctx && ret_bytes);
	return GCP_WITHIN(ctx, gcp_real.cuMemGetInfo_v2(ret_bytes, &total));
}

static void driver_mem_trim(void *ctx)
{
	CUmemoryPool pool = NULL, standard = NULL;
	struct gcp_ctx_scope scope;
	CUdevice device;

	assert(ctx);
	if (gcp_ctx_scope_begin(&scope, ctx) != CUDA_SUCCESS)
		return;
	if (gcp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		if (gcp_real.cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS)
			gcp_real.cuMemPoolTrimTo(pool, 0);
		if (gcp_real.cuDeviceGetDefaultMemPool(&standard, device) ==
			CUDA_SUCCESS &&
		    standard != pool)
			gcp_real.cuMemPoolTrimTo(standard, 0);
		gcp_real.cuDeviceGraphMemTrim(device);
	}
	gcp_ctx_scope_end(&scope);
}

/* --- memory goes back without a wait for other work --------------------------- */

/* cuMemFree waits for all work of the context, that which was submitted a moment ago as
 * well, and that may be waiting for the program's next step. cuMemFreeAsync takes
 * memory of cuMemAlloc too ("cudaFreeAsync can free memory of cudaMalloc", CUDA C++
 * Programming Guide, stream-ordered memory allocator), and is ordered by its stream
 * alone: on a stream of our own, which never has other work, it is done at once. After
 * cuStreamSynchronize the driver has the memory (measured on driver 580: 60 % of a
 * device beside a kernel that does not end: 33 ms; cuMemFree waits for the kernel).
 * The stream of a context is made before it is needed (purge.c). */

static bool driver_mem_release_prepare(void *ctx)
{
	return GCP_WITHIN(ctx, gcp_contexts_release_stream(ctx)
				   ? CUDA_SUCCESS
				   : CUDA_ERROR_OUT_OF_MEMORY) == CUDA_SUCCESS;
}

static int driver_release(void *ctx, gcp_addr addr)
{
	struct gcp_ctx_scope scope;
	int result = -EBUSY;

	assert(ctx && addr);
	if (gcp_ctx_scope_begin(&scope, ctx) != CUDA_SUCCESS)
		return -EBUSY;
	CUstream stream = gcp_contexts_release_stream(ctx);
	if (stream && gcp_real.cuMemFreeAsync(addr, stream) == CUDA_SUCCESS) {
		gcp_real.cuStreamSynchronize(stream); /* an error shows again */
		gcp_given();
		result = 0;
	}
	gcp_ctx_scope_end(&scope);
	return result;
}

/* --- fences ------------------------------------------------------------------ */

/* An event behind what the device does for the context, and the copies that other
 * devices do for it. */
struct context_fence {
	CUevent event;
	CUcontext ctx;
	uint64_t foreign; /* foreign_work.h: the latest work, when it was recorded */
};

static int driver_fence_create(void *ctx, void **ret_fence)
{
	GCP_KEEP_ERRNO;
	struct context_fence *fence = calloc(1, sizeof(*fence));
	CUresult result;

	assert(ctx && ret_fence);
	if (!fence)
		return -ENOMEM;
	fence->ctx = ctx;
	result = gcp_event_create(ctx, &fence->event);
	if (result != CUDA_SUCCESS)
		free(fence);
	else
		*ret_fence = fence;
	return result;
}

static int driver_fence_record(void *ctx, void *handle)
{
	struct context_fence *fence = handle;
	GCP_KEEP_ERRNO;
	CUresult result;

	gcp_assert_driver_call();
	assert(ctx == fence->ctx && fence->event);
	fence->foreign = gcp_foreign_work_latest();
	result = gcp_contexts_note(gcp_real.cuCtxRecordEvent(ctx, fence->event));
	if (result != CUDA_SUCCESS)
		gcp_log(GCP_LOG_DEBUG,
			"context %p cannot be fenced (error %d): calls pass through",
			ctx, (int)result);
	return result;
}

/* A barrier of the context. The lock of contexts.c is held. */
static int fence_order_in(void *handle, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	const struct context_fence *fence = handle;
	assert(ctx && fence->event && fence->ctx);
	CUresult result = gcp_real.cuCtxWaitEvent(ctx, fence->event);

	return result == CUDA_SUCCESS
		   ? gcp_foreign_work_order(ctx, fence->ctx, fence->foreign)
		   : (int)result;
}

/* While other devices' work is pending no context may be ending. */
int gcp_fence_wait_in(void *ctx, void *handle)
{
	const struct context_fence *fence = handle;
	struct gcp_ctx_scope scope;
	int result = -EBUSY;

	assert(ctx && fence->event);
	gcp_ctx_scope_begin(&scope, NULL);
	if (!gcp_foreign_work_is_pending(fence->foreign)) {
		result = (int)gcp_real.cuCtxWaitEvent(ctx, fence->event);
	} else if (gcp_contexts_hold()) {
		result = fence_order_in(handle, ctx);
		gcp_contexts_unlock();
	}
	gcp_ctx_scope_end(&scope);
	return result;
}

static int driver_fence_order(void *handle, bool alone)
{
	GCP_KEEP_ERRNO;

	assert(handle);
	return gcp_contexts_for_each(fence_order_in, handle, alone);
}

/* The thread's mode is relaxed, if a capture is under way. */
static CUresult fence_query(const struct context_fence *fence)
{
	gcp_assert_driver_call();
	CUresult result = gcp_contexts_note(gcp_real.cuEventQuery(fence->event));

	if (result != CUDA_SUCCESS || !gcp_foreign_work_is_pending(fence->foreign))
		return result;
	return gcp_foreign_work_query(fence->ctx, fence->foreign, false);
}

/* For a fence of a context pool/ asks under the lock that a capture takes before it
 * begins: when none is under way now, none can begin before the answer is there. */
static int driver_fence_query(void *handle)
{
	const struct context_fence *fence = handle;
	GCP_KEEP_ERRNO;

	assert(fence->event);
	return gcp_tracker_capturing(gcp_process.tracker)
		   ? GCP_WITHIN(NULL, fence_query(fence))
		   : fence_query(fence);
}

static int driver_fence_wait(void *handle, bool own)
{
	const struct context_fence *fence = handle;

	assert(fence->event);
	CUresult result = GCP_WITHIN(
	    NULL, gcp_contexts_note(gcp_real.cuEventSynchronize(fence->event)));
	if (result == CUDA_SUCCESS)
		result = gcp_foreign_work_wait(fence->ctx, fence->foreign, own);
	return result;
}

/* --- pinned memory ------------------------------------------------------------- */

static int driver_host_alloc(void *ctx, uint64_t bytes, uint32_t flags, void **ret_p)
{
	assert(ctx && bytes > 0);
	return GCP_WITHIN(ctx, gcp_real.cuMemHostAlloc(ret_p, bytes, flags));
}

static int driver_host_free(void *ctx, void *p)
{
	assert(ctx && p);
	CUresult result = GCP_WITHIN(ctx, gcp_real.cuMemFreeHost(p));
	gcp_given();
	return result;
}

/* --- where pinned memory lies ----------------------------------------------------- */

/* A program that stages through pinned memory may have bound its threads to the
 * processor next to the GPU (numactl, sched_setaffinity). A cache that hands memory of
 * one node to a thread of another loses what that was for. So the node of the processor
 * that the thread runs on is part of a block's kind. */

enum { CPUS_MAX = 4096 };

/* "0" or "0-1,3"; there is no such file in a kernel without NUMA. */
static bool nodes_are_several(void)
{
	enum { UNKNOWN, ONE, SEVERAL };
	static atomic_int nodes;
	char text[64];

	if (atomic_load_explicit(&nodes, memory_order_relaxed) == UNKNOWN) {
		(void)gcp_file_read("/sys/devices/system/node/has_memory", text,
				    sizeof(text));
		atomic_store(&nodes, strpbrk(text, "-,") ? SEVERAL : ONE);
	}
	return atomic_load_explicit(&nodes, memory_order_relaxed) == SEVERAL;
}

/* Node + 1, remembered for each processor: glibc has no getcpu before 2.29, but
 * sched_getcpu, which is no system call. */
static uint32_t driver_host_place(void)
{
	static _Atomic uint16_t places[CPUS_MAX];
	unsigned int cpu, node = 0;
	GCP_KEEP_ERRNO;
	int here;

	if (!nodes_are_several())
		return 0;
	here = sched_getcpu();
	if (here >= 0 && here < CPUS_MAX && places[here])
		return places[here];
	if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0)
		return 0;
	if (cpu < CPUS_MAX)
		places[cpu] = (uint16_t)(node + 1);
	return node + 1;
}

/* --- the tables -------------------------------------------------------------- */

static uint64_t driver_device_memory(int device)
{
	size_t bytes = 0;

	assert(device >= 0);
	(void)GCP_WITHIN(NULL, gcp_real.cuDeviceTotalMem_v2(&bytes, device));
	return bytes;
}

static bool driver_graphs_look(void)
{
	return gcp_tracker_waiting(gcp_process.tracker) > 0 &&
	       gcp_tracker_look(gcp_process.tracker);
}

/* A name that can be looked up need not work: the library of that name may be newer
 * than the driver that it stands before. */
bool gcp_driver_is_sufficient(void)
{
	enum { CUDA_WITH_CONTEXT_FENCES = 12050 };
	int version = CUDA_WITH_CONTEXT_FENCES;

	return gcp_resolve_complete() &&
	       (gcp_real.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
		version >= CUDA_WITH_CONTEXT_FENCES);
}

void gcp_driver_fill(struct gcp_driver *ret_driver)
{
	*ret_driver = (struct gcp_driver){
	    .mem_alloc = driver_mem_alloc,
	    .mem_free = driver_mem_free,
	    .mem_release = driver_release,
	    .mem_release_prepare = driver_mem_release_prepare,
	    .mem_left = driver_mem_left,
	    .mem_trim = driver_mem_trim,
	    .foreign_now = gcp_foreign_work_latest,
	    .foreign_wait = driver_foreign_wait,
	    .foreign_everywhere = gcp_foreign_work_everywhere,
	    .third_party_writers = gcp_third_party_dma_possible,
	    .clock_ns = gcp_clock_ns,
	    .given_by_others = gcp_given_by_others,
	    .graphs_look = driver_graphs_look,
	    .device_memory = driver_device_memory,
	    .fence_create = driver_fence_create,
	    .fence_discard = free,
	    .fence_query = driver_fence_query,
	    .fence_wait = driver_fence_wait,
	    .fence_record = driver_fence_record,
	    .fence_order = driver_fence_order,
	    .host_alloc = driver_host_alloc,
	    .host_free = driver_host_free,
	    .host_place = driver_host_place,
	};
}
