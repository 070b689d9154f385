/* SPDX-License-Identifier: MIT */
/*
 * graph.c - graphs and their nodes: life, shape, and asking for both.
 *
 * A graph owns its nodes; edges are kept at both ends. Called by capture.c,
 * graph_nodes.c and exec.c, under the big lock. Runs nothing.
 */
#include "graph.h"

/* --- lists of nodes ------------------------------------------------------- */

void sim_nodes_add(struct sim_nodes *nodes, struct sim_node *node)
{
	for (uint32_t i = 0; i < nodes->count; i++)
		if (nodes->at[i] == node)
			return;
	nodes->at = sim_grow(nodes->at, &nodes->capacity, nodes->count + 1,
			     sizeof(struct sim_node *));
	nodes->at[nodes->count++] = node;
}

static void nodes_remove(struct sim_nodes *nodes, const struct sim_node *node)
{
	for (uint32_t i = 0; i < nodes->count; i++) {
		if (nodes->at[i] != node)
			continue;
		for (uint32_t j = i + 1; j < nodes->count; j++)
			nodes->at[j - 1] = nodes->at[j];
		nodes->count--;
		return;
	}
}

void sim_nodes_clear(struct sim_nodes *nodes)
{
	free(nodes->at);
	*nodes = (struct sim_nodes){0};
}

/* Walks against the edges. A mark tells which walk saw a node last. */
bool sim_nodes_reach(const struct sim_nodes *ends, const struct sim_node *node)
{
	static uint32_t walk;
	struct sim_nodes open = {0};
	bool found = false;

	walk++;
	for (uint32_t i = 0; i < ends->count; i++)
		sim_nodes_add(&open, ends->at[i]);
	while (open.count > 0 && !found) {
		struct sim_node *top = open.at[--open.count];

		if (top->mark == walk)
			continue;
		top->mark = walk;
		found = top == node;
		for (uint32_t i = 0; i < top->before.count; i++)
			if (top->before.at[i]->mark != walk)
				sim_nodes_add(&open, top->before.at[i]);
	}
	sim_nodes_clear(&open);
	return found;
}

bool sim_nodes_of_graph(const struct sim_graph *graph, const CUgraphNode *nodes,
			size_t count)
{
	if (count && !nodes)
		return false;
	for (size_t i = 0; i < count; i++) {
		const struct sim_node *node = sim_object_check(nodes[i], SIM_NODE);

		if (!node || node->graph != graph)
			return false;
	}
	return true;
}

/* --- nodes ---------------------------------------------------------------- */

CUgraphNodeType sim_node_type_of(const struct sim_work *work)
{
	switch (work->kind) {
	case SIM_WORK_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case SIM_WORK_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case SIM_WORK_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case SIM_WORK_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case SIM_WORK_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case SIM_WORK_FREE:
	case SIM_WORK_GRAPH_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	case SIM_WORK_NOTHING:
		break;
	}
	return CU_GRAPH_NODE_TYPE_EMPTY;
}

struct sim_node *sim_node_new(struct sim_graph *graph, CUgraphNodeType type,
			      struct sim_ctx *ctx)
{
	struct sim_node *node = sim_object_new(SIM_NODE, sizeof(*node));

	node->graph = graph;
	sim.latest_node = node->object.id;
	node->type = type;
	node->ctx = ctx;
	graph->nodes.at = sim_grow(graph->nodes.at, &graph->nodes.capacity,
				   graph->nodes.count + 1, sizeof(struct sim_node *));
	graph->nodes.at[graph->nodes.count++] = node;
	return node;
}

void sim_node_depend(struct sim_node *node, struct sim_node *before)
{
	sim_nodes_add(&node->before, before);
	sim_nodes_add(&before->after, node);
}

static void node_delete(struct sim_node *node)
{
	if (node->child)
		sim_graph_delete(node->child);
	sim_bodies_delete(node);
	sim_work_finish(&node->work);
	sim_nodes_clear(&node->before);
	sim_nodes_clear(&node->after);
	sim_vc_free(&node->vc);
	sim_object_delete(node);
}

/* --- graphs --------------------------------------------------------------- */

bool sim_graph_has_memory(const struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++)
		if (graph->nodes.at[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    graph->nodes.at[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return true;
	return false;
}

bool sim_graph_is_single(const struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++)
		if (graph->nodes.at[i]->body_count > 0)
			return true;
	return sim_graph_has_memory(graph);
}

struct sim_graph *sim_graph_new(void)
{
	return sim_object_new(SIM_GRAPH, sizeof(struct sim_graph));
}

void sim_graph_delete(struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++)
		node_delete(graph->nodes.at[i]);
	sim_nodes_clear(&graph->nodes);
	sim_user_refs_free(&graph->users);
	sim_conditions_free(graph);
	sim_object_delete(graph);
}

