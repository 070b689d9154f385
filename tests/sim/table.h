/* SPDX-License-Identifier: MIT */
/*
 * table.h - every entry point of the simulated driver, once.
 *
 * Expanded by core.c (call counters, planned failures, versions) and lookup.c
 * (cuGetProcAddress); a test compares it with the symbols that the library
 * exports. Holds no code and no state.
 *
 * F(name, since, symbol)            a function
 * S(name, since, symbol, per)       a function on streams, which has a twin
 *                                   `per` for the per-thread default stream
 *
 * `name` is what programs ask cuGetProcAddress for, `since` the CUDA version
 * that introduced this ABI. Rows of one name are ascending in version.
 */
#ifndef SIM_TABLE_H
#define SIM_TABLE_H

#define SIM_TABLE_BASE(F, S)                                                           \
	F(cuInit, 2000, cuInit)                                                        \
	F(cuDriverGetVersion, 2020, cuDriverGetVersion)                                \
	F(cuGetProcAddress, 11030, cuGetProcAddress)                                   \
	F(cuGetProcAddress, 12000, cuGetProcAddress_v2)                                \
	F(cuGetErrorName, 6000, cuGetErrorName)                                        \
	F(cuGetErrorString, 6000, cuGetErrorString)

#define SIM_TABLE_DEVICE(F, S)                                                         \
	F(cuDeviceGet, 2000, cuDeviceGet)                                              \
	F(cuDeviceGetCount, 2000, cuDeviceGetCount)                                    \
	F(cuDeviceGetName, 2000, cuDeviceGetName)                                      \
	F(cuDeviceGetUuid, 9020, cuDeviceGetUuid)                                      \
	F(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2)                                  \
	F(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                                 \
	F(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                            \
	F(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)                              \
	F(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer)                          \
	F(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool)                 \
	F(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool)                               \
	F(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool)                               \
	F(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim)                           \
	F(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)                    \
	F(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease)                  \
	F(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)              \
	F(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset)                      \
	F(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2)                  \
	F(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState)

#define SIM_TABLE_CONTEXT(F, S)                                                        \
	F(cuCtxCreate, 3020, cuCtxCreate_v2)                                           \
	F(cuCtxCreate, 11040, cuCtxCreate_v3)                                          \
	F(cuCtxCreate, 12050, cuCtxCreate_v4)                                          \
	F(cuCtxDestroy, 2000, cuCtxDestroy)                                            \
	F(cuCtxDestroy, 4000, cuCtxDestroy_v2)                                         \
	F(cuCtxAttach, 2000, cuCtxAttach)                                              \
	F(cuCtxDetach, 2000, cuCtxDetach)                                              \
	F(cuCtxSetCurrent, 4000, cuCtxSetCurrent)                                      \
	F(cuCtxGetCurrent, 4000, cuCtxGetCurrent)                                      \
	F(cuCtxPushCurrent, 2000, cuCtxPushCurrent)                                    \
	F(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2)                                 \
	F(cuCtxPopCurrent, 2000, cuCtxPopCurrent)                                      \
	F(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                                   \
	F(cuCtxGetDevice, 2000, cuCtxGetDevice)                                        \
	F(cuCtxGetDevice, 13000, cuCtxGetDevice_v2)                                    \
	F(cuCtxSynchronize, 2000, cuCtxSynchronize)                                    \
	F(cuCtxSynchronize, 13000, cuCtxSynchronize_v2)                                \
	F(cuCtxSetLimit, 3010, cuCtxSetLimit)                                          \
	F(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess)                          \
	F(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess)                        \
	F(cuCtxRecordEvent, 12050, cuCtxRecordEvent)                                   \
	F(cuCtxWaitEvent, 12050, cuCtxWaitEvent)                                       \
	F(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource)                       \
	F(cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount)             \
	F(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc)                 \
	F(cuGreenCtxCreate, 12040, cuGreenCtxCreate)                                   \
	F(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy)                                 \
	F(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate)                       \
	F(cuGreenCtxRecordEvent, 12040, cuGreenCtxRecordEvent)                         \
	F(cuGreenCtxWaitEvent, 12040, cuGreenCtxWaitEvent)                             \
	F(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx)

#define SIM_TABLE_CODE(F, S)                                                           \
	F(cuModuleLoad, 2000, cuModuleLoad)                                            \
	F(cuModuleLoadData, 2000, cuModuleLoadData)                                    \
	F(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx)                                \
	F(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary)                          \
	F(cuModuleUnload, 2000, cuModuleUnload)                                        \
	F(cuModuleGetFunction, 2000, cuModuleGetFunction)                              \
	F(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2)                               \
	F(cuLibraryLoadData, 12000, cuLibraryLoadData)                                 \
	F(cuKernelGetFunction, 12000, cuKernelGetFunction)                             \
	F(cuFuncGetAttribute, 2020, cuFuncGetAttribute)                                \
	F(cuFuncSetAttribute, 9000, cuFuncSetAttribute)                                \
	S(cuLaunchKernel, 4000, cuLaunchKernel, cuLaunchKernel_ptsz)                   \
	S(cuLaunchKernelEx, 11060, cuLaunchKernelEx, cuLaunchKernelEx_ptsz)            \
	S(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel,                  \
	  cuLaunchCooperativeKernel_ptsz)                                              \
	S(cuLaunchHostFunc, 10000, cuLaunchHostFunc, cuLaunchHostFunc_ptsz)

#define SIM_TABLE_STREAM(F, S)                                                         \
	F(cuStreamCreate, 2000, cuStreamCreate)                                        \
	F(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority)                \
	F(cuStreamDestroy, 2000, cuStreamDestroy)                                      \
	F(cuStreamDestroy, 4000, cuStreamDestroy_v2)                                   \
	S(cuStreamSynchronize, 2000, cuStreamSynchronize, cuStreamSynchronize_ptsz)    \
	S(cuStreamQuery, 2000, cuStreamQuery, cuStreamQuery_ptsz)                      \
	S(cuStreamWaitEvent, 3020, cuStreamWaitEvent, cuStreamWaitEvent_ptsz)          \
	S(cuStreamAddCallback, 5000, cuStreamAddCallback, cuStreamAddCallback_ptsz)    \
	S(cuStreamGetCtx, 9020, cuStreamGetCtx, cuStreamGetCtx_ptsz)                   \
	S(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz)            \
	S(cuStreamGetId, 12000, cuStreamGetId, cuStreamGetId_ptsz)                     \
	S(cuStreamGetFlags, 5050, cuStreamGetFlags, cuStreamGetFlags_ptsz)             \
	S(cuStreamGetPriority, 5050, cuStreamGetPriority, cuStreamGetPriority_ptsz)    \
	S(cuStreamGetDevice, 12080, cuStreamGetDevice, cuStreamGetDevice_ptsz)         \
	S(cuStreamWriteValue32, 8000, cuStreamWriteValue32, cuStreamWriteValue32_ptsz) \
	S(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2,                        \
	  cuStreamWriteValue32_v2_ptsz)                                                \
	F(cuEventCreate, 2000, cuEventCreate)                                          \
	F(cuEventDestroy, 2000, cuEventDestroy)                                        \
	F(cuEventDestroy, 4000, cuEventDestroy_v2)                                     \
	S(cuEventRecord, 2000, cuEventRecord, cuEventRecord_ptsz)                      \
	S(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags,                       \
	  cuEventRecordWithFlags_ptsz)                                                 \
	F(cuEventQuery, 2000, cuEventQuery)                                            \
	F(cuEventSynchronize, 2000, cuEventSynchronize)                                \
	F(cuEventElapsedTime, 2000, cuEventElapsedTime)                                \
	F(cuEventElapsedTime, 12080, cuEventElapsedTime_v2)

#define SIM_TABLE_MEMORY(F, S)                                                         \
	F(cuMemGetInfo, 3020, cuMemGetInfo_v2)                                         \
	F(cuMemAlloc, 3020, cuMemAlloc_v2)                                             \
	F(cuMemAllocPitch, 3020, cuMemAllocPitch_v2)                                   \
	F(cuMemFree, 3020, cuMemFree_v2)                                               \
	F(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2)                         \
	F(cuMemAllocManaged, 6000, cuMemAllocManaged)                                  \
	F(cuMemAllocHost, 3020, cuMemAllocHost_v2)                                     \
	F(cuMemHostAlloc, 2020, cuMemHostAlloc)                                        \
	F(cuMemFreeHost, 2000, cuMemFreeHost)                                          \
	F(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2)               \
	F(cuMemHostGetFlags, 2030, cuMemHostGetFlags)                                  \
	F(cuMemHostRegister, 4000, cuMemHostRegister)                                  \
	F(cuMemHostRegister, 6050, cuMemHostRegister_v2)                               \
	F(cuMemHostUnregister, 4000, cuMemHostUnregister)                              \
	F(cuPointerGetAttribute, 4000, cuPointerGetAttribute)                          \
	F(cuPointerGetAttributes, 7000, cuPointerGetAttributes)                        \
	F(cuPointerSetAttribute, 6000, cuPointerSetAttribute)                          \
	S(cuMemAllocAsync, 11020, cuMemAllocAsync, cuMemAllocAsync_ptsz)               \
	S(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync,                     \
	  cuMemAllocFromPoolAsync_ptsz)                                                \
	S(cuMemFreeAsync, 11020, cuMemFreeAsync, cuMemFreeAsync_ptsz)                  \
	F(cuMemPoolCreate, 11020, cuMemPoolCreate)                                     \
	F(cuMemPoolDestroy, 11020, cuMemPoolDestroy)                                   \
	F(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo)                                     \
	F(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute)                         \
	F(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute)                         \
	F(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess)                               \
	F(cuMemCreate, 10020, cuMemCreate)                                             \
	F(cuMemRelease, 10020, cuMemRelease)                                           \
	F(cuMemMap, 10020, cuMemMap)                                                   \
	F(cuMemUnmap, 10020, cuMemUnmap)                                               \
	F(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle)             \
	F(cuMemAddressReserve, 10020, cuMemAddressReserve)                             \
	F(cuMemAddressFree, 10020, cuMemAddressFree)                                   \
	F(cuMemSetAccess, 10020, cuMemSetAccess)                                       \
	F(cuMemGetAccess, 10020, cuMemGetAccess)                                       \
	F(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity)         \
	F(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle)           \
	F(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle)       \
	F(cuMemGetAllocationPropertiesFromHandle, 10020,                               \
	  cuMemGetAllocationPropertiesFromHandle)                                      \
	F(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange)         \
	F(cuArrayCreate, 3020, cuArrayCreate_v2)                                       \
	F(cuArrayDestroy, 2000, cuArrayDestroy)                                        \
	F(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle)                                  \
	F(cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle)                                \
	F(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2)                            \
	F(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle)

#define SIM_TABLE_COPY(F, S)                                                           \
	S(cuMemcpy, 4000, cuMemcpy, cuMemcpy_ptds)                                     \
	S(cuMemcpyAsync, 4000, cuMemcpyAsync, cuMemcpyAsync_ptsz)                      \
	S(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds)                   \
	S(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds)                   \
	S(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds)                   \
	S(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz)    \
	S(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz)    \
	S(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz)    \
	S(cuMemcpyPeer, 4000, cuMemcpyPeer, cuMemcpyPeer_ptds)                         \
	S(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz)          \
	S(cuMemcpy2D, 3020, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds)                         \
	S(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2,                           \
	  cuMemcpy2DUnaligned_v2_ptds)                                                 \
	S(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz)          \
	S(cuMemcpy3D, 3020, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds)                         \
	S(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz)          \
	S(cuMemcpy3DPeer, 4000, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds)                   \
	S(cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz)    \
	S(cuMemcpyBatchAsync, 12080, cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz)      \
	S(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2,                            \
	  cuMemcpyBatchAsync_v2_ptsz)                                                  \
	S(cuMemcpy3DBatchAsync, 12080, cuMemcpy3DBatchAsync,                           \
	  cuMemcpy3DBatchAsync_ptsz)                                                   \
	S(cuMemcpy3DBatchAsync, 13000, cuMemcpy3DBatchAsync_v2,                        \
	  cuMemcpy3DBatchAsync_v2_ptsz)                                                \
	S(cuMemsetD8, 3020, cuMemsetD8_v2, cuMemsetD8_v2_ptds)                         \
	S(cuMemsetD16, 3020, cuMemsetD16_v2, cuMemsetD16_v2_ptds)                      \
	S(cuMemsetD32, 3020, cuMemsetD32_v2, cuMemsetD32_v2_ptds)                      \
	S(cuMemsetD8Async, 3020, cuMemsetD8Async, cuMemsetD8Async_ptsz)                \
	S(cuMemsetD16Async, 3020, cuMemsetD16Async, cuMemsetD16Async_ptsz)             \
	S(cuMemsetD32Async, 3020, cuMemsetD32Async, cuMemsetD32Async_ptsz)             \
	S(cuMemsetD2D8, 3020, cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds)                   \
	S(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz)

#endif
