/* SPDX-License-Identifier: MIT */
/*
 * pool.h - the one header of pool/: a caching allocator of device memory.
 *
 * Called by capture/ and interpose/. Knows nothing of CUDA but driver_table.h, of
 * the environment but struct gcp_config, and of captures but two facts: that
 * fences can be held off (gcp_pools_fences_hold), and that a heap can be
 * private (gcp_heap_create).
 *
 * The nouns, from large to small:
 *
 *   pools     all pools of the process; the only state that is shared
 *   pool      the memory of one CUDA context
 *   heap      segments with one list of free blocks: a pool has a common heap
 *             and, for captured graphs, private ones
 *   segment   one allocation of the driver
 *   block     what the program gets: [addr, addr + size)
 *   epoch     all frees of a pool between two fences; blocks carry its number
 *   fence     an event behind all work of a context that closes an epoch
 *
 * Results: 0 good; > 0 the driver's CUresult, untouched; < 0 our -errno.
 * Every function may be called from any thread at any time, unless it says
 * otherwise. None touches errno.
 */
#ifndef GCP_POOL_POOL_H
#define GCP_POOL_POOL_H

#include "base/lock.h"
#include "driver_table.h"

struct gcp_pools;
struct gcp_pool;
struct gcp_heap;

/* --- configuration ------------------------------------------------------- */

/* A limit is a number of bytes, GCP_LIMIT_NONE, or GCP_LIMIT_SHARES plus hundredths of
 * a percent (0..10000) of the memory that the device has. */
#define GCP_LIMIT_NONE   UINT64_MAX
#define GCP_LIMIT_SHARES (1ull << 63)

/* Mapped segments: unused memory anywhere serves any request. Each device that cannot
 * have them, and each request that fails to, gets ordinary ones. */
enum gcp_backend {
	GCP_BACKEND_AUTO,     /* mapped, unless driver->vm_wanted says no */
	GCP_BACKEND_MAPPED,   /* mapped */
	GCP_BACKEND_SEGMENTS, /* ordinary ones, of mem_alloc */
};

/* Read once by gcp_pools_create. Sizes in bytes. Defaults and bounds stand in
 * the option table of interpose/base/options_table.c; gcp_config_default gives the same
 * defaults to tests. */
struct gcp_config {
	uint32_t class_steps;        /* size classes per power of two: 1..64 */
	uint64_t class_min;          /* smallest class; multiple of 512 */
	uint64_t class_max;          /* largest class; larger sizes round up to 4 KiB */
	uint64_t window_bytes;       /* growth bound: freed bytes that may circulate,
				      * still pending, before a barrier is set */
	uint32_t window_blocks;      /* the same in blocks, of one size */
	uint32_t epoch_blocks;       /* frees of one thread that close an epoch */
	uint64_t thread_cache_bytes; /* most that a thread's cache holds; 0: none */
	uint64_t cache_limit;     /* a limit: most unused bytes kept per pool. 0: frees
				   * wait for the device and give back, as cudaFree */
	uint32_t decay_ms;        /* milliseconds that memory stays idle before it
				   * goes back; 0: for ever */
	uint64_t quota;           /* a limit: most bytes taken per device, at first */
	bool blocking_free;       /* a free waits for the device, as cudaFree does */
	enum gcp_backend backend; /* what segments are made of */
	bool completed_only; /* never reuse behind a barrier, only after completion */
	bool pinned;         /* pinned host memory is pooled */
	uint64_t pinned_window;      /* freed pinned bytes of a context that may wait; a
				      * free beyond it waits, as plain CUDA's would */
	uint64_t pinned_cache_limit; /* most unused pinned bytes, or GCP_LIMIT_NONE;
				      * 0: frees wait and give back, as cudaFreeHost */
	uint64_t pinned_quota;       /* most pinned bytes held, or GCP_LIMIT_NONE */
};

void gcp_config_default(struct gcp_config *config);

/* --- life ------------------------------------------------------------------ */

/* Makes the process's pools. `driver` is copied. -ENOMEM. */
int gcp_pools_create(const struct gcp_config *config, const struct gcp_driver *driver,
		     struct gcp_pools **ret_pools);

/* The pool of context `ctx` on device `device`, made at the first call.
 * Lock-free when it exists. Waits while the context may be ending, but not for long:
 * -EBUSY. -ENOMEM. */
int gcp_pool_get(struct gcp_pools *pools, void *ctx, int device,
		 struct gcp_pool **ret_pool);

/* The context is about to be destroyed: from now on no thread gives memory back, waits
 * or sets a barrier in it for a pool's sake, and threads that were doing so have ended.
 * Then either gcp_pool_reset or, where the context stays, gcp_pool_reattach. Blocks
 * until threads that wait for the device in it have ended; no lock of the caller's. */
void gcp_pool_detach(struct gcp_pools *pools, void *ctx);
void gcp_pool_reattach(struct gcp_pools *pools, void *ctx);

