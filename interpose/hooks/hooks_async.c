/* SPDX-License-Identifier: MIT */
/*
 * hooks_async.c - the hooks that allocate and free stream-ordered memory.
 *
 * Memory of a device's default pool comes from the pool of the stream's context, as
 * memory of cuMemAlloc does; what was freed in a stream serves the next allocation in
 * it at once (pool/cache/cache.c). To CUDA go, untouched: streams that capture
 * (their graphs get memory nodes), other pools (async_pools.c), contexts that are no
 * device's primary one (CUDA's pools outlive them, ours do not), those that refuse
 * fences, and everything if GCPOOL_ASYNC=0.
 *
 * WHAT A FREE ORDERS. On plain CUDA it is an operation of its stream, and programs can
 * feel that where a stream is tied to the legacy default stream (measured, driver 580):
 *
 *   - in the legacy stream it comes after all that blocking streams were given before,
 *     and before all that they are given later. An event recorded there does the same,
 *     and is recorded at each such free. What was freed there serves a blocking stream,
 *     too: the allocation does what a free in that stream does.
 *   - in a blocking stream, or a per-thread one, it comes after all that the legacy
 *     stream was given before, and a synchronisation of the stream waits for that. An
 *     event recorded in an idle stream lets cuStreamSynchronize return at once; but one
 *     that the stream is then made to wait for does not: both are done at each such
 *     free. (400 ns; a pair of calls on plain CUDA takes 600.)
 *   - a non-blocking stream knows of no other, and there is nothing to feel.
 */

#include "../base/clock.h"
#include "../cuda/async_pools.h"
#include "../process/calling_thread.h"
#include "../cuda/foreign_work.h"
#include "hooks_memory.h"
#include "../ipc/ipc_server.h"
#include "../process/process_life.h"
#include "../process/stream_refs.h"
#include "../cuda/streams.h"

/* --- allocate --------------------------------------------------------------------- */

/* One call: which of the four functions, and what it was given. */
struct alloc_call {
	CUdeviceptr *ret_ptr;
	size_t bytes;
	CUmemoryPool pool; /* NULL: the current one */
	CUstream stream;   /* as gcp_stream_named gives it */
	const char *name;
};

static CUresult alloc_real(const struct alloc_call *call)
{
	if (call->pool)
		return gcp_real.cuMemAllocFromPoolAsync(call->ret_ptr, call->bytes,
							call->pool, call->stream);
	return gcp_real.cuMemAllocAsync(call->ret_ptr, call->bytes, call->stream);
}

static CUresult capture_ask(CUstream stream, bool *ret_captures)
{
	*ret_captures = false;
	return gcp_process_capturing() ? gcp_stream_capture_ask(stream, ret_captures)
				       : CUDA_SUCCESS;
}

/* Returns true if the stream captures, or CUDA has something to say about that. */
static bool stream_captures(CUstream stream)
{
	bool captures;

	return capture_ask(stream, &captures) != CUDA_SUCCESS || captures;
}

/* Made again while memory may come back: hooks_memory.c. */
static CUresult alloc_pass(const struct alloc_call *call)
{
	bool captures = stream_captures(call->stream);

	return GCP_PASS(captures ? 0 : *call->ret_ptr, alloc_real(call),
			.call_name = call->name,
			.memory = {call->pool ? GCP_COUNTED_mem_alloc_from_pool
					      : GCP_COUNTED_mem_alloc_async,
				   captures ? -1 : gcp_device_here(), call->bytes});
}

/* The same, of a stream that the thread gives work to: what the thread allocates next
 * may be for work there. */
static bool work_is_captured(CUstream stream)
{
	bool captured;

	if (!gcp_process_capturing())
		return false;
	captured = stream_captures(stream);
	gcp_stream_work_given(gcp_stream_capturable(stream) ? stream : NULL, !captured);
	return captured;
}

/* Returns true if the library's pool serves stream-ordered memory there. */
static bool is_served(const struct gcp_stream_ref *ref, CUmemoryPool named)
{
	return ref->serves && gcp_pool_is_fenced(ref->pool) &&
	       gcp_async_serves(ref->device, ref->pool, named);
}

