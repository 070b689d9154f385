/* SPDX-License-Identifier: MIT */
/*
 * cuda_backend.h - the real driver as the rooms pool/ and capture/ want to see it.
 */
#ifndef GCP_INTERPOSE_CUDA_BACKEND_H
#define GCP_INTERPOSE_CUDA_BACKEND_H

#include "../../capture/capture.h"
#include "../cuda/symbols.h"

/* Returns true if the driver is one that the pools can work with: of CUDA 12.5 or
 * newer. The tables are filled after that. */
bool gcp_driver_is_sufficient(void);

void gcp_driver_fill(struct gcp_driver *ret_driver);

/* Holds back all later work of `ctx` until a fence that driver->fence_create has made
 * is done. -EBUSY: a context may be ending. */
int gcp_fence_wait_in(CUcontext ctx, void *fence);

/* A stream of the library in `ctx`, which is current: memory that no work uses is freed
 * in it without a wait for other work, but for barriers. NULL: there is none. */
CUstream gcp_release_stream(CUcontext ctx);

/* The context is gone, and what is kept for it with it. */
void gcp_release_context_gone(CUcontext ctx);

#endif
