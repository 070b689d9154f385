/* SPDX-License-Identifier: MIT */
/*
 * capture.c - stream captures as the program knows them: which are under way,
 * what is captured in what order, and which memory belongs to them.
 *
 * The order within a capture is kept by clocks of its own. Two captured items
 * that conflict are joined by an event, as two that are not captured are; that
 * is also how streams come into a capture and back.
 */
#include "explore.h"

struct capture *capture_number(struct model *w, uint32_t number)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live && w->captures[i].number == number)
			return &w->captures[i];
	return NULL;
}

/* --- order within a capture --- */

static void stream_enter(struct stream *s, struct capture *c, const struct clock *clock)
{
	if (!s->capture) {
		memset(&s->captured, 0, sizeof(s->captured));
		s->line = s->number;
	}
	s->capture = c;
	clock_join(&s->captured, clock);
}

/* `s` comes after all that `before` has captured; it may join by that. */
static bool capture_follow(struct thread *t, struct stream *s, struct stream *before)
{
	CUevent event;
	bool good;

	if (!can_name(t, before) || !can_name(t, s) || s->kind == STREAM_LEGACY)
		return false;
	context_use(t, before->context);
	if (!FINE(t, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
		return false;
	good = FINE(t, cuEventRecord(event, stream_handle(t, before))) &&
	       stream_wait(t, s, event);
	if (good)
		stream_enter(s, before->capture, &before->captured);
	FINE(t, cuEventDestroy(event));
	return good;
}

bool capture_event_record(struct thread *t, struct event *event, struct stream *s)
{
	CUstream handle;

	if (s->capture->invalidated_here ||
	    (event->handle && event->context != s->context))
		return false;
	handle = stream_handle(t, s);
	if (!event->handle && !FINE(t, cuEventCreate(&event->handle, 0)))
		return false;
	event->context = s->context;
	if (!FINE(t, cuEventRecord(event->handle, handle)))
		return false;
	event->recorded = true;
	event->captured = s->capture->number;
	event->clock = s->captured;
	return true;
}

bool capture_event_wait(struct thread *t, const struct event *event, struct stream *s)
{
	struct capture *c = capture_number(t->model, event->captured);

	if (!event->recorded || !event->captured || !c || c->invalidated_here ||
	    s->context != c->context || s->kind == STREAM_LEGACY ||
	    (s->capture && s->capture != c))
		return false;
	if (!stream_wait(t, s, event->handle))
		return false;
	stream_enter(s, c, &event->clock);
	return true;
}

static bool touches(const struct item *item, const struct block *block, unsigned region,
		    bool writes)
{
	if (item->dst == block && item->dst_region == region)
		return true;
	return writes && item->src == block && item->src_region == region;
}

/* The stream that captures on this line now; NULL: that stream has turned back since,
 * and what it left there is out of reach. */
static struct stream *stream_of_line(struct model *w, const struct capture *c,
				     uint32_t line)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].capture == c && w->streams[i].line == line)
			return &w->streams[i];
	return NULL;
}

static bool captured_order(struct thread *t, struct stream *s, const struct item *item)
{
	struct capture *c = s->capture;

	/* What the graph had before comes first, unless a stream was turned back. */
	for (uint32_t i = c->rewinds ? 0 : c->first; i < c->body->count; i++) {
		const struct item *old = &c->body->items[i];
		struct stream *before;

		if (!(item->src && touches(old, item->src, item->src_region, false)) &&
		    !(item->dst && touches(old, item->dst, item->dst_region, true)))
			continue;
		if (i < c->first)
			return false; /* no order to be had */
		if (clock_covers(&s->captured, old->mark))
			continue;
		before = stream_of_line(t->model, c, old->mark.stream);
		if (!before || !capture_follow(t, s, before))
			return false;
	}
	return true;
}

/* --- contents within a capture --- */

static struct local *local_find(struct capture *c, const struct block *block,
				uint8_t region, bool make)
{
	for (uint32_t i = 0; i < c->local_count; i++)
		if (c->locals[i].block == block && c->locals[i].region == region)
			return &c->locals[i];
	if (!make || c->local_count == LOCALS_MAX)
		return NULL;
	c->locals[c->local_count] = (struct local){.block = block, .region = region};
	return &c->locals[c->local_count++];
}

