/* SPDX-License-Identifier: MIT */
/*
 * symbols.h - the one table of the CUDA symbols that this library hooks, and
 * the table of those that it only calls.
 *
 * Prototypes of hooks, slots of real functions, look-ups by name and by
 * pointer, exports, and the export test are all expansions of these tables:
 * a symbol is hooked by adding its row here and writing gcp_hook_<name>.
 *
 * A row of the driver tables:
 *   X(name, base, version, flags, need, parameters, arguments)
 *     name     exported symbol, exactly as libcuda spells it
 *     base     what a program hands to cuGetProcAddress for it
 *     version  the CUDA version that makes cuGetProcAddress answer with it
 *     flags    0, or 2 for the per-thread default stream (name ends in _ptsz)
 *     need     GCP_REQUIRED: without it the library passes everything through;
 *              GCP_OPTIONAL: the driver may be too old to have it
 * All return CUresult. Types that only newer cuda.h declare are spelled as
 * struct pointers, so that older headers do as well.
 *
 * Never add cuMemAlloc, cuMemFree and their like without _v2: those are the
 * 32-bit forms of CUDA 2 with other parameters.
 */
#ifndef GCP_INTERPOSE_SYMBOLS_H
#define GCP_INTERPOSE_SYMBOLS_H

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <cuda.h>
#endif

/* cuda.h renames the old spellings to the newest versions; the table means
 * exactly what it says. */
#undef cuMemHostRegister
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies
#undef cuGraphAddDependencies
#undef cuGraphNodeGetDependencies
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuIpcOpenMemHandle
#undef cuGetProcAddress
#undef cuGetProcAddress_v2

#define GCP_REQUIRED 1
#define GCP_OPTIONAL 0

#include "symbols_graph.h"
#include "symbols_submit.h"

#ifndef __ASSEMBLER__ /* exports_stubs.S wants the names alone */
/* What a recapture calls for parameters that differ; handed on as it is. */
typedef CUresult gcp_recapture_callback(void *);
#endif

/* clang-format off */

/* --- hooked ---------------------------------------------------------------- */

#define GCP_HOOKS_LOOKUP(X)                                                            \
	X(cuGetProcAddress, cuGetProcAddress, 11030, 0, GCP_OPTIONAL,                  \
	  (const char *symbol, void **ret_fn, int version, cuuint64_t flags),          \
	  (symbol, ret_fn, version, flags))                                            \
	X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0, GCP_REQUIRED,               \
	  (const char *symbol, void **ret_fn, int version, cuuint64_t flags,           \
	   int *ret_status),                                                           \
	  (symbol, ret_fn, version, flags, ret_status))

#define GCP_HOOKS_MEMORY(X)                                                            \
	X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, GCP_REQUIRED,                            \
	  (CUdeviceptr *ret_ptr, size_t bytes), (ret_ptr, bytes))                      \
	X(cuMemFree_v2, cuMemFree, 3020, 0, GCP_REQUIRED, (CUdeviceptr ptr), (ptr))    \
	X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0, GCP_REQUIRED,                  \
	  (CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t width, size_t height,       \
	   unsigned int element),                                                      \
	  (ret_ptr, ret_pitch, width, height, element))                                \
	X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, GCP_REQUIRED,                        \
	  (size_t *ret_free, size_t *ret_total), (ret_free, ret_total))                \
	X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0, GCP_REQUIRED,                \
	  (size_t *ret_bytes, CUdevice device), (ret_bytes, device))

/* Creators of memory that pass through, and are made again while some may come back. */
#define GCP_HOOKS_CREATORS(X)                                                          \
	X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, GCP_OPTIONAL,                 \
	  (CUdeviceptr *ret_ptr, size_t bytes, unsigned int flags),                    \
	  (ret_ptr, bytes, flags))                                                     \
	X(cuMemCreate, cuMemCreate, 10020, 0, GCP_REQUIRED,                            \
	  (CUmemGenericAllocationHandle *ret_handle, size_t bytes,                     \
	   const CUmemAllocationProp *properties, unsigned long long flags),           \
	  (ret_handle, bytes, properties, flags))                                      \
	X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, GCP_OPTIONAL,                      \
	  (CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *descriptor),               \
	  (ret_array, descriptor))                                                     \
	X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, GCP_OPTIONAL,                  \
	  (CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor),             \
	  (ret_array, descriptor))                                                     \
	X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0, GCP_OPTIONAL,       \
	  (CUmipmappedArray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,     \
	   unsigned int levels),                                                       \
	  (ret_array, descriptor, levels))