/* The context is gone, and its memory with it: detaches all blocks, calls no
 * driver function. Later frees of its pointers are foreign (-ENOENT). */
void gcp_pool_reset(struct gcp_pools *pools, void *ctx);

/* A context came to life: it must stand behind every barrier that is set and
 * not yet done. Calls `order(ctx, fence)`, which makes the context wait and gives 0.
 * Where it does not, or a capture forbids the call, the host waits instead. For a pool
 * with such a barrier that leaves, it is waited a while whether it stays. No lock held.
 */
void gcp_pools_context_joined(struct gcp_pools *pools, void *ctx,
			      int (*order)(void *ctx, void *fence));

/* --- allocate and free ----------------------------------------------------- */

/* Gives a block of at least `bytes` (> 0), aligned to 512 bytes.
 * Goes to the driver only when nothing cached fits; a driver that is full
 * first gets back all that is cached (reclaim.c). May wait for the
 * device only when memory is out.
 * 0; GCP_CUDA_OUT_OF_MEMORY (also: over the quota); a sticky device error. */
int gcp_pool_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr);

/* Takes a block back, into its common heap's open epoch or its private heap.
 * 0; -ENOENT: not the start of a block of ours (give it to the real free);
 * -EINVAL: ours, but free already; -EREMOTE: exported, and not freed (below); > 0:
 * freed, and the fence reported this sticky device error. */
int gcp_pools_free(struct gcp_pools *pools, gcp_addr addr);

/* The same for a call that does not wait on plain CUDA (cuMemFreeAsync): neither
 * does it wait here, nor does later work ever wait behind it. `stream` is the id of the
 * stream that it is ordered in, one of the block's context; 0: not to be relied on. */
int gcp_pools_free_async(struct gcp_pools *pools, gcp_addr addr, uint64_t stream);

/* Returns false if the context of the pool has refused a fence: from then on the pool
 * takes no memory (context_fence.c). Lock-free. */
bool gcp_pool_is_fenced(const struct gcp_pool *pool);

/* gcp_pools_free_async for a block of `pool`. -EXDEV: it is one of another pool, or
 * fences do not cover its context, and it is not freed. */
int gcp_pool_free_stream(struct gcp_pool *pool, gcp_addr addr, uint64_t stream);

/* A stream is a number that no other stream of the process ever has. */
struct gcp_stream_order {
	uint64_t stream; /* 0: none, and the block is ready for all */
	uint64_t also;   /* what was freed in this one serves, too; 0: none */
	bool crossed; /* it did: `stream` must be put behind `also` before the program
		       * learns the address */
	bool named; /* by gcpool_malloc: it is freed in a stream by gcpool_free alone */
};

/* gcp_pool_alloc for memory that the program uses in stream order only: behind what was
 * submitted to the stream before the call. What was freed in the same stream by
 * gcp_pools_free_async serves at once, without a fence. At least `margin` bytes of the
 * block lie behind what the program asked for. */
int gcp_pool_alloc_stream(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			  struct gcp_stream_order *order, gcp_addr *ret_addr);

/* gcp_pool_alloc with such a margin. Not for captures: the memory is of the common
 * heap. */
int gcp_pool_alloc_margin(struct gcp_pool *pool, uint64_t bytes, uint64_t margin,
			  gcp_addr *ret_addr);

/* The live block that holds `addr` (anywhere inside). -ENOENT: no block of ours holds
 * it; -EINVAL: one that is free. */
struct gcp_block_info {
	gcp_addr addr;         /* first byte of the block */
	uint64_t requested;    /* what the program asked for */
	uint64_t size;         /* what it occupies */
	gcp_addr segment_addr; /* the driver allocation that holds it */
	uint64_t segment_size;
	bool mapped; /* by hand, and not allocated by mem_alloc */
	bool async;  /* by gcp_pool_alloc_stream */
	void *ctx;   /* of the pool */
	int device;  /* of the context */
	uint64_t id; /* of the allocation: no other one of the process has it */
	struct gcp_pool *pool;
	struct gcp_heap *heap; /* NULL: the common heap, and no graph has it open */
};
int gcp_pools_find(struct gcp_pools *pools, gcp_addr addr,
		   struct gcp_block_info *ret_info);

/* The same as gcp_pools_find for the start of a block, which the caller holds:
 * lock-free, constant time. -ENOENT: not the start of a block of ours; -EINVAL: ours,
 * but free. */
int gcp_pools_held(struct gcp_pools *pools, gcp_addr addr,
		   struct gcp_block_info *ret_info);

/* Waits until nothing submitted before the block was handed out can still
 * touch it: what is outside every context's queue (another process, a network
 * card) may use it then. -ENOENT; a sticky device error; -EBUSY if a capture
 * makes waiting impossible. */
int gcp_pools_complete(struct gcp_pools *pools, gcp_addr addr);

