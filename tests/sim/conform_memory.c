/* SPDX-License-Identifier: MIT */
/*
 * conform_memory.c - memory that is mapped by hand, pinned memory and its flags, the
 * driver's own pools, and what a context that ends leaves of all that: the transcript.
 */
#include "conform_tell.h"

enum { CHUNK = 2 << 20 };

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAccessDesc access = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

/* --- mapped by hand ------------------------------------------------------------- */

static void mapped_calls(void)
{
	CUmemGenericAllocationHandle h = 0, again = 0;
	CUdeviceptr va, base;
	size_t size;

	section("mapped by hand");
	TELL(cuMemGetAllocationGranularity(&size, &prop,
					   CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	TELL(size, cuMemCreate(&h, 4096, &prop, 0), cuMemCreate(&h, 0, &prop, 0));
	MUST(cuMemCreate(&h, CHUNK, &prop, 0));
	TELL(cuMemAddressReserve(&va, 4096, 0, 0, 0));
	TELL(cuMemAddressReserve(&va, 0, 0, 0, 0));
	MUST(cuMemAddressReserve(&va, 4 * CHUNK, CHUNK, 0, 0));
	TELL(va % CHUNK, cuMemUnmap(va, CHUNK), cuMemSetAccess(va, CHUNK, &access, 1));
	TELL(cuMemMap(va + 4096, CHUNK, 0, h, 0), cuMemMap(va, CHUNK, 0, h, 0));
	TELL(cuMemMap(va, CHUNK, 0, h, 0));
	TELL(cuMemMap(va + CHUNK, CHUNK, 0, h, 0)); /* the same memory twice */
	TELL(cuMemAddressFree(va, 4 * CHUNK));
	TELL(cuMemSetAccess(va, 2 * CHUNK, &access, 1));
	TELL(cuMemSetAccess(va, 3 * CHUNK, &access, 1));
	TELL(cuMemGetAddressRange(&base, &size, va + 5000), base == va, cuMemFree(va));
	TELL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)va), again == h);
	TELL(cuMemRelease(again), cuMemRelease(h), conform_fill(va, 16, 7, s));
	TELL(cuStreamSynchronize(s));
	int word = 0;
	TELL(cuMemcpyDtoH(&word, va + CHUNK, 4), word, cuMemUnmap(va, 4096));
	TELL(cuMemUnmap(va, 2 * CHUNK), cuMemUnmap(va, 2 * CHUNK));
	TELL(cuMemAddressFree(va, CHUNK), cuMemAddressFree(va, 4 * CHUNK));
	TELL(cuMemAddressFree(va, 4 * CHUNK));
}

static void mapped_ipc(void)
{
	CUmemGenericAllocationHandle h;
	CUipcMemHandle handle;
	CUdeviceptr va;
	unsigned type = 77;

	section("mapped by hand, as seen by others");
	MUST(cuMemCreate(&h, CHUNK, &prop, 0));
	MUST(cuMemAddressReserve(&va, CHUNK, 0, 0, 0), cuMemMap(va, CHUNK, 0, h, 0));
	MUST(cuMemSetAccess(va, CHUNK, &access, 1));
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va), type);
	TELL(cuIpcGetMemHandle(&handle, va), cuMemFreeAsync(va, s));
	MUST(cuMemUnmap(va, CHUNK), cuMemRelease(h), cuMemAddressFree(va, CHUNK));
}

/* --- pinned --------------------------------------------------------------------- */

static void pinned_flags(unsigned flags)
{
	unsigned got = 77, type = 77;
	CUdeviceptr device = 0;
	void *host = NULL;

	tell("cuMemHostAlloc with flags", flags);
	TELL(cuMemHostAlloc(&host, 1000, flags));
	if (!host)
		return;
	TELL((uintptr_t)host % 512, cuMemHostGetFlags(&got, host), got);
	TELL(cuMemHostGetDevicePointer(&device, host, 0));
	TELL(device == (CUdeviceptr)(uintptr_t)host);
	TELL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				   (CUdeviceptr)(uintptr_t)host));
	TELL(type, cuMemFreeHost((char *)host + 16), cuMemFreeHost(host));
	TELL(cuMemFreeHost(host), cuMemHostGetFlags(&got, host));
}

