/* SPDX-License-Identifier: MIT */
/*
 * ipc.h - the hooks on memory shared between processes.
 */
#ifndef GCP_INTERPOSE_IPC_H
#define GCP_INTERPOSE_IPC_H

#include <stdbool.h>

#include "../../pool/pool.h"

/* The program frees the exported block at `addr` (ipc_exports.h). If `waits`, waits for
 * all work of its context, as cuMemFree does. What gcp_pools_free gives. */
int gcp_ipc_free(gcp_addr addr, bool waits);

#endif