/* Waits, inside a call that frees, until all work submitted to the context of the live
 * block at `addr` is completed, as cuMemFree does. -ENOENT: no such block; -EBUSY: a
 * capture makes waiting impossible; a sticky device error. */
int gcp_pools_wait_before_free(struct gcp_pools *pools, gcp_addr addr);

/* --- blocks that other processes may have open ---------------------------------- */

/* Marks the live block that starts at `addr`: from now on frees of it take nothing and
 * give -EREMOTE, so its memory is neither given out nor moved, before
 * gcp_pools_unexport. Never waits: see gcp_pools_complete. False: there is no such
 * block. Any thread; legal in captures. */
bool gcp_pools_export(struct gcp_pools *pools, gcp_addr addr);
/* The pool of such a block; NULL: none starts there. Lock-free. */
struct gcp_pool *gcp_pools_exporter(struct gcp_pools *pools, gcp_addr addr);
/* Another process opens the exported block that has this id (gcp_block_info), once
 * more. What the program asked for, in bytes; 0: there is no such block. Never waits.
 */
uint64_t gcp_pools_open(struct gcp_pools *pools, gcp_addr addr, uint64_t id);
/* The program frees the exported block at `addr`. 0: the mark is gone, and the block as
 * any other. 1: another process has it open: here it is free, and counts as freed, but
 * its memory stays as it is until that closes it. -ENOENT: no such block. Never waits.
 */
int gcp_pools_unexport(struct gcp_pools *pools, gcp_addr addr);
/* Another process has closed the block that it opened by this id, once. What the last
 * one closes after its free goes to its heap. Nothing happens if there is no such
 * block. Never waits, and calls no driver: its context may be ending. */
void gcp_pools_close(struct gcp_pools *pools, gcp_addr addr, uint64_t id);

/* The context of the pool does not end, nor do its blocks, before gcp_pool_unpin.
 * False: it may be ending just now, and there is no pin. Lock-free; any lock may be
 * held. */
bool gcp_pool_pin(struct gcp_pool *pool);
void gcp_pool_unpin(struct gcp_pool *pool);
bool gcp_pool_is_live(const struct gcp_pool *pool); /* it has a context now */

/* Waits until all work submitted to the context, which does not end meanwhile, is
 * completed, as cuMemFree does. A sticky device error. */
int gcp_pool_finish(struct gcp_pool *pool);

/* Calls each(arg, handle, addr, bytes) for each handle that is mapped behind the
 * exported or lent block at `addr`, by rising addresses, from the one behind `from` on,
 * until a call gives something else than 0, which is the result. The first and the last
 * one may hold other blocks too. -ENOENT: no such block, or not of mapped memory.
 * `each` runs under a lock: it must call nothing of this room. */
int gcp_pools_for_each_handle(struct gcp_pools *pools, gcp_addr addr, gcp_addr from,
			      int (*each)(void *arg, uint64_t handle, gcp_addr addr,
					  uint64_t bytes),
			      void *arg);

/* The calling thread ends: its cached blocks go back. */
void gcp_pools_thread_exit(struct gcp_pools *pools);

/* --- fences and captures --------------------------------------------------- */

/* While held, no epoch is closed and no barrier set, in any pool: CUDA would
 * invalidate the capture. Returns when no fence is being set. Counts: each
 * hold needs one release. Called around the life of every capture. */
void gcp_pools_fences_hold(struct gcp_pools *pools);
void gcp_pools_fences_release(struct gcp_pools *pools);

/* Called with the pool pinned. Sets a fence behind what was submitted until `moment`
 * (gcp_pool_work_now), in a call that waits for it on plain CUDA, as a free does.
 * -EBUSY: a capture is under way, and a later fence covers it. A sticky device error.
 */
int gcp_pool_work_close(struct gcp_pool *pool, uint64_t moment);
/* Returns true if that work is done: asks, and sets a fence if there is none; never
 * waits. */
bool gcp_pool_work_is_done(struct gcp_pool *pool, uint64_t moment);

/* --- hints ------------------------------------------------------------------- */

/* The program gave work to a stream: `stream` is any number that tells it from
 * others. With one stream in use a barrier costs next to nothing, and less
 * memory circulates before one is set; without hints many streams are assumed.
 * Decides speed and memory, never safety. A relaxed load for a stream that was
 * used of late. */
void gcp_pools_stream_used(struct gcp_pools *pools, uint64_t stream);

/* For callers that ask before each launch: a stream whose bit (by number) is set there
 * was used of late, and need not be told. */
const _Atomic uint64_t *gcp_pools_streams_seen(const struct gcp_pools *pools);
static inline uint32_t gcp_stream_bit(uint64_t stream)
{
	return (uint32_t)(stream * 0x9e3779b97f4a7c15ull >> 58);
}

/* --- private heaps (for capture/) ------------------------------------------ */

/* A heap of its own segments, in this pool. Its blocks never reach the common
 * heap before gcp_heap_release. -ENOMEM. */
