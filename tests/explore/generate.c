/* SPDX-License-Identifier: MIT */
/*
 * generate.c - draws a history. It knows roughly which slots are in use, so that
 * most operations find what they need; playing tolerates those that do not.
 *
 * Each history leaves out some groups of operations and prefers others (a swarm:
 * what is rare in a mixture of everything is common in some histories), uses a
 * handful of sizes, so that memory comes back, and lets one thread work for a
 * while before the next one does.
 */
#include "generate.h"

enum group {
	GROUP_MEMORY,
	GROUP_COPIES,
	GROUP_STREAMS,
	GROUP_WAITS,
	GROUP_EVENTS,
	GROUP_TIME,
	GROUP_TRIMS,
	GROUP_CONTEXTS,
	GROUP_THREADS,
	GROUP_CAPTURES,
	GROUP_GRAPHS,
	GROUP_POOLS,
	GROUP_OTHERS,
	GROUP_EXTERNAL,
	GROUP_FORKS,
	GROUP_PINNED,
	GROUP_CONCURRENCY,
	GROUP_MISUSES,
	GROUPS_COMMON, /* those before are in most histories, those behind in some */
	GROUP_IPC_PEERS = GROUPS_COMMON,
	GROUP_ASYNC,
	GROUP_COUNT
};

static const struct {
	const char *name;
	unsigned weight;
	enum group group;
} kinds[OP_KINDS] = {
#define OPS_ROW(name, weight, group, player) {#name, weight, GROUP_##group},
    EXPLORE_OPS(OPS_ROW)};

/* --- sizes --- */

/* Of blocks that fill a small device, and of very large ones. */
static uint64_t size_most(const struct setting *setting)
{
	if (setting->defaults)
		return setting->memory / 4;
	return (setting->memory_small ? 24ull : 600ull) << 20;
}

static uint64_t size_draw(struct generator *g)
{
	switch (below(g, 10)) {
	case 0:
		return 1 + below(g, 512);
	case 1 ... 3:
		return 1 + below(g, 40000);
	case 4 ... 5:
		return 1 + below(g, 1 << 20);
	case 6 ... 7:
		return 1 + below(g, 6 << 20);
	case 8:
		return 1 + below(g, 40ull << 20);
	default:
		return 1 + below(g, size_most(g->setting));
	}
}

static uint64_t size_pick(struct generator *g)
{
	uint64_t size = g->sizes[below(g, SIZES)], way = below(g, 8);

	if (way == 0)
		return size_draw(g);
	return way == 1 ? size - below(g, size / 4 + 1) : size;
}

/* --- what is likely there ----------------------------------------------------- */

static uint8_t slot_used(struct generator *g)
{
	for (unsigned tries = 0; tries < 12; tries++) {
		unsigned slot = (unsigned)below(g, g->slots);

		if (g->used >> slot & 1)
			return (uint8_t)slot;
	}
	return (uint8_t)below(g, g->slots);
}

static uint8_t slot_empty(struct generator *g)
{
	for (unsigned tries = 0; tries < 12; tries++) {
		unsigned slot = (unsigned)below(g, g->slots);

		if (!(g->used >> slot & 1))
			return (uint8_t)slot;
	}
	return (uint8_t)below(g, g->slots);
}

uint8_t stream_draw(struct generator *g)
{
	return (uint8_t)below(g, g->streams);
}

/* --- one operation --- */

static enum op_kind kind_draw(struct generator *g)
{
	uint64_t at = below(g, g->weight);

	for (unsigned kind = 0; kind < OP_KINDS; kind++) {
		if (at < g->weights[kind])
			return (enum op_kind)kind;
		at -= g->weights[kind];
	}
	return OP_ALLOC;
}

struct op op_draw(struct generator *g, enum op_kind kind)
{
	struct op op = {.kind = (uint8_t)kind, .thread = (uint8_t)g->thread};

