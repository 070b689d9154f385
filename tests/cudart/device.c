/* SPDX-License-Identifier: MIT */
/*
 * device.c - devices, errors in words, executables, and the way to the driver of the
 * simulated runtime. See cudart.h.
 */
#include "cudart.h"

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t result = cudart_open();

	if (!result)
		result = (cudaError_t)cudart_cu.cuDeviceGetCount(count);
	return cudart_keep(result);
}

cudaError_t cudaGetDevice(int *device)
{
	if (!device)
		return cudart_keep(cudaErrorInvalidValue);
	*device = cudart_device();
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return cudart_keep(cudart_device_set(device));
}

cudaError_t cudaDeviceReset(void)
{
	return cudart_keep(cudart_device_reset());
}

cudaError_t cudaDriverGetVersion(int *version)
{
	cudaError_t result = cudart_open();

	if (!result)
		result = (cudaError_t)cudart_cu.cuDriverGetVersion(version);
	return cudart_keep(result);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return cudart_keep(cudaErrorInvalidValue);
	*version = CUDART_VERSION;
	return cudaSuccess;
}

/* Our own names for the codes that tests meet; the driver knows the rest. */
static const struct {
	cudaError_t code;
	const char *name;
} names[] = {
    {cudaSuccess, "cudaSuccess"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
    {cudaErrorInitializationError, "cudaErrorInitializationError"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
    {cudaErrorNoDevice, "cudaErrorNoDevice"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {cudaErrorNotReady, "cudaErrorNotReady"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure"},
};

const char *cudaGetErrorName(cudaError_t error)
{
	const char *name = NULL;

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].code == error)
			return names[i].name;
	if (!cudart_open() && cudart_cu.cuGetErrorName)
		cudart_cu.cuGetErrorName((CUresult)error, &name);
	return name ? name : "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (!cudart_open() && cudart_cu.cuGetErrorString)
		cudart_cu.cuGetErrorString((CUresult)error, &text);
	return text ? text : "unrecognized error code";
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
				 unsigned int version, unsigned long long flags,
				 enum cudaDriverEntryPointQueryResult *status)
{
	cudaError_t result = cudart_open();
	CUdriverProcAddressQueryResult theirs = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

	if (!result)
		result = (cudaError_t)cudart_cu.cuGetProcAddress(
		    symbol, function, (int)version, flags, &theirs);
	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)theirs;
	return cudart_keep(result);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function,
				    unsigned long long flags,
				    enum cudaDriverEntryPointQueryResult *status)
{
	return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags,
						status);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
				 unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(exec, graph, flags);
}