int gcp_heap_create(struct gcp_pool *pool, struct gcp_heap **ret_heap);

/* What an allocation from a private heap is for, and so what it may be given and when
 * its block may be given on. */
enum gcp_heap_use {
	GCP_USE_CAPTURED, /* captured work alone */
	GCP_USE_WATCHED,  /* the same, as far as is known: once freed the block serves
			   * another allocation of the capture only if no eager work was
			   * submitted since it was allocated */
	GCP_USE_ANY,      /* captured or eager work: the block is memory that nothing in
			   * this heap had before; once freed, as WATCHED */
};
int gcp_heap_alloc(struct gcp_heap *heap, uint64_t bytes, enum gcp_heap_use use,
		   gcp_addr *ret_addr);
/* The block of the common heap, just allocated, serves no other allocation before
 * gcp_heap_release, however soon it is freed. */
void gcp_heap_borrow(struct gcp_heap *heap, gcp_addr addr);

/* Work is about to be submitted outside every capture (eager work) while captures are
 * under way, or may have been: it may touch any block that is allocated by now.
 * Called before the real call; any thread, any lock may be held. */
void gcp_pools_eager_work(struct gcp_pools *pools);
/* The same of work that is captured, and of a graph that the program edits. Returns how
 * many freed blocks had to wait for the release of their group, until now. */
uint64_t gcp_pools_captured_work(struct gcp_pools *pools);

/* How frees into a private heap become allocations again. */
enum gcp_reuse {
	GCP_REUSE_FENCED, /* no capture is under way: at once, for the next capture, at
			   * whose end a barrier is due */
	GCP_REUSE_SEALED, /* nor will one be: what captures have freed by now may be
			   * shared, and nothing that is freed later: graphs leave
			   * their results there, which other graphs may read */
	GCP_REUSE_NOW,    /* at once: a capture is under way and its order proves it */
	GCP_REUSE_LATER,  /* when their free group is released, or with FENCED */
};
enum { GCP_GROUP_FIRST = 2 }; /* the lowest number of a free group */

/* From now on frees in captures get the free group `group`: higher than before at each
 * change to FENCED. Leaving NOW for LATER, blocks that captures under way have freed
 * wait too, and so do those of released groups: a fork may start before their free. */
void gcp_heap_set_reuse(struct gcp_heap *heap, enum gcp_reuse reuse, uint64_t group);

/* Frees get the group `next`, higher than before, from now on. 0: no block waits in the
 * group that this closes; else what gcp_pools_captured_work would return. */
uint64_t gcp_heap_close_group(struct gcp_heap *heap, uint64_t next);
/* Blocks of closed groups up to `group` may be allocated again at once. */
void gcp_heap_release_groups(struct gcp_heap *heap, uint64_t group);

/* A capture that has used the heap ends. If blocks were given out since the latest one
 * that had been freed without a fence, work that the program submitted itself may still
 * run on them: a barrier is due. */
void gcp_heap_capture_ends(struct gcp_heap *heap);

/* Which blocks of private heaps were live. */
struct gcp_noted {
	size_t count;
	struct gcp_noted_block {
		/* The first: another one after the end of its context. */
		uint64_t heap_id, segment_addr, addr, size, requested;
	} * blocks;
};
/* Adds those of a heap; where `blocks` is NULL, only their number. No capture may be
 * allocating from the heap. */
void gcp_heap_note(struct gcp_heap *heap, struct gcp_noted *live);
/* Adds how many of them are in this heap, and of this life of it. False: other
 * processes may have blocks of the heap open. */
bool gcp_heap_noted(struct gcp_heap *heap, const struct gcp_noted *live, size_t *count);
/* Makes exactly those blocks the program's again; all others of the heap are free. No
 * capture may be allocating from it, and no block of it is exported. */
void gcp_heap_restore(struct gcp_heap *heap, const struct gcp_noted *live);

/* Called when a capture has ended. Where gcp_heap_capture_ends has asked for it: all
 * work submitted from now on, in every context, waits for all work of the pool's
 * context submitted so far. Where another capture forbids that, waits for the work; and
 * where contexts are several a few milliseconds at most, for none of them to be held
 * back if the work is done then. A context that may be ending is passed by; if it
 * stays, gcp_pool_reattach makes up for it. What could not be set is set by a later
 * call. */
void gcp_pools_barriers_due(struct gcp_pools *pools);

/* Nothing more will be launched on the heap's addresses: its free memory passes
 * into the open epoch of the common heap, live blocks follow when freed.
 * `heap` is gone afterwards. */
void gcp_heap_release(struct gcp_heap *heap);
/* Closes epochs that are full of what private heaps held, and asks which are done, for
 * the next capture to have that memory. Called before a
 * capture begins, with no lock held. */
void gcp_pools_close_full(struct gcp_pools *pools);

