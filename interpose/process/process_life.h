/* SPDX-License-Identifier: MIT */
/*
 * process_life.h - when the library starts, and how it stays out of the way at
 * fork, thread exit and process exit.
 */
#ifndef GCP_INTERPOSE_PROCESS_LIFE_H
#define GCP_INTERPOSE_PROCESS_LIFE_H

#include "../base/process.h"
#include "../cuda/resolve.h"

/* Sets everything up at the first allocation; returns the new run mode, which is
 * never GCP_RUN_FRESH. */
enum gcp_run_mode gcp_process_start(void);

/* The run mode, for hooks that allocate. */
static inline enum gcp_run_mode gcp_process_started_mode(void)
{
	enum gcp_run_mode mode = gcp_process_run_mode();

	return mode == GCP_RUN_FRESH ? gcp_process_start() : mode;
}

/* Whether gcp_real is filled: tries to, until the program has loaded libcuda. From then
 * on a fork matters, and the ends of contexts. False also while the calling thread is
 * resolving. */
bool gcp_resolve_now(void);

static inline bool gcp_resolve(void)
{
	return atomic_load_explicit(&gcp_resolve_done, memory_order_acquire) ||
	       gcp_resolve_now();
}

/* --- handle_files.c ------------------------------------------------------- */

/* Puts itself before the table's vm_release, which closes a handle's file first, and
 * behind gcp_ipc_server_file. Before the first handle is made; no lock is held. */
void gcp_handle_files_watch(struct gcp_driver *driver);
/* In the child of a fork: closes them. No lock is held. */
void gcp_handle_files_after_fork(void);

#endif
