/* SPDX-License-Identifier: MIT */
/*
 * capture.c - stream captures: which streams capture, what makes a capture invalid, and
 * which calls may not be made meanwhile.
 *
 * A capture collects work of its streams as nodes of a graph. Each stream that
 * takes part keeps its frontier, the nodes that its next one depends on. The
 * rules and codes are those of conform_legality.golden and conform_codes.golden,
 * recorded from NVIDIA's driver. Called by stream.c, event.c, context.c and the
 * memory entry points, under the big lock. Runs nothing.
 */
#include "graph.h"

static struct sim_capture *captures;
static uint64_t capture_ids;

/* --- which, and whether it is lost ---------------------------------------- */

static struct sim_capture *capture_find(uint64_t id)
{
	struct sim_capture *c = captures;

	while (c && c->id != id)
		c = c->next;
	return c;
}

static void invalidate(struct sim_capture *c)
{
	if (!c->invalid)
		__atomic_fetch_add(&sim.invalidated, 1, __ATOMIC_RELAXED);
	c->invalid = true;
}

static void stream_leave(struct sim_stream *stream)
{
	stream->capture = NULL;
	sim_nodes_clear(&stream->frontier);
}

/* Takes the capture down; its graph goes to the caller. */
static struct sim_graph *capture_close(struct sim_capture *c)
{
	struct sim_capture **link = &captures;
	struct sim_graph *graph = c->graph;

	for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next)
		for (struct sim_stream *s = ctx->streams; s; s = s->next)
			if (s->capture == c)
				stream_leave(s);
	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	sim_nodes_clear(&c->orphans);
	graph->capturing = false;
	free(c);
	return graph;
}

void sim_capture_stream_gone(struct sim_stream *stream)
{
	struct sim_capture *c = stream->capture;

	if (!c)
		return;
	if (c->origin == stream) {
		struct sim_graph *graph = capture_close(c);

		/* What a green context takes with it is never heard of again. */
		if (!(stream->ctx->parent && stream->object.orphan))
			sim_graph_delete(graph);
		return;
	}
	for (uint32_t i = 0; i < stream->frontier.count; i++)
		sim_nodes_add(&c->orphans, stream->frontier.at[i]);
	stream_leave(stream);
}

/* --- what may not be done meanwhile --------------------------------------- */

