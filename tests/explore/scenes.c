/*
 * scenes.c - plays of several steps in which one rule of the library matters, and
 * which a mixture of single operations would hardly ever make: see generate.c. A
 * history that loses steps of one, when it is shrunk, is a correct program all the
 * same.
 */
#include "generate.h"

/* Whoever's turn it is, and somebody else. */
struct cast {
	unsigned me, other;
};

static struct cast cast_draw(struct generator *g)
{
	struct cast cast = {.me = g->thread};

	cast.other = (cast.me + 1 + (unsigned)below(g, THREADS_MAX - 1)) % THREADS_MAX;
	return cast;
}

static void say(struct generator *g, unsigned thread, struct op op)
{
	op.thread = (uint8_t)thread;
	op_add(g, op);
}

static void mode_set(struct generator *g, unsigned thread, unsigned mode)
{
	struct op op = op_draw(g, OP_THREAD_MODE);

	op.how = (uint8_t)mode;
	say(g, thread, op);
}

/* A stream that can be captured and that every thread can name. */
static uint8_t stream_of_all(struct generator *g)
{
	return (uint8_t)(2 + below(g, STREAM_SLOTS - 2));
}

static struct op begin_draw(struct generator *g, unsigned mode, uint8_t stream)
{
	struct op op = op_draw(g, OP_CAPTURE_BEGIN);

	op.how = (uint8_t)mode;
	op.c = stream;
	return op;
}

/* So that it joins its streams, and into this graph. */
static struct op end_draw(struct generator *g, unsigned capture, unsigned graph)
{
	struct op op = op_draw(g, OP_CAPTURE_END);

	op.how |= 1;
	op.a = (uint8_t)capture;
	op.b = (uint8_t)graph;
	return op;
}

static struct op on_block(struct generator *g, enum op_kind kind, uint8_t slot,
			  uint8_t stream)
{
	struct op op = op_draw(g, kind);

	op.a = slot;
	op.c = stream;
	return op;
}

static void run_graph(struct generator *g, unsigned graph)
{
	struct op make = op_draw(g, OP_GRAPH_INSTANTIATE);
	struct op launch = op_draw(g, OP_GRAPH_LAUNCH);

	make.a = (uint8_t)graph;
	make.b = launch.b = (uint8_t)graph;
	op_add(g, make);
	op_add(g, launch);
}

/* Others get blocks of the same size afterwards, and work on them. */
static void aftermath(struct generator *g, uint64_t bytes)
{
	for (unsigned i = 1 + (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, bytes, stream_draw(g));
}

/* --- whose a block is ----------------------------------------------------------------
 */

enum { GLOBAL, THREAD_LOCAL, RELAXED };

/* One thread captures, another one allocates meanwhile: a block that it gives to the
 * captured work, or only holds. */
static void beside_draw(struct generator *g)
{
	struct cast cast = cast_draw(g);
	struct op alloc = op_draw(g, OP_ALLOC);
	uint8_t stream = stream_of_all(g);
	bool works = below(g, 2); /* on the captured stream itself */
	unsigned mode = works ? (unsigned)below(g, 3) : GLOBAL;
	unsigned graph = (unsigned)below(g, GRAPH_SLOTS);

	alloc.bytes = g->sizes[below(g, SIZES)];
	mode_set(g, cast.other, below(g, 2) ? GLOBAL : (unsigned)below(g, 3));
	if (works) /* something to work on */
		burst_of(g, alloc.bytes, stream);
	say(g, cast.me, begin_draw(g, mode, stream));
	if (works) {
		struct op own = op_draw(g, OP_ALLOC);

		own.bytes = 600;
		say(g, cast.me, own);
		say(g, cast.other, on_block(g, OP_FILL, own.a, stream));
	}
	say(g, cast.other, alloc);
	say(g, below(g, 2) ? cast.me : cast.other,
	    on_block(g, OP_FILL, alloc.a, stream));
	if (below(g, 2))
		say(g, cast.other, on_block(g, OP_FREE, alloc.a, stream));
	say(g, cast.me, end_draw(g, 0, graph));
	say(g, cast.other, on_block(g, OP_FREE, alloc.a, stream));
	run_graph(g, graph);
	aftermath(g, alloc.bytes);
	run_graph(g, graph);
}

/* A thread with two captures: what it allocates is for both of them. */
static void both_draw(struct generator *g)
{
	struct op alloc = op_draw(g, OP_ALLOC), drop = op_draw(g, OP_GRAPH_DESTROY);
	uint8_t streams[2] = {stream_of_all(g), stream_of_all(g)};
	unsigned mode = (unsigned)below(g, 3), last = (unsigned)below(g, 2);

	alloc.bytes = g->sizes[below(g, SIZES)];
	for (unsigned i = 0; i < 2; i++)
		say(g, g->thread, begin_draw(g, mode, streams[i]));
	op_add(g, alloc);
	op_add(g, on_block(g, OP_FILL, alloc.a, streams[last]));
	if (below(g, 2))
		op_add(g, on_block(g, OP_FREE, alloc.a, streams[last]));
	for (unsigned i = 0; i < 2; i++)
		op_add(g, end_draw(g, i, i));
	op_add(g, on_block(g, OP_FREE, alloc.a, streams[last]));
	drop.a = (uint8_t)!last;
	op_add(g, drop);
	run_graph(g, last);
	aftermath(g, alloc.bytes);
	run_graph(g, last);
}

static void (*const scenes[])(struct generator *g) = {
    beside_draw,
    both_draw,
};

void scene_draw(struct generator *g)
{
	scenes[below(g, sizeof(scenes) / sizeof(*scenes))](g);
}
