/* SPDX-License-Identifier: MIT */
/*
 * pointer_queries.c - the hooks that ask where an allocation begins and ends. They
 * answer for the block that the program was given, not for the driver allocation that
 * holds it, with the size that the program asked for, as CUDA does. Of memory that the
 * program has freed they know nothing.
 *
 * Peer tokens, dma-buf handles and synchronous memory operations give memory to
 * a user that stands in no context's queue: the block is completed first, and so is all
 * that is reused later (third_party_dma.c).
 */

#include <string.h>

#include "../cuda/async_pools.h"
#include "../cuda/contexts.h"
#include "../cuda/third_party_dma.h"
#include "../cuda/cuda_vmm.h"
#include "../ipc/ipc_imports.h"
#include "hooks_memory.h"

/* Finds the answers for an address that the driver would answer otherwise: of
 * a block; or of memory that another process has opened to this one, with the context
 * in which it was opened, or of pinned memory, both without an id. -ENOENT: it is not
 * ours; -EINVAL: memory of the pool that the program does not have (any more). CUDA
 * knows nothing of such an address, though the driver does. */
static int range_find(CUdeviceptr ptr, struct gcp_block_info *ret_range)
{
	struct gcp_import_info import;
	int result = -ENOENT;

	*ret_range = (struct gcp_block_info){0};
	if (gcp_imports_find(ptr, &import)) {
		ret_range->addr = import.ptr;
		ret_range->requested = import.bytes;
		ret_range->ctx = import.ctx;
		ret_range->device = import.device;
		return 0;
	}
	if (gcp_process_pooling())
		result = gcp_block_find(ptr, ret_range);
	if (!ret_range->pool) /* spilled: the driver's answers are right */
		ret_range->mapped = false;
	assert(result != 0 || (ret_range->requested > 0 && ret_range->id));
	return result;
}

static bool is_imported(const struct gcp_block_info *range)
{
	return range->ctx && !range->id;
}

/* Pinned memory: a block is an allocation of the driver, which says where it begins;
 * only its size is rounded up. As range_find. */
static int range_find_pinned(CUdeviceptr ptr, struct gcp_block_info *ret_range)
{
	int result = -ENOENT;

	*ret_range = (struct gcp_block_info){0};
	if (gcp_process_pooling() &&
	    gcp_real.cuPointerGetAttribute(&ret_range->addr,
					   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					   ptr) == CUDA_SUCCESS)
		result = gcp_pinned_find(gcp_process.pools,
					 (void *)(uintptr_t)ret_range->addr,
					 &ret_range->requested);
	assert(result != 0 || ret_range->requested > 0);
	return result;
}

/* Of memory of the device or of the host. As range_find. */
static int asked_find(CUdeviceptr ptr, struct gcp_block_info *ret_range)
{
	int found = range_find(ptr, ret_range);

	return found == -ENOENT ? range_find_pinned(ptr, ret_range) : found;
}

static bool is_freed(CUdeviceptr ptr)
{
	return asked_find(ptr, &(struct gcp_block_info){0}) == -EINVAL;
}

bool gcp_memory_overlaps(CUdeviceptr ptr, size_t bytes)
{
	struct gcp_import_info import;
	struct gcp_block_info info;

	return gcp_process_pooling() &&
	       (gcp_block_find(ptr, &info) != -ENOENT ||
		gcp_block_find(ptr + bytes - 1, &info) != -ENOENT ||
		gcp_imports_find(ptr, &import));
}

