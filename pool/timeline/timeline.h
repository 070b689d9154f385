/* SPDX-License-Identifier: MIT */
/*
 * timeline.h - epochs and fences, the window, how full the device is. The structures
 * are in pool_types.h.
 *
 * Each pool has a timeline: of the device memory of its context, and of the pinned
 * memory that was allocated in it.
 *
 * Rules of stamps and epochs (E6 to E8: struct gcp_timeline):
 *  E1 a free stamps its block with the open epoch, read behind a full memory fence
 *  E2 an epoch's fence is recorded after the epoch is closed, and covers no later one
 *  E3 a block is given out only when its epoch is ready; pinned memory, when all work
 *     of its context up to that epoch is done
 *  E4 a block carries the youngest epoch of all parts that it is made of
 *  E5 of several frees of one block one succeeds
 */
#ifndef GCP_POOL_TIMELINE_H
#define GCP_POOL_TIMELINE_H

#include "../pool_types.h"

/* Of an atomic field; in no order with others. */
#define GCP_LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define GCP_STORE(field, value)                                                        \
	atomic_store_explicit(&(field), value, memory_order_relaxed)

/* --- fence.c --------------------------------------------------------------------- */

/* The functions that end in _locked, and those that take or give a closed epoch, are
 * called with fence_lock held. Results: 0; > 0, a sticky device error; -EBUSY: a
 * capture forbids it, or memory for a fence is out for now. */

void gcp_timeline_init(struct gcp_timeline *timeline, struct gcp_pool *pool);

/* The open epoch. All work that the caller submitted, or that happened before the
 * call, is behind its fence. */
uint64_t gcp_timeline_stamp(const struct gcp_pool *pool);
/* Moves on to the next epoch without a fence; gives the epoch that was open. What was
 * freed into that goes on counting. */
uint64_t gcp_timeline_next(struct gcp_timeline *timeline);
/* Bytes freed into the open epoch itself, as far as they were added up. */
int64_t gcp_timeline_filled(const struct gcp_timeline *timeline);

bool gcp_timeline_is_held(const struct gcp_timeline *timeline);
/* Whether the fence of `epoch` is done, as far as is known. */
bool gcp_timeline_is_completed(const struct gcp_timeline *timeline, uint64_t epoch);
/* Returns true if the work of the context itself up to `epoch` is known to be done. */
static inline bool gcp_timeline_is_own_completed(const struct gcp_timeline *timeline,
						 uint64_t epoch)
{
	return epoch <= atomic_load(&timeline->completed) ||
	       epoch <= atomic_load(&timeline->own);
}
/* The closed epoch that stands `i` places behind the oldest one. */
struct gcp_closed_epoch *gcp_timeline_at(struct gcp_timeline *timeline, uint32_t i);
/* The oldest closed epoch that covers `epoch`, or NULL: it is still open. */
struct gcp_closed_epoch *gcp_timeline_covering(struct gcp_timeline *timeline,
					       uint64_t epoch);

/* Closes the open epoch and records a fence behind it. With a queue that stays full the
 * epoch stays open, and the result is 0: a later fence covers it too. A caller that
 * needs it closed asks (gcp_timeline_covering). */
int gcp_timeline_close_locked(struct gcp_timeline *timeline);
/* The same in a call that is no free. What was freed into the epoch counts towards the
 * one that a free of device memory closes next: else, where each allocation closes one,
 * no free ever would, and no barrier be set. -EBUSY also: fences do not work here; but
 * -ENOBUFS: memory for a fence is out for now. */
int gcp_timeline_close_at_once(struct gcp_timeline *timeline);
/* Closes the open epoch if nothing covers `epoch` yet; what an allocation has closed
 * meanwhile counts as closed by this free. device: it is one of device memory; else
 * what was freed goes on counting. Keeps fence_lock. -ENOBUFS: fences do not work here,
 * or memory for one is out for now. */
int gcp_timeline_close_end(struct gcp_timeline *timeline, uint64_t epoch, bool device);

/* Asks for one fence; never waits. *ret_advanced: the epoch is completed. */
int gcp_timeline_query_locked(struct gcp_timeline *timeline,
			      struct gcp_closed_epoch closed, bool *ret_advanced);
/* Asks for the fence `depth` places behind the oldest one, or for the youngest; if it
 * is done all older ones are. Never waits. *ret_advanced: it is. */
int gcp_timeline_poll_locked(struct gcp_timeline *timeline, uint32_t depth,
			     bool *ret_advanced);
/* Looks, from old to young, which epochs are completed. Takes fence_lock. */
int gcp_timeline_poll_all(struct gcp_pool *pool);
/* Closes `epoch` as gcp_timeline_close_early does, if it is open. -EBUSY: no fence may
 * be set, for a capture is under way or fences do not work here. Where none can be had
 * for now it stays open, and the result is 0; but -ENOBUFS: memory for one is out, and
 * none is under way that would serve again. */
