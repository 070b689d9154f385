/* SPDX-License-Identifier: MIT */
/*
 * handle_files.h - the files in which handles of mapped memory go to other processes.
 * Called by process_life.c. Files are made and closed under vmm_lock (of pool/), under
 * which handles come and go. Legal in captures.
 */
#ifndef GCP_INTERPOSE_HANDLE_FILES_H
#define GCP_INTERPOSE_HANDLE_FILES_H

#include "../../pool/driver_table.h"
#include "../cuda/symbols.h"

/* Puts itself before the table's vm_release, which closes a handle's file first, and
 * behind gcp_ipc_server_file. Before the first handle is made; no lock is held. */
void gcp_handle_files_watch(struct gcp_driver *driver);

/* In the child of a fork: closes them. No lock is held. */
void gcp_handle_files_after_fork(void);

#endif
