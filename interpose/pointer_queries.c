/* SPDX-License-Identifier: MIT */
/*
 * pointer_queries.c - the hooks that ask where an allocation begins and ends. They
 * answer for the block that the program was given, not for the driver allocation that
 * holds it, with the size that the program asked for, as CUDA does.
 *
 * Peer tokens, dma-buf handles and synchronous memory operations give memory to
 * a user that stands in no context's queue: the block is completed first.
 */
#include "async_pools.h"
#include "hooks.h"
#include "process_life.h"
#include "hooks_memory.h"

static bool range_find(CUdeviceptr ptr, struct gcp_block_info *ret_info)
{
	return gcp_process_pooling() &&
	       gcp_pools_find(gcp_process.pools, ptr, ret_info) == 0;
}

/* Pinned memory: a block is an allocation of the driver, which says where it begins;
 * only its size is rounded up. `base` is what the driver says. */
static bool range_find_pinned(CUdeviceptr base, struct gcp_block_info *ret_info)
{
	uint64_t requested;

	if (!gcp_process_pooling() ||
	    gcp_pinned_find(gcp_process.pools, (void *)(uintptr_t)base, &requested) !=
		0)
		return false;
	*ret_info = (struct gcp_block_info){.addr = base, .requested = requested};
	return true;
}

/* The same for an address inside. */
static bool range_find_inside(CUdeviceptr ptr, struct gcp_block_info *ret_info)
{
	CUdeviceptr base = 0;

	return gcp_process_pooling() && gcp_real.cuPointerGetAttribute &&
	       gcp_real.cuPointerGetAttribute(
		   &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr) == CUDA_SUCCESS &&
	       range_find_pinned(base, ret_info);
}

CUresult gcp_memory_complete(CUdeviceptr ptr)
{
	struct gcp_block_info info;
	int result;

	if (!range_find(ptr, &info))
		return CUDA_SUCCESS;
	result = gcp_pools_complete(gcp_process.pools, info.addr);
	if (result > 0)
		return (CUresult)result;
	/* Freed meanwhile is the program's mistake, and for CUDA to name. */
	return result == -EBUSY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult gcp_hook_cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes,
					  CUdeviceptr ptr)
{
	struct gcp_block_info info;
	CUdeviceptr base = 0;
	CUresult result;
	size_t bytes;

	if (!range_find(ptr, &info)) {
		if (!ret_base && !ret_bytes)
			return gcp_real.cuMemGetAddressRange_v2(NULL, NULL, ptr);
		result = gcp_real.cuMemGetAddressRange_v2(&base, &bytes, ptr);
		if (result != CUDA_SUCCESS)
			return result;
		if (!range_find_pinned(base, &info))
			info =
			    (struct gcp_block_info){.addr = base, .requested = bytes};
	}
	if (ret_base)
		*ret_base = info.addr;
	if (ret_bytes)
		*ret_bytes = info.requested;
	return CUDA_SUCCESS;
}

/* CUDA knows of no context for memory that is mapped by hand. Programs know theirs
 * for what cudaMalloc gives them. */
static void range_correct(void *value, CUpointer_attribute attribute,
			  const struct gcp_block_info *info)
{
	if (value && attribute == CU_POINTER_ATTRIBUTE_CONTEXT && info->async)
		*(CUcontext *)value = NULL; /* as CUDA says of such memory */
	else if (value && attribute == CU_POINTER_ATTRIBUTE_CONTEXT && info->mapped)
		*(CUcontext *)value = info->ctx;
	if (value && attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE && info->async)
		*(CUmemoryPool *)value = gcp_async_default_pool(info->device);
	if (value && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)value = info->addr;
	else if (value && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		*(size_t *)value = info->requested;
}

/* Which answers are ours to correct. */
static bool range_corrects(CUpointer_attribute attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
	       attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
	       attribute == CU_POINTER_ATTRIBUTE_CONTEXT ||
	       attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
}

CUresult gcp_hook_cuPointerGetAttribute(void *ret_value, CUpointer_attribute attribute,
					CUdeviceptr ptr)
{
	CUresult result = CUDA_SUCCESS;
	struct gcp_block_info info = {0};

	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		result = gcp_memory_complete(ptr);
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuPointerGetAttribute(ret_value, attribute, ptr);
	if (!ret_value || !range_corrects(attribute) ||
	    (!range_find(ptr, &info) &&
	     (result != CUDA_SUCCESS || !range_find_inside(ptr, &info))))
		return result;
	if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && info.mapped)
		result = CUDA_SUCCESS; /* even where CUDA has no answer */
	if (result == CUDA_SUCCESS)
		range_correct(ret_value, attribute, &info);
	return result;
}

CUresult gcp_hook_cuPointerGetAttributes(unsigned int count,
					 CUpointer_attribute *attributes, void **values,
					 CUdeviceptr ptr)
{
	struct gcp_block_info info = {0};
	CUresult result = CUDA_SUCCESS;
	bool ours = attributes && values && range_find(ptr, &info);

	for (unsigned int i = 0; ours && i < count; i++)
		if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			result = gcp_memory_complete(ptr);
	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_real.cuPointerGetAttributes(count, attributes, values, ptr);
	for (unsigned int i = 0; !ours && result == CUDA_SUCCESS && i < count; i++)
		if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
			ours = range_find_inside(ptr, &info);
	for (unsigned int i = 0; ours && result == CUDA_SUCCESS && i < count; i++)
		range_correct(values[i], attributes[i], &info);
	return result;
}

CUresult gcp_hook_cuPointerSetAttribute(const void *value,
					CUpointer_attribute attribute, CUdeviceptr ptr)
{
	CUresult result = CUDA_SUCCESS;

	if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		result = gcp_memory_complete(ptr);
	if (result != CUDA_SUCCESS)
		return result;
	return gcp_real.cuPointerSetAttribute(value, attribute, ptr);
}

CUresult gcp_hook_cuMemGetHandleForAddressRange(void *ret_handle, CUdeviceptr ptr,
						size_t bytes, int type,
						unsigned long long flags)
{
	CUresult result = gcp_memory_complete(ptr);

	if (result != CUDA_SUCCESS)
		return result;
	return gcp_real.cuMemGetHandleForAddressRange(ret_handle, ptr, bytes, type,
						      flags);
}

/* A chunk that holds a part of the block, and others': neither is the program's to
 * share or to keep. The answer is that for memory of cudaMalloc. */
CUresult gcp_hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle,
					      void *ptr)
{
	struct gcp_block_info info;

	if (range_find((CUdeviceptr)(uintptr_t)ptr, &info))
		return CUDA_ERROR_INVALID_VALUE;
	return gcp_real.cuMemRetainAllocationHandle(ret_handle, ptr);
}
