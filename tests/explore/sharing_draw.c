/* SPDX-License-Identifier: MIT */
/*
 * sharing_draw.c - draws graphs that may share memory: several captures with
 * temporaries, launches of them on one stream, on several, on default streams, by
 * several threads, and whatever may happen between two launches. It is drawn after the
 * rest of the history, which stays as it was, and stands before, behind or between it.
 * Graphs that read what others leave are drawn last, and stand behind all.
 */
#include "generate.h"

enum {
	GRAPHS_MAX = 5, /* of one play */
	STREAMS_OF = 4, /* that it launches on */
	ROOM = 300,     /* operations, at most */
	CHUNK_OPS = 8,  /* that stay together between others */
};

/* What the play is about. */
struct cast {
	unsigned graphs, streams, threads;
	uint8_t stream[STREAMS_OF];
	uint64_t bytes[GRAPHS_MAX]; /* of a temporary of each graph */
	unsigned shape;             /* temporaries; 0: drawn for each graph */
};

static uint64_t temporary_draw(struct generator *g)
{
	uint64_t large = g->setting->memory_small || g->setting->quota ? 3 : 40;

	switch (below(g, 8)) {
	case 0:
		return 512 + below(g, 8192);
	case 1:
		return 1 + below(g, 1 << 20);
	case 2:
		return 1 + below(g, large << 20);
	default:
		return (1 << 20) + below(g, 4 << 20);
	}
}

static void cast_draw(struct generator *g, struct cast *cast)
{
	bool alike = below(g, 3) == 0;

	cast->graphs = 2 + (unsigned)below(g, GRAPHS_MAX - 1);
	cast->streams = 1 + (unsigned)below(g, STREAMS_OF);
	cast->threads = below(g, 3) ? 1 : g->setting->threads;
	cast->shape = below(g, 2) ? 1 + (unsigned)below(g, 4) : 0;
	for (unsigned i = 0; i < STREAMS_OF; i++)
		cast->stream[i] = (uint8_t)(below(g, 5) ? 2 + below(g, STREAM_SLOTS - 2)
							: below(g, 2));
	for (unsigned i = 0; i < GRAPHS_MAX; i++)
		cast->bytes[i] = alike && i > 0 ? cast->bytes[0] : temporary_draw(g);
}

/* --- captures ------------------------------------------------------------- */

/* A block that is taken, written, read and, most often, freed in the capture. The
 * graph's kernels take their time more often than not. */
static void temporary(struct generator *g, unsigned thread, uint64_t bytes,
		      uint8_t stream, bool alike)
{
	struct op alloc = alloc_of(g, bytes), fill, check;

	fill = on_block(g, OP_FILL, alloc.a, stream);
	check = on_block(g, OP_CHECK, alloc.a, stream);
	fill.how = (uint8_t)(below(g, 4) ? 2 : 0); /* at the block's start */
	check.how = (uint8_t)(below(g, 4) ? 2 : 0);
	if (alike)
		fill.how = check.how = 2;
	fill.bytes = check.bytes = 19000;
	say(g, thread, alloc);
	say(g, thread, fill);
	if (!alike && below(g, 4) == 0) /* two at once */
		temporary(g, thread, bytes, stream, true);
	say(g, thread, check);
	if (!alike && below(g, 10) == 0)
		return; /* an output */
	say(g, thread, free_of(g, alloc.a, stream));
}

static void instantiate(struct generator *g, unsigned graph, unsigned exec)
{
	struct op op = op_draw(g, OP_GRAPH_INSTANTIATE);

	op.a = (uint8_t)graph;
	op.b = (uint8_t)exec;
	ADD(op);
}

/* Most programs keep the executable alone. */
static void destroy(struct generator *g, unsigned graph)
{
	struct op op = op_draw(g, OP_GRAPH_DESTROY);

	op.a = (uint8_t)graph;
	ADD(op);
}

static void capture(struct generator *g, const struct cast *cast, unsigned graph)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  end = op_draw(g, OP_CAPTURE_END);
	unsigned thread = g->thread;
	unsigned count = cast->shape ? cast->shape : 1 + (unsigned)below(g, 4);

	if (cast->threads > 1)
		thread = (unsigned)below(g, cast->threads);
	begin.c = (uint8_t)(2 + below(g, STREAM_SLOTS - 2));
	begin.how = (uint8_t)(below(g, 4) ? GLOBAL : below(g, 3));
	end.a = 0;
	end.b = (uint8_t)graph;
	end.how |= 1;
	say(g, thread, begin);
	while (count-- > 0)
		temporary(g, thread, cast->bytes[graph % GRAPHS_MAX], begin.c,
			  cast->shape > 0);
	say(g, thread, end);
	instantiate(g, graph, graph);
	if (below(g, 4))
		destroy(g, graph);
}