	op.how = (uint8_t)below(g, 256);
	op.value = (uint32_t)below(g, 1ull << 32);
	op.a = slot_used(g);
	op.b = slot_used(g);
	op.c = stream_draw(g);
	op.bytes = below(g, 60000);
	if ((kind >= OP_PINNED_ALLOC && kind <= OP_PINNED_READ) ||
	    kind == OP_HOST_LOOK || kind == OP_PINNED_REGISTER)
		op.a = op.b;
	if (kind == OP_ALLOC || kind == OP_ALLOC_PITCH || kind == OP_ALLOC_ASYNC) {
		op.a = slot_empty(g);
		op.bytes = size_pick(g);
		g->used |= 1ull << op.a;
	} else if (kind == OP_FREE || kind == OP_FREE_ASYNC || kind == OP_FREE_STREAM) {
		g->used &= ~(1ull << op.a);
	}
	return op;
}

void op_add(struct generator *g, struct op op)
{
	if (g->history->count < g->room)
		g->history->ops[g->history->count++] = op;
}

void say(struct generator *g, unsigned thread, struct op op)
{
	op.thread = (uint8_t)thread;
	ADD(op);
}

struct op on_block(struct generator *g, enum op_kind kind, uint8_t slot, uint8_t stream)
{
	struct op op = op_draw(g, kind);

	op.a = slot;
	op.c = stream;
	return op;
}

struct op alloc_of(struct generator *g, uint64_t bytes)
{
	struct op op = op_draw(g, OP_ALLOC);

	op.bytes = bytes;
	return op;
}

struct op free_of(struct generator *g, uint8_t slot, uint8_t stream)
{
	struct op op = on_block(g, OP_FREE, slot, stream);

	g->used &= ~(1ull << slot);
	return op;
}

/* What programs do most: allocate, work on it, free it at once. */
static void burst_draw(struct generator *g)
{
	struct op alloc = op_draw(g, OP_ALLOC), fill = op_draw(g, OP_FILL);
	struct op check = op_draw(g, OP_CHECK), release = op_draw(g, OP_FREE);
	uint8_t stream = stream_draw(g);

	g->used &= ~(1ull << alloc.a);
	if (g->async && below(g, 2)) {
		alloc.kind = OP_ALLOC_ASYNC;
		release.kind = OP_FREE_STREAM;
		alloc.c = release.c = stream;
		if (below(g, 4) == 0)
			release.c = stream_draw(g);
	}
	fill.a = check.a = release.a = alloc.a;
	fill.c = check.c = stream;
	ADD(alloc, fill);
	if (below(g, 2))
		ADD(check);
	ADD(release);
}

void burst_of(struct generator *g, uint64_t bytes, uint8_t stream)
{
	uint32_t from = g->history->count;

	burst_draw(g);
	for (; from < g->history->count; from++) {
		struct op *op = &g->history->ops[from];

		op->c = stream;
		if (op->kind == OP_ALLOC)
			op->bytes = bytes;
	}
}

/* Blocks that are taken before a fork, and used on its new stream only: they must not
 * be what the old one has freed since the place where the new one starts. */
static void held_draw(struct generator *g, struct op fork, uint64_t bytes)
{
	unsigned held = (unsigned)below(g, 3);
	struct op ops[2];

	for (unsigned i = 0; i < held; i++)
		ADD(ops[i] = alloc_of(g, bytes));
	ADD(fork);
	for (unsigned i = 0; i < held; i++) {
		struct op fill = op_draw(g, OP_FILL), release = op_draw(g, OP_FREE);

		fill.a = release.a = ops[i].a;
		fill.c = fork.c;
		ADD(fill, release);
		g->used &= ~(1ull << ops[i].a);
	}
}

/* Two streams of one capture that do not wait for each other, with blocks of one
 * size freed and allocated on both by turns: what one frees is not the other's. */
