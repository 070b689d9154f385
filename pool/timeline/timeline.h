/* SPDX-License-Identifier: MIT */
/*
 * timeline.h - a sequence of epochs and its fences: fence.c. Part of pool_types.h.
 *
 * There are two kinds, which share all that stands here: of the device memory of one
 * context (context_fence.c), and of the pinned memory of the process (pinned_fence.c).
 *
 * Rules of stamps and epochs (E6 to E8: struct gcp_timeline):
 *  E1 a free stamps its block with the open epoch, read behind a full memory fence
 *  E2 an epoch's fence is recorded after the epoch is closed, and covers no later one
 *  E3 a block is given out only when its epoch is ready; pinned memory, when completed
 *  E4 a block carries the youngest epoch of all parts that it is made of
 *  E5 of several frees of one block one succeeds
 */
#ifndef GCP_POOL_TIMELINE_H
#define GCP_POOL_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../base/lock.h"

struct gcp_pools;
struct gcp_timeline;

enum {
	GCP_FENCE_QUEUE = 512, /* closed epochs that wait for their fence */
};

/* Epochs that are always ready. */
enum {
	GCP_EPOCH_FRESH = 0, /* the block was never used, or all its work is done */
	GCP_EPOCH_NOW = 1,   /* for captures only: their order is proof enough */
	GCP_EPOCH_FIRST = 2, /* the first epoch of a pool */
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

/* What tells epochs of device memory, whose fences cover one context, from those of
 * pinned memory, whose fences cover all. Each is called with fence_lock held, but
 * for wait. */
struct gcp_fence_scope {
	/* The driver's functions (driver_table.h), counted and timed. */
	int (*create)(struct gcp_timeline *timeline, void **ret_handle);
	int (*record)(struct gcp_timeline *timeline, void *handle);
	/* ctx: only the part in that context; NULL: all. */
	int (*query)(struct gcp_timeline *timeline, void *handle, void *ctx);
	int (*wait)(struct gcp_timeline *timeline, void *handle, void *ctx);
	/* Waits for all work that a fence would cover; NULL: never called. */
	int (*sync)(struct gcp_timeline *timeline);
	/* Fences do not work here: closes the epoch otherwise, or gives the error. */
	int (*failed)(struct gcp_timeline *timeline, int failure);
	/* An epoch is being closed. */
	void (*closing)(struct gcp_timeline *timeline);
	/* Whether the open epoch has taken so much that closing it is worth waiting for
	 * a thread that does so just now; NULL: never. Without fence_lock. */
	bool (*overfull)(const struct gcp_timeline *timeline);
	/* Whether a closed epoch keeps its fence where the queue is full: what waits
	 * for it, or stands behind a barrier for it, may not do so for the next one. */
	bool (*keeps)(const struct gcp_timeline *timeline, uint64_t epoch);
};

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
	/* Bytes freed since a free closed an epoch, as far as they were added up; and
	 * those of them that went into epochs which were closed early. Decide when the
	 * open epoch is closed, nothing else. */
	_Alignas(GCP_LINE) _Atomic int64_t filled;
	_Atomic int64_t early;   /* written under fence_lock, or with a new epoch */
	_Atomic uint32_t blocks; /* freed into the open epoch, of pinned memory only */
	_Atomic uint64_t pending_bytes; /* in the queue; written under fence_lock */
	_Atomic bool closing; /* a thread is in gcp_timeline_close_begin .. end */
	_Alignas(GCP_LINE) uint64_t ordered; /* epochs behind a barrier; fence_lock */
	uint64_t freed;     /* the latest that a free or a barrier closed; fence_lock */
	uint64_t awaitable; /* the latest that a free closed; fence_lock */
	struct gcp_closed_epoch queue[GCP_FENCE_QUEUE]; /* fence_lock */
	uint32_t head, count;                           /* of queue; fence_lock */
	uint32_t generation;     /* contexts that it has outlived; fence_lock */
	_Atomic uint64_t closed; /* epochs closed since the start; written likewise */
	struct gcp_fence *spare; /* fences to use again; fence_lock */
	_Atomic bool refused;    /* context_fence.c; written under fence_lock */
	bool multi_context;      /* no barrier for reuse: NO NEW WAITS; fence_lock */
	struct gcp_pools *pools; /* constant, as the next one */
	const struct gcp_fence_scope *scope;
};

