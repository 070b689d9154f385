/* SPDX-License-Identifier: MIT */
/*
 * graph_nodes.c - adding nodes to graphs by hand, and changing what they do.
 * Entry points, under the big lock. Copies and sets of arrays are not simulated.
 */
#include "graph.h"

/* Checks what all additions share and makes the node. */
static CUresult node_add(CUgraphNode *phGraphNode, CUgraph hGraph,
			 const CUgraphNode *dependencies, size_t count,
			 CUgraphNodeType type, struct sim_ctx *ctx,
			 struct sim_node **ret_node)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_node *node;

	if (!phGraphNode || !graph || !sim_nodes_of_graph(graph, dependencies, count))
		return CUDA_ERROR_INVALID_VALUE;
	node = sim_node_new(graph, type, ctx);
	for (size_t i = 0; i < count; i++)
		sim_node_depend(node, (struct sim_node *)dependencies[i]);
	*phGraphNode = (CUgraphNode)node;
	*ret_node = node;
	return CUDA_SUCCESS;
}

static CUresult work_add(CUgraphNode *phGraphNode, CUgraph hGraph,
			 const CUgraphNode *dependencies, size_t count,
			 CUcontext handle, const struct sim_work *work)
{
	struct sim_node *node;
	struct sim_ctx *ctx;

	if (handle)
		SIM_TRY(sim_ctx_check(handle, &ctx));
	else
		SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(node_add(phGraphNode, hGraph, dependencies, count,
			 sim_node_type_of(work), ctx, &node));
	sim_work_copy(&node->work, work);
	return CUDA_SUCCESS;
}

/* The node, or what it became in an executable graph. */
static CUresult node_check(CUgraphNode hNode, CUgraphNodeType type,
			   struct sim_node **ret_node)
{
	*ret_node = sim_object_check(hNode, SIM_NODE);
	if (!*ret_node || (*ret_node)->type != type)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* --- empty and child nodes ------------------------------------------------ */

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			     const CUgraphNode *dependencies, size_t numDependencies)
{
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuGraphAddEmptyNode);
	SIM_TRY(sim_ctx_current(&ctx));
	return node_add(phGraphNode, hGraph, dependencies, numDependencies,
			CU_GRAPH_NODE_TYPE_EMPTY, ctx, &node);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies,
				  size_t numDependencies, CUgraph childGraph)
{
	const struct sim_graph *child;
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuGraphAddChildGraphNode);
	child = sim_object_check(childGraph, SIM_GRAPH);
	if (!child)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_graph_is_single(child))
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(node_add(phGraphNode, hGraph, dependencies, numDependencies,
			 CU_GRAPH_NODE_TYPE_GRAPH, ctx, &node));
	node->child = sim_graph_clone(child);
	node->child->parent = node;
	return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	struct sim_node *node;

	SIM_LOCKED(cuGraphChildGraphNodeGetGraph);
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(node_check(hNode, CU_GRAPH_NODE_TYPE_GRAPH, &node));
	*phGraph = (CUgraph)node->child;
	return CUDA_SUCCESS;
}

/* --- kernels -------------------------------------------------------------- */

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	struct sim_work work;

	SIM_LOCKED(cuGraphAddKernelNode);
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_kernel_work(nodeParams->func, nodeParams->kernelParams,
				nodeParams->extra, &work));
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, NULL,
			&work);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies,
				 size_t numDependencies,
				 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sim_work work;

	SIM_LOCKED(cuGraphAddKernelNode_v2);
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_kernel_work(nodeParams->func ? nodeParams->func
						 : (CUfunction)nodeParams->kern,
				nodeParams->kernelParams, nodeParams->extra, &work));
	return work_add(phGraphNode, hGraph, dependencies, numDependencies,
			nodeParams->ctx, &work);
}

/* --- copies, sets, host functions ----------------------------------------- */

