/* SPDX-License-Identifier: MIT */
/*
 * exec.c - executable graphs: made from graphs, updated, launched.
 *
 * An executable graph is a copy of its own. Its user objects belong to a hold,
 * shared with each launch until that is done. A launch puts all nodes onto the
 * device with their order, behind the stream and behind the graph's previous
 * launch. In the clocks, nodes continue the lane of one node before them or
 * take a new one. Under the big lock.
 */

#include "graph.h"

struct sim_exec {
	struct sim_object object;
	struct sim_graph *source; /* counts it, while source_id is its id */
	uint32_t source_id;
	struct sim_graph *graph;
	struct sim_hold *hold;
	unsigned long long flags;
	struct sim_op *last; /* of the previous launch */
	struct sim_vc last_vc;
};

/* --- making --------------------------------------------------------------- */

static void users_gather(struct sim_user_refs *users, struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		const struct sim_node *node = graph->nodes.at[i];

		if (node->child)
			users_gather(users, node->child);
		for (uint32_t j = 0; j < node->body_count; j++)
			users_gather(users, node->bodies[j]);
	}
	sim_user_refs_share(users, &graph->users);
	sim_user_refs_free(&graph->users);
}

static void exec_load(struct sim_exec *exec, const struct sim_graph *graph)
{
	struct sim_user_refs users = {0};

	exec->graph = sim_graph_clone(graph);
	users_gather(&users, exec->graph);
	exec->hold = sim_hold_new(users);
}

/* Takes away, as long as there are any, nodes that come after none that is left. */
static bool has_circle(const struct sim_graph *graph)
{
	struct sim_nodes ready = {0};
	uint32_t left = graph->nodes.count;

	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		graph->nodes.at[i]->index = graph->nodes.at[i]->before.count;
		if (graph->nodes.at[i]->index == 0)
			sim_nodes_add(&ready, graph->nodes.at[i]);
	}
	for (; ready.count > 0; left--) {
		const struct sim_node *node = ready.at[--ready.count];

		for (uint32_t i = 0; i < node->after.count; i++)
			if (--node->after.at[i]->index == 0)
				sim_nodes_add(&ready, node->after.at[i]);
	}
	sim_nodes_clear(&ready);
	return left > 0;
}

static bool is_missing(uint64_t addr)
{
	const struct sim_alloc *alloc = sim_memory_find(addr);

	return alloc && alloc->kind == SIM_MEMORY_RESERVED &&
	       !sim_physical_name(alloc, addr);
}

/* Copies are looked at when the executable is made (measured), kernels and sets not. */
static bool has_missing_memory(const struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		const struct sim_node *node = graph->nodes.at[i];
		const struct sim_work *work = &node->work;

		if (node->child && has_missing_memory(node->child))
			return true;
		if (work->kind == SIM_WORK_COPY &&
		    (is_missing(work->copy.dst) ||
		     (!work->copy.staged && is_missing(work->copy.src))))
			return true;
	}
	return false;
}

/* Its graph may have another executable. */
static void source_leave(const struct sim_exec *exec)
{
	struct sim_graph *graph = exec->source;

	if (graph->object.id == exec->source_id)
		graph->execs--;
}

static CUresult instantiate(CUgraphExec *phGraphExec, CUgraph hGraph,
			    unsigned long long flags)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_exec *exec;

	SIM_FAIL_IF(INVALID_VALUE, !phGraphExec || !graph);
	SIM_FAIL_IF(NOT_SUPPORTED,
		    graph->parent || (graph->execs > 0 && sim_graph_is_single(graph)));
	SIM_FAIL_IF(INVALID_VALUE, has_circle(graph) ||
				       !sim_conditions_allowed(graph) ||
				       has_missing_memory(graph));
	SIM_FAIL_IF(NOT_SUPPORTED, flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	SIM_TRY(sim_capture_unsafe());
	exec = sim_object_new(SIM_EXEC, sizeof(*exec));
	exec->flags = flags;
	exec->source = graph;
	exec->source_id = graph->object.id;
	graph->execs++;
	exec_load(exec, graph);
	*phGraphExec = (CUgraphExec)exec;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphInstantiate_v2)
{
	if (logBuffer && bufferSize)
		*logBuffer = 0;
	return instantiate(phGraphExec, hGraph, 0);
}

SIM_FORWARD(cuGraphInstantiateWithFlags, instantiate(phGraphExec, hGraph, flags))

