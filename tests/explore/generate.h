/* SPDX-License-Identifier: MIT */
/*
 * generate.h - what draws a history, for its files: generate.c, scenarios.c and
 * sharing_draw.c.
 */
#ifndef EXPLORE_GENERATE_H
#define EXPLORE_GENERATE_H

#include "../several.h"
#include "explore.h"

enum { SIZES = 5 };
enum { GLOBAL, THREAD_LOCAL, RELAXED }; /* modes of captures */

struct generator {
	struct draw draw;
	const struct setting *setting;
	struct history *history;
	uint64_t sizes[SIZES];
	unsigned weights[OP_KINDS], weight;
	unsigned slots, streams;
	uint64_t used; /* bit per block slot */
	unsigned thread;
	bool async;    /* stream-ordered memory is used, too */
	unsigned room; /* operations that the history may have */
};

static inline uint64_t below(struct generator *g, uint64_t n)
{
	return draw_below(&g->draw, n);
}

/* --- generate.c --- */

uint8_t stream_draw(struct generator *g);
/* One operation of this kind; it is not in the history yet. */
struct op op_draw(struct generator *g, enum op_kind kind);
void op_add(struct generator *g, struct op op);
/* Up to six of them. */
#define ADD(...)    SEVERAL(ADD_ONE, __VA_ARGS__)
#define ADD_ONE(op) op_add(g, op)
/* The same, done by this thread. */
void say(struct generator *g, unsigned thread, struct op op);
#define SAY(thread, ...)                                                               \
	do {                                                                           \
		unsigned by_ = (thread);                                               \
		SEVERAL(SAY_ONE, __VA_ARGS__);                                         \
	} while (0)
#define SAY_ONE(op) say(g, by_, op)
/* One of this kind, on a block and a stream. */
struct op on_block(struct generator *g, enum op_kind kind, uint8_t slot,
		   uint8_t stream);
/* An allocation of so many bytes. */
struct op alloc_of(struct generator *g, uint64_t bytes);
/* The free of a block, after which its slot counts as empty. */
struct op free_of(struct generator *g, uint8_t slot, uint8_t stream);
/* A block of so many bytes, work on it on the stream, and its free. */
void burst_of(struct generator *g, uint64_t bytes, uint8_t stream);

/* --- scenarios.c --- */

/* A play of some length in which one rule of the library matters. */
void scenario_draw(struct generator *g);
/* Contexts and streams end beside a capture of another thread. */
void rest_draw(struct generator *g);
void ends_draw(struct generator *g);

/* --- sharing_draw.c --- */

/* Graphs that may share memory, before, after or between what the history has. */
void sharing_draw(struct generator *g);
/* Graphs whose results others read, behind all that the history has. */
void results_draw(struct generator *g);

#endif
