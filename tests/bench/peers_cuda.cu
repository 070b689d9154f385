/* SPDX-License-Identifier: MIT */
/*
 * peers_cuda.cu - CUDA's own allocators, for peers.cpp, and the kernel that keeps the
 * device busy. See peers.h for why it is built twice.
 */
#include <cuda_runtime.h>

#include "peers.h"

/* About 10 us on a device that runs at 2 GHz. */
static const long long KERNEL_CYCLES = 20000;

static __global__ void kernel_busy(unsigned *words)
{
	long long end = clock64() + KERNEL_CYCLES;

	while (clock64() < end)
		;
	words[threadIdx.x] = threadIdx.x;
}

static int cuda_malloc(void **ret_ptr, size_t bytes)
{
	return cudaMalloc(ret_ptr, bytes);
}

static int cuda_free(void *ptr)
{
	return cudaFree(ptr);
}

static int cuda_stream_create(void **ret_stream)
{
	return cudaStreamCreateWithFlags((cudaStream_t *)ret_stream,
					 cudaStreamNonBlocking);
}

static int cuda_stream_destroy(void *stream)
{
	return cudaStreamDestroy((cudaStream_t)stream);
}

static int cuda_launch(void *ptr, void *stream)
{
	kernel_busy<<<1, 32, 0, (cudaStream_t)stream>>>((unsigned *)ptr);
	return cudaPeekAtLastError();
}

static int cuda_device_sync()
{
	return cudaDeviceSynchronize();
}

/* --- peers ----------------------------------------------------------------------- */

static cudaMemPool_t async_pool;

static int plain_alloc(void **ret_ptr, size_t bytes, void *)
{
	return cudaMalloc(ret_ptr, bytes);
}

static int plain_free(void *ptr, size_t, void *)
{
	return cudaFree(ptr);
}

static int async_alloc(void **ret_ptr, size_t bytes, void *stream)
{
	return cudaMallocAsync(ret_ptr, bytes, (cudaStream_t)stream);
}

static int async_free(void *ptr, size_t, void *stream)
{
	return cudaFreeAsync(ptr, (cudaStream_t)stream);
}

static size_t async_reserved()
{
	unsigned long long bytes = 0;

	cudaMemPoolGetAttribute(async_pool, cudaMemPoolAttrReservedMemCurrent, &bytes);
	return bytes;
}

static void async_reset()
{
	cudaMemPoolTrimTo(async_pool, 0);
}

static int cuda_start()
{
	unsigned long long keep = ~0ull;
	int result = cudaSetDevice(0);

	if (result == cudaSuccess)
		result = cudaDeviceGetDefaultMemPool(&async_pool, 0);
	if (result == cudaSuccess)
		result = cudaMemPoolSetAttribute(
		    async_pool, cudaMemPoolAttrReleaseThreshold, &keep);
	return result;
}

extern "C" const struct peers_cuda *peers_cuda(void)
{
	static const struct peers_cuda cuda = {
	    cuda_start,          cuda_malloc, cuda_free,        cuda_stream_create,
	    cuda_stream_destroy, cuda_launch, cuda_device_sync,
	};

	return &cuda;
}

extern "C" const struct peer *peers_of_cuda(void)
{
	static const struct peer peers[] = {
	    {"cudaMalloc", plain_alloc, plain_free, nullptr, nullptr},
	    {"cudaMallocAsync", async_alloc, async_free, async_reserved, async_reset},
	    {nullptr, nullptr, nullptr, nullptr, nullptr},
	};

	return peers;
}