SIM_ENTRY(cuGraphInstantiateWithParams)
{
	CUresult result;

	SIM_FAIL_IF(INVALID_VALUE, !instantiateParams);
	result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out =
	    result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return result;
}

SIM_ENTRY(cuGraphExecGetFlags)
{
	const struct sim_exec *exec = sim_object_check(hGraphExec, SIM_EXEC);

	SIM_FAIL_IF(INVALID_VALUE, !exec || !flags);
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

struct sim_node *sim_exec_node(CUgraphExec handle, const struct sim_node *node)
{
	const struct sim_exec *exec = sim_object_check(handle, SIM_EXEC);

	for (uint32_t i = 0; exec && i < exec->graph->nodes.count; i++)
		if (exec->graph->nodes.at[i]->original == node)
			return exec->graph->nodes.at[i];
	return NULL;
}

/* A graph with conditional nodes is not taken from under its launches. */
static void conditional_wait(struct sim_exec *exec)
{
	struct sim_op *last = exec->last;
	bool conditional = false;

	for (uint32_t i = 0; i < exec->graph->nodes.count; i++)
		conditional |= exec->graph->nodes.at[i]->body_count > 0;
	if (!conditional || !last)
		return;
	sim_op_get(last);
	sim_op_wait(last);
	sim_op_put(last);
	sim_vc_join(&sim.host, &exec->last_vc);
}

/* Launches in flight go on; their hold keeps what they need. */
SIM_ENTRY(cuGraphExecDestroy)
{
	struct sim_exec *exec = sim_object_check(hGraphExec, SIM_EXEC);

	SIM_FAIL_IF(INVALID_VALUE, !exec);
	SIM_TRY(sim_capture_unsafe());
	conditional_wait(exec);
	source_leave(exec);
	sim_graph_delete(exec->graph);
	sim_hold_put(exec->hold);
	sim_op_put(exec->last);
	sim_vc_free(&exec->last_vc);
	sim_object_delete(exec);
	return CUDA_SUCCESS;
}

/* --- updating ------------------------------------------------------------- */

static bool same_edges(const struct sim_node *x, const struct sim_node *y)
{
	if (x->before.count != y->before.count)
		return false;
	for (uint32_t j = 0; j < x->before.count; j++)
		if (x->before.at[j]->index != y->before.at[j]->index)
			return false;
	return true;
}

static CUgraphExecUpdateResult compare(const struct sim_graph *a,
				       const struct sim_graph *b);

static CUgraphExecUpdateResult compare_inner(const struct sim_node *x,
					     const struct sim_node *y)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (x->body_count != y->body_count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (x->child)
		result = compare(x->child, y->child);
	for (uint32_t i = 0; !result && i < x->body_count; i++)
		result = compare(x->bodies[i], y->bodies[i]);
	return result;
}

static CUgraphExecUpdateResult compare(const struct sim_graph *a,
				       const struct sim_graph *b)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (a->nodes.count != b->nodes.count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (uint32_t i = 0; i < a->nodes.count; i++) {
		a->nodes.at[i]->index = i;
		b->nodes.at[i]->index = i;
	}
	for (uint32_t i = 0; !result && i < a->nodes.count; i++) {
		const struct sim_node *x = a->nodes.at[i], *y = b->nodes.at[i];

		if (!same_edges(x, y))
			result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		else if (x->type != y->type)
			result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		else
			result = compare_inner(x, y);
	}
	return result;
}

static CUresult exec_update(CUgraphExec hGraphExec, CUgraph hGraph,
			    CUgraphExecUpdateResult *ret_result)
{
	struct sim_exec *exec = sim_object_check(hGraphExec, SIM_EXEC);
	const struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_graph *old_graph;
	struct sim_hold *old_hold;

	SIM_FAIL_IF(INVALID_VALUE, !exec || !graph);
	*ret_result = compare(exec->graph, graph);
	SIM_FAIL_IF(GRAPH_EXEC_UPDATE_FAILURE,
		    *ret_result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
	old_graph = exec->graph;
	old_hold = exec->hold;
	exec_load(exec, graph);
	sim_graph_delete(old_graph);
	sim_hold_put(old_hold);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphExecUpdate)
{
	SIM_FAIL_IF(INVALID_VALUE, !updateResult_out);
	if (hErrorNode_out)
		*hErrorNode_out = NULL;
	return exec_update(hGraphExec, hGraph, updateResult_out);
}

SIM_ENTRY(cuGraphExecUpdate_v2)
{
	SIM_FAIL_IF(INVALID_VALUE, !resultInfo);
	resultInfo->errorNode = NULL;
	resultInfo->errorFromNode = NULL;
	return exec_update(hGraphExec, hGraph, &resultInfo->result);
}

/* --- launching ------------------------------------------------------------ */

/* What the first nodes of a graph, or of a child graph, come after. */
struct launch {
	struct sim_stream *stream;
	struct sim_ops before;
	struct sim_vc vc;
	uint32_t lane; /* to be continued by the first root */
	bool lane_continued;
	struct sim_ops leaves; /* what comes after everything waits for these */
	struct sim_vc leaves_vc;
	uint32_t *lanes; /* new ones, given up at the end */
	uint32_t lane_count, lane_capacity;
};

static uint32_t launch_lane(struct launch *top, struct launch *launch,
			    const struct sim_node *node)
{
	uint32_t lane;

	for (uint32_t i = 0; i < node->before.count; i++) {
		struct sim_node *before = node->before.at[i];

		if (before->lane_continued)
			continue;
		before->lane_continued = true;
		return before->lane;
	}
	if (node->before.count == 0 && !launch->lane_continued) {
		launch->lane_continued = true;
		return launch->lane;
	}
	lane = sim_lane_new();
	top->lanes = sim_grow(top->lanes, &top->lane_capacity, top->lane_count + 1,
			      sizeof(*top->lanes));
	top->lanes[top->lane_count++] = lane;
	return lane;
}

static void node_order(struct sim_node *node, const struct launch *launch,
		       struct sim_ops *before)
{
	sim_vc_clear(&node->vc);
	if (node->before.count == 0) {
		for (uint32_t i = 0; i < launch->before.count; i++)
			sim_ops_add(before, launch->before.at[i]);
		sim_vc_join(&node->vc, &launch->vc);
	}
	for (uint32_t i = 0; i < node->before.count; i++) {
		sim_ops_add(before, node->before.at[i]->op);
		sim_vc_join(&node->vc, &node->before.at[i]->vc);
	}
	if (node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && node->event->recorded) {
		sim_ops_add(before, node->event->op);
		sim_vc_join(&node->vc, &node->event->vc);
	}
}

static void node_declare(struct sim_node *node, const struct launch *launch)
{
	struct sim_epoch epoch = {sim_lane_next(node->lane), node->lane};
	struct sim_actor actor = {sim_work_name(&node->work), launch->stream->object.id,
				  epoch.seq};

	for (int i = 0; i < node->work.accesses; i++)
		sim_hazard_access(&node->work.access[i], epoch, &node->vc, &actor);
	sim_vc_set(&node->vc, epoch.lane, epoch.seq);
}

static void graph_submit(struct sim_graph *graph, struct launch *top,
			 struct launch *launch);

/* A child graph runs in its node's place; afterwards the node stands for the
 * end of it. */
static void child_submit(struct sim_node *node, struct launch *top,
			 struct sim_ops *before)
{
	struct launch inner = {.stream = top->stream, .lane = node->lane};
	struct sim_work nothing = {0};

	inner.before = *before;
	sim_vc_copy(&inner.vc, &node->vc);
	graph_submit(sim_node_inner(node), top, &inner);
	sim_vc_join(&node->vc, &inner.leaves_vc);
	sim_vc_set(&node->vc, node->lane, sim_lane_next(node->lane));
	node->op = sim_op_submit(node->ctx, &nothing,
				 inner.leaves.count ? &inner.leaves : before);
	sim_ops_free(&inner.leaves);
	sim_vc_free(&inner.vc);
	sim_vc_free(&inner.leaves_vc);
}

static void node_submit(struct sim_node *node, struct launch *top,
			struct launch *launch)
{
	struct sim_ops before = {0};

	node_order(node, launch, &before);
	node->lane = launch_lane(top, launch, node);
	node->lane_continued = false;
	if (sim_node_inner(node)) {
		child_submit(node, top, &before);
	} else {
		node_declare(node, launch);
		node->op = sim_op_submit(node->ctx, &node->work, &before);
		sim_copy_tell(&node->work, node->op, &node->vc);
	}
	sim_ops_free(&before);
	if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
		sim_ops_add(&before, node->op);
		sim_event_set(node->event, node->ctx, &before, &node->vc);
		sim_ops_free(&before);
	}
}

static bool is_next(const struct sim_node *node)
{
	if (node->op)
		return false;
	for (uint32_t i = 0; i < node->before.count; i++)
		if (!node->before.at[i]->op)
			return false;
	return true;
}

/* Nodes in an order that respects the edges; most graphs are sorted already. */
static void graph_submit(struct sim_graph *graph, struct launch *top,
			 struct launch *launch)
{
	uint32_t left = graph->nodes.count;

	while (left > 0) {
		for (uint32_t i = 0; i < graph->nodes.count; i++) {
			if (!is_next(graph->nodes.at[i]))
				continue;
			node_submit(graph->nodes.at[i], top, launch);
			left--;
		}
	}
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		struct sim_node *node = graph->nodes.at[i];

		if (node->after.count == 0) {
			sim_ops_add(&launch->leaves, node->op);
			sim_vc_join(&launch->leaves_vc, &node->vc);
		}
	}
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		sim_op_put(graph->nodes.at[i]->op);
		graph->nodes.at[i]->op = NULL;
	}
}