static void local_apply(struct capture *c, const struct item *item)
{
	const struct local *from =
	    item->src ? local_find(c, item->src, item->src_region, false) : NULL;
	struct local source = from ? *from : (struct local){0};
	struct local *to =
	    item->dst ? local_find(c, item->dst, item->dst_region, true) : NULL;

	if (!to)
		return;
	if (item->kind == ITEM_FILL || item->kind == ITEM_SET) {
		to->known = item->words;
		to->value = item->value;
	} else if (item->kind == ITEM_COPY) {
		to->known = source.known < item->words ? source.known : item->words;
		to->value = source.value;
	} else {
		to->known = to->known < item->words ? to->known : item->words;
		to->value += item->value;
	}
}

/* What the graph finds in its own memory when it starts is anything, and what a
 * check must find is only known if the graph made it. */
static bool contents_are_known(struct capture *c, struct item *item)
{
	const struct local *src =
	    item->src ? local_find(c, item->src, item->src_region, false) : NULL;
	const struct local *dst =
	    item->dst ? local_find(c, item->dst, item->dst_region, false) : NULL;

	if (item->kind == ITEM_CHECK) {
		if (!src || !src->known)
			return false;
		item->words = src->known;
		item->value = src->value;
		return true;
	}
	if (item->kind == ITEM_COPY && item->src->pools && !(src && src->known) &&
	    !result_of_other(c->body, item->src))
		return false;
	if (item->kind == ITEM_ADD && item->dst->pools && !(dst && dst->known))
		return false;
	/* Else it could not be told from what was never written. */
	return dst || c->local_count < LOCALS_MAX;
}

/* It may lie where the capture had others before, and only the line that was turned
 * back since came after them. */
static bool is_of_another_line(const struct model *w, const struct capture *c,
			       const struct block *block)
{
	return block && block->in_capture && block->early >= c->number &&
	       block->rewinds != w->rewinds;
}

void capture_item(struct thread *t, struct stream *s, struct item *item)
{
	struct capture *c = s->capture;
	struct body *body = c->body;
	bool alone, good;
	uint32_t line;

	if (c->invalidated_here || body->count == ITEMS_MAX ||
	    s->context != c->context ||
	    (item->kind == ITEM_CHECK && !t->model->contexts[s->context].counter) ||
	    is_of_another_line(t->model, c, item->src) ||
	    is_of_another_line(t->model, c, item->dst) ||
	    !contents_are_known(c, item) || !captured_order(t, s, item))
		return;
	alone = c->added == ADDED_ALONE && item->kind != ITEM_SET &&
		item->kind != ITEM_COPY && c->rewinds < REWINDS_MAX;
	if (c->added && !alone)
		c->added = ADDED_JOINED;
	good = fine(t->model, item_submit(t, s, item), "captured work");
	c->added = ADDED_NOT;
	if (!good)
		return;
	line = alone ? STREAMS_MAX + c->rewinds++ : s->line;
	item->mark = (struct mark){line, ++c->counts[line]};
	if (!alone)
		s->captured.at[line] = item->mark.n;
	local_apply(c, item);
	body->items[body->count++] = *item;
	if (item->dst)
		item->dst->addressed = true;
	if (item->src)
		item->src->addressed = true;
}

/* --- begin --- */

static uint32_t pool_new(struct model *w)
{
	return w->pool_count + 1 < POOLS_MAX ? ++w->pool_count : 0;
}

static struct capture *capture_slot(struct model *w)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (!w->captures[i].live)
			return &w->captures[i];
	return NULL;
}

/* That have begun, as the library says. */
static uint64_t captures_known(void)
{
	return library.captures ? library.captures() : 0;
}

static void capture_open(struct thread *t, struct capture *c, struct stream *s,
			 CUstreamCaptureMode mode, struct body *body, uint32_t pool)
{
	static const struct clock nothing;

	*c = (struct capture){.live = true,
			      .number = ++t->model->capture_numbers,
			      .known = captures_known(),
			      .mode = mode,
			      .thread = (int)t->number,
			      .context = s->context,
			      .origin = s,
			      .body = body,
			      .first = body->count,
			      .pool = pool};
	body_join_pool(t->model, body, pool);
	stream_enter(s, c, &nothing);
}

