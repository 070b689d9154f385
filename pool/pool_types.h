/* SPDX-License-Identifier: MIT */
/*
 * pool_types.h - the structures of pool/, their invariants and the order of locks.
 * Included by the files of pool/ (and its unit tests) only. What the files of a folder
 * do is in its header: timeline.h, block.h, vmm.h, cache.h, reclaim.h, each of which
 * includes the one before.
 *
 * Where a rule of the design lives:
 *   when may a freed block be used again?     fence.c  (epochs and fences)
 *   new memory, or a barrier?                 miss.c   (gcp_alloc_slow)
 *   how much circulates before a barrier?     window.c
 *   which free block serves a request?        heap.c, fit.c, tree.c (first fit)
 *   where does memory come from and go to?    segment.c, reclaim.c
 *   when does empty memory go back?           maintain.c, purge.c
 *   what memory is mapped where?              vmm.c, vmm_space.c, handle.c
 *   which handles may a block lie in?         place.c
 *   what do graphs share?                     lane.c
 *   what happens when the device is full?     reclaim.c
 *   what does a thread keep for itself?       cache.c
 *   what of pinned host memory?               pinned_types.h
 *
 * What the locks guard, in the order in which they may be taken (enum gcp_rank of
 * lock.h; asserted):
 *   pools->vmm_lock        what is mapped where; what a quota leaves
 *   pools->registry_lock   the lists of pools and of thread caches
 *   cache->own             one thread's cache
 *   pool->lock             heaps, segments and blocks of a pool
 *   pinned->lock           pinned memory (pinned_types.h)
 *   pools->fence_lock      epochs, fences, holds; of all pools
 *   depot->lock            batches of blocks between threads; a spin lock
 * No lock but fence_lock and vmm_lock is held over a call of the driver (asserted,
 * too), and registry_lock while a new pool asks what its device has. fence_lock has to
 * be: setting a fence and beginning a capture exclude each other. vmm_lock is held over
 * calls that never wait for the device.
 */
#ifndef GCP_POOL_POOL_TYPES_H
#define GCP_POOL_POOL_TYPES_H

#include <string.h>
#include <sys/queue.h>

#include "base/calls.h"
#include "base/treap.h"
#include "base/map.h"
#include "base/stats_delta.h"

enum {
	GCP_PAGE = 4096,       /* bytes: what dma-buf wants whole; sizes of no class */
	GCP_SMALL = 128 << 10, /* bytes: threads of any pool keep blocks of that size */
	GCP_CHUNK = 2 << 20,   /* bytes: the driver's granularity of memory */
	GCP_SHARED_MOST = 1 << 30, /* bytes: of a segment that blocks share */
	GCP_CLASSES_MAX = 1024,    /* size classes, whatever the options say */
	GCP_CLASS_NONE = 0xffff,   /* a block of no class: larger than class_max */
	GCP_WAIT_LIMIT = 4000,     /* backoffs of 50 us and more */
	GCP_LOOKS = 256,           /* blocks that are looked at to choose one */
};

static_assert(GCP_CHUNK % GCP_UNIT == 0, "a chunk is a whole number of units");

static inline uint64_t gcp_round_up(uint64_t n, uint64_t step)
{
	return (n + step - 1) / step * step;
}

/* From so many bytes on a block has the rest of an ordinary segment, too, where that is
 * less than a chunk (fit.c). */
enum { GCP_WHOLE_LEAST = 4 * GCP_CHUNK };

/* --- descriptors ------------------------------------------------------------ */

/* Storage for descriptors of one type, guarded by the lock of what has it. Memory is
 * never unmapped, so a stale pointer always meets a descriptor of its own type. */
struct gcp_descriptor_pool {
	size_t link_at; /* where behind an item the next free one is named */
	size_t step;    /* from one item to the next */
	void *free_list;
	char *chunk, *end; /* uncut rest of the newest chunk */
};

/* The free group of a free block in a private heap. Merged blocks: the higher one. */
enum {
	GCP_GROUP_FRESH, /* not allocated since it came to the heap */
	GCP_GROUP_PAST,  /* freed outside captures: a graph may have used it since */
	/* GCP_GROUP_FIRST and higher: freed in a capture, when heap->group was that */
};

/* Where a block is. Changed by gcp_block_set_state (block.c), and between
 * USED and CACHED by the thread that frees or takes it. */
