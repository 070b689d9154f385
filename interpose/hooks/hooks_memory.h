/* SPDX-License-Identifier: MIT */
/*
 * hooks_memory.h - what the hooks on memory share with each other.
 */
#ifndef GCP_INTERPOSE_HOOKS_MEMORY_H
#define GCP_INTERPOSE_HOOKS_MEMORY_H

#include "../cuda/call.h"
#include "../process/observe.h"
#include "../process/passed.h"
#include "../process/shortage.h"
#include "../process/spill.h"

static inline int gcp_memory_try(struct gcp_pool *pool, size_t bytes,
				 gcp_addr *ret_addr)
{
	if (__builtin_expect(gcp_process_alloc_asks(), 0))
		return gcp_observe_alloc(pool, bytes, ret_addr);
	return gcp_pool_alloc(pool, bytes, ret_addr);
}

/* Of a call that is made again for want of memory: what it is, and how often it was
 * made, and what for. */
struct gcp_tries {
	bool host;             /* it is for pinned memory */
	bool served;           /* the pool has looked through what all pools have */
	struct gcp_pool *pool; /* of device memory then; or NULL */
	bool launch;           /* not made again beside a capture */
	const CUdevice *where; /* of which device; NULL: the current one */
	const char *maker;     /* its name: it makes something else; or NULL */
	struct gcp_search search;
	uint64_t bytes;   /* that the call needs; 0: unknown */
	bool async;       /* it is stream-ordered */
	gcp_addr spilled; /* memory of the host that it has got; 0: none */
	bool graphs;      /* one of the tries was for memory of graphs that are gone */
	unsigned pools;   /* because the pools gave memory back */
	unsigned
	    others; /* because graphs that share, or other threads, gave some back */
};

/* Returns the code that the program gets for an allocation with `result`. Stores the
 * address; says that memory is out. */
static inline CUresult gcp_memory_given(int result, gcp_addr addr, CUdeviceptr *ret_ptr,
					const char *name, size_t bytes)
{
	assert(result != 0 || addr);
	if (result == 0)
		*ret_ptr = addr;
	else if (result == GCP_CUDA_OUT_OF_MEMORY)
		gcp_shortage_say(name, bytes, GCP_SHORTAGE_POOL, false);
	return (CUresult)result;
}

/* Returns -1: a short cut has failed with `result`, and its caller calls the real
 * function. That comes back through the driver's hook, which tries again if memory was
 * refused, and the runtime keeps the result as its last error. */
static inline int gcp_memory_refused(int result)
{
	gcp_thread.runtime_refused = result > 0 ? result : 0;
	return -1;
}

/* After a first try that gave `result`: another one where that found no memory. order:
 * of stream-ordered memory, for `stream`; or NULL. */
int gcp_memory_alloc_again(struct gcp_pool *pool, size_t bytes, CUstream stream,
			   struct gcp_stream_order *order, int result,
			   gcp_addr *ret_addr);

/* Makes a call for memory that passes through, again while memory may come back. key
 * identifies the memory that it got; the other arguments set fields of struct gcp_pass.
 */
#define GCP_PASS(key, call, ...)                                                       \
	({                                                                             \
		struct gcp_pass pass_ = {.start = gcp_clock_ns(), __VA_ARGS__};        \
		CUresult passed_ =                                                     \
		    GCP_AGAIN(gcp_pass_tried(&pass_, gcp_pass_may(&pass_)              \
							 ? (call)                      \
							 : CUDA_ERROR_OUT_OF_MEMORY),  \
			      .bytes = pass_.memory.bytes);                            \
		gcp_pass_end(&pass_, passed_, passed_ ? 0 : (key));                    \
	})

/* The real functions, with their call counted. */
CUresult gcp_memory_pass_alloc(CUdeviceptr *ret_ptr, size_t bytes);
/* waits: as cuMemFree does (spill.h). */
CUresult gcp_memory_pass_free(CUdeviceptr ptr, bool waits);

/* Before memory is given to a user that stands in no context's queue: waits
 * until no earlier work can touch the block around `ptr`. CUDA_SUCCESS also for
 * memory that is not ours. */
CUresult gcp_memory_complete(CUdeviceptr ptr);

/* Returns true if the first or the last address is one that the library has mapped, or
 * set aside: for a pool, or for memory of another process or of the host. */
bool gcp_memory_overlaps(CUdeviceptr ptr, size_t bytes);

/* Returns true if a call failed for want of memory and something was given back since:
 * by this thread, or by another one, which may have had what this one has looked for. A
 * call that no memory helps ends, whatever other threads do. One that makes something
 * else waits beside a capture for nothing that the frees of plain CUDA have not waited
 * for, and is named in a line if it is refused permanently. */
bool gcp_comes_back(struct gcp_tries *tries);
static inline bool gcp_again(struct gcp_tries *tries, CUresult result)
{
	return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) &&
	       gcp_comes_back(tries);
}

/* The result of a call, made again as long as that may help; then fields of its
 * gcp_tries. */
#define GCP_AGAIN(call, ...)                                                           \
	({                                                                             \
		struct gcp_tries tries_ = {__VA_ARGS__};                               \
		CUresult tried_;                                                       \
		do                                                                     \
			tried_ = (call);                                               \
		while (gcp_again(&tries_, tried_));                                    \
		tried_;                                                                \
	})

/* What a free by the pool that gave `result` is for the program; -ENOENT: the real
 * function frees it. */
CUresult gcp_memory_freed(CUdeviceptr ptr, int result, bool waits);

/* --- hooks_async.c -------------------------------------------------------- */

/* For callers that name a stream and want stream-ordered memory from the pool, whatever
 * the program has set for cudaMallocAsync. Only while pooling. The context in which the
 * memory belongs is current. While `stream` captures it is the capture's, as that of
 * cudaMalloc is. */
CUresult gcp_async_alloc_named(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream);

/* Frees a block of context `owner`. anywhere: it was used in other streams, too. */
CUresult gcp_async_free_named(CUdeviceptr ptr, CUstream stream, void *owner,
			      bool anywhere);

/* The short cuts of a thread that is sure (hooks_runtime.c). < 0: the real function is
 * needed. `stream` as gcp_stream_named gives it. */
int gcp_async_short_alloc(void **ret_ptr, size_t bytes, CUstream stream);
int gcp_async_short_free(void *ptr, CUstream stream);

#endif
