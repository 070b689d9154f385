/* SPDX-License-Identifier: MIT */
/*
 * cuda_backend.h - the real driver as the rooms pool/ and capture/ want to see it.
 */
#ifndef GCP_INTERPOSE_CUDA_BACKEND_H
#define GCP_INTERPOSE_CUDA_BACKEND_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../capture/capture.h"
#include "../../pool/driver_table.h"
#include "../cuda/symbols.h"

/* Returns true if the driver is one that the pools can work with: of CUDA 12.5 or
 * newer. The tables are filled after that. */
bool gcp_driver_is_sufficient(void);

void gcp_driver_fill(struct gcp_driver *ret_driver);
void gcp_driver_fill_vmm(struct gcp_driver *ret_driver); /* cuda_vmm.c */

/* A context of the device was seen for the first time. False: a device beyond those
 * that this library opens memory to. No lock is held. */
bool gcp_vmm_device_joined(int device);

/* Returns when all that is mapped, now and later, is open to each device that has, or
 * will have, a context here, and can reach it. Legal in captures. */
void gcp_vmm_open_everywhere(void);

/* `device` gets access to all that is mapped on `owner`, now and later. False: some of
 * it is refused. Only while pooling. cuda_vmm.c */
bool gcp_vmm_give_access(int owner, int device);

/* Whether memory may be open to a device whose context has no peer access by now. */
bool gcp_vmm_is_wider(void);

/* The devices, a bit for each, that can reach memory of `device`: of those that have or
 * had a context in this process, that one itself, and `user`. */
uint64_t gcp_vmm_users(int device, int user);
/* Opens mapped addresses to the devices of `mask`. */
CUresult gcp_vmm_open_to(uint64_t mask, gcp_addr addr, uint64_t bytes);
void gcp_driver_fill_capture(struct gcp_capture_driver *ret_driver);

/* Holds back all later work of `ctx` until a fence that driver->fence_create has made
 * is done. -EBUSY: a context may be ending. */
int gcp_fence_wait_in(CUcontext ctx, void *fence);

/* Gives memory that no work uses back to the driver, without a wait for other work.
 * -EBUSY: it is not given back. */
int gcp_driver_release(void *ctx, gcp_addr addr);

/* The context is gone, and what is kept for it with it. */
void gcp_release_context_gone(CUcontext ctx);

#endif