/* Adds the bytes that the heap has, that the program holds of it, and that share. */
void gcp_heap_usage(struct gcp_heap *heap, uint64_t *reserved, uint64_t *held,
		    uint64_t *shared);

/* --- memory that graphs share (lane.c) -------------------------------------------- */

/* Physical memory of a pool that several private heaps have what is free in them mapped
 * to: for graphs of which no two run at the same time. */
struct gcp_lane;

/* A lane without memory. -ENOMEM. */
int gcp_lane_create(struct gcp_pool *pool, struct gcp_lane **ret_lane);
/* No heap is in it. Gives its memory back. */
void gcp_lane_destroy(struct gcp_lane *lane);
uint64_t gcp_lane_bytes(const struct gcp_lane *lane);

/* What is free in the sealed heap, as far as it lies in whole handles, is the memory of
 * `lane`, which was empty, from now on; nothing is mapped or unmapped. Nothing is
 * allocated from the heap any more, and its memory does not move before all work is
 * done that was submitted until now. False: there is nothing to share. */
bool gcp_heap_share(struct gcp_heap *heap, struct gcp_lane *lane);
/* In which lane it does; NULL: in none, and what is free in it has no memory if the
 * heap has not left. */
struct gcp_lane *gcp_heap_lane(const struct gcp_heap *heap);
/* Maps what the heap shares to the memory of this lane, which grows if it has to. No
 * launch may be on its way that uses the addresses. Memory is out, or host memory:
 * GCP_CUDA_OUT_OF_MEMORY, -ENOMEM, and it is mapped as before. Any other error: it may
 * have no memory now (gcp_heap_lane). Never waits. */
int gcp_lane_enter(struct gcp_lane *lane, struct gcp_heap *heap);
/* The heap leaves its lane, and takes along what it is mapped to, which is its own from
 * now on, until it is released. False: it is not alone there, or in none. No launch of
 * its graph is just being made. */
bool gcp_heap_keep_lane(struct gcp_heap *heap);
/* Called where nothing runs on it: gives its memory back, and its heaps have none then.
 * Returns the bytes. */
uint64_t gcp_lane_purge(struct gcp_lane *lane);

/* --- launches on it (lane_work.c) ---------------------------------------------- */

/* For several writers. What a thread did before is seen by one that reads the value
 * (acquire). */
static inline void gcp_raise(_Atomic uint64_t *mark, uint64_t value)
{
	uint64_t seen = atomic_load_explicit(mark, memory_order_relaxed);

	while (__builtin_expect(value > seen, 0) &&
	       !atomic_compare_exchange_weak(mark, &seen, value))
		;
}

/* Work of the pool's context: a number for all that was submitted until now; waits for
 * it, whatever captures forbid. */
uint64_t gcp_pool_work_now(struct gcp_pool *pool);
int gcp_pool_work_wait(struct gcp_pool *pool, uint64_t moment);
/* Called with the pool pinned. 0: it is done, or all later work follows it: by a
 * barrier, if a free or gcp_pool_work_close has closed its epoch (NO NEW WAITS,
 * fence.c). -EBUSY. */
int gcp_pool_work_ready(struct gcp_pool *pool, uint64_t moment);
/* All later work of the context follows work that was submitted before this call: what
 * gives memory back in its order waits for that, too. */
void gcp_pool_work_is_held_back(struct gcp_pool *pool);
void *gcp_pool_context(const struct gcp_pool *pool);
int gcp_pool_device(const struct gcp_pool *pool);
bool gcp_pool_is_only(const struct gcp_pool *pool); /* no other context has one */
/* Until captures_release no capture begins. False, and nothing to release: one is under
 * way. A lock over the contexts (the driver table's contexts_hold) may be taken
 * meanwhile, and may not be held before. */
bool gcp_pools_captures_hold(struct gcp_pools *pools);
void gcp_pools_captures_release(struct gcp_pools *pools);
/* Counters of the statistics. */
void gcp_pool_count_graph(struct gcp_pool *pool, bool moves); /* else it waits */
void gcp_pool_count_graph_launch(struct gcp_pool *pool);      /* one thread at a time */

/* --- memory pressure ------------------------------------------------------- */

/* Gives back what nothing has used for decay_ms, for a caller that comes by from time
 * to time: calls `within` for each pool where something may be due, which calls `step`
 * with the context current. Never waits for the device; does nothing beside a capture.
 */
void gcp_pools_decay(struct gcp_pools *pools,
		     void (*within)(void *ctx, void (*step)(void *arg), void *arg));

/* Why a call that found no memory is worth another try; NONE: it is not. */
enum gcp_relief {
	GCP_RELIEF_NONE,
	GCP_RELIEF_POOLS,  /* they gave memory back */
	GCP_RELIEF_OTHERS, /* other threads did, which may take it again */
};
enum { GCP_TRIES_OTHERS = 16 }; /* so often a call is tried because of others */

