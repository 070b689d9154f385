/* SPDX-License-Identifier: MIT */
/*
 * explore.h - the seeded explorer: types, and what its files offer each other.
 *
 * From one seed come a setting (devices, speed, options of the pool) and a
 * history: a list of small operations that name things by slot number only. It
 * is drawn first and played afterwards, each history in a forked child, as an
 * ordinary CUDA program on the simulated device under the library.
 *
 * Any list of operations is a correct program. What an operation needs is made
 * before it is done (order.c waits for events where two accesses to memory are
 * not ordered yet), and what cannot be done is left out. So a history can lose
 * operations while a failure is shrunk.
 *
 *   bytes.c     choices, from a seed or from bytes
 *   setting.c   what the environment says
 *   generate.c  the history; generate.h for its files
 *   scenarios.c    what takes several steps to happen
 *   sharing_draw.c graphs that may share memory
 *   order.c     vector clocks of the program: what it made sure of by itself
 *   plain.c     what plain CUDA would do with the same calls
 *   blocks.c    the model of memory: what is live, where, whose, and its contents
 *   async.c     stream-ordered memory
 *   work.c      kernels, copies and sets on memory
 *   objects.c    streams, events, contexts, threads and calls that only look
 *   capture.c   stream captures
 *   share.c     whose memory is meanwhile
 *   external_access.c   the host, network cards, other processes
 *   graphs.c    graphs, executables and launches
 *   pools.c     graph pools that the program names
 *   pinned.c      pinned memory
 *   ipc_peer.c another process, which opens what this one exports
 *   concurrency.c     much at once, and more than one thread at the same time
 *   misuse.c    mistakes that CUDA answers with a code
 *   turns.c     the same many times over
 *   promises.c  plays around one promise each, at the end
 *   destroyed.c what another thread does inside a call that destroys
 *   sharing.c   launches from several threads at the same time, and what is held by
 *               graphs that never run at the same time
 *   results.c   what memory holds, and what captures leave in it
 *   play.c      plays a history, and ends it
 *   oracle.c    what must hold after each step
 *   excuses.c   where the library may differ from plain CUDA
 *   faults.c    calls of the library that fail
 *   trial.c     children and shrinking
 *   main.c      the command line
 *
 * Threads: the program's threads are real ones, but only the one whose turn it
 * is runs (play.c), so nothing here takes a lock. Others run at the same time
 * (concurrency.c, sharing.c, destroyed.c, promises.c): they touch nothing of the model,
 * and count no excuse; what their calls gave is looked at when they are gone.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
/* What the host waits for is work of the legacy stream, as in the other build. */
#define EXPLORE_LEGACY(name) extern __typeof__(name##_ptds) name
#undef cuMemcpyDtoD
#undef cuMemcpyDtoH
#undef cuMemcpyHtoD
#undef cuMemcpyPeer
#undef cuMemsetD8
EXPLORE_LEGACY(cuMemcpyDtoD_v2);
EXPLORE_LEGACY(cuMemcpyDtoH_v2);
EXPLORE_LEGACY(cuMemcpyHtoD_v2);
EXPLORE_LEGACY(cuMemcpyPeer);
EXPLORE_LEGACY(cuMemsetD8_v2);
#define cuMemcpyDtoD cuMemcpyDtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemsetD8   cuMemsetD8_v2
#ifndef cuStreamUpdateCaptureDependencies_v2 /* CUDA 13 has it under another name */
#define cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz
#define cuStreamGetCaptureInfo_v3            cuStreamGetCaptureInfo_v3_ptsz
#endif
enum { STREAM_0_IS_PER_THREAD = 1 };
#else
enum { STREAM_0_IS_PER_THREAD = 0 };
#endif

#include "excuses.h"
#include "gcpsim.h"
#include "ops.h"