/* In whose order a block may be reused. */
static struct gcp_stream_order order_of(const struct gcp_stream_ref *ref)
{
	if (ref->kind != GCP_STREAM_APART && !ref->marker.event)
		return (struct gcp_stream_order){0};
	return (struct gcp_stream_order){.stream = ref->id, .also = ref->legacy};
}

/* Puts an operation into a stream that is tied to the legacy one: see the top. */
static CUresult stream_mark(const struct gcp_stream_ref *ref, CUstream stream)
{
	assert(ref->marker.event && ref->kind != GCP_STREAM_APART);
	CUresult result = gcp_real.cuEventRecord(ref->marker.event, stream);

	if (result == CUDA_SUCCESS && ref->kind == GCP_STREAM_JOINED)
		result = gcp_real.cuStreamWaitEvent(stream, ref->marker.event, 0);
	return result;
}

/* Whether the block may be given out: it may be of an ordinary segment, the first one
 * or a graph's, to which other devices get no access with that to the default pool. */
static bool is_served_still(const struct gcp_stream_ref *ref, CUstream stream,
			    const struct gcp_stream_order *order, gcp_addr addr)
{
	struct gcp_block_info info;

	if ((__builtin_expect(gcp_async_reaches(ref->device, addr), 1) ||
	     gcp_spill_find(addr, &info)) &&
	    (!order->crossed || stream_mark(ref, stream) == CUDA_SUCCESS))
		return true;
	(void)gcp_observe_free_async(addr, 0, stream);
	return false;
}

/* < 0: CUDA has to. */
static int alloc_from_pool(const struct gcp_stream_ref *ref, CUstream stream,
			   size_t bytes, struct gcp_stream_order *order,
			   gcp_addr *ret_addr)
{
	int result = gcp_thread_take_refusal();

	assert(ref->pool && (!order->stream || order->stream == ref->id)); /* U1 */
	if (!result)
		result =
		    gcp_observe_alloc_async(ref->pool, bytes, stream, order, ret_addr);
	assert(result != 0 || *ret_addr);
	return result ? gcp_memory_alloc_again(ref->pool, bytes, stream, order, result,
					       ret_addr)
		      : 0;
}

static CUresult alloc_served(const struct alloc_call *call,
			     const struct gcp_stream_ref *ref,
			     struct gcp_stream_order order)
{
	CUstream stream = call->stream;
	gcp_addr addr = 0;

	assert((ref->serves || order.named) && call->bytes > 0);
	int result = alloc_from_pool(ref, stream, call->bytes, &order, &addr);
	if (result < 0 && order.named)
		return gcp_memory_pass_alloc(call->ret_ptr, call->bytes);
	if (__builtin_expect(result < 0, 0) ||
	    (result == 0 && !order.named &&
	     !is_served_still(ref, stream, &order, addr)))
		return alloc_pass(call);
	return gcp_memory_given(result, addr, call->ret_ptr, call->name, call->bytes);
}

/* The call has come through from the runtime: the next one need not go there. */
static void thread_is_sure(uint64_t generation)
{
	if (gcp_thread.runtime_inside && gcp_thread.exit_registered)
		gcp_thread.runtime_confirmed = generation;
}

static CUresult alloc_async(const struct alloc_call *call)
{
	const struct gcp_stream_ref *ref;

	if (gcp_process_started_mode() != GCP_RUN_POOL || !gcp_process.options.async ||
	    !call->ret_ptr || !call->bytes || call->bytes > GCP_BYTES_MAX)
		return alloc_pass(call);
	if (work_is_captured(call->stream))
		return alloc_pass(call);
	ref = gcp_stream_ref_find(call->stream);
	if (!ref)
		return alloc_pass(call);
	thread_is_sure(ref->generation);
	return is_served(ref, call->pool) ? alloc_served(call, ref, order_of(ref))
					  : alloc_pass(call);
}

/* --- free ------------------------------------------------------------------------- */

