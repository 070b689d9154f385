/* SPDX-License-Identifier: MIT */
/*
 * scenarios.c - plays of several steps in which one rule of the library matters, and
 * which a mixture of single operations would hardly ever make: see generate.c. A
 * history that loses steps of one, when it is shrunk, is a correct program all the
 * same.
 */
#include "generate.h"

/* The thread whose turn it is, and another one. */
struct cast {
	unsigned me, other;
};

static struct cast cast_draw(struct generator *g)
{
	struct cast cast = {.me = g->thread};

	cast.other = (cast.me + 1 + (unsigned)below(g, THREADS_MAX - 1)) % THREADS_MAX;
	return cast;
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

/* --- whose a block is --------------------------------------------------------- */

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
	struct op alloc = op_draw(g, OP_ALLOC), destroy = op_draw(g, OP_GRAPH_DESTROY);
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
	destroy.a = (uint8_t)!last;
	op_add(g, destroy);
	run_graph(g, last);
	aftermath(g, alloc.bytes);
	run_graph(g, last);
}

/* --- what is in order with what ----------------------------------------------- */

static struct op alloc_of(struct generator *g, uint64_t bytes)
{
	struct op op = op_draw(g, OP_ALLOC);

	op.bytes = bytes;
	return op;
}

static struct op alloc_add(struct generator *g, uint64_t bytes)
{
	struct op op = alloc_of(g, bytes);

	op_add(g, op);
	return op;
}

/* Frees the block of this slot in the order of the stream. */
static void free_add(struct generator *g, uint8_t slot, uint8_t stream)
{
	op_add(g, on_block(g, OP_FREE, slot, stream));
	g->used &= ~(1ull << slot);
}

/* A kernel that takes its time. */
static struct op slow_fill(struct generator *g, uint8_t slot, uint8_t stream)
{
	struct op op = on_block(g, OP_FILL, slot, stream);

	op.how |= 2;
	op.how &= 0xfe;
	op.bytes = 19000;
	return op;
}

static void pool_set(struct generator *g, unsigned thread, unsigned slot, bool named)
{
	struct op create = op_draw(g, OP_POOL_CREATE), use = op_draw(g, OP_POOL_USE);

	create.a = use.a = (uint8_t)slot;
	use.how = named;
	if (named)
		say(g, thread, create);
	say(g, thread, use);
}

/* A side stream lags behind with a block that is freed; a third one joins, and by it
 * something can be proved, but not that. */
static void lag_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	uint8_t main = stream_of_all(g), side = stream_of_all(g);
	struct op fork = op_draw(g, OP_CAPTURE_FORK), lagging = alloc_of(g, bytes);
	struct op again;

	fork.a = 0;
	fork.c = side;
	op_add(g, begin_draw(g, GLOBAL, main));
	burst_of(g, 700, main);
	op_add(g, fork);
	burst_of(g, 700, main);
	op_add(g, lagging);
	op_add(g, slow_fill(g, lagging.a, side));
	free_add(g, lagging.a, side);
	burst_of(g, 700, main);
	fork.c = stream_of_all(g);
	op_add(g, fork);
	again = alloc_add(g, bytes);
	op_add(g, on_block(g, OP_FILL, again.a, below(g, 2) ? main : fork.c));
	if (below(g, 2))
		op_add(g, on_block(g, OP_FREE, again.a, main));
	op_add(g, end_draw(g, 0, 0));
	run_graph(g, 0);
}

/* The first stream turns back to where nothing was captured. */
static void rewind_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	uint8_t main = stream_of_all(g);
	struct op rewind = op_draw(g, OP_CAPTURE_REWIND), block = alloc_of(g, bytes);
	bool early = below(g, 2); /* freed before that */

	rewind.a = 0;
	op_add(g, begin_draw(g, GLOBAL, main));
	op_add(g, block);
	op_add(g, slow_fill(g, block.a, main));
	if (early)
		op_add(g, on_block(g, OP_FREE, block.a, main));
	op_add(g, rewind);
	if (!early)
		op_add(g, on_block(g, OP_FREE, block.a, main));
	for (unsigned i = 1 + (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, i == 1 ? bytes : 700, main);
	op_add(g, end_draw(g, 0, 0));
	run_graph(g, 0);
}

/* Work of the program's own on memory of a named pool, which the next capture into the
 * pool is given: launches come behind that work, and so does the next use of the
 * memory when the pool is gone. */