enum {
	THREADS_MAX = 4,
	CONTEXTS_MAX = 5, /* contexts */
	STREAMS_MAX = 40, /* that a history makes, default ones included */
	STREAM_SLOTS = 10,
	REWINDS_MAX = 4, /* of one capture */
	LINES_MAX = STREAMS_MAX + REWINDS_MAX,
	EVENT_SLOTS = 8,
	BLOCK_SLOTS = 48,
	PINNED_SLOTS = 6,
	GRAPH_SLOTS = 6,
	EXEC_SLOTS = 6,
	CAPTURE_SLOTS = 3,
	ITEMS_MAX = 120, /* of one graph */
	LOCALS_MAX = 48, /* regions that one capture knows the contents of */
	POOLS_MAX = 64,  /* graph pools of a history; 0 is none; bits of a word */
	POOLS_OF_BODY = 6,
	NAMED_MAX = 3, /* graph pools that the program named itself */
	REGIONS = 2,
};

/* --- what the program knows of order (order.c) --- */

struct clock {
	uint32_t at[LINES_MAX];
};

/* One access: the number `n` of a stream. n == 0: none. */
struct mark {
	uint32_t stream, n;
};

struct region {
	uint64_t offset; /* bytes, in its block */
	uint32_t words;
	uint32_t known; /* words at its start that hold `value` */
	uint32_t value;
	struct mark writer;
	struct clock readers; /* since then */
};

struct block {
	uint64_t addr, bytes;
	uint64_t id; /* CUDA's, as the program is told; 0: it was not asked */
	int context, device;
	bool live;
	uint32_t died;    /* step */
	bool passing;     /* plain CUDA may not have it back yet: freed on a stream */
	bool host;        /* pinned */
	uint64_t pools;   /* bit per graph pool that keeps it after its end */
	uint32_t early;   /* not for work outside captures before all captures up to
			   * this number are over */
	bool in_capture;  /* allocated during one: some graph may keep it */
	bool addressed;   /* by captured work */
	uint32_t rewinds; /* that captures had seen before it was allocated */
	bool eager;       /* for any work, as far as the program knows */
	bool foreign;     /* pinned by hand: the library does not know it */
	bool borrowed;    /* another process's, opened here */
	bool async;       /* stream-ordered */
	bool spilled;     /* it was memory of the host, and so counts as ... */
	bool passed;      /* the library left it to CUDA */
	bool exported;
	bool result;         /* live when its capture ended: results.c */
	uint32_t named_pool; /* a graph pool whose graphs may write it; 0: none */
	uint32_t home;       /* graph pool that it was taken from; 0: none */
	uint32_t flags;      /* of pinned memory */
	/* plain.c: its memory on plain CUDA, 0: none; graph pools that may keep it; the
	 * program has freed it, on a stream, or while another process has it open. */
	uint64_t plain, plain_pools;
	bool plain_freed, plain_open;
	bool unclosed; /* freed, and plain.c knows of no free that closed its epoch */
	bool counts;   /* towards that epoch */
	struct mark plain_mark;
	struct region regions[REGIONS];
	struct block *next; /* all that ever were */
};

enum stream_kind { STREAM_LEGACY, STREAM_PER_THREAD, STREAM_BLOCKING, STREAM_FREE };

struct capture;

struct stream {
	enum stream_kind kind;
	bool live;
	int context;
	int thread; /* of a per-thread one */
	CUstream handle;
	uint32_t number; /* its place in clocks */
	uint32_t count;
	struct clock clock;
	struct capture *capture;
	struct clock captured; /* within its capture */
	uint32_t line;         /* in those: its number, or one of its capture's */
};

struct event {
	CUevent handle;
	int context;
	bool recorded;
	struct clock clock;
	uint32_t captured; /* number of the capture that it was recorded in, or 0 */
};

/* --- graphs --- */

enum item_kind { ITEM_FILL, ITEM_CHECK, ITEM_COPY, ITEM_ADD, ITEM_SET };

/* Work on memory, done at once or captured. */
struct item {
	enum item_kind kind;
	struct block *dst, *src; /* CHECK: src; the others: dst; COPY: both */
	uint8_t dst_region, src_region;
	uint32_t words, value;
	uint32_t spin_ns;
	struct mark mark; /* in its capture */
};