enum gcp_block_state {
	GCP_BLOCK_RELEASED, /* descriptor not in use */
	GCP_BLOCK_USED,     /* the program's */
	GCP_BLOCK_CACHED, /* in a thread's cache, or waits for an event of its stream */
	GCP_BLOCK_PENDING,   /* in heap->pending or heap->deferred: epoch not ready */
	GCP_BLOCK_FREE,      /* in a tree of the heap: ready, merged */
	GCP_BLOCK_HOLE,      /* in heap->holes: addresses with nothing behind them */
	GCP_BLOCK_UNMAPPING, /* in heap->unmapping: its memory is mapped elsewhere too,
			      * and until its epoch is completed here as well; of a
			      * private heap: its memory is a lane's, lane.c */
	GCP_BLOCK_MOVING,    /* vmm.c works on it */
	GCP_BLOCK_CAPTURED,  /* the program's, and a graph addresses it, or did */
	GCP_BLOCK_EXPORTED,  /* the program's, and other processes may have it open */
	GCP_BLOCK_HEAD,      /* the first page of an ordinary segment that is cut; no
			      * request gets it. The driver frees the whole segment by
			      * that address, and other code may call the driver so */
	GCP_BLOCK_LENT, /* freed by the program, and other processes have it open, or
			 * a graph: no request gets it, and it stays where it is */
};

/* Invariants:
 *  B1 addr and size are multiples of GCP_UNIT, size > 0
 *  B2 the map finds a block at its addr
 *  B3 neighbours touch: lower->addr + lower->size == addr
 *  B4 two neighbours are never both FREE; but in a private heap, where one was never
 *     allocated and the other is apart
 *  B5 a FREE block's epoch is ready
 *  B6 a HOLE is made of whole chunks, and its neighbours are no HOLEs
 *  B7 a FREE block's `largest` is the size of the largest in its subtree
 *  B8 a HOLE is in the tree of holes of its heap
 *  B9 only a block that is async or waits for its epoch has a stream; none that is
 *     PENDING or FREE is async
 *  B10 where an ordinary segment is cut its first block is a HEAD, and no other one is;
 *     it merges with what is above it when all of that is one FREE block */
struct gcp_block {
	/* What an allocation that hits and a free touch: one cache line. */
	gcp_addr addr;
	uint64_t size; /* bytes occupied */
	union {
		uint64_t requested; /* bytes asked for; by the allocating thread */
		uint64_t group;     /* of a free block in a private heap */
	};
	uint64_t epoch; /* of its latest free, or a GCP_EPOCH_ */
	struct gcp_segment *segment;
	uint16_t size_class;   /* or GCP_CLASS_NONE */
	_Atomic uint8_t state; /* enum gcp_block_state; only ever changed
				* atomically, also in a released descriptor */
	bool async; /* stream-ordered: USED, or in a stream's cache of a thread */
	_Atomic uint16_t opens; /* how many have it open: other processes, and a graph.
				 * EXPORTED, LENT, CAPTURED */
	bool apart; /* of a private heap: allocated for any work, and when free not one
		     * with memory beside it that was never allocated. B4 */
	union {
		struct gcp_block *next; /* CACHED: in a chain, or an event's; and of
					 * what a graph has open */
		TAILQ_ENTRY(gcp_block) link; /* PENDING, UNMAPPING */
		struct gcp_treap_node node;  /* FREE, HOLE */
	};
	/* The rest: pool->lock, but batch. */
	uint64_t stream; /* PENDING: all its uses come before its free in that stream;
			  * async: it was allocated there; 0: in none */
	struct gcp_block *lower, *upper; /* neighbours by address */
	union {
		uint64_t largest; /* FREE, HOLE: bytes, of the blocks below it in its
				   * tree */
		uint64_t serial;  /* USED, async: no other such allocation has it */
		struct {          /* USED, of a private heap: pools->eager_work and
				   * captured_work when it was allocated; watched 0: that
				   * does not count */
			uint64_t watched, captured;
		};
		struct {
			struct gcp_block *next, **last;
			uint32_t count;
		} batch; /* the first block of one in a depot; depot->lock */
		struct { /* PENDING */
			TAILQ_ENTRY(gcp_block) end; /* the last one of its epoch */
			LIST_ENTRY(gcp_block) streamed;
		};
	};
};
TAILQ_HEAD(gcp_block_list, gcp_block);
LIST_HEAD(gcp_streamed, gcp_block);

