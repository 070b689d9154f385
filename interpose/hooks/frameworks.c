/* SPDX-License-Identifier: MIT */
/*
 * frameworks.c - the public functions of gcpool.h, section 6: memory for frameworks
 * that choose this library, in the order of a stream that they name. Memory comes as
 * stream-ordered memory does (hooks_async.c), and while the stream captures as that of
 * cudaMalloc does. Where the library serves nothing (it is not preloaded, or
 * GCPOOL_MODE=off) these are cudaMalloc and cudaFree.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "hooks_memory.h"
#include "../cuda/gate.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"

/* --- the functions --------------------------------------------------------------- */

/* The context of a device: NULL for the current one, as the runtime takes that, else
 * the primary one. One that is made for that stays. */
static CUresult context_of(CUdevice device, CUcontext *ret_ctx)
{
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_ctx = NULL;
	if (gcp_device_here() == device)
		return CUDA_SUCCESS;
	*ret_ctx = gcp_contexts_primary(device);
	return *ret_ctx ? CUDA_SUCCESS : gcp_contexts_retain_primary(ret_ctx, device);
}

static CUresult memory_in(CUcontext ctx, CUdeviceptr *ret_ptr, size_t bytes,
			  CUstream stream)
{
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_enter(&scope, ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_process_pooling() ? gcp_async_alloc_named(ret_ptr, bytes, stream)
				       : gcp_memory_pass_alloc(ret_ptr, bytes);
	gcp_ctx_scope_end(&scope);
	return result;
}

int gcpool_malloc(void **ptr, size_t bytes, int device, void *stream)
{
	GCP_KEEP_ERRNO;
	CUcontext home = NULL;
	CUdeviceptr address = 0;
	CUresult result;

	GCP_GATED_OR(CUDA_ERROR_OUT_OF_MEMORY);
	if (!ptr)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = NULL;
	if (!bytes)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	(void)gcp_process_started_mode();
	result = context_of(device, &home);
	if (result == CUDA_SUCCESS && bytes > GCP_BYTES_MAX)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = memory_in(home, &address, bytes, stream);
	/* It was reset, and is made anew, as by the runtime. */
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED && !home)
		result = gcp_contexts_retain_primary(&home, device)
			     ?: memory_in(home, &address, bytes, stream);
	*ptr = (void *)(uintptr_t)address;
	return (int)result;
}

static CUresult free_here(const struct gcp_block_info *info, CUstream stream)
{
	bool marked = gcp_mark_get(info->addr, info->id, GCP_MARK_STREAMS);
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_enter(&scope, info->ctx);

	assert(info->ctx && gcp_process_pooling());
	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_async_free_named(info->addr, stream, info->ctx, marked);
	if (marked && result == CUDA_SUCCESS)
		(void)gcp_mark_set(info->addr, info->id, GCP_MARK_STREAMS, false);
	gcp_ctx_scope_end(&scope);
	return result;
}

int gcpool_free(void *p, void *stream)
{
	GCP_KEEP_ERRNO;
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	struct gcp_block_info info;
	int known = -ENOENT;

	GCP_GATED_OR(CUDA_ERROR_OUT_OF_MEMORY);
	if (!p)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (gcp_process_pooling())
		known = gcp_pools_held(gcp_process.pools, ptr, &info);
	if (known == 0)
		return (int)free_here(&info, stream);
	if (known == -ENOENT)
		return (int)gcp_memory_pass_free(ptr, true);
	gcp_observe_free_wrong(ptr, true);
	return CUDA_ERROR_INVALID_VALUE;
}

int gcpool_record_stream(void *p, void *stream)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	struct gcp_block_info info;
	GCP_KEEP_ERRNO;

	(void)stream;
	if (!p || !gcp_process_pooling())
		return CUDA_SUCCESS;
	if (gcp_pools_held(gcp_process.pools, ptr, &info) != 0)
		return gcp_spill_find(ptr, &info) ? CUDA_SUCCESS
						  : CUDA_ERROR_INVALID_VALUE;
	return gcp_mark_set(ptr, info.id, GCP_MARK_STREAMS, true)
		   ? CUDA_SUCCESS
		   : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- PyTorch's form -------------------------------------------------------------- */

/* PyTorch takes what comes for memory: a failure has to be an exception of C++, which
 * becomes one of Python. No lock is held and nothing is left to do here. */
static void failure_throw(void)
{
	void (*throw_bad_alloc)(void) = NULL;
	struct gcp_elf elf;

	if (gcp_elf_find("libstdc++.so.6", &elf))
		*(void **)&throw_bad_alloc =
		    gcp_elf_symbol(&elf, "_ZSt17__throw_bad_allocv");
	if (throw_bad_alloc)
		throw_bad_alloc();
}

void *gcpool_torch_malloc(ptrdiff_t bytes, int device, void *stream)
{
	void *p = NULL;
	int result = CUDA_ERROR_INVALID_VALUE;

	if (bytes >= 0)
		result = gcpool_malloc(&p, (size_t)bytes, device, stream);
	if (result != CUDA_SUCCESS) {
		gcp_log(GCP_LOG_WARNING,
			"no %td bytes on device %d for PyTorch (error %d)", bytes,
			device, result);
		failure_throw();
	}
	return p;
}

void gcpool_torch_free(void *p, ptrdiff_t bytes, int device, void *stream)
{
	GCP_KEEP_ERRNO;
	int result = gcpool_free(p, stream);

	(void)bytes;
	if (result != CUDA_SUCCESS)
		gcp_log(GCP_LOG_WARNING,
			"%p of device %d is not freed for PyTorch (error %d)", p,
			device, result);
}
