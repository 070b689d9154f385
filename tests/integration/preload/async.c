/* SPDX-License-Identifier: MIT */
/*
 * async.c - stream-ordered memory: when it is reused, which of it is CUDA's, and what
 * CUDA's default pool says of it.
 *
 *   async SCENARIO    plays one; 0: all is as on plain CUDA, or as the library promises
 */
#include <sys/wait.h>

#include "scenarios.h"

static CUstream stream_new(unsigned int flags)
{
	CUstream stream;

	OK(cuStreamCreate(&stream, flags));
	return stream;
}

static CUdeviceptr allocated_in(CUstream stream, size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, bytes, stream));
	return p;
}

/* --- what is CUDA's ----------------------------------------------------------- */

SCENARIO(captured_stream_is_cudas)
{
	CUgraphNodeType type;
	CUgraphNode nodes[8];
	size_t count = 8, found = 0;
	CUstream stream;
	CUgraph graph;
	CUdeviceptr p;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated_in(stream, MIB);
	OK(cuMemsetD8Async(p, 1, MIB, stream));
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		found += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
			 type == CU_GRAPH_NODE_TYPE_MEM_FREE;
	}
	must(found == 2, "the graph has no memory nodes");
	must(gcpsim_calls("cuMemAllocAsync") == 1, "not only the capture's is CUDA's");
}

static CUmemoryPool pool_new(void)
{
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemoryPool pool;

	OK(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static uint64_t real_calls(void)
{
	return gcpsim_calls("cuMemAllocAsync") +
	       gcpsim_calls("cuMemAllocFromPoolAsync");
}

SCENARIO(other_pools_are_cudas)
{
	CUmemoryPool pool, standard;
	CUstream stream;
	CUdeviceptr p;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	pool = pool_new();
	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuMemAllocFromPoolAsync(&p, MIB, standard, stream));
	OK(cuMemFreeAsync(p, stream));
	must(real_calls() == 0, "the default pool is not served");
	OK(cuMemAllocFromPoolAsync(&p, MIB, pool, stream));
	OK(cuMemFreeAsync(p, stream));
	must(real_calls() == 1, "a pool of the program's is served");
	OK(cuDeviceSetMemPool(0, pool));
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 2, "the current pool is served, which is another one");
	OK(cuMemPoolDestroy(pool));
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 2, "the default pool is the current one again");
}

/* --- pools that are set while others are looked at ------------------------------- */

static CUmemoryPool standards[2], own; /* of the devices; for device 1 */
static pthread_t setter;
static atomic_bool set;

static void *set_own(void *unused)
{
	(void)unused;
	OK(cuDeviceSetMemPool(1, own));
	atomic_store(&set, true);
	return NULL;
}

/* Beside the calling thread, which has just asked for the pool of device 1: it comes
 * to its end, or waits until that thread is done. */
static void set_meanwhile(void)
{
	pthread_create(&setter, NULL, set_own, NULL);
	for (int i = 0; i < 100 && !atomic_load(&set); i++)
		usleep(1000);
}

/* The call has asked for the pool of device 0. */
static void set_in_the_next(void)
{
	must(gcpsim_when_called("cuDeviceGetMemPool", set_meanwhile) == 0, "no call");
}

static CUstream two_devices(void)
{
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
	};
	CUcontext ctx;

	OK(cuMemPoolCreate(&own, &properties));
	for (int device = 0; device < 2; device++)
		OK(cuDeviceGetDefaultMemPool(&standards[device], device));
	OK(cuDevicePrimaryCtxRetain(&ctx, 1));
	OK(cuCtxSetCurrent(ctx));
	return stream_new(CU_STREAM_NON_BLOCKING);
}

static void must_be_cudas(CUstream stream)
{
	uint64_t before = real_calls();

	OK(pthread_join(setter, NULL));
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == before + 1,
	     "the pool that was set is not the current one");
}

SCENARIO(pool_set_while_another_is_set, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUstream stream = two_devices();

	OK(cuMemPoolTrimTo(standards[1], 0));
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 0, "the default pool is not served");
	OK(cuMemPoolSetAttribute(standards[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
				 &(cuuint64_t){1}));
	must(gcpsim_when_called("cuDeviceGetMemPool", set_in_the_next) == 0, "no call");
	OK(cuDeviceSetMemPool(0, standards[0]));
	must_be_cudas(stream);
}

SCENARIO(option_leaves_all_to_cuda, "GCPOOL_ASYNC=0")
{
	cuuint64_t threshold = 1;
	CUmemoryPool pool;
	CUstream stream;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1 && gcpsim_calls("cuMemFreeAsync") == 1, "it is served");
	must(gcpsim_calls("cuMemPoolSetAttribute") == 0, "CUDA's pool is changed");
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	must(threshold == 0, "the threshold is not the default");
}

/* --- what is said of it ------------------------------------------------------- */

static uint64_t attribute(CUmemPool_attribute which)
{
	cuuint64_t value = 77;
	CUmemoryPool pool;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

SCENARIO(figures_of_the_default_pool)
{
	cuuint64_t zero = 0, most = ~(cuuint64_t)0;
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr p, small;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	p = allocated_in(stream, 70 * MIB);
	small = allocated_in(stream, 100);
	must(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 70 * MIB + 100, "used");
	OK(cuMemFreeAsync(p, stream));
	must(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 100, "used after a free");
	must(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 70 * MIB + 100, "high");
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 70 * MIB, "reserved");
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 70 * MIB, "reserved high");
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	must(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 100, "high after a reset");
	must(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0, "threshold");
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	must(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == most, "threshold, set");
	OK(cuStreamSynchronize(stream));
	OK(cuMemPoolTrimTo(pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 64 * MIB, "reserved once");
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 64 * MIB,
	     "reserved high after a reset");
	OK(cuMemFreeAsync(small, stream));
}
