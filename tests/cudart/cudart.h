/* SPDX-License-Identifier: MIT */
/*
 * cudart.h - inside of the simulated CUDA runtime: a libcudart of a few hundred
 * lines over the (simulated) driver, so that programs of the runtime can be
 * tested where neither a GPU nor NVIDIA's libraries are.
 *
 * As NVIDIA's, it needs only libc and reaches the driver by one dlopen, one
 * dlsym ("cuGetProcAddress_v2") and many lookups through what that gave, at the
 * first call and before cuInit; each call finds the current context, or makes
 * the primary context of the thread's device current; each keeps the thread's
 * last error. The shared and the static library are of the same objects.
 */
#ifndef GCPT_CUDART_H
#define GCPT_CUDART_H

#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "calls.h"

struct cudart_driver {
#define CUDART_X(name, version) typeof(name) *name;
	CUDART_CALLS(CUDART_X)
#undef CUDART_X
};

/* Filled by cudart_open. NULL: the driver lacks the function. */
extern struct cudart_driver cudart_cu;

/* Opens the driver, once in the process. Never makes a context. */
cudaError_t cudart_open(void);

/* cudart_open, then makes sure that a context is current. */
cudaError_t cudart_enter(void);

/* Sets the thread's device; resets its primary context. */
cudaError_t cudart_device_set(int device);
cudaError_t cudart_device_reset(void);

/* Keeps `error` as the thread's last error, unless it is a mere answer, and
 * returns it. The numbers of CUresult and cudaError_t agree. */
cudaError_t cudart_keep(int error);

static inline CUdeviceptr cudart_address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* The body of nearly every function: enter, call, keep. A function that the
 * driver lacks is not supported. */
#define CUDART_CALL(name, ...)                                                         \
	do {                                                                           \
		cudaError_t entered_ = cudart_enter();                                 \
                                                                                       \
		if (entered_)                                                          \
			return cudart_keep(entered_);                                  \
		if (!cudart_cu.name)                                                   \
			return cudart_keep(cudaErrorNotSupported);                     \
		return cudart_keep((int)cudart_cu.name(__VA_ARGS__));                  \
	} while (0)

#endif
