/* SPDX-License-Identifier: MIT */
/*
 * table_graph.h - the entry points of captures, graphs and user objects.
 *
 * The second half of table.h; see there.
 */
#ifndef SIM_TABLE_GRAPH_H
#define SIM_TABLE_GRAPH_H

/* Functions that cuda.h of CUDA 13.0 does not have. The first ones are CUDA 13.3's;
 * no driver has the others: they stand for what a later driver may bring.
 */
#pragma GCC visibility push(default)
CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode,
				       CUgraph hGraph, void *callbackFunc,
				       void *userData);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode,
					    CUgraph hGraph, void *callbackFunc,
					    void *userData);
CUresult cuStreamBeginCaptureInvented(double half, CUstream hStream,
				      CUstreamCaptureMode mode);
CUresult cuStreamBeginCaptureInvented_ptsz(double half, CUstream hStream,
					   CUstreamCaptureMode mode);
CUresult cuMemsetInvented(CUdeviceptr dstDevice, unsigned char uc, size_t N,
			  CUstream hStream);
CUresult cuMemsetInvented_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N,
			       CUstream hStream);
CUresult cuGraphEmbedInvented(CUgraph hGraph, CUgraph childGraph);
CUresult cuGraphNodeGetType_v2(CUgraphNode hNode, CUgraphNodeType *type);
#pragma GCC visibility pop

#define SIM_TABLE_CAPTURE(F, S)                                                        \
	F(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode) \
	S(cuStreamBeginCapture, 10000, cuStreamBeginCapture,                           \
	  cuStreamBeginCapture_ptsz)                                                   \
	S(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2,                        \
	  cuStreamBeginCapture_v2_ptsz)                                                \
	S(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph,             \
	  cuStreamBeginCaptureToGraph_ptsz)                                            \
	S(cuStreamBeginRecaptureToGraph, 13000, cuStreamBeginRecaptureToGraph,         \
	  cuStreamBeginRecaptureToGraph_ptsz)                                          \
	S(cuStreamBeginCaptureInvented, 13000, cuStreamBeginCaptureInvented,           \
	  cuStreamBeginCaptureInvented_ptsz)                                           \
	S(cuMemsetInvented, 13000, cuMemsetInvented, cuMemsetInvented_ptsz)            \
	S(cuStreamEndCapture, 10000, cuStreamEndCapture, cuStreamEndCapture_ptsz)      \
	S(cuStreamIsCapturing, 10000, cuStreamIsCapturing, cuStreamIsCapturing_ptsz)   \
	S(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo,                       \
	  cuStreamGetCaptureInfo_ptsz)                                                 \
	S(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2,                    \
	  cuStreamGetCaptureInfo_v2_ptsz)                                              \
	S(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3,                    \
	  cuStreamGetCaptureInfo_v3_ptsz)                                              \
	S(cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies, \
	  cuStreamUpdateCaptureDependencies_ptsz)                                      \
	S(cuStreamUpdateCaptureDependencies, 12030,                                    \
	  cuStreamUpdateCaptureDependencies_v2,                                        \
	  cuStreamUpdateCaptureDependencies_v2_ptsz)

#define SIM_TABLE_GRAPH(F, S)                                                          \
	F(cuGraphCreate, 10000, cuGraphCreate)                                         \
	F(cuGraphEmbedInvented, 13000, cuGraphEmbedInvented)                           \
	F(cuGraphDestroy, 10000, cuGraphDestroy)                                       \
	F(cuGraphClone, 10000, cuGraphClone)                                           \
	F(cuGraphNodeFindInClone, 10000, cuGraphNodeFindInClone)                       \
	F(cuGraphGetNodes, 10000, cuGraphGetNodes)                                     \
	F(cuGraphGetRootNodes, 10000, cuGraphGetRootNodes)                             \
	F(cuGraphGetEdges, 10000, cuGraphGetEdges)                                     \
	F(cuGraphGetEdges, 12030, cuGraphGetEdges_v2)                                  \
	F(cuGraphAddDependencies, 10000, cuGraphAddDependencies)                       \
	F(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2)                    \
	F(cuGraphRemoveDependencies, 10000, cuGraphRemoveDependencies)                 \
	F(cuGraphRemoveDependencies, 12030, cuGraphRemoveDependencies_v2)              \
	F(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies)               \
	F(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2)            \
	F(cuGraphNodeGetType, 10000, cuGraphNodeGetType)                               \
	F(cuGraphNodeGetType, 13040, cuGraphNodeGetType_v2)                            \
	F(cuGraphDestroyNode, 10000, cuGraphDestroyNode)                               \
	F(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode)                             \
	F(cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode)                   \
	F(cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph)         \
	F(cuGraphAddKernelNode, 10000, cuGraphAddKernelNode)                           \
	F(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2)                        \
	F(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode)                           \
	F(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode)                           \
	F(cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams)               \
	F(cuGraphAddHostNode, 10000, cuGraphAddHostNode)                               \
	F(cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode)                 \
	F(cuGraphExecChildGraphNodeSetParams, 11010,                                   \
	  cuGraphExecChildGraphNodeSetParams)                                          \
	F(cuGraphNodeSetParams, 12020, cuGraphNodeSetParams)                           \
	F(cuGraphExecNodeSetParams, 12020, cuGraphExecNodeSetParams)                   \
	F(cuGraphAddNode, 12020, cuGraphAddNode)                                       \
	F(cuGraphAddNode, 12030, cuGraphAddNode_v2)                                    \
	F(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate)       \
	F(cuGraphInstantiate, 10000, cuGraphInstantiate)                               \
	F(cuGraphInstantiate, 11000, cuGraphInstantiate_v2)                            \
	F(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags)             \
	S(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams,           \
	  cuGraphInstantiateWithParams_ptsz)                                           \
	F(cuGraphExecUpdate, 10020, cuGraphExecUpdate)                                 \
	F(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2)                              \
	F(cuGraphExecDestroy, 10000, cuGraphExecDestroy)                               \
	F(cuGraphExecGetFlags, 12000, cuGraphExecGetFlags)                             \
	S(cuGraphLaunch, 10000, cuGraphLaunch, cuGraphLaunch_ptsz)                     \
	S(cuGraphUpload, 11010, cuGraphUpload, cuGraphUpload_ptsz)                     \
	F(cuUserObjectCreate, 11030, cuUserObjectCreate)                               \
	F(cuUserObjectRetain, 11030, cuUserObjectRetain)                               \
	F(cuUserObjectRelease, 11030, cuUserObjectRelease)                             \
	F(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject)                     \
	F(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject)

#endif
