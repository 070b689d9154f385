/* SPDX-License-Identifier: MIT */
/*
 * graphs.c - graphs, what is made from them, and launches.
 *
 * A body says what a graph does; executables and clones share it. Memory of a
 * graph pool may be written by every launch of every graph of that pool, so
 * launches and work on it are put in order as if it were so.
 */
#include "explore.h"

/* --- bodies --- */

struct body *body_new(int context)
{
	struct body *body = calloc(1, sizeof(*body));

	if (!body)
		abort();
	body->refs = 1;
	body->context = context;
	return body;
}

struct body *body_copy(struct model *w, const struct body *body)
{
	struct body *copy = body_new(body->context);

	*copy = *body;
	copy->refs = 1;
	for (uint32_t i = 0; i < copy->pool_count; i++)
		w->pools[copy->pools[i]].refs++;
	return copy;
}

bool body_join_pool(struct model *w, struct body *body, uint32_t pool)
{
	for (uint32_t i = 0; i < body->pool_count; i++)
		if (body->pools[i] == pool)
			return true;
	if (body->pool_count == POOLS_OF_BODY)
		return false;
	body->pools[body->pool_count++] = pool;
	w->pools[pool].refs++;
	return true;
}

/* Nothing keeps the pool's memory any more: any request may get freed blocks. */
static void pool_put(struct model *w, uint32_t pool)
{
	if (--w->pools[pool].refs > 0)
		return;
	for (struct block *block = w->blocks; block; block = block->next)
		block->pools &= ~pool_bit(pool);
}

void body_put(struct model *w, struct body *body)
{
	if (!body || --body->refs > 0)
		return;
	for (uint32_t i = 0; i < body->pool_count; i++)
		pool_put(w, body->pools[i]);
	free(body);
}

static bool body_is_of(const struct body *body, uint64_t pools)
{
	for (uint32_t i = 0; i < body->pool_count; i++)
		if (pools & pool_bit(body->pools[i]))
			return true;
	return false;
}

bool body_keeps(const struct body *body, const struct block *block)
{
	return body_is_of(body, block->pools);
}

bool body_may_write(const struct body *body, const struct block *block)
{
	for (uint32_t i = 0; i < body->pool_count && block->named_pool; i++)
		if (body->pools[i] == block->named_pool)
			return true;
	return body_keeps(body, block);
}

static bool body_uses(const struct body *body, const struct block *block)
{
	for (uint32_t i = 0; i < body->count; i++)
		if (body->items[i].dst == block || body->items[i].src == block)
			return true;
	return false;
}

/* --- graphs --- */

static void graph_release(struct thread *t, struct graph *graph)
{
	if (!graph->handle || graph->busy || !FINE(t, cuGraphDestroy(graph->handle)))
		return;
	body_put(t->model, graph->body);
	*graph = (struct graph){0};
}

void graph_set(struct thread *t, struct graph *graph, CUgraph handle, struct body *body)
{
	graph_release(t, graph);
	*graph = (struct graph){.handle = handle, .body = body};
}

static void graph_clone(struct thread *t, struct graph *from, struct graph *to)
{
	CUgraph clone;

	if (!from->handle || from->busy || to->busy || from == to ||
	    from->body->single || !FINE(t, cuGraphClone(&clone, from->handle)))
		return;
	from->body->refs++;
	graph_set(t, to, clone, from->body);
}

static bool body_append(struct model *w, struct body *body, const struct body *child)
{
	if (body->count + child->count > ITEMS_MAX || child->broken ||
	    body->context != child->context)
		return false;
	for (uint32_t i = 0; i < child->pool_count; i++)
		if (!body_join_pool(w, body, child->pools[i]))
			return false;
	memcpy(body->items + body->count, child->items,
	       child->count * sizeof(*child->items));
	body->count += child->count;
	if (body->made > child->made || body->made == 0)
		body->made = child->made;
	return true;
}

bool bodies_are_apart(const struct body *a, const struct body *b)
{
	const struct body *of[2] = {a, b};

	for (uint32_t i = 0; i < a->pool_count; i++)
		for (uint32_t j = 0; j < b->pool_count; j++)
			if (a->pools[i] == b->pools[j])
				return false;
	for (unsigned k = 0; k < 2; k++)
		for (uint32_t i = 0; i < of[k]->count; i++) {
			const struct item *item = &of[k]->items[i];

			if ((item->dst && (body_uses(of[!k], item->dst) ||
					   body_may_write(of[!k], item->dst))) ||
			    (item->src && body_may_write(of[!k], item->src)))
				return false;
		}
	return true;
}

