/* SPDX-License-Identifier: MIT */
/*
 * memory.c - allocations, copies and IPC of the simulated runtime. See cudart.h.
 */
#include <string.h>

#include "cudart.h"

/* --- allocate and free ------------------------------------------------------ */

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	if (!p)
		return cudart_keep(cudaErrorInvalidValue);
	if (!bytes) { /* good, and no memory: the driver would refuse it */
		*p = NULL;
		return cudart_keep(cudart_enter());
	}
	CUDART_CALL(cuMemAlloc, (CUdeviceptr *)p, bytes);
}

cudaError_t cudaFree(void *p)
{
	if (!p)
		return cudart_keep(cudart_enter());
	CUDART_CALL(cuMemFree, cudart_address(p));
}

cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)
{
	if (!p || !pitch)
		return cudart_keep(cudaErrorInvalidValue);
	if (!width || !height) {
		*p = NULL;
		*pitch = 0;
		return cudart_keep(cudart_enter());
	}
	CUDART_CALL(cuMemAllocPitch, (CUdeviceptr *)p, pitch, width, height, 4);
}

cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned int flags)
{
	if (!p || !bytes)
		return cudart_keep(cudaErrorInvalidValue);
	CUDART_CALL(cuMemAllocManaged, (CUdeviceptr *)p, bytes, flags);
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
	if (!p)
		return cudart_keep(cudaErrorInvalidValue);
	if (!bytes) {
		*p = NULL;
		return cudart_keep(cudart_enter());
	}
	CUDART_CALL(cuMemAllocAsync, (CUdeviceptr *)p, bytes, stream);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
	if (!p)
		return cudart_keep(cudart_enter());
	CUDART_CALL(cuMemFreeAsync, cudart_address(p), stream);
}

/* What programs with the per-thread default stream call: in no header but for them. */
cudaError_t cudaMallocAsync_ptsz(void **p, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *p, cudaStream_t stream);

cudaError_t cudaMallocAsync_ptsz(void **p, size_t bytes, cudaStream_t stream)
{
	return cudaMallocAsync(p, bytes, stream ? stream : cudaStreamPerThread);
}

cudaError_t cudaFreeAsync_ptsz(void *p, cudaStream_t stream)
{
	return cudaFreeAsync(p, stream ? stream : cudaStreamPerThread);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
	if (!p)
		return cudart_keep(cudaErrorInvalidValue);
	if (!bytes) {
		*p = NULL;
		return cudart_keep(cudart_enter());
	}
	CUDART_CALL(cuMemHostAlloc, p, bytes, 0);
}

cudaError_t cudaFreeHost(void *p)
{
	if (!p)
		return cudart_keep(cudart_enter());
	CUDART_CALL(cuMemFreeHost, p);
}

/* --- pointers ------------------------------------------------------------------ */

static enum cudaMemoryType type_of(unsigned kind, int managed)
{
	if (managed)
		return cudaMemoryTypeManaged;
	switch (kind) {
	case CU_MEMORYTYPE_HOST:
		return cudaMemoryTypeHost;
	case CU_MEMORYTYPE_DEVICE:
		return cudaMemoryTypeDevice;
	default:
		return cudaMemoryTypeUnregistered;
	}
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *p)
{
	CUpointer_attribute wanted[] = {
	    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
	    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	    CU_POINTER_ATTRIBUTE_HOST_POINTER,
	};
	unsigned kind = 0;
	int managed = 0, device = cudaInvalidDeviceId;
	void *on_device = NULL, *on_host = NULL;
	void *data[] = {&kind, &managed, &device, &on_device, &on_host};
	int result = cudart_enter();

	if (!ret)
		return cudart_keep(cudaErrorInvalidValue);
	if (!result)
		result = (int)cudart_cu.cuPointerGetAttributes(5, wanted, data,
							       cudart_address(p));
	if (result)
		return cudart_keep(result);
	memset(ret, 0, sizeof(*ret));
	ret->type = type_of(kind, managed);
	ret->device = device;
	ret->devicePointer = on_device;
	ret->hostPointer =
	    ret->type == cudaMemoryTypeUnregistered ? (void *)p : on_host;
	return cudaSuccess;
}

/* --- copy and set ---------------------------------------------------------------- */

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
		       enum cudaMemcpyKind kind)
{
	if (!bytes)
		return cudart_keep(cudart_enter());
	switch (kind) {
	case cudaMemcpyHostToDevice:
		CUDART_CALL(cuMemcpyHtoD, cudart_address(dst), src, bytes);
	case cudaMemcpyDeviceToHost:
		CUDART_CALL(cuMemcpyDtoH, dst, cudart_address(src), bytes);
	case cudaMemcpyDeviceToDevice:
		CUDART_CALL(cuMemcpyDtoD, cudart_address(dst), cudart_address(src),
			    bytes);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		CUDART_CALL(cuMemcpy, cudart_address(dst), cudart_address(src), bytes);
	}
	return cudart_keep(cudaErrorInvalidMemcpyDirection);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
			    enum cudaMemcpyKind kind, cudaStream_t stream)
{
	if (!bytes)
		return cudart_keep(cudart_enter());
	switch (kind) {
	case cudaMemcpyHostToDevice:
		CUDART_CALL(cuMemcpyHtoDAsync, cudart_address(dst), src, bytes, stream);
	case cudaMemcpyDeviceToHost:
		CUDART_CALL(cuMemcpyDtoHAsync, dst, cudart_address(src), bytes, stream);
	case cudaMemcpyDeviceToDevice:
		CUDART_CALL(cuMemcpyDtoDAsync, cudart_address(dst), cudart_address(src),
			    bytes, stream);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		CUDART_CALL(cuMemcpyAsync, cudart_address(dst), cudart_address(src),
			    bytes, stream);
	}
	return cudart_keep(cudaErrorInvalidMemcpyDirection);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	if (!bytes)
		return cudart_keep(cudart_enter());
	CUDART_CALL(cuMemsetD8, cudart_address(p), (unsigned char)value, bytes);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
	if (!bytes)
		return cudart_keep(cudart_enter());
	CUDART_CALL(cuMemsetD8Async, cudart_address(p), (unsigned char)value, bytes,
		    stream);
}

/* --- IPC ------------------------------------------------------------------ */

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle,
				 unsigned int flags)
{
	CUipcMemHandle theirs;

	memcpy(&theirs, &handle, sizeof(theirs));
	CUDART_CALL(cuIpcOpenMemHandle, (CUdeviceptr *)p, theirs, flags);
}