static void launch_end(struct sim_exec *exec, struct launch *launch)
{
	struct sim_stream *stream = launch->stream;
	struct sim_work nothing = {0};
	struct sim_hold *hold = sim_hold_get(exec->hold);
	struct sim_op *op;

	op = sim_op_submit(stream->ctx, &nothing,
			   launch->leaves.count ? &launch->leaves : &launch->before);
	if (sim_op_done(op))
		sim_hold_put(hold);
	else
		op->hold = hold;
	sim_stream_set_tail(stream, op);
	sim_op_put(exec->last);
	exec->last = op;
	sim_vc_join(&launch->vc, &launch->leaves_vc);
	sim_vc_set(&launch->vc, stream->lane, sim_lane_next(stream->lane));
	sim_vc_copy(&stream->vc, &launch->vc);
	sim_vc_copy(&exec->last_vc, &launch->vc);
	sim_hold_launched(exec->hold, &launch->vc);
	for (uint32_t i = 0; i < launch->lane_count; i++)
		sim_lane_delete(launch->lanes[i]);
}

static struct sim_alloc *memory_of(const struct sim_node *node, CUgraphNodeType type)
{
	return node->type == type ? sim_memory_find(node->work.memory.addr) : NULL;
}

/* Whether it allocates what an earlier launch has allocated and nothing freed. */
static bool has_unfreed(const struct sim_graph *graph)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		const struct sim_alloc *alloc =
		    memory_of(graph->nodes.at[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);

		if (alloc && alloc->unfreed)
			return true;
	}
	return false;
}