static void forked_draw(struct generator *g)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  end = op_draw(g, OP_CAPTURE_END);
	struct op fork = op_draw(g, OP_CAPTURE_FORK);
	struct op early = op_draw(g, OP_EVENT_RECORD);
	struct op make = op_draw(g, OP_GRAPH_INSTANTIATE);
	struct op launch = op_draw(g, OP_GRAPH_LAUNCH);
	uint64_t bytes = g->sizes[below(g, SIZES)];
	unsigned count = 2 + (unsigned)below(g, 6);

	begin.c = (uint8_t)(1 + below(g, STREAM_SLOTS - 1));
	fork.c = (uint8_t)(1 + below(g, STREAM_SLOTS - 1));
	fork.a = end.a = (uint8_t)below(g, CAPTURE_SLOTS * 2);
	make.a = end.b;
	launch.b = make.b;
	ADD(begin);
	early.c = begin.c;
	if (below(g, 2)) { /* from before what follows */
		ADD(early);
		fork.kind = OP_EVENT_WAIT;
		fork.a = early.a;
	}
	for (unsigned i = (unsigned)below(g, 3); i > 0; i--)
		burst_of(g, bytes, begin.c);
	held_draw(g, fork, bytes);
	for (; count > 0; count--)
		burst_of(g, bytes, below(g, 2) ? begin.c : fork.c);
	ADD(end, make, launch, launch);
}

/* A capture as programs make them, and what becomes of it. */
static void capture_draw(struct generator *g)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  end = op_draw(g, OP_CAPTURE_END);
	struct op make = op_draw(g, OP_GRAPH_INSTANTIATE);
	struct op launch = op_draw(g, OP_GRAPH_LAUNCH);
	unsigned count = 1 + (unsigned)below(g, 10);

	begin.c = (uint8_t)(1 + below(g, STREAM_SLOTS - 1));
	end.a = (uint8_t)below(g, CAPTURE_SLOTS * 2);
	make.a = end.b;
	launch.b = make.b;
	ADD(begin);
	for (unsigned i = 0; i < count; i++) {
		uint32_t from = g->history->count;

		if (below(g, 3))
			burst_draw(g);
		else
			ADD(op_draw(g, kind_draw(g)));
		for (; from < g->history->count && below(g, 4); from++)
			g->history->ops[from].c = begin.c;
	}
	ADD(end, make);
	for (unsigned i = (unsigned)below(g, 3); i < 3; i++) {
		launch.c = stream_draw(g);
		ADD(launch);
	}
}

/* Two captures into one named pool, a checkpoint after the first one, and the first
 * graph once more after the second. */
static void restore_draw(struct generator *g)
{
	static const enum op_kind kinds_of[] = {OP_POOL_CREATE, OP_POOL_USE};
	struct op checkpoint = op_draw(g, OP_POOL_CHECKPOINT);
	uint8_t slot = checkpoint.a;

	for (unsigned i = 0; i < 2; i++) {
		struct op op = op_draw(g, kinds_of[i]);

		op.a = slot;
		op.how |= 1;
		ADD(op);
	}
	capture_draw(g);
	ADD(checkpoint);
	for (unsigned i = (unsigned)below(g, 4); i > 0; i--)
		ADD(op_draw(g, below(g, 2) ? OP_FREE : OP_GRAPH_LAUNCH));
	capture_draw(g);
	ADD(op_draw(g, OP_GRAPH_LAUNCH));
	checkpoint.kind = OP_POOL_RESTORE;
	ADD(checkpoint);
}

/* The same many times over, alone or beside a capture of another thread, or beside work
 * of another context. At the end of a history, so that seeds keep what they had. */
static void turns_draw(struct generator *g)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN),
		  use = op_draw(g, OP_USE_CONTEXT);
	struct op spin = op_draw(g, OP_SPIN), turns = op_draw(g, OP_TURNS);
	struct op create = op_draw(g, OP_CONTEXT_CREATE);
	enum { LONG_NS = 1 << 30 };

	switch (below(g, 3)) {
	case 0:
		begin.thread = (uint8_t)(turns.thread + 1);
		begin.how = 1; /* thread-local */
		ADD(begin);
		break;
	case 1:
		create.a = use.a = 2;
		spin.bytes = LONG_NS;
		spin.c = turns.c = 1; /* a stream of the context itself */
		spin.thread = use.thread = create.thread = turns.thread;
		ADD(create, use, spin);
		use.a = 0;
		ADD(use);
		turns.how = below(g, 2) ? 2 : turns.how; /* pinned memory */
		break;
	default:
		break;
	}
	ADD(turns);
}

/* Blocks that fill most of a small device, one at a time or many of one size of which
 * a few stay, and then as much as is left: plain CUDA has room for each. Not in
 * histories that planted bugs are tried on; and from choices of its own, so that seeds
 * keep what else they had. */