/* Calls that give such memory back. */
#define GCP_HOOKS_DESTROYERS(X)                                                        \
	X(cuMemRelease, cuMemRelease, 10020, 0, GCP_REQUIRED,                          \
	  (CUmemGenericAllocationHandle handle), (handle))                             \
	X(cuArrayDestroy, cuArrayDestroy, 2000, 0, GCP_OPTIONAL, (CUarray array),      \
	  (array))                                                                     \
	X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, GCP_OPTIONAL,     \
	  (CUmipmappedArray array), (array))

/* Functions that make something for which the driver may take memory of the device, by
 * themselves or because they load code that was left for later. They are hooked to be
 * made again alone (hooks_memory.c); so are those that make contexts
 * (GCP_HOOKS_CONTEXTS) and executables (symbols_graph.h), and launches. */
#define GCP_HOOKS_CODE(X)                                                              \
	X(cuModuleLoad, cuModuleLoad, 2000, 0, GCP_OPTIONAL,                           \
	  (CUmodule *ret_module, const char *file), (ret_module, file))                \
	X(cuModuleLoadData, cuModuleLoadData, 2000, 0, GCP_OPTIONAL,                   \
	  (CUmodule *ret_module, const void *image), (ret_module, image))              \
	X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0, GCP_OPTIONAL,               \
	  (CUmodule *ret_module, const void *image, unsigned int count,                \
	   CUjit_option *options, void **values),                                      \
	  (ret_module, image, count, options, values))                                 \
	X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0, GCP_OPTIONAL,         \
	  (CUmodule *ret_module, const void *image), (ret_module, image))              \
	X(cuModuleGetFunction, cuModuleGetFunction, 2000, 0, GCP_OPTIONAL,             \
	  (CUfunction *ret_function, CUmodule module, const char *name),               \
	  (ret_function, module, name))                                                \
	X(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, 0, GCP_OPTIONAL,              \
	  (CUdeviceptr *ret_ptr, size_t *ret_bytes, CUmodule module, const char *name), \
	  (ret_ptr, ret_bytes, module, name))                                          \
	X(cuLibraryLoadData, cuLibraryLoadData, 12000, 0, GCP_OPTIONAL,                \
	  (CUlibrary *ret_library, const void *image, CUjit_option *options,           \
	   void **values, unsigned int count, CUlibraryOption *library_options,        \
	   void **library_values, unsigned int library_count),                         \
	  (ret_library, image, options, values, count, library_options,                \
	   library_values, library_count))                                             \
	X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, 0, GCP_OPTIONAL,        \
	  (CUlibrary *ret_library, const char *file, CUjit_option *options,            \
	   void **values, unsigned int count, CUlibraryOption *library_options,        \
	   void **library_values, unsigned int library_count),                         \
	  (ret_library, file, options, values, count, library_options,                 \
	   library_values, library_count))                                             \
	X(cuLibraryGetModule, cuLibraryGetModule, 12000, 0, GCP_OPTIONAL,              \
	  (CUmodule *ret_module, CUlibrary library), (ret_module, library))            \
	X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, 0, GCP_OPTIONAL,              \
	  (CUdeviceptr *ret_ptr, size_t *ret_bytes, CUlibrary library,                 \
	   const char *name),                                                          \
	  (ret_ptr, ret_bytes, library, name))                                         \
	X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, 0, GCP_OPTIONAL,            \
	  (CUdeviceptr *ret_ptr, size_t *ret_bytes, CUlibrary library,                 \
	   const char *name),                                                          \
	  (ret_ptr, ret_bytes, library, name))                                         \
	X(cuLibraryGetUnifiedFunction, cuLibraryGetUnifiedFunction, 12000, 0,          \
	  GCP_OPTIONAL, (void **ret_function, CUlibrary library, const char *name),    \
	  (ret_function, library, name))                                               \
	X(cuKernelGetFunction, cuKernelGetFunction, 12000, 0, GCP_OPTIONAL,            \
	  (CUfunction *ret_function, CUkernel kernel), (ret_function, kernel))         \
	X(cuKernelGetAttribute, cuKernelGetAttribute, 12000, 0, GCP_OPTIONAL,          \
	  (int *ret_value, CUfunction_attribute attribute, CUkernel kernel,            \
	   CUdevice device),                                                           \
	  (ret_value, attribute, kernel, device))                                      \
	X(cuKernelSetAttribute, cuKernelSetAttribute, 12000, 0, GCP_OPTIONAL,          \
	  (CUfunction_attribute attribute, int value, CUkernel kernel,                 \
	   CUdevice device),                                                           \
	  (attribute, value, kernel, device))                                          \
	X(cuFuncLoad, cuFuncLoad, 12040, 0, GCP_OPTIONAL, (CUfunction function),       \
	  (function))                                                                  \
	X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, 0, GCP_OPTIONAL,               \
	  (int *ret_value, CUfunction_attribute attribute, CUfunction function),       \
	  (ret_value, attribute, function))                                            \
	X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, 0, GCP_OPTIONAL,               \
	  (CUfunction function, CUfunction_attribute attribute, int value),            \
	  (function, attribute, value))                                                \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                 \
	  cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, 0, GCP_OPTIONAL,          \
	  (int *ret_blocks, CUfunction function, int block_threads,                    \
	   size_t shared_bytes),                                                       \
	  (ret_blocks, function, block_threads, shared_bytes))                         \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,                        \
	  cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, 0, GCP_OPTIONAL, \
	  (int *ret_blocks, CUfunction function, int block_threads,                    \
	   size_t shared_bytes, unsigned int flags),                                   \
	  (ret_blocks, function, block_threads, shared_bytes, flags))

