/* SPDX-License-Identifier: MIT */
/*
 * graph_conditional.c - conditional nodes: handles, and nodes whose bodies run or not;
 * and nodes of any kind, as far as they hold graphs.
 *
 * A simulated kernel cannot set a condition, so a condition is what its handle has
 * begun with, and the body of a WHILE node runs once at most. Entry points, under the
 * big lock; exec.c runs what sim_node_inner says.
 */
#include "graph.h"

/* A graph's, in order of creation. */
struct sim_condition {
	cuuint64_t handle;
	unsigned value;
	bool used; /* a node has it */
	struct sim_condition *next;
};

static cuuint64_t last_handle;

void sim_conditions_free(struct sim_graph *graph)
{
	while (graph->conditions) {
		struct sim_condition *next = graph->conditions->next;

		free(graph->conditions);
		graph->conditions = next;
	}
}

void sim_bodies_delete(struct sim_node *node)
{
	for (uint32_t i = 0; i < node->body_count; i++)
		sim_graph_delete(node->bodies[i]);
	free(node->bodies);
	node->bodies = NULL;
	node->body_count = 0;
}

static void bodies_new(struct sim_node *node, uint32_t count)
{
	node->bodies = sim_calloc(count * sizeof(*node->bodies));
	node->body_count = count;
}

void sim_bodies_copy(struct sim_node *node, const struct sim_node *from)
{
	node->condition = from->condition;
	node->condition_type = from->condition_type;
	if (from->body_count == 0)
		return;
	bodies_new(node, from->body_count);
	for (uint32_t i = 0; i < from->body_count; i++) {
		node->bodies[i] = sim_graph_clone(from->bodies[i]);
		node->bodies[i]->parent = node;
	}
}

struct sim_graph *sim_node_inner(const struct sim_node *node)
{
	uint32_t body = node->condition;

	if (node->body_count == 0)
		return node->child;
	if (node->condition_type != CU_GRAPH_COND_TYPE_SWITCH)
		body = node->condition ? 0 : 1;
	return body < node->body_count ? node->bodies[body] : NULL;
}

/* Whether a body has only what may be in one. */
static bool body_allowed(const struct sim_graph *body)
{
	for (uint32_t i = 0; i < body->nodes.count; i++) {
		const struct sim_node *node = body->nodes.at[i];

		switch ((int)node->type) {
		case CU_GRAPH_NODE_TYPE_KERNEL:
		case CU_GRAPH_NODE_TYPE_MEMCPY:
		case CU_GRAPH_NODE_TYPE_MEMSET:
		case CU_GRAPH_NODE_TYPE_EMPTY:
		case CU_GRAPH_NODE_TYPE_CONDITIONAL:
			break;
		case CU_GRAPH_NODE_TYPE_GRAPH:
			if (!body_allowed(node->child))
				return false;
			break;
		default:
			return false;
		}
	}
	return sim_conditions_allowed(body);
}

bool sim_conditions_allowed(const struct sim_graph *graph)
{
	const struct sim_condition *condition = graph->conditions;

	for (; condition; condition = condition->next)
		if (!condition->used)
			return false;
	for (uint32_t i = 0; i < graph->nodes.count; i++)
		for (uint32_t j = 0; j < graph->nodes.at[i]->body_count; j++)
			if (!body_allowed(graph->nodes.at[i]->bodies[j]))
				return false;
	return true;
}

SIM_ENTRY(cuGraphConditionalHandleCreate)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_condition *condition;
	struct sim_ctx *its_ctx;

	SIM_FAIL_IF(INVALID_VALUE,
		    !pHandle_out || !graph ||
			(flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT));
	SIM_TRY(sim_ctx_check(ctx, &its_ctx));
	condition = sim_calloc(sizeof(*condition));
	condition->handle = ++last_handle;
	condition->value =
	    flags & CU_GRAPH_COND_ASSIGN_DEFAULT ? defaultLaunchValue : 0;
	condition->next = graph->conditions;
	graph->conditions = condition;
	*pHandle_out = condition->handle;
	return CUDA_SUCCESS;
}

static struct sim_condition *condition_find(const struct sim_graph *graph,
					    cuuint64_t handle)
{
	struct sim_condition *condition = graph->conditions;

	while (condition && condition->handle != handle)
		condition = condition->next;
	return condition;
}