/* What is mapped at one chunk of addresses: a part of a handle, the driver's name for
 * physical memory, of which only all can be mapped or unmapped. */
struct gcp_chunk {
	uint64_t handle; /* 0: nothing is mapped; or GCP_CHUNK_MOVED (vmm.h) */
	uint32_t before; /* chunks of the same handle that lie below */
	uint32_t count;  /* chunks of the handle */
};

/* Numbers of segments: mapped ranges for blocks of less than half a chunk come first,
 * then segments of one chunk for any block, those of the driver, and mapped ones. A
 * search for a small block ends at GCP_NUMBER_LARGE, one for a large block begins at
 * GCP_NUMBER_ANY. */
#define GCP_NUMBER_ANY   (1ull << 62)
#define GCP_NUMBER_LARGE (2ull << 62)

/* One allocation of the driver, or a range of addresses that vmm.c maps memory
 * behind, handle by handle. All fields but chunks: pool->lock.
 *  S1 its blocks, from first by ->upper, cover [addr, addr + size)
 *  S2 mapped is size less the HOLEs and UNMAPPING blocks in it
 *  S3 chunks has 0 in a HOLE, GCP_CHUNK_MOVED in an UNMAPPING block (of a heap that
 *     is in a lane: a handle of that), else a handle
 *  S4 the chunks of a handle stand side by side, and count themselves */
struct gcp_segment {
	gcp_addr addr;
	uint64_t size;
	uint64_t number; /* of no other segment; above, and then by age */
	/* All work on blocks freed while it was private is behind it. Written before
	 * heap becomes common; then read without a lock by threads that hold its
	 * blocks. */
	uint64_t private_epoch;
	struct gcp_pool *pool;
	_Atomic(struct gcp_heap *)
	    heap; /* private ones become common, and unused ones private */
	struct gcp_block *first;
	uint64_t mapped; /* bytes with memory behind them */
	/* [chunk]; NULL: not mapped by the pool. Those under a block that is MOVING
	 * change under vmm_lock; the others do not. */
	struct gcp_chunk *chunks;
	TAILQ_ENTRY(gcp_segment) link; /* heap->segments, pool->orphans */
	struct gcp_treap_node node;    /* pool->segments, by address */
};
TAILQ_HEAD(gcp_segment_list, gcp_segment);

/* Which segments that hold no block go back to the driver. */
struct gcp_purge {
	bool gently; /* only those that go back without a wait for the device, */
	bool behind_barriers; /* or for no more than what barriers wait for */
	uint64_t bytes;       /* until so many are taken, */
	bool exact;           /* and no more */
};

/* Chunks of a handle; lists of blocks by stream. */
enum { GCP_HANDLE_MOST = 16, GCP_STREAMED = 256 };

/* Segments and their free blocks. All fields: pool->lock.
 *  H1 sum of what its segments have mapped == reserved_bytes
 *  H2 used + cached + pending + free == reserved, in bytes
 *  H3 pending blocks stand in the order of their epochs
 *  H4 pending_ends has the last pending block of each epoch, in that order */
struct gcp_heap {
	struct gcp_pool *pool;
	bool private;
	uint64_t id;   /* tells one life of a heap from another's */
	bool recycled; /* a block freed before was given out; gcp_heap_capture_ends */
	/* Private heaps only: how frees become allocations; the open group, which
	 * frees in a capture get; that of the latest such free; and groups up to
	 * group_past are of captures that are over. */
	enum gcp_reuse reuse;
	uint64_t group, group_freed, group_past;
	struct gcp_segment_list segments;
	struct gcp_treap free, holes;       /* FREE blocks; HOLE blocks */
	struct gcp_block_list pending;      /* freed, epoch not ready; oldest first */
	struct gcp_block_list pending_ends; /* the last of each epoch in there */
	struct gcp_block_list deferred;     /* freed in a capture; by group, growing */
	struct gcp_block_list once;         /* the same, and eager work may have used
					     * them: not before all captures are over; or
					     * freed since the heap was sealed */
	struct gcp_block *borrowed;      /* of a common heap, that the graph has open */
	struct gcp_block_list unmapping; /* UNMAPPING blocks, oldest epoch first */
	uint64_t pending_bytes;
	uint64_t reserved_bytes;
	uint64_t unused_bytes; /* free, and could be given back */
	uint64_t unused_low;   /* lowest since maintain.c set it */
	uint64_t used_bytes;   /* private heaps only */
	uint64_t lent_bytes;
	TAILQ_ENTRY(gcp_heap) link; /* pool->private_heaps */
	/* Private heaps: what `unmapping` is mapped to (NULL: to nothing), and its
	 * place in there; vmm_lock. */
	struct gcp_lane *lane;
	TAILQ_ENTRY(gcp_heap) lane_link;
	uint32_t lane_used[GCP_HANDLE_MOST + 1]; /* handles there, by chunks: lane.h */
};
TAILQ_HEAD(gcp_heap_list, gcp_heap);

