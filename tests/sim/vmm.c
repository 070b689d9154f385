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

SIM_ENTRY(cuMemGetAllocationGranularity)
{
	SIM_FAIL_IF(INVALID_VALUE, !granularity || !prop);
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

/* False: there is not so much on the device, or on the host. */
static bool account(bool host, int device, int64_t bytes)
{
	if (!host)
		return sim_memory_account(device, bytes);
	if (bytes > 0 && sim.numa_used + (uint64_t)bytes > sim.numa_limit)
		return false;
	sim.numa_used += (uint64_t)bytes;
	return true;
}

static CUresult physical_new(const CUmemAllocationProp *prop, uint64_t bytes,
			     struct sim_physical **ret)
{
	bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	int device = prop->location.id, fd;

	SIM_FAIL_IF(OUT_OF_MEMORY, !account(host, device, (int64_t)bytes));
	fd = memfd_create("gcpsim-physical", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
		account(host, device, -(int64_t)bytes);
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = sim_physical_new(device, fd, bytes);
	(*ret)->host = host;
	(*ret)->shareable =
	    prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	(*ret)->usage = prop->allocFlags.usage;
	(*ret)->rdma = prop->allocFlags.gpuDirectRDMACapable;
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
		account(physical->host, physical->device, -(int64_t)physical->bytes);
	sim_memory_reset(physical_name(physical, 0), physical->bytes);
	close(physical->fd);
	sim_object_delete(physical);
}

/* Each device is beside a node of the host that has its number. */
SIM_ENTRY(cuMemCreate)
{
	const unsigned usages = 0x2; /* CU_MEM_CREATE_USAGE_HW_DECOMPRESS */
	struct sim_physical *physical;

	SIM_FAIL_IF(INVALID_VALUE, !handle || !prop || flags != 0 || size == 0 ||
				       size % SIM_CHUNK != 0 ||
				       prop->allocFlags.usage & ~usages);
	SIM_FAIL_IF(NOT_SUPPORTED,
		    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
			(prop->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA ||
			 sim.numa_limit == 0));
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(prop->location.id));
	SIM_TRY(physical_new(prop, size, &physical));
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemRelease)
{
	struct sim_physical *physical =
	    sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);

	SIM_FAIL_IF(INVALID_VALUE, !physical || physical->handles == 0);
	physical->handles--;
	physical_release(physical);
	return CUDA_SUCCESS;
}

/* --- address ranges ------------------------------------------------------- */

SIM_ENTRY(cuMemAddressReserve)
{
	struct sim_alloc *alloc;

	(void)addr; /* a wish, which may be refused */
	SIM_FAIL_IF(INVALID_VALUE, !ptr || flags != 0 || size == 0 ||
				       size % SIM_CHUNK != 0 || alignment > SIM_CHUNK);
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

SIM_ENTRY(cuMemAddressFree)
{
	struct sim_alloc *alloc = reserved_find(ptr, size);

	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->addr != ptr ||
				       alloc->span != size ||
				       any_mapped(alloc, 0, size / SIM_CHUNK));
	sim_memory_free(alloc);
	return CUDA_SUCCESS;
}

/* Takes handles as a whole (measured). */
SIM_ENTRY(cuMemMap)
{
	struct sim_physical *physical =
	    sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);
	struct sim_alloc *alloc;
	uint64_t first;

	alloc = reserved_find(ptr, size);
	SIM_FAIL_IF(INVALID_VALUE,
		    !physical || physical->handles == 0 || !alloc || flags != 0);
	SIM_FAIL_IF(NOT_SUPPORTED, offset != 0 || size != physical->bytes);
	first = (ptr - alloc->addr) / SIM_CHUNK;
	SIM_FAIL_IF(INVALID_VALUE, any_mapped(alloc, first, size / SIM_CHUNK));
	SIM_FAIL_IF(OUT_OF_MEMORY, sim_memory_map(ptr, size, physical->fd, 0) != 0);
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
SIM_ENTRY(cuMemUnmap)
{
	struct sim_alloc *alloc = reserved_find(ptr, size);
	uint64_t first;

	SIM_FAIL_IF(INVALID_VALUE,
		    !alloc || !are_whole(alloc, (ptr - alloc->addr) / SIM_CHUNK,
					 size / SIM_CHUNK));
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
SIM_ENTRY(cuMemRetainAllocationHandle)
{
	uint64_t at = (uintptr_t)addr;
	struct sim_physical *physical;
	struct sim_alloc *alloc;

	alloc = sim_memory_find(at);
	SIM_FAIL_IF(INVALID_VALUE, !handle || !alloc ||
				       alloc->kind != SIM_MEMORY_RESERVED ||
				       !alloc->mapped[(at - alloc->addr) / SIM_CHUNK]);
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

SIM_ENTRY(cuMemSetAccess)
{
	struct sim_alloc *alloc = reserved_find(ptr, size);
	uint64_t first;

	SIM_FAIL_IF(INVALID_VALUE, !alloc || !desc || count == 0);
	first = (ptr - alloc->addr) / SIM_CHUNK;
	for (uint64_t i = first; i < first + size / SIM_CHUNK; i++)
		SIM_FAIL_IF(INVALID_VALUE, !alloc->mapped[i]);
	SIM_FAIL_IF(INVALID_VALUE, !are_whole(alloc, first, size / SIM_CHUNK));
	for (size_t d = 0; d < count; d++) {
		SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(desc[d].location.id));
		for (uint64_t i = first; i < first + size / SIM_CHUNK; i++)
			access_set(&alloc->open[i], desc[d].location.id, desc[d].flags);
	}
	return CUDA_SUCCESS;
}

/* Of memory of cuMemAlloc no flags are told (measured). */
SIM_ENTRY(cuMemGetAccess)
{
	const struct sim_alloc *alloc = sim_memory_find(ptr);
	bool open;

	SIM_FAIL_IF(INVALID_VALUE,
		    !flags || !location || !alloc || ptr >= alloc->addr + alloc->bytes);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(location->id));
	open = false;
	if (alloc->kind == SIM_MEMORY_RESERVED) {
		uint64_t i = (ptr - alloc->addr) / SIM_CHUNK;

		SIM_FAIL_IF(INVALID_VALUE, !alloc->mapped[i]);
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

SIM_ENTRY(cuArrayCreate_v2)
{
	const CUDA_ARRAY_DESCRIPTOR *wanted = pAllocateArray;
	struct array *array;
	uint64_t bytes;

	SIM_FAIL_IF(INVALID_VALUE, !pHandle || !wanted || wanted->Width == 0 ||
				       wanted->NumChannels == 0);
	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	bytes = wanted->Width * (wanted->Height ? wanted->Height : 1) *
		wanted->NumChannels * 4;
	bytes = (bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	SIM_FAIL_IF(OUT_OF_MEMORY, !sim_memory_account(ctx->device, (int64_t)bytes));
	array = sim_object_new(SIM_ARRAY, sizeof(*array));
	array->device = ctx->device;
	array->bytes = bytes;
	*pHandle = (CUarray)array;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuArrayDestroy)
{
	struct array *array = sim_object_check(hArray, SIM_ARRAY);

	SIM_FAIL_IF(INVALID_HANDLE, !array);
	SIM_TRY(sim_capture_unsafe());
	sim_memory_account(array->device, -(int64_t)array->bytes);
	sim_object_delete(array);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemcpyDtoA_v2)
{
	return sim_object_check(dstArray, SIM_ARRAY) ? 0 : CUDA_ERROR_INVALID_HANDLE;
}