int gcp_timeline_close_to_look(struct gcp_pool *pool, uint64_t epoch);
/* Waits for the fence, or (own) for what the context does itself alone, as plain
 * cudaFree does: what other devices do may wait for this thread. Then looks whether all
 * of it is done; an error of that shows again. fence_lock is not held meanwhile. */
int gcp_timeline_wait_locked(struct gcp_timeline *timeline,
			     struct gcp_closed_epoch closed, bool own);
/* Returns the youngest closed epoch that has more than `most` bytes together with all
 * younger ones, and is not one of the youngest `least`; NULL if there is none. */
struct gcp_closed_epoch *gcp_timeline_beyond(struct gcp_timeline *timeline,
					     int64_t most, uint32_t least);
/* Waits until `epoch` is completed, closing it first if it is open; own: as above, and
 * -EAGAIN if some of another device's work is left. */
int gcp_timeline_complete_locked(struct gcp_timeline *timeline, uint64_t epoch,
				 bool own);
/* All work of the epochs up to `epoch` is done. */
void gcp_timeline_mark_completed(struct gcp_timeline *timeline, uint64_t epoch);
/* A barrier stands behind the fence of `epoch`. */
void gcp_timeline_mark_ordered(struct gcp_timeline *timeline, uint64_t epoch);

/* The fences are gone, and the work with them: all epochs are completed. Takes
 * fence_lock. */
void gcp_timeline_reset(struct gcp_timeline *timeline);

/* --- context_fence.c ------------------------------------------------------------ */

/* gcp_timeline_stamp for a caller that has just done an atomic read-modify-write,
 * seq_cst. */
static inline uint64_t gcp_timeline_stamp_behind_rmw(struct gcp_pool *pool)
{
#if defined(__x86_64__)
	/* A locked instruction is a full barrier for all that stands before and
	 * behind it (Intel SDM 3A, 9.2.3.9; AMD APM 2, 7.4.2). */
	atomic_signal_fence(memory_order_seq_cst);
	return atomic_load_explicit(&pool->timeline.open, memory_order_seq_cst);
#else
	return gcp_timeline_stamp(pool);
#endif
}

/* Whether a block freed into `epoch` may be handed out. */
static inline bool gcp_epoch_ready(const struct gcp_pool *pool, uint64_t epoch)
{
#ifdef GCP_WITHOUT_FENCES /* for the test that the tests notice */
	(void)pool, (void)epoch;
	return true;
#else
	return epoch <=
	       atomic_load_explicit(&pool->timeline.ready, memory_order_acquire);
#endif
}

/* Each takes fence_lock inside; no lock of the room may be held. Each gives 0
 * or, > 0, a sticky device error, or what is said here. */

/* Closes the open epoch, unless a capture forbids it, another thread closes one just
 * now, or it is not `epoch` any more. Only inside a free. -ENOBUFS as above. */
int gcp_timeline_close(struct gcp_pool *pool, uint64_t epoch);
/* Closes the open epoch inside an allocation, only to see whether it is done by
 * now: no barrier is set on it before a free has closed a later one. full: only if so
 * much was freed into it that a free would close it. */
int gcp_timeline_close_early(struct gcp_pool *pool, bool full);
/* Looks whether all work of the context is done; never waits, but for a moment. False
 * also where a capture forbids fences. */
bool gcp_timeline_is_idle(struct gcp_pool *pool);
/* Makes a closed epoch ready: by a barrier (the host does not wait) or, where
 * only completion counts, by waiting. -EBUSY: it is open, or a capture forbids
 * the barrier. */
int gcp_timeline_make_ready(struct gcp_pool *pool, uint64_t epoch);
/* Waits for the oldest epoch that is not completed, if a free has closed it or a later
 * one, and it was closed before the search began, which it does here: plain CUDA has
 * waited for its work then. Else other threads' frees might be waited for without end.
 * Returns true if there was one, and it is completed. own: not 0: waits for the one
 * that covers this epoch, and for the work of its context alone (timeline->own). */
bool gcp_timeline_wait_oldest(struct gcp_pool *pool, struct gcp_search *search,
			      uint64_t own);
/* Waits until the epoch is done, closing it first if it is open; own: for the work that
 * the pool's context does itself, as plain cudaFree waits. -EBUSY: it is open, and a
 * capture forbids closing it; own: -EAGAIN: some of another device's is left. */
int gcp_timeline_complete(struct gcp_pool *pool, uint64_t epoch, bool own);
/* Holds all later work back behind that of `epoch`, closing it if it is open; where
 * only completion counts, waits. alone: not if contexts are several, -EXDEV. Or -EBUSY.
 */
int gcp_timeline_barrier(struct gcp_pool *pool, uint64_t epoch, bool alone);
/* Around a call in which the driver frees memory of the context, and waits for all that
 * was submitted before: the epochs that were open then, and older ones, are completed.
 * That submitted to other devices is waited for, too (own: as driver->foreign_wait).
 * end: 0; the result of that wait. */
