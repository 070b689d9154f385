/* SPDX-License-Identifier: MIT */
/*
 * ipc_exports.h - which blocks of this process have a handle, and how many times other
 * processes have them open.
 *
 * A freed block stays as it is while another process has it open, as the memory of
 * plain CUDA does, and is the pool's when the last one has closed it; this process
 * knows it no more. Any thread; no lock of the caller's but gcp_exports_lock where it
 * says so.
 */
#ifndef GCP_INTERPOSE_IPC_EXPORTS_H
#define GCP_INTERPOSE_IPC_EXPORTS_H

#include "../../pool/pool.h"
#include "../cuda/symbols.h"

/* A file of a handle of mapped memory, for the caller to close (handle_files.c). Set
 * before the first export; vmm_lock of pool/ is held. */
extern CUresult (*gcp_exports_file)(uint64_t handle, int *ret_fd);

/* Guards what is exported and what has it open, and the calls that hand it over. */
extern struct gcp_mutex gcp_exports_lock;

/* The block is exported from now on (gcp_pools_export). A mapped one gets a number,
 * which no other block ever has, the same each time until it is freed; for others, of
 * which CUDA itself makes the handle, the number is 0. -ENOENT: it was freed meanwhile;
 * -ENOMEM. */
int gcp_exports_add(const struct gcp_block_info *info, uint64_t *ret_id);

/* The program frees the exported block at `addr`. If `waits`, waits for all work of
 * its context, as cuMemFree does. catch_up(), which is called under the lock, hears
 * what other processes have closed by now. What gcp_pools_free gives. */
int gcp_exports_free(gcp_addr addr, bool waits, void (*catch_up)(void));

/* Another process opens the block that has this number at this address, once more.
 * False: there is none, or it was freed. The lock is held. */
bool gcp_exports_open(gcp_addr addr, uint64_t id, uint64_t *ret_bytes);
/* ... has closed it, once. Never waits. The lock is held. */
void gcp_exports_close(gcp_addr addr, uint64_t id);

/* What is lent and nothing has open is the pool's: a graph pool was set back to an
 * earlier state, in which it is not the program's. */
void gcp_exports_take_back(void);
/* The context is gone, and its blocks. */
void gcp_exports_context_gone(CUcontext ctx);
/* The context stays: what was closed while it was ending is the pool's. */
void gcp_exports_context_stays(CUcontext ctx);
/* In the child of a fork. */
void gcp_exports_after_fork(void);

#endif
