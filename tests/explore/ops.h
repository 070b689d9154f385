/* SPDX-License-Identifier: MIT */
/*
 * ops.h - what is drawn from a seed: operations, histories and settings. Included
 * by explore.h only.
 */
#ifndef EXPLORE_OPS_H
#define EXPLORE_OPS_H

#include <stdio.h>

#include "draw.h"

/* --- the history --- */

/* X(name, weight, group, player): how often, which operations come and go together, and
 * what plays it (PLAYER_play). */
#define EXPLORE_OPS(X)                                                                 \
	X(ALLOC, 100, MEMORY, alloc)                                                   \
	X(FREE, 90, MEMORY, free)                                                      \
	X(FILL, 100, MEMORY, work)                                                     \
	X(CHECK, 60, MEMORY, work)                                                     \
	X(COPY, 30, COPIES, work)                                                      \
	X(ADD, 20, COPIES, work)                                                       \
	X(SET, 20, COPIES, work)                                                       \
	X(READ_BACK, 8, COPIES, work)                                                  \
	X(WRITE, 8, COPIES, work)                                                      \
	X(SPIN, 10, STREAMS, streams)                                                  \
	X(STREAM_CREATE, 14, STREAMS, streams)                                         \
	X(STREAM_DESTROY, 9, STREAMS, streams)                                         \
	X(STREAM_SYNC, 6, WAITS, streams)                                              \
	X(STREAM_QUERY, 6, WAITS, streams)                                             \
	X(CTX_SYNC, 3, WAITS, looks)                                                   \
	X(EVENT_RECORD, 20, EVENTS, events)                                            \
	X(EVENT_WAIT, 20, EVENTS, events)                                              \
	X(EVENT_SYNC, 4, EVENTS, events)                                               \
	X(EVENT_DESTROY, 4, EVENTS, events)                                            \
	X(ADVANCE, 20, TIME, looks)                                                    \
	X(TRIM, 4, TRIMS, looks)                                                       \
	X(STATS, 4, TRIMS, looks)                                                      \
	X(MEM_INFO, 4, TRIMS, looks)                                                   \
	X(USE_CONTEXT, 8, CONTEXTS, contexts)                                          \
	X(CONTEXT_CREATE, 3, CONTEXTS, contexts)                                       \
	X(CONTEXT_DESTROY, 2, CONTEXTS, contexts)                                      \
	X(CONTEXT_RESET, 1, CONTEXTS, contexts)                                        \
	X(ALLOC_PITCH, 10, OTHERS, alloc)                                              \
	X(FREE_ASYNC, 20, OTHERS, free)                                                \
	X(HOST_FUNCTION, 5, OTHERS, external_access)                                   \
	X(SHRINK, 6, OTHERS, external_access)                                          \
	X(EXTERNAL_WRITE, 40, EXTERNAL, external_access)                               \
	X(EXPORT, 20, EXTERNAL, external_access)                                       \
	X(FORK, 1, FORKS, external_access)                                             \
	X(PINNED_ALLOC, 20, PINNED, pinned)                                            \
	X(PINNED_FREE, 16, PINNED, pinned)                                             \
	X(PINNED_WRITE, 20, PINNED, pinned)                                            \
	X(PINNED_READ, 14, PINNED, pinned)                                             \
	X(PINNED_UP, 20, PINNED, work)                                                 \
	X(PINNED_DOWN, 20, PINNED, work)                                               \
	X(THREAD_END, 3, THREADS, looks)                                               \
	X(THREAD_MODE, 4, CAPTURES, capture)                                           \
	X(CAPTURE_BEGIN, 14, CAPTURES, capture)                                        \
	X(CAPTURE_INTO, 4, CAPTURES, capture)                                          \
	X(CAPTURE_FORK, 16, CAPTURES, capture)                                         \
	X(CAPTURE_END, 16, CAPTURES, capture)                                          \
	X(CAPTURE_INVALIDATE, 1, CAPTURES, capture)                                    \
	X(CAPTURE_DESTROY_STREAM, 1, CAPTURES, capture)                                \
	X(POOL_CREATE, 3, POOLS, pools)                                                \
	X(POOL_USE, 6, POOLS, pools)                                                   \
	X(POOL_RELEASE, 3, POOLS, pools)                                               \
	X(GRAPH_INSTANTIATE, 20, GRAPHS, graphs)                                       \
	X(GRAPH_LAUNCH, 40, GRAPHS, graphs)                                            \
	X(GRAPH_UPDATE, 6, GRAPHS, graphs)                                             \
	X(GRAPH_CLONE, 5, GRAPHS, graphs)                                              \
	X(GRAPH_COMPOSE, 5, GRAPHS, graphs)                                            \
	X(GRAPH_DESTROY, 14, GRAPHS, graphs)                                           \
	X(EXEC_DESTROY, 12, GRAPHS, graphs)                                            \
	X(POOL_RETAIN, 3, POOLS, pools)                                                \
	X(POOL_LIST, 4, POOLS, pools)                                                  \
	X(POOL_CHECKPOINT, 8, POOLS, pools)                                            \
	X(POOL_RESTORE, 8, POOLS, pools)                                               \
	X(HOST_LOOK, 10, PINNED, pinned)                                               \
	X(HOST_TRIM, 4, PINNED, pinned)                                                \
	X(PINNED_REGISTER, 4, PINNED, pinned)                                          \
	X(RESET_PEAKS, 2, TRIMS, looks)                                                \
	X(CONTEXT_HOLD, 4, CONTEXTS, contexts)                                         \
	X(CONTEXT_RELEASE, 1, CONTEXTS, contexts)                                      \
	X(CONCURRENT, 2, CONCURRENCY, concurrency)                                     \
	X(STORM, 2, CONCURRENCY, concurrency)                                          \
	X(FILTER, 1, CONCURRENCY, concurrency)                                         \
	X(VERBS, 1, EXTERNAL, external_access)                                         \
	X(MISUSE, 4, MISUSES, misuse)                                                  \
	X(CAPTURE_REWIND, 2, CAPTURES, capture)                                        \
	X(CAPTURE_REFUSE, 2, CAPTURES, capture)                                        \
	X(IPC_PEER_OPEN, 30, IPC_PEERS, ipc_peer)                                      \
	X(IPC_PEER_WORK, 30, IPC_PEERS, ipc_peer)                                      \
	X(IPC_PEER_CLOSE, 8, IPC_PEERS, ipc_peer)                                      \
	X(IPC_PEER_LEND, 10, IPC_PEERS, ipc_peer)                                      \
	X(TURNS, 0, MEMORY, turns) /* only at the end of a history: generate.c */      \
	X(SIZES, 0, MEMORY, sizes) /* on large devices: generate.c */                  \
	X(ALLOC_ASYNC, 90, ASYNC, async)                                               \
	X(FREE_STREAM, 80, ASYNC, free)                                                \
	X(POOL_ASK, 6, ASYNC, async)                                                   \
	/* Drawn by sharing_draw.c alone. */                                           \
	X(GRAPH_BESIDE, 0, GRAPHS, graphs)                                             \
	X(LAUNCH_RACE, 0, GRAPHS, sharing)                                             \
	X(SHARE_TURNS, 0, GRAPHS, sharing)                                             \
	/* Only at the end of a history: promises.c. */                                \
	X(PINNED_FULL, 0, PINNED, promises)                                            \
	X(PINNED_BESIDE, 0, PINNED, promises)                                          \
	X(THREAD_CANCEL, 0, THREADS, promises)                                         \
	X(CAPTURE_UNKNOWN, 0, CAPTURES, promises)                                      \
	X(IPC_PEER_LATE, 0, IPC_PEERS, ipc_peer)                                       \
	X(SLEEP, 0, TRIMS, looks) /* with --sleep */