/* Of one call that found no memory, over all its tries; begins as {0}. */
struct gcp_search {
	uint64_t given; /* driver->given_by_others, when it was asked last */
	uint32_t looks; /* at work that came after a free, while it waited: reclaim.c */
	uint64_t begun; /* what frees have closed by then is waited for; 0: not yet */
};

/* Whether other threads gave memory back since this was asked last, or ever. */
bool gcp_search_others(const struct gcp_pools *pools, struct gcp_search *search);

/* The driver has no memory for a call. Has the pools give some back, in the order of
 * reclaim.c: those on `device` first, then on each, and then pinned memory of contexts
 * that are idle, or within two seconds. */
enum gcp_relief gcp_pools_relieve(struct gcp_pools *pools, int device,
				  struct gcp_search *search);
/* The same for a request for pinned memory: pinned memory first, and then that of the
 * devices, of which pinned memory takes a little. Waits for nothing that the frees of
 * plain CUDA have not waited for. */
enum gcp_relief gcp_pools_relieve_host(struct gcp_pools *pools,
				       struct gcp_search *search);

/* Gives unused memory back until at most `keep` bytes of it stay cached in each context
 * of `device` (-1: each). wait: waits on the host for work of these contexts, also
 * while a stream is being captured; else only what the device is done with goes back.
 * Returns the bytes given back. */
uint64_t gcp_pools_trim(struct gcp_pools *pools, int device, uint64_t keep, bool wait);

/* Bytes on `device` (-1: each) that are reserved and that neither a block of the
 * program holds nor a live graph keeps or shares, nor another process alone has. */
uint64_t gcp_pools_unheld(struct gcp_pools *pools, int device);

/* Of these, what an allocation of that size could have, though other memory be in use
 * beside each part of it; it may have to wait for what plain CUDA's frees would have
 * waited for. Moves what threads keep to the heap. */
uint64_t gcp_pools_reclaimable(struct gcp_pools *pools, int device);

/* Which limit refused the calling thread's latest allocation that failed for want of
 * memory, of a device or pinned. */
enum gcp_refusal { GCP_REFUSED_BY_DRIVER, GCP_REFUSED_BY_QUOTA };
enum gcp_refusal gcp_pools_refusal(void);

/* The quota of a device that has `memory` bytes; GCP_LIMIT_NONE: all of these. */
uint64_t gcp_pools_quota(const struct gcp_pools *pools, uint64_t memory);
/* Sets it to a limit, from now on. What is unused beyond it goes back, now or when the
 * device is done with it; waits for nothing. */
void gcp_pools_set_quota(struct gcp_pools *pools, uint64_t limit);

/* The program is about to get `bytes` of the device from the driver itself, which count
 * until it has given them back (bytes < 0). False: they are beyond the quota, and do
 * not count. */
bool gcp_pools_pass(struct gcp_pools *pools, int device, int64_t bytes);
/* These and what the pools have taken: what counts against the quota. */
uint64_t gcp_pools_taken(const struct gcp_pools *pools, int device);

/* --- mapped segments -------------------------------------------------------- */

/* How many contexts the pool has outlived: what was the context's is gone when this has
 * changed. */
uint64_t gcp_pool_life(const struct gcp_pool *pool);

/* Whether its segments are mapped by hand, and whether new ones are, as far as is
 * known. Those of graphs are not always. */
bool gcp_pool_is_mapped(const struct gcp_pool *pool);
bool gcp_pool_maps(const struct gcp_pool *pool);

/* Another device became a peer of `device`, or (-1) the process wakes: vm_create and
 * vm_map are called for what sleep has taken, and vm_open once more for all that is
 * mapped there. 0, or an error of one of these calls. */
int gcp_pools_reopen(struct gcp_pools *pools, int device);

/* Gives all mapped memory back to the driver, and keeps the addresses; what cannot be
 * unmapped stays. No lane has memory, all work is done, and no call of the program
 * comes until gcp_pools_reopen was good. */
void gcp_pools_sleep(struct gcp_pools *pools);

/* --- statistics ------------------------------------------------------------ */

/* Each gauge: now, the highest ever (since the last reset), the sum of all
 * increases, the sum of all decreases. */
struct gcp_gauge {
	uint64_t current, peak, allocated, freed;
};

/* X(name, what it means). PyTorch's names where the meaning is the same. */
#define GCP_GAUGES(X)                                                                  \
	X(allocation, "blocks held by the program")                                    \
	X(segment, "segments: allocations of the driver")                              \
	X(requested_bytes, "bytes the program asked for and holds")                    \
	X(allocated_bytes, "bytes in blocks held by the program")                      \
	X(active_bytes, "allocated_bytes plus freed bytes whose epoch is pending, "    \
			"or that another process has open")                            \
	X(reserved_bytes, "bytes taken from the driver")                               \
	X(private_bytes, "of reserved_bytes, those in private heaps of graphs")        \
	X(lane_bytes, "of private_bytes, those that graphs share")                     \
	X(lane, "lanes: each holds memory that graphs share")                          \
	X(async_bytes, "of requested_bytes, those of stream-ordered allocations")