#define GCP_HOOKS_MAKERS(X)                                                            \
	X(cuStreamCreate, cuStreamCreate, 2000, 0, GCP_REQUIRED,                       \
	  (CUstream *ret_stream, unsigned int flags), (ret_stream, flags))             \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,             \
	  GCP_OPTIONAL, (CUstream *ret_stream, unsigned int flags, int priority),      \
	  (ret_stream, flags, priority))                                               \
	X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, 0, GCP_OPTIONAL,      \
	  (CUstream *ret_stream, struct CUgreenCtx_st * green, unsigned int flags,     \
	   int priority),                                                              \
	  (ret_stream, green, flags, priority))                                        \
	X(cuEventCreate, cuEventCreate, 2000, 0, GCP_REQUIRED,                         \
	  (CUevent *ret_event, unsigned int flags), (ret_event, flags))                \
	X(cuCtxSetLimit, cuCtxSetLimit, 3010, 0, GCP_OPTIONAL,                         \
	  (CUlimit limit, size_t value), (limit, value))                               \
	X(cuTexObjectCreate, cuTexObjectCreate, 5000, 0, GCP_OPTIONAL,                 \
	  (CUtexObject *ret_texture, const CUDA_RESOURCE_DESC *resource,               \
	   const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view),     \
	  (ret_texture, resource, texture, view))                                      \
	X(cuSurfObjectCreate, cuSurfObjectCreate, 5000, 0, GCP_OPTIONAL,               \
	  (CUsurfObject *ret_surface, const CUDA_RESOURCE_DESC *resource),             \
	  (ret_surface, resource))                                                     \
	X(cuGraphUpload, cuGraphUpload, 11010, 0, GCP_OPTIONAL,                        \
	  (CUgraphExec exec, CUstream stream), (exec, stream))                         \
	X(cuGraphUpload_ptsz, cuGraphUpload, 11010, 2, GCP_OPTIONAL,                   \
	  (CUgraphExec exec, CUstream stream), (exec, stream))

/* Memory that the program maps itself. */
#define GCP_HOOKS_MAPPINGS(X)                                                          \
	X(cuMemMap, cuMemMap, 10020, 0, GCP_REQUIRED,                                  \
	  (CUdeviceptr ptr, size_t bytes, size_t offset,                               \
	   CUmemGenericAllocationHandle handle, unsigned long long flags),             \
	  (ptr, bytes, offset, handle, flags))                                         \
	X(cuMemSetAccess, cuMemSetAccess, 10020, 0, GCP_REQUIRED,                      \
	  (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t count), \
	  (ptr, bytes, access, count))                                                 \
	X(cuMemUnmap, cuMemUnmap, 10020, 0, GCP_REQUIRED,                              \
	  (CUdeviceptr ptr, size_t bytes), (ptr, bytes))                               \
	X(cuMemAddressFree, cuMemAddressFree, 10020, 0, GCP_REQUIRED,                  \
	  (CUdeviceptr ptr, size_t bytes), (ptr, bytes))

/* Stream-ordered memory, and what programs set and ask of CUDA's pools of it. */
#define GCP_HOOKS_ASYNC_ALLOCS(X)                                                      \
	GCP_TWINS(X, cuMemAllocAsync, cuMemAllocAsync, 11020, 11020, _ptsz,            \
	  (CUdeviceptr *ret_ptr, size_t bytes, CUstream stream),                       \
	  (ret_ptr, bytes, stream))
#define GCP_HOOKS_ASYNC_ALLOCS_FROM_POOLS(X)                                           \
	GCP_TWINS(X, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 11020,   \
	  _ptsz,                                                                       \
	  (CUdeviceptr *ret_ptr, size_t bytes, CUmemoryPool pool, CUstream stream),    \
	  (ret_ptr, bytes, pool, stream))
#define GCP_HOOKS_ASYNC_FREES(X)                                                       \
	X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, GCP_REQUIRED,                      \
	  (CUdeviceptr ptr, CUstream stream), (ptr, stream))                           \
	X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 2, GCP_OPTIONAL,                 \
	  (CUdeviceptr ptr, CUstream stream), (ptr, stream))
