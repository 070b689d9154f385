/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.h - memory of other processes that CUDA opens: which of CUDA's calls are
 * under way at the same time, and what was opened by a handle with an offset (ipc.c),
 * for which the program has another pointer than CUDA gave. Any thread; no lock of the
 * caller's.
 */
#ifndef GCP_INTERPOSE_IPC_OPENED_H
#define GCP_INTERPOSE_IPC_OPENED_H

#include <stdbool.h>

#include "../cuda/symbols.h"

/* Around a call of CUDA's that opens or closes. The second one says whether another
 * such call was under way meanwhile. */
struct gcp_ipc_call {
	uint64_t number;
	bool beside;
};
struct gcp_ipc_call gcp_ipc_call_begin(void);
bool gcp_ipc_call_end(struct gcp_ipc_call call);

/* `base` was opened, and the program gets base + offset. False: the host is out of
 * memory. */
bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset);

/* The program closes `ptr`, once. What CUDA calls it; `ptr` itself if it was opened
 * plainly. */
CUdeviceptr gcp_ipc_opened_close(CUdeviceptr ptr);

/* CUDA has closed `base`, for which that stands; or refused, and `ptr` is open as
 * before. Another thread may have opened it again meanwhile, or something else there.
 */
void gcp_ipc_opened_closed(CUdeviceptr ptr, CUdeviceptr base, bool closed);

/* All that was opened while `ctx` was current is gone. */
void gcp_ipc_opened_context_gone(CUcontext ctx);

/* In the child of a fork. */
void gcp_ipc_opened_after_fork(void);

#endif
