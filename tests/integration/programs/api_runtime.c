/* SPDX-License-Identifier: MIT */
/*
 * api_runtime.c - api.h upon the CUDA runtime: styles `static` and `shared`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "api.h"

const char *gcpt_api_name(void)
{
	return "runtime";
}

const char *gcpt_error_name(int code)
{
	return cudaGetErrorName((cudaError_t)code);
}

int gcpt_last_error(void)
{
	return cudaGetLastError();
}

int gcpt_use(int device)
{
	cudaError_t result = cudaSetDevice(device);

	if (!result)
		result = cudaFree(NULL); /* makes the context, on every version */
	gcpt_driver_open();
	return result;
}

int gcpt_device_count(int *ret_count)
{
	return cudaGetDeviceCount(ret_count);
}

int gcpt_device_reset(int device)
{
	cudaError_t result = cudaSetDevice(device);

	return result ? result : cudaDeviceReset();
}

int gcpt_sync(void)
{
	return cudaDeviceSynchronize();
}

int gcpt_malloc(void **ret_p, size_t bytes)
{
	return cudaMalloc(ret_p, bytes);
}

int gcpt_free(void *p)
{
	return cudaFree(p);
}

int gcpt_malloc_pitch(void **ret_p, size_t *ret_pitch, size_t width, size_t height)
{
	return cudaMallocPitch(ret_p, ret_pitch, width, height);
}

int gcpt_malloc_managed(void **ret_p, size_t bytes)
{
	return cudaMallocManaged(ret_p, bytes, cudaMemAttachGlobal);
}

int gcpt_malloc_async(void **ret_p, size_t bytes, CUstream stream)
{
	return cudaMallocAsync(ret_p, bytes, stream);
}

int gcpt_free_async(void *p, CUstream stream)
{
	return cudaFreeAsync(p, stream);
}

int gcpt_malloc_host(void **ret_p, size_t bytes)
{
	return cudaMallocHost(ret_p, bytes);
}

int gcpt_free_host(void *p)
{
	return cudaFreeHost(p);
}

int gcpt_mem_info(size_t *ret_free, size_t *ret_total)
{
	return cudaMemGetInfo(ret_free, ret_total);
}

int gcpt_async_keep(int device)
{
	unsigned long long all = ~0ull;
	cudaMemPool_t pool;
	cudaError_t result = cudaDeviceGetDefaultMemPool(&pool, device);

	return result ? result
		      : cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
						&all);
}

int gcpt_copy(void *dst, const void *src, size_t bytes)
{
	return cudaMemcpy(dst, src, bytes, cudaMemcpyDefault);
}

int gcpt_copy_async(void *dst, const void *src, size_t bytes, CUstream stream)
{
	return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
}

int gcpt_set_async(void *p, int byte, size_t bytes, CUstream stream)
{
	return cudaMemsetAsync(p, byte, bytes, stream);
}

int gcpt_stream_create(CUstream *ret_stream)
{
	return cudaStreamCreateWithFlags(ret_stream, cudaStreamNonBlocking);
}

int gcpt_stream_destroy(CUstream stream)
{
	return cudaStreamDestroy(stream);
}

int gcpt_stream_sync(CUstream stream)
{
	return cudaStreamSynchronize(stream);
}

int gcpt_capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
	return cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode);
}

int gcpt_capture_end(CUstream stream, CUgraph *ret_graph)
{
	return cudaStreamEndCapture(stream, ret_graph);
}

int gcpt_instantiate(CUgraphExec *ret_exec, CUgraph graph)
{
	return cudaGraphInstantiateWithFlags(ret_exec, graph, 0);
}

int gcpt_graph_launch(CUgraphExec exec, CUstream stream)
{
	return cudaGraphLaunch(exec, stream);
}

int gcpt_ipc_get(struct gcpt_ipc *ret_handle, void *p)
{
	cudaIpcMemHandle_t handle;
	cudaError_t result = cudaIpcGetMemHandle(&handle, p);

	memcpy(ret_handle, &handle, sizeof(handle));
	return result;
}

int gcpt_ipc_open(void **ret_p, const struct gcpt_ipc *handle)
{
	cudaIpcMemHandle_t theirs;

	memcpy(&theirs, handle, sizeof(theirs));
	return cudaIpcOpenMemHandle(ret_p, theirs, cudaIpcMemLazyEnablePeerAccess);
}

int gcpt_ipc_close(void *p)
{
	return cudaIpcCloseMemHandle(p);
}

void gcpt_demand(int code, const char *call, const char *file, int line)
{
	if (!code)
		return;
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, call, code,
		gcpt_error_name(code));
	exit(2);
}
