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
	SAY(thread, op);
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
	ADD(make, launch);
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
	SAY(cast.me, begin_draw(g, mode, stream));
	if (works) {
		struct op own = alloc_of(g, 600);

		SAY(cast.me, own);
		SAY(cast.other, on_block(g, OP_FILL, own.a, stream));
	}
	SAY(cast.other, alloc);
	say(g, below(g, 2) ? cast.me : cast.other,
	    on_block(g, OP_FILL, alloc.a, stream));
	if (below(g, 2))
		SAY(cast.other, on_block(g, OP_FREE, alloc.a, stream));
	SAY(cast.me, end_draw(g, 0, graph));
	SAY(cast.other, on_block(g, OP_FREE, alloc.a, stream));
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
		SAY(g->thread, begin_draw(g, mode, streams[i]));
	ADD(alloc, on_block(g, OP_FILL, alloc.a, streams[last]));
	if (below(g, 2))
		ADD(on_block(g, OP_FREE, alloc.a, streams[last]));
	for (unsigned i = 0; i < 2; i++)
		ADD(end_draw(g, i, i));
	destroy.a = (uint8_t)!last;
	ADD(on_block(g, OP_FREE, alloc.a, streams[last]), destroy);
	run_graph(g, last);
	aftermath(g, alloc.bytes);
	run_graph(g, last);
}