/* A graph of two children, one after the other, or side by side. */
static void graph_compose(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct graph *parts[2] = {graph_near(w, op->a), graph_near(w, op->b)};
	struct graph *to = &w->graphs[op->how % GRAPH_SLOTS];
	bool beside = op->kind == OP_GRAPH_BESIDE;
	struct body *body;
	CUgraphNode node[2];
	CUgraph graph;

	if (!parts[0]->handle || !parts[1]->handle || parts[0]->busy ||
	    parts[1]->busy || to->busy || parts[0]->body->single ||
	    parts[1]->body->single ||
	    (beside && !bodies_are_apart(parts[0]->body, parts[1]->body)))
		return;
	body = body_new(parts[0]->body->context);
	if (!body_append(w, body, parts[0]->body) ||
	    !body_append(w, body, parts[1]->body)) {
		body_put(w, body);
		return;
	}
	FINE(t, cuGraphCreate(&graph, 0));
	if (FINE(t, cuGraphAddChildGraphNode(&node[0], graph, NULL, 0,
					     parts[0]->handle)) &&
	    FINE(t, cuGraphAddChildGraphNode(&node[1], graph, node, !beside,
					     parts[1]->handle))) {
		graph_set(t, to, graph, body);
	} else {
		FINE(t, cuGraphDestroy(graph));
		body_put(w, body);
	}
}

/* --- executables --- */

static void exec_release(struct thread *t, struct exec *exec)
{
	CUresult result;

	if (!exec->handle || !may_be_unsafe(t))
		return;
	/* CUDA itself waits for launches of a graph with conditional nodes. */
	gcpsim_plain_asks(exec->body->single);
	result = cuGraphExecDestroy(exec->handle);
	gcpsim_plain_asks(-(int)exec->body->single);
	if (!fine(t->model, result, "cuGraphExecDestroy"))
		return;
	body_put(t->model, exec->body);
	*exec = (struct exec){0};
}

/* CUDA looks at the memory of copies. */
static bool copies_are_there(const struct model *w, const struct body *body)
{
	for (uint32_t i = 0; i < body->count; i++) {
		const struct item *item = &body->items[i];

		if (item->kind == ITEM_COPY &&
		    ((!item->dst->live && !body_keeps(body, item->dst)) ||
		     (!item->src->live && !body_keeps(body, item->src) &&
		      !block_is_result(w, item->src))))
			return false;
	}
	return true;
}

/* Of graphs that share one gets memory of its own in an executable of both. */
static void two_may_part(struct thread *t, const struct graph *graph)
{
	if (t->model->setting->share && graph->body->pool_count > 1)
		plain_may_wait(t->model, EXCUSE_WAIT_LANE);
}

/* What an executable of the graph may lack, as launch_call: copies need their memory,
 * and so do graphs that may part. */
static uint64_t exec_bytes(struct model *w, const struct graph *graph)
{
	uint64_t bytes = w->setting->share ? body_freed(w, graph->body) : 0;

	if (bytes > 0)
		plain_may_be_full(w, w->contexts[graph->body->context].device, bytes);
	return bytes;
}

/* Memory that graphs share was given back, or lost. */
static bool lane_is_refused(const struct model *w, int device, uint64_t bytes)
{
	return plain_lacks(w, device, bytes) ? excused(EXCUSE_LAUNCH_FULL)
					     : fault_excuses(w);
}

static bool exec_is_refused(const struct model *w, const struct graph *graph,
			    uint64_t bytes, CUresult result)
{
	int device = w->contexts[graph->body->context].device;

	return result == CUDA_ERROR_OUT_OF_MEMORY && bytes > 0 &&
	       lane_is_refused(w, device, bytes);
}

static bool instantiate_call(struct thread *t, const struct graph *graph,
			     CUgraphExec *ret_exec)
{
	uint64_t bytes = exec_bytes(t->model, graph);
	CUresult result = cuGraphInstantiateWithFlags(ret_exec, graph->handle, 0);

	return !exec_is_refused(t->model, graph, bytes, result) &&
	       fine(t->model, result, "cuGraphInstantiateWithFlags");
}

