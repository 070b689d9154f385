/* SPDX-License-Identifier: MIT */
/*
 * stream.c - streams and events of the simulated runtime. See cudart.h.
 */
#include "cudart.h"

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	CUDART_CALL(cuStreamCreate, stream, CU_STREAM_DEFAULT);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	CUDART_CALL(cuStreamCreate, stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	CUDART_CALL(cuStreamDestroy, stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	CUDART_CALL(cuStreamSynchronize, stream);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	CUDART_CALL(cuStreamQuery, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
				unsigned int flags)
{
	CUDART_CALL(cuStreamWaitEvent, stream, event, flags);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
	CUDART_CALL(cuLaunchHostFunc, stream, function, data);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	CUDART_CALL(cuEventCreate, event, CU_EVENT_DEFAULT);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	CUDART_CALL(cuEventCreate, event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	CUDART_CALL(cuEventRecord, event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	CUDART_CALL(cuEventQuery, event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	CUDART_CALL(cuEventSynchronize, event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	CUDART_CALL(cuEventDestroy, event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	CUDART_CALL(cuEventElapsedTime, ms, start, end);
}
