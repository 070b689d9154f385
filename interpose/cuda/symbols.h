/* SPDX-License-Identifier: MIT */
/*
 * symbols.h - the tables of the CUDA functions that this library hooks or calls, as
 * macros.
 *
 * Those of the driver are made of symbols.list when the build is configured. A row is
 *   X(name, base, version, twin, need)
 *     name     exported symbol, exactly as libcuda spells it
 *     base     what a program hands to cuGetProcAddress for it
 *     version  the CUDA version that makes cuGetProcAddress answer with it
 *     twin     1 for the per-thread default stream (name ends in _ptsz), or 0
 *     need     GCP_REQUIRED: without it the library passes everything through;
 *              GCP_OPTIONAL: the driver may be too old to have it
 * GCP_PARAMETERS_<name> and GCP_ARGUMENTS_<name> are in brackets.
 * GCP_DRIVER_HOOKS has all that are hooked, GCP_DRIVER_USED those that are only called.
 * GCP_HOOKS_BY_WORDS has a row X(name, table, stream) for each hook that gcp_words_hook
 * is; stream: which parameter it is, 11 for none.
 */
#ifndef GCP_INTERPOSE_SYMBOLS_H
#define GCP_INTERPOSE_SYMBOLS_H

#ifndef __ASSEMBLER__ /* exports_stubs.S wants the names alone */
#include <stddef.h>
#include <cuda.h>

/* What a recapture calls for parameters that differ; handed on as it is. */
typedef CUresult gcp_recapture_callback(void *);
#endif

#define GCP_REQUIRED 1
#define GCP_OPTIONAL 0

#include "symbols_table.h"

/* clang-format off */

/* The short cut for shared cudart. */

/* X(tag, symbol version, name, parameters, arguments); all return cudaError_t, an
 * int. These are exported only: programs that look them up get the real ones,
 * which come back through the driver's hooks. */
#define GCP_RUNTIME_HOOKS(X, tag, version)                                             \
	X(tag, version, cudaMalloc, (void **ret_ptr, size_t bytes), (ret_ptr, bytes))  \
	X(tag, version, cudaFree, (void *ptr), (ptr))                                  \
	X(tag, version, cudaSetDevice, (int device), (device))                         \
	X(tag, version, cudaMallocAsync,                                               \
	  (void **ret_ptr, size_t bytes, CUstream stream), (ret_ptr, bytes, stream))   \
	X(tag, version, cudaMallocAsync_ptsz,                                          \
	  (void **ret_ptr, size_t bytes, CUstream stream), (ret_ptr, bytes, stream))   \
	X(tag, version, cudaFreeAsync, (void *ptr, CUstream stream), (ptr, stream))    \
	X(tag, version, cudaFreeAsync_ptsz, (void *ptr, CUstream stream),              \
	  (ptr, stream))

/* V(tag, symbol version): a program linked with libcudart.so.13 binds
 * cudaMalloc@libcudart.so.13, so the version, which is also the name of the
 * library, tells which cudart the caller belongs to. References without a version
 * are left alone: they belong to a static cudart that some library exports. */
#define GCP_RUNTIMES(V)                                                                \
	V(cudart11, libcudart.so.11.0)                                               \
	V(cudart12, libcudart.so.12)                                                 \
	V(cudart13, libcudart.so.13)

/* clang-format on */

#endif