static void graph_instantiate(struct thread *t, struct graph *graph, struct exec *exec)
{
	if (!graph->handle || graph->busy || graph->body->broken || !may_be_unsafe(t) ||
	    !copies_are_there(t->model, graph->body) ||
	    (graph->body->single && graph->instantiated))
		return;
	exec_release(t, exec);
	context_use(t, graph->body->context);
	two_may_part(t, graph);
	if (exec->handle || !instantiate_call(t, graph, &exec->handle))
		return;
	graph->instantiated = true;
	exec->body = graph->body;
	exec->body->refs++;
	exec->id = ++t->model->execs_made;
}

static void exec_update(struct thread *t, struct exec *exec, struct graph *graph)
{
	CUgraphExecUpdateResultInfo info;
	CUresult result;
	uint64_t bytes;
	bool refused;

	if (!exec->handle || !graph->handle || graph->busy || !may_be_unsafe(t) ||
	    graph->body->context != exec->body->context || graph->body->broken ||
	    graph->body->single || exec->body->single)
		return;
	context_use(t, graph->body->context);
	two_may_part(t, graph);
	bytes = exec_bytes(t->model, graph);
	result = cuGraphExecUpdate(exec->handle, graph->handle, &info);
	refused = exec_is_refused(t->model, graph, bytes, result);
	/* The library has refused it before the driver was asked. */
	if (refused && !plain_is_spoilt(t->model))
		return;
	exec->mixed = result != CUDA_SUCCESS;
	exec->mixed_freed = exec->mixed ? body_freed(t->model, graph->body) : 0;
	if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE || refused ||
	    !fine(t->model, result, "cuGraphExecUpdate"))
		return;
	graph->body->refs++;
	body_put(t->model, exec->body);
	exec->body = graph->body;
	exec->clock = (struct clock){0};
	exec->id = ++t->model->execs_made; /* to the library it is another one */
}

/* --- launches --- */

static bool is_there(const struct model *w, const struct body *body,
		     const struct block *block, bool read)
{
	return !block ||
	       ((block->live || body_keeps(body, block) ||
		 (read && block_is_result(w, block))) &&
		w->contexts[block->context].live && !block_is_early(w, block));
}

bool body_can_run(const struct model *w, const struct body *body)
{
	for (uint32_t i = 0; i < body->count; i++)
		if (!is_there(w, body, body->items[i].dst, false) ||
		    !is_there(w, body, body->items[i].src, true))
			return false;
	return !body->broken;
}

/* Memory that the graph may write. What was freed before its capture ended is the
 * library's to put in order. */
static bool body_reaches(const struct body *body, const struct block *block)
{
	return body_may_write(body, block) &&
	       (block->live || block->died >= body->made || body_uses(body, block));
}

/* Every region that the launch may touch: order made (mark NULL), or noted. */
static bool launch_regions(struct thread *t, struct stream *s, struct body *body,
			   const struct mark *mark, unsigned how)
{
	struct model *w = t->model;

#define EACH(region, want)                                                             \
	do {                                                                           \
		if (mark)                                                              \
			region_touch(region, *mark, want);                             \
		else if (!order_region(t, s, region, want, how))                       \
			return false;                                                  \
	} while (0)

	for (uint32_t i = 0; i < body->pool_count; i++)
		EACH(&w->pools[body->pools[i]].launches, WANT_WRITE);
	for (struct block *block = w->blocks; block; block = block->next)
		for (unsigned r = 0; r < REGIONS && body_reaches(body, block); r++)
			EACH(&block->regions[r], WANT_WRITE);
	for (uint32_t i = 0; i < body->count; i++) {
		const struct item *item = &body->items[i];

		if (item->src && !body_keeps(body, item->src))
			EACH(&item->src->regions[item->src_region], WANT_READ);
		if (item->dst && !body_keeps(body, item->dst))
			EACH(&item->dst->regions[item->dst_region], WANT_WRITE);
	}
#undef EACH
	return true;
}

/* A block of before a checkpoint lives again, and the graph knows it and the one that
 * came after it at its address. */
static void content_is_lost_with(struct model *w, const struct block *written)
{
	for (struct block *block = w->blocks; block; block = block->next)
		if (block->live && block->addr < written->addr + written->bytes &&
		    written->addr < block->addr + block->bytes)
			block->regions[0].known = block->regions[1].known = 0;
}

void body_ran(struct model *w, const struct body *body)
{
	for (struct block *block = w->blocks; block; block = block->next)
		if (body_may_write(body, block))
			block->regions[0].known = block->regions[1].known = 0;
	for (uint32_t i = 0; i < body->count; i++) {
		const struct block *written = body->items[i].dst;

		item_apply(w, &body->items[i]);
		if (written && !written->live)
			content_is_lost_with(w, written);
	}
}

