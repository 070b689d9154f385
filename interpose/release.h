/* SPDX-License-Identifier: MIT */
/*
 * release.h - memory of cuMemAlloc goes back to the driver without a wait for other
 * work. Called by cuda_backend.c and contexts.c, from any thread.
 */
#ifndef GCP_INTERPOSE_RELEASE_H
#define GCP_INTERPOSE_RELEASE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether this driver can. */
bool gcp_release_possible(void);

/* Frees `ptr`, which no work uses, in `ctx`. Waits for no other work of the context but
 * what a barrier of the library holds all of it back behind. Legal beside captures.
 * -EBUSY: it cannot be done, nothing was freed. */
int gcp_release_memory(CUcontext ctx, CUdeviceptr ptr);

/* The context is gone, and what is kept for it with it. */
void gcp_release_context_gone(CUcontext ctx);

#endif
