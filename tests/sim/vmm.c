/* SPDX-License-Identifier: MIT */
/*
 * vmm.c - memory that is mapped by hand (cuMemCreate and its family), and
 * arrays, which take memory but have no address.
 *
 * Entry points, under the big lock. Physical memory is a memfd of its own;
 * mapping it puts that behind the simulator's alias of the address range, so
 * that two ranges can show the same bytes.
 */
#include "sim.h"

#include <sys/mman.h>
#include <unistd.h>

/* --- physical memory ------------------------------------------------------ */

CUresult cuMemGetAllocationGranularity(size_t *granularity,
				       const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	SIM_LOCKED(cuMemGetAllocationGranularity);
	(void)option;
	if (!granularity || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = SIM_CHUNK;
	return CUDA_SUCCESS;
}

static uint64_t physical_numbers;

struct sim_physical *sim_physical_new(int device, int fd, uint64_t bytes)
{
	struct sim_physical *physical = sim_object_new(SIM_PHYSICAL, sizeof(*physical));

	physical->device = device;
	physical->fd = fd;
	physical->number = physical_numbers + 1; /* and one for each 2 MiB */
	physical_numbers += bytes / SIM_CHUNK;
	physical->bytes = bytes;
	physical->handles = 1;
	return physical;
}

static CUresult physical_new(int device, uint64_t bytes, bool shareable,
			     struct sim_physical **ret)
{
	int fd;

	if (!sim_memory_account(device, (int64_t)bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	fd = memfd_create("gcpsim-physical", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
		sim_memory_account(device, -(int64_t)bytes);
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = sim_physical_new(device, fd, bytes);
	(*ret)->shareable = shareable;
	return CUDA_SUCCESS;
}

/* Beyond all addresses. */
static uint64_t physical_name(const struct sim_physical *physical, uint64_t piece)
{
	return (1ull << 60) + (physical->number + piece) * SIM_CHUNK;
}

uint64_t sim_physical_name(const struct sim_alloc *alloc, uint64_t addr)
{
	uint64_t i = (addr - alloc->addr) / SIM_CHUNK;

	if (alloc->kind != SIM_MEMORY_RESERVED || !alloc->mapped[i])
		return 0;
	return physical_name(alloc->mapped[i], alloc->piece[i]) + addr % SIM_CHUNK;
}

const struct sim_physical *sim_physical_at(const struct sim_alloc *alloc, uint64_t addr)
{
	return alloc->kind == SIM_MEMORY_RESERVED
		   ? alloc->mapped[(addr - alloc->addr) / SIM_CHUNK]
		   : NULL;
}

int sim_physical_device(const struct sim_alloc *alloc, uint64_t addr)
{
	const struct sim_physical *physical = sim_physical_at(alloc, addr);

	return physical ? physical->device : alloc->device;
}

bool sim_memory_piece(const struct sim_alloc *alloc, uint64_t addr, uint64_t *ret_base,
		      uint64_t *ret_bytes)
{
	uint64_t at = (addr - alloc->addr) / SIM_CHUNK, first = at, end = at + 1;

	*ret_base = alloc->addr + alloc->ipc_skip;
	*ret_bytes = alloc->bytes - alloc->ipc_skip;
	if (addr >= alloc->addr + alloc->bytes)
		return false;
	if (alloc->kind != SIM_MEMORY_RESERVED)
		return true;
	if (!alloc->mapped[at])
		return false;
	while (first > 0 && alloc->mapped[first - 1] == alloc->mapped[at])
		first--;
	while (end < alloc->span / SIM_CHUNK && alloc->mapped[end] == alloc->mapped[at])
		end++;
	*ret_base = alloc->addr + first * SIM_CHUNK;
	*ret_bytes = (end - first) * SIM_CHUNK;
	return true;
}

static void physical_release(struct sim_physical *physical)
{
	if (physical->handles > 0 || physical->maps > 0)
		return;
	if (!physical->imported)
		sim_memory_account(physical->device, -(int64_t)physical->bytes);
	sim_memory_reset(physical_name(physical, 0), physical->bytes);
	close(physical->fd);
	sim_object_delete(physical);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	/* CU_MEM_CREATE_USAGE_HW_DECOMPRESS */
	unsigned usages = sim.decompress >= 0 ? 0x2 : 0;
	struct sim_physical *physical;

	SIM_LOCKED(cuMemCreate);
	if (!handle || !prop || flags != 0 || size == 0 || size % SIM_CHUNK != 0 ||
	    prop->allocFlags.usage & ~usages)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_device_valid(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	SIM_TRY(physical_new(prop->location.id, size,
			     prop->requestedHandleTypes &
				 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
			     &physical));
	physical->usage = prop->allocFlags.usage;
	physical->rdma = prop->allocFlags.gpuDirectRDMACapable;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_physical *physical;

	SIM_LOCKED(cuMemRelease);
	physical = sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);
	if (!physical || physical->handles == 0)
		return CUDA_ERROR_INVALID_VALUE;
	physical->handles--;
	physical_release(physical);
	return CUDA_SUCCESS;
}

/* --- address ranges ------------------------------------------------------- */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
			     CUdeviceptr addr, unsigned long long flags)
{
	struct sim_alloc *alloc;

	SIM_LOCKED(cuMemAddressReserve);
	(void)addr; /* a wish, which may be refused */
	if (!ptr || flags != 0 || size == 0 || size % SIM_CHUNK != 0 ||
	    alignment > SIM_CHUNK)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_memory_reserve(0, size, &alloc));
	*ptr = alloc->addr;
	return CUDA_SUCCESS;
}

/* The reserved range that holds [addr, addr + bytes), both multiples of 2 MiB. */
static struct sim_alloc *reserved_find(uint64_t addr, uint64_t bytes)
{
	struct sim_alloc *alloc = sim_memory_find(addr);

	if (!alloc || alloc->kind != SIM_MEMORY_RESERVED || bytes == 0 ||
	    addr % SIM_CHUNK || bytes % SIM_CHUNK ||
	    addr + bytes > alloc->addr + alloc->span)
		return NULL;
	return alloc;
}

static bool any_mapped(const struct sim_alloc *alloc, uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		if (alloc->mapped[i])
			return true;
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct sim_alloc *alloc;

	SIM_LOCKED(cuMemAddressFree);
	alloc = reserved_find(ptr, size);
	if (!alloc || alloc->addr != ptr || alloc->span != size ||
	    any_mapped(alloc, 0, size / SIM_CHUNK))
		return CUDA_ERROR_INVALID_VALUE;
	sim_memory_free(alloc);
	return CUDA_SUCCESS;
}

/* Takes handles as a whole (measured). */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct sim_physical *physical;
	struct sim_alloc *alloc;
	uint64_t first;

	SIM_LOCKED(cuMemMap);
	physical = sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);
	alloc = reserved_find(ptr, size);
	if (!physical || physical->handles == 0 || !alloc || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset != 0 || size != physical->bytes)
		return CUDA_ERROR_NOT_SUPPORTED;
	first = (ptr - alloc->addr) / SIM_CHUNK;
	if (any_mapped(alloc, first, size / SIM_CHUNK))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_memory_map(ptr, size, physical->fd, 0) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint64_t i = 0; i < size / SIM_CHUNK; i++) {
		alloc->mapped[first + i] = physical;
		alloc->piece[first + i] = (uint32_t)i;
		alloc->open[first + i] = 0;
	}
	physical->maps += (uint32_t)(size / SIM_CHUNK);
	sim_hazard_mapping(ptr, size, "cuMemMap");
	sim_memory_reset(ptr, size);
	return CUDA_SUCCESS;
}

