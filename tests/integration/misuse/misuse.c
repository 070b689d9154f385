/* SPDX-License-Identifier: MIT */
/*
 * misuse.c - one wrong thing each: `misuse NAME` does it and ends with the code that
 * CUDA gave for it. misuse.py runs it plain and under the library. The table is at the
 * end. Without a name: nothing wrong.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../programs/driver.h"

/* What must succeed for the misuse to be reached; no CUDA code is 199 to 202. */
#define MUST(call)                                                                     \
	do {                                                                           \
		CUresult code_ = (call);                                               \
		if (code_) {                                                           \
			fprintf(stderr, "%s: error %d\n", #call, (int)code_);          \
			exit(200);                                                     \
		}                                                                      \
	} while (0)

/* Makes the primary context of device 0 current. */
static CUcontext primary_context(void)
{
	CUcontext ctx;

	gcpt_driver_open();
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static void *pinned(size_t bytes)
{
	void *p;

	MUST(cu.cuMemAllocHost(&p, bytes));
	return p;
}

static CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr p;

	MUST(cu.cuMemAlloc(&p, bytes));
	return p;
}

/* --- device memory ------------------------------------------------------- */

/* Frees a block twice; others of its size stay alive. */
static int double_free(void)
{
	CUdeviceptr p, neighbour;

	primary_context();
	p = allocated(4096);
	neighbour = allocated(4096);
	MUST(cu.cuMemFree(p));
	(void)neighbour;
	return (int)cu.cuMemFree(p);
}

/* Frees a block that has a driver allocation of its own twice. */
static int double_free_large(void)
{
	CUdeviceptr p;

	primary_context();
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemFree(p));
	return (int)cu.cuMemFree(p);
}

/* Frees a block that has a driver allocation of its own twice, in stream order. */
static int double_free_async(void)
{
	CUdeviceptr p;
	CUresult second;
	CUstream s;

	primary_context();
	MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemFreeAsync(p, s));
	second = cu.cuMemFreeAsync(p, s);
	MUST(cu.cuStreamSynchronize(s));
	/* The next allocation of this size can be used. */
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemsetD8Async(p, 1, 4096, s));
	MUST(cu.cuStreamSynchronize(s));
	return (int)second;
}

/* Frees a block that has a driver allocation of its own, and then in stream order. */
static int double_free_mixed(void)
{
	CUdeviceptr p;
	CUresult second;
	CUstream s;

	primary_context();
	MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemFree(p));
	second = cu.cuMemFreeAsync(p, s);
	p = allocated((size_t)400 << 20);
	MUST(cu.cuMemsetD8Async(p, 1, 4096, s));
	MUST(cu.cuStreamSynchronize(s));
	return (int)second;
}

/* Frees a pointer into the middle of a block. */
static int interior_free(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(1 << 20) + 512);
}

/* Frees a pointer into the middle of a small block. */
static int interior_free_small(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(2048) + 1024);
}

/* Frees an address of the host. */
static int foreign_free(void)
{
	static char bytes[4096];

	primary_context();
	(void)allocated(4096);
	return (int)cu.cuMemFree((CUdeviceptr)bytes);
}

/* Frees an address that was never allocated, near one that was. */
static int unknown_free(void)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(4096) + ((CUdeviceptr)1 << 40));
}

/* Frees 0, which is allowed. */
static int null_free(void)
{
	primary_context();
	return (int)cu.cuMemFree(0);
}

/* Frees 0 with no context current. */
static int null_free_without_context(void)
{
	primary_context();
	(void)allocated(4096);
	MUST(cu.cuCtxSetCurrent(NULL));
	return (int)cu.cuMemFree(0);
}

/* Allocates no bytes. */
static int zero_alloc(void)
{
	CUdeviceptr p;

	primary_context();
	return (int)cu.cuMemAlloc(&p, 0);
}

/* Allocates without a place for the pointer. */
static int null_alloc(void)
{
	primary_context();
	return (int)cu.cuMemAlloc(NULL, 4096);
}

/* Allocates more than there is address space. */
static int huge_alloc(void)
{
	CUdeviceptr p;

	primary_context();
	return (int)cu.cuMemAlloc(&p, ~(size_t)0);
}

/* Allocates with no context current. */
static int alloc_without_context(void)
{
	CUdeviceptr p;

	primary_context();
	(void)allocated(4096);
	MUST(cu.cuCtxSetCurrent(NULL));
	return (int)cu.cuMemAlloc(&p, 4096);
}

