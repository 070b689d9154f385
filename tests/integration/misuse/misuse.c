/* SPDX-License-Identifier: MIT */
/*
 * misuse.c - one wrong thing each: `misuse NAME` does it and ends with the code that
 * CUDA gave for it. misuse.py runs it plain and under the library. Without a name:
 * nothing wrong.
 */
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

struct misuse {
	const char *name;
	int (*run)(void);
	struct misuse *next;
};

static struct misuse *misuses;

/* MISUSE(name, code) { body } lists one; misuse.py reads the code that CUDA gives. */
#define MISUSE(name_, ...)                                                             \
	static int name_(void);                                                        \
	__attribute__((constructor)) static void name_##_is_listed(void)               \
	{                                                                              \
		static struct misuse it = {#name_, name_, NULL};                       \
		it.next = misuses;                                                     \
		misuses = &it;                                                         \
	}                                                                              \
	static int name_(void)

/* Makes the primary context of device 0 current. */
static CUcontext primary_context(void)
{
	CUcontext ctx;

	gcpt_driver_open();
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr p;

	MUST(cu.cuMemAlloc(&p, bytes));
	return p;
}

/* --- device memory ------------------------------------------------------- */

/* Frees a block twice; others of its size stay alive. */
MISUSE(double_free, 1)
{
	CUdeviceptr p, neighbour;

	primary_context();
	p = allocated(4096);
	neighbour = allocated(4096);
	MUST(cu.cuMemFree(p));
	(void)neighbour;
	return (int)cu.cuMemFree(p);
}

/* Frees a pointer into the middle of a block. */
MISUSE(interior_free, 1)
{
	primary_context();
	return (int)cu.cuMemFree(allocated(1 << 20) + 512);
}

/* Allocates more than there is address space. */
MISUSE(huge_alloc, 2)
{
	CUdeviceptr p;

	primary_context();
	return (int)cu.cuMemAlloc(&p, ~(size_t)0);
}

/* Allocates in a context that was destroyed. */
MISUSE(alloc_in_destroyed_context, 197)
{
	CUdeviceptr p;
	CUcontext ctx = primary_context();

	(void)allocated(4096);
	MUST(cu.cuDevicePrimaryCtxReset(0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return (int)cu.cuMemAlloc(&p, 4096);
}

/* Frees a pointer whose context is gone. */
MISUSE(free_after_context_destroy, 1)
{
	CUcontext ctx, primary = primary_context();
	CUdeviceptr p;

	MUST(cu.cuCtxCreate(&ctx, NULL, 0, 0));
	p = allocated(4096);
	MUST(cu.cuCtxDestroy(ctx));
	MUST(cu.cuCtxSetCurrent(primary));
	return (int)cu.cuMemFree(p);
}

/* Fills the device; gives all back and wants it in one piece; asks for more. */
MISUSE(full_device, 2)
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

/* --- the environment ----------------------------------------------------- */

/* Closes 0, 1 and 2 and puts a file of its own there, which must stay empty. */
MISUSE(close_stderr)
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
MISUSE(allocate)
{
	CUdeviceptr p;

	primary_context();
	p = allocated((size_t)100 << 20);
	puts("allocated");
	return (int)cu.cuMemFree(p);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "allocate";

	for (struct misuse *m = misuses; m; m = m->next)
		if (strcmp(m->name, name) == 0)
			return m->run();
	fprintf(stderr, "there is no misuse %s\n", name);
	return 199;
}