/* --- thread caches: cache.h ------------------------------------------------------ */

struct gcp_cache;
struct gcp_chain;
struct gcp_depot;
TAILQ_HEAD(gcp_cache_list, gcp_cache);

/* --- epochs, fences and limits: timeline/ ---------------------------------------- */

struct gcp_timeline;

enum {
	GCP_FENCE_QUEUE = 512, /* closed epochs that wait for their fence */
};

/* Epochs that are always ready. */
enum {
	GCP_EPOCH_FRESH, /* the block was never used, or all its work is done */
	GCP_EPOCH_NOW,   /* for captures only: their order is proof enough */
	GCP_EPOCH_FIRST, /* the first epoch of a pool */
};

/* A fence that the driver made. All fields: fence_lock. */
struct gcp_fence {
	void *handle;        /* the driver's */
	uint32_t waiters;    /* threads that wait for it without fence_lock */
	uint32_t generation; /* timeline->generation when it was made */
	bool done;           /* no epoch needs it: spare once no thread waits for it */
	struct gcp_fence *next; /* timeline->spare */
};

struct gcp_closed_epoch {
	uint64_t epoch;
	struct gcp_fence *fence;
	uint64_t bytes;    /* freed into it, as far as they were added up */
	uint64_t searches; /* that had begun when it was closed: pools->searches */
};

TAILQ_HEAD(gcp_pinned_list, gcp_pinned_block);

/* A sequence of epochs. Numbers only grow. A block freed into epoch e may be used again
 * through any context's queue once e <= ready, by anything at all once
 * e <= completed.
 *  E6 completed <= ready < open
 *  E7 queue is ascending, all of it > completed and < open
 *  E8 pending_bytes is the sum of the bytes in the queue */
struct gcp_timeline {
	_Alignas(GCP_LINE) _Atomic uint64_t open; /* epoch that frees go into now */
	_Atomic uint64_t ready;                   /* max of ordered and completed */
	_Atomic uint64_t completed;               /* epochs whose fence is done */
	_Atomic uint64_t own; /* or what the context does itself alone, as far as was
			       * waited for: all that pinned memory waits for */
	/* Bytes freed since a free closed an epoch, as far as they were added up; and
	 * those of them that went into epochs which were closed early. Decide when the
	 * open epoch is closed, nothing else. */
	_Alignas(GCP_LINE) _Atomic int64_t filled;
	_Atomic int64_t early; /* written under fence_lock, or with a new epoch */
	_Atomic uint64_t pending_bytes; /* in the queue; written under fence_lock */
	_Atomic bool closing;           /* a thread is in gcp_timeline_close */
	_Alignas(GCP_LINE) uint64_t ordered; /* epochs behind a barrier; fence_lock */
	uint64_t freed;     /* the latest that a free or a barrier closed; fence_lock */
	uint64_t awaitable; /* the latest that a free closed; fence_lock */
	struct gcp_closed_epoch queue[GCP_FENCE_QUEUE]; /* fence_lock */
	uint32_t head, count;                           /* of queue; fence_lock */
	/* Contexts that it has outlived; written under fence_lock. */
	_Atomic uint32_t generation;
	_Atomic uint64_t closed; /* epochs closed since the start; written likewise */
	struct gcp_fence *spare; /* fences to use again; fence_lock */
	_Atomic bool refused;    /* context_fence.c; written under fence_lock */
	/* Its context may be gone, with its fences: none is recorded, asked or waited
	 * for; written under fence_lock. */
	_Atomic bool detached;
	bool multi_context;      /* no barrier for reuse: NO NEW WAITS; fence_lock */
	struct gcp_pools *pools; /* constant, as the next ones */
	struct gcp_pool *pool;
};

