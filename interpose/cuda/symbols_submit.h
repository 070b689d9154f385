/* SPDX-License-Identifier: MIT */
/*
 * symbols_submit.h - the part of the one table of symbols (symbols.h) that submits
 * work: everything by which a program can make a device read or write memory.
 *
 * While a capture is under way each such call is either captured or eager work, and
 * the library has to know of both (submissions.c). While none is, it costs a few
 * loads. What a newer driver has beyond this table and beyond known_calls.c counts as
 * eager work: unknown_calls.h.
 *
 * Rows as in symbols.h. Of the last two tables the first has the parameter `stream`;
 * what is in the second works on the default stream, and waits for it.
 */
#ifndef GCP_INTERPOSE_SYMBOLS_SUBMIT_H
#define GCP_INTERPOSE_SYMBOLS_SUBMIT_H

#ifndef __ASSEMBLER__
#include <cuda.h>

#undef cuMemPrefetchAsync
#undef cuMemcpy2D
#undef cuMemcpy2DAsync
#undef cuMemcpy2DUnaligned
#undef cuMemcpy3D
#undef cuMemcpy3DAsync
#undef cuMemcpy3DBatchAsync
#undef cuMemcpyAtoA
#undef cuMemcpyAtoD
#undef cuMemcpyAtoH
#undef cuMemcpyAtoHAsync
#undef cuMemcpyBatchAsync
#undef cuMemcpyDtoA
#undef cuMemcpyDtoD
#undef cuMemcpyDtoDAsync
#undef cuMemcpyDtoH
#undef cuMemcpyDtoHAsync
#undef cuMemcpyHtoA
#undef cuMemcpyHtoAAsync
#undef cuMemcpyHtoD
#undef cuMemcpyHtoDAsync
#undef cuMemsetD16
#undef cuMemsetD2D16
#undef cuMemsetD2D32
#undef cuMemsetD2D8
#undef cuMemsetD32
#undef cuMemsetD8
#undef cuStreamBatchMemOp
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#endif

/* clang-format off */

/* A function and its twin for the per-thread default stream. */
#define GCP_TWINS(X, name, base, since, twin_since, twin, parameters, arguments)       \
	X(name, base, since, 0, GCP_OPTIONAL, parameters, arguments)                   \
	X(name##twin, base, twin_since, 2, GCP_OPTIONAL, parameters, arguments)

/* Those of one shape. */
#define GCP_MEMSET_TWINS(X, name, base, type)                                          \
	GCP_TWINS(X, name, base, 3020, 7000, _ptsz,                                    \
	  (CUdeviceptr to, type value, size_t count, CUstream stream),                 \
	  (to, value, count, stream))
#define GCP_MEMSET_2D_TWINS(X, name, base, type)                                       \
	GCP_TWINS(X, name, base, 3020, 7000, _ptsz,                                    \
	  (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,      \
	   CUstream stream),                                                           \
	  (to, pitch, value, width, height, stream))
#define GCP_VALUE_TWINS(X, name, base, since, type)                                    \
	GCP_TWINS(X, name, base, since, since, _ptsz,                                  \
	  (CUstream stream, CUdeviceptr at, type value, unsigned int flags),           \
	  (stream, at, value, flags))
#define GCP_BATCH_TWINS(X, name, base, since)                                          \
	GCP_TWINS(X, name, base, since, since, _ptsz,                                  \
	  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations,  \
	   unsigned int flags),                                                        \
	  (stream, count, operations, flags))

/* Kernels: the stream is a parameter, or a field of one. */
#define GCP_HOOKS_LAUNCHES(X)                                                          \
	X(cuLaunchKernel, cuLaunchKernel, 4000, 0, GCP_REQUIRED,                       \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y,              \
	   unsigned int grid_z, unsigned int block_x, unsigned int block_y,            \
	   unsigned int block_z, unsigned int shared_bytes, CUstream stream,           \
	   void **parameters, void **extra),                                           \
	  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,  \
	   stream, parameters, extra))                                                 \
	X(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, 2, GCP_REQUIRED,                  \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y,              \
	   unsigned int grid_z, unsigned int block_x, unsigned int block_y,            \
	   unsigned int block_z, unsigned int shared_bytes, CUstream stream,           \
	   void **parameters, void **extra),                                           \
	  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,  \
	   stream, parameters, extra))

