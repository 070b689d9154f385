/* SPDX-License-Identifier: MIT */
/*
 * driver.h - the driver's functions as the test programs call them.
 *
 * Programs of the style `linked` bind them to libcuda when they are linked;
 * all others open libcuda.so.1 and look each one up with dlsym, as programs do
 * that must start without a driver. Fields bear the names that cuda.h expands
 * to (cuMemAlloc is cuMemAlloc_v2), so `cu.cuMemAlloc(...)` just works.
 *
 * A function that the driver lacks is NULL.
 */
#ifndef GCPT_DRIVER_H
#define GCPT_DRIVER_H

#include <cuda.h>

#define GCPT_DRIVER_CALLS(X)                                                           \
	X(cuInit)                                                                      \
	X(cuDeviceGetCount)                                                            \
	X(cuDevicePrimaryCtxRetain)                                                    \
	X(cuDevicePrimaryCtxReset)                                                     \
	X(cuDeviceGetDevResource)                                                      \
	X(cuDevResourceGenerateDesc)                                                   \
	X(cuGreenCtxCreate)                                                            \
	X(cuGreenCtxDestroy)                                                           \
	X(cuCtxFromGreenCtx)                                                           \
	X(cuCtxCreate)                                                                 \
	X(cuCtxDestroy)                                                                \
	X(cuCtxSetCurrent)                                                             \
	X(cuCtxGetCurrent)                                                             \
	X(cuCtxPopCurrent)                                                             \
	X(cuCtxEnablePeerAccess)                                                       \
	X(cuCtxSynchronize)                                                            \
	X(cuModuleLoadData)                                                            \
	X(cuModuleUnload)                                                              \
	X(cuModuleGetFunction)                                                         \
	X(cuLaunchKernel)                                                              \
	X(cuMemAlloc)                                                                  \
	X(cuMemFree)                                                                   \
	X(cuMemAllocPitch)                                                             \
	X(cuMemAllocManaged)                                                           \
	X(cuArrayCreate)                                                               \
	X(cuArrayDestroy)                                                              \
	X(cuMemAllocAsync)                                                             \
	X(cuMemFreeAsync)                                                              \
	X(cuMemAllocHost)                                                              \
	X(cuMemFreeHost)                                                               \
	X(cuMemGetInfo)                                                                \
	X(cuDeviceTotalMem)                                                            \
	X(cuGetProcAddress)                                                            \
	X(cuMemGetAddressRange)                                                        \
	X(cuPointerGetAttribute)                                                       \
	X(cuPointerGetAttributes)                                                      \
	X(cuPointerSetAttribute)                                                       \
	X(cuMemGetHandleForAddressRange)                                               \
	X(cuMemHostGetDevicePointer)                                                   \
	X(cuMemHostGetFlags)                                                           \
	X(cuMemHostUnregister)                                                         \
	X(cuMemCreate)                                                                 \
	X(cuMemRelease)                                                                \
	X(cuMemAddressReserve)                                                         \
	X(cuMemAddressFree)                                                            \
	X(cuMemMap)                                                                    \
	X(cuMemUnmap)                                                                  \
	X(cuMemSetAccess)                                                              \
	X(cuMemGetAccess)                                                              \
	X(cuMemRetainAllocationHandle)                                                 \
	X(cuMemcpy)                                                                    \
	X(cuMemcpyAsync)                                                               \
	X(cuMemsetD8Async)                                                             \
	X(cuStreamCreate)                                                              \
	X(cuStreamDestroy)                                                             \
	X(cuStreamSynchronize)                                                         \
	X(cuStreamQuery)                                                               \
	X(cuStreamWaitEvent)                                                           \
	X(cuEventCreate)                                                               \
	X(cuEventRecord)                                                               \
	X(cuEventDestroy)                                                              \
	X(cuDeviceGetDefaultMemPool)                                                   \
	X(cuMemPoolSetAttribute)                                                       \
	X(cuStreamIsCapturing)                                                         \
	X(cuStreamBeginCapture)                                                        \
	X(cuStreamEndCapture)                                                          \
	X(cuThreadExchangeStreamCaptureMode)                                           \
	X(cuGraphCreate)                                                               \
	X(cuGraphClone)                                                                \
	X(cuGraphAddChildGraphNode)                                                    \
	X(cuGraphExecUpdate)                                                           \
	X(cuGraphInstantiateWithFlags)                                                 \
	X(cuGraphLaunch)                                                               \
	X(cuGraphExecDestroy)                                                          \
	X(cuGraphDestroy)                                                              \
	X(cuIpcGetMemHandle)                                                           \
	X(cuIpcOpenMemHandle)                                                          \
	X(cuIpcCloseMemHandle)                                                         \
	X(cuGetErrorName)

struct gcpt_driver {
#define GCPT_X(name) typeof(name) *name;
	GCPT_DRIVER_CALLS(GCPT_X)
#undef GCPT_X
};

extern struct gcpt_driver cu;

/* Fills `cu` and calls cuInit, once. Ends the program when there is no driver
 * (exit code 77: skipped). */
void gcpt_driver_open(void);

#endif