/* --- what is in order with what ----------------------------------------------- */

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
	struct op fork = on_block(g, OP_CAPTURE_FORK, 0, side);
	struct op lagging = alloc_of(g, bytes), again;

	ADD(begin_draw(g, GLOBAL, main));
	burst_of(g, 700, main);
	ADD(fork);
	burst_of(g, 700, main);
	ADD(lagging, slow_fill(g, lagging.a, side), free_of(g, lagging.a, side));
	burst_of(g, 700, main);
	fork.c = stream_of_all(g);
	ADD(fork, again = alloc_of(g, bytes),
	    on_block(g, OP_FILL, again.a, below(g, 2) ? main : fork.c));
	if (below(g, 2))
		ADD(on_block(g, OP_FREE, again.a, main));
	ADD(end_draw(g, 0, 0));
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
	ADD(begin_draw(g, GLOBAL, main), block, slow_fill(g, block.a, main));
	if (early)
		ADD(on_block(g, OP_FREE, block.a, main));
	ADD(rewind);
	if (!early)
		ADD(on_block(g, OP_FREE, block.a, main));
	for (unsigned i = 1 + (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, i == 1 ? bytes : 700, main);
	ADD(end_draw(g, 0, 0));
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

		ADD(common, slow_fill(g, common.a, apart), free_of(g, common.a, apart));
	}
	pool_set(g, g->thread, slot, true);
	ADD(begin_draw(g, GLOBAL, main), block, on_block(g, OP_FILL, block.a, main),
	    end_draw(g, 0, 0), slow_fill(g, block.a, apart));
	if (!inside)
		ADD(on_block(g, OP_FREE, block.a, apart));
	ADD(begin_draw(g, GLOBAL, main));
	if (inside)
		ADD(on_block(g, OP_FREE, block.a, apart));
	if (beside)
		SAY(cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	if (below(g, 3)) {
		burst_of(g, bytes, main);
		ADD(end_draw(g, 0, 1));
		run_graph(g, 1);
	} else { /* nothing of it is left but the memory */
		release.a = (uint8_t)slot;
		destroy_exec.kind = OP_EXEC_DESTROY;
		ADD(end_draw(g, 0, 1), release);
		for (destroy.a = 0; destroy.a < 2; destroy.a++) {
			destroy_exec.b = destroy.a;
			ADD(destroy, destroy_exec);
		}
	}
	pool_set(g, g->thread, slot, false);
	if (beside)
		SAY(cast.other, end_draw(g, 1, 2));
	if (below(g, 2)) {
		struct op fresh = alloc_of(g, bytes);

		ADD(fresh, on_block(g, OP_EXTERNAL_WRITE, fresh.a, apart));
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

	destroy.a = 0;
	checkpoint.a = release.a = restore.a = (uint8_t)slot;
	release.kind = OP_POOL_RELEASE;
	restore.kind = OP_POOL_RESTORE;
	for (unsigned i = 0; i < 2; i++) {
		pool_set(g, g->thread, slot, true);
		ADD(begin_draw(g, GLOBAL, main), block = alloc_of(g, bytes),
		    free_of(g, block.a, main), end_draw(g, 0, 0));
		if (i == 1)
			break;
		ADD(checkpoint, destroy, release, op_draw(g, OP_STATS));
	}
	ADD(restore);
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
	ADD(begin_draw(g, GLOBAL, main), block, slow_fill(g, block.a, main),
	    free_of(g, block.a, main), end_draw(g, 0, 0));
	run_graph(g, 0);
	ADD(begin_draw(g, GLOBAL, main), fresh = alloc_of(g, bytes), end_draw(g, 0, 1));
	pool_set(g, g->thread, slot, false);
	if (captures)
		SAY(cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	ADD(on_block(g, OP_EXPORT, fresh.a, main));
	if (captures)
		SAY(cast.other, end_draw(g, 0, 2));
}

/* Two captures into one pool: what one has put off until its end is not ready at the
 * other one's. */
static void shared_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	struct cast cast = cast_draw(g);
	unsigned slot = (unsigned)below(g, NAMED_MAX);
	uint8_t main = stream_of_all(g), side = stream_of_all(g);
	struct op fork = on_block(g, OP_CAPTURE_FORK, 1, side), block;

	pool_set(g, cast.other, slot, true);
	pool_set(g, cast.me, slot, true);
	SAY(cast.other, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	SAY(cast.me, begin_draw(g, THREAD_LOCAL, main), fork,
	    block = alloc_of(g, bytes), slow_fill(g, block.a, side),
	    free_of(g, block.a, side));
	SAY(cast.other, end_draw(g, 0, 2));
	SAY(cast.me, block = alloc_of(g, bytes), on_block(g, OP_FILL, block.a, main),
	    end_draw(g, 1, 1));
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

	for (unsigned i = 2 + (unsigned)below(g, 14); i > 0; i--)
		ADD(block = alloc_of(g, bytes), slow_fill(g, block.a, stream),
		    free_of(g, block.a, stream));
	ADD(block = alloc_of(g, bytes),
	    on_block(g, below(g, 2) ? OP_EXPORT : OP_EXTERNAL_WRITE, block.a, stream));
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
		ADD(destroy);
	create.a = use.a = (uint8_t)(2 + below(g, CONTEXTS_MAX - 2));
	ordered_draw(g);
	fill = on_block(g, OP_FILL, 0, 0);
	fill.a = g->history->ops[g->history->count - 1].a;
	if (g->history->count < g->room) /* neither exported nor written */
		g->history->count--;
	if (captures) {
		mode_set(g, cast.other, THREAD_LOCAL);
		SAY(cast.me, begin_draw(g, THREAD_LOCAL, stream_of_all(g)));
	}
	SAY(cast.other, create, use, fill);
	if (captures)
		SAY(cast.me, end_draw(g, 0, 0));
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
	ADD(give, block);
	for (unsigned i = 2 + (unsigned)below(g, 4); i > 0; i--) {
		if (graphs)
			ADD(begin_draw(g, RELAXED, stream_of_all(g)));
		ADD(take);
		if (graphs)
			ADD(end_draw(g, 0, 0));
		ADD(write, slow_fill(g, block.a, copy.c), copy, give);
		if (graphs)
			ADD(destroy);
		if (below(g, 3) == 0)
			ADD(op_draw(g, OP_ADVANCE));
	}
	ADD(take, write);
}

/* A context of the program's own becomes current. */
static void context_own(struct generator *g, uint8_t own)
{
	struct op create = op_draw(g, OP_CONTEXT_CREATE),
		  use = op_draw(g, OP_USE_CONTEXT);

	create.a = use.a = own;
	ADD(create, use);
}

/* A stream of another context frees a block behind work of its own. */
static void strange_draw(struct generator *g)
{
	uint64_t bytes = g->sizes[below(g, SIZES)];
	struct op use = op_draw(g, OP_USE_CONTEXT), block = alloc_of(g, bytes);

	use.a = 0;
	ADD(use, block);
	context_own(g, (uint8_t)(2 + below(g, CONTEXTS_MAX - 2)));
	ADD(slow_fill(g, block.a, 1), on_block(g, OP_FREE_ASYNC, block.a, 1), use);
	g->used &= ~(1ull << block.a);
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
	stream.a = stream_of_all(g);
	ADD(create, use, stream);
	burst_of(g, bytes, stream.a);
	ADD(begin_draw(g, (unsigned)below(g, 3), stream.a));
	burst_of(g, bytes, stream.a);
	ADD(end);
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
	ADD(create);
	use.a = 0;
	for (unsigned i = 0; i < THREADS_MAX; i++)
		SAY(i, use);
	SAY(cast.other, small);
	mode_set(g, cast.other, (unsigned)below(g, 3));
	SAY(cast.me, begin_draw(g, 2, stream));
	SAY(cast.other, fill);
	ADD(end);
	g->thread = cast.other;
	for (unsigned i = 1 + (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, bytes, stream);
	SAY(cast.me, end_draw(g, 0, 0), make);
	aftermath(g, bytes);
	SAY(cast.me, launch);
}

/* A stream that was joined goes on after blocks of the first one were freed and given
 * again, and work captured there in between: it follows what was there at a free. */
void rest_draw(struct generator *g)
{
	uint8_t main = stream_of_all(g), side = stream_of_all(g);
	struct op record = op_draw(g, OP_EVENT_RECORD), wait = record;
	struct op kept = alloc_of(g, 600), block = alloc_of(g, 1 << 20);
	struct op own = alloc_of(g, 600);

	record.c = side;
	wait.kind = OP_EVENT_WAIT;
	wait.c = main;
	ADD(begin_draw(g, GLOBAL, main), kept, own, on_block(g, OP_FILL, kept.a, main),
	    on_block(g, OP_CAPTURE_FORK, 0, side));
	for (unsigned i = 2 + (unsigned)below(g, 6); i > 0; i--) {
		if (below(g, 2))
			ADD(record, wait);
		ADD(block);
		if (below(g, 2))
			ADD(on_block(g, OP_FILL, own.a, side));
		ADD(on_block(g, OP_FILL, block.a, main),
		    on_block(g, OP_FREE, block.a, main));
		if (below(g, 2))
			ADD(on_block(g, OP_FILL, kept.a, main));
	}
	ADD(end_draw(g, 0, 0));
	run_graph(g, 0);
}

/* Memory is out in one context while another one has some that waits for its work. */
static void reclaim_draw(struct generator *g)
{
	uint64_t bytes = (g->setting->memory_small ? g->setting->memory : 64 << 20) / 8;
	uint8_t stream = stream_draw(g);
	struct op use = op_draw(g, OP_USE_CONTEXT), block = alloc_of(g, bytes);

	use.a = 0;
	context_own(g, 2);
	for (block.a = 0; block.a < 6; block.a++)
		ADD(block, slow_fill(g, block.a, stream));
	while (block.a-- > 0)
		ADD(on_block(g, OP_FREE, block.a, stream));
	ADD(use);
	aftermath(g, bytes);
	aftermath(g, 3 * bytes);
}

/* The last one three times: few devices are as small as it needs. */
static void (*const scenarios[])(struct generator *g) = {
    past_draw,   beside_draw,  both_draw,    lag_draw,      rewind_draw, lent_draw,
    shared_draw, handed_draw,  ordered_draw, newcomer_draw, pinned_draw, strange_draw,
    lost_draw,   reclaim_draw, reclaim_draw, reclaim_draw,
};
enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };

void scenario_draw(struct generator *g)
{
	scenarios[below(g, SCENARIOS)](g);
}
