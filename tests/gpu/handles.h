/* SPDX-License-Identifier: MIT */
/*
 * handles.h - what the two sources of the handles program share.
 */
#ifndef GCPT_GPU_HANDLES_H
#define GCPT_GPU_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>

#include <cuda.h>

#include "../../interpose/handles/handles_table.h"
#include "../several.h"

#define DRIVER(X)                                                                      \
	X(cuInit, (unsigned))                                                          \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                           \
	X(cuCtxSetCurrent, (CUcontext))                                                \
	X(cuCtxGetCurrent, (CUcontext *))                                              \
	X(cuCtxSynchronize, (void))                                                    \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                      \
	X(cuMemsetD32_v2, (CUdeviceptr, unsigned, size_t))                             \
	X(cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                 \
	X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                              \
	X(cuStreamCreate, (CUstream *, unsigned))                                      \
	X(cuStreamQuery, (CUstream))                                                   \
	X(cuStreamSynchronize, (CUstream))

struct driver {
#define FIELD(name, parameters) CUresult(*name) parameters;
	DRIVER(FIELD)
};
extern struct driver cu;

struct library {
	const struct gcp_handle_kind *kind;
	void *loaded;
	int (*create)(void **);
	int (*destroy)(void *);
	int (*set_stream)(void *, CUstream);
};

typedef int sgemm_fn(void *, int, int, int, int, int, const float *, const float *, int,
		     const float *, int, const float *, float *, int);

enum { LIBRARIES_MAX = 8 };

extern struct library libraries[LIBRARIES_MAX];
extern int library_count;
extern CUcontext primary;

/* Says what is wrong; the program will end with 1. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MUST(...)      SEVERAL(MUST_ONE, __VA_ARGS__)
#define MUST_ONE(call) must((int)(call), #call, __LINE__)

static inline void must(int result, const char *call, int line)
{
	if (result)
		complain("line %d: %s gives %d", line, call, result);
}

double now_us(void);
void *create(const struct library *library);
CUstream stream_new(void);

/* c = a * b, of m x k and k x n floats, by the first library. */
void multiply(void *handle, int m, int n, int k, CUdeviceptr a, CUdeviceptr b,
	      CUdeviceptr c);

void run_threads(void);
void run_stress(void);

#endif
