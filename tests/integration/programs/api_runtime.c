/* SPDX-License-Identifier: MIT */
/*
 * api_runtime.c - api.h upon the CUDA runtime: styles `static` and `shared`.
 */

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

CALL(gcpt_last_error, (void), cudaGetLastError())

int gcpt_use(int device)
{
	cudaError_t result = cudaSetDevice(device);

	if (!result)
		result = cudaFree(NULL); /* makes the context, on every version */
	gcpt_driver_open();
	return result;
}

CALL(gcpt_device_count, (int *ret_count), cudaGetDeviceCount(ret_count))

int gcpt_device_reset(int device)
{
	cudaError_t result = cudaSetDevice(device);

	return result ? result : cudaDeviceReset();
}

CALL(gcpt_sync, (void), cudaDeviceSynchronize())
CALL(gcpt_malloc, (void **ret_p, size_t bytes), cudaMalloc(ret_p, bytes))
CALL(gcpt_free, (void *p), cudaFree(p))
CALL(gcpt_malloc_pitch, (void **ret_p, size_t *ret_pitch, size_t width, size_t height),
     cudaMallocPitch(ret_p, ret_pitch, width, height))
CALL(gcpt_malloc_managed, (void **ret_p, size_t bytes),
     cudaMallocManaged(ret_p, bytes, cudaMemAttachGlobal))
CALL(gcpt_malloc_async, (void **ret_p, size_t bytes, CUstream stream),
     cudaMallocAsync(ret_p, bytes, stream))
CALL(gcpt_free_async, (void *p, CUstream stream), cudaFreeAsync(p, stream))
CALL(gcpt_malloc_host, (void **ret_p, size_t bytes), cudaMallocHost(ret_p, bytes))
CALL(gcpt_free_host, (void *p), cudaFreeHost(p))
CALL(gcpt_mem_info, (size_t * ret_free, size_t *ret_total),
     cudaMemGetInfo(ret_free, ret_total))

int gcpt_device_memory(int device, size_t *ret_total)
{
	struct cudaDeviceProp properties;
	cudaError_t result = cudaGetDeviceProperties(&properties, device);

	*ret_total = properties.totalGlobalMem;
	return result;
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

CALL(gcpt_copy, (void *dst, const void *src, size_t bytes),
     cudaMemcpy(dst, src, bytes, cudaMemcpyDefault))
CALL(gcpt_copy_async, (void *dst, const void *src, size_t bytes, CUstream stream),
     cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream))
CALL(gcpt_set_async, (void *p, int byte, size_t bytes, CUstream stream),
     cudaMemsetAsync(p, byte, bytes, stream))
CALL(gcpt_stream_create, (CUstream * ret_stream),
     cudaStreamCreateWithFlags(ret_stream, cudaStreamNonBlocking))
CALL(gcpt_stream_destroy, (CUstream stream), cudaStreamDestroy(stream))
CALL(gcpt_stream_sync, (CUstream stream), cudaStreamSynchronize(stream))
CALL(gcpt_capture_begin, (CUstream stream, CUstreamCaptureMode mode),
     cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode))
CALL(gcpt_capture_end, (CUstream stream, CUgraph *ret_graph),
     cudaStreamEndCapture(stream, ret_graph))
CALL(gcpt_instantiate, (CUgraphExec * ret_exec, CUgraph graph),
     cudaGraphInstantiateWithFlags(ret_exec, graph, 0))
CALL(gcpt_graph_launch, (CUgraphExec exec, CUstream stream),
     cudaGraphLaunch(exec, stream))

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

CALL(gcpt_ipc_close, (void *p), cudaIpcCloseMemHandle(p))