/* Into a new graph, or into this one. */
static bool begin_call(struct thread *t, struct stream *s, CUstreamCaptureMode mode,
		       CUgraph into, const CUgraphNode *nodes, size_t count)
{
	const struct fault *fault = t->model->setting->fault;
	CUstream handle = stream_handle(t, s);
	uint64_t before = captures_known();
	CUresult result;

	fault_capture_begins(fault);
	result =
	    into ? cuStreamBeginCaptureToGraph(handle, into, nodes, NULL, count, mode)
		 : cuStreamBeginCapture(handle, mode);
	fault_capture_begun(fault);
	if (!fine(t->model, result, "cuStreamBeginCapture"))
		return false;
	if (library.captures && !t->model->setting->plain &&
	    captures_known() != before + 1)
		failure(t->model, "a capture begins that the library does not know of");
	t->worked = NULL; /* of before the beginning; share.c */
	return true;
}

static void capture_begin(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct capture *c = capture_slot(w);
	struct stream *s = stream_pick(t, op->c);
	CUstreamCaptureMode mode = op->how % 3;
	uint32_t pool = t->pool;

	if (!c || !s || s->capture || s->kind == STREAM_LEGACY)
		return;
	if (!pool)
		pool = pool_new(w);
	if (!pool || !begin_call(t, s, mode, NULL, NULL, 0))
		return;
	capture_open(t, c, s, mode, body_new(s->context), pool);
}

/* A body that runs behind everything that the graph does already. */
static CUgraph conditional_body(struct thread *t, const struct graph *graph,
				const CUgraphNode *nodes, size_t count)
{
	CUcontext ctx = t->model->contexts[graph->body->context].ctx;
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode node;

	params.conditional.type = CU_GRAPH_COND_TYPE_IF;
	params.conditional.size = 1;
	params.conditional.ctx = ctx;
	if (!FINE(t, cuGraphConditionalHandleCreate(&params.conditional.handle,
						    graph->handle, ctx, 1,
						    CU_GRAPH_COND_ASSIGN_DEFAULT)) ||
	    !FINE(t, cuGraphAddNode(&node, graph->handle, nodes, NULL, count, &params)))
		return NULL;
	graph->body->single = true;
	return params.conditional.phGraph_out[0];
}

/* Behind everything that the graph does already. */
static void capture_into(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct graph *graph = graph_near(w, op->a);
	struct capture *c = capture_slot(w);
	CUstreamCaptureMode mode = op->how % 3;
	bool conditional = op->value % 8 >= 6;
	CUgraphNode nodes[2 * ITEMS_MAX];
	size_t count = 2 * ITEMS_MAX;
	CUgraph into = graph->handle;
	struct stream *s;
	uint32_t pool = t->pool;

	if (!graph->handle || graph->busy || graph->body->broken || !c ||
	    graph->body->pool_count == POOLS_OF_BODY)
		return;
	s = stream_pick(t, op->c);
	if (!s || s->capture || s->kind == STREAM_LEGACY ||
	    s->context != graph->body->context ||
	    !FINE(t, cuGraphGetNodes(graph->handle, nodes, &count)))
		return;
	if (!pool)
		pool = pool_new(w);
	if (pool && conditional) {
		into = conditional_body(t, graph, nodes, count);
		count = 0;
	}
	if (!pool || !into || !begin_call(t, s, mode, into, nodes, count))
		return;
	capture_open(t, c, s, mode, body_copy(w, graph->body), pool);
	c->into = graph;
	c->conditional = conditional;
	graph->busy = true;
}

static void capture_fork(struct thread *t, const struct op *op)
{
	struct capture *c = capture_near(t->model, op->a);
	struct stream *s;

	if (!c->live || c->invalidated_here)
		return;
	s = stream_pick(t, op->c);
	if (s && !s->capture && s->context == c->context)
		capture_follow(t, s, c->origin);
}

/* --- end --- */

static void capture_close(struct model *w, struct capture *c)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].capture == c)
			w->streams[i].capture = NULL;
	for (unsigned i = 0; i < EVENT_SLOTS; i++)
		if (w->events[i].captured == c->number)
			w->events[i].recorded = false;
	c->live = false;
}