static void memory_launched(const struct sim_graph *graph, CUgraphNodeType type)
{
	for (uint32_t i = 0; i < graph->nodes.count; i++) {
		struct sim_alloc *alloc = memory_of(graph->nodes.at[i], type);

		if (alloc)
			alloc->unfreed = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	}
}

/* With AUTO_FREE_ON_LAUNCH a launch frees first what the one before it has left, and
 * without it fails (CUDA's documentation; never compared with a driver). */
static CUresult memory_check(const struct sim_exec *exec)
{
	return !(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) &&
		       has_unfreed(exec->graph)
		   ? CUDA_ERROR_INVALID_VALUE
		   : CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphLaunch)
{
	struct sim_exec *exec = sim_object_check(hGraphExec, SIM_EXEC);
	struct launch launch = {0};

	SIM_FAIL_IF(INVALID_VALUE, !exec);
	SIM_STREAM(stream, hStream);
	if (stream->capture)
		return sim_capture_refuse(stream);
	SIM_TRY(memory_check(exec));
	launch.stream = stream;
	launch.lane = stream->lane;
	sim_stream_before(stream, &launch.before, &launch.vc);
	sim_ops_add(&launch.before, exec->last);
	sim_vc_join(&launch.vc, &exec->last_vc);
	graph_submit(exec->graph, &launch, &launch);
	launch_end(exec, &launch);
	memory_launched(exec->graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	memory_launched(exec->graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
	sim_ops_free(&launch.before);
	sim_ops_free(&launch.leaves);
	sim_vc_free(&launch.vc);
	sim_vc_free(&launch.leaves_vc);
	free(launch.lanes);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuGraphUpload)
{
	SIM_FAIL_IF(INVALID_VALUE, !sim_object_check(hGraphExec, SIM_EXEC));
	SIM_STREAM(stream, hStream);
	return stream->capture ? sim_capture_refuse(stream) : CUDA_SUCCESS;
}