static void pinned(void)
{
	void *host;

	section("pinned");
	TELL(cuMemHostAlloc(&host, 0, 0), cuMemHostAlloc(NULL, 4096, 0));
	TELL(cuMemHostAlloc(&host, (size_t)1 << 50, 0));
	for (unsigned flags = 0; flags <= 8; flags++)
		pinned_flags(flags);
	MUST(cuMemAllocHost(&host, 4096));
	TELL(cuMemFree((CUdeviceptr)(uintptr_t)host), cuMemHostUnregister(host));
	TELL(cuMemFreeHost(host));
}

/* --- the driver's own pools ------------------------------------------------------- */

static void pools(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	cuuint64_t value = 77;
	CUmemoryPool pool, first;
	CUdeviceptr q;

	section("the driver's own pools");
	MUST(cuDeviceGetDefaultMemPool(&first, 0));
	TELL(cuDeviceGetMemPool(&pool, 0), pool == first);
	TELL(cuMemPoolGetAttribute(first, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	TELL(value, cuMemPoolDestroy(first), cuMemPoolTrimTo(first, 0));
	TELL(cuMemPoolCreate(&pool, &props));
	TELL(cuMemAllocFromPoolAsync(&q, 4096, pool, s));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	TELL(value, cuMemFreeAsync(q, s));
	MUST(cuStreamSynchronize(s));
	TELL(cuMemPoolTrimTo(pool, 0));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
	TELL(value, cuMemPoolDestroy(pool), cuDeviceGraphMemTrim(0));
}

/* --- a context that ends -------------------------------------------------- */

static void context_ends(void)
{
	CUmemGenericAllocationHandle h;
	CUcontext ctx, ignored;
	CUdeviceptr va, q, base;
	unsigned got = 77;
	size_t size;
	void *host;

	section("a context that ends");
	MUST(cuMemCreate(&h, CHUNK, &prop, 0));
	MUST(cuMemAddressReserve(&va, CHUNK, 0, 0, 0), cuCtxCreate(&ctx, NULL, 0, 0));
	MUST(cuMemAlloc(&q, 4096), cuMemHostAlloc(&host, 4096, 0));
	MUST(cuMemMap(va, CHUNK, 0, h, 0), cuMemSetAccess(va, CHUNK, &access, 1));
	TELL(cuCtxDestroy(ctx));
	cuCtxPopCurrent(&ignored);
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemGetAddressRange(&base, &size, q), cuMemFree(q));
	TELL(cuMemHostGetFlags(&got, host), cuMemFreeHost(host));
	TELL(cuMemGetAddressRange(&base, &size, va)); /* not the context's */
	TELL(conform_fill(va, 16, 9, s), cuStreamSynchronize(s), cuMemUnmap(va, CHUNK));
	TELL(cuMemRelease(h), cuMemAddressFree(va, CHUNK));
}

/* Last: it may leave an error behind. */
static void without_access(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	int word;

	section("mapped, and not opened");
	MUST(cuMemCreate(&h, CHUNK, &prop, 0));
	MUST(cuMemAddressReserve(&va, CHUNK, 0, 0, 0), cuMemMap(va, CHUNK, 0, h, 0));
	TELL(cuMemsetD8(va, 0, 4) != 0, cuMemcpyDtoH(&word, va, 4) != 0);
}

int main(int argc, char **argv)
{
	tell_start(argc, argv);
	mapped_calls();
	mapped_ipc();
	pinned();
	pools();
	context_ends();
	without_access();
	return 0;
}
