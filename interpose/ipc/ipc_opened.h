/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.h - memory of other processes that CUDA opens: what was opened by a handle
 * with an offset (ipc.c), for which the program has another pointer than CUDA gave. Any
 * thread; no lock of the caller's.
 */
#ifndef GCP_INTERPOSE_IPC_OPENED_H
#define GCP_INTERPOSE_IPC_OPENED_H

#include <stdbool.h>

#include "../cuda/symbols.h"

/* `base` was opened, and the program gets base + offset. False: the host is out of
 * memory. */
bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset);

/* What CUDA calls what the program has at `ptr`; `ptr` itself if it was opened plainly.
 */
CUdeviceptr gcp_ipc_opened_base(CUdeviceptr ptr);

/* CUDA has closed `base`, once, for which the program had `ptr`. Another thread may
 * have opened it again meanwhile, or something else there. */
void gcp_ipc_opened_closed(CUdeviceptr ptr, CUdeviceptr base);

/* All that was opened while `ctx` was current is gone. */
void gcp_ipc_opened_context_gone(CUcontext ctx);

/* In the child of a fork. */
void gcp_ipc_opened_after_fork(void);

#endif
