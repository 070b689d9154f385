/* SPDX-License-Identifier: MIT */
/*
 * handles.h - handles of GPU libraries (cuBLAS, cuDNN, ...) are pooled: destroyed
 * ones are kept, set back to what a new one has, and given out again. Off unless
 * GCPOOL_HANDLES says so; then each call goes to the library as it came.
 *
 * Called by the exported entries (exports.c), the dlsym stub, and by those
 * that report captures, the ends of contexts, and forks. Never initialises CUDA or
 * a library: a handle is created by the library itself, on the program's call.
 */
#ifndef GCP_INTERPOSE_HANDLES_H
#define GCP_INTERPOSE_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "handles_library.h"
#include "symbols.h"

/* In place of the library's functions; the status is the library's own. */
int gcp_handles_create(struct gcp_handle_library *library, void **ret_handle);
int gcp_handles_destroy(struct gcp_handle_library *library, void *handle);

/* Says at info what is in reach; called once, when this process starts to pool. */
void gcp_handles_say(void);

/* A capture is about to begin and gcp_tracker_capturing says so already: when this
 * returns, no fence is being recorded. */
void gcp_handles_capture_begins(void);

/* A call that may end the context is about to be made, and has returned (NULL: no
 * known one). `gone`: its handles are detached, and never touched again. */
void gcp_handles_context_ending(CUcontext ctx);
void gcp_handles_context_ended(CUcontext ctx, bool gone);

/* In the child of a fork. */
void gcp_handles_after_fork(void);

#endif
