/* SPDX-License-Identifier: MIT */
/*
 * turns.c - the same thing many times over: a block is taken, worked on and freed, or
 * pinned memory is, or a small graph is captured and kept. On plain CUDA that takes
 * one block's memory, and as much as the graphs' blocks; what the library takes may
 * not grow with the number of turns.
 */
#include "explore.h"

#include "gcpool.h"

enum {
	TURNS = 100,
	PINNED_TURNS = 24,
	GRAPHS = 40,
	SIZES_TURNS = 150,
	SIZE_LEAST = 1 << 20,
	KINDS = 4,
	CHUNK = 2 << 20, /* the least that a segment has */
	GRAPH_BYTES = 512,
	PINNED_SHIFT = 6
};

/* What was held when the turns began. */
struct held {
	int device;
	uint64_t used, graphs; /* of that, in pools of graphs */
	uint64_t bytes;        /* of one block */
	unsigned turn;
};

static uint64_t graphs_bytes(int device)
{
	struct gcpool_stats stats;

	return device >= 0 && library.get_stats &&
		       library.get_stats(device, &stats, sizeof(stats)) == 0
		   ? stats.private_bytes.current
		   : 0;
}

static struct held held_now(int device)
{
	return (struct held){
	    .device = device,
	    .used = gcpsim_memory_used(device),
	    .graphs = graphs_bytes(device),
	};
}

/* What graphs have taken is missing in the bound of the whole history, too. */
static void graphs_count(struct model *w, int device, uint64_t bytes)
{
	if (w->graphs_held[device] < bytes)
		w->graphs_held[device] = bytes;
}

/* More is held: excused if that is memory of graphs. */
static bool is_of_graphs(struct model *w, const struct held *held,
			 const struct held *now, uint64_t bound)
{
	uint64_t graphs = now->graphs > held->graphs ? now->graphs - held->graphs : 0;

	if (held->bytes == GRAPH_BYTES || now->used > held->used + bound + graphs)
		return false;
	graphs_count(w, held->device, graphs);
	excused(EXCUSE_GRAPHS);
	return true;
}

/* With several contexts a quarter of all may wait for the device: of blocks, each of
 * which may have a segment of the least size to itself. */
static uint64_t waiting_most(const struct held *held)
{
	uint64_t piece = (held->bytes + CHUNK - 1) / CHUNK * CHUNK;
	uint64_t waiting;

	if (held->device < 0 || held->bytes <= CHUNK / 2)
		return held->used / 2;
	waiting = held->used / (4 * held->bytes - piece) * piece;
	return waiting > held->used / 2 ? waiting : held->used / 2;
}

static void growth_check(struct model *w, const struct held *held)
{
	uint64_t bound =
	    plain_growth_bound(w, held->device, held->bytes) + waiting_most(held);
	struct held now = held_now(held->device);

	if (now.used <= held->used + bound || w->setting->plain || fault_excuses(w))
		return;
	if (held->device < 0 && now.used <= held->used + bound + w->pinned_captured)
		excused(EXCUSE_GRAPHS);
	else if (held->device >= 0 && w->freed_elsewhere)
		excused(EXCUSE_WAIT_DEVICES);
	else if (held->device < 0 || !is_of_graphs(w, held, &now, bound))
		failure(w,
			"device %d: after %u turns with %lu bytes %lu are held instead "
			"of %lu, and the bound is %lu more",
			held->device, held->turn, held->bytes, now.used, held->used,
			bound);
}

static void turns(struct thread *t, const struct op *op, bool pinned)
{
	struct model *w = t->model;
	struct op take = *op, work = *op, give = *op;
	int context = t->context; /* work on a stream makes the stream's current */
	struct held held = held_now(pinned ? -1 : w->contexts[t->context].device);

	take.kind = pinned ? OP_PINNED_ALLOC : OP_ALLOC;
	work.kind = pinned ? OP_PINNED_UP : OP_FILL;
	give.kind = pinned ? OP_PINNED_FREE : OP_FREE;
	take.how = 0;
	take.bytes = pinned ? op->bytes % (16 << 10) : (512 << 10) + op->bytes * 16;
	work.how = 2;
	held.bytes = pinned ? (take.bytes + 1) << PINNED_SHIFT : take.bytes;
	op_play(t, &give);
	for (held.turn = 1; held.turn <= (pinned ? PINNED_TURNS : TURNS); held.turn++) {
		context_use(t, context);
		op_play(t, &take);
		op_play(t, &work);
		op_play(t, &give);
	}
	growth_check(w, &held);
}