/* --- launches ------------------------------------------------------------- */

static void launch(struct generator *g, const struct cast *cast, unsigned exec,
		   uint8_t stream)
{
	struct op op = op_draw(g, OP_GRAPH_LAUNCH);

	op.b = (uint8_t)exec;
	op.c = stream;
	op.how |= 2; /* in order by events, where it must be */
	say(g, cast->threads > 1 ? (unsigned)below(g, cast->threads) : g->thread, op);
}

/* Other work, that has nothing to do with the graphs. */
static void beside(struct generator *g, const struct cast *cast)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  end = op_draw(g, OP_CAPTURE_END);
	uint64_t bytes = cast->bytes[below(g, cast->graphs)];
	unsigned other = (g->thread + 1) % THREADS_MAX;

	if (below(g, 3)) {
		burst_of(g, bytes, cast->stream[below(g, STREAMS_OF)]);
		return;
	}
	begin.how = THREAD_LOCAL;
	begin.c = (uint8_t)(2 + below(g, STREAM_SLOTS - 2));
	end.a = (uint8_t)below(g, CAPTURE_SLOTS);
	end.b = GRAPH_SLOTS - 1;
	say(g, other, begin);
	for (unsigned i = (unsigned)below(g, 3); i > 0; i--)
		launch(g, cast, (unsigned)below(g, cast->graphs),
		       cast->stream[below(g, STREAMS_OF)]);
	say(g, other, end);
}

/* What may come between two launches; most of it does not concern the graph that is
 * launched next. */
static void interlude(struct generator *g, const struct cast *cast)
{
	static const enum op_kind kinds[] = {
	    OP_ADVANCE,        OP_ADVANCE,      OP_ADVANCE,       OP_TRIM,
	    OP_TRIM,           OP_STREAM_SYNC,  OP_STREAM_QUERY,  OP_STREAM_DESTROY,
	    OP_STREAM_DESTROY, OP_EVENT_RECORD, OP_EVENT_WAIT,    OP_EXEC_DESTROY,
	    OP_GRAPH_UPDATE,   OP_GRAPH_UPDATE, OP_GRAPH_CLONE,   OP_GRAPH_COMPOSE,
	    OP_GRAPH_BESIDE,   OP_GRAPH_BESIDE, OP_GRAPH_DESTROY, OP_LAUNCH_RACE,
	    OP_LAUNCH_RACE,    OP_MEM_INFO,     OP_STATS,         OP_SHRINK,
	    OP_FREE,           OP_CHECK,        OP_EXPORT,        OP_CTX_SYNC,
	    OP_SPIN,           OP_CONCURRENT,   OP_POOL_LIST,
	};
	enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
	unsigned graph = (unsigned)below(g, GRAPH_SLOTS);
	struct op op;

	switch (below(g, 6)) {
	case 0:
		capture(g, cast, graph);
		return;
	case 1:
		beside(g, cast);
		return;
	default:
		op = op_draw(g, kinds[below(g, KINDS)]);
		op.a = (uint8_t)(op.kind == OP_FREE || op.kind == OP_CHECK ||
					 op.kind == OP_EXPORT
				     ? op.a
				     : below(g, GRAPH_SLOTS));
		op.b = (uint8_t)below(g, EXEC_SLOTS);
		op.c = cast->stream[below(g, STREAMS_OF)];
		ADD(op);
		if (op.kind != OP_ADVANCE && below(g, 2))
			instantiate(g, graph, graph);
	}
}

static void launches(struct generator *g, const struct cast *cast)
{
	unsigned pattern = (unsigned)below(g, 5), one = (unsigned)below(g, STREAMS_OF);
	unsigned exec = (unsigned)below(g, cast->graphs);

	for (unsigned i = 0, count = 3 + (unsigned)below(g, 20); i < count; i++) {
		unsigned stream = (unsigned)below(g, cast->streams);

		if (pattern == 0)
			stream = one;
		else if (pattern == 1)
			stream = i % cast->streams;
		if (pattern != 2) /* the same graph on several streams */
			exec = (unsigned)below(g, cast->graphs);
		launch(g, cast, exec, cast->stream[stream]);
		if (below(g, 4) == 0)
			interlude(g, cast);
	}
}

static void play_draw(struct generator *g)
{
	struct cast cast;

	cast_draw(g, &cast);
	if (below(g, 6) == 0)
		ADD(op_draw(g, OP_SHARE_TURNS));
	for (unsigned i = 0; i < cast.graphs; i++) {
		capture(g, &cast, i);
		if (below(g, 2))
			launch(g, &cast, i, cast.stream[0]);
	}
	for (unsigned i = 1 + (unsigned)below(g, 4); i > 0; i--)
		launches(g, &cast);
}