/* Joins all streams to the origin; not all can be. */
static bool capture_join(struct thread *t, struct capture *c)
{
	for (uint32_t i = 0; i < t->model->stream_count; i++) {
		struct stream *s = &t->model->streams[i];

		if (s->capture == c && s != c->origin &&
		    !capture_follow(t, c->origin, s))
			return false;
	}
	return true;
}

static struct graph *graph_slot(struct thread *t, struct capture *c, unsigned wanted)
{
	struct graph *graph = &t->model->graphs[wanted % GRAPH_SLOTS];

	if (c->into)
		return c->into;
	for (unsigned i = 0; i < GRAPH_SLOTS && graph->busy; i++)
		graph = &t->model->graphs[i];
	return graph->busy ? NULL : graph;
}

static void capture_lost(struct model *w, struct capture *c)
{
	w->invalidated = gcpsim_invalidated();
	capture_close(w, c);
	/* What such a capture leaves of the graph is not known: that stays. */
	w->left |= c->into != NULL;
	if (c->into) { /* CUDA took that graph away as well */
		body_put(w, c->into->body);
		*c->into = (struct graph){0};
	}
	body_put(w, c->body);
}

static void capture_end(struct thread *t, struct capture *c, unsigned how,
			unsigned slot)
{
	struct model *w = t->model;
	struct graph *target;
	CUgraph graph = NULL;
	CUresult result;
	bool joined;

	if (!c->live || !can_name(t, c->origin) ||
	    (c->thread != (int)t->number && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED))
		return;
	joined = !c->invalidated_here && (how % 16 != 0 || c->conditional) &&
		 capture_join(t, c);
	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	result = cuStreamEndCapture(stream_handle(t, c->origin), &graph);
	if (joined && !fine(w, result, "cuStreamEndCapture"))
		return;
	if (result != CUDA_SUCCESS) {
		capture_lost(w, c);
		return;
	}
	capture_close(w, c);
	results_note(w, c->pool);
	if (c->body->made == 0)
		c->body->made = w->step;
	target = graph_slot(t, c, slot);
	if (c->into) {
		c->into->busy = false;
		body_put(w, c->into->body);
		c->into->body = c->body;
	} else if (target) {
		graph_set(t, target, graph, c->body);
	} else {
		FINE(t, cuGraphDestroy(graph));
		body_put(w, c->body);
	}
}

/* The program's own mistake: the capture is lost, and its end says so. */
static void capture_invalidate(struct thread *t, struct capture *c)
{
	if (!c->live || c->invalidated_here || !can_name(t, c->origin) ||
	    c->conditional)
		return;
	if (cuStreamSynchronize(stream_handle(t, c->origin)) == CUDA_SUCCESS)
		failure(t->model, "the host could wait for a capturing stream");
	c->invalidated_here = true;
	t->model->invalidated = gcpsim_invalidated();
}

/* The stream goes, and the capture with it. */
static void capture_destroy_stream(struct thread *t, struct capture *c)
{
	struct stream *s = c->origin;

	if (!c->live || s->kind == STREAM_PER_THREAD || c->conditional)
		return;
	plain_may_wait(t->model, EXCUSE_WAIT_CAPTURE);
	if (!FINE(t, cuStreamDestroy(s->handle)))
		return;
	t->model->streams_gone++;
	stream_detach(t->model, s);
	capture_lost(t->model, c);
}

/* Whether a context that ends here takes all of the capture along; nothing of it. */
static bool is_all_in(const struct model *w, const struct capture *c, int context)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].capture == c && w->streams[i].context != context)
			return false;
	return c->origin->context == context && !c->into;
}

static bool is_elsewhere(const struct model *w, const struct capture *c, int context)
{
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->streams[i].capture == c && w->streams[i].context == context)
			return false;
	return true;
}

/* Captures of other threads go on, where the context and the thread have no part in
 * them: it makes the next context at once. */
bool captures_may_go(const struct thread *t, int context)
{
	const struct model *w = t->model;

	for (unsigned i = 0; i < CAPTURE_SLOTS; i++) {
		const struct capture *c = &w->captures[i];
		bool own = c->thread == (int)t->number;

		if (c->live &&
		    (own ? !is_all_in(w, c, context)
			 : !is_elsewhere(w, c, context) || !may_be_unsafe(t)))
			return false;
	}
	return true;
}

