/* SPDX-License-Identifier: MIT */
/*
 * loads.h - between the program loads.c and the library that it loads. Built twice:
 * LOADS_RUNTIME calls the runtime, the other the driver.
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

static inline bool loads_asks(void *driver)
{
	return driver && dlsym(driver, "cuGetProcAddress_v2");
}

#endif