/* Streams that work went to: a bit for each, found by hashing. Hints. */
struct gcp_streams {
	_Atomic uint64_t now,
	    before;      /* since the latest turn, and in the turn before */
	uint32_t epochs; /* closed, of all pools; fence_lock */
};

/* The limits of a pool: how much freed memory may wait for the device. Computed when
 * an epoch is closed, a context begins or ends, or a stream is seen for the first
 * time; read without a lock. Each figure is good on its own. */
struct gcp_limits {
	_Atomic uint64_t bytes;       /* more than that pending: a barrier */
	_Atomic uint64_t epoch_bytes; /* an epoch that has taken so much is closed */
	_Atomic uint32_t streams;     /* in use of late; 0: not known: window.c */
	_Atomic uint32_t scale;       /* times the limits were doubled */
};

/* All fields but starved: fence_lock. */
struct gcp_pressure {
	_Atomic bool starved;   /* a thread had to wait for the latest epochs */
	uint32_t short_epochs;  /* in a row */
	uint64_t closed_at_ns;  /* when the latest epoch was closed */
	uint64_t had_completed; /* epochs, when the limits last doubled */
};

/* --- decay: maintain.c ------------------------------------------------------------ */

/* All fields but the atomic one: pool->lock. */
struct gcp_maintenance {
	uint64_t turn;              /* of pinned memory alone: counts them */
	_Atomic uint64_t turned_ns; /* when a turn began last; 0: none has yet */
	uint64_t epoch;             /* the open one then, or when is_quiet asked */
};

/* --- pool and pools ------------------------------------------------------------- */

/* Whether the device is nearly full: tight.c. All fields are hints. */
struct gcp_tightness {
	_Atomic bool tight;        /* each free closes its epoch */
	_Atomic uint64_t headroom; /* bytes to take before the driver is asked again */
	_Atomic uint32_t frees;    /* since it was asked */
};

struct gcp_pool {
	struct gcp_pools *pools;
	uint64_t key;      /* of no other pool in this process's life */
	void *_Atomic ctx; /* changes when the struct serves a later context */
	int device;
	/* Bytes that the device has, or UINT64_MAX; those of the configuration, or
	 * GCP_LIMIT_NONE. Constant after create. */
	uint64_t memory, cache_limit;
	struct gcp_tightness tightness;
	_Alignas(GCP_LINE) struct gcp_mutex lock;
	struct gcp_heap common;
	struct gcp_descriptor_pool block_descriptors, segment_descriptors; /* lock */
	/* PENDING blocks that have a stream, by it, the latest first. */
	struct gcp_streamed streamed[GCP_STREAMED];
	struct gcp_heap_list private_heaps;
	struct gcp_treap segments;
	struct gcp_segment_list orphans; /* of a context that is gone; vmm_lock */
	bool vmm;                        /* its segments are mapped by vmm.c */
	_Atomic bool vmm_mixed;          /* it has had to take ordinary ones, too */
	TAILQ_HEAD(, gcp_lane) lanes;    /* lane.c; vmm_lock */
	_Atomic uint64_t vmm_mapped;     /* bytes; written under lock */
	struct gcp_timeline timeline;
	_Atomic uint64_t polled_epoch; /* open when miss.c asked last; a hint */
	_Atomic uint64_t barriers_asked, barriers_set; /* at captures' ends; private.c
							*/
	uint64_t giving; /* segments on their way back to the driver; lock */
	_Atomic uint64_t reserved_hint; /* bytes; written under lock */
	struct gcp_maintenance maintenance;
	_Atomic uint32_t cache_count; /* threads that cache from here */
	/* Bytes freed in streams since the cache limit was looked at: stream_alloc.c.
	 */
	_Atomic uint64_t limit_freed;
	struct gcp_stats stats;        /* lock */
	struct gcp_stats_delta delta;  /* not merged yet; empty but under lock */
	struct gcp_depot *depots;      /* [class] */
	_Atomic int64_t depot_bytes;   /* in all of them */
	_Atomic uint64_t flush_at;     /* bytes reserved: cache.c */
	struct gcp_pool *_Atomic next; /* pools->first; never removed */
	_Atomic bool live;
	/* Statistics; one thread at a time writes it. */
	_Atomic uint64_t graph_launches;
	_Atomic uint64_t held_back;   /* epoch: until it is completed later work of the
				       * context may wait for a graph */
	struct gcp_limits limits;     /* window.c */
	struct gcp_pressure pressure; /* the same */
	_Atomic bool detaching;       /* gcp_pool_detach waits until there are no */
	_Atomic uint32_t pins;        /* users on their own account */
	_Atomic uint64_t calls[GCP_CALL_COUNT][GCP_COSTS]; /* driver calls */
	struct gcp_pinned_bucket *pinned_buckets; /* the latest; pinned->lock */
	/* Freed pinned blocks whose epoch is not completed, as far as was looked;
	 * longest freed first; pinned->lock. */
	struct gcp_pinned_list pinned_pending;
	uint64_t pinned_pending_bytes;
	struct gcp_maintenance pinned_turns; /* only the turns; pinned->lock */
};