/* A block of `owner` is freed behind the work of `stream`, which is not known as one of
 * that context, or of a green one of it. The epoch that it is freed into covers what
 * the context does; the rest is work of another device. */
static CUresult memory_detach_stream(CUstream stream, void *owner)
{
	CUcontext ctx = NULL, counts = owner;
	CUresult result = gcp_stream_context_ask(stream, &ctx);

	assert(owner); /* U2: NULL would count nowhere */
	if (result != CUDA_SUCCESS)
		return result;
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx == owner)
		return CUDA_SUCCESS;
	return gcp_foreign_work_submitted(ctx, stream, &counts, 1);
}

/* A stream of the block's own context, which does not capture: the block may be reused
 * by its order. 0: by none. marks: the free is an operation of the stream. While a
 * capture is under way the legacy stream gets no marker: over an operation there CUDA
 * loses the captures of blocking streams. The others are known not to capture. */
static CUresult free_order(CUstream stream, void *owner, bool marks,
			   uint64_t *ret_order)
{
	const struct gcp_stream_ref *ref = gcp_stream_ref_of_free(stream);
	CUresult result = CUDA_SUCCESS;

	*ret_order = 0;
	if (!ref || ref->home != owner)
		return memory_detach_stream(stream, owner);
	if (marks && ref->kind != GCP_STREAM_APART) {
		if (!ref->marker.event ||
		    (gcp_process_capturing() && !gcp_stream_capturable(stream)))
			return CUDA_SUCCESS;
		result = stream_mark(ref, stream);
	}
	*ret_order = ref->id;
	return result;
}

static CUresult free_in_order(CUdeviceptr ptr, uint64_t order, CUstream stream)
{
	int freed = gcp_observe_free_async(ptr, order, stream);

	return gcp_memory_freed(
	    ptr, freed == -EREMOTE ? gcp_ipc_server_free(ptr, false) : freed, false);
}

/* CUDA accepts memory of cuMemAlloc here and frees it in stream order, but while the
 * stream captures (driver 580, measured). A block of ours goes to the open epoch, whose
 * fence covers this stream as it covers all others of its context. The real function
 * must not see it, live or not: where a block begins a driver allocation, that would
 * go. */
static CUresult free_here(CUdeviceptr ptr, CUstream stream, void *owner)
{
	bool captures;
	CUresult result = capture_ask(stream, &captures);
	uint64_t order;

	if (captures)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = free_order(stream, owner, true, &order);
	if (result != CUDA_SUCCESS)
		return result;
	(void)work_is_captured(stream);
	return free_in_order(ptr, order, stream);
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream)
{
	int known = -ENOENT;
	struct gcp_block_info info;
	CUresult result;
	uint64_t start;

	if (ptr && gcp_process_pooling())
		known = gcp_pools_held(gcp_process.pools, ptr, &info);
	if (known == -ENOENT && gcp_spill_find(ptr, &info))
		known = ptr == info.addr ? 0 : -EINVAL;
	if (known == 0) {
		start = gcp_contexts_now();
		result = free_here(ptr, stream, info.ctx);
		thread_is_sure(start);
		return result;
	}
	if (known != -ENOENT) {
		gcp_observe_free_wrong(ptr, true);
		return CUDA_ERROR_INVALID_VALUE;
	}
	start = gcp_clock_ns();
	gcp_passed_drop(GCP_PASSED_ADDRESS, ptr, 1);
	result = gcp_real.cuMemFreeAsync(ptr, stream);
	gcp_call_stats_add(GCP_COUNTED_mem_free_async, start, 0, result);
	if (result == CUDA_ERROR_INVALID_VALUE)
		gcp_observe_free_wrong(ptr, false);
	return result;
}

/* No pool is no current one, but an error, and CUDA's to give. */
#define ALLOC_CALL(pool, twin, name)                                                   \
	alloc_async(&(struct alloc_call){ret_ptr, bytes, pool,                         \
					 gcp_stream_named(stream, twin), name})
