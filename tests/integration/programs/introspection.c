/* SPDX-License-Identifier: MIT */
/*
 * introspection.c - what a program sees of its memory and of its own state: ranges of
 * blocks, the current context, contexts that wait for each other's frees. The
 * transcript must be the same with and without the library, so no address is
 * printed.
 *
 *   --devices N  use at most so many devices (default 2)
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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

		GCPT_OK((int)cu.cuMemGetAddressRange(&base, &size, inside));
		GCPT_OK((int)cu.cuPointerGetAttribute(
		    &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
		GCPT_OK((int)cu.cuPointerGetAttribute(
		    &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
		wrong += base != (CUdeviceptr)(uintptr_t)p[i] || base != start;
		wrong += size != bytes || range != bytes;
	}
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_free(p[i]));
		/* Asked for nothing, CUDA finds nothing wrong. */
		GCPT_OK((int)cu.cuMemGetAddressRange(NULL, NULL,
						     (CUdeviceptr)(uintptr_t)p[i]));
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

	GCPT_OK(gcpt_malloc(&device, bytes));
	GCPT_OK((int)cu.cuMemAllocHost(&pinned, bytes));
	p[0] = (CUdeviceptr)(uintptr_t)device;
	p[1] = (CUdeviceptr)(uintptr_t)pinned;
	say_all("held", p[0], false);
	say_all("pinned and held", p[1], true);
	GCPT_OK(gcpt_free(device));
	GCPT_OK((int)cu.cuMemFreeHost(pinned));
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

/* Calls on memory of one context while another is current. */
static void current_context(size_t bytes)
{
	CUcontext first = NULL, own = NULL, found = NULL;
	struct gcpt_kernels k;
	void *p[BLOCKS];
	int changed = 0;

	if (!cu.cuCtxCreate)
		return;
	GCPT_OK((int)cu.cuCtxGetCurrent(&first));
	GCPT_OK(gcpt_kernels_load(&k));
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&p[i], bytes));
		GCPT_OK(gcpt_launch_fill_slow(&k, NULL, p[i], bytes / 4, 1, SLOW_NS));
	}
	GCPT_OK((int)cu.cuCtxCreate(&own, NULL, 0, 0));
	for (int i = 0; i < BLOCKS; i++) {
		GCPT_OK(gcpt_free(p[i]));
		GCPT_OK((int)cu.cuCtxGetCurrent(&found));
		changed += found != own;
	}
	GCPT_OK((int)cu.cuCtxDestroy(own));
	GCPT_OK((int)cu.cuCtxSetCurrent(first));
	GCPT_OK((int)cu.cuModuleUnload(k.module));
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

	GCPT_OK(gcpt_use(other));
	GCPT_OK(gcpt_kernels_load(&there));
	GCPT_OK(gcpt_malloc(&counter, sizeof(wrong)));
	GCPT_OK(gcpt_copy(counter, &wrong, sizeof(wrong)));
	GCPT_OK(gcpt_stream_create(&stream));
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&here));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		GCPT_OK(gcpt_use(0));
		GCPT_OK(gcpt_malloc(&p, WORDS * 4));
		GCPT_OK(
		    gcpt_launch_fill_slow(&here, NULL, p, WORDS, 1000 + i, SLOW_NS));
		GCPT_OK(gcpt_free(p));
		GCPT_OK(gcpt_malloc(&p, WORDS * 4));
		GCPT_OK(gcpt_use(other));
		GCPT_OK(gcpt_set_async(p, 7, WORDS * 4, stream));
		GCPT_OK(
		    gcpt_launch_check(&there, stream, p, WORDS, 0x07070707, counter));
		GCPT_OK(gcpt_stream_sync(stream));
		GCPT_OK(gcpt_free(p));
	}
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_use(other));
	GCPT_OK(gcpt_copy(&wrong, counter, sizeof(wrong)));
	GCPT_OK(gcpt_free(counter));
	GCPT_OK(gcpt_stream_destroy(stream));
	GCPT_OK(gcpt_use(0));
	printf("a fresh block written by device %d: %llu wrong words\n", other, wrong);
}

static bool peers(int other)
{
	CUcontext mine = NULL, theirs = NULL;

	GCPT_OK((int)cu.cuDevicePrimaryCtxRetain(&mine, 0));
	GCPT_OK(gcpt_use(other));
	if (!cu.cuCtxEnablePeerAccess ||
	    cu.cuCtxEnablePeerAccess(mine, 0) != CUDA_SUCCESS)
		return false;
	GCPT_OK((int)cu.cuCtxGetCurrent(&theirs));
	return theirs != NULL;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {1000, 20000, 300000, 5 << 20};
	int count = 0, most = (int)gcpt_arg(argc, argv, "--devices", 2);

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_device_count(&count));
	/* First, while nothing is cached that would do without a barrier. */
	if (count > 1 && most > 1 && peers(1))
		other_context(1);
	else
		printf("no second device that reaches the first\n");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		current_context(sizes[i]);
		ranges(sizes[i]);
		freed(sizes[i]);
	}
	return 0;
}
