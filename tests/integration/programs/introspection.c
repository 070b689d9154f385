/* SPDX-License-Identifier: MIT */
/*
 * introspection.c - what a program sees of its memory and of its own state: ranges of
 * blocks, the current context, contexts that wait for each other's frees. The
 * transcript must be the same with and without the library, so no address is
 * printed.
 *
 *   --devices N  use at most so many devices (default 2)
 *
 * Tried: everywhere
 * Run: transcript.py GCPSIM_DEVICES=2 GCPSIM_SPEED=never GCPOOL_TEST_WINDOW=0
 * GCPOOL_TEST_FENCE_BATCH=1 @
 */

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { BLOCKS = 9, WORDS = 450000, SLOW_NS = 200000, ROUNDS = 8 };

/* Each block answers for itself, from its first byte to its last. */
static void ranges(size_t bytes)
{
	char *p[BLOCKS];
	int wrong = 0;

	for (int i = 0; i < BLOCKS; i++)
		GCPT_OK(gcpt_malloc((void **)&p[i], bytes));
	for (int i = 0; i < BLOCKS; i++) {
		CUdeviceptr base = 0, inside = (CUdeviceptr)(uintptr_t)p[i] + bytes / 2;
		CUdeviceptr start = 0;
		size_t size = 0, range = 0;

		GCPT_OK(cu.cuMemGetAddressRange(&base, &size, inside));
		GCPT_OK(cu.cuPointerGetAttribute(
		    &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
		GCPT_OK(cu.cuPointerGetAttribute(
		    &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
		wrong += base != (CUdeviceptr)(uintptr_t)p[i] || base != start;
		wrong += size != bytes || range != bytes;
	}
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_free(p[i]));
		/* Asked for nothing, CUDA finds nothing wrong. */
		GCPT_OK(
		    cu.cuMemGetAddressRange(NULL, NULL, (CUdeviceptr)(uintptr_t)p[i]));
	}
	printf("ranges of %zu bytes: %d wrong\n", bytes, wrong);
}

/* What is said of `at`: each answer with its code, and values that a GPU and the
 * simulated device agree on. */
static void say_all(const char *what, CUdeviceptr at, bool host)
{
	static const CUpointer_attribute single[] = {
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	    CU_POINTER_ATTRIBUTE_IS_MANAGED,      CU_POINTER_ATTRIBUTE_MAPPED,
	    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,  CU_POINTER_ATTRIBUTE_CONTEXT,
	    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_MAPPED};
	int type = 77, ordinal = 77, mapped = 77;
	void *values[] = {&type, &ordinal, &mapped}, *p = (void *)(uintptr_t)at;
	CUdeviceptr base = 0;
	unsigned flags = 0;
	uint64_t value;
	size_t size = 0;
	int code;

	printf("%s: range %d", what, (int)cu.cuMemGetAddressRange(&base, &size, at));
	for (size_t i = 0; i < sizeof(single) / sizeof(*single); i++)
		printf(" %d", (int)cu.cuPointerGetAttribute(&value, single[i], at));
	code = (int)cu.cuPointerGetAttributes(3, which, values, at);
	printf("; several %d: %d %d %d", code, type, ordinal, mapped);
	if (host) {
		printf("; pinned %d", (int)cu.cuMemHostGetDevicePointer(&base, p, 0));
		printf(" %d", (int)cu.cuMemHostGetFlags(&flags, p));
		printf(" %d", (int)cu.cuMemHostUnregister(p));
	}
	printf("\n");
}

/* CUDA knows nothing of memory that the program has freed. */
static void freed(size_t bytes)
{
	CUdeviceptr p[2], inside = bytes / 2;
	int on = 1, fd = -1;
	void *device, *pinned;

	GCPT_OK(gcpt_malloc(&device, bytes), cu.cuMemAllocHost(&pinned, bytes));
	p[0] = (CUdeviceptr)(uintptr_t)device;
	p[1] = (CUdeviceptr)(uintptr_t)pinned;
	say_all("held", p[0], false);
	say_all("pinned and held", p[1], true);
	GCPT_OK(gcpt_free(device), cu.cuMemFreeHost(pinned));
	say_all("freed", p[0], false);
	say_all("inside", p[0] + inside, false);
	printf("set: %d\n", (int)cu.cuPointerSetAttribute(
				&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p[0]));
	if (cu.cuMemGetHandleForAddressRange)
		printf("shared: %d\n", (int)cu.cuMemGetHandleForAddressRange(
					   &fd, p[0] & ~4095ull, 4096,
					   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	say_all("pinned and freed", p[1], true);
	say_all("inside", p[1] + inside, true);
}

/* --- memory that is not the program's to map ------------------------------------- */

enum { PAGE = 2 << 20 };

static const CUmemAccessDesc opened = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static CUmemGenericAllocationHandle page_made(void)
{
	static const CUmemAllocationProp how = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemGenericAllocationHandle handle;

	GCPT_OK(cu.cuMemCreate(&handle, PAGE, &how, 0));
	return handle;
}

static void say_refused(const char *what, CUdeviceptr at, size_t bytes)
{
	CUmemGenericAllocationHandle page = page_made();

	printf("%s: opened %d, mapped %d", what,
	       (int)cu.cuMemSetAccess(at, bytes, &opened, 1),
	       (int)cu.cuMemMap(at, PAGE, 0, page, 0));
	printf(", unmapped %d, given back %d\n", (int)cu.cuMemUnmap(at, bytes),
	       (int)cu.cuMemAddressFree(at, bytes));
	GCPT_OK(cu.cuMemRelease(page));
}

/* What the program maps itself. */
static void own_page(void)
{
	CUmemGenericAllocationHandle page = page_made(), told;
	CUdeviceptr at;

	GCPT_OK(cu.cuMemAddressReserve(&at, PAGE, 0, 0, 0));
	printf("own: mapped %d", (int)cu.cuMemMap(at, PAGE, 0, page, 0));
	printf(", opened %d", (int)cu.cuMemSetAccess(at, PAGE, &opened, 1));
	printf(", its handle %d",
	       (int)cu.cuMemRetainAllocationHandle(&told, (void *)(uintptr_t)at));
	GCPT_OK(cu.cuMemRelease(told), cu.cuMemRelease(page));
	printf(", unmapped %d", (int)cu.cuMemUnmap(at, PAGE));
	printf(", given back %d\n", (int)cu.cuMemAddressFree(at, PAGE));
}

/* It stays where it is, with what is in it. */
static void mappings(size_t bytes)
{
	CUmemGenericAllocationHandle told;
	unsigned long long flags = 0;
	unsigned char first = 0;
	CUdeviceptr at, page;
	void *p;

	if (!cu.cuMemMap)
		return;
	GCPT_OK(gcpt_malloc(&p, bytes));
	at = (CUdeviceptr)(uintptr_t)p;
	page = at / PAGE * PAGE;
	GCPT_OK(gcpt_set_async(p, 7, bytes, NULL));
	say_refused("the block", at, bytes);
	say_refused("its pages", page, (at + bytes - page + PAGE - 1) / PAGE * PAGE);
	say_refused("one page", page, PAGE);
	say_refused("more than it", page - PAGE, 32ull * PAGE);
	say_refused("a great deal", page - ((size_t)64 << 30), (size_t)128 << 30);
	printf("its access %d", (int)cu.cuMemGetAccess(&flags, &opened.location, at));
	printf(" %d, its handle %d\n", (int)flags,
	       (int)cu.cuMemRetainAllocationHandle(&told, p));
	own_page();
	GCPT_OK(gcpt_copy(&first, p, 1));
	printf("it holds %d\n", first);
	GCPT_OK(gcpt_free(p));
	say_refused("freed", page, PAGE);
	printf("its access %d\n", (int)cu.cuMemGetAccess(&flags, &opened.location, at));
}

/* --- attributes ------------------------------------------------------------------ */

/* CU_POINTER_ATTRIBUTE_..., which older headers lack. */
enum { MAPPING_SIZE = 18, MAPPING_BASE_ADDR = 19, IS_HW_DECOMPRESS_CAPABLE = 21 };

static void attributes(size_t bytes, bool async)
{
	static const int numbers[] = {
	    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
	    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
	    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
	    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
	    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
	    MAPPING_SIZE,
	    IS_HW_DECOMPRESS_CAPABLE,
	};
	unsigned long long value, base = 0;
	CUdeviceptr at;
	void *p;

	GCPT_OK(async ? gcpt_malloc_async(&p, bytes, NULL) : gcpt_malloc(&p, bytes));
	at = (CUdeviceptr)(uintptr_t)p;
	printf("attributes%s:", async ? " of stream-ordered memory" : "");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		value = 0;
		if (async && numbers[i] >= CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE &&
		    numbers[i] <= MAPPING_SIZE)
			continue; /* the pool's affair */
		printf(" %d:%d", numbers[i],
		       (int)cu.cuPointerGetAttribute(
			   &value, (CUpointer_attribute)numbers[i], at + bytes / 2));
		printf(" %llu", value);
	}
	printf("; base %d",
	       (int)cu.cuPointerGetAttribute(
		   &base, (CUpointer_attribute)MAPPING_BASE_ADDR, at + bytes - 1));
	printf(" %s\n", async          ? "somewhere"
			: bytes > PAGE ? base == at ? "is its start" : "is elsewhere"
			: base % PAGE == 0 && at + bytes - 1 - base < PAGE
			    ? "of its page"
			    : "of another page");
	GCPT_OK(async ? gcpt_free_async(p, NULL) : gcpt_free(p));
}

/* Calls on memory of one context while another is current. */
static void current_context(size_t bytes)
{
	CUcontext first = NULL, own = NULL, found = NULL;
	struct gcpt_kernels k;
	void *p[BLOCKS];
	int changed = 0;

	if (!cu.cuCtxCreate)
		return;
	GCPT_OK(cu.cuCtxGetCurrent(&first), gcpt_kernels_load(&k));
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&p[i], bytes));
		GCPT_OK(gcpt_launch_fill_slow(&k, NULL, p[i], bytes / 4, 1, SLOW_NS));
	}
	GCPT_OK(cu.cuCtxCreate(&own, NULL, 0, 0));
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_free(p[i]), cu.cuCtxGetCurrent(&found));
		changed += found != own;
	}
	GCPT_OK(cu.cuCtxDestroy(own), cu.cuCtxSetCurrent(first));
	GCPT_OK(cu.cuModuleUnload(k.module));
	printf("frees of another context's %zu bytes: %d changed the current one\n",
	       bytes, changed);
}