#define GCP_HOOKS_ASYNC(X)                                                             \
	GCP_HOOKS_ASYNC_ALLOCS(X)                                                      \
	GCP_HOOKS_ASYNC_ALLOCS_FROM_POOLS(X)                                           \
	GCP_HOOKS_ASYNC_FREES(X)                                                       \
	X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, GCP_OPTIONAL,              \
	  (CUdevice device, CUmemoryPool pool), (device, pool))                        \
	X(cuMemSetMemPool, cuMemSetMemPool, 13000, 0, GCP_OPTIONAL,                    \
	  (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),     \
	  (location, type, pool))                                                      \
	X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, GCP_OPTIONAL,                  \
	  (CUmemoryPool pool), (pool))                                                 \
	X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, 0, GCP_OPTIONAL,              \
	  (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count),            \
	  (pool, access, count))                                                       \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, GCP_REQUIRED,        \
	  (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),             \
	  (pool, attribute, value))                                                    \
	X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0, GCP_REQUIRED,        \
	  (CUmemoryPool pool, CUmemPool_attribute attribute, void *ret_value),         \
	  (pool, attribute, ret_value))                                                \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, GCP_REQUIRED,                    \
	  (CUmemoryPool pool, size_t keep_bytes), (pool, keep_bytes))

/* Pinned host memory. */
#define GCP_HOOKS_HOST(X)                                                              \
	X(cuMemHostAlloc, cuMemHostAlloc, 2020, 0, GCP_REQUIRED,                       \
	  (void **ret_ptr, size_t bytes, unsigned int flags), (ret_ptr, bytes, flags)) \
	X(cuMemAllocHost_v2, cuMemAllocHost, 3020, 0, GCP_OPTIONAL,                    \
	  (void **ret_ptr, size_t bytes), (ret_ptr, bytes))                            \
	X(cuMemFreeHost, cuMemFreeHost, 2000, 0, GCP_REQUIRED, (void *ptr), (ptr))     \
	X(cuMemHostRegister, cuMemHostRegister, 4000, 0, GCP_OPTIONAL,                 \
	  (void *ptr, size_t bytes, unsigned int flags), (ptr, bytes, flags))          \
	X(cuMemHostRegister_v2, cuMemHostRegister, 6050, 0, GCP_REQUIRED,              \
	  (void *ptr, size_t bytes, unsigned int flags), (ptr, bytes, flags))

#define GCP_HOOKS_RANGES(X)                                                            \
	X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, 0,            \
	  GCP_OPTIONAL, (CUdeviceptr *ret_ptr, void *ptr, unsigned int flags),         \
	  (ret_ptr, ptr, flags))                                                       \
	X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, 0, GCP_OPTIONAL,                 \
	  (unsigned int *ret_flags, void *ptr), (ret_flags, ptr))                      \
	X(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, GCP_OPTIONAL,             \
	  (void *ptr), (ptr))                                                          \
	X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, 0, GCP_OPTIONAL,        \
	  (CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr ptr),                 \
	  (ret_base, ret_bytes, ptr))                                                  \
	X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0, GCP_REQUIRED,         \
	  (void *ret_value, CUpointer_attribute attribute, CUdeviceptr ptr),           \
	  (ret_value, attribute, ptr))                                                 \
	X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0, GCP_REQUIRED,       \
	  (unsigned int count, CUpointer_attribute *attributes, void **values,         \
	   CUdeviceptr ptr),                                                           \
	  (count, attributes, values, ptr))                                            \
	X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, 0, GCP_OPTIONAL,         \
	  (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),         \
	  (value, attribute, ptr))                                                     \
	X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, 0,      \
	  GCP_OPTIONAL,                                                                \
	  (void *ret_handle, CUdeviceptr ptr, size_t bytes, int type,                  \
	   unsigned long long flags),                                                  \
	  (ret_handle, ptr, bytes, type, flags))                                       \
	X(cuMemGetAccess, cuMemGetAccess, 10020, 0, GCP_OPTIONAL,                      \
	  (unsigned long long *ret_flags, const CUmemLocation *location,               \
	   CUdeviceptr ptr),                                                           \
	  (ret_flags, location, ptr))                                                  \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0,          \
	  GCP_OPTIONAL, (CUmemGenericAllocationHandle *ret_handle, void *ptr),         \
	  (ret_handle, ptr))

#define GCP_HOOKS_IPC(X)                                                               \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, GCP_OPTIONAL,                 \
	  (CUipcMemHandle *ret_handle, CUdeviceptr ptr), (ret_handle, ptr))            \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, 0, GCP_OPTIONAL,               \
	  (CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned int flags),           \
	  (ret_ptr, handle, flags))                                                    \
	X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0, GCP_OPTIONAL,           \
	  (CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned int flags),           \
	  (ret_ptr, handle, flags))                                                    \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0, GCP_OPTIONAL,             \
	  (CUdeviceptr ptr), (ptr))