/* The latest launch of a graph, or into a stream. */
struct launched {
	struct mark mark;
	uint64_t number; /* which launch of the program that was; 0: none */
	uint32_t gone;   /* ... so many streams had been destroyed */
	uint64_t id;     /* of the executable */
};

/* What a graph does, and what it keeps. Shared by all that is made from it. */
struct body {
	uint32_t refs;
	int context;
	bool broken;   /* can never run (again) */
	bool single;   /* it has conditional nodes: no copies, one executable */
	uint32_t made; /* step: the end of its first capture */
	uint32_t count;
	struct item items[ITEMS_MAX];
	uint32_t pools[POOLS_OF_BODY], pool_count;
};

/* Memory that stays a graph's. A launch may write into all of it. */
struct graph_pool {
	uint32_t refs;     /* bodies */
	uint64_t id;       /* the library's, of one that the program named; else 0 */
	bool named;        /* the program holds a reference */
	bool unsure;       /* blocks may be in it that the program does not know of */
	uint64_t taken[2]; /* bytes that captures may have had of it */
	struct region launches;
	struct launched last; /* of whichever graph has it */
	uint64_t count;       /* of such launches */
};

/* What a capture knows of contents: they are made in it. */
struct local {
	const struct block *block;
	uint8_t region;
	uint32_t known, value;
};

struct capture {
	bool live, invalidated_here;
	uint32_t number;
	uint64_t known; /* its number in the library */
	CUstreamCaptureMode mode;
	int thread, context;
	struct stream *origin;
	struct body *body;
	struct graph *into;
	bool conditional; /* into the body of a conditional node of it */
	uint32_t pool;
	uint32_t first; /* of the body's items, what is captured here */
	uint32_t counts[LINES_MAX];
	uint32_t rewinds;
	/* The next item is added to the graph by hand: the stream follows it, or not.
	 */
	enum { ADDED_NOT, ADDED_JOINED, ADDED_ALONE } added;
	struct local locals[LOCALS_MAX];
	uint32_t local_count;
};

/* Which blocks of a named pool were live. */
struct checkpoint {
	struct gcpool_checkpoint *handle; /* NULL: none */
	uint32_t count;
	struct block **blocks;
};

struct graph {
	CUgraph handle;
	struct body *body;
	bool busy;         /* captured into */
	bool instantiated; /* now or before */
};

struct exec {
	CUgraphExec handle;
	struct body *body;
	struct clock clock;   /* of its latest launch, which the next one comes after */
	uint64_t id;          /* of the executable */
	bool mixed;           /* its latest update has failed */
	uint64_t mixed_freed; /* of the graph that it was updated with then */
};

/* --- the program --- */

struct context {
	CUcontext ctx;
	int device;
	bool live, primary;
	CUfunction functions[8];
	struct block *counter; /* where check kernels count */
};

struct thread;

