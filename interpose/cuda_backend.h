/* SPDX-License-Identifier: MIT */
/*
 * cuda_backend.h - the real driver as the rooms pool/ and capture/ want to see it,
 * and the manners of calling it from inside a hook.
 */
#ifndef GCP_INTERPOSE_CUDA_BACKEND_H
#define GCP_INTERPOSE_CUDA_BACKEND_H

#include <stdbool.h>

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

#endif
