/* SPDX-License-Identifier: MIT */
/*
 * pool.c - stream-ordered memory: cuMemAllocAsync, cuMemFreeAsync and the
 * driver's memory pools.
 *
 * Entry points, under the big lock. Memory gets its address at once and is
 * taken back when the free runs; a pool caches nothing, so its figures are
 * those of a pool with release threshold 0 at each moment. An access that is
 * not ordered behind the allocation, or before the free, is a hazard.
 */
#include "sim.h"

struct pool {
	struct sim_object object;
	int device;
	cuuint64_t threshold;
	int reuse[3];
};

static struct pool *defaults[SIM_DEVICES_MAX];
static struct pool *chosen[SIM_DEVICES_MAX];

static struct pool *pool_new(int device)
{
	struct pool *pool = sim_object_new(SIM_POOL, sizeof(*pool));

	pool->device = device;
	for (int i = 0; i < 3; i++)
		pool->reuse[i] = 1;
	return pool;
}

CUmemoryPool sim_pool_default(int device)
{
	if (!defaults[device])
		defaults[device] = pool_new(device);
	return (CUmemoryPool)defaults[device];
}

/* --- a device's pools ----------------------------------------------------- */

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	SIM_LOCKED(cuDeviceGetDefaultMemPool);
	if (!pool_out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pool_out = sim_pool_default(dev);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	SIM_LOCKED(cuDeviceGetMemPool);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pool = chosen[dev] ? (CUmemoryPool)chosen[dev] : sim_pool_default(dev);
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	SIM_LOCKED(cuDeviceSetMemPool);
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!sim_object_check(pool, SIM_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	chosen[dev] = (struct pool *)pool;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	SIM_LOCKED(cuDeviceGraphMemTrim);
	return sim_device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* --- pools ---------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	SIM_LOCKED(cuMemPoolCreate);
	if (!pool || !poolProps ||
	    poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(poolProps->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	*pool = (CUmemoryPool)pool_new(poolProps->location.id);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *pool;

	SIM_LOCKED(cuMemPoolDestroy);
	pool = sim_object_check(handle, SIM_POOL);
	if (!pool || defaults[pool->device] == pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (chosen[pool->device] == pool)
		chosen[pool->device] = NULL;
	sim_object_delete(pool);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	SIM_LOCKED(cuMemPoolTrimTo);
	(void)minBytesToKeep;
	SIM_TRY(sim_capture_unsafe());
	return sim_object_check(pool, SIM_POOL) ? CUDA_SUCCESS
						: CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	SIM_LOCKED(cuMemPoolSetAccess);
	if (!sim_object_check(pool, SIM_POOL) || (count && !map))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static uint64_t pool_used(int device)
{
	uint64_t bytes = 0;

	for (const struct sim_alloc *a = sim_memory_first(); a; a = a->next)
		if (a->kind == SIM_MEMORY_ASYNC && a->device == device)
			bytes += a->bytes;
	return bytes;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr,
			       void *value)
{
	struct pool *pool;

	SIM_LOCKED(cuMemPoolSetAttribute);
	pool = sim_object_check(handle, SIM_POOL);
	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
		 attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		pool->reuse[attr - 1] = *(int *)value;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr,
			       void *value)
{
	const struct pool *pool;

	SIM_LOCKED(cuMemPoolGetAttribute);
	pool = sim_object_check(handle, SIM_POOL);
	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*(cuuint64_t *)value = pool->threshold;
	else if (attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
		 attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		*(int *)value = pool->reuse[attr - 1];
	else
		*(cuuint64_t *)value = pool_used(pool->device);
	return CUDA_SUCCESS;
}

/* --- allocating and freeing ----------------------------------------------- */

static CUresult submit_range(struct sim_stream *stream, enum sim_work_kind kind,
			     const struct sim_alloc *alloc)
{
	struct sim_work work = {.kind = kind, .accesses = 1};

	work.memory.addr = alloc->addr;
	work.access[0] =
	    (struct sim_access){alloc->addr, alloc->bytes, alloc->bytes, 1, SIM_WRITE};
	return sim_stream_submit(stream, &work, NULL);
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, struct sim_stream *stream)
{
	struct sim_alloc *alloc;

	if (!dptr || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return sim_capture_alloc(stream, bytes, dptr);
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_memory_alloc(sim_ctx_memory(stream->ctx), bytes, SIM_MEMORY_ASYNC,
				 &alloc));
	*dptr = alloc->addr;
	return submit_range(stream, SIM_WORK_ALLOC, alloc);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuMemAllocAsync);
	SIM_TRY(sim_stream_use(hStream, &stream));
	return alloc_async(dptr, bytesize, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return cuMemAllocAsync(dptr, bytesize, SIM_PTSZ(hStream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				 CUstream hStream)
{
	struct sim_stream *stream;

	SIM_LOCKED(cuMemAllocFromPoolAsync);
	if (!sim_object_check(pool, SIM_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_use(hStream, &stream));
	return alloc_async(dptr, bytesize, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize,
				      CUmemoryPool pool, CUstream hStream)
{
	return cuMemAllocFromPoolAsync(dptr, bytesize, pool, SIM_PTSZ(hStream));
}

/* It stays the graph's, whose next launch allocates it again. */
static CUresult free_of_graph(struct sim_stream *stream, struct sim_alloc *alloc)
{
	if (!alloc->unfreed)
		return CUDA_ERROR_INVALID_VALUE;
	alloc->unfreed = false;
	return submit_range(stream, SIM_WORK_GRAPH_FREE, alloc);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	struct sim_stream *stream;
	struct sim_alloc *alloc;

	SIM_LOCKED(cuMemFreeAsync);
	SIM_TRY(sim_stream_use(hStream, &stream));
	if (dptr == 0)
		return CUDA_SUCCESS;
	alloc = sim_memory_find(dptr);
	if (!alloc || alloc->addr != dptr || alloc->dying)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind != SIM_MEMORY_ASYNC && alloc->kind != SIM_MEMORY_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return sim_capture_free(stream, alloc);
	SIM_TRY(sim_capture_unsafe());
	if (alloc->of_graph)
		return free_of_graph(stream, alloc);
	alloc->dying = true;
	return submit_range(stream, SIM_WORK_FREE, alloc);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return cuMemFreeAsync(dptr, SIM_PTSZ(hStream));
}
