/* SPDX-License-Identifier: MIT */
/*
 * fence_all.h - all-context fences: an event in every context of the process, for
 * pinned memory, which every context can use. Filled into the driver table by
 * cuda_backend.c; contexts.c reports the ends of contexts.
 */
#ifndef GCP_INTERPOSE_FENCE_ALL_H
#define GCP_INTERPOSE_FENCE_ALL_H

#include "symbols.h"

/* As driver.h says. */
int gcp_fence_all_create(void **ret_fence);
int gcp_fence_all_record(void *fence);
int gcp_fence_all_query(void *fence, void *ctx);
int gcp_fence_all_wait(void *fence, void *ctx);

/* The context is gone: its part of each fence counts as done, permanently. */
void gcp_fence_all_context_gone(CUcontext ctx);

#endif
