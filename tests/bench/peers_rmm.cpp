/* SPDX-License-Identifier: MIT */
/*
 * peers_rmm.cpp - RMM's pool over cudaMalloc for peers.cpp. Built against the headers
 * of an installed librmm, 26.06 or later.
 */
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <memory>

#include "peers.h"

static const size_t POOL_START = 64u << 20;

static std::unique_ptr<rmm::mr::pool_memory_resource> pool;

static cuda::stream_ref stream_of(void *stream)
{
	return cuda::stream_ref{(cudaStream_t)stream};
}

static int rmm_alloc(void **ret_ptr, size_t bytes, void *stream)
{
	*ret_ptr = pool->allocate(stream_of(stream), bytes, 256);
	return 0;
}

static int rmm_free(void *ptr, size_t bytes, void *stream)
{
	pool->deallocate(stream_of(stream), ptr, bytes, 256);
	return 0;
}

static size_t rmm_reserved()
{
	return pool->pool_size();
}

/* The pool never shrinks. */
static void rmm_reset()
{
	pool.reset();
	pool = std::make_unique<rmm::mr::pool_memory_resource>(
	    rmm::mr::cuda_memory_resource{}, POOL_START);
}

extern "C" const struct peer *peer_open(const struct peers_cuda *)
{
	static const struct peer peer = {"RMM pool", rmm_alloc, rmm_free, rmm_reserved,
					 rmm_reset};

	rmm_reset();
	return &peer;
}