#define GCP_HOOKS_LAUNCHES_BY_CONFIG(X)                                                \
	X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0, GCP_OPTIONAL,                  \
	  (const struct CUlaunchConfig_st *config, CUfunction function,                \
	   void **parameters, void **extra),                                           \
	  (config, function, parameters, extra))                                       \
	X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, 2, GCP_OPTIONAL,             \
	  (const struct CUlaunchConfig_st *config, CUfunction function,                \
	   void **parameters, void **extra),                                           \
	  (config, function, parameters, extra))

#define GCP_HOOKS_LAUNCHES_COOPERATIVE(X)                                              \
	GCP_TWINS(X, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 9000, _ptsz, \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned     \
	   int grid_z, unsigned int block_x, unsigned int block_y, unsigned int        \
	   block_z, unsigned int shared_bytes, CUstream stream, void **parameters),    \
	  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z,                \
	   shared_bytes, stream, parameters))

/* What forks and joins captures. */
#define GCP_HOOKS_EVENT_WAITS(X)                                                       \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, 0, GCP_REQUIRED,                 \
	  (CUstream stream, CUevent event, unsigned int flags),                        \
	  (stream, event, flags))                                                      \
	X(cuStreamWaitEvent_ptsz, cuStreamWaitEvent, 7000, 2, GCP_OPTIONAL,            \
	  (CUstream stream, CUevent event, unsigned int flags),                        \
	  (stream, event, flags))
#define GCP_HOOKS_EVENT_RECORDS(X)                                                     \
	X(cuEventRecord, cuEventRecord, 2000, 0, GCP_REQUIRED,                         \
	  (CUevent event, CUstream stream), (event, stream))                           \
	X(cuEventRecord_ptsz, cuEventRecord, 7000, 2, GCP_OPTIONAL,                    \
	  (CUevent event, CUstream stream), (event, stream))
#define GCP_HOOKS_EVENT_RECORDS_WITH_FLAGS(X)                                          \
	GCP_TWINS(X, cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, 11010,     \
	  _ptsz, (CUevent event, CUstream stream, unsigned int flags),                 \
	  (event, stream, flags))
#define GCP_HOOKS_EVENTS(X)                                                            \
	GCP_HOOKS_EVENT_WAITS(X)                                                       \
	GCP_HOOKS_EVENT_RECORDS(X)                                                     \
	GCP_HOOKS_EVENT_RECORDS_WITH_FLAGS(X)

#define GCP_HOOKS_GRAPH_LAUNCHES(X)                                                    \
	GCP_TWINS(X, cuGraphLaunch, cuGraphLaunch, 10000, 10000, _ptsz,                \
	  (CUgraphExec exec, CUstream stream),                                         \
	  (exec, stream))

/* Copies that may have memory of two devices: hooks_copy.c. In a batch, of several. */
#define GCP_HOOKS_COPIES(X)                                                            \
	GCP_TWINS(X, cuMemcpyAsync, cuMemcpyAsync, 4000, 7000, _ptsz,                  \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),           \
	  (to, from, bytes, stream))                                                   \
	GCP_TWINS(X, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, 7000, _ptsz,       \
	  (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),           \
	  (to, from, bytes, stream))                                                   \
	GCP_TWINS(X, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, 7000, _ptsz,       \
	  (void *to, CUdeviceptr from, size_t bytes, CUstream stream),                 \
	  (to, from, bytes, stream))                                                   \
	GCP_TWINS(X, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, 7000, _ptsz,       \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),           \
	  (to, from, bytes, stream))                                                   \
	GCP_TWINS(X, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, 7000, _ptsz,           \
	  (const CUDA_MEMCPY2D *copy, CUstream stream),                                \
	  (copy, stream))                                                              \
	GCP_TWINS(X, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, 7000, _ptsz,           \
	  (const CUDA_MEMCPY3D *copy, CUstream stream),                                \
	  (copy, stream))                                                              \
	GCP_TWINS(X, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, 7000, _ptsz,          \
	  (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,     \
	   size_t bytes, CUstream stream),                                             \
	  (to, to_ctx, from, from_ctx, bytes, stream))                                 \
	GCP_TWINS(X, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, 7000, _ptsz,      \
	  (const CUDA_MEMCPY3D_PEER *copy, CUstream stream),                           \
	  (copy, stream))