static void lent_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	unsigned slot = (unsigned)below(g, NAMED_MAX);
	uint8_t main = stream_of_all(g), apart = stream_of_all(g);
	struct op block = alloc_of(g, bytes), release = op_draw(g, OP_POOL_RELEASE);
	struct op destroy = op_draw(g, OP_GRAPH_DESTROY), destroy_exec = destroy;
	bool inside = below(g, 2); /* freed in the second capture */
	struct cast cast = cast_draw(g);
	bool beside = below(g, 3) == 0; /* no barrier can be set at its end */

	if (below(g, 2)) { /* and a common one, pending until then */
		struct op common = alloc_of(g, bytes);

		op_add(g, common);
		op_add(g, slow_fill(g, common.a, apart));
		free_add(g, common.a, apart);
	}
	pool_set(g, g->thread, slot, true);
	op_add(g, begin_draw(g, GLOBAL, main));
	op_add(g, block);
	op_add(g, on_block(g, OP_FILL, block.a, main));
	op_add(g, end_draw(g, 0, 0));
	op_add(g, slow_fill(g, block.a, apart));
	if (!inside)
		op_add(g, on_block(g, OP_FREE, block.a, apart));
	op_add(g, begin_draw(g, GLOBAL, main));
	if (inside)
		op_add(g, on_block(g, OP_FREE, block.a, apart));
	if (beside)
		say(g, cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	if (below(g, 3)) {
		burst_of(g, bytes, main);
		op_add(g, end_draw(g, 0, 1));
		run_graph(g, 1);
	} else { /* nothing of it is left but the memory */
		op_add(g, end_draw(g, 0, 1));
		release.a = (uint8_t)slot;
		op_add(g, release);
		destroy_exec.kind = OP_EXEC_DESTROY;
		for (destroy.a = 0; destroy.a < 2; destroy.a++) {
			destroy_exec.b = destroy.a;
			op_add(g, destroy);
			op_add(g, destroy_exec);
		}
	}
	pool_set(g, g->thread, slot, false);
	if (beside)
		say(g, cast.other, end_draw(g, 1, 2));
	if (below(g, 2)) {
		struct op fresh = alloc_of(g, bytes);

		op_add(g, fresh);
		op_add(g, on_block(g, OP_EXTERNAL_WRITE, fresh.a, apart));
	}
	aftermath(g, bytes);
}

/* A checkpoint of a pool that is gone, and a pool that may lie where it lay. */
static void past_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	unsigned slot = (unsigned)below(g, NAMED_MAX);
	uint8_t main = stream_of_all(g);
	struct op checkpoint = op_draw(g, OP_POOL_CHECKPOINT), block;
	struct op release = checkpoint, restore = checkpoint;
	struct op destroy = op_draw(g, OP_GRAPH_DESTROY);

	checkpoint.a = release.a = restore.a = (uint8_t)slot;
	release.kind = OP_POOL_RELEASE;
	restore.kind = OP_POOL_RESTORE;
	for (unsigned i = 0; i < 2; i++) {
		pool_set(g, g->thread, slot, true);
		op_add(g, begin_draw(g, GLOBAL, main));
		block = alloc_add(g, bytes);
		free_add(g, block.a, main);
		op_add(g, end_draw(g, 0, 0));
		if (i == 1)
			break;
		op_add(g, checkpoint);
		destroy.a = 0;
		op_add(g, destroy);
		op_add(g, release);
		op_add(g, op_draw(g, OP_STATS));
	}
	op_add(g, restore);
	pool_set(g, g->thread, slot, false);
}

/* Another process is handed a block of a named pool, where a graph works that used the
 * memory before. */
static void handed_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	unsigned slot = (unsigned)below(g, NAMED_MAX);
	uint8_t main = stream_of_all(g);
	struct op block = alloc_of(g, bytes), fresh;
	struct cast cast = cast_draw(g);
	bool captures = below(g, 2);

	pool_set(g, g->thread, slot, true);
	op_add(g, begin_draw(g, GLOBAL, main));
	op_add(g, block);
	op_add(g, slow_fill(g, block.a, main));
	free_add(g, block.a, main);
	op_add(g, end_draw(g, 0, 0));
	run_graph(g, 0);
	op_add(g, begin_draw(g, GLOBAL, main));
	fresh = alloc_add(g, bytes);
	op_add(g, end_draw(g, 0, 1));
	pool_set(g, g->thread, slot, false);
	if (captures)
		say(g, cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	op_add(g, on_block(g, OP_EXPORT, fresh.a, main));
	if (captures)
		say(g, cast.other, end_draw(g, 0, 2));
}

/* Two captures into one pool: what one has put off until its end is not ready at the
 * other one's. */
