/* SPDX-License-Identifier: MIT */
/*
 * graph_nodes.c - adding nodes to graphs by hand, and changing what they do.
 * Entry points, under the big lock. Sets of arrays are not simulated.
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

	SIM_FAIL_IF(INVALID_VALUE, !phGraphNode || !graph ||
				       !sim_nodes_of_graph(graph, dependencies, count));
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
	SIM_FAIL_IF(INVALID_VALUE, !*ret_node || (*ret_node)->type != type);
	return CUDA_SUCCESS;
}

/* --- empty and child nodes ------------------------------------------------ */

SIM_ENTRY(cuGraphAddEmptyNode)
{
	struct sim_node *node;

	SIM_CURRENT(ctx);
	return node_add(phGraphNode, hGraph, dependencies, numDependencies,
			CU_GRAPH_NODE_TYPE_EMPTY, ctx, &node);
}

SIM_ENTRY(cuGraphAddChildGraphNode)
{
	const struct sim_graph *child = sim_object_check(childGraph, SIM_GRAPH);
	struct sim_node *node;

	SIM_FAIL_IF(INVALID_VALUE, !child);
	SIM_FAIL_IF(NOT_SUPPORTED, sim_graph_is_single(child));
	SIM_CURRENT(ctx);
	SIM_TRY(node_add(phGraphNode, hGraph, dependencies, numDependencies,
			 CU_GRAPH_NODE_TYPE_GRAPH, ctx, &node));
	node->child = sim_graph_clone(child);
	node->child->parent = node;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphChildGraphNodeGetGraph)
{
	SIM_FAIL_IF(INVALID_VALUE, !phGraph);
	SIM_GET(sim_node, node, node_check, hNode, CU_GRAPH_NODE_TYPE_GRAPH);
	*phGraph = (CUgraph)node->child;
	return CUDA_SUCCESS;
}

/* --- kernels -------------------------------------------------------------- */

SIM_ENTRY(cuGraphAddKernelNode)
{
	struct sim_work work;

	SIM_FAIL_IF(INVALID_VALUE, !nodeParams);
	SIM_TRY(sim_kernel_work(nodeParams->func, nodeParams->kernelParams,
				nodeParams->extra, &work));
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, NULL,
			&work);
}

SIM_ENTRY(cuGraphAddKernelNode_v2)
{
	struct sim_work work;

	SIM_FAIL_IF(INVALID_VALUE, !nodeParams);
	SIM_TRY(sim_kernel_work(nodeParams->func ? nodeParams->func
						 : (CUfunction)nodeParams->kern,
				nodeParams->kernelParams, nodeParams->extra, &work));
	return work_add(phGraphNode, hGraph, dependencies, numDependencies,
			nodeParams->ctx, &work);
}

/* --- sets, host functions ---------------------------------------------- */

SIM_ENTRY(cuGraphAddMemsetNode)
{
	struct sim_work work;

	SIM_FAIL_IF(INVALID_VALUE, !memsetParams || (memsetParams->elementSize != 1 &&
						     memsetParams->elementSize != 2 &&
						     memsetParams->elementSize != 4));
	sim_set_work(&work, memsetParams->dst, memsetParams->pitch, memsetParams->value,
		     memsetParams->elementSize, memsetParams->width,
		     memsetParams->height);
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, ctx, &work);
}

SIM_ENTRY(cuGraphMemsetNodeGetParams)
{
	SIM_FAIL_IF(INVALID_VALUE, !nodeParams);
	SIM_GET(sim_node, node, node_check, hNode, CU_GRAPH_NODE_TYPE_MEMSET);
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

SIM_ENTRY(cuGraphAddHostNode)
{
	struct sim_work work = {.kind = SIM_WORK_HOST};

	SIM_FAIL_IF(INVALID_VALUE, !nodeParams || !nodeParams->fn);
	work.host.fn = nodeParams->fn;
	work.host.data = nodeParams->userData;
	return work_add(phGraphNode, hGraph, dependencies, numDependencies, NULL,
			&work);
}

/* --- events --------------------------------------------------------------- */

SIM_ENTRY(cuGraphAddEventRecordNode)
{
	struct sim_event *event = sim_object_check(handle, SIM_EVENT);
	struct sim_node *node;

	SIM_FAIL_IF(INVALID_HANDLE, !event);
	SIM_TRY(node_add(phGraphNode, hGraph, dependencies, numDependencies,
			 CU_GRAPH_NODE_TYPE_EVENT_RECORD, event->ctx, &node));
	node->event = event;
	return CUDA_SUCCESS;
}