#define GCP_HOOKS_COPIES_BATCH(X)                                                      \
	GCP_TWINS(X, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, 12080, _ptsz,      \
	  (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void       \
	   *attributes, size_t *indices, size_t attribute_count, size_t *ret_failed,   \
	   CUstream stream),                                                           \
	  (to, from, bytes, count, attributes, indices, attribute_count, ret_failed,   \
	   stream))                                                                    \
	GCP_TWINS(X, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, 13000, _ptsz,   \
	  (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void       \
	   *attributes, size_t *indices, size_t attribute_count, CUstream stream),     \
	  (to, from, bytes, count, attributes, indices, attribute_count, stream))      \
	GCP_TWINS(X, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, 12080, _ptsz,  \
	  (size_t count, void *copies, size_t *ret_failed, unsigned long long flags,   \
	   CUstream stream),                                                           \
	  (count, copies, ret_failed, flags, stream))                                  \
	GCP_TWINS(X, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, 13000, _ptsz, \
	  (size_t count, void *copies, unsigned long long flags, CUstream stream),     \
	  (count, copies, flags, stream))

/* In the default stream. Not all of them return when the copy is done. */
#define GCP_HOOKS_COPIES_SYNC(X)                                                       \
	GCP_TWINS(X, cuMemcpy, cuMemcpy, 4000, 7000, _ptds,                            \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes),                            \
	  (to, from, bytes))                                                           \
	GCP_TWINS(X, cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, 7000, _ptds,                 \
	  (CUdeviceptr to, const void *from, size_t bytes),                            \
	  (to, from, bytes))                                                           \
	GCP_TWINS(X, cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, 7000, _ptds,                 \
	  (void *to, CUdeviceptr from, size_t bytes),                                  \
	  (to, from, bytes))                                                           \
	GCP_TWINS(X, cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, 7000, _ptds,                 \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes),                            \
	  (to, from, bytes))                                                           \
	GCP_TWINS(X, cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, 7000, _ptds,                 \
	  (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),                 \
	  (to, offset, from, bytes))                                                   \
	GCP_TWINS(X, cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, 7000, _ptds,                 \
	  (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),                 \
	  (to, from, offset, bytes))                                                   \
	GCP_TWINS(X, cuMemcpy2D_v2, cuMemcpy2D, 3020, 7000, _ptds,                     \
	  (const CUDA_MEMCPY2D *copy),                                                 \
	  (copy))                                                                      \
	GCP_TWINS(X, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, 7000, _ptds,   \
	  (const CUDA_MEMCPY2D *copy),                                                 \
	  (copy))                                                                      \
	GCP_TWINS(X, cuMemcpy3D_v2, cuMemcpy3D, 3020, 7000, _ptds,                     \
	  (const CUDA_MEMCPY3D *copy),                                                 \
	  (copy))                                                                      \
	GCP_TWINS(X, cuMemcpyPeer, cuMemcpyPeer, 4000, 7000, _ptds,                    \
	  (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,     \
	   size_t bytes),                                                              \
	  (to, to_ctx, from, from_ctx, bytes))                                         \
	GCP_TWINS(X, cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, 7000, _ptds,                \
	  (const CUDA_MEMCPY3D_PEER *copy),                                            \
	  (copy))