struct model {
	const struct setting *setting;
	const struct history *history;
	uint32_t step;
	struct context contexts[CONTEXTS_MAX];
	struct stream streams[STREAMS_MAX];
	uint32_t stream_count;
	struct stream *stream_slots[STREAM_SLOTS];
	struct event events[EVENT_SLOTS];
	struct block *slots[BLOCK_SLOTS];
	struct block *pinned[PINNED_SLOTS];
	uint64_t memory[2];                     /* of each device, now */
	uint64_t allocations[2];                /* there, that went well */
	uint64_t frees;                         /* of the program's */
	uint64_t peak_blocks[2], peak_bytes[2]; /* live there, since they were reset */
	bool writers;  /* devices that write by themselves were there before any free */
	bool ordinary; /* with auto: the library takes ordinary segments since then */
	bool closed_late; /* what was freed was closed by another process */
	struct gcpool_checkpoint *past; /* of a pool that is gone */
	struct block *blocks;           /* all */
	struct capture captures[CAPTURE_SLOTS];
	uint32_t capture_numbers;
	struct graph_pool pools[POOLS_MAX];
	uint32_t pool_count;
	uint32_t named[NAMED_MAX];
	struct checkpoint checkpoints[NAMED_MAX]; /* of those */
	struct graph graphs[GRAPH_SLOTS];
	struct exec execs[EXEC_SLOTS];
	uint64_t execs_made, launches;          /* so far */
	struct launched launched[STREAMS_MAX];  /* what each stream was given last */
	struct launched crossings[STREAMS_MAX]; /* of these the latest: graphs.c */
	struct clock host;
	uint64_t invalidated; /* captures, by the program itself */
	struct thread *threads;
	uint32_t plain_waiting; /* blocks that plain CUDA cannot have back yet */
	bool freed_elsewhere;   /* memory in a stream of another context */
	bool freed_on_streams;  /* device memory */
	uint64_t largest[2];    /* allocation asked for, of each device */
	uint64_t pinned_peak;
	uint64_t graphs_held[2]; /* bytes that captures may have had, still kept */
	/* Bytes of graph pools; and of such that have gone since an epoch was closed.
	 */
	uint64_t graphs_seen, graphs_gone;
	unsigned contexts_peak;   /* that lived at the same time */
	uint64_t pinned_captured; /* bytes of pinned memory taken in captures */
	uint64_t pinned_captured_in[CONTEXTS_MAX]; /* of these, those of each context */
	uint64_t new_waits;    /* waits that plain CUDA has not, so far */
	uint64_t new_looks;    /* of these: calls that could have stopped looking */
	uint64_t may_wait;     /* in this step: bit per excuse */
	bool left;             /* memory that was not freed on purpose */
	bool passed_async;     /* CUDA has served streams: it keeps what they free */
	uint32_t streams_gone; /* destroyed */
	uint32_t rewinds;      /* of all captures */
	bool forked;
	bool filtered;             /* a filter of system calls is set */
	int primary_refs[2];       /* of each device's primary context, the program's */
	CUmemoryPool own_pools[2]; /* of each device, the program's */
};

/* The thread whose turn it is. */
struct thread {
	struct model *model;
	unsigned number;
	bool alive;
	int context; /* current; -1: none */
	CUstreamCaptureMode mode;
	uint32_t pool;         /* that its captures go into; 0: each its own */
	struct stream *last;   /* that it named */
	struct stream *worked; /* that it launched a kernel on, when */
	uint32_t gone;         /* ... so many streams had been destroyed */
	const struct op *op;
};

/* --- plain.c --- */

/* It is about to allocate so much in the stream. */
void plain_serve(struct model *w, const struct stream *s, uint64_t bytes);
/* The program is about to allocate: the memory on plain CUDA, 0: it has none left.
 * Device -1: pinned memory. */
uint64_t plain_take(struct model *w, int device, uint64_t bytes);
/* Whether the library may say that memory is out. */
bool plain_may_refuse(const struct model *w, int device, uint64_t bytes,
		      uint64_t plain);
/* Whether so many bytes do not fit beside what cannot go back. */
bool plain_lacks(const struct model *w, int device, uint64_t bytes);
/* Whether they do not fit beside what the library has of a small device just now. */
bool plain_is_out(const struct model *w, int device, uint64_t bytes);
/* Where memory of the host is left, an allocation gets it (GCPOOL_SPILL). */
void plain_spill_check(struct model *w, uint64_t bytes, CUresult result);
/* What the call gave, `result`, against plain CUDA's answer. */
void plain_compare(struct model *w, int device, uint64_t bytes, uint64_t plain,
		   CUresult result);
/* The program has the block now; it has freed it; its context is gone. */
void plain_own(struct thread *t, struct block *block, uint64_t plain);
void plain_free(struct thread *t, struct block *block);
void plain_lose(struct block *block);
/* The program makes a call in which plain CUDA waits for all work of the context. */
void plain_waits(const struct model *w, int context);
/* The step makes a call in which the library may wait for more, for that reason. */
void plain_may_wait(struct model *w, enum excuse excuse);
/* ... or an allocation of so many bytes, if the library is short of memory for it. */
void plain_may_be_full(struct model *w, int device, uint64_t bytes);
/* ... or for whatever the step does, once a planned fault has struck. */
bool plain_is_spoilt(const struct model *w);
/* Something differs: that is counted where a planned fault has struck. */
bool fault_excuses(const struct model *w);
/* Wakes the process. False: memory is refused, and calls are. */
bool awake(const struct model *w);
/* ... and is the code that was planned. */
bool fault_gives(const struct model *w, CUresult result);
/* The program is about to free the block, by a call in which plain CUDA waits or not.
 */
