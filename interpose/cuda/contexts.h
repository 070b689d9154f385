/* SPDX-License-Identifier: MIT */
/*
 * contexts.h - the contexts of this process: which must stand behind a barrier,
 * and in whose pool an allocation belongs.
 *
 * Contexts are learnt from the hooks that create them or make them current, and
 * primary contexts also by asking for them at each barrier. A context that is
 * known only from being current, and is not its device's primary one, is in
 * doubt: it stands behind barriers, but its allocations pass through.
 */
#ifndef GCP_INTERPOSE_CONTEXTS_H
#define GCP_INTERPOSE_CONTEXTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "symbols.h"

enum gcp_context_kind {
	GCP_CONTEXT_UNKNOWN, /* seen current: in doubt */
	GCP_CONTEXT_OWN,     /* cuCtxCreate */
	GCP_CONTEXT_PRIMARY, /* cuDevicePrimaryCtxRetain */
	GCP_CONTEXT_GREEN,   /* cuCtxFromGreenCtx: its memory is the primary's */
};

/* Functions for the begin and the end of a context. Called without locks, by the thread
 * that makes or ends it. */
struct gcp_context_observer {
	void (*joined)(CUcontext ctx); /* it is known from now on */
	void (*ending)(CUcontext ctx); /* waits until its users are done */
	/* So is its memory, and what was in it. NULL: of one that was not known. */
	void (*gone)(CUcontext ctx);
	void (*stays)(CUcontext ctx); /* it was ending */
};

/* Called once, before any other function. */
void gcp_contexts_observe(const struct gcp_context_observer *one);

/* Changes whenever what is known of any context changes. */
extern _Atomic(uint64_t) gcp_contexts_generation __attribute__((visibility("hidden")));
static inline uint64_t gcp_contexts_now(void)
{
	return atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
}

/* `ctx` exists (NULL: nothing happens). Very cheap for one that is known. A
 * new one is put behind all barriers before the call returns. */
void gcp_contexts_seen(CUcontext ctx, enum gcp_context_kind kind);

/* The context in whose pool allocations under the current context `ctx`
 * belong. False: in none, they pass through. So do those of a context whose work has
 * failed, for the driver to give the error. */
bool gcp_contexts_home(CUcontext ctx, CUcontext *ret_home, int *ret_device);
/* That context alone, or NULL. */
CUcontext gcp_contexts_home_of(CUcontext ctx);

/* Takes note of an error of a call. */
void gcp_contexts_note_error(CUresult result) __attribute__((cold));

/* Takes note of what a call of the driver returned, and returns it. */
static inline __attribute__((always_inline)) CUresult gcp_contexts_note(CUresult result)
{
	if (__builtin_expect(result != CUDA_SUCCESS, 0))
		gcp_contexts_note_error(result);
	return result;
}

/* How many there are; written under the lock of contexts.c. */
extern _Atomic int gcp_context_count __attribute__((visibility("hidden")));

/* Whether there is more than one. A relaxed load. */
static inline bool gcp_contexts_are_several(void)
{
	return atomic_load_explicit(&gcp_context_count, memory_order_relaxed) > 1;
}

/* Calls each(arg, ctx) for each live context but green ones, which their primary
 * covers, until one gives an error. alone: only if no more than one is live; else
 * -EXDEV. No context is destroyed meanwhile: the lock of contexts.c is held. -EBUSY:
 * one may be ending just now, and `each` was not called. */
int gcp_contexts_for_each(int (*each)(void *arg, CUcontext ctx), void *arg, bool alone);

/* The primary context of the device, or NULL if none is known. */
CUcontext gcp_contexts_primary(CUdevice device);

/* Calls the real function; the context is known when it returns. */
CUresult gcp_contexts_retain_primary(CUcontext *ret_ctx, CUdevice device);

/* Calls the real function, and detaches the context if that destroyed it. */
CUresult gcp_contexts_destroy(CUresult (*real)(CUcontext), CUcontext ctx);
/* references: how many of the program's the call takes from the context, at most.
 * green: that is destroyed rather. */
CUresult gcp_contexts_end_primary(CUresult (*real)(CUdevice),
				  struct CUgreenCtx_st *green, CUdevice device,
				  uint32_t references);
CUresult gcp_contexts_destroy_green(struct CUgreenCtx_st *green, CUcontext ctx,
				    CUdevice device);

/* The guard: a context is alive, may be ending while a real call of this library's is
 * under way that may destroy it, or is gone. Under the lock no such call begins, and
 * what is held under it never waits. */
extern struct gcp_mutex gcp_contexts_lock;
void gcp_contexts_unlock(void);
/* A stream of the library in `ctx`, which is current: memory that no work uses is freed
 * in it without a wait for other work, but for barriers. NULL: there is none. */
CUstream gcp_contexts_release_stream(CUcontext ctx);
/* An event without a time: one that was put back, or a new one. It goes with the
 * context, and is put back under the lock. */
CUresult gcp_context_event_take(CUcontext ctx, CUevent *ret_event);
CUevent gcp_context_event_spare(CUcontext ctx); /* under it, too; NULL: there is none */
void gcp_context_event_put(CUcontext ctx, CUevent event);
/* Under the lock. One that is not known is, whenever any may be. */
bool gcp_context_is_ending(CUcontext ctx);
/* True: the lock is taken, and no context may be ending. */
bool gcp_contexts_hold(void);

/* In the child of a fork. */
void gcp_contexts_after_fork(void);

#endif
