/* SPDX-License-Identifier: MIT */
/*
 * ops.h - what is drawn from a seed: operations, histories and settings. Included
 * by explore.h only.
 */
#ifndef EXPLORE_OPS_H
#define EXPLORE_OPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "draw.h"

/* --- the history --- */

/* X(name, weight, group): how often, and which operations come and go together. */
#define EXPLORE_OPS(X)                                                                 \
	X(ALLOC, 100, MEMORY)                                                          \
	X(FREE, 90, MEMORY)                                                            \
	X(FILL, 100, MEMORY)                                                           \
	X(CHECK, 60, MEMORY)                                                           \
	X(COPY, 30, COPIES)                                                            \
	X(ADD, 20, COPIES)                                                             \
	X(SET, 20, COPIES)                                                             \
	X(READ_BACK, 8, COPIES)                                                        \
	X(WRITE, 8, COPIES)                                                            \
	X(SPIN, 10, STREAMS)                                                           \
	X(STREAM_CREATE, 14, STREAMS)                                                  \
	X(STREAM_DESTROY, 9, STREAMS)                                                  \
	X(STREAM_SYNC, 6, WAITS)                                                       \
	X(STREAM_QUERY, 6, WAITS)                                                      \
	X(CTX_SYNC, 3, WAITS)                                                          \
	X(EVENT_RECORD, 20, EVENTS)                                                    \
	X(EVENT_WAIT, 20, EVENTS)                                                      \
	X(EVENT_SYNC, 4, EVENTS)                                                       \
	X(EVENT_DESTROY, 4, EVENTS)                                                    \
	X(ADVANCE, 20, TIME)                                                           \
	X(TRIM, 4, TRIMS)                                                              \
	X(STATS, 4, TRIMS)                                                             \
	X(MEM_INFO, 4, TRIMS)                                                          \
	X(USE_CONTEXT, 8, CONTEXTS)                                                    \
	X(CONTEXT_CREATE, 3, CONTEXTS)                                                 \
	X(CONTEXT_DESTROY, 2, CONTEXTS)                                                \
	X(CONTEXT_RESET, 1, CONTEXTS)                                                  \
	X(ALLOC_PITCH, 10, OTHERS)                                                     \
	X(FREE_ASYNC, 20, OTHERS)                                                      \
	X(HOST_FUNCTION, 5, OTHERS)                                                    \
	X(SHRINK, 6, OTHERS)                                                           \
	X(EXTERNAL_WRITE, 40, EXTERNAL)                                                \
	X(EXPORT, 20, EXTERNAL)                                                        \
	X(FORK, 1, FORKS)                                                              \
	X(PINNED_ALLOC, 20, PINNED)                                                    \
	X(PINNED_FREE, 16, PINNED)                                                     \
	X(PINNED_WRITE, 20, PINNED)                                                    \
	X(PINNED_READ, 14, PINNED)                                                     \
	X(PINNED_UP, 20, PINNED)                                                       \
	X(PINNED_DOWN, 20, PINNED)                                                     \
	X(THREAD_END, 3, THREADS)                                                      \
	X(THREAD_MODE, 4, CAPTURES)                                                    \
	X(CAPTURE_BEGIN, 14, CAPTURES)                                                 \
	X(CAPTURE_INTO, 4, CAPTURES)                                                   \
	X(CAPTURE_FORK, 16, CAPTURES)                                                  \
	X(CAPTURE_END, 16, CAPTURES)                                                   \
	X(CAPTURE_INVALIDATE, 1, CAPTURES)                                             \
	X(CAPTURE_DESTROY_STREAM, 1, CAPTURES)                                         \
	X(POOL_CREATE, 3, POOLS)                                                       \
	X(POOL_USE, 6, POOLS)                                                          \
	X(POOL_RELEASE, 3, POOLS)                                                      \
	X(GRAPH_INSTANTIATE, 20, GRAPHS)                                               \
	X(GRAPH_LAUNCH, 40, GRAPHS)                                                    \
	X(GRAPH_UPDATE, 6, GRAPHS)                                                     \
	X(GRAPH_CLONE, 5, GRAPHS)                                                      \
	X(GRAPH_COMPOSE, 5, GRAPHS)                                                    \
	X(GRAPH_DESTROY, 14, GRAPHS)                                                   \
	X(EXEC_DESTROY, 12, GRAPHS)                                                    \
	X(POOL_RETAIN, 3, POOLS)                                                       \
	X(POOL_LIST, 4, POOLS)                                                         \
	X(POOL_CHECKPOINT, 8, POOLS)                                                   \
	X(POOL_RESTORE, 8, POOLS)                                                      \
	X(HOST_LOOK, 10, PINNED)                                                       \
	X(HOST_TRIM, 4, PINNED)                                                        \
	X(PINNED_REGISTER, 4, PINNED)                                                  \
	X(RESET_PEAKS, 2, TRIMS)                                                       \
	X(CONTEXT_HOLD, 4, CONTEXTS)                                                   \
	X(CONTEXT_RELEASE, 1, CONTEXTS)                                                \
	X(CONCURRENT, 2, CONCURRENCY)                                                  \
	X(STORM, 2, CONCURRENCY)                                                       \
	X(FILTER, 1, CONCURRENCY)                                                      \
	X(VERBS, 1, EXTERNAL)                                                          \
	X(MISUSE, 4, MISUSES)                                                          \
	X(CAPTURE_REWIND, 2, CAPTURES)                                                 \
	X(CAPTURE_REFUSE, 2, CAPTURES)                                                 \
	X(IPC_PEER_OPEN, 30, IPC_PEERS)                                                \
	X(IPC_PEER_WORK, 30, IPC_PEERS)                                                \
	X(IPC_PEER_CLOSE, 8, IPC_PEERS)                                                \
	X(IPC_PEER_LEND, 10, IPC_PEERS)                                                \
	X(TURNS, 0, MEMORY) /* only at the end of a history: generate.c */             \
	X(ALLOC_ASYNC, 90, ASYNC)                                                      \
	X(FREE_STREAM, 80, ASYNC)                                                      \
	X(POOL_ASK, 6, ASYNC)                                                          \
	/* Drawn by sharing_draw.c alone. */                                           \
	X(GRAPH_BESIDE, 0, GRAPHS)                                                     \
	X(LAUNCH_RACE, 0, GRAPHS)                                                      \
	X(SHARE_TURNS, 0, GRAPHS)                                                      \
	/* Only at the end of a history: promises.c. */                                \
	X(PINNED_FULL, 0, PINNED)                                                      \
	X(PINNED_BESIDE, 0, PINNED)                                                    \
	X(THREAD_CANCEL, 0, THREADS)                                                   \
	X(CAPTURE_UNKNOWN, 0, CAPTURES)                                                \
	X(IPC_PEER_LATE, 0, IPC_PEERS)

