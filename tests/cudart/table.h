/* SPDX-License-Identifier: MIT */
/*
 * table.h - every driver function that the simulated runtime asks for, once, in
 * the order and with the versions in which CUDA 13.0's runtime asks.
 *
 * X(name, version): `name` is what cuGetProcAddress is given; the field and its
 * type bear the name that cuda.h expands it to, which is the same ABI.
 */
#ifndef GCPT_CUDART_TABLE_H
#define GCPT_CUDART_TABLE_H

#define CUDART_CALLS_DEVICE(X)                                                         \
	X(cuInit, 2000)                                                                \
	X(cuGetProcAddress, 12000)                                                     \
	X(cuDeviceGet, 2000)                                                           \
	X(cuDeviceGetCount, 2000)                                                      \
	X(cuDeviceGetAttribute, 2000)                                                  \
	X(cuDriverGetVersion, 2020)                                                    \
	X(cuDeviceGetDefaultMemPool, 11020)                                            \
	X(cuDevicePrimaryCtxRetain, 7000)                                              \
	X(cuDevicePrimaryCtxReset, 7000)                                               \
	X(cuCtxSetCurrent, 4000)                                                       \
	X(cuCtxGetCurrent, 4000)                                                       \
	X(cuCtxGetDevice, 2000)                                                        \
	X(cuCtxSynchronize, 2000)

#define CUDART_CALLS_MEMORY(X)                                                         \
	X(cuMemGetInfo, 3020)                                                          \
	X(cuMemAllocManaged, 6000)                                                     \
	X(cuMemAlloc, 3020)                                                            \
	X(cuMemAllocPitch, 3020)                                                       \
	X(cuMemFree, 3020)                                                             \
	X(cuMemFreeHost, 2000)                                                         \
	X(cuMemHostAlloc, 2020)                                                        \
	X(cuMemHostGetDevicePointer, 3020)                                             \
	X(cuPointerGetAttributes, 7000)                                                \
	X(cuMemAllocAsync, 11020)                                                      \
	X(cuMemFreeAsync, 11020)                                                       \
	X(cuMemPoolTrimTo, 11020)                                                      \
	X(cuMemPoolSetAttribute, 11020)                                                \
	X(cuMemPoolGetAttribute, 11020)                                                \
	X(cuMemcpy, 4000)                                                              \
	X(cuMemcpyAsync, 4000)                                                         \
	X(cuMemcpyHtoD, 3020)                                                          \
	X(cuMemcpyHtoDAsync, 3020)                                                     \
	X(cuMemcpyDtoH, 3020)                                                          \
	X(cuMemcpyDtoHAsync, 3020)                                                     \
	X(cuMemcpyDtoD, 3020)                                                          \
	X(cuMemcpyDtoDAsync, 3020)                                                     \
	X(cuMemsetD8, 3020)                                                            \
	X(cuMemsetD8Async, 3020)

#define CUDART_CALLS_STREAM(X)                                                         \
	X(cuLaunchHostFunc, 10000)                                                     \
	X(cuEventCreate, 2000)                                                         \
	X(cuEventRecord, 2000)                                                         \
	X(cuEventQuery, 2000)                                                          \
	X(cuEventSynchronize, 2000)                                                    \
	X(cuEventDestroy, 4000)                                                        \
	X(cuEventElapsedTime, 12080)                                                   \
	X(cuStreamCreate, 2000)                                                        \
	X(cuStreamDestroy, 4000)                                                       \
	X(cuStreamWaitEvent, 3020)                                                     \
	X(cuStreamSynchronize, 2000)                                                   \
	X(cuStreamQuery, 2000)                                                         \
	X(cuIpcGetMemHandle, 4010)                                                     \
	X(cuIpcOpenMemHandle, 11000)                                                   \
	X(cuIpcCloseMemHandle, 4010)                                                   \
	X(cuGetErrorString, 6000)                                                      \
	X(cuGetErrorName, 6000)

#define CUDART_CALLS_GRAPH(X)                                                          \
	X(cuGraphCreate, 10000)                                                        \
	X(cuGraphAddChildGraphNode, 10000)                                             \
	X(cuGraphClone, 10000)                                                         \
	X(cuGraphGetNodes, 10000)                                                      \
	X(cuGraphInstantiateWithFlags, 11040)                                          \
	X(cuGraphLaunch, 10000)                                                        \
	X(cuGraphExecDestroy, 10000)                                                   \
	X(cuGraphDestroy, 10000)                                                       \
	X(cuStreamBeginCapture, 10010)                                                 \
	X(cuStreamBeginCaptureToGraph, 12030)                                          \
	X(cuStreamEndCapture, 10000)                                                   \
	X(cuStreamIsCapturing, 10000)                                                  \
	X(cuStreamGetCaptureInfo, 12030)                                               \
	X(cuThreadExchangeStreamCaptureMode, 10010)                                    \
	X(cuGraphExecUpdate, 12000)                                                    \
	X(cuUserObjectCreate, 11030)                                                   \
	X(cuUserObjectRetain, 11030)                                                   \
	X(cuUserObjectRelease, 11030)                                                  \
	X(cuGraphRetainUserObject, 11030)                                              \
	X(cuGraphReleaseUserObject, 11030)

#define CUDART_CALLS(X)                                                                \
	CUDART_CALLS_DEVICE(X)                                                         \
	CUDART_CALLS_MEMORY(X)                                                         \
	CUDART_CALLS_STREAM(X)                                                         \
	CUDART_CALLS_GRAPH(X)

#endif
