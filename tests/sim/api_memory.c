/* SPDX-License-Identifier: MIT */
/*
 * api_memory.c - entry points of device memory: allocate, free, and what is
 * known of an address; host memory that devices reach.
 *
 * Under the big lock. Freeing waits, as CUDA does, for all work of the
 * memory's context that was submitted before, and for no other context's.
 */
#include "sim.h"

#include <sys/mman.h>

/* --- device memory -------------------------------------------------------- */

SIM_ENTRY(cuMemGetInfo_v2)
{
	uint64_t available, all;

	SIM_CURRENT(ctx);
	sim_memory_info(ctx->device, &available, &all);
	if (free)
		*free = available;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemAlloc_v2)
{
	struct sim_alloc *alloc;

	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	SIM_FAIL_IF(INVALID_VALUE, !dptr || bytesize == 0);
	SIM_TRY(
	    sim_memory_alloc(sim_ctx_memory(ctx), bytesize, SIM_MEMORY_DEVICE, &alloc));
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemAllocPitch_v2)
{
	size_t pitch = (WidthInBytes + 511) / 512 * 512;
	struct sim_alloc *alloc;

	SIM_FAIL_IF(INVALID_VALUE,
		    !dptr || !pPitch || WidthInBytes == 0 || Height == 0);
	SIM_FAIL_IF(INVALID_VALUE, ElementSizeBytes != 4 && ElementSizeBytes != 8 &&
				       ElementSizeBytes != 16);
	SIM_CURRENT(ctx);
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

	SIM_FAIL_IF(INVALID_VALUE, alloc->of_graph && !alloc->unfreed);
	if (error == CUDA_SUCCESS && alloc->kind != SIM_MEMORY_ASYNC)
		error = sim_ctx_wait(alloc->ctx);
	if (error != CUDA_SUCCESS)
		return error;

	/* While waiting the lock was open: another thread may have freed it. */
	alloc = sim_memory_find(addr);
	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->addr != addr);
	sim_hazard_host(alloc->addr, alloc->span, SIM_WRITE, what);
	alloc->unfreed = false;
	if (!alloc->of_graph)
		sim_memory_free(alloc);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemFree_v2)
{
	CUresult current;
	struct sim_alloc *alloc;
	struct sim_ctx *ctx;

	current = sim_ctx_current(&ctx);
	if (current != CUDA_SUCCESS && current != CUDA_ERROR_INVALID_CONTEXT)
		return current; /* none is needed, but a broken one is in the way */
	SIM_TRY(sim_capture_unsafe());
	if (dptr == 0)
		return CUDA_SUCCESS;
	alloc = sim_memory_find(dptr);
	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->addr != dptr || alloc->dying);
	switch (alloc->kind) {
	case SIM_MEMORY_DEVICE:
	case SIM_MEMORY_ASYNC:
	case SIM_MEMORY_MANAGED:
		return free_now(alloc, "cuMemFree");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_ENTRY(cuMemGetAddressRange_v2)
{
	const struct sim_alloc *alloc;
	uint64_t base, bytes;

	SIM_CURRENT(ctx);
	if (!pbase && !psize)
		return CUDA_SUCCESS; /* of any pointer (measured) */
	alloc = sim_memory_find(dptr);
	SIM_FAIL_IF(NOT_FOUND, !alloc || !sim_memory_piece(alloc, dptr, &base, &bytes));
	/* Known in the context only that opened it (measured). */
	SIM_FAIL_IF(NOT_FOUND,
		    alloc->kind == SIM_MEMORY_IPC && alloc->ctx != sim_ctx_memory(ctx));
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
	void *p;

	SIM_FAIL_IF(INVALID_VALUE, !ret_p);
	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	*ret_p = NULL;
	if (bytes == 0)
		return CUDA_SUCCESS;
	bytes = (bytes + 511) / 512 * 512;
	SIM_FAIL_IF(OUT_OF_MEMORY, sim.host_limit && sim_memory_live(-1, NULL) + bytes >
							 sim.host_limit);
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	SIM_FAIL_IF(OUT_OF_MEMORY, p == MAP_FAILED);
	sim_memory_host(sim_ctx_memory(ctx), p, bytes, kind, flags);
	*ret_p = p;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemHostAlloc)
{
	SIM_FAIL_IF(INVALID_VALUE, Flags & ~7u);
	return host_alloc(bytesize, SIM_MEMORY_PINNED, Flags, pp);
}

SIM_FORWARD(cuMemAllocHost_v2, host_alloc(bytesize, SIM_MEMORY_PINNED, 0, pp))

SIM_ENTRY(cuMemAllocManaged)
{
	void *p;

	SIM_FAIL_IF(INVALID_VALUE, !dptr || (flags != CU_MEM_ATTACH_GLOBAL &&
					     flags != CU_MEM_ATTACH_HOST));
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

SIM_ENTRY(cuMemFreeHost)
{
	struct sim_alloc *alloc;

	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	if (!p)
		return CUDA_SUCCESS;
	alloc = host_find(p, SIM_MEMORY_PINNED);
	return alloc ? free_now(alloc, "cuMemFreeHost") : CUDA_ERROR_INVALID_VALUE;
}

SIM_ENTRY(cuMemHostRegister_v2)
{
	SIM_FAIL_IF(INVALID_VALUE, !p || bytesize == 0);
	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	SIM_FAIL_IF(HOST_MEMORY_ALREADY_REGISTERED,
		    sim_memory_find((uintptr_t)p) ||
			sim_memory_find((uintptr_t)p + bytesize - 1));
	sim_memory_host(sim_ctx_memory(ctx), p, bytesize, SIM_MEMORY_REGISTERED, Flags);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemHostUnregister)
{
	struct sim_alloc *alloc;

	SIM_CURRENT(ctx);
	SIM_TRY(sim_capture_unsafe());
	alloc = host_find(p, SIM_MEMORY_REGISTERED);
	if (alloc)
		return free_now(alloc, "cuMemHostUnregister");
	return host_find(p, SIM_MEMORY_PINNED) ? CUDA_ERROR_INVALID_VALUE
					       : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

SIM_ENTRY(cuMemHostGetDevicePointer_v2)
{
	SIM_CURRENT(ctx);
	SIM_FAIL_IF(INVALID_VALUE, !pdptr || Flags != 0 ||
				       sim_memory_is_device((uintptr_t)p) ||
				       !sim_memory_find((uintptr_t)p));
	*pdptr = (uintptr_t)p;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemHostGetFlags)
{
	const struct sim_alloc *alloc = sim_memory_find((uintptr_t)p);

	SIM_FAIL_IF(INVALID_VALUE,
		    !pFlags || !alloc || alloc->kind != SIM_MEMORY_PINNED);
	*pFlags = alloc->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}
