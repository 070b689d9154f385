/* SPDX-License-Identifier: MIT */
/*
 * handles.h - handles of GPU libraries (cuBLAS, cuDNN, ...) are pooled: destroyed
 * ones are kept, set back to what a new one has, and given out again. Off unless
 * GCPOOL_HANDLES says so; then each call goes to the library as it came.
 *
 * Called by the exported entries (exports.c), the dlsym stub, and where captures
 * begin. Never initialises CUDA or a library: a handle is created by the library
 * itself, on the program's call.
 */
#ifndef GCP_INTERPOSE_HANDLES_H
#define GCP_INTERPOSE_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "../handles/handles_library.h"
#include "../cuda/symbols.h"

/* In place of the library's functions; the status is the library's own. */
int gcp_handles_create(struct gcp_handle_library *library, void **ret_handle);
int gcp_handles_destroy(struct gcp_handle_library *library, void *handle);

/* A capture is about to begin and gcp_tracker_capturing says so already: when this
 * returns, no fence is being recorded. */
void gcp_handles_capture_begins(void);

#endif
