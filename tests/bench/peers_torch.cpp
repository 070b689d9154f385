/* SPDX-License-Identifier: MIT */
/*
 * peers_torch.cpp - PyTorch's allocator of device memory for peers.cpp, called from
 * C++. Built against the headers of an installed PyTorch; needs no Python.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include "peers.h"

namespace allocator = c10::cuda::CUDACachingAllocator;

static const struct peers_cuda *cuda;

/* PyTorch's cudart may be the hooked one: its memory has to come from plain CUDA all
 * the same. This object comes before cudart where PyTorch looks for the symbols. */
extern "C" cudaError_t cudaMalloc(void **ret_ptr, size_t bytes)
{
	return (cudaError_t)cuda->alloc(ret_ptr, bytes);
}

extern "C" cudaError_t cudaFree(void *ptr)
{
	return (cudaError_t)cuda->free(ptr);
}

static int torch_alloc(void **ret_ptr, size_t bytes, void *stream)
{
	*ret_ptr = allocator::raw_alloc_with_stream(bytes, (cudaStream_t)stream);
	return *ret_ptr ? 0 : 2;
}

static int torch_free(void *ptr, size_t, void *)
{
	allocator::raw_delete(ptr);
	return 0;
}

static size_t torch_reserved()
{
	return (size_t)allocator::getDeviceStats(0).reserved_bytes[0].current;
}

static void torch_reset()
{
	allocator::emptyCache();
}

extern "C" const struct peer *peer_open(const struct peers_cuda *plain)
{
	static const struct peer peer = {"PyTorch CUDACachingAllocator", torch_alloc,
					 torch_free, torch_reserved, torch_reset};

	cuda = plain;
	allocator::init(1);
	return &peer;
}
