/* SPDX-License-Identifier: MIT */
/*
 * api_driver.c - api.h upon the CUDA driver: styles `linked` and `dlsym`.
 *
 * Works in the primary contexts, as the runtime does.
 */

#include "api.h"

enum { DEVICES_MAX = 64 };

static CUcontext primary[DEVICES_MAX]; /* retained once; main thread fills first */

static CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

const char *gcpt_api_name(void)
{
	return "driver";
}

const char *gcpt_error_name(int code)
{
	const char *name = NULL;

	if (cu.cuGetErrorName)
		cu.cuGetErrorName((CUresult)code, &name);
	return name ? name : "?";
}

CALL(gcpt_last_error, (void), 0)

int gcpt_use(int device)
{
	CUresult result;

	gcpt_driver_open();
	if (device < 0 || device >= DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primary[device]) {
		result = cu.cuDevicePrimaryCtxRetain(&primary[device], device);
		if (result)
			return result;
	}
	return cu.cuCtxSetCurrent(primary[device]);
}

int gcpt_device_count(int *ret_count)
{
	gcpt_driver_open();
	return cu.cuDeviceGetCount(ret_count);
}

int gcpt_device_reset(int device)
{
	primary[device] = NULL;
	return cu.cuDevicePrimaryCtxReset(device);
}

CALL(gcpt_sync, (void), cu.cuCtxSynchronize())
CALL(gcpt_malloc, (void **ret_p, size_t bytes),
     cu.cuMemAlloc((CUdeviceptr *)ret_p, bytes))
CALL(gcpt_free, (void *p), cu.cuMemFree(address(p)))
CALL(gcpt_malloc_pitch, (void **ret_p, size_t *ret_pitch, size_t width, size_t height),
     cu.cuMemAllocPitch((CUdeviceptr *)ret_p, ret_pitch, width, height, 4))
CALL(gcpt_malloc_managed, (void **ret_p, size_t bytes),
     cu.cuMemAllocManaged((CUdeviceptr *)ret_p, bytes, CU_MEM_ATTACH_GLOBAL))
CALL(gcpt_malloc_async, (void **ret_p, size_t bytes, CUstream stream),
     cu.cuMemAllocAsync((CUdeviceptr *)ret_p, bytes, stream))
CALL(gcpt_free_async, (void *p, CUstream stream), cu.cuMemFreeAsync(address(p), stream))
CALL(gcpt_malloc_host, (void **ret_p, size_t bytes), cu.cuMemAllocHost(ret_p, bytes))
CALL(gcpt_free_host, (void *p), cu.cuMemFreeHost(p))
CALL(gcpt_mem_info, (size_t * ret_free, size_t *ret_total),
     cu.cuMemGetInfo(ret_free, ret_total))
CALL(gcpt_device_memory, (int device, size_t *ret_total),
     cu.cuDeviceTotalMem(ret_total, device))

int gcpt_async_keep(int device)
{
	cuuint64_t all = ~(cuuint64_t)0;
	CUmemoryPool pool;
	CUresult result = cu.cuDeviceGetDefaultMemPool(&pool, device);

	return result ? result
		      : cu.cuMemPoolSetAttribute(
			    pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
}

CALL(gcpt_copy, (void *dst, const void *src, size_t bytes),
     cu.cuMemcpy(address(dst), address(src), bytes))
CALL(gcpt_copy_async, (void *dst, const void *src, size_t bytes, CUstream stream),
     cu.cuMemcpyAsync(address(dst), address(src), bytes, stream))
CALL(gcpt_set_async, (void *p, int byte, size_t bytes, CUstream stream),
     cu.cuMemsetD8Async(address(p), (unsigned char)byte, bytes, stream))
CALL(gcpt_stream_create, (CUstream * ret_stream),
     cu.cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING))
CALL(gcpt_stream_destroy, (CUstream stream), cu.cuStreamDestroy(stream))
CALL(gcpt_stream_sync, (CUstream stream), cu.cuStreamSynchronize(stream))
CALL(gcpt_capture_begin, (CUstream stream, CUstreamCaptureMode mode),
     cu.cuStreamBeginCapture(stream, mode))
CALL(gcpt_capture_end, (CUstream stream, CUgraph *ret_graph),
     cu.cuStreamEndCapture(stream, ret_graph))
CALL(gcpt_instantiate, (CUgraphExec * ret_exec, CUgraph graph),
     cu.cuGraphInstantiateWithFlags(ret_exec, graph, 0))
CALL(gcpt_graph_launch, (CUgraphExec exec, CUstream stream),
     cu.cuGraphLaunch(exec, stream))

int gcpt_ipc_get(struct gcpt_ipc *ret_handle, void *p)
{
	CUipcMemHandle handle;
	CUresult result = cu.cuIpcGetMemHandle(&handle, address(p));

	memcpy(ret_handle, &handle, sizeof(handle));
	return result;
}

int gcpt_ipc_open(void **ret_p, const struct gcpt_ipc *handle)
{
	CUipcMemHandle theirs;

	memcpy(&theirs, handle, sizeof(theirs));
	return cu.cuIpcOpenMemHandle((CUdeviceptr *)ret_p, theirs,
				     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

CALL(gcpt_ipc_close, (void *p), cu.cuIpcCloseMemHandle(address(p)))