void plain_closes(struct model *w, struct block *block, bool waits);
/* A free has closed the epoch, maybe sooner than it has to: its fence was seen. */
void plain_closed(struct model *w, int context);
/* Fails if something has waited for work that plain CUDA would not have waited for. */
void plain_waits_check(struct model *w);
/* A step is over: what graphs and streams keep no more is free. */
void plain_step(struct model *w);
/* What the library takes for a block of device memory. */
uint64_t plain_class_bytes(uint64_t wanted);
/* By how much the memory held may grow where the program takes and frees one block of
 * so many bytes again and again. */
uint64_t plain_growth_bound(const struct model *w, int device, uint64_t bytes);
/* The number that an option of the library has, as it is in force. */
uint64_t plain_option(const char *name, uint64_t otherwise);
/* The history is over: how much was held at most. */
void plain_bounds(struct model *w);

/* --- excuses.c --- */

/* The library differs from plain CUDA, and may: one more time. True. */
bool excused(enum excuse excuse);
const char *excuse_name(enum excuse excuse);
/* From now on the row of that name excuses nothing; false: there is none. */
bool excuse_take_away(const char *name);
bool excuse_is_there(enum excuse excuse);

/* --- order.c --- */

/* What work given to the stream now would be ordered after. */
void order_base(struct model *w, const struct stream *s, struct clock *ret_clock);
/* The stream's next number, after what order_base said. */
struct mark order_step(struct model *w, struct stream *s);
void clock_join(struct clock *clock, const struct clock *other);
static inline bool clock_covers(const struct clock *clock, struct mark mark)
{
	return mark.n == 0 || clock->at[mark.stream] >= mark.n;
}

enum { WANT_READ, WANT_WRITE };
/* Makes sure that work given to `s` now may touch the region. False: that is not
 * possible at the moment. */
bool order_region(struct thread *t, struct stream *s, const struct region *region,
		  int want, unsigned how);
/* The host waits until nothing can touch the region any more. */
bool order_host(struct thread *t, const struct region *region, int want);
void region_touch(struct region *region, struct mark mark, int want);
/* All work on the block that is not of its own context comes before work of it. */
bool order_free(struct thread *t, struct block *block);
/* What captures under way allow: waiting and the like by this thread; waiting for
 * all of a context, or changing it; work on a context's legacy stream. */
bool may_be_unsafe(const struct thread *t);
bool context_is_calm(const struct model *w, int context);
bool legacy_is_free(const struct model *w, int context);
bool all_is_calm(const struct model *w);
/* Whether this thread can say which stream it means. */
bool can_name(const struct thread *t, const struct stream *s);
/* Whether the legacy stream and this one of its context wait for each other. */
bool is_blocking(const struct stream *s);
bool host_wait_stream(struct thread *t, struct stream *s);
/* The program has the stream's later work wait for an event. */
bool stream_wait(struct thread *t, struct stream *s, CUevent event);
bool host_wait_context(struct thread *t, int context);

/* --- blocks.c --- */

/* The program allocates; NULL: it got none. */
struct block *block_create(struct thread *t, uint64_t bytes);
bool block_free(struct thread *t, struct block *block);
/* The same as `s` gets there. */
bool block_free_async(struct thread *t, struct block *block, struct stream *s);
/* Stream-ordered memory, in stream order of `s`; NULL: there is none, or not now. */
struct block *block_create_async(struct thread *t, struct stream *s, uint64_t bytes);
/* Rows of memory, as CUDA lays them out. */
struct block *block_create_pitch(struct thread *t, uint64_t width, uint64_t rows);
/* Puts memory that the program has got into the model. */
struct block *block_adopt(struct thread *t, uint64_t addr, uint64_t bytes);
/* Its memory is gone with its context. */
void block_lose(struct block *block);
/* Of a device, as the library says (while asleep, as it is to be after the wake): what
 * is not among them is CUDA's. */