static void mix_draw(struct generator *g)
{
	enum { AT_ONCE = 40, ONE_BY_ONE = 12 };
	const struct setting *setting = g->setting;
	uint64_t most = setting->quota ? setting->quota : setting->memory, size,
		 kept = 0;
	unsigned kind = (unsigned)below(g, 4), keep = 2 + (unsigned)below(g, 9);
	struct op op = op_draw(g, OP_FREE);

	for (op.a = 0; op.a < BLOCK_SLOTS; op.a++)
		ADD(op);
	for (unsigned i = 0; kind < 3 && i < ONE_BY_ONE; i++) {
		unsigned part = kind == 0 ? i : kind == 1 ? ONE_BY_ONE - 1 - i : 0;

		size = most / 16 * (part + 1) + below(g, most / 16);
		burst_of(g, kind == 2 ? 1 + below(g, most / 8 * 7) : size,
			 stream_draw(g));
	}
	if (kind < 3)
		return;
	size = most / 100 * 95 / AT_ONCE - below(g, most / AT_ONCE / 2);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		op = on_block(g, OP_ALLOC, (uint8_t)i, 0);
		op.bytes = size;
		ADD(op, on_block(g, OP_FILL, (uint8_t)i, stream_draw(g)));
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (i % keep)
			ADD(on_block(g, OP_FREE, (uint8_t)i, 0));
		else
			kept += size + (2 << 20);
	if (kept < most)
		burst_of(g, (most - kept) / 100 * (80 + below(g, 20)), stream_draw(g));
}

static void mixes_draw(struct generator *g)
{
	uint64_t number = g->setting->seed & ((1ull << GENERATION_SHIFT) - 1);
	struct draw draw = g->draw;

	if (!(g->setting->memory_small || g->setting->quota) || number < SEEDS_OF_BUGS)
		return;
	g->draw.state = ~g->draw.state;
	if (below(g, 2))
		mix_draw(g);
	g->draw = draw;
}

/* Another context on the first device, or that of the second. */
static void context_add(struct generator *g)
{
	struct op create = op_draw(g, OP_CONTEXT_CREATE);

	create.a = 2;
	ADD(create);
}

/* Programs that use many GiB, on one or more threads, one after the other. */
static void sizes_draw(struct generator *g)
{
	struct op all = op_draw(g, OP_SIZES);

	for (unsigned i = 2 + (unsigned)below(g, 6); i > 0; i--) {
		struct op op = op_draw(g, OP_SIZES);

		op.thread = (uint8_t)below(g, g->setting->threads);
		op.bytes <<= below(g, 16);
		op.b = all.b;
		op.c = all.how % 4 == 0 ? op.c : all.how % 4 - 1;
		ADD(op, op_draw(g, below(g, 2) ? OP_CTX_SYNC : OP_SPIN));
	}
}

/* A play around one promise. The last one of a history: after a capture in an unknown
 * way the library does no more. */
static void promise_draw(struct generator *g)
{
	struct op begin = op_draw(g, OP_CAPTURE_BEGIN);
	enum op_kind kind = OP_PINNED_FULL + (enum op_kind)below(g, 5);

	if (g->setting->host_quota && below(g, 2))
		kind = OP_PINNED_FULL;
	if (kind == OP_IPC_PEER_LATE && !g->setting->vmm)
		kind = OP_PINNED_BESIDE;
	if (kind == OP_PINNED_BESIDE ||
	    (kind == OP_PINNED_FULL && g->setting->host_quota))
		context_add(g);
	if (kind == OP_PINNED_BESIDE) {
		begin.thread = (uint8_t)(g->thread + 1);
		begin.how = 1; /* thread-local */
		begin.c = (uint8_t)(4 + below(g, STREAM_SLOTS - 4));
		ADD(begin);
	}
	ADD(op_draw(g, kind));
}

/* --- the whole --- */

