/* SPDX-License-Identifier: MIT */
/*
 * async_pools.c - see async_pools.h, and the hooks on what programs set and ask of
 * CUDA's pools.
 *
 * A device is served by this library's pool as long as its default pool is what it was
 * made as. Not served, and given to CUDA untouched, are: pools that the program made;
 * a device whose current pool is another one; one whose default pool other devices have
 * access to, where the library cannot give them that, too.
 *
 * Only a mapped pool serves. What a stream has freed serves it before the work is done;
 * of another size it can only where memory can be mapped, and segments add up. Mapped
 * memory also gives other devices access address by address, for which segments would
 * need cuCtxEnablePeerAccess, which the program sees.
 */

#include "async_pools.h"
#include "call.h"
#include "ctx_scope.h"
#include "cuda_vmm.h"

enum { DEVICES_MAX = 64 };

enum {
	DEVICE_KNOWN = 1,  /* the rest has been found out */
	DEVICE_ELSE = 2,   /* another pool is the current one */
	DEVICE_SHARED = 4, /* others have access to the default pool, and not to ours */
	DEVICE_LONE = 8,   /* the process sees no other device */
};

static struct async_device {
	_Atomic uint32_t state;
	CUmemoryPool standard;  /* constant once known */
	uint64_t reserved_high; /* since the program reset it; lock */
} devices[DEVICES_MAX];
/* Held over calls of the driver: see lock.h. What the driver says of a device's pools
 * and what is noted of it are one step, or a set of another thread is missed. */
static struct gcp_mutex devices_lock = GCP_MUTEX(GCP_RANK_ASYNC_POOLS);

/* --- what is known of a device --------------------------------------------------- */

static struct async_device *device_of(int device)
{
	return device >= 0 && device < DEVICES_MAX ? &devices[device] : NULL;
}

static uint32_t state_of(const struct async_device *device)
{
	return atomic_load_explicit(&device->state, memory_order_acquire);
}

static bool is_current(const struct async_device *device)
{
	gcp_assert_held(GCP_RANK_ASYNC_POOLS);
	CUmemoryPool current = NULL;

	return gcp_real.cuDeviceGetMemPool(&current, (CUdevice)(device - devices)) ==
		   CUDA_SUCCESS &&
	       current == device->standard;
}

/* False: the device has no such pool. */
static bool device_learn(struct async_device *device)
{
	CUmemoryPool standard = NULL;
	uint32_t state = DEVICE_KNOWN;

	assert(device >= devices && device < devices + DEVICES_MAX);
	if (gcp_real.cuDeviceGetDefaultMemPool(
		&standard, (CUdevice)(device - devices)) != CUDA_SUCCESS ||
	    !standard)
		return false;
	GCP_LOCKED(&devices_lock);
	device->standard = standard;
	if (!is_current(device))
		state |= DEVICE_ELSE;
	if (gcp_device_count() == 1)
		state |= DEVICE_LONE;
	atomic_fetch_or_explicit(&device->state, state, memory_order_release);
	return true;
}

static uint32_t state_learnt(struct async_device *device)
{
	if (__builtin_expect(!(state_of(device) & DEVICE_KNOWN), 0) &&
	    !device_learn(device))
		return 0;
	return state_of(device);
}

bool gcp_async_serves(int number, const struct gcp_pool *pool, CUmemoryPool named)
{
	struct async_device *device = device_of(number);
	uint32_t state = device ? state_of(device) : 0;

	assert(pool && (!(state & DEVICE_KNOWN) || device->standard));
	if (!gcp_pool_maps(pool))
		return false;
	if (state == (DEVICE_KNOWN | DEVICE_LONE) && !named)
		return true; /* as in most processes */
	state = device ? state_learnt(device) : 0;
	if (!(state & DEVICE_KNOWN) || state & DEVICE_SHARED)
		return false;
	return named ? named == device->standard : !(state & DEVICE_ELSE);
}

bool gcp_async_reaches(int number, uint64_t addr)
{
	const struct async_device *device = device_of(number);
	struct gcp_block_info info;

	return !device || state_of(device) & DEVICE_LONE ||
	       (gcp_pools_held(gcp_process.pools, addr, &info) == 0 && info.mapped);
}

CUmemoryPool gcp_async_default_pool(int number)
{
	struct async_device *device = device_of(number);

	return device && state_learnt(device) ? device->standard : NULL;
}

/* The device whose default pool it is; NULL: it is none, or the library will not serve
 * it. Programs set up a pool before they allocate from it: until the first allocation
 * that is not known. */
static struct async_device *device_with(CUmemoryPool pool)
{
	if (!pool || gcp_process_passive() ||
	    (gcp_process_pooling() && !gcp_process.options.async))
		return NULL;
	for (int i = 0, count = gcp_device_count(); i < count && i < DEVICES_MAX; i++)
		if (state_learnt(&devices[i]) && devices[i].standard == pool)
			return &devices[i];
	return NULL;
}

