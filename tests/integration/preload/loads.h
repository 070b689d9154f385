/* SPDX-License-Identifier: MIT */
/*
 * loads.h - between the program loads.c and the library that it loads. Built three
 * times: LOADS_RUNTIME calls the runtime, LOADS_MEMORY takes memory of the driver, the
 * other one asks it for a function.
 */
#ifndef GCP_TESTS_LOADS_H
#define GCP_TESTS_LOADS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* 1: the constructor runs; 2: it has come through. */
__attribute__((visibility("default"))) extern atomic_int loads_step;

int cudaGetDeviceCount(int *ret_count);
int cudaMalloc(void **ret_ptr, size_t bytes);
int cudaSetDevice(int device);

#ifdef LOADS_MEMORY
#include <cuda.h>

static inline bool loads_asks(void *driver)
{
	CUcontext ctx;
	CUdeviceptr p;

	return driver && cuDevicePrimaryCtxRetain(&ctx, 0) == 0 &&
	       cuCtxSetCurrent(ctx) == 0 && cuMemAlloc(&p, 512) == 0;
}
#else
static inline bool loads_asks(void *driver)
{
	return driver && dlsym(driver, "cuGetProcAddress_v2");
}
#endif

#endif