static void weights_draw(struct generator *g)
{
	static const unsigned factors[] = {0, 1, 1, 2, 5};
	unsigned factor[GROUP_COUNT] = {0};

	for (int i = 0; i < GROUPS_COMMON; i++)
		factor[i] = factors[below(g, 5)];
	/* Another process takes its time to start. */
	if (below(g, 8) == 0)
		factor[GROUP_IPC_PEERS] = 4;
	if (below(g, 3) == 0)
		factor[GROUP_ASYNC] = 2 + 3 * (unsigned)below(g, 2);
	g->async = factor[GROUP_ASYNC] > 0;
	factor[GROUP_MEMORY] = 2;
	for (unsigned kind = 0; kind < OP_KINDS; kind++) {
		g->weights[kind] = kinds[kind].weight * factor[kinds[kind].group];
		g->weight += g->weights[kind];
	}
}

/* In between the operations that were drawn. */
static void sleeps_draw(struct generator *g)
{
	struct history *history = g->history;

	for (uint64_t count = 1 + below(g, 24); count > 0; count--) {
		uint32_t at = (uint32_t)below(g, history->count + 1);

		if (history->count == OPS_MAX)
			return;
		memmove(&history->ops[at + 1], &history->ops[at],
			(history->count++ - at) * sizeof(struct op));
		history->ops[at] = op_draw(g, OP_SLEEP);
	}
}

void history_draw(struct history *ret_history, const struct setting *setting)
{
	struct generator g = {.draw = draw_open(&setting->source, DRAW_HISTORY),
			      .setting = setting,
			      .history = ret_history,
			      .room = OPS_DRAWN};
	unsigned length, bursts, captures, restores = 0, scenarios = 0;

	if (setting->source.frozen) {
		*ret_history = setting->source.frozen->history;
		return;
	}
	memset(ret_history, 0, sizeof(*ret_history));
	ret_history->seed = setting->seed;
	weights_draw(&g);
	for (unsigned i = 0; i < SIZES; i++)
		g.sizes[i] = size_draw(&g);
	g.slots = 4 + (unsigned)below(&g, BLOCK_SLOTS - 4);
	g.streams = 2 + (unsigned)below(&g, STREAM_SLOTS - 2);
	length = 30 + (unsigned)below(&g, below(&g, 2) ? 120 : 350);
	bursts = (unsigned)below(&g, 30);
	captures = below(&g, 2) ? (unsigned)below(&g, 12) : 0;
	if (below(&g, 3) == 0)
		restores = (unsigned)below(&g, 6);
	if (below(&g, 2) == 0)
		scenarios = (unsigned)below(&g, 12);
	if (below(&g, 20) == 0)
		op_add(&g, op_draw(&g, OP_VERBS)); /* before anything is freed */
	while (ret_history->count < length && !setting->large) {
		if (below(&g, 10) == 0)
			g.thread = (unsigned)below(&g, setting->threads);
		if (below(&g, 100) < bursts)
			burst_draw(&g);
		else if (below(&g, 100) < captures / 2)
			forked_draw(&g);
		else if (below(&g, 100) < captures)
			capture_draw(&g);
		else if (below(&g, 100) < restores)
			restore_draw(&g);
		else if (below(&g, 100) < scenarios)
			scenario_draw(&g);
		else
			op_add(&g, op_draw(&g, kind_draw(&g)));
	}
	if (setting->large)
		sizes_draw(&g);
	if (below(&g, 8) == 0)
		turns_draw(&g);
	if (setting->share)
		sharing_draw(&g);
	g.room = OPS_MAX;
	mixes_draw(&g);
	if (below(&g, 4) == 3) /* where bytes have run out: none */
		promise_draw(&g);
	else if (setting->share && below(&g, 4) == 3)
		results_draw(&g);
	else if (below(&g, 8) == 7)
		ends_draw(&g);
	else if (below(&g, 4) == 1)
		rest_draw(&g);
	if (setting->sleep)
		sleeps_draw(&g);
}

/* --- to be read --- */

const char *op_name(unsigned kind)
{
	return kinds[kind].name;
}

void history_print(const struct history *history, const uint8_t *kept)
{
	for (uint32_t i = 0; i < history->count; i++) {
		const struct op *op = &history->ops[i];

		if (kept && !kept[i])
			continue;
		printf("%4u thread %u %-15s a %-3u b %-3u c %-3u how %-3u value %-11u "
		       "bytes %lu\n",
		       i, op->thread, kinds[op->kind].name, op->a, op->b, op->c,
		       op->how, op->value, op->bytes);
	}
}
