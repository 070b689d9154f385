/* SPDX-License-Identifier: MIT */
/*
 * hooks_memory.c - the hooks that allocate and free device memory, pitched memory and
 * memory of other kinds, but for the stream-ordered ones (hooks_async.c).
 *
 * A hit asks CUDA for the current context and nothing else. Whatever is not
 * ours, or not sure, goes to the real function untouched.
 */

#include "../base/clock.h"
#include "../ipc/ipc_server.h"
#include "../process/calling_thread.h"
#include "../process/cuda_backend.h"
#include "../process/help.h"
#include "../process/process_life.h"
#include "hooks_memory.h"

/* --- passing through ----------------------------------------------------------- */

CUresult gcp_memory_pass_alloc(CUdeviceptr *ret_ptr, size_t bytes)
{
	gcp_assert_driver_call();
	return GCP_PASS(*ret_ptr, gcp_real.cuMemAlloc_v2(ret_ptr, bytes),
			.call_name = "cuMemAlloc",
			.memory = {GCP_COUNTED_mem_alloc, gcp_device_here(), bytes});
}

CUresult gcp_memory_pass_free(CUdeviceptr ptr, bool waits)
{
	uint64_t start = gcp_clock_ns();
	CUresult result;
	int spilled;

	gcp_passed_drop(GCP_PASSED_ADDRESS, ptr, 1);
	spilled = gcp_spill_free(ptr, waits);
	if (spilled == -ENOENT)
		result = gcp_real.cuMemFree_v2(ptr);
	else
		result = spilled < 0 ? CUDA_ERROR_INVALID_VALUE : (CUresult)spilled;
	gcp_call_stats_add(GCP_COUNTED_mem_free, start, 0, result);
	if (result == CUDA_SUCCESS && ptr)
		gcp_observe_call(GCP_TRACE_pass_free, ptr, 0, start, 0);
	else if (result == CUDA_ERROR_INVALID_VALUE)
		gcp_observe_free_wrong(ptr, false);
	return result;
}

/* --- allocate ----------------------------------------------------------------- */

/* The pool could not: the host is out of memory, or the context refuses fences
 * (-ENOTSUP, and the memory is no capture's). Plain memory will do, but not for
 * a capture: no graph would keep it, and to free it would destroy the capture. */
