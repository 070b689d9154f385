/* SPDX-License-Identifier: MIT */
/*
 * hooks_pinned.c - the hooks that allocate and free pinned host memory.
 *
 * As hooks_memory.c: a hit asks CUDA for the current context and nothing else, and what
 * is not ours or not sure goes to the real function. A block is one allocation of the
 * driver, so what CUDA says of its flags and its device pointer is right by itself
 * while the program has it (pointer_queries.c). Registering passes through, too, and is
 * made again where the host can pin no more and some may come back.
 */
#include "../base/clock.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"
#include "hooks_memory.h"

#define GCP_PINNED_FLAGS                                                               \
	(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |                        \
	 CU_MEMHOSTALLOC_WRITECOMBINED)

/* --- allocate ----------------------------------------------------------------- */

/* cuMemAllocHost is cuMemHostAlloc without flags. */
struct host_request {
	void **ret_ptr;
	size_t bytes;
	unsigned int flags;
};

static void host_refused(const struct host_request *request, enum gcp_shortage why)
{
	gcp_shortage_say("cuMemHostAlloc", request->bytes, why, true);
}

/* Made again while memory may come back: hooks_memory.c. */
static CUresult host_pass(const struct host_request *request)
{
	uint64_t start = gcp_clock_ns();

	assert(gcp_ranks_held == 0); /* the driver waits for the host */
	CUresult result = GCP_AGAIN(
	    gcp_real.cuMemHostAlloc(request->ret_ptr, request->bytes, request->flags),
	    .host = true);

	gcp_call_stats_add(GCP_COUNTED_mem_host_alloc, start, request->bytes,
			   (int)result);
	return result;
}

static int host_take(struct gcp_pool *pool, const struct host_request *request,
		     void **ret_ptr)
{
	assert(request->bytes > 0 && !(request->flags & ~GCP_PINNED_FLAGS));
	if (gcp_process_alloc_asks())
		return gcp_tracker_host_alloc(gcp_process.tracker, pool, gcp_thread.ctx,
					      gcp_thread.stream, request->bytes,
					      request->flags, ret_ptr);
	return gcp_pinned_alloc(pool, request->bytes, request->flags, NULL, ret_ptr);
}

static CUresult host_alloc(const struct host_request *request)
{
	struct gcp_tries tries = {.host = true, .served = true};
	struct gcp_pool *pool = NULL;
	void *ptr;
	int result;

	if (gcp_process_started_mode() == GCP_RUN_POOL && request->ret_ptr &&
	    request->bytes && request->bytes <= GCP_BYTES_MAX &&
	    !(request->flags & ~GCP_PINNED_FLAGS))
		pool = gcp_thread_pool();
	if (!pool)
		return host_pass(request);
	do
		result = host_take(pool, request, &ptr);
	while (gcp_again(&tries, (CUresult)result));
	if (result == -ENOSYS)
		return host_pass(request);
	if (result == 0) {
		*request->ret_ptr = ptr;
		gcp_observe_call(GCP_TRACE_host_alloc, (uintptr_t)ptr, request->bytes,
				 0, request->flags);
	}
	if (result >= 0 && result != GCP_CUDA_OUT_OF_MEMORY)
		return (CUresult)result;
	assert(result < 0 || result == GCP_CUDA_OUT_OF_MEMORY);
	/* Plain memory would be gone at its free, and a graph may still address it. And
	 * no quota counts it. */
	if (gcp_tracker_capturing(gcp_process.tracker) ||
	    gcp_process.options.pool.pinned_quota != GCP_LIMIT_NONE) {
		host_refused(request,
			     result < 0 ? GCP_SHORTAGE_CAPTURE : GCP_SHORTAGE_POOL);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* The pool could not, rounded up and with records to keep; what was asked for
	 * may still fit. It must not cost a capture. */
	result = (int)GCP_WITHIN(NULL, host_pass(request));
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		host_refused(request, GCP_SHORTAGE_DRIVER);
	return (CUresult)result;
}

/* --- free --------------------------------------------------------------------- */

static CUresult host_free(void *ptr)
{
	int result = -ENOENT;
	uint64_t start;

	if (ptr && gcp_process_pooling()) {
		gcp_observe_call(GCP_TRACE_host_free, (uintptr_t)ptr, 0, 0, 0);
		result = gcp_pinned_free(gcp_process.pools, ptr);
	}
	if (result != -ENOENT)
		return result < 0 ? CUDA_ERROR_INVALID_VALUE : (CUresult)result;
	start = gcp_clock_ns();
	result = (int)gcp_real.cuMemFreeHost(ptr);
	gcp_call_stats_add(GCP_COUNTED_mem_host_free, start, 0, result);
	/* The driver has waited for the context, where graphs may have left some. */
	if (ptr && result == 0 && gcp_process_pooling())
		gcp_pinned_keep_limit(gcp_process.pools);
	return (CUresult)result;
}

/* --- the hooks ---------------------------------------------------------------- */

/* To register pins memory of the program's own. Plain CUDA keeps nothing pinned that
 * could stand in its way. */
#define HOOK_cuMemHostRegister(real, call, twin) GCP_AGAIN(call, .host = true)
#define HOOK_cuMemHostAlloc(real, call, twin)                                          \
	host_alloc(&(struct host_request){ret_ptr, bytes, flags})
#define HOOK_cuMemAllocHost(real, call, twin)                                          \
	host_alloc(&(struct host_request){ret_ptr, bytes, 0})
#define HOOK_cuMemFreeHost(real, call, twin) host_free(ptr)
GCP_HOOKS_HOST(GCP_HOOK)