enum op_kind {
#define X(name, weight, group, player) OP_##name,
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
	bool large;           /* programs use many GiB (OP_SIZES) */
	bool defaults;        /* the library's options are unset */
	uint64_t quota;       /* bytes of a device; 0: no limit */
	uint64_t spill;       /* bytes of the host where that is full (GCPOOL_SPILL) */
	uint64_t host_memory; /* bytes that may be pinned; 0: no limit */
	uint64_t host_quota;
	bool host_thread;      /* a thread of the library's looks at fences */
	bool count;            /* the library is off */
	bool filter;           /* the kernel refuses what the library would like */
	bool early;            /* calls fail from before the first one of CUDA */
	bool exit_with_memory; /* the program ends with memory in use */
	bool check_often;      /* all invariants after each step */
	bool leak;             /* no free is done: the program alone must be in order */
	bool plain;            /* without the library */
	bool share;            /* graphs may share memory (GCPOOL_GRAPH_SHARE) */
	bool sleep;            /* the process sleeps at random moments (GCPOOL_WAKE) */
};

/* Whether the program gives its contexts access to memory of other devices. */
static inline bool peers_are_open(const struct setting *setting)
{
	return !(setting->seed & 64);
}

/* Draws the setting of a source; the second one hands it to the environment, and
 * writes that to `show`, if there is one. */
extern bool setting_sleeps; /* --sleep */
void setting_draw(struct setting *ret_setting, const struct source *source);
void setting_apply(const struct setting *setting, FILE *show);
void history_draw(struct history *ret_history, const struct setting *setting);
const char *op_name(unsigned kind);
void history_print(const struct history *history, const uint8_t *kept);

#endif