/* Contexts: hooks_context.c. */
#define GCP_VERSIONS(X, name, since, since_v2, need_v2, parameters, arguments)         \
	X(name, name, since, 0, GCP_OPTIONAL, parameters, arguments)                   \
	X(name##_v2, name, since_v2, 0, need_v2, parameters, arguments)
#define GCP_HOOKS_CONTEXTS_CREATED(X)                                                  \
	GCP_VERSIONS(X, cuCtxCreate, 2000, 3020, GCP_OPTIONAL,                         \
	  (CUcontext *ret_ctx, unsigned int flags, CUdevice device),                   \
	  (ret_ctx, flags, device))                                                    \
	X(cuCtxCreate_v3, cuCtxCreate, 11040, 0, GCP_OPTIONAL,                         \
	  (CUcontext *ret_ctx, struct CUexecAffinityParam_st * params, int count,      \
	   unsigned int flags, CUdevice device),                                       \
	  (ret_ctx, params, count, flags, device))                                     \
	X(cuCtxCreate_v4, cuCtxCreate, 12050, 0, GCP_OPTIONAL,                         \
	  (CUcontext *ret_ctx, struct CUctxCreateParams_st * params,                   \
	   unsigned int flags, CUdevice device),                                       \
	  (ret_ctx, params, flags, device))
#define GCP_HOOKS_CONTEXTS_DESTROYED(X)                                                \
	GCP_VERSIONS(X, cuCtxDestroy, 2000, 4000, GCP_OPTIONAL, (CUcontext ctx), (ctx))
#define GCP_HOOKS_CONTEXTS_PUSHED(X)                                                   \
	GCP_VERSIONS(X, cuCtxPushCurrent, 2000, 4000, GCP_REQUIRED, (CUcontext ctx),   \
	  (ctx))
#define GCP_HOOKS_CONTEXTS_POPPED(X)                                                   \
	GCP_VERSIONS(X, cuCtxPopCurrent, 2000, 4000, GCP_REQUIRED,                     \
	  (CUcontext *ret_ctx), (ret_ctx))
#define GCP_HOOKS_PRIMARIES_RELEASED(X)                                                \
	GCP_VERSIONS(X, cuDevicePrimaryCtxRelease, 7000, 11000, GCP_REQUIRED,          \
	  (CUdevice device), (device))
#define GCP_HOOKS_PRIMARIES_RESET(X)                                                   \
	GCP_VERSIONS(X, cuDevicePrimaryCtxReset, 7000, 11000, GCP_OPTIONAL,            \
	  (CUdevice device), (device))
#define GCP_HOOKS_CONTEXTS(X)                                                          \
	GCP_HOOKS_CONTEXTS_CREATED(X)                                                  \
	GCP_HOOKS_CONTEXTS_DESTROYED(X)                                                \
	GCP_HOOKS_CONTEXTS_PUSHED(X)                                                   \
	GCP_HOOKS_CONTEXTS_POPPED(X)                                                   \
	GCP_HOOKS_PRIMARIES_RELEASED(X)                                                \
	GCP_HOOKS_PRIMARIES_RESET(X)                                                   \
	X(cuCtxAttach, cuCtxAttach, 2000, 0, GCP_OPTIONAL,                             \
	  (CUcontext *ret_ctx, unsigned int flags), (ret_ctx, flags))                  \
	X(cuCtxDetach, cuCtxDetach, 2000, 0, GCP_OPTIONAL, (CUcontext ctx), (ctx))     \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, GCP_REQUIRED, (CUcontext ctx),    \
	  (ctx))                                                                       \
	X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, 0, GCP_REQUIRED,                \
	  (CUcontext *ret_ctx, struct CUgreenCtx_st * green), (ret_ctx, green))        \
	X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, 0, GCP_OPTIONAL,                  \
	  (struct CUgreenCtx_st * *ret_green, struct CUdevResourceDesc_st * resources, \
	   CUdevice device, unsigned int flags),                                       \
	  (ret_green, resources, device, flags))                                       \
	X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, 0, GCP_OPTIONAL,                \
	  (struct CUgreenCtx_st * green), (green))                                     \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, GCP_REQUIRED,   \
	  (CUcontext *ret_ctx, CUdevice device), (ret_ctx, device))

/* Begins and ends of captures: hooks_capture.c. */
#define GCP_HOOKS_BEGINS_GLOBAL(X)                                                     \
	GCP_TWINS(X, cuStreamBeginCapture, cuStreamBeginCapture, 10000, 10000, _ptsz,  \
	  (CUstream stream), (stream))
