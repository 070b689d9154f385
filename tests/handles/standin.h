/* SPDX-License-Identifier: MIT */
/*
 * standin.h - what the stand-ins for cuBLAS, cuDNN, ... share: handles with a
 * workspace on the device and some state, counted, over the driver alone.
 *
 * Each source names its functions with the macros below. As with the real libraries,
 * creating a handle makes the primary context current if a thread has none, and
 * destroying one waits for the device.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <cuda.h>

#define STANDIN_API __attribute__((visibility("default")))

enum { STANDIN_VALUES = 16, STANDIN_BYTES = 4096, STANDIN_MAGIC = 0x5ad1e };

struct standin {
	int magic;
	uint64_t values[STANDIN_VALUES]; /* [0] is the stream */
	CUdeviceptr workspace;           /* in use */
	CUdeviceptr own;
};

STANDIN_API void standin_counts(int *ret_created, int *ret_destroyed);
STANDIN_API void standin_fail(int creations);
STANDIN_API void standin_refuse(int refuse);
STANDIN_API int standin_work(struct standin *handle);
STANDIN_API int standin_workspace_is_own(const struct standin *handle);

static atomic_int standin_created, standin_destroyed, standin_failing, standin_refusing;

static int standin_good(const struct standin *handle)
{
	return handle && handle->magic == STANDIN_MAGIC;
}

/* A new handle's value: its place, unless the environment says otherwise. */
static uint64_t standin_default(int index)
{
	const char *wish = getenv("CUBLAS_STANDIN_VALUE");

	return index == 0 ? 0 : wish ? (uint64_t)atoi(wish) : (uint64_t)(index % 2);
}

static int standin_create(struct standin **ret_handle)
{
	struct standin *handle;
	CUcontext ctx = NULL;

	if (!ret_handle)
		return 7;
	if (atomic_load(&standin_failing) > 0) {
		atomic_fetch_sub(&standin_failing, 1);
		return 3;
	}
	if (cuInit(0) || cuCtxGetCurrent(&ctx))
		return 1;
	if (!ctx && (cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx)))
		return 1;
	handle = calloc(1, sizeof(*handle));
	if (cuMemAlloc(&handle->own, STANDIN_BYTES)) {
		free(handle);
		return 3;
	}
	handle->magic = STANDIN_MAGIC;
	handle->workspace = handle->own;
	for (int i = 0; i < STANDIN_VALUES; i++)
		handle->values[i] = standin_default(i);
	*ret_handle = handle;
	atomic_fetch_add(&standin_created, 1);
	return 0;
}

static int standin_destroy(struct standin *handle)
{
	if (!standin_good(handle))
		return 1;
	cuCtxSynchronize();
	cuMemFree(handle->own);
	handle->magic = 0;
	free(handle);
	atomic_fetch_add(&standin_destroyed, 1);
	return 0;
}

static int standin_set(struct standin *handle, int index, uint64_t value)
{
	if (!standin_good(handle))
		return 1;
	if (atomic_load(&standin_refusing))
		return 7;
	handle->values[index] = value;
	if (index == 0)
		handle->workspace = handle->own;
	return 0;
}

void standin_counts(int *ret_created, int *ret_destroyed)
{
	*ret_created = standin_created;
	*ret_destroyed = standin_destroyed;
}

void standin_fail(int creations)
{
	standin_failing = creations;
}

void standin_refuse(int refuse)
{
	standin_refusing = refuse;
}

/* Something for the device that writes into the handle's workspace. */
int standin_work(struct standin *handle)
{
	return standin_good(handle)
		   ? (int)cuMemsetD8Async(handle->workspace, 1, STANDIN_BYTES,
					  (CUstream)handle->values[0])
		   : 1;
}

int standin_workspace_is_own(const struct standin *handle)
{
	return handle->workspace == handle->own;
}

#define STANDIN_HANDLE(create, destroy)                                                \
	STANDIN_API int create(struct standin **ret_handle);                           \
	STANDIN_API int destroy(struct standin *handle);                               \
	int create(struct standin **ret_handle)                                        \
	{                                                                              \
		return standin_create(ret_handle);                                     \
	}                                                                              \
	int destroy(struct standin *handle)                                            \
	{                                                                              \
		return standin_destroy(handle);                                        \
	}

#define STANDIN_SETTING(index, getter, setter, type)                                   \
	STANDIN_API int getter(struct standin *handle, type *ret_value);               \
	STANDIN_API int setter(struct standin *handle, type value);                    \
	int getter(struct standin *handle, type *ret_value)                            \
	{                                                                              \
		if (!standin_good(handle))                                             \
			return 1;                                                      \
		*ret_value = (type)handle->values[index];                              \
		return 0;                                                              \
	}                                                                              \
	int setter(struct standin *handle, type value)                                 \
	{                                                                              \
		return standin_set(handle, index, (uint64_t)value);                    \
	}

#endif