void captures_go(struct model *w, int context)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[i].live && w->captures[i].context == context)
			capture_lost(w, &w->captures[i]);
}

CUresult captured_ends(CUstream stream, CUgraph *ret_graph,
		       const CUgraphNode **ret_nodes, size_t *ret_count)
{
	const CUgraphEdgeData *edges;
	CUstreamCaptureStatus status;

	return cuStreamGetCaptureInfo_v3(stream, &status, NULL, ret_graph, ret_nodes,
					 &edges, ret_count);
}

/* By hand: asks for the graph, of whatever stream; adds a kernel; or what is captured
 * next on the first stream depends on nothing. */
static void capture_edit(struct thread *t, struct capture *c, unsigned how)
{
	struct stream *s = c->origin;
	const CUgraphNode *nodes;
	CUgraph graph;
	size_t count;

	if (!c->live || c->invalidated_here || !can_name(t, s))
		return;
	/* In a capture that is one line of work so far, what the program adds or
	 * captures next may follow all its nodes (captures.md). */
	if (c->counts[s->line] == c->body->count - c->first)
		gcpsim_plain_waits(NULL, false);
	if (how % 4 > 1)
		c->added = how % 8 < 4 ? ADDED_ALONE : ADDED_JOINED;
	if (how % 4 == 1)
		(void)FINE(t,
			   captured_ends(stream_handle(t, s), &graph, &nodes, &count));
	if (how % 4 > 0 || c->rewinds == REWINDS_MAX ||
	    !FINE(t, cuStreamUpdateCaptureDependencies_v2(
			 stream_handle(t, s), NULL, NULL, 0,
			 CU_STREAM_SET_CAPTURE_DEPENDENCIES)))
		return;
	s->captured = (struct clock){0};
	s->line = STREAMS_MAX + c->rewinds++;
	t->model->rewinds++;
}

/* Calls that CUDA refuses, and nothing changes by them: an end without a place for the
 * graph, a begin where something is captured already, one on a stream that cannot. */
static void capture_refuse(struct thread *t, const struct capture *c, unsigned how)
{
	CUstreamCaptureMode mode = how % 3;
	CUresult result;

	if (t->model->setting->plain)
		return;
	if (how & 4 && legacy_is_free(t->model, t->context))
		result = cuStreamBeginCapture(CU_STREAM_LEGACY, mode);
	else if (!c->live || c->invalidated_here || !can_name(t, c->origin))
		return;
	else if (how & 8)
		result = cuStreamBeginCapture(stream_handle(t, c->origin), mode);
	else
		result = cuStreamEndCapture(stream_handle(t, c->origin), NULL);
	if (result == CUDA_SUCCESS)
		failure(t->model, "a capture was begun or ended that cannot be");
}

/* --- operations --- */

static void thread_mode(struct thread *t, unsigned how)
{
	CUstreamCaptureMode mode = how % 3;

	if (FINE(t, cuThreadExchangeStreamCaptureMode(&mode)))
		t->mode = how % 3;
}

struct capture *capture_near(struct model *w, unsigned slot)
{
	for (unsigned i = 0; i < CAPTURE_SLOTS; i++)
		if (w->captures[(slot + i) % CAPTURE_SLOTS].live)
			return &w->captures[(slot + i) % CAPTURE_SLOTS];
	return &w->captures[slot % CAPTURE_SLOTS];
}

void capture_play(struct thread *t, const struct op *op)
{
	struct capture *c = capture_near(t->model, op->a);

	if (op->kind == OP_CAPTURE_REWIND)
		capture_edit(t, c, op->how);
	else if (op->kind == OP_CAPTURE_REFUSE)
		capture_refuse(t, c, op->how);
	else if (op->kind == OP_THREAD_MODE)
		thread_mode(t, op->how);
	else if (op->kind == OP_CAPTURE_BEGIN)
		capture_begin(t, op);
	else if (op->kind == OP_CAPTURE_INTO)
		capture_into(t, op);
	else if (op->kind == OP_CAPTURE_FORK)
		capture_fork(t, op);
	else if (op->kind == OP_CAPTURE_END)
		capture_end(t, c, op->how, op->b);
	else if (op->kind == OP_CAPTURE_INVALIDATE)
		capture_invalidate(t, c);
	else
		capture_destroy_stream(t, c);
}