static bool size_allowed(const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	switch (params->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return params->size == 1 || params->size == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return params->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return params->size > 0;
	}
	return false;
}

static CUresult conditional_add(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t count,
				CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_condition *condition;
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_FAIL_IF(INVALID_VALUE,
		    !phGraphNode || !graph ||
			!sim_nodes_of_graph(graph, dependencies, count) ||
			!size_allowed(params));
	condition = condition_find(graph, params->handle);
	SIM_FAIL_IF(INVALID_VALUE, !condition || condition->used);
	if (params->ctx)
		SIM_TRY(sim_ctx_check(params->ctx, &ctx));
	else
		SIM_TRY(sim_ctx_current(&ctx));
	node = sim_node_new(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL, ctx);
	for (size_t i = 0; i < count; i++)
		sim_node_depend(node, (struct sim_node *)dependencies[i]);
	condition->used = true;
	node->condition = condition->value;
	node->condition_type = params->type;
	bodies_new(node, params->size);
	for (uint32_t i = 0; i < params->size; i++) {
		node->bodies[i] = sim_graph_new();
		node->bodies[i]->parent = node;
	}
	params->phGraph_out = (CUgraph *)node->bodies;
	*phGraphNode = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

/* A child graph that moves is a part of its parent from now on, under its handle. */
static CUresult child_add(CUgraphNode *phGraphNode, CUgraph hGraph,
			  const CUgraphNode *dependencies, size_t count,
			  const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_graph *child = sim_object_check(params->graph, SIM_GRAPH);
	bool moves = params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	struct sim_node *node;

	SIM_FAIL_IF(INVALID_VALUE, !phGraphNode || !graph || !child || child->parent ||
				       !sim_nodes_of_graph(graph, dependencies, count));
	SIM_FAIL_IF(NOT_SUPPORTED, sim_graph_is_single(child));
	SIM_CURRENT(ctx);
	node = sim_node_new(graph, CU_GRAPH_NODE_TYPE_GRAPH, ctx);
	for (size_t i = 0; i < count; i++)
		sim_node_depend(node, (struct sim_node *)dependencies[i]);
	node->child = moves ? child : sim_graph_clone(child);
	node->child->parent = node;
	*phGraphNode = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphEmbedInvented)
{
	const CUDA_CHILD_GRAPH_NODE_PARAMS params = {
	    childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
	CUgraphNode node;

	return child_add(&node, hGraph, NULL, 0, &params);
}

/* What runs in place of the node is a copy of another graph. */
static CUresult child_set(struct sim_node *node, CUgraph hGraph)
{
	const struct sim_graph *child = sim_object_check(hGraph, SIM_GRAPH);

	SIM_FAIL_IF(INVALID_VALUE, !node || !node->child || !child);
	sim_graph_delete(node->child);
	node->child = sim_graph_clone(child);
	node->child->parent = node;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuGraphExecChildGraphNodeSetParams,
	    child_set(sim_exec_node(hGraphExec, (struct sim_node *)hNode), childGraph))

SIM_ENTRY(cuGraphExecNodeSetParams)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !nodeParams || nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH);
	return child_set(sim_exec_node(hGraphExec, (struct sim_node *)hNode),
			 nodeParams->graph.graph);
}

SIM_ENTRY(cuGraphNodeSetParams)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !nodeParams || nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH);
	return child_set(sim_object_check(hNode, SIM_NODE), nodeParams->graph.graph);
}

/* Of the many sorts of nodes only those that hold graphs. */
static CUresult any_add(CUgraphNode *phGraphNode, CUgraph hGraph,
			const CUgraphNode *dependencies, size_t count,
			CUgraphNodeParams *params)
{
	SIM_FAIL_IF(INVALID_VALUE, !params);
	if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return child_add(phGraphNode, hGraph, dependencies, count,
				 &params->graph);
	SIM_FAIL_IF(NOT_SUPPORTED, params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL);
	return conditional_add(phGraphNode, hGraph, dependencies, count,
			       &params->conditional);
}

SIM_FORWARD(cuGraphAddNode,
	    any_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
SIM_FORWARD(cuGraphAddNode_v2,
	    any_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
