/*
 * thread.h - what each thread remembers, so that a hit costs no more than
 * asking CUDA for the current context.
 */
#ifndef GCP_INTERPOSE_THREAD_H
#define GCP_INTERPOSE_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

	/* runtime.c: the real cudaMalloc is on the stack, and an allocation
	 * came back from it through the driver's hook, which is sure since then, as
	 * long as `generation` is the one noted (0: it is not), that the thread's
	 * current context is the one that the runtime would use. */
	bool runtime_inside;
	uint64_t runtime_sure;

	/* The stream that the thread gave work to while captures were under way,
	 * and the count of destroyed streams then: a later one may be it. */
	CUstream stream;
	uint64_t stream_count;
};

extern __thread struct gcp_thread gcp_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* How many streams were destroyed in this process. */
extern _Atomic(uint64_t) gcp_thread_streams_gone;

static inline CUstream gcp_thread_stream(void)
{
	return gcp_thread.stream_count == gcp_thread_streams_gone ? gcp_thread.stream
								  : NULL;
}

static inline void gcp_thread_use_stream(CUstream stream)
{
	gcp_thread.stream = stream;
	gcp_thread.stream_count = gcp_thread_streams_gone;
}

#endif