CUresult gcp_memory_complete(CUdeviceptr ptr)
{
	struct gcp_block_info info;
	int result;

	if (!gcp_process_pooling() ||
	    gcp_pools_find(gcp_process.pools, ptr, &info) != 0)
		return CUDA_SUCCESS;
	assert(info.addr <= ptr && ptr - info.addr < info.size);
	result = gcp_pools_complete(gcp_process.pools, info.addr);
	if (result > 0)
		return (CUresult)result;
	/* Freed meanwhile is the program's mistake, and for CUDA to name. */
	return result == -EBUSY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* The program makes memory known to what is in no context's queue: it is completed, and
 * what is reused from now on, too. */
static CUresult memory_tell(CUdeviceptr ptr)
{
	gcp_third_party_dma_told();
	return gcp_memory_complete(ptr);
}

/* CUDA knows of an import in the context only that opened it (measured). */
static bool range_is_of_another_context(const struct gcp_block_info *range)
{
	CUcontext ctx = NULL;

	if (!is_imported(range) || gcp_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)
		return false;
	return (gcp_contexts_home_of(ctx) ?: ctx) != range->ctx;
}

/* Asked for nothing, CUDA looks at no pointer (measured). Of a block CUDA is asked,
 * too: a context of another device may know nothing of it. */
GCP_HOOKED(cuMemGetAddressRange_v2)
{
	struct gcp_block_info range;
	int found = asked_find(ptr, &range);
	CUresult result;

	if ((ret_base || ret_bytes) &&
	    (found == -EINVAL || (found == 0 && range_is_of_another_context(&range))))
		return CUDA_ERROR_NOT_FOUND;
	result = GCP_CALLED(cuMemGetAddressRange_v2);
	if (result == CUDA_SUCCESS && found == 0 && ret_base)
		*ret_base = range.addr;
	if (result == CUDA_SUCCESS && found == 0 && ret_bytes)
		*ret_bytes = range.requested;
	return result;
}

/* A block that the program has by cuMemAlloc. */
static bool is_malloced(const struct gcp_block_info *range)
{
	return range->id && !range->async;
}

/* CU_POINTER_ATTRIBUTE_..., which older headers lack. */
enum { MAPPING_SIZE = 18, MAPPING_BASE_ADDR = 19, IS_HW_DECOMPRESS_CAPABLE = 21 };

/* CUDA knows of no context for memory that is mapped by hand. Programs know theirs
 * for what cudaMalloc gives them; that other processes can open that; that its memory
 * has no handles; that it may be read and written, asked from any device (measured:
 * without peer access, too); and what is behind it: 2 MiB that small blocks share, or
 * as many times 2 MiB as a larger one needs. What is stream-ordered is capable of less
 * than memory of cudaMalloc (RDMA: H200), which in an ordinary segment gcpool_malloc
 * gives. A value may be NULL. (Both processors are little-endian.) */
static void range_correct(unsigned int count, const CUpointer_attribute *attributes,
			  void **values, const struct gcp_block_info *range,
			  CUdeviceptr ptr)
{
	const size_t page = (size_t)2 << 20;
	bool async = range->async, mapped = range->mapped,
	     imported = is_imported(range);
	bool malloced = is_malloced(range), shares = range->requested <= page;
	const struct {
		int attribute;
		bool ours; /* else the driver's answer stays */
		uint8_t bytes;
		uint64_t value;
	} answers[] = {
	    /* Of stream-ordered memory CUDA says none. */
	    {CU_POINTER_ATTRIBUTE_CONTEXT, async || range->ctx, 8,
	     async ? 0 : (uintptr_t)range->ctx},
	    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, async, 8,
	     async ? (uintptr_t)gcp_async_default_pool(range->device) : 0},
	    /* CUDA says a byte or more of these two. */
	    {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, async && mapped, 1,
	     false},
	    {IS_HW_DECOMPRESS_CAPABLE, async && mapped, 1, false},
	    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, true, 8, range->addr},
	    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, true, 8, range->requested},
	    {MAPPING_BASE_ADDR, malloced, 8, shares ? ptr / page * page : range->addr},
	    {MAPPING_SIZE, malloced, 8, (range->requested + page - 1) / page * page},
	    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, imported, 4, (uint64_t)range->device},
	    {CU_POINTER_ATTRIBUTE_BUFFER_ID, range->id, 8, range->id},
	    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, malloced, 4,
	     malloced && gcp_mark_get(range->addr, range->id, GCP_MARK_SYNC_MEMOPS)},
	    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, mapped || async, 4,
	     !async && gcp_vmm_is_shared(range->device)},
	    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, mapped || imported, 8, 0},
	    {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, mapped && !async, 4,
	     CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE},
	};

	assert(range->requested > 0); /* it was found */
	assert(!imported || !malloced);
	for (unsigned int n = 0; n < count; n++)
		for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
			if (values[n] && answers[i].ours &&
			    answers[i].attribute == (int)attributes[n])
				memcpy(values[n], &answers[i].value, answers[i].bytes);
}

/* Of memory that the program has freed the driver is to say what it says of an address
 * that it does not know: that of HOST_POINTER is the address (measured). */
static CUresult attributes_unknown(unsigned int count, CUpointer_attribute *attributes,
				   void **values, CUdeviceptr ptr)
{
	CUresult result = gcp_real.cuPointerGetAttributes(count, attributes, values, 0);

	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)
		if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(CUdeviceptr *)values[i] = ptr;
	return result;
}

