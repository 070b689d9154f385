/* SPDX-License-Identifier: MIT */
/*
 * ipc.h - what the end of a context means for memory opened from other
 * processes.
 */
#ifndef GCP_INTERPOSE_IPC_H
#define GCP_INTERPOSE_IPC_H

#include "symbols.h"

/* All that was opened while `ctx` was current is gone. */
void gcp_ipc_context_gone(CUcontext ctx);
/* In the child of a fork. */
void gcp_ipc_after_fork(void);

#endif