/* Whether each handle is mapped there as a whole, or not at all: the driver takes
 * no part of one away, and opens none. */
static bool are_whole(const struct sim_alloc *alloc, uint64_t first, uint64_t count)
{
	uint64_t last = first + count - 1;

	return (!alloc->mapped[first] || alloc->piece[first] == 0) &&
	       (!alloc->mapped[last] ||
		(alloc->piece[last] + 1) * (uint64_t)SIM_CHUNK ==
		    alloc->mapped[last]->bytes);
}

/* Does not wait for the device (facts: "unmap does not wait"). */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct sim_alloc *alloc;
	uint64_t first;

	SIM_LOCKED(cuMemUnmap);
	alloc = reserved_find(ptr, size);
	if (!alloc ||
	    !are_whole(alloc, (ptr - alloc->addr) / SIM_CHUNK, size / SIM_CHUNK))
		return CUDA_ERROR_INVALID_VALUE;
	sim_hazard_mapping(ptr, size, "cuMemUnmap");
	sim_memory_reset(ptr, size);
	sim_memory_map(ptr, size, -1, 0);
	first = (ptr - alloc->addr) / SIM_CHUNK;
	for (uint64_t i = first; i < first + size / SIM_CHUNK; i++) {
		struct sim_physical *physical = alloc->mapped[i];

		alloc->mapped[i] = NULL;
		if (!physical)
			continue;
		physical->maps--;
		physical_release(physical);
	}
	return CUDA_SUCCESS;
}