#define GCP_HOOKS_BEGINS(X)                                                            \
	GCP_TWINS(X, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 10010,      \
	  _ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
#define GCP_HOOKS_BEGINS_INTO_GRAPHS(X)                                                \
	GCP_TWINS(X, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,  \
	  12030, _ptsz,                                                                \
	  (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,            \
	   const struct CUgraphEdgeData_st *edges, size_t count,                       \
	   CUstreamCaptureMode mode),                                                  \
	  (stream, graph, dependencies, edges, count, mode))                           \
	GCP_TWINS(X, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph,     \
	  13030, 13030, _ptsz,                                                         \
	  (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,                   \
	   gcp_recapture_callback * callback, void *user_data),                        \
	  (stream, mode, graph, callback, user_data))
#define GCP_HOOKS_ENDS(X)                                                              \
	GCP_TWINS(X, cuStreamEndCapture, cuStreamEndCapture, 10000, 10000, _ptsz,      \
	  (CUstream stream, CUgraph *ret_graph), (stream, ret_graph))
#define GCP_HOOKS_STREAMS_DESTROYED(X)                                                 \
	GCP_VERSIONS(X, cuStreamDestroy, 2000, 4000, GCP_OPTIONAL, (CUstream stream),  \
	  (stream))
#define GCP_HOOKS_STREAMS(X)                                                           \
	GCP_HOOKS_BEGINS_GLOBAL(X)                                                     \
	GCP_HOOKS_BEGINS(X)                                                            \
	GCP_HOOKS_BEGINS_INTO_GRAPHS(X)                                                \
	GCP_HOOKS_ENDS(X)                                                              \
	GCP_HOOKS_STREAMS_DESTROYED(X)

/* Calls that set, or return, what a stream's next captured work depends on. */
#define GCP_UPDATE                                                                     \
	(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
#define GCP_UPDATE_EDGES                                                               \
	(CUstream stream, CUgraphNode *nodes, const struct CUgraphEdgeData_st          \
	*edges, size_t count, unsigned int flags)
#define GCP_HOOKS_UPDATES(X)                                                           \
	X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies,        \
	  11030, 0, GCP_OPTIONAL, GCP_UPDATE, (stream, nodes, count, flags))           \
	X(cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies,   \
	  11030, 2, GCP_OPTIONAL, GCP_UPDATE, (stream, nodes, count, flags))           \
	X(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies,     \
	  12030, 0, GCP_REQUIRED, GCP_UPDATE_EDGES, (stream, nodes, edges, count,      \
	  flags))                                                                      \
	X(cuStreamUpdateCaptureDependencies_v2_ptsz,                                   \
	  cuStreamUpdateCaptureDependencies, 12030, 2, GCP_OPTIONAL, GCP_UPDATE_EDGES, \
	  (stream, nodes, edges, count, flags))
#define GCP_QUERY                                                                      \
	(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,       \
	CUgraph *ret_graph, const CUgraphNode **ret_nodes, size_t *ret_count)
#define GCP_QUERY_EDGES                                                                \
	(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id,       \
	CUgraph *ret_graph, const CUgraphNode **ret_nodes, const struct                \
	CUgraphEdgeData_st **ret_edges, size_t *ret_count)
#define GCP_HOOKS_QUERIES(X)                                                           \
	X(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030, 0, GCP_OPTIONAL,   \
	  GCP_QUERY, (stream, ret_status, ret_id, ret_graph, ret_nodes, ret_count))    \
	X(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo, 11030, 2,            \
	  GCP_OPTIONAL, GCP_QUERY, (stream, ret_status, ret_id, ret_graph, ret_nodes,  \
	  ret_count))                                                                  \
	X(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, 0, GCP_REQUIRED,   \
	  GCP_QUERY_EDGES, (stream, ret_status, ret_id, ret_graph, ret_nodes,          \
	  ret_edges, ret_count))                                                       \
	X(cuStreamGetCaptureInfo_v3_ptsz, cuStreamGetCaptureInfo, 12030, 2,            \
	  GCP_OPTIONAL, GCP_QUERY_EDGES, (stream, ret_status, ret_id, ret_graph,       \
	  ret_nodes, ret_edges, ret_count))

/* Calls that work on captures under way. */
#define GCP_HOOKS_FORKS(X)                                                             \
	GCP_HOOKS_UPDATES(X)                                                           \
	GCP_HOOKS_QUERIES(X)                                                           \
	X(cuGraphDestroyNode, cuGraphDestroyNode, 10000, 0, GCP_OPTIONAL,              \
	  (CUgraphNode node), (node))

#define GCP_HOOKS_PEERS(X)                                                             \
	X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0, GCP_OPTIONAL,         \
	  (CUcontext peer, unsigned int flags), (peer, flags))                         \
	X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, 0, GCP_OPTIONAL,       \
	  (CUcontext peer), (peer))

