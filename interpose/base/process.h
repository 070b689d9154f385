/* SPDX-License-Identifier: MIT */
/*
 * process.h - the one struct of this process: what the library is doing, with
 * which options, on which pools.
 *
 * Written once by process_life.c under its lock, before `run_mode` says so; read by
 * every hook without a lock.
 */
#ifndef GCP_INTERPOSE_PROCESS_H
#define GCP_INTERPOSE_PROCESS_H

#include <cuda.h>

#include "../../capture/capture.h"
#include "options.h"

enum gcp_run_mode {
	GCP_RUN_FRESH,   /* no allocation yet: nothing is set up */
	GCP_RUN_POOL,    /* allocations are served from the pools */
	GCP_RUN_PASSIVE, /* everything passes through: off, not preloaded, a forked
			    child */
};

struct gcp_process {
	_Atomic(enum gcp_run_mode) run_mode;
	/* Hooks pass everything through, calls are observed (observer.h), or they pass
	 * a gate (gate.h). */
	bool special;
	/* Valid once run_mode left GCP_RUN_FRESH: */
	struct gcp_options options;
	struct gcp_pools *pools;     /* NULL unless _POOL was reached */
	struct gcp_tracker *tracker; /* the same */
	/* Captures, of the tracker: gcp_process_alloc_asks; or observe.c's, never 0. */
	const _Atomic uint32_t *alloc_asks;
	/* NULL: there are none; nothing observes what the program does. Else set before
	 * the first allocation: observer.h. */
	const struct gcp_observer *instruments, *observer;
	/* help.c: how often other processes were asked; bytes that they gave, and that
	 * this one gave others. */
	struct {
		_Atomic uint64_t asked, got, given;
	} help;
	/* spill.c: of each device; memory of the host in bytes, as a gauge of pool.h,
	 * and how many blocks have got some. */
	_Atomic uint64_t spilled[64][5];
	struct gcp_mutex runtime_lock; /* of hooks_runtime.c; new in a forked child */
};

/* What every submission of work asks first. Pointing to constants until the pools are
 * made, and in the child of a fork. */
struct gcp_watch {
	/* Not 0: the call needs its hook. The captures under way; until the real
	 * functions are known 1. */
	const _Atomic uint32_t *_Atomic submissions;
	const _Atomic uint64_t *_Atomic streams; /* gcp_pools_streams_seen */
	const _Atomic uint32_t *_Atomic shares;  /* gcp_tracker_shares */
};

extern struct gcp_watch gcp_watch __attribute__((visibility("hidden")));

/* The real functions are known; nothing else is yet. */
void gcp_watch_resolved(void);
/* In the child of a fork: everything passes through. */
void gcp_watch_nothing(void);

extern struct gcp_process gcp_process __attribute__((visibility("hidden")));

/* Starts a thread that takes no signals. pthread_create is in libpthread before glibc
 * 2.34, and therefore looked up. */
bool gcp_thread_create(pthread_t *ret_thread, void *(*run)(void *), void *arg);

static inline void gcp_spilled_get(int device, uint64_t ret_spilled[5])
{
	for (int i = 0; i < 5; i++)
		ret_spilled[i] = atomic_load(&gcp_process.spilled[device & 63][i]);
}

static inline enum gcp_run_mode gcp_process_run_mode(void)
{
	return atomic_load_explicit(&gcp_process.run_mode, memory_order_acquire);
}

/* Whether hooks have nothing to do. */
static inline bool gcp_process_passive(void)
{
	return gcp_process_run_mode() == GCP_RUN_PASSIVE;
}

static inline bool gcp_process_pooling(void)
{
	return gcp_process_run_mode() == GCP_RUN_POOL;
}

/* For each allocation: captures are under way, or calls observed. While pooling. */
static inline bool gcp_process_alloc_asks(void)
{
	return atomic_load_explicit(gcp_process.alloc_asks, memory_order_relaxed) > 0;
}

/* Whether a stream capture is under way or about to begin. */
static inline bool gcp_process_capturing(void)
{
	return gcp_process_pooling() && gcp_tracker_capturing(gcp_process.tracker);
}

/* Whether a submission of work is to be seen: for calls that have not asked whether
 * the real functions are known. */
static inline __attribute__((always_inline)) bool gcp_process_watches(void)
{
	const _Atomic uint32_t *submissions =
	    atomic_load_explicit(&gcp_watch.submissions, memory_order_acquire);

	return atomic_load_explicit(submissions, memory_order_relaxed) > 0;
}

/* Whether a launch of a graph may be of one that shares memory. */
static inline bool gcp_process_shares_graphs(void)
{
	const _Atomic uint32_t *shares =
	    atomic_load_explicit(&gcp_watch.shares, memory_order_acquire);

	return atomic_load_explicit(shares, memory_order_relaxed) > 0;
}

struct gcp_thread {
	/* The last context that was current, and what belongs to it. Valid
	 * while `generation` is that of contexts.h. */
	CUcontext ctx;
	struct gcp_pool *pool; /* NULL: allocations in ctx pass through */
	uint64_t generation;
	int device;
	/* Not 0: the short cut was refused memory with this result, which is that of
	 * the first try of the driver's hook. */
	int runtime_refused;

	bool exit_registered; /* thread exit will be noticed */
	bool free_direct;     /* and nothing observes: a free is the pool's alone */

	/* hooks_runtime.c: a real function of cudart that allocates, or frees in a
	 * stream, is on the stack. A call came back from one through the driver's hook,
	 * which is sure since then, as long as gcp_contexts_generation is the one noted
	 * (0: it is not), that the thread's current context is the one that the runtime
	 * would use. */
	bool runtime_inside;
	uint64_t runtime_confirmed;

	uint64_t given;  /* see gcp_given_by_others */
	uint32_t inside; /* calls that the gate counts: gate.h */

	/* Of work given while captures were under way. */
	struct gcp_stream_hint stream;
};

extern __thread struct gcp_thread gcp_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The refusal of the short cut that this call comes from; 0: none. */
static inline int gcp_thread_take_refusal(void)
{
	int refused = gcp_thread.runtime_refused;

	gcp_thread.runtime_refused = 0;
	return refused;
}

/* This thread has given memory back to the driver, of a device or pinned. */
void gcp_given(void);
/* How often other threads have. */
uint64_t gcp_given_by_others(void);

#endif