/* A block is freed behind slow work of its own context; its next owner writes it
 * from another one, which plain CUDA has made safe by waiting in the free. */
static void other_context(int other)
{
	unsigned long long wrong = 0;
	struct gcpt_kernels here, there;
	void *p, *counter;
	CUstream stream;

	GCPT_OK(gcpt_use(other), gcpt_kernels_load(&there));
	GCPT_OK(gcpt_malloc(&counter, sizeof(wrong)));
	GCPT_OK(gcpt_copy(counter, &wrong, sizeof(wrong)), gcpt_stream_create(&stream));
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&here));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		GCPT_OK(gcpt_use(0), gcpt_malloc(&p, WORDS * 4));
		GCPT_OK(
		    gcpt_launch_fill_slow(&here, NULL, p, WORDS, 1000 + i, SLOW_NS));
		GCPT_OK(gcpt_free(p), gcpt_malloc(&p, WORDS * 4), gcpt_use(other));
		GCPT_OK(gcpt_set_async(p, 7, WORDS * 4, stream));
		GCPT_OK(
		    gcpt_launch_check(&there, stream, p, WORDS, 0x07070707, counter));
		GCPT_OK(gcpt_stream_sync(stream), gcpt_free(p));
	}
	GCPT_OK(gcpt_use(0), gcpt_sync(), gcpt_use(other));
	GCPT_OK(gcpt_copy(&wrong, counter, sizeof(wrong)), gcpt_free(counter));
	GCPT_OK(gcpt_stream_destroy(stream), gcpt_use(0));
	printf("a fresh block written by device %d: %llu wrong words\n", other, wrong);
}

static bool peers(int other)
{
	CUcontext mine = NULL, theirs = NULL;

	GCPT_OK(cu.cuDevicePrimaryCtxRetain(&mine, 0), gcpt_use(other));
	if (!cu.cuCtxEnablePeerAccess ||
	    cu.cuCtxEnablePeerAccess(mine, 0) != CUDA_SUCCESS)
		return false;
	GCPT_OK(cu.cuCtxGetCurrent(&theirs));
	return theirs != NULL;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1000, 20000, 300000, 5 << 20};
	int count = 0, most = (int)gcpt_arg(argc, argv, "--devices", 2);

	GCPT_OK(gcpt_use(0), gcpt_device_count(&count));
	/* First, while nothing is cached that would do without a barrier. */
	if (count > 1 && most > 1 && peers(1))
		other_context(1);
	else
		printf("no second device that reaches the first\n");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		current_context(sizes[i]);
		ranges(sizes[i]);
		freed(sizes[i]);
		mappings(sizes[i]);
		attributes(sizes[i], false);
		attributes(sizes[i], true);
	}
	return 0;
}
