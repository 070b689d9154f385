/* SPDX-License-Identifier: MIT */
/*
 * vmm_share.c - physical memory in the hands of other processes, and of drivers of
 * other devices: cuMemExportToShareableHandle and its family.
 *
 * Entry points, under the big lock. The file descriptor is the memfd itself. What CUDA
 * knows of it in the other process stands on a page of its own behind the memory.
 */
#include "sim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct label {
	char magic[8];
	uint64_t bytes;
	int32_t device;
};

static const char label_magic[8] = "simphys";

bool sim_physical_label(const struct sim_physical *physical)
{
	struct label label = {.bytes = physical->bytes, .device = physical->device};

	memcpy(label.magic, label_magic, sizeof(label.magic));
	return ftruncate(physical->fd, (off_t)physical->bytes + PAGE) == 0 &&
	       pwrite(physical->fd, &label, sizeof(label), (off_t)physical->bytes) ==
		   sizeof(label);
}

static bool label_read(int fd, struct label *label)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	       status.st_size > PAGE &&
	       pread(fd, label, sizeof(*label), status.st_size - PAGE) ==
		   sizeof(*label) &&
	       memcmp(label->magic, label_magic, sizeof(label->magic)) == 0 &&
	       label->bytes == (uint64_t)status.st_size - PAGE;
}

SIM_ENTRY(cuMemExportToShareableHandle)
{
	struct sim_physical *physical =
	    sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);
	int fd;

	SIM_FAIL_IF(INVALID_VALUE,
		    !shareableHandle || flags != 0 || !physical ||
			physical->handles == 0 ||
			handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
			!physical->shareable);
	SIM_FAIL_IF(OUT_OF_MEMORY, !sim_physical_label(physical));
	fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
	SIM_FAIL_IF(OPERATING_SYSTEM, fd < 0);
	*(int *)shareableHandle = fd;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemImportFromShareableHandle)
{
	struct sim_physical *physical;
	struct label label;
	int fd;

	SIM_FAIL_IF(INVALID_VALUE,
		    !handle ||
			shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
			!label_read((int)(intptr_t)osHandle, &label));
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(label.device));
	fd = fcntl((int)(intptr_t)osHandle, F_DUPFD_CLOEXEC, 0);
	SIM_FAIL_IF(OPERATING_SYSTEM, fd < 0);
	physical = sim_physical_new(label.device, fd, label.bytes);
	physical->imported = true;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemGetAllocationPropertiesFromHandle)
{
	struct sim_physical *physical =
	    sim_object_check((void *)(uintptr_t)handle, SIM_PHYSICAL);

	SIM_FAIL_IF(INVALID_VALUE, !prop || !physical || physical->handles == 0);
	*prop = (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = physical->device},
	};
	if (physical->shareable)
		prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return CUDA_SUCCESS;
}

/* --- dma-buf -------------------------------------------------------------- */

/* Whole pages that have memory behind them; whose, and in how many pieces, is no
 * matter (measured). An allocation ends with its last page. */
static bool range_is_there(uint64_t addr, uint64_t bytes)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);
	uint64_t base, size, end = addr + bytes;

	if (!alloc || addr % PAGE || bytes % PAGE || bytes == 0)
		return false;
	if (alloc->kind == SIM_MEMORY_DEVICE)
		return end <= (alloc->addr + alloc->bytes + PAGE - 1) / PAGE * PAGE;
	if (alloc->kind != SIM_MEMORY_RESERVED)
		return false;
	for (; addr < end; addr = base + size)
		if (!sim_memory_piece(alloc, addr, &base, &size))
			return false;
	return true;
}

/* The descriptor says nothing of the memory. */
SIM_ENTRY(cuMemGetHandleForAddressRange)
{
	int fd;

	SIM_FAIL_IF(INVALID_VALUE,
		    !handle || flags != 0 ||
			handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
			!range_is_there(dptr, size));
	fd = memfd_create("gcpsim-dma-buf", MFD_CLOEXEC);
	SIM_FAIL_IF(OPERATING_SYSTEM, fd < 0);
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}
