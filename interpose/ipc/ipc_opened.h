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

/* The program closes what it has at `ptr`: *ret_base is what CUDA calls that, `ptr`
 * itself if it was opened plainly (NULL). Taken before the real call, for another
 * thread may open something else there as soon as that is done. */
struct opened_pointer *gcp_ipc_opened_take(CUdeviceptr ptr, CUdeviceptr *ret_base);
/* CUDA has closed it, or not: it is there again. NULL: nothing. */
void gcp_ipc_opened_closed(struct opened_pointer *opened, bool closed);

/* All that was opened while `ctx` was current is gone. */
void gcp_ipc_opened_context_gone(CUcontext ctx);

/* In the child of a fork. */
void gcp_ipc_opened_after_fork(void);

#endif