/* alone: by cuPointerGetAttribute. */
static CUresult attributes_ask(bool alone, unsigned int count,
			       CUpointer_attribute *attributes, void **values,
			       CUdeviceptr ptr)
{
	struct gcp_block_info range = {0};
	int found = asked_find(ptr, &range);
	CUresult result = CUDA_SUCCESS;

	if (found == -EINVAL)
		return alone ? CUDA_ERROR_INVALID_VALUE
			     : attributes_unknown(count, attributes, values, ptr);
	for (unsigned int i = 0; i < count; i++)
		if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			result = memory_tell(ptr);
	if (result == CUDA_SUCCESS)
		result = alone
			     ? gcp_real.cuPointerGetAttribute(*values, *attributes, ptr)
			     : gcp_real.cuPointerGetAttributes(count, attributes,
							       values, ptr);
	if (alone && found == 0 && *attributes == CU_POINTER_ATTRIBUTE_CONTEXT &&
	    range.ctx && *values)
		result = CUDA_SUCCESS; /* even where CUDA has no answer */
	if (found == 0 && result == CUDA_SUCCESS)
		range_correct(count, attributes, values, &range, ptr);
	return result;
}

GCP_HOOKED(cuPointerGetAttribute)
{
	return attributes_ask(true, 1, &attribute, &ret_value, ptr);
}

GCP_HOOKED(cuPointerGetAttributes)
{
	return attributes && values
		   ? attributes_ask(false, count, attributes, values, ptr)
		   : GCP_CALLED(cuPointerGetAttributes);
}

/* The driver refuses SYNC_MEMOPS for memory that is mapped by hand, and of an ordinary
 * segment it would give it to every block. So the library keeps it for each block, and
 * waits itself (hooks_copy.c). */
GCP_HOOKED(cuPointerSetAttribute)
{
	CUresult result = CUDA_SUCCESS;
	struct gcp_block_info range;

	if (is_freed(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		result = memory_tell(ptr);
	if (result != CUDA_SUCCESS)
		return result;
	if (value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
	    range_find(ptr, &range) == 0 && is_malloced(&range))
		return gcp_mark_set(range.addr, range.id, GCP_MARK_SYNC_MEMOPS,
				    *(const unsigned int *)value != 0)
			   ? CUDA_SUCCESS
			   : CUDA_ERROR_OUT_OF_MEMORY;
	return gcp_real.cuPointerSetAttribute(value, attribute, ptr);
}

/* No flags for memory of cudaMalloc, as CUDA says (measured): the driver knows it as
 * mapped memory. */
static CUresult access_correct(CUresult result, unsigned long long *flags,
			       CUdeviceptr ptr)
{
	struct gcp_block_info range;

	if (result == CUDA_SUCCESS && range_find(ptr, &range) == 0)
		*flags = 0;
	return result;
}

/* Memory that the program has freed is known to the driver, and was never pinned, or
 * mapped, to the program. A chunk that holds a part of a block, and others', is not the
 * program's to share or to keep: the answer is that for memory of cudaMalloc. */
#define UNLESS_PINNED_FREED(error, call)                                               \
	(range_find_pinned((CUdeviceptr)(uintptr_t)ptr,                                \
			   &(struct gcp_block_info){0}) == -EINVAL                     \
	     ? (error)                                                                 \
	     : (call))
#define HOOK_cuMemHostGetDevicePointer(real, call, twin)                               \
	UNLESS_PINNED_FREED(CUDA_ERROR_INVALID_VALUE, call)
#define HOOK_cuMemHostGetFlags(real, call, twin)                                       \
	UNLESS_PINNED_FREED(CUDA_ERROR_INVALID_VALUE, call)
#define HOOK_cuMemHostUnregister(real, call, twin)                                     \
	UNLESS_PINNED_FREED(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, call)
#define HOOK_cuMemGetHandleForAddressRange(real, call, twin)                           \
	(is_freed(ptr) ? CUDA_ERROR_INVALID_VALUE : memory_tell(ptr) ?: (call))
#define HOOK_cuMemGetAccess(real, call, twin)                                          \
	(is_freed(ptr) ? CUDA_ERROR_INVALID_VALUE                                      \
		       : access_correct(call, ret_flags, ptr))
#define HOOK_cuMemRetainAllocationHandle(real, call, twin)                             \
	(range_find((CUdeviceptr)(uintptr_t)ptr, &(struct gcp_block_info){0}) !=       \
		 -ENOENT                                                               \
	     ? CUDA_ERROR_INVALID_VALUE                                                \
	     : (call))
GCP_HOOKS_RANGES(GCP_HOOK)
