/* SPDX-License-Identifier: MIT */
/*
 * foreign_work.h - work that a fence of its context does not cover, because another
 * device does it.
 *
 * A copy between two devices is done by one of them, whatever stream it is in. A fence
 * (cuCtxRecordEvent) covers what the device of its context does. Plain cudaFree waits
 * for more: for all that is in the streams of the context, and after a copy in a
 * default stream in the contexts of both sides (tests/gpu/results/mapped-memory.md). So
 * such work is kept here with an event behind it, and a fence is done when what was
 * submitted before it is done, too.
 *
 * Works are numbered as they are submitted.
 */
#ifndef GCP_INTERPOSE_FOREIGN_WORK_H
#define GCP_INTERPOSE_FOREIGN_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "symbols.h"

/* The work that was submitted to `stream` last counts for fences of the `count`
 * contexts, which have pools; NULL is left out. contexts NULL: of all of the process,
 * those that come included. `stream` as gcp_stream_named gives it,
 * of the context `executing`, and not capturing. False: there is no memory for that. No
 * lock is held. */
bool gcp_foreign_work_note(CUcontext executing, CUstream stream,
			   const CUcontext *contexts, int count);
/* The same; without memory for it waits for the stream, and returns the code of a wait
 * that fails. */
CUresult gcp_foreign_work_submitted(CUcontext executing, CUstream stream,
				    const CUcontext *contexts, int count);
/* Asks CUDA. Works up to the number that it returns are done. */
uint64_t gcp_foreign_work_done(void);

/* Sets an event in each context of the process, behind all that it was given: when
 * works up to *ret_number are done, so is that. No stream captures. 0, or why it
 * failed. */
int gcp_foreign_work_everywhere(uint64_t *ret_number);

/* The number of the latest work; a fence that is recorded afterwards keeps it. */
uint64_t gcp_foreign_work_latest(void);

/* Whether a work of that number or an older one may be pending. Lock-free. */
bool gcp_foreign_work_is_pending(uint64_t number);

/* Asks for works that count for `ctx` (NULL: all), own: only those that `ctx` executes.
 * Returns CUDA_SUCCESS if they are done, else CUDA_ERROR_NOT_READY. While a capture is
 * under way the thread's mode is relaxed. No lock of contexts.c is held. */
CUresult gcp_foreign_work_query(CUcontext ctx, uint64_t number, bool own);

/* The same, and waits for them. Relax the mode by themselves. */
CUresult gcp_foreign_work_ask(CUcontext ctx, uint64_t number, bool own);
CUresult gcp_foreign_work_wait(CUcontext ctx, uint64_t number, bool own);

/* All that is submitted to `waiting` from now on waits for those that count for `ctx`,
 * on the device. -EBUSY: a context may be ending. The lock of contexts.c is held. */
int gcp_foreign_work_order(CUcontext waiting, CUcontext ctx, uint64_t number);

/* NULL: of one that is not known. */
void gcp_foreign_work_context_gone(CUcontext ctx);

#endif
