/* SPDX-License-Identifier: MIT */
/*
 * ipc.c - the hooks on memory shared between processes.
 *
 * CUDA's handle stands for a whole driver allocation. A block that does not
 * begin one gets a handle of the same 64 bytes that carries its offset, too:
 *
 *   bytes  0..55   CUDA's, every bit inverted
 *   bytes 56..63   magic (24 bits) and offset / 512 (40 bits), little-endian
 *
 * CUDA leaves the last 8 bytes zero and does not look at them (driver 580,
 * measured; another driver that uses them gets NOT_SUPPORTED from us). What is
 * inverted includes the size, the flags and the device, each of which CUDA
 * checks: a process without this library gets an error, not the bytes of
 * another block. A process with it finds the magic, opens CUDA's handle and adds the
 * offset. A block at the beginning keeps the plain handle.
 *
 * CUDA makes no handle of mapped memory at all. A mapped block gets one of another
 * form (ipc_wire.h), and this process hands the memory over when it is opened.
 *
 * Another process stands in no context's queue: before a block is exported, all
 * work that could still touch it from former owners is waited for. And a block that was
 * exported is freed as plain CUDA frees: behind all work of its context, and not while
 * it is known to be open (ipc_server.h).
 */
#include <string.h>
#include "../cuda/cuda_vmm.h"
#include "../ipc/ipc_imports.h"
#include "../ipc/ipc_server.h"
#include "../process/process_life.h"
#include "hooks_memory.h"

#define GCP_IPC_MAGIC    UINT64_C(0x67c9a5)
#define GCP_IPC_PLAIN    56 /* bytes of CUDA's own */
#define GCP_IPC_UNIT     512
#define GCP_IPC_SHIFT    40
#define GCP_IPC_TRIES    100 /* of an open beside others */
#define GCP_IPC_PAUSE_NS 100000

_Static_assert(sizeof(CUipcMemHandle) == GCP_IPC_PLAIN + sizeof(uint64_t), "cuda.h");

/* --- the form of a handle ------------------------------------------------------- */

static uint64_t handle_tail(const CUipcMemHandle *handle)
{
	uint64_t tail;

	memcpy(&tail, handle->reserved + GCP_IPC_PLAIN, sizeof(tail));
	return tail;
}

/* From one form into the other. */
static void handle_invert(CUipcMemHandle *handle, uint64_t tail)
{
	for (int i = 0; i < GCP_IPC_PLAIN; i++)
		handle->reserved[i] = (char)~handle->reserved[i];
	memcpy(handle->reserved + GCP_IPC_PLAIN, &tail, sizeof(tail));
}

static bool handle_encode(CUipcMemHandle *handle, uint64_t offset)
{
	uint64_t units = offset / GCP_IPC_UNIT;

	assert(offset > 0); /* I4: 0 is read as a plain handle */
	if (handle_tail(handle) != 0 || offset % GCP_IPC_UNIT != 0 ||
	    units >> GCP_IPC_SHIFT != 0)
		return false;
	handle_invert(handle, GCP_IPC_MAGIC << GCP_IPC_SHIFT | units);
	return true;
}

/* The offset; 0 for a plain handle. */
static uint64_t handle_decode(CUipcMemHandle *handle)
{
	uint64_t tail = handle_tail(handle);

	if (tail >> GCP_IPC_SHIFT != GCP_IPC_MAGIC)
		return 0;
	handle_invert(handle, 0);
	return (tail & ((UINT64_C(1) << GCP_IPC_SHIFT) - 1)) * GCP_IPC_UNIT;
}

/* --- export --------------------------------------------------------------------- */

static CUresult export_mapped(CUipcMemHandle *ret_handle,
			      const struct gcp_block_info *info)
{
	CUcontext ctx = NULL;
	CUresult result = gcp_real.cuCtxGetCurrent(&ctx);

	assert(info->mapped && !info->async);
	if (result == CUDA_SUCCESS && !ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS && !gcp_vmm_is_shared(info->device))
		result = CUDA_ERROR_NOT_SUPPORTED;
	return result == CUDA_SUCCESS ? gcp_ipc_server_handle(info, ret_handle)
				      : result;
}

