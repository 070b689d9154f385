/* SPDX-License-Identifier: MIT */
/*
 * ipc_server.h - hands mapped memory of this process to others, and knows which blocks
 * they have open (gcp_pools_open, gcp_pools_close). There is nothing of it before the
 * first handle was made. Any thread.
 */
#ifndef GCP_INTERPOSE_IPC_SERVER_H
#define GCP_INTERPOSE_IPC_SERVER_H

#include "../../pool/pool.h"
#include "ipc_wire.h"

/* A file of a handle of mapped memory, for the caller to close (handle_files.c). Set
 * before the first export; vmm_lock of pool/ is held. */
extern CUresult (*gcp_ipc_server_file)(uint64_t handle, int *ret_fd);

/* The handle of an exported block, the same each time until it is freed. Starts the
 * thread, if it does not run yet. CUDA_ERROR_OPERATING_SYSTEM: it cannot be started. */
CUresult gcp_ipc_server_handle(const struct gcp_block_info *info,
			       CUipcMemHandle *ret_handle);
/* The program frees the exported block at `addr`. If `waits`, waits for all work of
 * its context, as cuMemFree does. What gcp_pools_free gives. */
int gcp_ipc_server_free(gcp_addr addr, bool waits);
/* Returns true if this process made the handle. */
bool gcp_ipc_server_is_self(const struct gcp_ipc_process *process);
/* In the child of a fork. */
void gcp_ipc_server_after_fork(void);

#endif