enum op_kind {
#define X(name, weight, group) OP_##name,
	EXPLORE_OPS(X)
#undef X
	    OP_KINDS
};

enum { OPS_DRAWN = 400, OPS_MAX = 800 }; /* by generate.c; by all */

/* One step of the program. What the letters mean stands where it is played. */
struct op {
	uint8_t kind;    /* enum op_kind */
	uint8_t thread;  /* that does it */
	uint8_t a, b, c; /* slots, taken modulo what there is */
	uint8_t how;
	uint8_t none[2]; /* no padding: histories are compared by their bytes */
	uint32_t value;
	uint64_t bytes;
};

struct history {
	uint64_t seed;
	uint32_t count;
	struct op ops[OPS_MAX];
};

struct fault;
struct frozen;

struct setting {
	const struct fault *fault; /* or NULL */
	unsigned step_s;           /* a step that takes longer hangs */
	struct source source;
	uint64_t seed; /* the source's */
	unsigned threads;
	int devices;
	int driver_version;
	uint64_t memory; /* bytes, of each device */
	uint64_t cache_limit;
	bool vmm;
	bool completed;       /* a device outside every queue may write */
	bool tight;           /* memory may be taken back from captures under way */
	bool memory_small;    /* out-of-memory is to be expected */
	bool defaults;        /* ... with the library's options unset */
	uint64_t pinned;      /* bytes that one block may keep from being given back */
	uint64_t quota;       /* bytes of a device; 0: no limit */
	uint64_t host_memory; /* bytes that may be pinned; 0: no limit */
	uint64_t host_quota;
	bool host_thread;      /* a thread of the library's looks at fences */
	bool count;            /* the library only counts */
	bool filter;           /* the kernel refuses what the library would like */
	bool early;            /* calls fail from before the first one of CUDA */
	bool exit_with_memory; /* the program ends with memory in use */
	bool check_often;      /* all invariants after each step */
	bool leak;             /* no free is done: the program alone must be in order */
	bool plain;            /* without the library */
	bool share;            /* graphs may share memory (GCPOOL_GRAPH_SHARE) */
};

/* Draws the setting of a source; the second one hands it to the environment, and
 * writes that to `show`, if there is one. */
void setting_draw(struct setting *ret_setting, const struct source *source);
void setting_apply(const struct setting *setting, FILE *show);
void history_draw(struct history *ret_history, const struct setting *setting);
const char *op_name(unsigned kind);
void history_print(const struct history *history, const uint8_t *kept);

#endif
