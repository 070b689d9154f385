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

SIM_ENTRY(cuDeviceGetDefaultMemPool)
{
	SIM_FAIL_IF(INVALID_VALUE, !pool_out);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	*pool_out = sim_pool_default(dev);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceGetMemPool)
{
	SIM_FAIL_IF(INVALID_VALUE, !pool);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	*pool = chosen[dev] ? (CUmemoryPool)chosen[dev] : sim_pool_default(dev);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuDeviceSetMemPool)
{
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(dev));
	SIM_FAIL_IF(INVALID_VALUE, !sim_object_check(pool, SIM_POOL));
	chosen[dev] = (struct pool *)pool;
	return CUDA_SUCCESS;
}

SIM_FORWARD(cuDeviceGraphMemTrim,
	    sim_device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE)

/* --- pools ---------------------------------------------------------------- */

SIM_ENTRY(cuMemPoolCreate)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !pool || !poolProps ||
			poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE);
	SIM_FAIL_IF(INVALID_DEVICE, !sim_device_valid(poolProps->location.id));
	*pool = (CUmemoryPool)pool_new(poolProps->location.id);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemPoolDestroy)
{
	struct pool *pool = sim_object_check(handle, SIM_POOL);

	SIM_FAIL_IF(INVALID_VALUE, !pool || defaults[pool->device] == pool);
	if (chosen[pool->device] == pool)
		chosen[pool->device] = NULL;
	sim_object_delete(pool);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemPoolTrimTo)
{
	SIM_TRY(sim_capture_unsafe());
	return sim_object_check(pool, SIM_POOL) ? CUDA_SUCCESS
						: CUDA_ERROR_INVALID_VALUE;
}

SIM_ENTRY(cuMemPoolSetAccess)
{
	SIM_FAIL_IF(INVALID_VALUE,
		    !sim_object_check(pool, SIM_POOL) || (count && !map));
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

SIM_ENTRY(cuMemPoolSetAttribute)
{
	struct pool *pool = sim_object_check(handle, SIM_POOL);

	SIM_FAIL_IF(INVALID_VALUE, !pool || !value);
	if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
		 attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		pool->reuse[attr - 1] = *(int *)value;
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemPoolGetAttribute)
{
	const struct pool *pool = sim_object_check(handle, SIM_POOL);

	SIM_FAIL_IF(INVALID_VALUE, !pool || !value);
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

	SIM_FAIL_IF(INVALID_VALUE, !dptr || bytes == 0);
	if (stream->capture)
		return sim_capture_alloc(stream, bytes, dptr);
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_memory_alloc(sim_ctx_memory(stream->ctx), bytes, SIM_MEMORY_ASYNC,
				 &alloc));
	*dptr = alloc->addr;
	return submit_range(stream, SIM_WORK_ALLOC, alloc);
}

SIM_ENTRY(cuMemAllocAsync)
{
	SIM_STREAM(stream, hStream);
	return alloc_async(dptr, bytesize, stream);
}

SIM_ENTRY(cuMemAllocFromPoolAsync)
{
	SIM_FAIL_IF(INVALID_VALUE, !sim_object_check(pool, SIM_POOL));
	SIM_STREAM(stream, hStream);
	return alloc_async(dptr, bytesize, stream);
}

/* It stays the graph's, whose next launch allocates it again. */
static CUresult free_of_graph(struct sim_stream *stream, struct sim_alloc *alloc)
{
	SIM_FAIL_IF(INVALID_VALUE, !alloc->unfreed);
	alloc->unfreed = false;
	return submit_range(stream, SIM_WORK_GRAPH_FREE, alloc);
}

SIM_ENTRY(cuMemFreeAsync)
{
	struct sim_alloc *alloc;

	SIM_STREAM(stream, hStream);
	if (dptr == 0)
		return CUDA_SUCCESS;
	alloc = sim_memory_find(dptr);
	SIM_FAIL_IF(INVALID_VALUE, !alloc || alloc->addr != dptr || alloc->dying);
	SIM_FAIL_IF(INVALID_VALUE, alloc->kind != SIM_MEMORY_ASYNC &&
				       alloc->kind != SIM_MEMORY_DEVICE);
	if (stream->capture)
		return sim_capture_free(stream, alloc);
	SIM_TRY(sim_capture_unsafe());
	if (alloc->of_graph)
		return free_of_graph(stream, alloc);
	alloc->dying = true;
	return submit_range(stream, SIM_WORK_FREE, alloc);
}