#define GCP_COUNTERS(X)                                                                \
	X(hits, "allocations served without the driver")                               \
	X(misses, "allocations that needed new memory from the driver")                \
	X(alloc_retries, "driver allocations that failed and were tried again")        \
	X(ooms, "allocations that failed for want of memory")                          \
	X(epochs, "epochs closed")                                                     \
	X(fences, "fences recorded")                                                   \
	X(barriers, "barriers set: reuse ordered on the device, host not blocked")     \
	X(waits, "times the host waited for an epoch")                                 \
	X(remaps, "allocations served by mapping unused memory to other addresses")    \
	X(graph_remaps, "times that what a graph shares was mapped to other memory")   \
	X(graph_moves,                                                                 \
	  "launches that gave a graph another lane, or memory of its own")             \
	X(graph_waits, "launches of a graph that wait, on the device, for others")     \
	X(graph_launches, "launches of graphs that may share memory, each looked at")  \
	X(trims, "segments given back to the driver")                                  \
	X(consolidations, "always 0")                                                  \
	X(deferred_frees, "always 0")                                                  \
	X(reuse_order_unknown,                                                         \
	  "frees in captures not reusable at once: order in the graph unknown")        \
	X(reuse_eager_work,                                                            \
	  "the same: work outside of the capture may use the memory")                  \
	X(reuse_unknown_calls, "always 0")

/* Calls of the library into the driver, with the time spent in them. */
#define GCP_DRIVER_CALLS(X)                                                            \
	X(mem_alloc)                                                                   \
	X(mem_free)                                                                    \
	X(mem_trim)                                                                    \
	X(vm_reserve)                                                                  \
	X(vm_create)                                                                   \
	X(vm_release)                                                                  \
	X(vm_map)                                                                      \
	X(vm_open)                                                                     \
	X(vm_unmap)                                                                    \
	X(fence_create)                                                                \
	X(fence_record)                                                                \
	X(fence_order)                                                                 \
	X(fence_query)                                                                 \
	X(fence_wait)                                                                  \
	X(ctx_sync)

struct gcp_call_cost {
	uint64_t count, ns;
};

struct gcp_stats {
#define GCP_X(name, meaning) struct gcp_gauge name;
	GCP_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) uint64_t name;
	GCP_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name) struct gcp_call_cost name;
	GCP_DRIVER_CALLS(GCP_X)
#undef GCP_X
	uint64_t largest_free_bytes;     /* largest block that could be given at once */
	uint64_t reserved_at_peak_bytes; /* reserved when allocated_bytes peaked */
	uint64_t mapped_bytes;           /* of reserved_bytes, now: mapped */
};

/* Sum over the pools of `device`, exact while no thread allocates or frees. Peaks of
 * what threads count for themselves are exact with one thread, and may be off by at
 * most 8 MiB for each thread with several. -ENOENT: no pool there. */
int gcp_pools_stats(struct gcp_pools *pools, int device, struct gcp_stats *ret_stats);
/* async_alone: of async_bytes. */
void gcp_pools_reset_peaks(struct gcp_pools *pools, int device, bool async_alone);

/* A block as gcp_pools_blocks shows it. */
struct gcp_block_view {
	gcp_addr addr;
	uint64_t size;      /* bytes occupied */
	uint64_t requested; /* bytes asked for by its latest holder */
	bool used;          /* the program holds it; else it is free, ready or not */
	bool content;       /* it is the program's, or graphs may read it */
	void *ctx;          /* whose it is; NULL: the library has not mapped it */
};

/* Shows all blocks of `device`: in each pool those of one moment. `show` is called
 * with locks held and calls nothing of the room. */
void gcp_pools_blocks(struct gcp_pools *pools, int device,
		      void (*show)(void *arg, const struct gcp_block_view *block),
		      void *arg);

/* Highest device number with a pool, or -1. */
int gcp_pools_device_max(struct gcp_pools *pools);

/* --- pinned host memory ------------------------------------------------------ */

/* Pools of pinned memory, pinned.c. A block belongs to the context that it was
 * allocated in, and goes with it. The CPU may write into a block at once, so a freed
 * block is given out again only when all work that its context had when it was freed is
 * completed.
 *
 * These functions give -ENOSYS where pinned memory is not pooled: the driver has
 * no context fences, or the configuration says so. The caller then uses the real
 * function. */

struct gcp_pinned_set; /* blocks that graphs can address; see below */

/* Gives at least `bytes` (> 0) of pinned memory of class `flags` (those of
 * cuMemHostAlloc). It is kept by `set` from then on, unless that is NULL.
 * 0; GCP_CUDA_OUT_OF_MEMORY (also: over the quota), after everything unused that helps
 * was given back; -ENOMEM; -ENOSYS; a sticky device error. */