/* What waits for work, or asks whether it is done: for the errors of the work. */
#define GCP_HOOKS_WAITS(X)                                                             \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, GCP_REQUIRED, (void), ())       \
	X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, GCP_OPTIONAL,               \
	  (CUcontext ctx), (ctx))                                                      \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, GCP_REQUIRED,             \
	  (CUstream stream), (stream))                                                 \
	X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, 2, GCP_OPTIONAL,        \
	  (CUstream stream), (stream))                                                 \
	X(cuStreamQuery, cuStreamQuery, 2000, 0, GCP_REQUIRED, (CUstream stream),      \
	  (stream))                                                                    \
	X(cuStreamQuery_ptsz, cuStreamQuery, 7000, 2, GCP_OPTIONAL, (CUstream stream), \
	  (stream))                                                                    \
	X(cuEventSynchronize, cuEventSynchronize, 2000, 0, GCP_REQUIRED,               \
	  (CUevent event), (event))                                                    \
	X(cuEventQuery, cuEventQuery, 2000, 0, GCP_REQUIRED, (CUevent event), (event))

/* Those that do not submit work. */
#define GCP_HOOKS_OTHERS(X)                                                            \
	GCP_HOOKS_LOOKUP(X)                                                            \
	GCP_HOOKS_MEMORY(X)                                                            \
	GCP_HOOKS_CREATORS(X)                                                          \
	GCP_HOOKS_DESTROYERS(X)                                                        \
	GCP_HOOKS_CODE(X)                                                              \
	GCP_HOOKS_MAKERS(X)                                                            \
	GCP_HOOKS_MAPPINGS(X)                                                          \
	GCP_HOOKS_ASYNC(X)                                                             \
	GCP_HOOKS_HOST(X)                                                              \
	GCP_HOOKS_RANGES(X)                                                            \
	GCP_HOOKS_IPC(X)                                                               \
	GCP_HOOKS_PEERS(X)                                                             \
	GCP_HOOKS_CONTEXTS(X)                                                          \
	GCP_HOOKS_STREAMS(X)                                                           \
	GCP_HOOKS_FORKS(X)                                                             \
	GCP_HOOKS_GRAPHS(X)                                                            \
	GCP_HOOKS_NODES_ADDED(X)                                                       \
	GCP_HOOKS_NODES_TAKEN(X)

#define GCP_DRIVER_HOOKS(X)                                                            \
	GCP_HOOKS_OTHERS(X)                                                            \
	GCP_HOOKS_WAITS(X)                                                             \
	GCP_HOOKS_LAUNCHES(X)                                                          \
	GCP_HOOKS_LAUNCHES_BY_CONFIG(X)                                                \
	GCP_HOOKS_LAUNCHES_COOPERATIVE(X)                                              \
	GCP_HOOKS_EVENTS(X)                                                            \
	GCP_HOOKS_GRAPH_LAUNCHES(X)                                                    \
	GCP_HOOKS_COPIES(X)                                                            \
	GCP_HOOKS_COPIES_BATCH(X)                                                      \
	GCP_HOOKS_COPIES_SYNC(X)                                                       \
	GCP_HOOKS_SUBMISSIONS(X)                                                       \
	GCP_HOOKS_SUBMISSIONS_SYNC(X)

/* --- called, not hooked ---------------------------------------------------- */