CUresult sim_capture_unsafe(void)
{
	const struct sim_thread *self = sim_thread_self();
	CUresult result = CUDA_SUCCESS;

	if (self->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct sim_capture *c = captures; c; c = c->next) {
		bool own =
		    c->thread == self->id && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		bool global = self->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (!own && !global)
			continue;
		invalidate(c);
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

/* Whether streams of the context, or those that block, capture. */
static bool of_context(struct sim_ctx *ctx, bool blocking, bool lost)
{
	bool found = false;

	for (struct sim_stream *s = captures ? ctx->streams : NULL; s; s = s->next) {
		if (!s->capture || (blocking && !s->blocking))
			continue;
		found = true;
		if (lost)
			invalidate(s->capture);
	}
	return found;
}

CUresult sim_capture_conflict(struct sim_ctx *ctx)
{
	return of_context(ctx, false, true) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					    : CUDA_SUCCESS;
}

CUresult sim_capture_implicit(struct sim_ctx *ctx, bool query)
{
	return of_context(ctx, true, !query) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
					     : CUDA_SUCCESS;
}

CUresult sim_capture_refuse(struct sim_stream *stream)
{
	invalidate(stream->capture);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_event_used(struct sim_event *event)
{
	struct sim_capture *c = capture_find(event->capture_id);

	SIM_FAIL_IF(INVALID_VALUE, !c || c->invalid);
	invalidate(c);
	return CUDA_ERROR_CAPTURED_EVENT;
}

/* --- what is captured ----------------------------------------------------- */

static struct sim_node *node_append(struct sim_stream *stream, CUgraphNodeType type)
{
	struct sim_node *node = sim_node_new(stream->capture->graph, type, stream->ctx);

	for (uint32_t i = 0; i < stream->frontier.count; i++)
		sim_node_depend(node, stream->frontier.at[i]);
	sim_nodes_clear(&stream->frontier);
	sim_nodes_add(&stream->frontier, node);
	return node;
}

CUresult sim_capture_work(struct sim_stream *stream, const struct sim_work *work)
{
	struct sim_node *node;

	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	node = node_append(stream, sim_node_type_of(work));
	sim_work_copy(&node->work, work);
	return CUDA_SUCCESS;
}

CUresult sim_capture_event_node(struct sim_stream *stream, struct sim_event *event,
				CUgraphNodeType type)
{
	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	node_append(stream, type)->event = event;
	return CUDA_SUCCESS;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	sim_event_detach_capture(event);
	sim_op_put(event->op);
	event->op = NULL;
	event->recorded = true;
	event->capture_id = stream->capture->id;
	for (uint32_t i = 0; i < stream->frontier.count; i++)
		sim_nodes_add(&event->captured, stream->frontier.at[i]);
	return CUDA_SUCCESS;
}

/* A capturing stream waits for an event from outside the capture. */
static CUresult wait_outside(struct sim_stream *stream, const struct sim_event *event)
{
	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	if (!event->recorded)
		return CUDA_SUCCESS;
	invalidate(stream->capture);
	return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event)
{
	struct sim_capture *c;

	if (!event->capture_id)
		return wait_outside(stream, event);
	c = capture_find(event->capture_id);
	SIM_FAIL_IF(INVALID_VALUE, !c || c->invalid);
	if (stream->legacy) {
		invalidate(c);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (stream->capture && stream->capture != c) {
		invalidate(c);
		invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	stream->capture = c;
	for (uint32_t i = 0; i < event->captured.count; i++)
		sim_nodes_add(&stream->frontier, event->captured.at[i]);
	return CUDA_SUCCESS;
}

/* --- stream-ordered memory in a capture ----------------------------------- */

CUresult sim_capture_alloc(struct sim_stream *stream, uint64_t bytes,
			   CUdeviceptr *ret_addr)
{
	struct sim_work work = {.kind = SIM_WORK_ALLOC, .accesses = 1};
	struct sim_alloc *alloc;

	SIM_FAIL_IF(STREAM_CAPTURE_INVALIDATED, stream->capture->invalid);
	SIM_TRY(sim_memory_alloc(sim_ctx_memory(stream->ctx), bytes, SIM_MEMORY_ASYNC,
				 &alloc));
	alloc->of_graph = true;
	sim_user_refs_add(&stream->capture->graph->users, sim_user_memory(alloc), 1);
	work.memory.addr = alloc->addr;
	work.access[0] = (struct sim_access){alloc->addr, bytes, bytes, 1, SIM_WRITE};
	*ret_addr = alloc->addr;
	return sim_capture_work(stream, &work);
}

CUresult sim_capture_free(struct sim_stream *stream, struct sim_alloc *alloc)
{
	struct sim_work work = {.kind = SIM_WORK_GRAPH_FREE, .accesses = 1};

	SIM_FAIL_IF(INVALID_VALUE, !alloc->of_graph);
	work.memory.addr = alloc->addr;
	work.access[0] =
	    (struct sim_access){alloc->addr, alloc->bytes, alloc->bytes, 1, SIM_WRITE};
	return sim_capture_work(stream, &work);
}

/* --- entry points: beginning and ending ----------------------------------- */

static CUresult begin_check(CUstream hStream, CUstreamCaptureMode mode,
			    struct sim_stream **ret_stream)
{
	SIM_FAIL_IF(INVALID_VALUE, mode > CU_STREAM_CAPTURE_MODE_RELAXED);
	SIM_TRY(sim_stream_use(hStream, ret_stream));
	SIM_FAIL_IF(STREAM_CAPTURE_UNSUPPORTED, (*ret_stream)->legacy);
	return (*ret_stream)->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

static void begin(struct sim_stream *stream, CUstreamCaptureMode mode,
		  struct sim_graph *graph)
{
	struct sim_capture *c = sim_calloc(sizeof(*c));

	c->id = ++capture_ids;
	c->mode = mode;
	c->thread = sim_thread_self()->id;
	c->origin = stream;
	c->graph = graph;
	c->next = captures;
	captures = c;
	graph->capturing = true;
	stream->capture = c;
}

static CUresult begin_new(CUstream hStream, CUstreamCaptureMode mode)
{
	SIM_GET(sim_stream, stream, begin_check, hStream, mode);
	begin(stream, mode, sim_graph_new());
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuStreamBeginCapture, begin_new(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL))
SIM_FORWARD(cuStreamBeginCapture_v2, begin_new(hStream, mode))

SIM_ENTRY(cuStreamBeginCaptureToGraph)
{
	struct sim_graph *graph = sim_object_check(hGraph, SIM_GRAPH);
	struct sim_stream *stream;

	SIM_FAIL_IF(ILLEGAL_STATE, graph && graph->capturing);
	SIM_FAIL_IF(INVALID_VALUE,
		    !graph || (numDependencies && !dependencies) ||
			!sim_nodes_of_graph(graph, dependencies, numDependencies));
	SIM_TRY(begin_check(hStream, mode, &stream));
	begin(stream, mode, graph);
	for (size_t i = 0; i < numDependencies; i++)
		sim_nodes_add(&stream->frontier, (struct sim_node *)dependencies[i]);
	return CUDA_SUCCESS;
}

/* --- functions of later drivers ------------------------------------------- */

/* CUDA 13.3, as far as its documentation says; never compared with a driver. Whether
 * the nodes are the ones that the graph has is not checked. */
SIM_FORWARD(cuStreamBeginRecaptureToGraph,
	    cuStreamBeginCaptureToGraph(hStream, hGraph, NULL, NULL, 0, mode))
SIM_FORWARD(cuStreamBeginCaptureInvented,
	    half == 0.5 ? begin_new(hStream, mode) : CUDA_ERROR_INVALID_VALUE)

static bool reached(const struct sim_stream *origin, const struct sim_nodes *nodes)
{
	for (uint32_t i = 0; i < nodes->count; i++)
		if (!sim_nodes_reach(&origin->frontier, nodes->at[i]))
			return false;
	return true;
}

/* Whether work of every stream that took part leads back to the origin. */
static bool is_joined(const struct sim_capture *c)
{
	for (struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next)
		for (struct sim_stream *s = ctx->streams; s; s = s->next)
			if (s->capture == c && !reached(c->origin, &s->frontier))
				return false;
	return reached(c->origin, &c->orphans);
}

SIM_ENTRY(cuStreamEndCapture)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_stream *stream;
	struct sim_capture *c;
	struct sim_graph *graph;

	SIM_FAIL_IF(INVALID_VALUE, !phGraph);
	*phGraph = NULL;
	SIM_TRY(sim_stream_get(hStream, &stream));
	c = stream->capture;
	SIM_FAIL_IF(ILLEGAL_STATE, !c);
	if (c->origin != stream) {
		invalidate(c);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    c->thread != sim_thread_self()->id)
		result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else if (c->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!is_joined(c))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	graph = capture_close(c);
	if (result == CUDA_SUCCESS)
		*phGraph = (CUgraph)graph;
	else
		sim_graph_delete(graph);
	return result;
}

SIM_ENTRY(cuThreadExchangeStreamCaptureMode)
{
	struct sim_thread *self = sim_thread_self();
	CUstreamCaptureMode old = self->mode;

	SIM_FAIL_IF(INVALID_VALUE, !mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED);
	self->mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