/* Allocates in a context that was destroyed. */
static int alloc_in_destroyed_context(void)
{
	CUdeviceptr p;
	CUcontext ctx = primary_context();

	(void)allocated(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return (int)cu.cuMemAlloc(&p, 4096);
}

/* Frees a pointer whose context is gone. */
static int free_after_context_destroy(void)
{
	CUcontext ctx, primary = primary_context();
	CUdeviceptr p;

	MUST(cu.cuCtxCreate(&ctx, NULL, 0, 0));
	p = allocated(4096);
	MUST(cu.cuCtxDestroy(ctx));
	MUST(cu.cuCtxSetCurrent(primary));
	return (int)cu.cuMemFree(p);
}

/* Frees a pointer of the primary context after its reset. */
static int free_after_reset(void)
{
	CUdeviceptr p;
	CUcontext ctx;

	primary_context();
	p = allocated(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return (int)cu.cuMemFree(p);
}

/* Fills the device; gives all back and wants it in one piece; asks for more. */
static int full_device(void)
{
	size_t piece = 32 << 20, count = 0;
	CUdeviceptr pieces[64], whole;
	CUresult result;

	primary_context();
	while (!(result = cu.cuMemAlloc(&pieces[count], piece)) && count < 63)
		count++;
	if (count < 2)
		return 201;
	for (size_t i = 0; i < count; i++)
		MUST(cu.cuMemFree(pieces[i]));
	whole = allocated(piece * (count - 1));
	(void)whole;
	return (int)cu.cuMemAlloc(&pieces[0], piece * 2);
}

/* --- pinned memory ------------------------------------------------------- */

/* Frees a pinned block twice; another of its size stays alive. */
static int host_double_free(void)
{
	void *p, *neighbour;

	primary_context();
	p = pinned(4096);
	neighbour = pinned(4096);
	MUST(cu.cuMemFreeHost(p));
	(void)neighbour;
	return (int)cu.cuMemFreeHost(p);
}

/* Frees a pointer into the middle of a pinned block. */
static int host_interior_free(void)
{
	primary_context();
	return (int)cu.cuMemFreeHost((char *)pinned(1 << 20) + 4096);
}

/* Frees memory of malloc as if it were pinned. */
static int host_foreign_free(void)
{
	void *p = malloc(4096);

	primary_context();
	(void)pinned(4096);
	return (int)cu.cuMemFreeHost(p);
}

/* Frees a pinned block with the function for device memory. */
static int host_free_as_device(void)
{
	primary_context();
	return (int)cu.cuMemFree((CUdeviceptr)(uintptr_t)pinned(4096));
}

/* Frees a pinned block whose context has been reset away. */
static int host_free_after_reset(void)
{
	void *p;

	primary_context();
	p = pinned(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	primary_context();
	return (int)cu.cuMemFreeHost(p);
}

/* Asks for no pinned memory at all. */
static int host_zero_alloc(void)
{
	void *p;

	primary_context();
	return (int)cu.cuMemAllocHost(&p, 0);
}

/* --- the environment ----------------------------------------------------- */

/* Closes 0, 1 and 2 and puts a file of its own there, which must stay empty. */
static int close_stderr(void)
{
	char name[] = "/tmp/gcpool-misuse-XXXXXX";
	int descriptor = mkstemp(name);
	struct stat state;

	unlink(name);
	for (int low = 0; low <= 2; low++)
		close(low);
	/* The log and the statistics have a file of their own to go to. */
	primary_context();
	MUST(cu.cuMemFree(allocated(4096)));
	if (dup2(descriptor, 2) != 2 || fstat(2, &state) != 0)
		return 201;
	return state.st_size == 0 ? 0 : 202;
}

/* Does nothing wrong: the environment does. */
static int allocate(void)
{
	CUdeviceptr p;

	primary_context();
	p = allocated((size_t)100 << 20);
	puts("allocated");
	return (int)cu.cuMemFree(p);
}

/* --- the table ------------------------------------------------------------------ */

static const struct {
	const char *name;
	int (*run)(void);
} misuses[] = {
    {"double_free", double_free},
    {"double_free_large", double_free_large},
    {"double_free_async", double_free_async},
    {"double_free_mixed", double_free_mixed},
    {"interior_free", interior_free},
    {"interior_free_small", interior_free_small},
    {"foreign_free", foreign_free},
    {"unknown_free", unknown_free},
    {"null_free", null_free},
    {"null_free_without_context", null_free_without_context},
    {"zero_alloc", zero_alloc},
    {"null_alloc", null_alloc},
    {"huge_alloc", huge_alloc},
    {"alloc_without_context", alloc_without_context},
    {"alloc_in_destroyed_context", alloc_in_destroyed_context},
    {"free_after_context_destroy", free_after_context_destroy},
    {"free_after_reset", free_after_reset},
    {"full_device", full_device},
    {"host_double_free", host_double_free},
    {"host_interior_free", host_interior_free},
    {"host_foreign_free", host_foreign_free},
    {"host_free_as_device", host_free_as_device},
    {"host_free_after_reset", host_free_after_reset},
    {"host_zero_alloc", host_zero_alloc},
    {"close_stderr", close_stderr},
    {"allocate", allocate},
};

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "allocate";

	for (size_t i = 0; i < sizeof(misuses) / sizeof(*misuses); i++)
		if (strcmp(misuses[i].name, name) == 0)
			return misuses[i].run();
	fprintf(stderr, "there is no misuse %s\n", name);
	return 199;
}
