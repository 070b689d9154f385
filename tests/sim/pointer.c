/* SPDX-License-Identifier: MIT */
/*
 * pointer.c - what CUDA tells about an address: pointer attributes.
 * Entry points only, under the big lock.
 */
#include "sim.h"

static bool is_host(const struct sim_alloc *alloc)
{
	return alloc->kind == SIM_MEMORY_PINNED || alloc->kind == SIM_MEMORY_REGISTERED;
}

/* Memory that is mapped by hand, and not open to the device of the current context.
 * Memory of cuMemAlloc never counts as closed, peer access or not (measured). */
static bool is_closed(CUdeviceptr ptr)
{
	struct sim_ctx *ctx;

	return sim_memory_is_closed(ptr) || (sim_ctx_current(&ctx) == CUDA_SUCCESS &&
					     sim_memory_is_foreign(ptr, ctx->device));
}

/* CU_POINTER_ATTRIBUTE_..., which older headers lack. */
enum {
	MAPPING_SIZE = 18,
	MAPPING_BASE_ADDR = 19,
	MEMORY_BLOCK_ID = 20,
	IS_HW_DECOMPRESS_CAPABLE = 21,
};

/* The bytes of the physical memory behind `ptr`: what is mapped there, or as the driver
 * maps memory of cuMemAlloc (H100: 2 MiB that small blocks share, 4 MiB of 4 MiB). */
static uint64_t mapping_of(const struct sim_alloc *alloc, uint64_t ptr,
			   uint64_t *ret_base)
{
	uint64_t bytes;

	if (alloc->kind == SIM_MEMORY_RESERVED) {
		(void)sim_memory_piece(alloc, ptr, ret_base, &bytes);
		return bytes;
	}
	*ret_base = alloc->addr;
	if (alloc->bytes > SIM_CHUNK)
		return (alloc->bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	*ret_base = ptr / SIM_CHUNK * SIM_CHUNK;
	return SIM_CHUNK;
}

/* Stores `value` in the attribute's own width. */
#define STORE(type, value)                                                             \
	do {                                                                           \
		*(type *)data = (type)(value);                                         \
		return CUDA_SUCCESS;                                                   \
	} while (0)

static CUresult attribute(void *data, CUpointer_attribute which, CUdeviceptr ptr,
			  const struct sim_alloc *alloc)
{
	bool managed = alloc->kind == SIM_MEMORY_MANAGED;
	bool pooled = alloc->kind == SIM_MEMORY_ASYNC;
	bool device = alloc->kind == SIM_MEMORY_DEVICE;
	const struct sim_physical *physical = sim_physical_at(alloc, ptr);
	uint64_t base;

	switch ((int)which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		STORE(CUcontext, pooled ? NULL : alloc->ctx);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		STORE(unsigned,
		      is_host(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		STORE(CUdeviceptr, ptr);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(uintptr_t *)data = is_host(alloc) || managed ? ptr : 0;
		return *(uintptr_t *)data ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		STORE(int, managed || alloc->sync_memops);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		STORE(unsigned long long, alloc->buffer_id);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		STORE(int, managed);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		STORE(int, sim_physical_device(alloc, ptr));
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		STORE(int, device);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		STORE(CUdeviceptr, alloc->addr + alloc->ipc_skip);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		STORE(size_t, alloc->bytes - alloc->ipc_skip);
	case CU_POINTER_ATTRIBUTE_MAPPED:
		STORE(int, 1);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		STORE(unsigned long long, 0);
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		STORE(int, device || (physical && physical->rdma));
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		STORE(int,
		      is_closed(ptr) ? 0 : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		if (!pooled)
			STORE(CUmemoryPool, 0);
		STORE(CUmemoryPool, sim_pool_default(alloc->device));
	case MAPPING_SIZE:
		STORE(size_t, mapping_of(alloc, ptr, &base));
	case MAPPING_BASE_ADDR:
		(void)mapping_of(alloc, ptr, &base);
		STORE(CUdeviceptr, base);
	case MEMORY_BLOCK_ID:
		STORE(unsigned long long, alloc->buffer_id);
	case IS_HW_DECOMPRESS_CAPABLE:
		STORE(int, device || (physical && physical->usage & 0x2));
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static struct sim_alloc *find_exact(CUdeviceptr ptr)
{
	struct sim_alloc *alloc = sim_memory_find(ptr);
	uint64_t base, bytes;

	return alloc && sim_memory_piece(alloc, ptr, &base, &bytes) ? alloc : NULL;
}

SIM_ENTRY(cuPointerGetAttribute)
{
	const struct sim_alloc *alloc = find_exact(ptr);

	SIM_FAIL_IF(INVALID_VALUE, !data || !alloc);
	return attribute(data, which, ptr, alloc);
}

/* For memory that CUDA does not know, the answers are zero and no error; of an
 * address that is reserved it knows the range. */
static void attribute_unknown(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	const struct sim_alloc *reserved = sim_memory_find(ptr);

	switch (which) {
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(CUdeviceptr *)data = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		if (reserved)
			*(size_t *)data = reserved->bytes;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = CU_DEVICE_INVALID;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		memset(data, 0, sizeof(int));
		break;
	default:
		memset(data, 0, sizeof(uint64_t));
		break;
	}
}

SIM_ENTRY(cuPointerGetAttributes)
{
	const struct sim_alloc *alloc;

	SIM_FAIL_IF(INVALID_VALUE, !attributes || !data || numAttributes == 0);
	alloc = find_exact(ptr);
	for (unsigned i = 0; i < numAttributes; i++) {
		SIM_FAIL_IF(INVALID_VALUE, !data[i]);
		SIM_FAIL_IF(INVALID_VALUE,
			    (int)attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
				(int)attributes[i] > IS_HW_DECOMPRESS_CAPABLE);
		if (alloc)
			(void)attribute(data[i], attributes[i], ptr, alloc);
		else
			attribute_unknown(data[i], attributes[i], ptr);
	}
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuPointerSetAttribute)
{
	struct sim_alloc *alloc = find_exact(ptr);

	SIM_FAIL_IF(INVALID_VALUE,
		    !value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !alloc);
	if (alloc->kind == SIM_MEMORY_RESERVED)
		return CUDA_ERROR_NOT_SUPPORTED; /* H100, driver 580 */
	alloc->sync_memops = *(const unsigned *)value != 0;
	return CUDA_SUCCESS;
}