static void shared_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	struct cast cast = cast_draw(g);
	unsigned slot = (unsigned)below(g, NAMED_MAX);
	uint8_t main = stream_of_all(g), side = stream_of_all(g);
	struct op fork = op_draw(g, OP_CAPTURE_FORK), block;

	pool_set(g, cast.other, slot, true);
	pool_set(g, cast.me, slot, true);
	say(g, cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	say(g, cast.me, begin_draw(g, THREAD_LOCAL, main));
	fork.a = 1;
	fork.c = side;
	say(g, cast.me, fork);
	block = alloc_of(g, bytes);
	say(g, cast.me, block);
	say(g, cast.me, slow_fill(g, block.a, side));
	say(g, cast.me, on_block(g, OP_FREE, block.a, side));
	g->used &= ~(1ull << block.a);
	say(g, cast.other, end_draw(g, 0, 2));
	block = alloc_of(g, bytes);
	say(g, cast.me, block);
	say(g, cast.me, on_block(g, OP_FILL, block.a, main));
	say(g, cast.me, end_draw(g, 1, 1));
	run_graph(g, 1);
	pool_set(g, cast.me, slot, false);
	pool_set(g, cast.other, slot, false);
}

/* Memory that is held back behind a barrier at most, for uses that know no barrier. */
static void ordered_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	uint8_t stream = stream_draw(g);
	struct op block;

	for (unsigned i = 2 + (unsigned)below(g, 14); i > 0; i--) {
		block = alloc_add(g, bytes);
		op_add(g, slow_fill(g, block.a, stream));
		free_add(g, block.a, stream);
	}
	block = alloc_add(g, bytes);
	op_add(g, on_block(g, below(g, 2) ? OP_EXPORT : OP_EXTERNAL_WRITE, block.a,
			   stream));
}

/* The same, and a new context works on it at once; perhaps while another thread
 * captures. */
static void newcomer_draw(struct generator *g)
{
	struct op create = op_draw(g, OP_CONTEXT_CREATE),
		  use = op_draw(g, OP_USE_CONTEXT);
	struct op destroy = op_draw(g, OP_CONTEXT_DESTROY), fill;
	struct cast cast = cast_draw(g);
	bool captures = below(g, 2);

	destroy.how &= 0xfe;
	for (destroy.a = 1; destroy.a < CONTEXTS_MAX; destroy.a++)
		op_add(g, destroy);
	create.a = use.a = (uint8_t)(2 + below(g, CONTEXTS_MAX - 2));
	ordered_draw(g);
	fill = on_block(g, OP_FILL, 0, 0);
	fill.a = g->history->ops[g->history->count - 1].a;
	if (g->history->count < g->room) /* neither exported nor written */
		g->history->count--;
	if (captures) {
		mode_set(g, cast.other, THREAD_LOCAL);
		say(g, cast.me, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	}
	say(g, cast.other, create);
	say(g, cast.other, use);
	say(g, cast.other, fill);
	if (captures)
		say(g, cast.me, end_draw(g, 0, 0));
}

/* The host writes into fresh pinned memory, while copies from what was there run. */
static void pinned_draw(struct generator *g)
{
	struct op take = op_draw(g, OP_PINNED_ALLOC), give = op_draw(g, OP_PINNED_FREE);
	struct op copy = op_draw(g, OP_PINNED_UP), write = op_draw(g, OP_PINNED_WRITE);
	struct op block = alloc_of(g, 1 << 20), destroy = op_draw(g, OP_GRAPH_DESTROY);
	bool graphs = below(g, 2);

	take.how = destroy.a = 0;
	give.a = write.a = copy.b = take.a;
	copy.a = block.a;
	op_add(g, give);
	op_add(g, block);
	for (unsigned i = 2 + (unsigned)below(g, 4); i > 0; i--) {
		if (graphs)
			op_add(g, begin_draw(g, RELAXED, stream_of_all(g)));
		op_add(g, take);
		if (graphs)
			op_add(g, end_draw(g, 0, 0));
		op_add(g, write);
		op_add(g, slow_fill(g, block.a, copy.c));
		op_add(g, copy);
		op_add(g, give);
		if (graphs)
			op_add(g, destroy);
		if (below(g, 3) == 0)
			op_add(g, op_draw(g, OP_ADVANCE));
	}
	op_add(g, take);
	op_add(g, write);
}

/* A context of the program's own becomes current. */
static void context_own(struct generator *g, uint8_t own)
{
	struct op create = op_draw(g, OP_CONTEXT_CREATE),
		  use = op_draw(g, OP_USE_CONTEXT);

	create.a = use.a = own;
	op_add(g, create);
	op_add(g, use);
}

/* A stream of another context frees a block behind work of its own. */
static void strange_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	struct op use = op_draw(g, OP_USE_CONTEXT), block = alloc_of(g, bytes);

	use.a = 0;
	op_add(g, use);
	op_add(g, block);
	context_own(g, (uint8_t)(2 + below(g, CONTEXTS_MAX - 2)));
	op_add(g, slow_fill(g, block.a, 1));
	op_add(g, on_block(g, OP_FREE_ASYNC, block.a, 1));
	g->used &= ~(1ull << block.a);
	op_add(g, use);
	aftermath(g, bytes);
}