uint64_t blocks_of_library(const struct model *w, int device);
void block_unslot(struct model *w, const struct block *block);
struct region *block_region(struct block *block, unsigned number);
/* It was freed, and a graph may use it. */
bool block_is_kept(const struct model *w, const struct block *block);

/* --- async.c --- */

/* Whether the library serves such memory of a context in the place of CUDA. */
bool async_is_served(const struct model *w, int context);

/* --- work.c --- */

/* Hands an item to the driver; order has been made. */
CUresult item_submit(struct thread *t, struct stream *s, const struct item *item);
void item_apply(struct model *w, const struct item *item);

/* --- capture.c --- */

void capture_item(struct thread *t, struct stream *s, struct item *item);
/* The graph that the stream captures, and what its next work depends on. */
CUresult captured_ends(CUstream, CUgraph *, const CUgraphNode **, size_t *);
bool capture_event_record(struct thread *t, struct event *event, struct stream *s);
bool capture_event_wait(struct thread *t, const struct event *event, struct stream *s);
/* Each capture is this thread's, and would be lost with this context, or has nothing to
 * do with either. */
bool captures_may_go(const struct thread *t, int context);
void captures_go(struct model *w, int context); /* they are */
struct capture *capture_near(struct model *w, unsigned slot);
struct capture *capture_number(struct model *w, uint32_t number);

/* --- share.c --- */

/* What a new block belongs to. */
void capture_adopt(struct thread *t, struct block *block);
/* Whether the library may give the thread memory that is kept in these pools. */
bool capture_may_recycle(const struct thread *t, uint64_t pools);
bool block_is_early(const struct model *w, const struct block *block);
/* All pools that may keep what the thread allocates now. */
uint64_t capture_pools(const struct thread *t);
/* Whether the library may take what it allocates for a capture's: it worked on a
 * captured stream last, or the program does not know what the library makes of it. */
bool capture_may_take(const struct thread *t);

/* --- graphs.c --- */

struct graph *graph_near(struct model *w, unsigned slot);
struct body *body_new(int context);
struct body *body_copy(struct model *w, const struct body *body);
void body_put(struct model *w, struct body *body); /* accepts NULL */
bool body_join_pool(struct model *w, struct body *body, uint32_t pool);
static inline uint64_t pool_bit(uint32_t pool)
{
	return pool ? 1ull << pool : 0;
}
bool body_keeps(const struct body *body, const struct block *block);
/* What graphs have held is never given back. */
/* Whether what the graph's pools have freed may lie in the block. */
bool body_may_write(const struct body *body, const struct block *block);
/* The slot's graph becomes this one. */
void graph_set(struct thread *t, struct graph *graph, CUgraph handle,
	       struct body *body);
/* Both may run at the same time: neither knows memory that the other one writes. */
bool bodies_are_apart(const struct body *a, const struct body *b);
/* As much as it may need that was freed in its capture. */
uint64_t body_freed(const struct model *w, const struct body *body);
/* Whether all is there that a launch touches, and what memory holds after one. */
bool body_can_run(const struct model *w, const struct body *body);
struct launched launch_note(struct model *w, const struct exec *exec, struct mark mark,
			    uint32_t gone);
void body_ran(struct model *w, const struct body *body);
void graphs_end(struct thread *t);
void graphs_detach_context(struct model *w, int context);

/* --- external_access.c --- */

/* Another process may open the block; false: it has no handle, and may have none. */
bool external_export(struct thread *t, struct block *block, CUipcMemHandle *ret_handle);

/* --- pinned.c --- */

void pinned_end(struct thread *t);
/* Pinned memory in that slot; false: there is none. The second one waits for no work
 * that came after the latest free, even where memory is scarce. */
bool pinned_take(struct thread *t, unsigned slot, uint64_t bytes);
bool pinned_take_beside(struct thread *t, unsigned slot, uint64_t bytes);
void pinned_give(struct thread *t, unsigned slot);

