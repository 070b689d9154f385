/* SPDX-License-Identifier: MIT */
/*
 * symbols_graph.h - the part of the one table of symbols (symbols.h) that tells what
 * becomes of a captured graph, whose memory other graphs may share: hooks_graph.c.
 *
 * Every way to run a graph, or to learn what its nodes work on, stands in one of these
 * tables, or leaves the graph as it is, or is unknown: unknown_calls.h. Types that are
 * not looked at, and those that only newer cuda.h declare, are void pointers.
 */
#ifndef GCP_INTERPOSE_SYMBOLS_GRAPH_H
#define GCP_INTERPOSE_SYMBOLS_GRAPH_H

#ifndef __ASSEMBLER__
#include <cuda.h>
#endif

#undef cuGraphInstantiate
#undef cuGraphExecUpdate
#undef cuGraphAddKernelNode
#undef cuGraphAddNode
#undef cuGraphKernelNodeGetParams

/* clang-format off */

/* What graphs become: hooks_graph.c. */
#define GCP_HOOKS_INSTANTIATIONS(X)                                                    \
	X(cuGraphInstantiate, cuGraphInstantiate, 10000, 0, GCP_OPTIONAL,              \
	  (CUgraphExec * ret_exec, CUgraph graph, CUgraphNode * ret_node, char *log,   \
	  size_t bytes), (ret_exec, graph, ret_node, log, bytes))                      \
	X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0, GCP_OPTIONAL,           \
	  (CUgraphExec * ret_exec, CUgraph graph, CUgraphNode * ret_node, char *log,   \
	  size_t bytes), (ret_exec, graph, ret_node, log, bytes))                      \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0,          \
	  GCP_OPTIONAL, (CUgraphExec * ret_exec, CUgraph graph, unsigned long long     \
	  flags), (ret_exec, graph, flags))                                            \
	GCP_TWINS(X, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, \
	  12000, _ptsz, (CUgraphExec * ret_exec, CUgraph graph, void *parameters),     \
	  (ret_exec, graph, parameters))
#define GCP_HOOKS_EXEC_UPDATES(X)                                                      \
	X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, 0, GCP_OPTIONAL, (CUgraphExec   \
	  exec, CUgraph graph, CUgraphNode * ret_node, void *ret_result), (exec,       \
	  graph, ret_node, ret_result))                                                \
	X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, 0, GCP_OPTIONAL,             \
	  (CUgraphExec exec, CUgraph graph, void *ret_result), (exec, graph,           \
	  ret_result))
#define GCP_HOOKS_NODES_OF_ANY_KIND(X)                                                 \
	X(cuGraphAddNode, cuGraphAddNode, 12020, 0, GCP_OPTIONAL, (CUgraphNode *       \
	  ret_node, CUgraph parent, const CUgraphNode *nodes, size_t count, void       \
	  *parameters), (ret_node, parent, nodes, count, parameters))                  \
	X(cuGraphAddNode_v2, cuGraphAddNode, 12030, 0, GCP_OPTIONAL, (CUgraphNode *    \
	  ret_node, CUgraph parent, const CUgraphNode *nodes, const struct             \
	  CUgraphEdgeData_st *edges, size_t count, void *parameters), (ret_node,       \
	  parent, nodes, edges, count, parameters))
