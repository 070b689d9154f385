/* SPDX-License-Identifier: MIT */
/*
 * ipc_server.h - the thread that hands mapped memory of this process to others. There
 * is none before the first handle was made.
 */
#ifndef GCP_INTERPOSE_IPC_SERVER_H
#define GCP_INTERPOSE_IPC_SERVER_H

#include <stdbool.h>

#include "../../pool/pool.h"
#include "../cuda/symbols.h"
#include "ipc_wire.h"

/* Whether the driver can hand over memory of the device at all. Cheap. */
bool gcp_ipc_server_possible(int device);
/* The handle of the block (ipc_exports.h). Starts the thread, if it does not run yet.
 * CUDA_ERROR_OPERATING_SYSTEM: it cannot be started. Any thread. */
CUresult gcp_ipc_server_handle(gcp_addr addr, uint64_t id, CUipcMemHandle *ret_handle);
/* Serves what has come, for a thread that wants to know what is open now. Never waits
 * for other processes; gcp_exports_lock is held. Does nothing once exit has begun. */
void gcp_ipc_server_catch_up(void);
/* Returns true if this process made the handle. */
bool gcp_ipc_server_is_self(const struct gcp_ipc_process *process);
/* In the child of a fork. */
void gcp_ipc_server_after_fork(void);

#endif