/* --- ipc_peer.c --- */

/* The other process does not use the block any more, nor, if it is its own, this one.
 * False: that is not possible at the moment. Then all of a context (-1: of all). */
bool ipc_peer_closes(struct thread *t, const struct block *block);
bool ipc_peer_closes_all(struct thread *t, int context);
void ipc_peer_end(struct model *w);

/* --- pools.c --- */

/* A block was allocated, by a thread with one capture or not: which named pools may
 * have it. */
void pools_adopt(struct thread *t, struct block *block, bool alone);
/* Memory of a context is gone: what was noted of it is of no use. */
void pools_reset(struct model *w);
void pools_end(struct model *w);

/* --- concurrency.c --- */

void concurrency_filter(struct model *w);
/* Waiting for work on pinned memory takes its time. */
bool pinned_is_slow(void);

/* --- objects.c --- */

bool context_open(struct thread *t, int slot, int device, bool primary);
void context_detach(struct model *w, int slot);
void context_use(struct thread *t, int slot);
void stream_detach(struct model *w, struct stream *s);
/* The stream of a slot number, 0 and 1 being the default ones; NULL: none. */
struct stream *stream_pick(struct thread *t, unsigned slot);
/* Makes what the stream needs current, and gives its handle. */
CUstream stream_handle(struct thread *t, struct stream *s);

/* --- results.c --- */

/* A capture into this pool has ended. */
void results_note(struct model *w, uint32_t pool);
/* The block was freed, and a graph keeps it and what is in it. */
bool block_is_result(const struct model *w, const struct block *block);
/* The block is a result, and of no graph of this body. */
bool result_of_other(const struct body *body, const struct block *block);
/* Fails if memory does not hold what it must. */
void results_check(struct model *w);

/* --- promises.c --- */

/* All work is done, and no stream is captured. */
void promises_end(struct thread *t);

/* --- destroyed.c --- */

void destroyed_play(struct thread *t, const struct op *op);

/* --- play.c --- */

/* What plays an operation: <player>_play, each in the file of its section or name. */
#define X(name, weight, group, player)                                                 \
	void player##_play(struct thread *t, const struct op *op);
EXPLORE_OPS(X)
#undef X
/* One operation, by the thread whose turn it is. */
void op_play(struct thread *t, const struct op *op);

/* Plays in this process; does not return when something is wrong. */
void play(const struct setting *setting, const struct history *history,
	  const uint8_t *kept);

/* --- oracle.c --- */

void oracle_init(void);
void oracle_step(struct model *w);
void oracle_end(struct model *w);
/* The library's pools are taken down: the driver must have all of it back. Where the
 * library has a thread, only at exit: it must be prepared before the thread starts. */