static void node_copy(struct sim_node *node, struct sim_node *from)
{
	sim_work_copy(&node->work, &from->work);
	node->event = from->event;
	node->original = from;
	sim_bodies_copy(node, from);
	if (from->child) {
		node->child = sim_graph_clone(from->child);
		node->child->parent = node;
	}
}

struct sim_graph *sim_graph_clone(const struct sim_graph *from)
{
	struct sim_graph *graph = sim_graph_new();

	graph->original = from;
	for (uint32_t i = 0; i < from->nodes.count; i++) {
		struct sim_node *old = from->nodes.at[i];

		node_copy(sim_node_new(graph, old->type, old->ctx), old);
		old->index = i;
	}
	for (uint32_t i = 0; i < from->nodes.count; i++) {
		const struct sim_node *old = from->nodes.at[i];

		for (uint32_t j = 0; j < old->before.count; j++)
			sim_node_depend(graph->nodes.at[i],
					graph->nodes.at[old->before.at[j]->index]);
	}
	sim_user_refs_share(&graph->users, &from->users);
	return graph;
}

/* --- entry points: graphs ------------------------------------------------- */

SIM_ENTRY(cuGraphCreate)
{
	SIM_FAIL_IF(INVALID_VALUE, !phGraph || flags != 0);
	*phGraph = (CUgraph)sim_graph_new();
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphDestroy)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);

	SIM_FAIL_IF(ILLEGAL_STATE, graph && graph->capturing);
	SIM_FAIL_IF(INVALID_VALUE, !graph || graph->parent);
	sim_graph_delete(graph);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphClone)
{
	struct sim_graph *graph = sim_object_check(originalGraph, SIM_GRAPH);

	SIM_FAIL_IF(INVALID_VALUE, !phGraphClone || !graph);
	SIM_FAIL_IF(NOT_SUPPORTED, graph->parent || sim_graph_is_single(graph));
	*phGraphClone = (CUgraph)sim_graph_clone(graph);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphNodeFindInClone)
{
	const struct sim_graph *graph = sim_object_check(hClonedGraph, SIM_GRAPH);

	SIM_FAIL_IF(INVALID_VALUE, !phNode || !graph);
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		if (graph->nodes.at[i]->original != (struct sim_node *)hOriginalNode)
			continue;
		*phNode = (CUgraphNode)graph->nodes.at[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* --- entry points: the shape ---------------------------------------------- */

/* The way CUDA hands out lists: no array asks for the number; a longer array
 * than needed is filled up with NULL. */
static CUresult nodes_give(const struct sim_nodes *nodes, CUgraphNode *out,
			   size_t *count)
{
	SIM_FAIL_IF(INVALID_VALUE, !count);
	if (!out) {
		*count = nodes->count;
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < *count; i++)
		out[i] = i < nodes->count ? (CUgraphNode)nodes->at[i] : NULL;
	if (*count > nodes->count)
		*count = nodes->count;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphGetNodes)
{
	const struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);

	return graph ? nodes_give(&graph->nodes, nodes, numNodes)
		     : CUDA_ERROR_INVALID_VALUE;
}

SIM_ENTRY(cuGraphGetRootNodes)
{
	const struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_nodes roots = {0};
	CUresult result;

	SIM_FAIL_IF(INVALID_VALUE, !graph);
	for (uint32_t i = 0; i < graph->nodes.count; i++)
		if (graph->nodes.at[i]->before.count == 0)
			sim_nodes_add(&roots, graph->nodes.at[i]);
	result = nodes_give(&roots, rootNodes, numRootNodes);
	sim_nodes_clear(&roots);
	return result;
}

static CUresult edges_give(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
			   size_t *numEdges)
{
	const struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	size_t count = 0;

	SIM_FAIL_IF(INVALID_VALUE, !graph || !numEdges || !from != !to);
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		struct sim_node *node = graph->nodes.at[i];

		for (uint32_t j = 0; j < node->before.count; j++, count++) {
			if (!from || count >= *numEdges)
				continue;
			from[count] = (CUgraphNode)node->before.at[j];
			to[count] = (CUgraphNode)node;
		}
	}
	if (!from || *numEdges > count)
		*numEdges = count;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuGraphGetEdges, edges_give(hGraph, from, to, numEdges))