#define GCP_DRIVER_USED(X)                                                             \
	X(cuEventDestroy_v2, cuEventDestroy, 4000, 0, GCP_REQUIRED, (CUevent event),   \
	  (event))                                                                     \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0, GCP_REQUIRED,                     \
	  (CUcontext *ret_ctx), (ret_ctx))                                             \
	X(cuCtxGetDevice, cuCtxGetDevice, 2000, 0, GCP_REQUIRED,                       \
	  (CUdevice *ret_device), (ret_device))                                        \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000, 0, GCP_REQUIRED, (int *ret_count), \
	  (ret_count))                                                                 \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, 0,             \
	  GCP_REQUIRED, (CUdevice device, unsigned int *ret_flags, int *ret_active),   \
	  (device, ret_flags, ret_active))                                             \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, 0, GCP_REQUIRED,           \
	  (int *ret_value, CUdevice_attribute attribute, CUdevice device),             \
	  (ret_value, attribute, device))                                              \
	X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, 0, GCP_REQUIRED,         \
	  (int *ret_able, CUdevice device, CUdevice peer), (ret_able, device, peer))   \
	X(cuDeviceGetName, cuDeviceGetName, 2000, 0, GCP_REQUIRED,                     \
	  (char *ret_name, int capacity, CUdevice device),                             \
	  (ret_name, capacity, device))                                                \
	X(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, 0, GCP_REQUIRED,                 \
	  (CUuuid *ret_uuid, CUdevice device), (ret_uuid, device))                     \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, 0, GCP_REQUIRED,             \
	  (char *ret_id, int capacity, CUdevice device), (ret_id, capacity, device))   \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020, 0, GCP_REQUIRED,               \
	  (int *ret_version), (ret_version))                                           \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, 0,      \
	  GCP_REQUIRED,                                                                \
	  (size_t *ret_bytes, const CUmemAllocationProp *properties,                   \
	   CUmemAllocationGranularity_flags which),                                    \
	  (ret_bytes, properties, which))                                              \
	X(cuMemAddressReserve, cuMemAddressReserve, 10020, 0, GCP_REQUIRED,            \
	  (CUdeviceptr *ret_ptr, size_t bytes, size_t alignment, CUdeviceptr wish,     \
	   unsigned long long flags),                                                  \
	  (ret_ptr, bytes, alignment, wish, flags))                                    \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, 0,        \
	  GCP_REQUIRED,                                                                \
	  (void *ret_fd, CUmemGenericAllocationHandle handle,                          \
	   CUmemAllocationHandleType type, unsigned long long flags),                  \
	  (ret_fd, handle, type, flags))                                               \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,    \
	  GCP_REQUIRED,                                                                \
	  (CUmemGenericAllocationHandle *ret_handle, void *fd,                         \
	   CUmemAllocationHandleType type),                                            \
	  (ret_handle, fd, type))                                                      \
	X(cuMemGetAllocationPropertiesFromHandle,                                      \
	  cuMemGetAllocationPropertiesFromHandle, 10020, 0, GCP_REQUIRED,              \
	  (CUmemAllocationProp *ret_properties, CUmemGenericAllocationHandle handle),  \
	  (ret_properties, handle))                                                    \
	X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, 0, GCP_REQUIRED,              \
	  (CUmemoryPool *ret_pool, CUdevice device), (ret_pool, device))               \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0,              \
	  GCP_REQUIRED, (CUmemoryPool *ret_pool, CUdevice device),                     \
	  (ret_pool, device))                                                          \
	X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0, GCP_REQUIRED,          \
	  (CUdevice device), (device))                                                 \
	X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, 0, GCP_REQUIRED,                  \
	  (CUcontext ctx, CUevent event), (ctx, event))                                \
	X(cuCtxWaitEvent, cuCtxWaitEvent, 12050, 0, GCP_REQUIRED,                      \
	  (CUcontext ctx, CUevent event), (ctx, event))                                \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, \
	  0, GCP_REQUIRED, (CUstreamCaptureMode *mode), (mode))                        \
	X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 0, GCP_REQUIRED,            \
	  (CUstream stream, CUstreamCaptureStatus *ret_status), (stream, ret_status))  \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, 0, GCP_REQUIRED,      \
	  (CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_id),    \
	  (stream, ret_status, ret_id))                                                \
	X(cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies, 12030, 0,         \
	  GCP_REQUIRED,                                                                \
	  (CUgraphNode node, CUgraphNode *ret_nodes,                                   \
	   struct CUgraphEdgeData_st *ret_edges, size_t *ret_count),                   \
	  (node, ret_nodes, ret_edges, ret_count))                                     \
	X(cuGraphAddDependencies_v2, cuGraphAddDependencies, 12030, 0, GCP_REQUIRED,   \
	  (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,              \
	   const struct CUgraphEdgeData_st *edges, size_t count),                      \
	  (graph, from, to, edges, count))                                             \
	X(cuGraphGetNodes, cuGraphGetNodes, 10000, 0, GCP_REQUIRED,                    \
	  (CUgraph graph, CUgraphNode *ret_nodes, size_t *ret_count),                  \
	  (graph, ret_nodes, ret_count))                                               \
	X(cuGraphExecGetFlags, cuGraphExecGetFlags, 12000, 0, GCP_REQUIRED,            \
	  (CUgraphExec exec, cuuint64_t *ret_flags), (exec, ret_flags))                \
	X(cuStreamGetId, cuStreamGetId, 12000, 0, GCP_REQUIRED,                        \
	  (CUstream stream, unsigned long long *ret_id), (stream, ret_id))             \
	X(cuStreamGetFlags, cuStreamGetFlags, 5050, 0, GCP_REQUIRED,                   \
	  (CUstream stream, unsigned int *ret_flags), (stream, ret_flags))             \
	X(cuStreamGetCtx, cuStreamGetCtx, 9020, 0, GCP_REQUIRED,                       \
	  (CUstream stream, CUcontext *ret_ctx), (stream, ret_ctx))

/* --- the short cut for shared cudart --------------------------------------- */

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
