/* SPDX-License-Identifier: MIT */
/*
 * cuda_vmm.c - virtual memory of the real driver, as pool/driver_table.h wants it,
 * and which devices have access. Called by pool/space/vmm.c under its vmm_lock.
 *
 * cuCtxEnablePeerAccess covers what cuMemAlloc gives, but not mapped memory: that must
 * name each device that may touch it. So it is opened to the devices of the contexts
 * that enable peer access, and to no others: a copy between devices without peer access
 * is then made as for memory of cuMemAlloc (hooks_copy.c), and a kernel that touches
 * the memory of another device fails as there. Only what a graph or a batch copies
 * between devices must be open: then all memory is opened to all devices, from then
 * on. To open it costs as much again for each device. Access is never taken away.
 *
 * So memory is mapped only where every device of the process can reach it.
 */

#include "call.h"
#include "ctx_scope.h"
#include "cuda_vmm.h"
#include "third_party_dma.h"

enum { DEVICES_MAX = 64 };

/* pool/ maps memory in chunks of 2 MiB. */
#define ASSERT_CHUNKS(bytes) assert((bytes) % (2 << 20) == 0)

/* [owner]. Properties of new memory are written when the device's first pool is made,
 * before there is any; but for their usage, which vmm_lock guards. wanted: the other
 * devices that new memory is opened to; opened: those that all memory is open to; a bit
 * for each. */
static CUmemAllocationProp properties[DEVICES_MAX];
static _Atomic(uint64_t) wanted[DEVICES_MAX], opened[DEVICES_MAX];

/* A bit for each device that has, or had, a context in this process. */
static _Atomic(uint64_t) used;

/* Memory is open to all of them that can reach it. */
static atomic_bool everywhere, done_everywhere;

/* Some memory may be open to a device whose context has no peer access. */
static atomic_bool wider;
static atomic_int joined[DEVICES_MAX]; /* contexts that were seen, of each device */

static bool device_has(CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;

	return gcp_real.cuDeviceGetAttribute(&value, attribute, device) ==
		   CUDA_SUCCESS &&
	       value;
}

/* CU_MEM_CREATE_USAGE_HW_DECOMPRESS, of newer headers. */
enum { HW_DECOMPRESS = 0x2 };

