/* SPDX-License-Identifier: MIT */
/*
 * observe.h - how calls of the program are observed: recorded (trace.h), shown while
 * the process runs (live.h), told to tools (nvtx.h), looked at for mistakes (debug.h).
 *
 * Nothing of it is on the way of a hit when nothing observes. The three places at which
 * a hit looks for something rare all find something then, and come here:
 *
 *   the entry (exports.c)      gcp_process.special, which else says only "passive"
 *   an allocation              gcp_process.pending_events, which else is the tracker's
 *   a free                     gcp_thread.free_direct, which is never set then
 *
 * and the short cut of hooks_runtime.c is never taken, for runtime_confirmed is never
 * set.
 */
#ifndef GCP_INTERPOSE_OBSERVE_H
#define GCP_INTERPOSE_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "../../pool/pool.h"
#include "../base/options.h"
#include "../cuda/symbols.h"
#include "report.h"
#include "trace_stacks.h"

/* What observes: bits, set once before the first allocation. */
enum {
	GCP_OBSERVE_TRACE = 1,
	GCP_OBSERVE_LIVE = 2,
	GCP_OBSERVE_NVTX = 4,
	GCP_OBSERVE_DEBUG = 8,
};
extern uint32_t gcp_observers;

/* In the place of the tracker's number: never 0. */
const _Atomic uint32_t *gcp_observe_pending_events(void);

/* Starts what the options ask for. Called once, before the pools are made. */
void gcp_observe_start(const struct gcp_options *options);
/* Once, after it, with no lock held: what has to be loaded. */
void gcp_observe_load(void);
/* What pool/ is to see of the driver. */
void gcp_observe_driver(struct gcp_driver *driver);
/* A device, or a context of one, is used; maybe not for the first time. */
void gcp_observe_device(int device, const struct gcp_gpu *gpu);
void gcp_observe_context(const void *ctx, int device);
void gcp_observe_context_gone(CUcontext ctx);

/* The process ends; in a forked child. */
void gcp_observe_end(void);
/* The same where no lock may be taken. */
void gcp_observe_leave_off(void);
void gcp_observe_after_fork(void);

/* The program has called an entry: `address` is where it goes on. */
void gcp_observe_enter(uintptr_t address, uintptr_t frame);

/* What the frame pointer was there, as soon as that is known. */
void gcp_observe_enter_frame(uintptr_t frame);

/* The same for an entry of the runtime, inside of which that of the driver is called.
 */
void gcp_observe_enter_runtime(uintptr_t address, uintptr_t frame);
void gcp_observe_leave_runtime(void);

/* What is in the register of the frame pointer. Where the compiler can be told that it
 * is read here (GCP_FRAME_FREE), what lives on is kept in other registers, and it is
 * what the program left there; where frame pointers are kept, it is the entry's own
 * frame. Anything else may be in it all the same, which walk_frames checks. */
static inline __attribute__((always_inline)) uintptr_t gcp_frame_register(void)
{
#if defined(__x86_64__) && defined(GCP_FRAME_FREE) && defined(__OPTIMIZE__)
	register uintptr_t frame __asm__("rbp");

	__asm__ volatile("" : "=r"(frame));
#elif defined(__x86_64__)
	uintptr_t frame;

	__asm__ volatile("mov %%rbp, %0" : "=r"(frame));
#elif defined(__aarch64__)
	uintptr_t frame;

	__asm__ volatile("mov %0, x29" : "=r"(frame));
#else
	uintptr_t frame = 0;
#endif
	return frame;
}

/* The same way as without observers, and then it is written down. */
int gcp_observe_alloc(struct gcp_pool *pool, uint64_t bytes, gcp_addr *ret_addr);
int gcp_observe_free(gcp_addr addr);
int gcp_observe_free_async(gcp_addr addr, uint64_t order, void *stream);
int gcp_observe_alloc_async(struct gcp_pool *pool, uint64_t bytes, void *stream,
			    uint64_t order, gcp_addr *ret_addr);

/* Memory that is not ours, and pinned memory. */
void gcp_observe_pass_alloc(gcp_addr addr, uint64_t bytes, uint64_t start_ns);
void gcp_observe_pass_free(gcp_addr addr, uint64_t start_ns);
void gcp_observe_free_unknown(gcp_addr addr); /* and CUDA knows it neither */
void gcp_observe_free_again(gcp_addr addr);   /* in a stream: a block that is free */
void gcp_observe_host_alloc(const void *p, uint64_t bytes, uint32_t flags);
void gcp_observe_host_free(const void *p);
/* An allocation has failed for want of memory. */
void gcp_observe_shortage(uint64_t bytes, uint32_t why);
/* A capture has begun on `stream`, or ended. */
void gcp_observe_capture(bool begins, const void *stream, uint32_t more);

#endif