/* --- fence.c --------------------------------------------------------------------- */

/* The functions that end in _locked, and those that take or give a closed epoch, are
 * called with fence_lock held. Results: 0; > 0, a sticky device error; -EBUSY: a
 * capture forbids it, or memory for a fence is out for now. */

void gcp_timeline_init(struct gcp_timeline *timeline, struct gcp_pools *pools,
		       const struct gcp_fence_scope *scope);

/* The open epoch. All work that the caller submitted, or that happened before the
 * call, is behind its fence. */
uint64_t gcp_timeline_now(const struct gcp_timeline *timeline);
/* Moves on to the next epoch without a fence; gives the epoch that was open. */
uint64_t gcp_timeline_next(struct gcp_timeline *timeline);
/* Bytes freed into the open epoch itself, as far as they were added up. */
int64_t gcp_timeline_filled(const struct gcp_timeline *timeline);

bool gcp_timeline_is_held(const struct gcp_timeline *timeline);
/* Whether the fence of `epoch` is done, as far as is known. */
bool gcp_timeline_is_completed(const struct gcp_timeline *timeline, uint64_t epoch);
/* The closed epoch that stands `i` places behind the oldest one. */
struct gcp_closed_epoch *gcp_timeline_at(struct gcp_timeline *timeline, uint32_t i);
/* The oldest closed epoch that covers `epoch`, or NULL: it is still open. */
struct gcp_closed_epoch *gcp_timeline_covering(struct gcp_timeline *timeline,
					       uint64_t epoch);

/* Closes the open epoch and records a fence behind it. With a queue that stays full (of
 * pinned memory of very many contexts) the epoch stays open, and the result is 0: a
 * later fence covers it too. A caller that needs it closed asks
 * (gcp_timeline_covering). */
int gcp_timeline_close_locked(struct gcp_timeline *timeline);
/* The same in a call that must not wait. -EBUSY also: fences do not work here; but
 * -ENOBUFS: memory for a fence is out for now. */
int gcp_timeline_close_at_once(struct gcp_timeline *timeline);
/* Takes fence_lock for gcp_timeline_close_end. False, without the lock: a capture is
 * under way, or another thread closes the epoch. */
bool gcp_timeline_close_begin(struct gcp_timeline *timeline);
/* Closes the open epoch if nothing covers `epoch` yet; what an allocation has closed
 * meanwhile counts as closed by this free. Keeps fence_lock. -ENOBUFS as above. */
int gcp_timeline_close_end(struct gcp_timeline *timeline, uint64_t epoch);
/* Closes the open epoch by waiting for all work that the fence would cover. */
int gcp_timeline_close_waiting(struct gcp_timeline *timeline);

/* Asks for one fence; never waits. *ret_advanced: the epoch is completed. */
int gcp_timeline_query_locked(struct gcp_timeline *timeline,
			      struct gcp_closed_epoch closed, bool *ret_advanced);
/* Asks for the fence `depth` places behind the oldest one, or for the youngest; if it
 * is done all older ones are. Never waits. *ret_advanced: it is. */
int gcp_timeline_poll_locked(struct gcp_timeline *timeline, uint32_t depth,
			     bool *ret_advanced);
/* Looks, from old to young, which epochs are completed. Takes fence_lock. */
int gcp_timeline_advance_all(struct gcp_timeline *timeline);
/* Waits for the fence, or for its part in `ctx` alone, which completes no epoch.
 * fence_lock is not held meanwhile. */
int gcp_timeline_wait_locked(struct gcp_timeline *timeline,
			     struct gcp_closed_epoch closed, void *ctx);
/* Waits until `epoch` is completed, closing it first if it is open. */
int gcp_timeline_complete_locked(struct gcp_timeline *timeline, uint64_t epoch);
/* All work of the epochs up to `epoch` is done. */
void gcp_timeline_mark_completed(struct gcp_timeline *timeline, uint64_t epoch);
/* A barrier stands behind the fence of `epoch`. */
void gcp_timeline_mark_ordered(struct gcp_timeline *timeline, uint64_t epoch);

/* The fences are gone, and the work with them: all epochs are completed. */
void gcp_timeline_clear(struct gcp_timeline *timeline);

#endif
