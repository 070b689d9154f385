/* SPDX-License-Identifier: MIT */
/*
 * hooks_async.h - stream-ordered memory for callers that name a stream and want it from
 * the pool, whatever the program has set for cudaMallocAsync, and for a shared cudart.
 */
#ifndef GCP_INTERPOSE_HOOKS_ASYNC_H
#define GCP_INTERPOSE_HOOKS_ASYNC_H

#include <stdbool.h>

#include "../cuda/symbols.h"

/* Only while pooling. The context in which the memory belongs is current. While
 * `stream` captures it is the capture's, as that of cudaMalloc is. */
CUresult gcp_async_alloc_named(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream);

/* Frees a block of context `owner`. anywhere: it was used in other streams, too. */
CUresult gcp_async_free_named(CUdeviceptr ptr, CUstream stream, void *owner,
			      bool anywhere);

/* The short cuts of a thread that is sure (hooks_runtime.c). < 0: the real function is
 * needed. `stream` as gcp_stream_named gives it. */
int gcp_async_short_alloc(void **ret_ptr, size_t bytes, CUstream stream);
int gcp_async_short_free(void *ptr, CUstream stream);

#endif