/* All that the stream was given, and all that it was made to wait for. */
static bool host_knows_stream(const struct model *w, const struct stream *s)
{
	for (unsigned i = 0; i < LINES_MAX; i++)
		if (s->clock.at[i] > w->host.at[i])
			return false;
	return clock_covers(&w->host, (struct mark){s->number, s->count});
}

/* A launch has an event behind it once graphs that share were launched into several
 * streams; which those are the program does not see. Else it is known to be over when
 * its stream is, the legacy stream with all that block with it; where that may not be
 * asked (a stream has ended, or it is another thread's), when all of the context is.
 * While a stream is captured nothing can be asked. */
static bool host_knows_end(const struct thread *t, const struct body *body,
			   const struct launched *launched)
{
	const struct model *w = t->model;
	const struct stream *last = &w->streams[launched->mark.stream];
	bool asked = launched->gone == w->streams_gone && can_name(t, last);

	if (!all_is_calm(w))
		return false;
	for (uint32_t i = 0; i < w->stream_count; i++) {
		const struct stream *s = &w->streams[i];
		bool here = s->context == body->context;
		bool counts = asked ? s == last || (last->kind == STREAM_LEGACY &&
						    here && is_blocking(s))
				    : here;

		if (counts && !host_knows_stream(w, s))
			return false;
	}
	return true;
}

/* Whether a graph that may run still has to follow another one that was launched since,
 * or by another executable at any time: they may share memory, and a graph that runs
 * cannot be given other memory. All streams of the context wait then, its own too where
 * it would have followed anyway. */
static bool pool_may_follow(const struct thread *t, const struct exec *exec,
			    const struct graph_pool *pool)
{
	const struct launched *last = &pool->last;
	const struct model *w = t->model;

	if (last->number == 0 || host_knows_end(t, exec->body, last))
		return false;
	if (last->id != exec->id)
		return pool->count < w->launches;
	for (uint32_t i = 0; i < w->stream_count; i++)
		if (w->launched[i].number > last->number &&
		    w->launched[i].id != exec->id)
			return true;
	return false;
}

/* Launched into another stream while it may run, for all the library knows. */
static bool is_crossing(const struct thread *t, const struct exec *exec,
			const struct stream *s)
{
	const struct model *w = t->model;

	for (uint32_t i = 0; i < exec->body->pool_count; i++) {
		const struct launched *last = &w->pools[exec->body->pools[i]].last;

		if (last->number != 0 && last->mark.stream != s->number &&
		    !host_knows_end(t, exec->body, last))
			return true;
	}
	return false;
}

/* Any graph may have to follow a crossing to its lane, also of a graph that is gone. */
static bool may_follow(const struct thread *t, const struct exec *exec)
{
	const struct model *w = t->model;

	for (uint32_t i = 0; w->setting->share && i < w->stream_count; i++)
		if (w->crossings[i].number != 0 &&
		    w->streams[i].context == exec->body->context &&
		    !host_knows_end(t, exec->body, &w->crossings[i]))
			return true;
	for (uint32_t i = 0; w->setting->share && i < exec->body->pool_count; i++)
		if (pool_may_follow(t, exec, &w->pools[exec->body->pools[i]]))
			return true;
	return false;
}

/* As much as the graph may need that was freed in its capture, also of what the program
 * does not count on the graph to keep. Blocks of 1 MiB and more take whole 2 MiB. */
uint64_t body_freed(const struct model *w, const struct body *body)
{
	uint64_t bytes = 0;

	for (const struct block *block = w->blocks; block; block = block->next)
		if (!block->live && !block->host &&
		    body_is_of(body, block->pools | block->plain_pools))
			bytes +=
			    (block->bytes - 1) | (block->bytes >> 20 ? 0x1fffff : 0);
	return bytes;
}

/* Memory that was taken from it, for allocations or by a trim, may be missing. */
static bool launch_call(struct thread *t, const struct exec *exec, struct stream *s)
{
	struct model *w = t->model;
	int device = w->contexts[s->context].device;
	uint64_t bytes = body_freed(w, exec->body) + exec->mixed_freed;
	CUresult result;

	plain_may_be_full(w, device, body_freed(w, exec->body));
	if (may_follow(t, exec) || (w->setting->share && exec->mixed) ||
	    (w->setting->share && plain_is_out(w, device, body_freed(w, exec->body))))
		plain_may_wait(w, EXCUSE_WAIT_LANE);
	result = cuGraphLaunch(exec->handle, stream_handle(t, s));
	/* What a release that fails does not give back is lost to a trim as well. */
	return (result != CUDA_ERROR_OUT_OF_MEMORY || !w->setting->share ||
		!lane_is_refused(w, device, bytes)) &&
	       fine(w, result, "cuGraphLaunch");
}