static CUresult copy_side(CUmemorytype type, const void *host, CUdeviceptr device,
			  size_t offset, uint64_t *ret_addr)
{
	if (type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret_addr =
	    (type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device) + offset;
	return CUDA_SUCCESS;
}

static CUresult copy_work(const CUDA_MEMCPY3D *p, struct sim_work *ret_work)
{
	struct sim_work work = {.kind = SIM_WORK_COPY, .duration_ns = 1000};

	if (!p || p->Depth != 1)
		return CUDA_ERROR_INVALID_VALUE;
	work.copy.bytes = p->WidthInBytes;
	work.copy.rows = p->Height;
	work.copy.dst_pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes;
	work.copy.src_pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes;
	SIM_TRY(copy_side(p->dstMemoryType, p->dstHost, p->dstDevice,
			  p->dstY * work.copy.dst_pitch + p->dstXInBytes,
			  &work.copy.dst));
	SIM_TRY(copy_side(p->srcMemoryType, p->srcHost, p->srcDevice,
			  p->srcY * work.copy.src_pitch + p->srcXInBytes,
			  &work.copy.src));
	if (sim_memory_find(work.copy.dst))
		work.access[work.accesses++] =
		    (struct sim_access){work.copy.dst, work.copy.bytes,
					work.copy.dst_pitch, work.copy.rows, SIM_WRITE};
	if (sim_memory_find(work.copy.src))
		work.access[work.accesses++] =
		    (struct sim_access){work.copy.src, work.copy.bytes,
					work.copy.src_pitch, work.copy.rows, SIM_READ};
	*ret_work = work;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct sim_work work;
	struct sim_ctx *known;

	SIM_LOCKED(cuGraphAddMemcpyNode);
	SIM_TRY(copy_work(copyParams, &work));
	SIM_TRY(sim_ctx_check(ctx, &known));
	if (sim_memory_is_foreign(work.copy.dst, known->device) ||
	    sim_memory_is_foreign(work.copy.src, known->device))
		return CUDA_ERROR_INVALID_VALUE;
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, ctx, &work);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, size_t numDependencies,
			      const CUDA_MEMSET_NODE_PARAMS *memsetParams,
			      CUcontext ctx)
{
	struct sim_work work;

	SIM_LOCKED(cuGraphAddMemsetNode);
	if (!memsetParams ||
	    (memsetParams->elementSize != 1 && memsetParams->elementSize != 2 &&
	     memsetParams->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	sim_set_work(&work, memsetParams->dst, memsetParams->pitch, memsetParams->value,
		     memsetParams->elementSize, memsetParams->width,
		     memsetParams->height);
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, ctx, &work);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode,
				    CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct sim_node *node;

	SIM_LOCKED(cuGraphMemsetNodeGetParams);
	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(node_check(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &node));
	*nodeParams = (CUDA_MEMSET_NODE_PARAMS){
	    .dst = node->work.set.dst,
	    .pitch = node->work.set.pitch,
	    .value = node->work.set.value,
	    .elementSize = node->work.set.width,
	    .width = node->work.set.count,
	    .height = node->work.set.rows,
	};
	return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
			    const CUgraphNode *dependencies, size_t numDependencies,
			    const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct sim_work work = {.kind = SIM_WORK_HOST};

	SIM_LOCKED(cuGraphAddHostNode);
	if (!nodeParams || !nodeParams->fn)
		return CUDA_ERROR_INVALID_VALUE;
	work.host.fn = nodeParams->fn;
	work.host.data = nodeParams->userData;
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, NULL,
			&work);
}

/* --- events --------------------------------------------------------------- */

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				   const CUgraphNode *dependencies,
				   size_t numDependencies, CUevent handle)
{
	struct sim_event *event;
	struct sim_node *node;

	SIM_LOCKED(cuGraphAddEventRecordNode);
	event = sim_object_check(handle, SIM_EVENT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(node_add(phGraphNode, hGraph, dependencies, numDependencies,
			 CU_GRAPH_NODE_TYPE_EVENT_RECORD, event->ctx, &node));
	node->event = event;
	return CUDA_SUCCESS;
}