/* A context ends while it captures, and what it held comes back to others. */
static void lost_draw(struct generator *g)
{
	static const enum op_kind ends[] = {OP_CONTEXT_DESTROY, OP_CONTEXT_RESET,
					    OP_CONTEXT_RELEASE};
	struct op create = op_draw(g, OP_CONTEXT_CREATE);
	struct op use = op_draw(g, OP_USE_CONTEXT),
		  stream = op_draw(g, OP_STREAM_CREATE);
	struct op end = op_draw(g, ends[below(g, 3)]);
	uint64_t bytes = g->sizes[below(g, SIZES)];

	use.a = end.a = create.a;
	end.how &= (uint8_t)~2u; /* nothing can be waited for */
	op_add(g, create);
	op_add(g, use);
	stream.a = stream_of_all(g);
	op_add(g, stream);
	burst_of(g, bytes, stream.a);
	op_add(g, begin_draw(g, (unsigned)below(g, 3), stream.a));
	burst_of(g, bytes, stream.a);
	op_add(g, end);
	aftermath(g, bytes);
}

/* A thread that works on what another one captures, relaxed, allocates, and has nothing
 * but that work to say whose the memory is. Meanwhile a context ends, or a stream: by
 * that thread or another one. The memory is the graph's all the same. */
void ends_draw(struct generator *g)
{
	struct cast cast = cast_draw(g);
	struct op create = op_draw(g, OP_CONTEXT_CREATE),
		  use = op_draw(g, OP_USE_CONTEXT);
	struct op end =
	    op_draw(g, below(g, 3) ? OP_CONTEXT_DESTROY : OP_STREAM_DESTROY);
	struct op small = op_draw(g, OP_ALLOC), fill = op_draw(g, OP_FILL);
	struct op launch = op_draw(g, OP_GRAPH_LAUNCH),
		  make = op_draw(g, OP_GRAPH_INSTANTIATE);
	unsigned ender = (unsigned)below(g, THREADS_MAX);
	uint64_t bytes = g->sizes[below(g, SIZES)];
	uint8_t stream = stream_of_all(g);

	create.a = end.a = 2; /* a context of the program's own */
	create.thread = end.thread = (uint8_t)ender;
	end.how &= (uint8_t)~1u; /* none comes in its place */
	end.c = (uint8_t)(2 + (stream - 1) % (STREAM_SLOTS - 2)); /* another one */
	small.bytes = 4096;
	fill.a = small.a;
	fill.c = stream;
	make.a = make.b = launch.b = 0;
	op_add(g, create);
	use.a = 0;
	for (unsigned i = 0; i < THREADS_MAX; i++)
		say(g, i, use);
	say(g, cast.other, small);
	mode_set(g, cast.other, (unsigned)below(g, 3));
	say(g, cast.me, begin_draw(g, 2, stream));
	say(g, cast.other, fill);
	op_add(g, end);
	g->thread = cast.other;
	for (unsigned i = 1 + (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, bytes, stream);
	say(g, cast.me, end_draw(g, 0, 0));
	say(g, cast.me, make);
	aftermath(g, bytes);
	say(g, cast.me, launch);
}

/* Memory is out in one context while another one has some that waits for its work. */
static void reclaim_draw(struct generator *g)
{
	uint64_t bytes = (g->setting->memory_small ? g->setting->memory : 64 << 20) / 8;
	uint8_t stream = stream_draw(g);
	struct op use = op_draw(g, OP_USE_CONTEXT), block = alloc_of(g, bytes);

	use.a = 0;
	context_own(g, 2);
	for (block.a = 0; block.a < 6; block.a++) {
		op_add(g, block);
		op_add(g, slow_fill(g, block.a, stream));
	}
	while (block.a-- > 0)
		op_add(g, on_block(g, OP_FREE, block.a, stream));
	op_add(g, use);
	aftermath(g, bytes);
	aftermath(g, 3 * bytes);
}

/* The last one three times: few devices are as small as it needs. */
static void (*const scenarios[])(struct generator *g) = {
    past_draw,   beside_draw,  both_draw,    lag_draw,      rewind_draw, lent_draw,
    shared_draw, handed_draw,  ordered_draw, newcomer_draw, pinned_draw, strange_draw,
    lost_draw,   reclaim_draw, reclaim_draw, reclaim_draw,
};
enum {
	SCENARIOS = sizeof(scenarios) / sizeof(*scenarios),
};

void scenario_draw(struct generator *g)
{
	scenarios[below(g, SCENARIOS)](g);
}
