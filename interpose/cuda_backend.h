/* SPDX-License-Identifier: MIT */
/*
 * cuda_backend.h - the real driver as the rooms pool/ and capture/ want to see it,
 * and the manners of calling it from inside a hook.
 */
#ifndef GCP_INTERPOSE_CUDA_BACKEND_H
#define GCP_INTERPOSE_CUDA_BACKEND_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "../capture/capture.h"
#include "../pool/driver_table.h"
#include "symbols.h"

/* Fill the tables from gcp_real; after gcp_resolve_complete. */
void gcp_driver_fill(struct gcp_driver *ret_driver);
void gcp_driver_fill_vmm(struct gcp_driver *ret_driver); /* cuda_vmm.c */
/* cuda_vmm.c: a context has come to life, or was seen for the first time; returns when
 * memory that is mapped on other devices is open to its device. No lock is held. */
void gcp_vmm_context_joined(CUcontext ctx);

/* `device` gets access to all that is mapped on `owner`, now and later. False: some of
 * it is refused. Only while pooling. cuda_vmm.c */
bool gcp_vmm_give_access(int owner, int device);

/* The devices, a bit for each, that can reach memory of `device`: of those that have or
 * had a context in this process, that one itself, and `user`. */
uint64_t gcp_vmm_users(int device, int user);
/* Opens mapped addresses to the devices of `mask`. */
CUresult gcp_vmm_open_to(uint64_t mask, gcp_addr addr, uint64_t bytes);
void gcp_driver_fill_capture(struct gcp_capture_driver *ret_driver);

/* A scope for the library's own calls of the driver: `ctx` is current (NULL: whichever
 * is), the thread's capture mode is relaxed, so that nothing that happens can
 * invalidate a capture, and pthread_cancel does not end it; leaving puts all of that
 * and errno back. */
struct gcp_ctx_scope {
	int saved_errno, cancel;
	bool pushed;
	bool relaxed;
	CUstreamCaptureMode mode;
};

CUresult gcp_ctx_scope_begin(struct gcp_ctx_scope *scope, CUcontext ctx);
void gcp_ctx_scope_end(struct gcp_ctx_scope *scope);

/* Whether this driver can give memory back without a wait for other work. */
bool gcp_release_possible(void);

/* Frees `ptr`, which no work uses, in `ctx`. Waits for no other work of the context but
 * what a barrier of the library holds all of it back behind. Legal beside captures.
 * -EBUSY: it cannot be done, nothing was freed. */
int gcp_release_memory(CUcontext ctx, CUdeviceptr ptr);

/* The context is gone, and what is kept for it with it. */
void gcp_release_context_gone(CUcontext ctx);

/* Whether something outside of CUDA's queues may write into device memory: a network
 * card, or a driver mapping of it into the CPU. Looks through the loaded libraries
 * again only when more were loaded since. Once true it stays true. Never waits, holds
 * the loader's list lock shortly. */
bool gcp_third_party_dma_present(void);

#endif