struct launched launch_note(struct model *w, const struct exec *exec, struct mark mark,
			    uint32_t gone)
{
	struct launched launched = {mark, ++w->launches, gone, exec->id};

	for (uint32_t i = 0; i < exec->body->pool_count; i++) {
		w->pools[exec->body->pools[i]].last = launched;
		w->pools[exec->body->pools[i]].count++;
	}
	return launched;
}

static void exec_launch(struct thread *t, struct exec *exec, const struct op *op)
{
	struct model *w = t->model;
	struct body *body = exec->body;
	struct stream *s;
	struct clock before;
	struct mark mark;
	bool crosses;

	if (!exec->handle || !body_can_run(w, body))
		return;
	s = stream_pick(t, op->c);
	if (!s || s->capture || s->context != body->context ||
	    (s->kind == STREAM_LEGACY && !legacy_is_free(w, s->context)))
		return;
	before = s->clock;
	crosses = is_crossing(t, exec, s);
	if (w->setting->share) /* CUDA has one launch follow the other */
		clock_join(&s->clock, &exec->clock);
	if (!launch_regions(t, s, body, NULL, op->how) || !launch_call(t, exec, s)) {
		if (w->setting->share)
			s->clock = before;
		return;
	}
	mark = order_step(w, s);
	exec->clock = s->clock;
	w->launched[s->number] = launch_note(w, exec, mark, w->streams_gone);
	if (crosses)
		w->crossings[s->number] = w->launched[s->number];
	launch_regions(t, s, body, &mark, 0);
	body_ran(w, body);
}

/* --- ends --- */

void graphs_end(struct thread *t)
{
	for (unsigned i = 0; i < EXEC_SLOTS; i++)
		exec_release(t, &t->model->execs[i]);
	for (unsigned i = 0; i < GRAPH_SLOTS; i++)
		graph_release(t, &t->model->graphs[i]);
	pools_end(t->model);
}

void graphs_detach_context(struct model *w, int context)
{
	for (unsigned i = 0; i < GRAPH_SLOTS; i++)
		if (w->graphs[i].handle && w->graphs[i].body->context == context)
			w->graphs[i].body->broken = true;
	for (unsigned i = 0; i < EXEC_SLOTS; i++)
		if (w->execs[i].handle && w->execs[i].body->context == context)
			w->execs[i].body->broken = true;
}

/* The graph in this slot, or in the next one that has one. */
struct graph *graph_near(struct model *w, unsigned slot)
{
	for (unsigned i = 0; i < GRAPH_SLOTS; i++)
		if (w->graphs[(slot + i) % GRAPH_SLOTS].handle)
			return &w->graphs[(slot + i) % GRAPH_SLOTS];
	return &w->graphs[slot % GRAPH_SLOTS];
}

static struct exec *exec_near(struct model *w, unsigned slot)
{
	for (unsigned i = 0; i < EXEC_SLOTS; i++)
		if (w->execs[(slot + i) % EXEC_SLOTS].handle)
			return &w->execs[(slot + i) % EXEC_SLOTS];
	return &w->execs[slot % EXEC_SLOTS];
}

void graphs_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct graph *graph = graph_near(w, op->a);
	struct exec *exec = exec_near(w, op->b);

	if (op->kind == OP_GRAPH_INSTANTIATE)
		graph_instantiate(t, graph, &w->execs[op->b % EXEC_SLOTS]);
	else if (op->kind == OP_GRAPH_LAUNCH)
		exec_launch(t, exec, op);
	else if (op->kind == OP_GRAPH_UPDATE)
		exec_update(t, exec, graph);
	else if (op->kind == OP_GRAPH_CLONE)
		graph_clone(t, graph, &w->graphs[op->b % GRAPH_SLOTS]);
	else if (op->kind == OP_GRAPH_COMPOSE || op->kind == OP_GRAPH_BESIDE)
		graph_compose(t, op);
	else if (op->kind == OP_GRAPH_DESTROY)
		graph_release(t, graph);
	else
		exec_release(t, exec);
}