struct gcp_real_free {
	uint64_t epoch, foreign;
	int64_t filled; /* bytes, which count no more */
};
struct gcp_real_free gcp_real_free_begin(struct gcp_pool *pool);
int gcp_real_free_end(struct gcp_pool *pool, const struct gcp_real_free *begun,
		      bool own);
/* Ends `detaching` for a pool whose context stays; an error, and it goes on. */
int gcp_timeline_reattach(struct gcp_pool *pool);
/* Whether a barrier is set that is, as far as is known, not completed. */
bool gcp_timeline_is_any_ordered(struct gcp_pool *pool);
/* Puts `ctx` behind the pool's barriers: order(ctx, fence). Where it cannot be made to
 * wait, or a capture forbids that, the host waits. */
int gcp_timeline_join(struct gcp_pool *pool, void *ctx,
		      int (*order)(void *ctx, void *fence));

/* A limit of the pool as it is now (struct gcp_limits). */
#define GCP_LIMIT(pool, name) GCP_LOAD((pool)->limits.name)

/* --- window.c: any lock may be held ----------------------------------------------- */

/* The calling thread's share of a limit in bytes. */
uint64_t gcp_limit_share(const struct gcp_pool *pool, uint64_t bytes);
/* How many blocks of `size` that of the window has room for: one at least. */
uint32_t gcp_window_blocks(const struct gcp_pool *pool, uint64_t size);
/* Returns true if so few threads allocate that they hardly meet at locks. */
bool gcp_window_has_few_threads(const struct gcp_pool *pool);

/* How much of `bytes` is missing till the open epoch is full. */
int64_t gcp_timeline_room(struct gcp_pool *pool, int64_t bytes);
/* Adds up what was freed into the open epoch. True: it should be closed. */
bool gcp_timeline_fill(struct gcp_pool *pool, int64_t bytes, int64_t block);
/* An epoch was closed just now. fence_lock is held. */
void gcp_window_epoch_closed(struct gcp_pool *pool);
/* All that a thread keeps of a class waits for the device. */
void gcp_window_starved(struct gcp_pool *pool);
/* A context has begun or ended: the limits of all pools are computed anew. */
void gcp_windows_update(struct gcp_pools *pools);
/* Returns true if a turn of decay (maintain.c) is over. The clock may have been read
 * before another thread began the turn. */
bool gcp_turn_is_over(const struct gcp_pools *pools,
		      const struct gcp_maintenance *maintenance, uint64_t now);

/* --- tight.c ---------------------------------------------------------------------- */

/* Whether its new segments are the driver's, or have been: for want of what mapping
 * needs, or because something else than CUDA is to reach them. */
static inline bool gcp_pool_is_ordinary(const struct gcp_pool *pool)
{
	return !pool->vmm || GCP_LOAD(pool->vmm_mixed);
}

/* Each free closes its epoch (fence.c, NO NEW WAITS). */
static inline bool gcp_pool_is_tight(const struct gcp_pool *pool)
{
	return GCP_LOAD(pool->tightness.tight);
}
/* No idle segment of the driver is cut, and new ones are as large as their block unless
 * they are shared: what is left over would be missing on a full device. */
bool gcp_pool_is_exact(const struct gcp_pool *pool);
/* Whether the pool, with `bytes` more, has an eighth of the memory. */
bool gcp_pool_has_much(const struct gcp_pool *pool, uint64_t bytes);
/* The pool has taken `bytes` from the driver; a free has closed its epoch because
 * memory is tight; an allocation found none. No lock of the room is held. */
void gcp_tight_grown(struct gcp_pool *pool, uint64_t bytes);
void gcp_tight_freed(struct gcp_pool *pool);
void gcp_tight_out(struct gcp_pool *pool);
/* Bytes that the driver has left for the pool, quota considered; UINT64_MAX: not known.
 * No lock is held. */
uint64_t gcp_pool_left(struct gcp_pool *pool);

/* --- pin.c ------------------------------------------------------------------------ */

/* As gcp_pool_pin when memory is out: a pool whose context may stay is waited for. Not
 * for ever: it may be waiting for what the caller does next. No lock held, and no
 * other pin held. */
bool gcp_pool_pin_wait(struct gcp_pool *pool);

/* --- quota.c ---------------------------------------------------------------------- */

/* Whether the device's quota leaves room for `bytes` more. What it says is the calling
 * thread's gcp_pools_refusal. */
bool gcp_quota_allows(const struct gcp_pool *pool, uint64_t bytes);
/* Bytes that the device's quota leaves; below 0: so many are taken beyond it;
 * INT64_MAX: it has none. */
int64_t gcp_quota_left(const struct gcp_pool *pool);
/* A limit, of a device of so many bytes (UINT64_MAX: it is not known). */
uint64_t gcp_limit_bytes(uint64_t limit, uint64_t memory);

#endif