SIM_ENTRY(cuGraphGetEdges_v2)
{
	SIM_TRY(edges_give(hGraph, from, to, numEdges));
	for (size_t i = 0; edgeData && from && i < *numEdges; i++)
		edgeData[i] = (CUgraphEdgeData){0};
	return CUDA_SUCCESS;
}

static CUresult before_give(CUgraphNode hNode, CUgraphNode *out, size_t *count)
{
	const struct sim_node *node = sim_object_check(hNode, SIM_NODE);

	SIM_FAIL_IF(INVALID_VALUE, !node);
	return nodes_give(&node->before, out, count);
}

SIM_FORWARD(cuGraphNodeGetDependencies,
	    before_give(hNode, dependencies, numDependencies))

SIM_ENTRY(cuGraphNodeGetDependencies_v2)
{
	SIM_TRY(before_give(hNode, dependencies, numDependencies));
	for (size_t i = 0; edgeData && dependencies && i < *numDependencies; i++)
		edgeData[i] = (CUgraphEdgeData){0};
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphNodeGetType)
{
	const struct sim_node *node = sim_object_check(hNode, SIM_NODE);

	SIM_FAIL_IF(INVALID_VALUE, !node || !type);
	*type = node->type;
	return CUDA_SUCCESS;
}

/* Of a driver that is newer than the library. */
SIM_FORWARD(cuGraphNodeGetType_v2, cuGraphNodeGetType(hNode, type))

/* --- entry points: changing the shape ------------------------------------------- */

static bool edge_exists(const struct sim_node *from, const struct sim_node *to)
{
	for (uint32_t i = 0; i < to->before.count; i++)
		if (to->before.at[i] == from)
			return true;
	return false;
}

static CUresult edges_check(const struct sim_graph *graph, const CUgraphNode *from,
			    const CUgraphNode *to, size_t count)
{
	SIM_FAIL_IF(INVALID_VALUE, !graph || !sim_nodes_of_graph(graph, from, count) ||
				       !sim_nodes_of_graph(graph, to, count));
	return CUDA_SUCCESS;
}

static CUresult edges_add(CUgraph hGraph, const CUgraphNode *from,
			  const CUgraphNode *to, size_t count)
{
	SIM_TRY(edges_check(sim_object_check(hGraph, SIM_GRAPH), from, to, count));
	/* What comes before a wrong one stays. A circle is found when instantiating. */
	for (size_t i = 0; i < count; i++) {
		struct sim_node *target = (struct sim_node *)to[i];
		struct sim_node *source = (struct sim_node *)from[i];

		SIM_FAIL_IF(INVALID_VALUE,
			    source == target || edge_exists(source, target));
		sim_plain_node(&target->before, source);
		sim_node_depend(target, source);
	}
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuGraphAddDependencies, edges_add(hGraph, from, to, numDependencies))
SIM_FORWARD(cuGraphAddDependencies_v2, edges_add(hGraph, from, to, numDependencies))

static CUresult edges_remove(CUgraph hGraph, const CUgraphNode *from,
			     const CUgraphNode *to, size_t count)
{
	const struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);

	SIM_TRY(edges_check(graph, from, to, count));
	SIM_FAIL_IF(NOT_SUPPORTED, sim_graph_has_memory(graph));
	for (size_t i = 0; i < count; i++) {
		struct sim_node *source = (struct sim_node *)from[i];
		struct sim_node *target = (struct sim_node *)to[i];

		SIM_FAIL_IF(INVALID_VALUE, !edge_exists(source, target));
		nodes_remove(&target->before, source);
		nodes_remove(&source->after, target);
	}
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuGraphRemoveDependencies, edges_remove(hGraph, from, to, numDependencies))
SIM_FORWARD(cuGraphRemoveDependencies_v2,
	    edges_remove(hGraph, from, to, numDependencies))

SIM_ENTRY(cuGraphDestroyNode)
{
	struct sim_node *node = sim_object_check(hNode, SIM_NODE);

	SIM_FAIL_IF(INVALID_VALUE, !node);
	SIM_FAIL_IF(ILLEGAL_STATE, node->graph->capturing);
	SIM_FAIL_IF(NOT_SUPPORTED, sim_graph_has_memory(node->graph));
	for (uint32_t i = 0; i < node->before.count; i++)
		nodes_remove(&node->before.at[i]->after, node);
	for (uint32_t i = 0; i < node->after.count; i++)
		nodes_remove(&node->after.at[i]->before, node);
	nodes_remove(&node->graph->nodes, node);
	node_delete(node);
	return CUDA_SUCCESS;
}
