/* SPDX-License-Identifier: MIT */
/*
 * graph.c - stream capture, graphs and user objects of the simulated runtime.
 * See cudart.h.
 */
#include "cudart.h"

/* --- capture -------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	CUDART_CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
					  const cudaGraphNode_t *dependencies,
					  const cudaGraphEdgeData *edges, size_t count,
					  enum cudaStreamCaptureMode mode)
{
	CUDART_CALL(cuStreamBeginCaptureToGraph, stream, graph, dependencies,
		    (const CUgraphEdgeData *)edges, count, (CUstreamCaptureMode)mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	CUDART_CALL(cuStreamEndCapture, stream, graph);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
				  enum cudaStreamCaptureStatus *status)
{
	CUDART_CALL(cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
				     enum cudaStreamCaptureStatus *status,
				     unsigned long long *id, cudaGraph_t *graph,
				     const cudaGraphNode_t **dependencies,
				     const cudaGraphEdgeData **edges, size_t *count)
{
	CUDART_CALL(cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status,
		    (cuuint64_t *)id, graph, dependencies,
		    (const CUgraphEdgeData **)edges, count);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	CUDART_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}

/* --- graphs ----------------------------------------------------------------------- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
	CUDART_CALL(cuGraphCreate, graph, flags);
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original)
{
	CUDART_CALL(cuGraphClone, clone, original);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	CUDART_CALL(cuGraphGetNodes, graph, nodes, count);
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
				       const cudaGraphNode_t *dependencies,
				       size_t count, cudaGraph_t child)
{
	CUDART_CALL(cuGraphAddChildGraphNode, node, graph, dependencies, count, child);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	CUDART_CALL(cuGraphDestroy, graph);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
					  unsigned long long flags)
{
	CUDART_CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
				 unsigned long long flags)
{
	return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
				cudaGraphExecUpdateResultInfo *info)
{
	CUDART_CALL(cuGraphExecUpdate, exec, graph,
		    (CUgraphExecUpdateResultInfo *)info);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	CUDART_CALL(cuGraphLaunch, exec, stream);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	CUDART_CALL(cuGraphExecDestroy, exec);
}

/* --- user objects --------------------------------------------------------- */

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *data,
				 cudaHostFn_t destroy, unsigned int count,
				 unsigned int flags)
{
	CUDART_CALL(cuUserObjectCreate, object, data, destroy, count, flags);
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count)
{
	CUDART_CALL(cuUserObjectRetain, object, count);
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
	CUDART_CALL(cuUserObjectRelease, object, count);
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
				      unsigned int count, unsigned int flags)
{
	CUDART_CALL(cuGraphRetainUserObject, graph, object, count, flags);
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
				       unsigned int count)
{
	CUDART_CALL(cuGraphReleaseUserObject, graph, object, count);
}