/* Which sizes the program's sizes are rounded up to. Constant after create. */
struct gcp_classes {
	uint64_t largest; /* sizes[count - 1] */
	uint32_t count;
	uint16_t *of_units; /* [units of GCP_UNIT] -> class */
	uint64_t sizes[GCP_CLASSES_MAX];
};

struct gcp_pools {
	uint64_t id; /* tells thread-local state of one life from another's */
	struct gcp_config config;
	struct gcp_driver driver;
	struct gcp_classes classes;
	struct gcp_map *map;
	struct gcp_descriptor_pool fence_descriptors; /* fence_lock */
	_Atomic uint64_t last_heap_id;
	_Atomic uint64_t last_segment; /* number of the newest segment */
	struct gcp_mutex vmm_lock;
	struct gcp_mutex registry_lock;
	struct gcp_pool *_Atomic first;
	struct gcp_cache_list caches;
	struct gcp_streams streams;
	_Atomic uint64_t serials;       /* of async blocks: those before it are taken */
	_Atomic uint64_t eager_work;    /* submissions beside captures, from 1 on */
	_Atomic uint64_t captured_work; /* those into captures, and edits of them */
	_Atomic uint64_t deferred_frees; /* whose blocks had to wait for a release */
	_Atomic uint64_t searches;       /* calls that found no memory, until now */
	/* A limit; bytes of each device (by 6 bits of its number) that the program has
	 * and that no pool has taken, which grow under vmm_lock. */
	_Atomic uint64_t quota, passed[64];
	_Alignas(GCP_LINE) struct gcp_mutex fence_lock;
	_Alignas(GCP_LINE) _Atomic uint32_t
	    holds;                   /* captures under way; written under fence_lock */
	_Atomic bool completed_only; /* set once, permanently; fence_lock */
	struct gcp_pinned *pinned;   /* pinned memory; NULL: not pooled */
};

/* --- descriptor.c, config.c ------------------------------------------------------ */

void gcp_descriptor_pool_init(struct gcp_descriptor_pool *descriptors,
			      size_t item_bytes);
/* As it was left; NULL: no memory. */
void *gcp_descriptor_alloc(struct gcp_descriptor_pool *descriptors);
void gcp_descriptor_free(struct gcp_descriptor_pool *descriptors, void *item);

/* Zeroed memory of the system's, permanently or until munmap; NULL. */
void *gcp_zeroed_map(size_t bytes);
/* The same, to be read; a part of it may be written once it was opened. What was not
 * costs no memory, also in a process that locks its memory. */
void *gcp_sparse_map(size_t bytes);
bool gcp_sparse_open(void *at, size_t bytes); /* false: no memory */

int gcp_classes_init(struct gcp_classes *classes, const struct gcp_config *config);

/* The class that serves `bytes`, or GCP_CLASS_NONE. */
static inline uint32_t gcp_class_of(const struct gcp_classes *classes, uint64_t bytes)
{
	if (bytes - 1 >= classes->largest) /* also 0 */
		return GCP_CLASS_NONE;
	return classes->of_units[(bytes + GCP_UNIT - 1) / GCP_UNIT];
}

/* A descriptor that is in no list; NULL: no memory. */
struct gcp_block *gcp_block_create(struct gcp_segment *segment, gcp_addr addr,
				   uint64_t size, uint64_t epoch);

/* --- heap.c, fit.c: pool->lock is held --- */