#define GCP_HOOKS_GRAPHS(X)                                                            \
	GCP_HOOKS_INSTANTIATIONS(X)                                                    \
	GCP_HOOKS_EXEC_UPDATES(X)                                                      \
	GCP_HOOKS_NODES_OF_ANY_KIND(X)                                                 \
	X(cuGraphDestroy, cuGraphDestroy, 10000, 0, GCP_OPTIONAL, (CUgraph graph),     \
	  (graph))                                                                     \
	X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0, GCP_OPTIONAL,              \
	  (CUgraphExec exec), (exec))                                                  \
	X(cuGraphCreate, cuGraphCreate, 10000, 0, GCP_OPTIONAL, (CUgraph * ret_graph,  \
	  unsigned int flags), (ret_graph, flags))                                     \
	X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, 0,      \
	  GCP_OPTIONAL, (CUgraphNode node, CUgraph * ret_graph), (node, ret_graph))    \
	X(cuGraphClone, cuGraphClone, 10000, 0, GCP_OPTIONAL, (CUgraph * ret_graph,    \
	  CUgraph graph), (ret_graph, graph))                                          \
	X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, 0,                \
	  GCP_OPTIONAL, (CUgraphNode * ret_node, CUgraph parent, const CUgraphNode     \
	  *nodes, size_t count, CUgraph graph), (ret_node, parent, nodes, count,       \
	  graph))                                                                      \
	X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams,      \
	  11010, 0, GCP_OPTIONAL, (CUgraphExec exec, CUgraphNode node, CUgraph graph), \
	  (exec, node, graph))                                                         \
	X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, 0, GCP_OPTIONAL,          \
	  (CUgraphNode * ret_node, CUgraph graph, const CUgraphNode *nodes, size_t     \
	  count, const CUDA_MEMCPY3D *copy, CUcontext ctx), (ret_node, graph, nodes,   \
	  count, copy, ctx))                                                           \
	X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, 0,            \
	  GCP_OPTIONAL, (CUgraphNode node, const CUDA_MEMCPY3D *copy), (node, copy))   \
	X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, 0,    \
	  GCP_OPTIONAL, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D       \
	  *copy, CUcontext ctx), (exec, node, copy, ctx))                              \
	X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, 0, GCP_OPTIONAL,          \
	  (CUgraphNode node, void *parameters), (node, parameters))                    \
	X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, 0,                \
	  GCP_OPTIONAL, (CUgraphExec exec, CUgraphNode node, void *parameters), (exec, \
	  node, parameters))                                                           \
	X(cuGraphNodeGetParams, cuGraphNodeGetParams, 13020, 0, GCP_OPTIONAL,          \
	  (CUgraphNode node, void *parameters), (node, parameters))

/* What adds nodes that work on device memory, besides those above. */
#define GCP_ADDED                                                                      \
	(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *nodes, size_t        \
	count, const void *parameters)
#define GCP_ADDED_ARGUMENTS (ret_node, graph, nodes, count, parameters)
#define GCP_HOOKS_NODES_ADDED(X)                                                       \
	X(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, 0, GCP_OPTIONAL,          \
	  GCP_ADDED, GCP_ADDED_ARGUMENTS)                                              \
	X(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000, 0, GCP_OPTIONAL,       \
	  GCP_ADDED, GCP_ADDED_ARGUMENTS)                                              \
	X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070, 0,                \
	  GCP_OPTIONAL, GCP_ADDED, GCP_ADDED_ARGUMENTS)                                \
	X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, 0, GCP_OPTIONAL,          \
	  (CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *nodes, size_t      \
	  count, const void *parameters, CUcontext ctx), (ret_node, graph, nodes,      \
	  count, parameters, ctx))

/* What tells what nodes work on. */
#define GCP_TAKEN (CUgraphNode node, void *ret_parameters)
#define GCP_HOOKS_NODES_TAKEN(X)                                                       \
	X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000, 0,            \
	  GCP_OPTIONAL, GCP_TAKEN, (node, ret_parameters))                             \
	X(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams, 12000, 0,         \
	  GCP_OPTIONAL, GCP_TAKEN, (node, ret_parameters))                             \
	X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000, 0,            \
	  GCP_OPTIONAL, GCP_TAKEN, (node, ret_parameters))                             \
	X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, 0,            \
	  GCP_OPTIONAL, GCP_TAKEN, (node, ret_parameters))                             \
	X(cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeGetParams, 11070, 0,    \
	  GCP_OPTIONAL, GCP_TAKEN, (node, ret_parameters))

/* clang-format on */

#endif