static CUresult memory_pass_relaxed(CUdeviceptr *ret_ptr, size_t bytes, int why)
{
	assert(why < 0); /* what the driver has refused is not tried again */
	if (why != -ENOTSUP && gcp_process_capturing()) {
		gcp_shortage_say("cuMemAlloc", bytes, GCP_SHORTAGE_CAPTURE, false);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return GCP_WITHIN(NULL, gcp_memory_pass_alloc(ret_ptr, bytes));
}

/* More than any device has, or not from a pool: CUDA decides. */
static inline CUresult memory_alloc(struct gcp_pool *pool, CUdeviceptr *ret_ptr,
				    size_t bytes)
{
	gcp_addr addr;
	int result;

	assert(ret_ptr && bytes > 0 && bytes <= GCP_BYTES_MAX);
	if (!pool)
		return gcp_memory_pass_alloc(ret_ptr, bytes);
	result = gcp_thread_take_refusal();
	if (__builtin_expect(!result, 1))
		result = gcp_memory_try(pool, bytes, &addr);
	if (__builtin_expect(result != 0, 0))
		result = gcp_memory_alloc_again(pool, bytes, NULL, NULL, result, &addr);
	if (__builtin_expect(result < 0, 0))
		return memory_pass_relaxed(ret_ptr, bytes, result);
	return gcp_memory_given(result, addr, ret_ptr, "cuMemAlloc", bytes);
}

GCP_HOOKED(cuMemAlloc_v2)
{
	struct gcp_pool *pool;

	if (gcp_process_started_mode() != GCP_RUN_POOL || !ret_ptr || !bytes ||
	    bytes > GCP_BYTES_MAX)
		return gcp_memory_pass_alloc(ret_ptr, bytes);
	pool = gcp_thread_pool();
	gcp_thread.runtime_confirmed =
	    gcp_thread.runtime_inside && pool ? gcp_thread.generation : 0;
	return memory_alloc(pool, ret_ptr, bytes);
}

/* --- pitched memory ----------------------------------------------------------- */

/* Rows are as wide as CUDA makes them, a multiple of 512 bytes (driver 580, measured),
 * and memory as any other. What CUDA would refuse is refused by it. */
GCP_HOOKED(cuMemAllocPitch_v2)
{
	enum { ROW = 512 };
	size_t pitch, bytes;
	CUresult result;

	if (gcp_process_started_mode() != GCP_RUN_POOL || !ret_ptr || !ret_pitch ||
	    !width || !height || (element != 4 && element != 8 && element != 16) ||
	    __builtin_add_overflow(width, ROW - 1, &pitch) ||
	    __builtin_mul_overflow(pitch / ROW * ROW, height, &bytes) ||
	    bytes > GCP_BYTES_MAX)
		return GCP_PASS(*ret_ptr, GCP_CALLED(cuMemAllocPitch_v2),
				.call_name = "cuMemAllocPitch",
				.memory = {GCP_COUNTED_mem_alloc_pitch,
					   gcp_device_here(), width * height});
	assert(bytes >= width && bytes % ROW == 0);
	result = memory_alloc(gcp_thread_pool(), ret_ptr, bytes);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
		*ret_pitch = pitch / ROW * ROW; /* CUDA says it in both cases */
	return result;
}

/* --- free --------------------------------------------------------------------- */

/* A thread that only frees caches blocks too. */
static inline int memory_free(gcp_addr addr)
{
	int result;

	if (__builtin_expect(!gcp_thread.free_direct, 0)) {
		gcp_thread_watch();
		result = gcp_observe_free(addr);
	} else {
		result = gcp_pools_free(gcp_process.pools, addr);
	}
	return __builtin_expect(result == -EREMOTE, 0) ? gcp_ipc_server_free(addr, true)
						       : result;
}

CUresult gcp_memory_freed(CUdeviceptr ptr, int result, bool waits)
{
	if (result == -ENOENT)
		return gcp_memory_pass_free(ptr, waits);
	return result < 0 ? CUDA_ERROR_INVALID_VALUE : (CUresult)result;
}

GCP_HOOKED(cuMemFree_v2)
{
	int result = -ENOENT;

	if (ptr && gcp_process_pooling())
		result = memory_free(ptr);
	if (__builtin_expect(result == 0, 1))
		return CUDA_SUCCESS;
	return gcp_memory_freed(ptr, result, true);
}

/* --- memory of other kinds ---------------------------------------------------- */

/* More than there are epochs to wait for, one at a time (GCP_FENCE_QUEUE). */
enum { TRIES_POOLS = 1000 };

static bool may_try_again(struct gcp_tries *tries, enum gcp_relief relief)
{
	if (relief == GCP_RELIEF_POOLS)
		return ++tries->pools < TRIES_POOLS;
	return relief == GCP_RELIEF_OTHERS && ++tries->others < GCP_TRIES_OTHERS;
}

/* From graphs: what those have held that are gone by now, and, of device memory, what
 * others share: their launches need it again, so a block that may be on the host goes
 * there before. pool: it is for a block of it. */
static enum gcp_relief graphs_relieve(struct gcp_tries *tries, int device,
				      struct gcp_pool *pool)
{
	bool spills = pool && gcp_process.options.spill;

	if (gcp_tracker_reclaim(gcp_process.tracker)) {
		/* The pools have it, and may have to look for its end. */
		if (!tries->graphs)
			tries->search.looks = 0;
		tries->graphs = true;
		return GCP_RELIEF_POOLS;
	}
	if (device >= 0 && !spills &&
	    gcp_share_trim(gcp_process.tracker, device, 0) > 0)
		return GCP_RELIEF_OTHERS;
	if (gcp_search_others(gcp_process.pools, &tries->search) ||
	    (device >= 0 && gcp_help_ask(device, tries->bytes, NULL)))
		return GCP_RELIEF_OTHERS;
	return spills &&
		       !gcp_spill_alloc(pool, tries->bytes, tries->async,
					&tries->spilled) &&
		       gcp_share_trim(gcp_process.tracker, device, 0) > 0
		   ? GCP_RELIEF_OTHERS
		   : GCP_RELIEF_NONE;
}

int gcp_memory_alloc_again(struct gcp_pool *pool, size_t bytes, CUstream stream,
			   struct gcp_stream_order *order, int result,
			   gcp_addr *ret_addr)
{
	struct gcp_tries tries = {
	    .served = true, .pool = pool, .bytes = bytes, .async = order != NULL};

	assert(result != 0 && (pool || result < 0));
	/* The pool has seen what others gave before. */
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		(void)gcp_search_others(gcp_process.pools, &tries.search);
	while (gcp_again(&tries, (CUresult)result))
		result = order ? gcp_observe_alloc_async(pool, bytes, stream, order,
							 ret_addr)
			       : gcp_memory_try(pool, bytes, ret_addr);
	if (tries.spilled)
		*ret_addr = tries.spilled;
	return tries.spilled ? 0 : result;
}

/* The hooks on functions that create memory of other kinds:
 * managed, arrays, virtual memory; and on those that make something else of it:
 * code, streams, contexts. They pass through;
 * when memory is out, the pools give theirs back, and the call is made again while that
 * may help (struct gcp_tries). The last result is the program's. Such a call has
 * done nothing, so that it can be made again. */

/* On plain CUDA most calls that make something else wait for nothing: beside a capture
 * the last stage, which would wait for all work, is left out for them. So it is for
 * pinned memory, and memory that graphs share does not go back for that. What others
 * gave needs no wait; at first it may have been before the call. */
bool gcp_comes_back(struct gcp_tries *tries)
{
	bool capturing = gcp_process_capturing();
	bool host = tries->host || (tries->maker && capturing);
	enum gcp_relief relief = GCP_RELIEF_NONE;
	CUdevice device = tries->pool ? gcp_pool_device(tries->pool) : -1;
	GCP_KEEP_ERRNO;

	assert(!tries->host || (!tries->maker && !tries->where));
	assert(!tries->spilled && (tries->served || !tries->pool));
	if (!gcp_process_pooling() || (tries->launch && capturing))
		return false;
	if (!host && !tries->pool)
		device = tries->where ? *tries->where : gcp_device_here();
	if (!tries->served && gcp_search_others(gcp_process.pools, &tries->search) &&
	    may_try_again(tries, GCP_RELIEF_OTHERS))
		return true;
	if (!tries->served)
		relief =
		    host ? gcp_pools_relieve_host(gcp_process.pools, &tries->search)
			 : gcp_pools_relieve(gcp_process.pools, device, &tries->search);
	if (relief == GCP_RELIEF_NONE)
		relief = graphs_relieve(tries, device, tries->pool);
	if (may_try_again(tries, relief))
		return true;
	if (tries->maker)
		gcp_shortage_say(tries->maker, 0, GCP_SHORTAGE_DRIVER, false);
	return false;
}

static CUresult memory_mapped(CUresult result, CUmemGenericAllocationHandle handle,
			      CUdeviceptr ptr)
{
	if (result == CUDA_SUCCESS)
		gcp_passed_map(handle, ptr);
	return result;
}

/* Memory of cudaMalloc is not the program's to map, and CUDA refuses it. */
#define MAPPING(call, base)                                                            \
	(gcp_memory_overlaps(ptr, bytes) ? CUDA_ERROR_INVALID_VALUE                    \
					 : GCP_AGAIN(call, .maker = base))
#define HOOK_cuMemMap(real, call, twin)                                                \
	memory_mapped(MAPPING(call, "cuMemMap"), handle, ptr)
#define HOOK_cuMemSetAccess(real, call, twin) MAPPING(call, "cuMemSetAccess")
#define HOOK_cuMemUnmap(real, call, twin)                                              \
	MAPPING((gcp_passed_drop(GCP_PASSED_MAPPING, ptr, bytes), call), "cuMemUnmap")
#define HOOK_cuMemAddressFree(real, call, twin) MAPPING(call, "cuMemAddressFree")
GCP_HOOKS_MAPPINGS(GCP_HOOK)

/* Which statistics a call belongs to, the device whose quota counts it, and the bytes
 * it asks for (of an array without its smaller levels); by what that goes back. Managed
 * memory lies where it is used. */
#define GCP_ARRAY(depth)                                                               \
	.kind = GCP_PASSED_ARRAY,                                                      \
	.memory = {GCP_COUNTED_array_create, gcp_device_here(),                        \
		   descriptor ? gcp_passed_array_bytes(                                \
				    descriptor->Width, descriptor->Height, depth,      \
				    descriptor->Format, descriptor->NumChannels)       \
			      : 0}
#define GCP_PASS_cuMemAllocManaged .memory = {GCP_COUNTED_mem_alloc_managed, -1, bytes}
#define GCP_PASS_cuMemCreate                                                           \
	.kind = GCP_PASSED_HANDLE,                                                     \
	.memory = {GCP_COUNTED_mem_create, gcp_passed_device(properties), bytes}
#define GCP_PASS_cuArrayCreate_v2       GCP_ARRAY(1)
#define GCP_PASS_cuArray3DCreate_v2     GCP_ARRAY(descriptor->Depth)
#define GCP_PASS_cuMipmappedArrayCreate GCP_ARRAY(descriptor->Depth)
#define GCP_FIRST(argument, ...)        ((uint64_t)(uintptr_t) * (argument))
#define GCP_GOT(arguments)              GCP_FIRST arguments

#define CREATORS_HOOK(name, base, version, twin, need)                                 \
	GCP_HOOKED(name)                                                               \
	{                                                                              \
		(void)gcp_process_started_mode();                                      \
		return GCP_PASS(GCP_GOT(GCP_ARGUMENTS_##name), GCP_CALLED(name),       \
				.call_name = #base, GCP_PASS_##name);                  \
	}
GCP_HOOKS_CREATORS(CREATORS_HOOK)
