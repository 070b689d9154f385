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
int gcp_fence_wait_in(void *ctx, void *fence);

#endif
