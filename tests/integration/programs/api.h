/* SPDX-License-Identifier: MIT */
/*
 * api.h - the calls of CUDA that the test programs make, so that one program
 * can be built upon the runtime (api_runtime.c: cudaMalloc, ...) and upon the
 * driver (api_driver.c: cuMemAlloc, ...). Each function is one call of CUDA and
 * returns its code untouched: 0 is success.
 *
 * Kernels are launched through the driver in both (kernels.h).
 */
#ifndef GCPT_API_H
#define GCPT_API_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../several.h"
#include "driver.h"

/* Both are a CUipcMemHandle in size and content. */
struct gcpt_ipc {
	unsigned char bytes[64];
};

const char *gcpt_api_name(void);
const char *gcpt_error_name(int code);
int gcpt_last_error(void); /* cudaGetLastError; 0 upon the driver */

/* Opens the driver and makes the primary context of `device` current on the
 * calling thread: the first call of each thread. */
int gcpt_use(int device);
int gcpt_device_count(int *ret_count);
int gcpt_device_reset(int device);
int gcpt_sync(void);

int gcpt_malloc(void **ret_p, size_t bytes);
int gcpt_free(void *p);
int gcpt_malloc_pitch(void **ret_p, size_t *ret_pitch, size_t width, size_t height);
int gcpt_malloc_managed(void **ret_p, size_t bytes);
int gcpt_malloc_async(void **ret_p, size_t bytes, CUstream stream);
int gcpt_free_async(void *p, CUstream stream);
int gcpt_malloc_host(void **ret_p, size_t bytes);
int gcpt_free_host(void *p);
int gcpt_mem_info(size_t *ret_free, size_t *ret_total);
int gcpt_device_memory(int device, size_t *ret_total);

/* Lets the driver's own stream-ordered pool keep what was freed. */
int gcpt_async_keep(int device);

int gcpt_copy(void *dst, const void *src, size_t bytes); /* any direction */
int gcpt_copy_async(void *dst, const void *src, size_t bytes, CUstream stream);
int gcpt_set_async(void *p, int byte, size_t bytes, CUstream stream);

int gcpt_stream_create(CUstream *ret_stream); /* non-blocking */
int gcpt_stream_destroy(CUstream stream);
int gcpt_stream_sync(CUstream stream);

/* Capture and graphs. What no program here wants of the runtime is called upon the
 * driver, in all styles. */
int gcpt_capture_begin(CUstream stream, CUstreamCaptureMode mode);
int gcpt_capture_end(CUstream stream, CUgraph *ret_graph);
int gcpt_instantiate(CUgraphExec *ret_exec, CUgraph graph);
int gcpt_graph_launch(CUgraphExec exec, CUstream stream);

int gcpt_ipc_get(struct gcpt_ipc *ret_handle, void *p);
int gcpt_ipc_open(void **ret_p, const struct gcpt_ipc *handle);
int gcpt_ipc_close(void *p);

/* Ends the program with code 2 when a `code` is not 0. */
#define GCPT_OK(...)      SEVERAL(GCPT_OK_ONE, __VA_ARGS__)
#define GCPT_OK_ONE(call) gcpt_demand((int)(call), #call, __FILE__, __LINE__)
static inline void gcpt_demand(int code, const char *call, const char *file, int line)
{
	if (!code)
		return;
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, call, code,
		gcpt_error_name(code));
	exit(2);
}

/* The definition of one that is one call. */
#define CALL(name, parameters, call)                                                   \
	int name parameters                                                            \
	{                                                                              \
		return call;                                                           \
	}

#endif
