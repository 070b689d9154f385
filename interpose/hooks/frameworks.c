/* SPDX-License-Identifier: MIT */
/*
 * frameworks.c - the public functions of gcpool.h, section 6: memory for frameworks
 * that choose this library, in the order of a stream that they name. Memory comes as
 * stream-ordered memory does (hooks_async.c), and while the stream captures as that of
 * cudaMalloc does. Where the library serves nothing (it is not preloaded, or
 * GCPOOL_MODE=off) these are cudaMalloc and cudaFree.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <errno.h>
#include <stdlib.h>

#include "../base/elfwalk.h"
#include "hooks.h"
#include "hooks_async.h"
#include "hooks_memory.h"
#include "../base/log.h"
#include "../observe/observer.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"

enum { DEVICES_MAX = 64 };

/* Larger requests cannot succeed. */
#define GCP_BYTES_MAX ((size_t)1 << 46)

/* --- contexts -------------------------------------------------------------------- */

/* Primary contexts, which stay retained: once more whenever what is known of contexts
 * has changed (`generation`), for a reset may have taken the reference away. */
static struct {
	_Atomic(CUcontext) ctx;
	_Atomic uint64_t generation;
} primaries[DEVICES_MAX];

static CUresult primary_of(int device, CUcontext *ret_ctx)
{
	uint64_t generation =
	    atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
	CUresult result;

	if (device < 0 || device >= DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_ctx = atomic_load(&primaries[device].ctx);
	if (*ret_ctx && atomic_load(&primaries[device].generation) == generation)
		return CUDA_SUCCESS;
	result = gcp_process_pooling()
		     ? gcp_contexts_retain_primary(ret_ctx, device)
		     : gcp_real.cuDevicePrimaryCtxRetain(ret_ctx, device);
	if (result != CUDA_SUCCESS)
		return result;
	atomic_store(&primaries[device].ctx, *ret_ctx);
	atomic_store(&primaries[device].generation,
		     atomic_load(&gcp_contexts_generation));
	return CUDA_SUCCESS;
}

/* Makes `ctx` current; unlike a gcp_ctx_scope it leaves the capture mode alone. */
struct current {
	bool pushed;
};

static CUresult current_begin(struct current *current, CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult result;

	*current = (struct current){0};
	result = gcp_real.cuCtxGetCurrent(&now);
	if (result != CUDA_SUCCESS || now == ctx)
		return result;
	result = gcp_real.cuCtxPushCurrent_v2(ctx);
	current->pushed = result == CUDA_SUCCESS;
	return result;
}

static void current_end(const struct current *current)
{
	CUcontext popped;

	if (current->pushed)
		gcp_real.cuCtxPopCurrent_v2(&popped);
}

/* --- blocks that are used in other streams, too ---------------------------------- */

/* gcpool_record_stream: the blocks that it named, guarded by marks_lock. In which other
 * streams they are used does not matter: they are freed behind all work. */
struct mark {
	CUdeviceptr ptr;
	struct mark *next;
};

enum { MARK_BITS = 10 };
static struct gcp_mutex marks_lock = GCP_MUTEX(GCP_RANK_FRAMEWORK_MARKS);
static struct mark *marks[1 << MARK_BITS]; /* by block */
static _Atomic uint32_t mark_count;

/* Returns the link that points to the block's mark, or to the end of the list. */
static struct mark **mark_at(CUdeviceptr ptr)
{
	gcp_assert_held(GCP_RANK_FRAMEWORK_MARKS);
	struct mark **at =
	    &marks[(uint64_t)ptr * 0x9e3779b97f4a7c15u >> (64 - MARK_BITS)];

	while (*at && (*at)->ptr != ptr)
		at = &(*at)->next;
	return at;
}

/* Takes the mark over; NULL: nothing. */
static void mark_put(struct mark *mark)
{
	struct mark **at;

	if (!mark)
		return;
	gcp_mutex_lock(&marks_lock);
	at = mark_at(mark->ptr);
	if (*at) {
		free(mark);
	} else {
		*at = mark;
		atomic_fetch_add(&mark_count, 1);
	}
	gcp_mutex_unlock(&marks_lock);
}

/* The block's mark, or NULL. Another thread may have its memory as soon as it is free,
 * so the mark is taken before, and put back if the memory stays the program's. */
static struct mark *mark_take(CUdeviceptr ptr)
{
	struct mark **at, *mark;

	if (atomic_load(&mark_count) == 0)
		return NULL;
	gcp_mutex_lock(&marks_lock);
	at = mark_at(ptr);
	mark = *at;
	if (mark) {
		*at = mark->next;
		mark->next = NULL;
		atomic_fetch_sub(&mark_count, 1);
	}
	gcp_mutex_unlock(&marks_lock);
	return mark;
}

/* --- the functions --------------------------------------------------------------- */

static int named_malloc(void **ptr, size_t bytes, int device, void *stream)
{
	struct current current;
	CUcontext home = NULL;
	CUdeviceptr address = 0;
	CUresult result;

	if (!ptr)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = NULL;
	if (!bytes)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	(void)gcp_process_started_mode();
	result = primary_of(device, &home);
	if (result == CUDA_SUCCESS && bytes > GCP_BYTES_MAX)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = current_begin(&current, home);
	if (result != CUDA_SUCCESS)
		return (int)result;
	result = gcp_process_pooling() ? gcp_async_alloc_named(&address, bytes, stream)
				       : gcp_memory_pass_alloc(&address, bytes);
	current_end(&current);
	*ptr = (void *)(uintptr_t)address;
	return (int)result;
}

static CUresult free_here(CUdeviceptr ptr, CUcontext home, CUstream stream)
{
	struct current current;
	CUresult result = current_begin(&current, home);
	struct mark *mark;

	if (result != CUDA_SUCCESS)
		return result;
	mark = mark_take(ptr);
	result = gcp_async_free_named(ptr, stream, home, mark != NULL);
	if (result == CUDA_SUCCESS)
		free(mark);
	else
		mark_put(mark);
	current_end(&current);
	return result;
}

static int named_free(void *p, void *stream)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	void *home = NULL;
	int known = -ENOENT;

	if (!p)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (gcp_process_pooling())
		known = gcp_pools_owner(gcp_process.pools, ptr, &home);
	if (known == 0)
		return (int)free_here(ptr, home, stream);
	if (known == -ENOENT)
		return (int)gcp_memory_pass_free(ptr);
	gcp_observe_free_wrong(ptr, true);
	return CUDA_ERROR_INVALID_VALUE;
}

int gcpool_malloc(void **ptr, size_t bytes, int device, void *stream)
{
	GCP_KEEP_ERRNO;

	return named_malloc(ptr, bytes, device, stream);
}

int gcpool_free(void *p, void *stream)
{
	GCP_KEEP_ERRNO;

	return named_free(p, stream);
}

int gcpool_record_stream(void *p, void *stream)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	void *home = NULL;
	GCP_KEEP_ERRNO;
	struct mark *mark;

	(void)stream;
	if (!p || !gcp_process_pooling())
		return CUDA_SUCCESS;
	if (gcp_pools_owner(gcp_process.pools, ptr, &home) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	mark = calloc(1, sizeof(*mark));
	if (mark)
		mark->ptr = ptr;
	mark_put(mark);
	return mark ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
	int result = CUDA_ERROR_INVALID_VALUE, saved = errno;

	if (bytes >= 0)
		result = named_malloc(&p, (size_t)bytes, device, stream);
	errno = saved;
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
	int result = named_free(p, stream);

	(void)bytes;
	if (result != CUDA_SUCCESS)
		gcp_log(GCP_LOG_WARNING,
			"%p of device %d is not freed for PyTorch (error %d)", p,
			device, result);
}