/* The handle of what is mapped there, which the caller has to release. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	uint64_t at = (uintptr_t)addr;
	struct sim_physical *physical;
	struct sim_alloc *alloc;

	SIM_LOCKED(cuMemRetainAllocationHandle);
	alloc = sim_memory_find(at);
	if (!handle || !alloc || alloc->kind != SIM_MEMORY_RESERVED ||
	    !alloc->mapped[(at - alloc->addr) / SIM_CHUNK])
		return CUDA_ERROR_INVALID_VALUE;
	physical = alloc->mapped[(at - alloc->addr) / SIM_CHUNK];
	physical->handles++;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

static void access_set(uint32_t *mask, int device, CUmemAccess_flags flags)
{
	*mask &= ~(1u << device);
	if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		*mask |= 1u << device;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
			size_t count)
{
	struct sim_alloc *alloc;
	uint64_t first;

	SIM_LOCKED(cuMemSetAccess);
	alloc = reserved_find(ptr, size);
	if (!alloc || !desc || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	first = (ptr - alloc->addr) / SIM_CHUNK;
	for (uint64_t i = first; i < first + size / SIM_CHUNK; i++)
		if (!alloc->mapped[i])
			return CUDA_ERROR_INVALID_VALUE;
	if (!are_whole(alloc, first, size / SIM_CHUNK))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t d = 0; d < count; d++) {
		if (!sim_device_valid(desc[d].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		for (uint64_t i = first; i < first + size / SIM_CHUNK; i++)
			access_set(&alloc->open[i], desc[d].location.id, desc[d].flags);
	}
	return CUDA_SUCCESS;
}

/* Of memory of cuMemAlloc no flags are told (measured). */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			CUdeviceptr ptr)
{
	const struct sim_alloc *alloc;
	bool open;

	SIM_LOCKED(cuMemGetAccess);
	alloc = sim_memory_find(ptr);
	if (!flags || !location || !alloc || ptr >= alloc->addr + alloc->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	open = false;
	if (alloc->kind == SIM_MEMORY_RESERVED) {
		uint64_t i = (ptr - alloc->addr) / SIM_CHUNK;

		if (!alloc->mapped[i])
			return CUDA_ERROR_INVALID_VALUE;
		open = alloc->open[i] >> location->id & 1;
	}
	*flags = open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
	return CUDA_SUCCESS;
}

/* --- arrays --------------------------------------------------------------- */

struct array {
	struct sim_object object;
	int device;
	uint64_t bytes; /* accounted */
};

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR *wanted = pAllocateArray;
	struct array *array;
	struct sim_ctx *ctx;
	uint64_t bytes;

	SIM_LOCKED(cuArrayCreate_v2);
	if (!pHandle || !wanted || wanted->Width == 0 || wanted->NumChannels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	bytes = wanted->Width * (wanted->Height ? wanted->Height : 1) *
		wanted->NumChannels * 4;
	bytes = (bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	if (!sim_memory_account(ctx->device, (int64_t)bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	array = sim_object_new(SIM_ARRAY, sizeof(*array));
	array->device = ctx->device;
	array->bytes = bytes;
	*pHandle = (CUarray)array;
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray hArray)
{
	struct array *array;

	SIM_LOCKED(cuArrayDestroy);
	array = sim_object_check(hArray, SIM_ARRAY);
	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_unsafe());
	sim_memory_account(array->device, -(int64_t)array->bytes);
	sim_object_delete(array);
	return CUDA_SUCCESS;
}