void gcp_heap_init(struct gcp_heap *heap, struct gcp_pool *pool, bool private);
/* Whether two free neighbours become one. */
bool gcp_blocks_merge(const struct gcp_block *a, const struct gcp_block *b);
struct gcp_request;
/* A ready block of request->size or (fit.c) more, now USED, or NULL. fresh: one that
 * has not been allocated since its memory came to the (private) heap. */
struct gcp_block *gcp_heap_take(const struct gcp_request *request, bool fresh);
/* Takes back a block without an owner; its epoch says when it is ready. */
void gcp_heap_put(struct gcp_heap *heap, struct gcp_block *block);
void gcp_heap_put_list(struct gcp_heap *heap, struct gcp_block_list *list);
void gcp_heap_put_chain(struct gcp_heap *heap, const struct gcp_chain *chain);
/* Moves pending blocks whose epoch is ready to where they can be taken. */
void gcp_heap_advance(struct gcp_heap *heap);
/* The oldest epoch that would have to be ready to serve `size`, as far as is looked;
 * 0: none. */
uint64_t gcp_heap_fitting_epoch(struct gcp_heap *heap, uint64_t size);
/* Makes [addr, addr + size), which is free, one block and takes it; NULL: it is not
 * free. It lies in a segment of the heap that begins at `least`. */
struct gcp_block *gcp_heap_take_at(struct gcp_heap *heap, gcp_addr least, gcp_addr addr,
				   uint64_t size);
/* Takes all unused blocks off their lists, onto `list`. */
void gcp_heap_collect(struct gcp_heap *heap, struct gcp_block_list *list);

/* fit.c: a ready block, in no tree any more, or NULL. */
struct gcp_block *gcp_fit_take(const struct gcp_request *request, bool fresh);
/* Cuts [at, at + size), or what gcp_block_trim leaves of it, out of a block that is in
 * the tree. NULL: there is no memory for a descriptor, and all stays. */
struct gcp_block *gcp_fit_cut(struct gcp_heap *heap, struct gcp_block *block,
			      gcp_addr at, uint64_t size);
/* What has `size` of a block that is in no tree: it lies above the head, if one is to
 * be made, and the rest above it (NULL: there is none) is in no tree either; or free.
 */
struct gcp_block *gcp_block_trim(struct gcp_block *block, uint64_t size,
				 struct gcp_block **ret_rest);

/* pending.c: the list of blocks that wait. pool->lock is held, but by the first. */
void gcp_pending_init(struct gcp_heap *heap);
/* Its state is PENDING, and its epoch does not change while it is in the list. */
void gcp_pending_add(struct gcp_heap *heap, struct gcp_block *block);
void gcp_pending_remove(struct gcp_heap *heap, struct gcp_block *block);
/* Moves all of them to the end of `list`. */
void gcp_pending_take_all(struct gcp_heap *heap, struct gcp_block_list *list);

/* blocks.c: calls it for each block. pool->lock is held. */
typedef void gcp_each_block(void *arg, struct gcp_block *block);
void gcp_heap_each(struct gcp_heap *heap, gcp_each_block *each, void *arg);
/* A block of a private heap is given out (1), or is so no more (-1). */
void gcp_heap_count(struct gcp_heap *heap, struct gcp_block *block, int sign);

/* What heap.c and segment.c share. */
void gcp_block_set_state(struct gcp_block *block, enum gcp_block_state state);
/* NULL is in no state. */
bool gcp_block_is(const struct gcp_block *block, enum gcp_block_state state);
bool gcp_block_is_free(const struct gcp_block *block);
bool gcp_block_is_used(const struct gcp_block *block);    /* USED, CAPTURED, EXPORTED */
uint64_t gcp_block_id(const struct gcp_block *block);     /* gcp_block_info */
bool gcp_block_is_segment(const struct gcp_block *block); /* the whole of one */
/* Begins an ordinary segment, of which it has all, and which may be cut. */
bool gcp_block_begins_segment(const struct gcp_block *block);
/* Makes a HEAD of the first page of such a block, which is what is above it then.
 * False: there is no memory for a descriptor, and nothing is done. */
bool gcp_block_make_head(struct gcp_block *block);

/* tree.c: FREE blocks, and HOLE blocks. */
void gcp_tree_insert(struct gcp_heap *heap, struct gcp_block *block);
void gcp_tree_remove(struct gcp_heap *heap, struct gcp_block *block);
/* Before (-1) and after (1) the block is cut or takes in a neighbour, and stays in its
 * tree. */