static void properties_fill(int device, CUmemAllocationProp *ret_properties)
{
	*ret_properties = (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	/* What cuMemAlloc gives is capable where the device is. */
	ret_properties->allocFlags.gpuDirectRDMACapable = device_has(
	    device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	/* And of cuMemBatchDecompressAsync, even where no hardware does that (H100). */
	ret_properties->allocFlags.usage = HW_DECOMPRESS;
	/* So that other processes can be given it. */
	if (device_has(device,
		       CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		ret_properties->requestedHandleTypes =
		    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/* The devices that can reach the memory of `owner`, a bit for each. */
static uint64_t reach(int owner)
{
	uint64_t found = UINT64_C(1) << owner;
	int count = gcp_device_count(), able;
	struct gcp_ctx_scope scope;

	assert(owner >= 0 && owner < DEVICES_MAX);
	gcp_ctx_scope_begin(&scope, NULL);
	for (int device = 0; device < count && device < DEVICES_MAX; device++)
		if (device != owner &&
		    gcp_real.cuDeviceCanAccessPeer(&able, device, owner) ==
			CUDA_SUCCESS &&
		    able)
			found |= UINT64_C(1) << device;
	gcp_ctx_scope_end(&scope);
	return found;
}

/* Why there is no mapped memory on the device, or NULL; what it would be like. */
static const char *vmm_obstacle(int device, bool forced, uint64_t *ret_granularity)
{
	size_t granularity;

	if (!device_has(device,
			CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		return "has no virtual memory management";
	if (properties[device].type != CU_MEM_ALLOCATION_TYPE_PINNED)
		properties_fill(device, &properties[device]);
	if (gcp_real.cuMemGetAllocationGranularity(&granularity, &properties[device],
						   CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
	    CUDA_SUCCESS)
		return "does not say how its memory can be mapped";
	if (!forced && __builtin_popcountll(reach(device)) != gcp_device_count())
		return "cannot be reached by all other devices of the process";
	*ret_granularity = granularity;
	return NULL;
}

static bool vmm_device(int device, uint64_t *ret_granularity)
{
	bool forced = gcp_process.options.pool.backend == GCP_BACKEND_MAPPED;
	struct gcp_ctx_scope scope;
	const char *why;

	if (device < 0 || device >= DEVICES_MAX)
		return false;
	gcp_ctx_scope_begin(&scope, NULL);
	why = vmm_obstacle(device, forced, ret_granularity);
	gcp_ctx_scope_end(&scope);
	if (why)
		gcp_log(forced ? GCP_LOG_WARNING : GCP_LOG_INFO,
			"device %d %s, using ordinary segments there", device, why);
	else
		gcp_log(GCP_LOG_INFO, "device %d: memory is mapped by the library",
			device);
	return !why;
}

/* What a network card or storage is to reach may have to be ordinary memory. */
static bool vmm_wanted(int device)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!gcp_third_party_dma_present())
		return true;
	if (!atomic_flag_test_and_set(&said))
		gcp_log(GCP_LOG_INFO,
			"device %d: a library for RDMA or storage is loaded, new "
			"memory comes in ordinary segments",
			device);
	return false;
}

static int vmm_reserve(uint64_t bytes, uint64_t alignment, gcp_addr *ret_addr)
{
	CUdeviceptr ptr = 0;
	CUresult result;

	assert(bytes > 0);
	ASSERT_CHUNKS(bytes);
	result = GCP_WITHIN(NULL,
			    gcp_real.cuMemAddressReserve(&ptr, bytes, alignment, 0, 0));
	if (result == CUDA_SUCCESS)
		*ret_addr = ptr;
	return result;
}

static int vmm_unreserve(gcp_addr addr, uint64_t bytes)
{
	ASSERT_CHUNKS(addr | bytes);
	return GCP_WITHIN(NULL, gcp_real.cuMemAddressFree(addr, bytes));
}

static int vmm_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
	CUmemAllocationProp *how = &properties[device];
	CUmemGenericAllocationHandle handle = 0;
	struct gcp_ctx_scope scope;
	CUresult result;

	gcp_assert_held(GCP_RANK_VMM);
	assert(how->type == CU_MEM_ALLOCATION_TYPE_PINNED); /* filled */
	assert(bytes > 0);
	ASSERT_CHUNKS(bytes);
	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuMemCreate(&handle, bytes, how, 0);
	if (how->allocFlags.usage && result != CUDA_SUCCESS &&
	    result != CUDA_ERROR_OUT_OF_MEMORY) {
		how->allocFlags.usage = 0;
		result = gcp_real.cuMemCreate(&handle, bytes, how, 0);
		how->allocFlags.usage = result ? HW_DECOMPRESS : 0;
	}
	gcp_ctx_scope_end(&scope);
	if (result == CUDA_SUCCESS)
		*ret_handle = handle;
	return result;
}

static int vmm_release(uint64_t handle)
{
	CUresult result = GCP_WITHIN(NULL, gcp_real.cuMemRelease(handle));

	gcp_given();
	return result;
}

static int vmm_map(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	ASSERT_CHUNKS(addr | bytes);
	return GCP_WITHIN(NULL, gcp_real.cuMemMap(addr, bytes, 0, handle, 0));
}

CUresult gcp_vmm_open_to(uint64_t mask, gcp_addr addr, uint64_t bytes)
{
	CUmemAccessDesc access[DEVICES_MAX];
	size_t count = 0;

	assert(mask != 0 && bytes > 0);
	for (int other = 0; other < DEVICES_MAX; other++)
		if (mask >> other & 1)
			access[count++] = (CUmemAccessDesc){
			    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
					 .id = other},
			    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
			};
	return GCP_WITHIN(NULL, gcp_real.cuMemSetAccess(addr, bytes, access, count));
}

/* A peer that gets no access must not cost the owner what it holds. New memory that
 * a peer cannot reach is of no use: pool/ takes ordinary memory instead, of which the
 * driver itself sees to it that peers reach it. */
static int vmm_open(int device, gcp_addr addr, uint64_t bytes)
{
	uint64_t own = UINT64_C(1) << device, all = atomic_load(&wanted[device]) | own;
	CUresult result = gcp_vmm_open_to(all, addr, bytes);

	if (result == CUDA_SUCCESS || all == own)
		return (int)result;
	result = gcp_vmm_open_to(own, addr, bytes);
	return result == CUDA_SUCCESS ? -EACCES : (int)result;
}

static int vmm_unmap(gcp_addr addr, uint64_t bytes)
{
	ASSERT_CHUNKS(addr | bytes);
	return GCP_WITHIN(NULL, gcp_real.cuMemUnmap(addr, bytes));
}

void gcp_driver_fill_vmm(struct gcp_driver *ret_driver)
{
	ret_driver->vm_device = vmm_device;
	ret_driver->vm_wanted = vmm_wanted;
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
	return gcp_ctx_device(ctx, ret_device) && *ret_device >= 0 &&
	       *ret_device < DEVICES_MAX;
}

/* Returns when all that is mapped of `owner` is open to `device`: a thread that finds
 * another one opening the memory opens it too (what is opened twice is open). */
static void memory_open(CUdevice owner, CUdevice device)
{
	uint64_t bit = UINT64_C(1) << device;

	assert(owner >= 0 && owner < DEVICES_MAX && device >= 0 &&
	       device < DEVICES_MAX);
	atomic_fetch_or(&wanted[owner], bit);
	if (atomic_load(&opened[owner]) & bit || !gcp_process_pooling())
		return;
	if (gcp_pools_reopen(gcp_process.pools, owner) == 0)
		atomic_fetch_or(&opened[owner], bit);
	else
		gcp_log(GCP_LOG_ERROR,
			"device %d cannot access memory mapped for device %d: "
			"accesses will fault; GCPOOL_BACKEND=segments maps none",
			device, owner);
}

uint64_t gcp_vmm_users(int device, int user)
{
	if (device < 0 || device >= DEVICES_MAX || user < 0 || user >= DEVICES_MAX)
		return 0;
	return reach(device) &
	       (atomic_load(&used) | UINT64_C(1) << device | UINT64_C(1) << user);
}

/* To one that has a context; also that of devices which have none yet. */
static void open_everything_to(CUdevice device)
{
	int count = gcp_device_count();

	for (CUdevice owner = 0; owner < count && owner < DEVICES_MAX; owner++)
		if (owner != device && reach(owner) >> device & 1)
			memory_open(owner, device);
}

/* To memory of another one. */
static bool has_access(CUdevice device)
{
	for (CUdevice owner = 0; owner < DEVICES_MAX; owner++)
		if (owner != device && atomic_load(&wanted[owner]) >> device & 1)
			return true;
	return false;
}

bool gcp_vmm_is_shared(int device)
{
	return properties[device].requestedHandleTypes != 0;
}

bool gcp_vmm_is_wider(void)
{
	return atomic_load_explicit(&wider, memory_order_acquire);
}

bool gcp_vmm_is_everywhere(void)
{
	return atomic_load_explicit(&everywhere, memory_order_acquire);
}

bool gcp_vmm_device_joined(int device)
{
	if (device < 0 || device >= DEVICES_MAX)
		return false;
	atomic_fetch_or(&used, UINT64_C(1) << device);
	/* For this one it need not have been enabled: access is one of two contexts. */
	if (atomic_fetch_add(&joined[device], 1) > 0 &&
	    (has_access(device) || atomic_load(&wanted[device])))
		atomic_store(&wider, true);
	if (atomic_load(&everywhere))
		open_everything_to(device);
	return true;
}

bool gcp_vmm_open_everywhere(void)
{
	assert(gcp_process_pooling()); /* there is memory to open */
	if (atomic_load(&done_everywhere))
		return false;
	atomic_store(&everywhere, true);
	atomic_store(&wider, true);
	for (CUdevice device = 0; device < DEVICES_MAX; device++)
		if (atomic_load(&used) >> device & 1)
			open_everything_to(device);
	atomic_store(&done_everywhere, true);
	return true;
}

bool gcp_vmm_give_access(int owner, int device)
{
	if (owner < 0 || owner >= DEVICES_MAX || device < 0 || device >= DEVICES_MAX)
		return false;
	atomic_store(&wider, true);
	memory_open(owner, device);
	if (!gcp_process_pooling())
		return true; /* what will be mapped is opened to it */
	return atomic_load(&opened[owner]) >> device & 1;
}

/* Enabled again counts as enabled: it may have been before the library asked. */
GCP_HOOKED(cuCtxEnablePeerAccess)
{
	CUresult result = gcp_real.cuCtxEnablePeerAccess(peer, flags);
	CUdevice device, owner;

	if ((result != CUDA_SUCCESS &&
	     result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) ||
	    gcp_process_passive() || !device_of(NULL, &device) ||
	    !device_of(peer, &owner) || device == owner)
		return result;
	memory_open(owner, device);
	if (atomic_load(&joined[device]) > 1 || atomic_load(&joined[owner]) > 1)
		atomic_store(&wider, true);
	return result;
}

/* What is open stays open. */
GCP_HOOKED(cuCtxDisablePeerAccess)
{
	atomic_store(&wider, true);
	return gcp_real.cuCtxDisablePeerAccess(peer);
}