/* One graph that has a block of its own, freed in the capture: its memory, or 0. */
static uint64_t graph_capture(struct thread *t, CUstream stream, int device,
			      CUgraph *ret_graph)
{
	struct model *w = t->model;
	uint64_t plain = gcpsim_plain_alloc(device, GRAPH_BYTES);
	CUdeviceptr addr = 0;

	*ret_graph = NULL;
	if (!FINE(t, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)))
		return plain;
	if (FINE(t, cuMemAlloc(&addr, GRAPH_BYTES))) {
		FINE(t, cuMemsetD32Async(addr, 1, GRAPH_BYTES / 4, stream));
		plain_waits(w, t->context);
		if (!FINE(t, cuMemFree(addr)))
			(void)cuMemFree(addr);
	}
	FINE(t, cuStreamEndCapture(stream, ret_graph));
	return plain;
}

static void graphs(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	int device = w->contexts[t->context].device;
	struct held held;
	uint64_t plain[GRAPHS];
	CUgraph made[GRAPHS];
	CUstream stream;

	(void)op;
	/* No small block, where a test makes the classes large. */
	if (!all_is_calm(w) || w->setting->plain || t->pool ||
	    w->setting->memory_small || w->setting->quota ||
	    plain_option("GCPOOL_TEST_CLASS_MIN", 0) > CHUNK / 64 ||
	    !FINE(t, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
		return;
	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	held = held_now(device);
	held.bytes = GRAPH_BYTES;
	for (held.turn = 0; held.turn < GRAPHS; held.turn++)
		plain[held.turn] = graph_capture(t, stream, device, &made[held.turn]);
	growth_check(w, &held);
	graphs_count(w, device, graphs_bytes(device) - held.graphs);
	for (unsigned i = 0; i < GRAPHS; i++) {
		gcpsim_plain_free(plain[i]);
		if (made[i])
			FINE(t, cuGraphDestroy(made[i]));
	}
	FINE(t, cuStreamDestroy(stream));
	w->streams_gone++;
	w->frees++;
}

/* --- many sizes --------------------------------------------------------------- */

/* All of one size, each larger than the one before by 1 % or twice as large, each
 * smaller, or random ones. */
static uint64_t size_next(struct draw *draw, unsigned how, uint64_t size, uint64_t most)
{
	if (how > 3)
		return SIZE_LEAST + draw_below(draw, most);
	size = how == 2 ? 2 * size
			: size / 100 *
			      (how == 1   ? 101
			       : how == 3 ? 98
					  : 100);
	return size > most ? SIZE_LEAST : size < SIZE_LEAST ? most : size;
}

/* Blocks of which one to 48 live at the same time are worked on and freed in one or
 * many streams, none, some (but in several contexts) or all of them in the order of the
 * stream, which is the block's own: what it frees serves no other. What is held is
 * looked at each time. */
void sizes_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct draw draw = {op->value};
	unsigned live = 1 + op->a % 3 * (op->a % 24u), how = op->how % 6;
	unsigned streams = 1 + op->b % 8;
	unsigned kinds = w->setting->devices > 1 ? 2 : 3;
	unsigned asyncs =
	    w->setting->vmm && !w->ordinary ? op->c % kinds * 2 / (kinds - 1) : 0;
	uint64_t most = w->setting->memory / 16 / live, size = op->bytes;
	int context = t->context;

	/* What a capture takes stays with its graph, and would fill any device. */
	for (unsigned i = 0;
	     i < SIZES_TURNS && !w->setting->leak && !capture_may_take(t); i++) {
		struct op one = {.a = (uint8_t)(i % live), .how = 2, .value = i};
		const struct block *old = w->slots[one.a];

		one.c = (uint8_t)(2 + draw_below(&draw, streams));
		if (asyncs)
			one.c = (uint8_t)(2 + one.a % streams);
		one.bytes = size = size_next(&draw, how, size, most);
		one.kind = old && old->async ? OP_FREE_STREAM : OP_FREE;
		op_play(t, &one);
		context_use(t, context);
		one.kind = draw_below(&draw, 2) < asyncs ? OP_ALLOC_ASYNC : OP_ALLOC;
		op_play(t, &one);
		one.kind = OP_FILL;
		op_play(t, &one);
		plain_bounds(w);
	}
}

/* Waits for pinned memory sleep between looks, and the device moves on a little with
 * each. */
static bool is_slow(void)
{
	const char *speed = getenv("GCPSIM_SPEED");

	return pinned_is_slow() || (speed && strcmp(speed, "300") == 0);
}

void turns_play(struct thread *t, const struct op *op)
{
	if (t->model->setting->leak || (op->how % KINDS == 2 && is_slow()))
		return;
	if (op->how % KINDS == 3) {
		graphs(t, op);
		return;
	}
	turns(t, op, op->how % KINDS == 2);
	/* Beside a capture pinned memory has a bound of its own. */
	if (op->how % KINDS != 2 && !all_is_calm(t->model) && !is_slow())
		turns(t, op, true);
}
