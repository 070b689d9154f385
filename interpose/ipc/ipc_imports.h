/* SPDX-License-Identifier: MIT */
/*
 * ipc_imports.h - memory of other processes that this process has open: mapped memory,
 * and what CUDA opens by handles with an offset (hooks/ipc.c). Opening and closing give
 * the codes that plain CUDA gives for memory of cuMemAlloc. Any thread; no lock of the
 * caller's.
 */
#ifndef GCP_INTERPOSE_IPC_IMPORTS_H
#define GCP_INTERPOSE_IPC_IMPORTS_H

#include "ipc_wire.h"

/* cuIpcOpenMemHandle, for a handle that gcp_ipc_handle_read takes. Asks the other
 * process and waits for its answers; not for any device. */
CUresult gcp_imports_open(CUdeviceptr *ret_ptr, const struct gcp_ipc_handle *handle,
			  unsigned int flags);
/* CUDA has opened `base`, and the program gets base + offset. False: the host is out of
 * memory. */
bool gcp_imports_note(CUdeviceptr base, uint64_t offset);
/* cuIpcCloseMemHandle, of anything. Of mapped memory: waits for all work of the context
 * that opened it. */
CUresult gcp_imports_close(CUdeviceptr ptr);

/* Finds the open mapped memory that holds `ptr`. Returns false if there is none. Costs
 * a relaxed load if nothing is open. */
struct gcp_import_info {
	CUdeviceptr ptr;
	uint64_t bytes; /* that the other process asked for */
	CUcontext ctx;  /* in which it was opened */
	int device;     /* of the context */
	bool pooled;    /* the context has a pool, or may have one */
};
bool gcp_imports_find(CUdeviceptr ptr, struct gcp_import_info *ret_info);

/* A device has its first context: it may use what is open, if it can reach it. */
void gcp_imports_device_joined(int device);
/* The context is gone: what was opened in it is closed. */
void gcp_imports_context_gone(CUcontext ctx);
/* In the child of a fork. */
void gcp_imports_after_fork(void);

#endif