#define GCP_HOOKS_SUBMISSIONS(X)                                                       \
	GCP_TWINS(X, cuLaunchHostFunc, cuLaunchHostFunc, 10000, 10000, _ptsz,          \
	  (CUstream stream, CUhostFn function, void *data),                            \
	  (stream, function, data))                                                    \
	X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0, GCP_OPTIONAL,                 \
	  (CUfunction function, int grid_width, int grid_height, CUstream stream),     \
	  (function, grid_width, grid_height, stream))                                 \
	GCP_TWINS(X, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020, 7000, _ptsz,       \
	  (CUarray to, size_t offset, const void *from, size_t bytes, CUstream         \
	   stream),                                                                    \
	  (to, offset, from, bytes, stream))                                           \
	GCP_TWINS(X, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020, 7000, _ptsz,       \
	  (void *to, CUarray from, size_t offset, size_t bytes, CUstream stream),      \
	  (to, from, offset, bytes, stream))                                           \
	GCP_TWINS(X, cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, 12060, 12060, _ptsz, \
	  (void *parameters, size_t count, unsigned int flags, size_t *ret_failed,     \
	   CUstream stream),                                                           \
	  (parameters, count, flags, ret_failed, stream))                              \
	GCP_MEMSET_TWINS(X, cuMemsetD8Async, cuMemsetD8Async, unsigned char)           \
	GCP_MEMSET_2D_TWINS(X, cuMemsetD2D8Async, cuMemsetD2D8Async, unsigned char)    \
	GCP_MEMSET_TWINS(X, cuMemsetD16Async, cuMemsetD16Async, unsigned short)        \
	GCP_MEMSET_2D_TWINS(X, cuMemsetD2D16Async, cuMemsetD2D16Async, unsigned short) \
	GCP_MEMSET_TWINS(X, cuMemsetD32Async, cuMemsetD32Async, unsigned int)          \
	GCP_MEMSET_2D_TWINS(X, cuMemsetD2D32Async, cuMemsetD2D32Async, unsigned int)   \
	GCP_VALUE_TWINS(X, cuStreamWriteValue32, cuStreamWriteValue32, 8000, cuuint32_t) \
	GCP_VALUE_TWINS(X, cuStreamWaitValue32, cuStreamWaitValue32, 8000, cuuint32_t) \
	GCP_VALUE_TWINS(X, cuStreamWriteValue64, cuStreamWriteValue64, 9000, cuuint64_t) \
	GCP_VALUE_TWINS(X, cuStreamWaitValue64, cuStreamWaitValue64, 9000, cuuint64_t) \
	GCP_BATCH_TWINS(X, cuStreamBatchMemOp, cuStreamBatchMemOp, 8000)               \
	GCP_VALUE_TWINS(X, cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, cuuint32_t) \
	GCP_VALUE_TWINS(X, cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, cuuint32_t) \
	GCP_VALUE_TWINS(X, cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, cuuint64_t) \
	GCP_VALUE_TWINS(X, cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, cuuint64_t) \
	GCP_BATCH_TWINS(X, cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070)           \
	GCP_TWINS(X, cuStreamAddCallback, cuStreamAddCallback, 5000, 7000, _ptsz,      \
	  (CUstream stream, CUstreamCallback callback, void *data, unsigned int        \
	   flags),                                                                     \
	  (stream, callback, data, flags))                                             \
	GCP_TWINS(X, cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, 7000, _ptsz, \
	  (CUstream stream, CUdeviceptr at, size_t bytes, unsigned int flags),         \
	  (stream, at, bytes, flags))                                                  \
	GCP_TWINS(X, cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, \
	  10000, 10000, _ptsz,                                                         \
	  (const CUexternalSemaphore *semaphores, const                                \
	   CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *parameters, unsigned int count,      \
	   CUstream stream),                                                           \
	  (semaphores, parameters, count, stream))                                     \
	GCP_TWINS(X, cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync,     \
	  10000, 10000, _ptsz,                                                         \
	  (const CUexternalSemaphore *semaphores, const                                \
	   CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *parameters, unsigned int count,        \
	   CUstream stream),                                                           \
	  (semaphores, parameters, count, stream))                                     \
	GCP_TWINS(X, cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, 8000, _ptsz,        \
	  (CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream),            \
	  (at, bytes, device, stream))                                                 \
	GCP_TWINS(X, cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, 12020, _ptsz,   \
	  (CUdeviceptr at, size_t bytes, CUmemLocation place, unsigned int flags,      \
	   CUstream stream),                                                           \
	  (at, bytes, place, flags, stream))                                           \
	GCP_TWINS(X, cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, 13000, _ptsz, \
	  (CUdeviceptr *at, size_t *bytes, size_t count, void *places, size_t          \
	   *indices, size_t place_count, unsigned long long flags, CUstream stream),   \
	  (at, bytes, count, places, indices, place_count, flags, stream))             \
	GCP_TWINS(X, cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, 13000, _ptsz, \
	  (CUdeviceptr *at, size_t *bytes, size_t count, unsigned long long flags,     \
	   CUstream stream),                                                           \
	  (at, bytes, count, flags, stream))                                           \
	GCP_TWINS(X, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, \
	  13000, 13000, _ptsz,                                                         \
	  (CUdeviceptr *at, size_t *bytes, size_t count, void *places, size_t          \
	   *indices, size_t place_count, unsigned long long flags, CUstream stream),   \
	  (at, bytes, count, places, indices, place_count, flags, stream))