#define HOOK_cuMemAllocAsync(real, call, twin) ALLOC_CALL(NULL, twin, "cuMemAllocAsync")
#define HOOK_cuMemAllocFromPoolAsync(real, call, twin)                                 \
	(pool ? ALLOC_CALL(pool, twin, "cuMemAllocFromPoolAsync") : (call))
#define HOOK_cuMemFreeAsync(real, call, twin)                                          \
	free_async(ptr, gcp_stream_named(stream, twin))
GCP_HOOKS_ASYNC(GCP_HOOK)

/* --- for frameworks.c ------------------------------------------------------------- */

/* For a stream that captures: memory of the graph, whatever the thread did last. */
static CUresult alloc_named_captured(CUdeviceptr *ret_ptr, size_t bytes,
				     CUstream stream)
{
	struct gcp_stream_hint hint = gcp_thread.stream;
	CUresult result;

	gcp_stream_work_given(gcp_stream_named(stream, false), false);
	gcp_thread.stream.named = true;
	result = gcp_hook_cuMemAlloc_v2(ret_ptr, bytes);
	gcp_thread.stream = hint;
	return result;
}

/* A framework's own allocator is no operation of the stream: no marker is needed. */
CUresult gcp_async_alloc_named(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream)
{
	const struct alloc_call call = {ret_ptr, bytes, NULL, stream, "gcpool_malloc"};
	const struct gcp_stream_ref *ref;

	if (stream_captures(stream))
		return alloc_named_captured(ret_ptr, bytes, stream);
	ref = gcp_stream_ref_find(stream);
	if (!ref)
		return gcp_hook_cuMemAlloc_v2(ret_ptr, bytes);
	return alloc_served(
	    &call, ref, (struct gcp_stream_order){.stream = ref->id, .named = true});
}

/* While the stream captures the graph keeps its own memory, and other memory follows by
 * no order: it waits for its epoch. So does what is used in more streams than that one
 * (`anywhere`). */
CUresult gcp_async_free_named(CUdeviceptr ptr, CUstream stream, void *owner,
			      bool anywhere)
{
	uint64_t order;
	CUresult result;

	if (stream_captures(stream))
		return free_in_order(ptr, 0, stream);
	result = free_order(stream, owner, false, &order);
	return result ?: free_in_order(ptr, anywhere ? 0 : order, stream);
}

/* --- the short cuts ------------------------------ */

int gcp_async_short_alloc(void **ret_ptr, size_t bytes, CUstream stream)
{
	struct gcp_stream_order order;
	const struct gcp_stream_ref *ref;
	gcp_addr addr;
	int result;

	if (!ret_ptr || !bytes || bytes > GCP_BYTES_MAX || !gcp_process.options.async ||
	    gcp_process_alloc_asks()) /* as while a capture is under way */
		return -1;
	ref = gcp_stream_ref_find(stream);
	if (!ref || !is_served(ref, NULL))
		return -1;
	order = order_of(ref);
	result = gcp_pool_alloc_stream(ref->pool, bytes, 0, &order, &addr);
	if (__builtin_expect(result != 0, 0))
		return gcp_memory_refused(result);
	if (!is_served_still(ref, stream, &order, addr))
		return -1;
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

/* What the free has to order comes first, as in free_here: until then the real
 * function can do all of it. */
int gcp_async_short_free(void *ptr, CUstream stream)
{
	gcp_addr addr = (gcp_addr)(uintptr_t)ptr;
	const struct gcp_stream_ref *ref;
	struct gcp_block_info info;
	uint64_t order;

	if (!ptr || gcp_tracker_capturing(gcp_process.tracker))
		return -1;
	ref = gcp_stream_ref_of_free(stream);
	if (ref && ref->kind == GCP_STREAM_APART)
		return gcp_pool_free_stream(ref->pool, addr, ref->id);
	if (gcp_pools_held(gcp_process.pools, addr, &info) != 0 ||
	    free_order(stream, info.ctx, true, &order) != CUDA_SUCCESS)
		return -1;
	return gcp_pools_free_async(gcp_process.pools, addr, order);
}
