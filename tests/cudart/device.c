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

cudaError_t cudaSetDevice(int device)
{
	return cudart_keep(cudart_device_set(device));
}

cudaError_t cudaDeviceReset(void)
{
	return cudart_keep(cudart_device_reset());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int wanted)
{
	cudaError_t result = cudart_open();

	if (!result)
		result = (cudaError_t)cudart_cu.cuDeviceTotalMem(
		    &properties->totalGlobalMem, wanted);
	return cudart_keep(result);
}

const char *cudaGetErrorName(cudaError_t error)
{
	const char *name = NULL;

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

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
				 unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(exec, graph, flags);
}