/* The same, where the library may have served memory of it. */
static struct async_device *device_served(CUmemoryPool pool)
{
	return gcp_process_pooling() ? device_with(pool) : NULL;
}

/* --- which pool is the current one ------------------------------------------------ */

/* A call that may have changed it. Where it has failed no lock is taken: in the child
 * of a fork another thread of the parent may have it. */
static CUresult current_changed(CUresult result)
{
	if (result != CUDA_SUCCESS)
		return result;
	GCP_LOCKED(&devices_lock);
	for (struct async_device *device = devices; device < devices + DEVICES_MAX;
	     device++) {
		if (!(state_of(device) & DEVICE_KNOWN))
			continue;
		if (is_current(device))
			atomic_fetch_and(&device->state, ~(uint32_t)DEVICE_ELSE);
		else
			atomic_fetch_or(&device->state, DEVICE_ELSE);
	}
	return result;
}

#define HOOK_cuDeviceSetMemPool(real, call, twin) current_changed(call)
#define HOOK_cuMemSetMemPool(real, call, twin)    current_changed(call)
#define HOOK_cuMemPoolDestroy(real, call, twin)   current_changed(call)
GCP_HOOKS_POOLS(GCP_HOOK)

/* --- access ---------------------------------------------------------------- */

/* Other devices get access to what the default pool gives: to ours as well, if it is
 * mapped, and else the pool serves that device no more. */
static void access_give(struct async_device *device, const CUmemAccessDesc *access)
{
	int owner = (int)(device - devices);

	assert(owner >= 0 && owner < DEVICES_MAX);
	if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
	    (access->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	     access->location.id == owner))
		return;
	if (access->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    gcp_vmm_give_access(owner, access->location.id))
		return;
	atomic_fetch_or(&device->state, DEVICE_SHARED);
}

GCP_HOOKED(cuMemPoolSetAccess)
{
	CUresult result = gcp_real.cuMemPoolSetAccess(pool, access, count);
	struct async_device *device;

	if (result != CUDA_SUCCESS || !(device = device_with(pool)))
		return result;
	for (size_t i = 0; i < count; i++)
		access_give(device, &access[i]);
	return result;
}

/* --- attributes ------------------------------------------------------------ */

/* Adds the stream-ordered memory that the library's pools of the device hold to what
 * CUDA says: bytes that the program uses, and bytes that are reserved for it. */
static void attribute_correct(struct async_device *device,
			      CUmemPool_attribute attribute, cuuint64_t *value)
{
	int number = (int)(device - devices);
	struct gcp_stats stats;

	assert(state_of(device) & DEVICE_KNOWN);
	if (gcp_pools_stats(gcp_process.pools, number, &stats) != 0)
		return;
	const uint64_t used = stats.async_bytes.current, high = stats.async_bytes.peak;
	const uint64_t reserved = used + gcp_pools_unheld(gcp_process.pools, number);
	GCP_LOCKED(&devices_lock);
	if (device->reserved_high < reserved)
		device->reserved_high = reserved;
	if (device->reserved_high < high)
		device->reserved_high = high;
	const uint64_t served[] = {reserved, device->reserved_high, used, high};
	*value += served[attribute - CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
}

GCP_HOOKED(cuMemPoolGetAttribute)
{
	CUresult result = gcp_real.cuMemPoolGetAttribute(pool, attribute, ret_value);
	struct async_device *device;

	if (result != CUDA_SUCCESS ||
	    attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
	    attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return result;
	device = device_served(pool);
	if (device)
		attribute_correct(device, attribute, ret_value);
	return result;
}

GCP_HOOKED(cuMemPoolSetAttribute)
{
	CUresult result = gcp_real.cuMemPoolSetAttribute(pool, attribute, value);
	struct async_device *device;

	if (result != CUDA_SUCCESS || !(device = device_served(pool)))
		return result;
	gcp_mutex_lock(&devices_lock);
	if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		device->reserved_high = 0;
	gcp_mutex_unlock(&devices_lock);
	if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		gcp_pools_reset_peaks(gcp_process.pools, (int)(device - devices), true);
	return result;
}

/* As on plain CUDA: what work may still use stays, and nothing is waited for. */
GCP_HOOKED(cuMemPoolTrimTo)
{
	CUresult result = gcp_real.cuMemPoolTrimTo(pool, keep_bytes);
	const struct async_device *device = result ? NULL : device_served(pool);
	struct gcp_stats stats;
	uint64_t used;
	int number;

	if (!device)
		return result;
	number = (int)(device - devices);
	if (gcp_pools_stats(gcp_process.pools, number, &stats) != 0)
		return result;
	used = stats.async_bytes.current;
	(void)gcp_pools_trim(gcp_process.pools, number,
			     keep_bytes > used ? keep_bytes - used : 0, false);
	return result;
}
