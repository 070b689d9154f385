/* SPDX-License-Identifier: MIT */
/*
 * thread.h - what each thread remembers, so that a hit costs no more than
 * asking CUDA for the current context.
 */
#ifndef GCP_INTERPOSE_THREAD_H
#define GCP_INTERPOSE_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../capture/capture.h"
#include "symbols.h"

struct gcp_pool;

struct gcp_thread {
	/* The last context that was current, and what belongs to it. Valid
	 * while `generation` is that of contexts.h. */
	CUcontext ctx;
	struct gcp_pool *pool; /* NULL: allocations in ctx pass through */
	int device;
	uint64_t generation;

	bool exit_registered; /* thread exit will be noticed */
	bool free_direct;     /* and nothing observes: a free is the pool's alone */

	/* hooks_runtime.c: the real cudaMalloc is on the stack, and an allocation
	 * came back from it through the driver's hook, which is sure since then, as
	 * long as `generation` is the one noted (0: it is not), that the thread's
	 * current context is the one that the runtime would use. */
	bool runtime_inside;
	uint64_t runtime_confirmed;
	uint64_t runtime_observed; /* what it would be, if nothing observed */

	/* Of work given while captures were under way. */
	struct gcp_stream_hint stream;
};

extern __thread struct gcp_thread gcp_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

#endif