#define GCP_HOOKS_SUBMISSIONS_SYNC(X)                                                  \
	GCP_TWINS(X, cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, 7000, _ptds,                 \
	  (CUarray to, size_t offset, const void *from, size_t bytes),                 \
	  (to, offset, from, bytes))                                                   \
	GCP_TWINS(X, cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, 7000, _ptds,                 \
	  (void *to, CUarray from, size_t offset, size_t bytes),                       \
	  (to, from, offset, bytes))                                                   \
	GCP_TWINS(X, cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, 7000, _ptds,                 \
	  (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t      \
	   bytes),                                                                     \
	  (to, to_offset, from, from_offset, bytes))                                   \
	GCP_TWINS(X, cuMemsetD8_v2, cuMemsetD8, 3020, 7000, _ptds,                     \
	  (CUdeviceptr to, unsigned char value, size_t count),                         \
	  (to, value, count))                                                          \
	GCP_TWINS(X, cuMemsetD2D8_v2, cuMemsetD2D8, 3020, 7000, _ptds,                 \
	  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t     \
	   height),                                                                    \
	  (to, pitch, value, width, height))                                           \
	GCP_TWINS(X, cuMemsetD16_v2, cuMemsetD16, 3020, 7000, _ptds,                   \
	  (CUdeviceptr to, unsigned short value, size_t count),                        \
	  (to, value, count))                                                          \
	GCP_TWINS(X, cuMemsetD2D16_v2, cuMemsetD2D16, 3020, 7000, _ptds,               \
	  (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t    \
	   height),                                                                    \
	  (to, pitch, value, width, height))                                           \
	GCP_TWINS(X, cuMemsetD32_v2, cuMemsetD32, 3020, 7000, _ptds,                   \
	  (CUdeviceptr to, unsigned int value, size_t count),                          \
	  (to, value, count))                                                          \
	GCP_TWINS(X, cuMemsetD2D32_v2, cuMemsetD2D32, 3020, 7000, _ptds,               \
	  (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t      \
	   height),                                                                    \
	  (to, pitch, value, width, height))                                           \
	X(cuLaunch, cuLaunch, 2000, 0, GCP_OPTIONAL,                                   \
	  (CUfunction function),                                                       \
	  (function))                                                                  \
	X(cuLaunchGrid, cuLaunchGrid, 2000, 0, GCP_OPTIONAL,                           \
	  (CUfunction function, int grid_width, int grid_height),                      \
	  (function, grid_width, grid_height))                                         \
	X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice,  \
	  9000, 0, GCP_OPTIONAL,                                                       \
	  (CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags),      \
	  (launches, count, flags))

/* clang-format on */

#endif