void gcp_tree_change(struct gcp_heap *heap, struct gcp_block *block, int sign);
void gcp_hole_insert(struct gcp_heap *heap, struct gcp_block *block);
void gcp_hole_remove(struct gcp_heap *heap, struct gcp_block *block);
/* The block of at least `size` that lies lowest in the oldest segment, and the one
 * after such a block; NULL: there is none. */
struct gcp_block *gcp_tree_lowest_fit(const struct gcp_treap *tree, uint64_t size);
struct gcp_block *gcp_tree_next_fit(struct gcp_block *block, uint64_t size);
/* The lowest one where a request for `bytes` may lie: if it is no small one, in no
 * range of small blocks. */
struct gcp_block *gcp_tree_lowest_for(const struct gcp_treap *tree, uint64_t size,
				      uint64_t bytes);
uint64_t gcp_tree_largest(const struct gcp_heap *heap);

static inline bool gcp_segment_before(const struct gcp_segment *a,
				      const struct gcp_segment *b)
{
	return a->addr != b->addr ? a->addr < b->addr : a->number < b->number;
}
GCP_TREAP(gcp_segments, gcp_segment, node, gcp_segment_before, NULL)

/* --- private.c --- */

/* Takes back a block that is CACHED by the caller, whatever its heap is by now.
 * pool->lock is held. */
void gcp_private_free(struct gcp_pool *pool, struct gcp_block *block);
/* One of those that have the block open has it so no more. pool->lock is held. */
void gcp_block_close(struct gcp_block *block);

/* --- alloc.c, miss.c, take.c ------------------------------------------- */

/* One allocation on its way. */
struct gcp_request {
	struct gcp_heap *heap;
	uint64_t bytes;             /* asked for */
	uint64_t size;              /* rounded up to a class or to units */
	uint32_t size_class;        /* or GCP_CLASS_NONE */
	uint64_t stream;            /* stream-ordered: in that one; 0: in none */
	bool async;                 /* stream-ordered, and the block will be */
	uint64_t async_stream;      /* of this stream */
	enum gcp_heap_use use;      /* of a private heap */
	bool looks_long;            /* at all that its stream has freed */
	struct gcp_cache *counting; /* the thread's: counts it; cache->own is held */
	struct gcp_block *made;  /* FREE: new room for it; while pool->lock is held */
	struct gcp_block *block; /* found, and USED; once the locks are left it may have
				  * gone with its context, but for what it has: */
	gcp_addr addr;
};

/* miss.c: the rest of the way when the cache gave none. No lock held. */
int gcp_alloc_slow(struct gcp_request *request, gcp_addr *ret_addr);
/* take.c. True: request->block is it. Ready in the heap; the same with pool->lock held;
 * in the thread's cache; in either. hit: it came without new memory. */
bool gcp_take_ready(struct gcp_request *request);
bool gcp_take_locked(struct gcp_request *request, bool hit);
bool gcp_take_cached(struct gcp_request *request);
bool gcp_take_anywhere(struct gcp_request *request);
/* stream_heap.c: the same from what was freed in the request's stream. pool->lock. */
struct gcp_block *gcp_heap_take_streamed(struct gcp_heap *heap,
					 const struct gcp_request *request);
/* The calling thread's cache, if it may serve the request, else NULL. */
struct gcp_cache *gcp_request_cache(const struct gcp_request *request);

/* --- place.c: pool->lock is held -------------------------------------------------- */

/* Where in [block->addr, + block->size), which is free, a request of `size` may lie:
 * the lowest address seen; 0: nowhere. */
gcp_addr gcp_block_place(const struct gcp_block *block, uint64_t size);
/* Returns true if the handles that a request at the begin of `block` would lie in have
 * at most four times its size, and two chunks. */
bool gcp_block_may_divide(const struct gcp_block *block, uint64_t size);

/* -EINVAL: 0 bytes; GCP_CUDA_OUT_OF_MEMORY: more than there can be. */
int gcp_request_init(struct gcp_request *request, struct gcp_heap *heap,
		     uint64_t bytes);

/* --- segment.c, stats_delta.c --- */

void gcp_gauge_add(struct gcp_gauge *gauge, int64_t change);
/* pool->lock. */
void gcp_stats_merge(struct gcp_pool *pool, struct gcp_stats_delta *delta);

#endif
