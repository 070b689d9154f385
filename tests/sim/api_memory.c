/* SPDX-License-Identifier: MIT */
/*
 * api_memory.c - entry points of device memory: allocate, free, and what is
 * known of an address; host memory that devices reach.
 *
 * Under the big lock. Freeing waits, as CUDA does, for all work of the
 * memory's context that was submitted before, and for no other context's.
 */
#include "sim.h"

#include <string.h>
#include <sys/mman.h>

/* --- device memory -------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	uint64_t available, all;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemGetInfo_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	sim_memory_info(ctx->device, &available, &all);
	if (free)
		*free = available;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemAlloc_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	if (!dptr || bytesize == 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(
	    sim_memory_alloc(sim_ctx_memory(ctx), bytesize, SIM_MEMORY_DEVICE, &alloc));
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
			    size_t Height, unsigned int ElementSizeBytes)
{
	size_t pitch = (WidthInBytes + sim.pitch - 1) / sim.pitch * sim.pitch;
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemAllocPitch_v2);
	if (!dptr || !pPitch || WidthInBytes == 0 || Height == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_memory_alloc(sim_ctx_memory(ctx), pitch * Height, SIM_MEMORY_DEVICE,
				 &alloc));
	*dptr = alloc->addr;
	*pPitch = pitch;
	return CUDA_SUCCESS;
}

/* With a sticky error nothing is freed any more. Waits for the context, but not for
 * stream-ordered memory, of which the program has seen to that (measured); then checks
 * that no work still uses the bytes. */
static CUresult free_now(struct sim_alloc *alloc, const char *what)
{
	uint64_t addr = alloc->addr;
	CUresult error = alloc->ctx->error;

	if (alloc->of_graph && !alloc->unfreed)
		return CUDA_ERROR_INVALID_VALUE;
	if (error == CUDA_SUCCESS && alloc->kind != SIM_MEMORY_ASYNC)
		error = sim_ctx_wait(alloc->ctx);
	if (error != CUDA_SUCCESS)
		return error;

	/* While waiting the lock was open: another thread may have freed it. */
	alloc = sim_memory_find(addr);
	if (!alloc || alloc->addr != addr)
		return CUDA_ERROR_INVALID_VALUE;
	sim_hazard_host(alloc->addr, alloc->span, SIM_WRITE, what);
	alloc->unfreed = false;
	if (!alloc->of_graph)
		sim_memory_free(alloc);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult current;
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemFree_v2);
	current = sim_ctx_current(&ctx);
	if (current != CUDA_SUCCESS && current != CUDA_ERROR_INVALID_CONTEXT)
		return current; /* none is needed, but a broken one is in the way */
	SIM_TRY(sim_capture_unsafe());
	if (dptr == 0)
		return CUDA_SUCCESS;
	alloc = sim_memory_find(dptr);
	if (!alloc || alloc->addr != dptr || alloc->dying)
		return CUDA_ERROR_INVALID_VALUE;
	switch (alloc->kind) {
	case SIM_MEMORY_DEVICE:
	case SIM_MEMORY_ASYNC:
	case SIM_MEMORY_MANAGED:
		return free_now(alloc, "cuMemFree");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	const struct sim_alloc *alloc;
	uint64_t base, bytes;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemGetAddressRange_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	if (!pbase && !psize)
		return CUDA_SUCCESS; /* of any pointer (measured) */
	alloc = sim_memory_find(dptr);
	if (!alloc || !sim_memory_piece(alloc, dptr, &base, &bytes))
		return CUDA_ERROR_NOT_FOUND;
	/* Known in the context only that opened it (measured). */
	if (alloc->kind == SIM_MEMORY_IPC && alloc->ctx != sim_ctx_memory(ctx))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = base;
	if (psize)
		*psize = bytes;
	return CUDA_SUCCESS;
}

/* --- host memory ---------------------------------------------------------- */

static CUresult host_alloc(uint64_t bytes, enum sim_memory kind, unsigned flags,
			   void **ret_p)
{
	struct sim_ctx *ctx;
	void *p;

	if (!ret_p)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	*ret_p = NULL;
	if (bytes == 0)
		return CUDA_SUCCESS;
	bytes = (bytes + 511) / 512 * 512;
	if (sim.host_limit && sim_memory_live(-1, NULL) + bytes > sim.host_limit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_memory_host(sim_ctx_memory(ctx), p, bytes, kind, flags);
	*ret_p = p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	SIM_LOCKED(cuMemHostAlloc);
	if (Flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	return host_alloc(bytesize, SIM_MEMORY_PINNED, Flags, pp);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	SIM_LOCKED(cuMemAllocHost_v2);
	return host_alloc(bytesize, SIM_MEMORY_PINNED, 0, pp);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	void *p;

	SIM_LOCKED(cuMemAllocManaged);
	if (!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(host_alloc(bytesize, SIM_MEMORY_MANAGED, flags, &p));
	*dptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

static struct sim_alloc *host_find(const void *p, enum sim_memory kind)
{
	struct sim_alloc *alloc = sim_memory_find((uintptr_t)p);

	return alloc && alloc->kind == kind && alloc->addr == (uintptr_t)p ? alloc
									   : NULL;
}

CUresult cuMemFreeHost(void *p)
{
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemFreeHost);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	if (!p)
		return CUDA_SUCCESS;
	alloc = host_find(p, SIM_MEMORY_PINNED);
	return alloc ? free_now(alloc, "cuMemFreeHost") : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_register(void *p, size_t bytesize, unsigned int Flags)
{
	struct sim_ctx *ctx;

	if (!p || bytesize == 0)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	if (sim_memory_find((uintptr_t)p) ||
	    sim_memory_find((uintptr_t)p + bytesize - 1))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	sim_memory_host(sim_ctx_memory(ctx), p, bytesize, SIM_MEMORY_REGISTERED, Flags);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	SIM_LOCKED(cuMemHostRegister);
	return host_register(p, bytesize, Flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	SIM_LOCKED(cuMemHostRegister_v2);
	return host_register(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemHostUnregister);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(sim_capture_unsafe());
	alloc = host_find(p, SIM_MEMORY_REGISTERED);
	if (alloc)
		return free_now(alloc, "cuMemHostUnregister");
	return host_find(p, SIM_MEMORY_PINNED) ? CUDA_ERROR_INVALID_VALUE
					       : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct sim_ctx *ctx;

	SIM_LOCKED(cuMemHostGetDevicePointer_v2);
	SIM_TRY(sim_ctx_current(&ctx));
	if (!pdptr || Flags != 0 || sim_memory_is_device((uintptr_t)p) ||
	    !sim_memory_find((uintptr_t)p))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	const struct sim_alloc *alloc;

	SIM_LOCKED(cuMemHostGetFlags);
	alloc = sim_memory_find((uintptr_t)p);
	if (!pFlags || !alloc || alloc->kind != SIM_MEMORY_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = alloc->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}