/* CUDA's own handle, with the offset where there is one. */
static CUresult export_of_driver(CUipcMemHandle *ret_handle,
				 const struct gcp_block_info *info)
{
	CUresult result = gcp_real.cuIpcGetMemHandle(ret_handle, info->addr);

	assert(info->addr - info->segment_addr + info->size <= info->segment_size);
	if (result != CUDA_SUCCESS)
		return result;
	if (info->addr != info->segment_addr &&
	    !handle_encode(ret_handle, info->addr - info->segment_addr)) {
		gcp_log(GCP_LOG_ERROR,
			"this driver's IPC handles have no room for an offset, "
			"refusing to export a block of the pool; GCPOOL_MODE=off "
			"exports it");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return result;
}

static CUresult ipc_export(CUipcMemHandle *ret_handle, CUdeviceptr ptr)
{
	struct gcp_block_info info;
	CUresult result;
	int found = -ENOENT;

	if (gcp_process_pooling())
		found = gcp_pools_find(gcp_process.pools, ptr, &info);
	if (found == -ENOENT)
		return gcp_real.cuIpcGetMemHandle(ret_handle, ptr);
	/* Nor of stream-ordered memory (driver 580, measured). */
	if (!ret_handle || found != 0 || info.async)
		return CUDA_ERROR_INVALID_VALUE;
	result = gcp_memory_complete(ptr);
	if (result == CUDA_SUCCESS && !gcp_pools_export(gcp_process.pools, info.addr))
		result = CUDA_ERROR_INVALID_VALUE; /* freed meanwhile */
	if (result != CUDA_SUCCESS)
		return result;
	return info.mapped ? export_mapped(ret_handle, &info)
			   : export_of_driver(ret_handle, &info);
}

/* --- import --------------------------------------------------------------------- */

static CUresult ipc_open(CUresult (*real)(CUdeviceptr *, CUipcMemHandle, unsigned int),
			 CUdeviceptr *ret_ptr, CUipcMemHandle handle,
			 unsigned int flags)
{
	CUipcMemHandle given = handle;
	uint64_t offset = handle_decode(&handle);
	struct gcp_ipc_handle mapped;
	bool is_mapped = gcp_ipc_handle_read(&given, &mapped);
	int tries = GCP_IPC_TRIES;
	CUresult result;

	assert(!is_mapped || offset == 0); /* one form or the other */
	/* Decided now, since the pointer that comes of it passes us at its close. */
	if ((offset > 0 || is_mapped) && gcp_process_started_mode() == GCP_RUN_PASSIVE)
		return real(ret_ptr, given, flags);
	if (is_mapped)
		return gcp_imports_open(ret_ptr, &mapped, flags);
	/* Where threads open and close the same memory at once, CUDA refuses an open
	 * now and then that it serves a moment later (driver 580: one of 1,600, four
	 * threads). Blocks of a segment are the same memory to CUDA, and to the program
	 * they are not. */
	while ((result = real(ret_ptr, handle, flags)) == CUDA_ERROR_ALREADY_MAPPED &&
	       --tries > 0)
		gcp_sleep(GCP_IPC_PAUSE_NS);
	if (result != CUDA_SUCCESS || offset == 0)
		return result;
	if (!gcp_imports_note(*ret_ptr, offset)) {
		(void)gcp_real.cuIpcCloseMemHandle(*ret_ptr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_ptr += offset;
	return CUDA_SUCCESS;
}

#define HOOK_cuIpcGetMemHandle(real, call, twin)   ipc_export(ret_handle, ptr)
#define HOOK_cuIpcOpenMemHandle(real, call, twin)  ipc_open(real, ret_ptr, handle, flags)
#define HOOK_cuIpcCloseMemHandle(real, call, twin) gcp_imports_close(ptr)
GCP_HOOKS_IPC(GCP_HOOK)
