/* SPDX-License-Identifier: MIT */
/*
 * memory.c - what calls.list does not say of allocations, copies and IPC of the
 * simulated runtime. See cudart.h.
 */
#include <string.h>

#include "cudart.h"

/* --- allocate and free ------------------------------------------------------ */

cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned int flags)
{
	if (!p || !bytes)
		return cudart_keep(cudaErrorInvalidValue);
	CUDART_CALL(cuMemAllocManaged, (CUdeviceptr *)p, bytes, flags);
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

/* --- copy --------------------------------------------------------------------- */

#define COPY(name, suffix, parameters, ...)                                            \
	cudaError_t name(void *dst, const void *src, size_t bytes,                     \
			 enum cudaMemcpyKind kind parameters)                          \
	{                                                                              \
		CUdeviceptr to = cudart_address(dst), from = cudart_address(src);      \
                                                                                       \
		if (!bytes)                                                            \
			return cudart_keep(cudart_enter());                            \
		switch (kind) {                                                        \
		case cudaMemcpyHostToDevice:                                           \
			CUDART_CALL(cuMemcpyHtoD##suffix, to, src, __VA_ARGS__);       \
		case cudaMemcpyDeviceToHost:                                           \
			CUDART_CALL(cuMemcpyDtoH##suffix, dst, from, __VA_ARGS__);     \
		case cudaMemcpyDeviceToDevice:                                         \
			CUDART_CALL(cuMemcpyDtoD##suffix, to, from, __VA_ARGS__);      \
		case cudaMemcpyHostToHost:                                             \
		case cudaMemcpyDefault:                                                \
			CUDART_CALL(cuMemcpy##suffix, to, from, __VA_ARGS__);          \
		}                                                                      \
		return cudart_keep(cudaErrorInvalidMemcpyDirection);                   \
	}

#define NO_MORE
#define A_STREAM , cudaStream_t stream
COPY(cudaMemcpy, , NO_MORE, bytes)
COPY(cudaMemcpyAsync, Async, A_STREAM, bytes, stream)

/* --- IPC ------------------------------------------------------------------ */

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle,
				 unsigned int flags)
{
	CUipcMemHandle theirs;

	memcpy(&theirs, &handle, sizeof(theirs));
	CUDART_CALL(cuIpcOpenMemHandle, (CUdeviceptr *)p, theirs, flags);
}
