/* SPDX-License-Identifier: MIT */
/*
 * core.c - finds the driver, keeps contexts and last errors. See cudart.h.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "cudart.h"

enum { DEVICES_MAX = 64 };

struct cudart_driver cudart_cu;

/* Per device, under `lock`: whether its primary context is retained by us, and
 * how often it has been reset. */
static struct {
	bool retained;
	CUcontext context;
	_Atomic unsigned generation;
} devices[DEVICES_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t open_result;

/* Per thread. */
static _Thread_local int device;
static _Thread_local cudaError_t last_error;
static _Thread_local CUcontext bound; /* what we made current, if we did */
static _Thread_local int bound_device;
static _Thread_local unsigned bound_generation; /* of bound_device, when bound */

typedef typeof(cuGetProcAddress) look_up_fn;

static void look_up_all(look_up_fn *look_up)
{
	void *p = NULL;

	/* As NVIDIA's: first the empty name, and both forms of the lookup. */
	look_up("", &p, 0, 0, NULL);
	look_up("cuGetProcAddress", &p, 11030, 0, NULL);
#define CUDART_X(name, version)                                                        \
	p = NULL;                                                                      \
	if (!look_up(#name, &p, version, 0, NULL) && p)                                \
		cudart_cu.name = (typeof(name) *)p;
	CUDART_CALLS(CUDART_X)
#undef CUDART_X
}

static void open_once(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	look_up_fn *look_up = NULL;

	if (library)
		look_up = (look_up_fn *)dlsym(library, "cuGetProcAddress_v2");
	if (!look_up) {
		open_result = cudaErrorInsufficientDriver;
		return;
	}
	look_up_all(look_up);
	open_result = cudart_cu.cuInit ? (cudaError_t)cudart_cu.cuInit(0)
				       : cudaErrorInsufficientDriver;
}

cudaError_t cudart_open(void)
{
	pthread_once(&once, open_once);
	return open_result;
}

/* Makes the primary context of the thread's device current. */
static cudaError_t bind_primary(void)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (!devices[device].retained) {
		result = cudart_cu.cuDevicePrimaryCtxRetain(&devices[device].context,
							    device);
		devices[device].retained = !result;
	}
	if (!result) {
		bound = devices[device].context;
		bound_device = device;
		bound_generation = devices[device].generation;
		result = cudart_cu.cuCtxSetCurrent(bound);
	}
	pthread_mutex_unlock(&lock);
	return (cudaError_t)result;
}

cudaError_t cudart_enter(void)
{
	cudaError_t result = cudart_open();
	CUcontext current = NULL;

	if (result)
		return result;
	result = (cudaError_t)cudart_cu.cuCtxGetCurrent(&current);
	if (result)
		return result;
	if (!current)
		return bind_primary();
	/* Ours, but the device was reset meanwhile by another thread. */
	if (current == bound && bound_generation != devices[bound_device].generation)
		return bind_primary();
	return cudaSuccess; /* ours, or the program's own: either is right */
}

cudaError_t cudart_device_set(int wanted)
{
	cudaError_t result = cudart_open();
	int count = 0;

	if (result)
		return result;
	result = (cudaError_t)cudart_cu.cuDeviceGetCount(&count);
	if (result)
		return result;
	if (wanted < 0 || wanted >= count || wanted >= DEVICES_MAX)
		return cudaErrorInvalidDevice;
	device = wanted;
	return bind_primary(); /* since CUDA 12 this makes the context */
}

cudaError_t cudart_device_reset(void)
{
	cudaError_t result = cudart_open();

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	result = (cudaError_t)cudart_cu.cuDevicePrimaryCtxReset(device);
	devices[device].retained = false;
	devices[device].generation++;
	if (bound && bound_device == device) {
		cudart_cu.cuCtxSetCurrent(NULL);
		bound = NULL;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

cudaError_t cudart_keep(int error)
{
	if (error && error != cudaErrorNotReady)
		last_error = (cudaError_t)error;
	return (cudaError_t)error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}