/* --- results -------------------------------------------------------------- */

/* What a capture leaves: a block that stays the program's, and then a temporary. */
static uint8_t result_capture(struct generator *g, uint64_t bytes, struct op begin,
			      struct op end)
{
	struct op alloc = alloc_of(g, bytes), fill;

	fill = on_block(g, OP_FILL, alloc.a, begin.c);
	fill.how = (uint8_t)(fill.how & ~1); /* at its start */
	ADD(begin, alloc, fill);
	for (unsigned i = (unsigned)below(g, 2); i > 0; i--)
		temporary(g, g->thread, bytes, begin.c, true);
	ADD(end);
	return alloc.a;
}

/* Another one that copies it into a block of its own or of before, and has temporaries.
 * The result is freed in it, or behind it. */
static uint8_t reader_capture(struct generator *g, uint64_t bytes, uint8_t result,
			      struct op begin, struct op end)
{
	struct op out = op_draw(g, OP_ALLOC), copy = op_draw(g, OP_COPY);
	struct op release = on_block(g, OP_FREE, result, begin.c);
	bool before = below(g, 4), behind = below(g, 3) == 0;

	copy.a = out.a;
	copy.b = result;
	copy.c = begin.c;
	copy.how = 0; /* start to start, by itself */
	if (before)
		ADD(out);
	ADD(begin);
	if (!before)
		ADD(out);
	for (unsigned i = (unsigned)below(g, 3); i > 0; i--)
		temporary(g, g->thread, bytes, begin.c, true);
	ADD(copy);
	if (!behind)
		ADD(release);
	for (unsigned i = (unsigned)below(g, 2); i > 0; i--)
		temporary(g, g->thread, bytes, begin.c, true);
	ADD(end);
	if (behind)
		ADD(release);
	g->used &= ~(1ull << result);
	return out.a;
}

/* A graph reads what another one leaves, and both are launched by turns, with what may
 * come between. The first one may have an executable before the second capture. */
void results_draw(struct generator *g)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  end = op_draw(g, OP_CAPTURE_END);
	bool early = below(g, 3) == 0;
	struct cast cast;
	uint8_t result, out;

	cast_draw(g, &cast);
	cast.graphs = 2;
	begin.c = (uint8_t)(2 + below(g, STREAM_SLOTS - 2));
	begin.how = (uint8_t)(below(g, 4) ? GLOBAL : THREAD_LOCAL);
	end.how |= 1;
	end.a = 0;
	end.b = 0;
	result = result_capture(g, cast.bytes[0], begin, end);
	if (early)
		instantiate(g, 0, 0);
	end.b = 1;
	out = reader_capture(g, cast.bytes[1], result, begin, end);
	if (!early)
		instantiate(g, 0, 0);
	instantiate(g, 1, 1);
	for (unsigned i = 4 + (unsigned)below(g, 12); i > 0; i--) {
		launch(g, &cast, i % 2, cast.stream[below(g, cast.streams)]);
		if (below(g, 3) == 0)
			ADD(on_block(g, OP_CHECK, out, cast.stream[0]));
		if (below(g, 6) == 0)
			interlude(g, &cast);
	}
	ADD(on_block(g, OP_READ_BACK, out, cast.stream[0]));
}

/* --- before, behind or between the rest ------------------------------------ */

/* Takes turns of some operations, each list in its order. */
static void mix(struct generator *g, const struct op *ops, uint32_t count)
{
	static struct op first[OPS_MAX];
	struct history *history = g->history;
	uint32_t i = 0, j = 0, firsts = history->count - count;

	memcpy(first, history->ops, firsts * sizeof(*first));
	history->count = 0;
	while (i < firsts || j < count) {
		bool others = j == count || (i < firsts && below(g, 2));
		unsigned n = 1 + (unsigned)below(g, CHUNK_OPS);

		for (; n > 0 && others && i < firsts; n--)
			ADD(first[i++]);
		for (; n > 0 && !others && j < count; n--)
			ADD(ops[j++]);
	}
}

void sharing_draw(struct generator *g)
{
	static struct op ops[OPS_MAX];
	struct history *history = g->history;
	uint32_t before = history->count, count;

	g->thread = (unsigned)below(g, g->setting->threads);
	g->room = before + ROOM;
	play_draw(g);
	if (below(g, 3) == 0)
		play_draw(g);
	count = history->count - before;
	memcpy(ops, history->ops + before, count * sizeof(*ops));
	switch (below(g, 3)) {
	case 0:
		memmove(history->ops + count, history->ops,
			before * sizeof(*history->ops));
		memcpy(history->ops, ops, count * sizeof(*ops));
		break;
	case 1:
		mix(g, ops, count);
		break;
	default:
		break;
	}
}