int gcp_pinned_alloc(struct gcp_pool *pool, uint64_t bytes, uint32_t flags,
		     struct gcp_pinned_set *set, void **ret_p);

/* Takes a block back. Beyond the window it waits until the oldest work that may
 * still use freed blocks is done, never for more than plain CUDA would.
 * 0; -ENOENT: not the start of a block of ours; -EINVAL: ours, but free already;
 * > 0: freed, and a fence reported this sticky device error. */
int gcp_pinned_free(struct gcp_pools *pools, void *p);

/* What the program asked for, if `p` is the start of a block that it holds. -ENOENT:
 * not the start of a block of ours; -EINVAL: of one that it does not hold (any more).
 */
int gcp_pinned_find(struct gcp_pools *pools, const void *p, uint64_t *ret_requested);
/* Whether there may be blocks that the program does not hold. */
bool gcp_pinned_has_unused(struct gcp_pools *pools);

/* Blocks given out with a pinned set are not given out again while it lives, freed or
 * not: a graph reads and writes them whenever it is launched, and host code fills
 * them then, which no capture sees. -ENOMEM. */
int gcp_pinned_set_create(struct gcp_pools *pools, struct gcp_pinned_set **ret_keep);
/* Returns true if fences of these contexts do not cover all that uses its blocks in
 * them: some are of another one. */
bool gcp_pinned_set_is_away(struct gcp_pinned_set *set, const void *ctx,
			    const void *home);
/* Nothing can be launched any more that addresses its blocks, and what was launched in
 * contexts other than theirs is done: those that are free
 * wait for a fence, those that the program holds follow when freed. `set` is gone
 * afterwards. Accepts NULL. May leave more unused than the cache limit. */
void gcp_pinned_set_release(struct gcp_pinned_set *set);
/* Gives back what is unused beyond the cache limit, of contexts that are idle; what
 * others have stays until the next free there. The driver frees: no lock is held. */
void gcp_pinned_keep_limit(struct gcp_pools *pools);

/* Gives unused pinned memory back to the driver until at most `keep_bytes` of it
 * stay. May wait for the device; idle: gives back in contexts that are idle alone,
 * after waiting at most for what frees would have waited for on plain CUDA. Returns the
 * bytes given back. */
uint64_t gcp_pinned_trim(struct gcp_pools *pools, uint64_t keep_bytes, bool idle);

/* Pinned memory that other threads have taken off the lists is the driver's after
 * this, unless its free waits for long. */
void gcp_pinned_givers_wait(struct gcp_pools *pools);

/* Looks which epochs of freed pinned memory are completed, closing open ones if nothing
 * forbids it; calls `within`, unless that is NULL, as gcp_pools_decay does. Never
 * waits. True: some are not yet. */
bool gcp_pinned_poll(struct gcp_pools *pools,
		     void (*within)(void *ctx, void (*step)(void *arg), void *arg));

#define GCP_PINNED_GAUGES(X)                                                           \
	X(allocations, "pinned blocks taken from the driver")                          \
	X(allocated_bytes, "bytes in them")                                            \
	X(active_requests, "of these blocks, those held by the program")               \
	X(active_bytes, "bytes in blocks held by the program")                         \
	X(requested_bytes, "bytes the program asked for and holds")                    \
	X(private_bytes, "of allocated_bytes, those kept for graphs")

#define GCP_PINNED_COUNTERS(X)                                                         \
	X(hits, "allocations served without the driver")                               \
	X(misses, "allocations that needed new memory from the driver")                \
	X(alloc_retries, "driver allocations that failed and were tried again")        \
	X(ooms, "allocations that failed for want of memory")                          \
	X(epochs, "epochs of frees closed, those of device memory included")           \
	X(waits, "times the host waited for the device")                               \
	X(trims, "blocks given back to the driver")                                    \
	X(deferred_frees, "frees that waited for the end of a capture")

/* Calls of the library into the driver. */
#define GCP_PINNED_CALLS(X) X(host_alloc) X(host_free)

struct gcp_pinned_time {
	uint64_t count, total_ns, max_ns, min_ns;
};

struct gcp_pinned_stats {
#define GCP_X(name, meaning) struct gcp_gauge name;
	GCP_PINNED_GAUGES(GCP_X)
#undef GCP_X
#define GCP_X(name, meaning) uint64_t name;
	GCP_PINNED_COUNTERS(GCP_X)
#undef GCP_X
#define GCP_X(name) struct gcp_pinned_time name;
	GCP_PINNED_CALLS(GCP_X)
#undef GCP_X
};

/* Exact, peaks too. -ENOSYS. */
int gcp_pinned_stats(struct gcp_pools *pools, struct gcp_pinned_stats *ret_stats);
/* Peaks become what is current; totals, counters and times become zero. */
void gcp_pinned_reset_peaks(struct gcp_pools *pools);

/* Sleeps for 50 us or a little more. Leaves errno alone. */
void gcp_backoff(void);

#endif
