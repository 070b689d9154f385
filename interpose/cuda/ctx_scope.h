/* SPDX-License-Identifier: MIT */
/*
 * ctx_scope.h - how the library calls the driver from inside a hook.
 */
#ifndef GCP_INTERPOSE_CTX_SCOPE_H
#define GCP_INTERPOSE_CTX_SCOPE_H

#include <stdbool.h>

#include "symbols.h"

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
/* The same in the thread's own capture mode, for calls that are legal in each. */
CUresult gcp_ctx_scope_enter(struct gcp_ctx_scope *scope, CUcontext ctx);
void gcp_ctx_scope_end(struct gcp_ctx_scope *scope);

/* The answer to `call`, within a scope of `ctx`; or why there is none. */
#define GCP_WITHIN(ctx, call)                                                          \
	({                                                                             \
		struct gcp_ctx_scope scope_;                                           \
		CUresult result_ = gcp_ctx_scope_begin(&scope_, ctx);                  \
                                                                                       \
		if (result_ == CUDA_SUCCESS) {                                         \
			result_ = (CUresult)(call);                                    \
			gcp_ctx_scope_end(&scope_);                                    \
		}                                                                      \
		result_;                                                               \
	})

/* An event without a time, of `ctx`; and whether one is done. */
CUresult gcp_event_create(CUcontext ctx, CUevent *ret_event);
CUresult gcp_event_query(CUcontext ctx, CUevent event);

/* The device of `ctx` (NULL: of the current one). False: it cannot be told. */
bool gcp_ctx_device(CUcontext ctx, CUdevice *ret_device);

/* How many devices the process sees; 0: CUDA does not say. */
int gcp_device_count(void);

#endif