void oracle_finish(struct model *w);
void oracle_finish_prepare(void);
/* What check kernels of the context counted; its work is done. */
void oracle_counter(struct model *w, int context);
/* The books of the library against the model, and its invariants. */
void oracle_books(struct model *w);
/* Ends the child: something is wrong. */
void failure(struct model *w, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
/* False if the call failed as a planned fault made it; any other failure ends. */
bool fine(struct model *w, CUresult result, const char *call);
#define FINE(t, call) fine((t)->model, (call), #call)
/* The same for a query: false, too, for "not ready". */
bool fine_query(struct model *w, CUresult result);

/* Functions of the library, NULL without it. */
struct gcpool_stats;
struct gcpool_host_stats;
struct gcpool_graph_pool;
/* X(result, name, parameters, function) */
#define EXPLORE_LIBRARY(X)                                                             \
	X(int, active, (void), gcpool_active)                                          \
	X(int, get_stats, (int, struct gcpool_stats *, size_t), gcpool_get_stats)      \
	X(uint64_t, trim, (int, uint64_t), gcpool_trim)                                \
	X(int, pool_create, (uint64_t *), gcpool_graph_pool_create)                    \
	X(int, pool_use, (uint64_t), gcpool_graph_pool_use)                            \
	X(int, pool_release, (uint64_t), gcpool_graph_pool_release)                    \
	X(size_t, pools, (struct gcpool_graph_pool *, size_t), gcpool_graph_pools)     \
	X(int, checkpoint, (uint64_t, struct gcpool_checkpoint **),                    \
	  gcpool_graph_pool_checkpoint)                                                \
	X(int, restore, (uint64_t, const struct gcpool_checkpoint *),                  \
	  gcpool_graph_pool_restore)                                                   \
	X(void, checkpoint_free, (struct gcpool_checkpoint *),                         \
	  gcpool_graph_pool_checkpoint_free)                                           \
	X(int, sleep, (unsigned), gcpool_sleep)                                        \
	X(int, wake, (void), gcpool_wake)                                              \
	X(int, asleep, (void), gcpool_explore_asleep)                                  \
	X(int, reset_peaks, (int), gcpool_reset_peaks)                                 \
	X(int, get_host_stats, (struct gcpool_host_stats *, size_t),                   \
	  gcpool_get_host_stats)                                                       \
	X(const char *, check, (void), gcpool_explore_check)                           \
	X(uint64_t, lent, (void), gcpool_explore_lent)                                 \
	X(uint64_t, captures, (void), gcpool_explore_captures)                         \
	X(int, keeps_some, (void), gcpool_explore_keeps_some)                          \
	X(int, keeps, (uint64_t, uint64_t), gcpool_explore_keeps)                      \
	X(uint64_t, graph_pool, (uint64_t), gcpool_explore_graph_pool)                 \
	X(void, fail_memory, (unsigned, int), gcpool_explore_fail_memory)              \
	X(uint64_t, memory_calls, (void), gcpool_explore_memory_calls)                 \
	X(void, finish, (void), gcpool_explore_finish)

struct library {
#define X(result, name, parameters, function) result(*name) parameters;
	EXPLORE_LIBRARY(X)
#undef X
};
extern struct library library;

/* --- faults.c --- */

/* What fails: the call number `at` of a function of the driver, and all later ones
 * if onwards. name NULL: nothing. */
struct fault {
	const char *name;
	unsigned at;
	bool onwards, loses;
	int code;
};

#define FAULT_LOOKUP "cuGetProcAddress_v2" /* from the start of the process */
#define FAULT_MEMORY "malloc"              /* the library's own */
#define FAULT_BEGIN  "begin"               /* the same, while a capture begins */
enum { FAULT_CALLS_MAX = 40 };

void fault_start(const struct fault *fault);
void fault_arm(const struct fault *fault);
void fault_disarm(void);
/* Something may have failed by now that would not have; false: nothing is planned, or
 * nothing has come of it yet. */
bool fault_has_struck(const struct fault *fault);
/* A capture is about to begin; it has begun, or not. */
void fault_capture_begins(const struct fault *fault);
void fault_capture_begun(const struct fault *fault);
uint64_t fault_count(unsigned call);
const char *fault_name(unsigned call); /* NULL behind the last */

/* --- trial.c --- */

/* What a child tells its parent, in shared memory. */
struct outcome {
	uint32_t step;
	uint32_t failed;
	uint32_t done;
	char why[500];
	uint64_t steps, sleeps;
	uint64_t calls[FAULT_CALLS_MAX]; /* of the functions that can fail, faults.c */
	uint64_t excused[EXCUSES];       /* how often, excuses.h */
};
extern struct outcome *outcome;

/* --- frozen.c --- */

/* A history as it was drawn once (frozen.c). */
struct frozen {
	struct setting setting;
	struct history history;
	struct fault fault; /* that it needs, or none */
	const char *environment;
};

/* Writes what the source gives, and the fault that it needs or NULL. */
bool frozen_write(FILE *file, const struct source *source, const char *fault);
/* False: a line has said what is wrong. */
bool frozen_read(struct frozen *ret_frozen, const char *path);
/* Hands each variable of its environment to `set`. */
void frozen_environment(const struct frozen *frozen,
			void (*set)(const char *name, const char *value));

#endif
