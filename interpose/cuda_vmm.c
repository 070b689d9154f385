/* SPDX-License-Identifier: MIT */
/*
 * cuda_vmm.c - virtual memory of the real driver, as pool/driver_table.h wants it,
 * and which devices have access. Called by pool/vmm.c under its vmm_lock.
 *
 * cuCtxEnablePeerAccess covers what cuMemAlloc gives, but not mapped memory:
 * that must name each device that may touch it. The devices that the program
 * made peers are noted here, and get access to all that is mapped, now and later.
 * Access is never taken away again.
 */
#include <errno.h>

#include "cuda_backend.h"
#include "hooks.h"
#include "process_life.h"
#include "log.h"
#include "resolve.h"

enum { DEVICES_MAX = 64 };

/* [owner]: bit per device that may touch the owner's memory. */
static _Atomic(uint64_t) peers[DEVICES_MAX];

static bool device_has(CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;

	return gcp_real.cuDeviceGetAttribute(&value, attribute, device) ==
		   CUDA_SUCCESS &&
	       value;
}

static CUmemAllocationProp properties_of(int device)
{
	CUmemAllocationProp properties = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};

	/* Other processes can have what cuMemAlloc gives (ipc_server.c). */
	if (device_has(device,
		       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		properties.requestedHandleTypes =
		    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	/* What cuMemAlloc gives is capable where the device is. */
	properties.allocFlags.gpuDirectRDMACapable = device_has(
	    device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	return properties;
}

static bool vmm_device(int device, uint64_t *ret_granularity, uint64_t *ret_memory)
{
	CUmemAllocationProp properties;
	size_t granularity, memory;
	struct gcp_ctx_scope scope;
	bool able;

	if (device < 0 || device >= DEVICES_MAX)
		return false;
	gcp_ctx_scope_begin(&scope, NULL);
	properties = properties_of(device);
	able = device_has(device,
			  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	       gcp_real.cuMemGetAllocationGranularity(
		   &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
		   CUDA_SUCCESS &&
	       gcp_real.cuDeviceTotalMem_v2(&memory, device) == CUDA_SUCCESS;
	gcp_ctx_scope_end(&scope);
	if (able) {
		*ret_granularity = granularity;
		*ret_memory = memory;
		return true;
	}
	gcp_log(GCP_LOG_WARNING,
		"device %d has no virtual memory management, using ordinary "
		"segments there",
		device);
	return false;
}

static int vmm_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	struct gcp_ctx_scope scope;
	CUdeviceptr ptr = 0;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemAddressReserve(&ptr, bytes, alignment, 0, 0);
	gcp_ctx_scope_end(&scope);
	if (result == CUDA_SUCCESS)
		*ret_addr = ptr;
	return result;
}

static int vmm_unreserve(gcp_addr addr, uint64_t bytes)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemAddressFree(addr, bytes);
	gcp_ctx_scope_end(&scope);
	return result;
}

static int vmm_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	CUmemAllocationProp properties;
	CUmemGenericAllocationHandle handle = 0;
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	properties = properties_of(device);
	result = gcp_real.cuMemCreate(&handle, bytes, &properties, 0);
	gcp_ctx_scope_end(&scope);
	if (result == CUDA_SUCCESS)
		*ret_handle = handle;
	return result;
}

static int vmm_release(uint64_t handle)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemRelease(handle);
	gcp_ctx_scope_end(&scope);
	return result;
}

static int vmm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemMap(addr, bytes, 0, handle, 0);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* Opens it to the devices of `mask`. */
static CUresult vmm_open_to(uint64_t mask, gcp_addr addr, uint64_t bytes)
{
	CUmemAccessDesc access[DEVICES_MAX];
	struct gcp_ctx_scope scope;
	CUresult result;
	size_t count = 0;

	for (int other = 0; other < DEVICES_MAX; other++)
		if (mask >> other & 1)
			access[count++] = (CUmemAccessDesc){
			    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
					 .id = other},
			    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
			};
	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemSetAccess(addr, bytes, access, count);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* A peer that gets no access must not cost the owner what it holds. New memory that
 * a peer cannot reach is of no use: pool/ takes ordinary memory instead, of which the
 * driver itself sees to it that peers reach it. */
static int vmm_open(int device, gcp_addr addr, uint64_t bytes)
{
	uint64_t own = UINT64_C(1) << device, all = atomic_load(&peers[device]) | own;
	CUresult result = vmm_open_to(all, addr, bytes);

	if (result == CUDA_SUCCESS || all == own)
		return (int)result;
	result = vmm_open_to(own, addr, bytes);
	return result == CUDA_SUCCESS ? -EACCES : (int)result;
}

static int vmm_unmap(gcp_addr addr, uint64_t bytes)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemUnmap(addr, bytes);
	gcp_ctx_scope_end(&scope);
	return result;
}

void gcp_driver_fill_vmm(struct gcp_driver *ret_driver)
{
	if (!gcp_real.cuDeviceGetAttribute || !gcp_real.cuDeviceTotalMem_v2 ||
	    !gcp_real.cuMemGetAllocationGranularity || !gcp_real.cuMemAddressReserve ||
	    !gcp_real.cuMemAddressFree || !gcp_real.cuMemCreate ||
	    !gcp_real.cuMemRelease || !gcp_real.cuMemMap || !gcp_real.cuMemUnmap ||
	    !gcp_real.cuMemSetAccess)
		return;
	ret_driver->vm_device = vmm_device;
	ret_driver->vm_reserve = vmm_reserve;
	ret_driver->vm_unreserve = vmm_unreserve;
	ret_driver->vm_create = vmm_create;
	ret_driver->vm_release = vmm_release;
	ret_driver->vm_map = vmm_map;
	ret_driver->vm_open = vmm_open;
	ret_driver->vm_unmap = vmm_unmap;
}

/* --- peers ---------------------------------------------------------------------- */

static bool device_of(CUcontext ctx, CUdevice *ret_device)
{
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_begin(&scope, ctx);

	if (result != CUDA_SUCCESS)
		return false;
	result = gcp_real.cuCtxGetDevice(ret_device);
	gcp_ctx_scope_end(&scope);
	return result == CUDA_SUCCESS && *ret_device >= 0 && *ret_device < DEVICES_MAX;
}

/* Enabled again counts as enabled: it may have been before we were asked. */
CUresult gcp_hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult result = gcp_real.cuCtxEnablePeerAccess(peer, flags);
	CUdevice device, owner;

	if ((result != CUDA_SUCCESS &&
	     result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) ||
	    gcp_process_passive() || !device_of(NULL, &device) ||
	    !device_of(peer, &owner) || device == owner)
		return result;
	uint64_t bit = UINT64_C(1) << device;
	if (atomic_fetch_or(&peers[owner], bit) & bit || !gcp_process_pooling())
		return result;
	if (gcp_pools_reopen(gcp_process.pools, owner) != 0)
		gcp_log(GCP_LOG_ERROR,
			"device %d gets no access to memory that device %d has "
			"mapped already, which fails if used; "
			"GCPOOL_BACKEND=segments maps none",
			device, owner);
	return result;
}
