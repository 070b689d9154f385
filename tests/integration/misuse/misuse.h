/* SPDX-License-Identifier: MIT */
/*
 * misuse.h - what the programs of this directory share. Each does one wrong
 * thing and ends with the code that CUDA gave for it; misuse.py runs it plain
 * and under the library.
 */
#ifndef GCPT_MISUSE_H
#define GCPT_MISUSE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../programs/driver.h"

/* What must succeed for the misuse to be reached; no CUDA code is 200. */
#define MUST(call)                                                                     \
	do {                                                                           \
		CUresult code_ = (call);                                               \
		if (code_) {                                                           \
			fprintf(stderr, "%s: error %d\n", #call, (int)code_);          \
			exit(200);                                                     \
		}                                                                      \
	} while (0)

/* Makes the primary context of device 0 current. */
static inline CUcontext primary_context(void)
{
	CUcontext ctx;

	gcpt_driver_open();
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static inline void *pinned(size_t bytes)
{
	void *p;

	MUST(cu.cuMemAllocHost(&p, bytes));
	return p;
}

static inline CUdeviceptr allocated(size_t bytes)
{
	CUdeviceptr p;

	MUST(cu.cuMemAlloc(&p, bytes));
	return p;
}

#endif
