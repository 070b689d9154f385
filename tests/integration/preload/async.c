/* SPDX-License-Identifier: MIT */
/*
 * async.c - stream-ordered memory: when it is reused, which of it is CUDA's, and what
 * CUDA's default pool says of it.
 *
 * Environment: GCPOOL_BACKEND=vmm
 *
 *   async SCENARIO    plays one; 0: all is as on plain CUDA, or as the library promises
 */
#include <sys/wait.h>

#include "scenarios.h"

static CUdeviceptr allocated_in(CUstream stream, size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAllocAsync(&p, bytes, stream));
	return p;
}

/* A block of so many bytes with work in the stream, and freed there. */
static CUdeviceptr freed_bytes(CUstream stream, size_t bytes)
{
	CUdeviceptr p = allocated_in(stream, bytes);

	OK(cuMemsetD8Async(p, 1, bytes, stream), cuMemFreeAsync(p, stream));
	return p;
}

/* --- what is CUDA's ----------------------------------------------------------- */

SCENARIO_PRIMARY(captured_stream_is_cudas)
{
	CUgraphNodeType type;
	CUgraphNode nodes[8];
	size_t count = 8, found = 0;
	CUgraph graph;
	CUdeviceptr p;
	CUstream stream = stream_new();

	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	capture_begin(stream);
	p = allocated_in(stream, MIB);
	OK(cuMemsetD8Async(p, 1, MIB, stream), cuMemFreeAsync(p, stream));
	graph = capture_end(stream);
	OK(cuGraphGetNodes(graph, nodes, &count));
	for (size_t i = 0; i < count; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		found += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
			 type == CU_GRAPH_NODE_TYPE_MEM_FREE;
	}
	must(found == 2, "the graph has no memory nodes");
	must(gcpsim_calls("cuMemAllocAsync") == 1, "not only the capture's is CUDA's");
}

static uint64_t real_calls(void)
{
	return gcpsim_calls("cuMemAllocAsync") +
	       gcpsim_calls("cuMemAllocFromPoolAsync");
}

SCENARIO_PRIMARY(other_pools_are_cudas)
{
	CUmemoryPool standard;
	CUdeviceptr p;
	CUstream stream = stream_new();
	CUmemoryPool pool = pool_new(0);

	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuMemAllocFromPoolAsync(&p, MIB, standard, stream));
	OK(cuMemFreeAsync(p, stream));
	must(real_calls() == 0, "the default pool is not served");
	OK(cuMemAllocFromPoolAsync(&p, MIB, pool, stream), cuMemFreeAsync(p, stream));
	must(real_calls() == 1, "a pool of the program's is served");
	OK(cuDeviceSetMemPool(0, pool));
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 2, "the current pool is served, which is another one");
	OK(cuMemPoolDestroy(pool), cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 2, "the default pool is the current one again");
}

/* --- pools that are set while others are looked at ------------------------------- */

static CUmemoryPool standards[2], own; /* of the devices; for device 1 */
static pthread_t setter;
static atomic_bool set;

static void *set_own(void *unused)
{
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
	when_called("cuDeviceGetMemPool", set_meanwhile);
}

static CUstream two_devices(void)
{
	own = pool_new(1);
	for (int device = 0; device < 2; device++)
		OK(cuDeviceGetDefaultMemPool(&standards[device], device));
	(void)primary_of(1);
	return stream_new();
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
	when_called("cuDeviceGetMemPool", set_in_the_next);
	OK(cuDeviceSetMemPool(0, standards[0]));
	must_be_cudas(stream);
}

/* In the middle of the parent's call. */
static void set_in_a_child(void)
{
	int status = 1;
	pid_t child = fork();

	if (child == 0) {
		alarm(HANG_S / 2);
		_exit(cuDeviceSetMemPool(0, standards[0]) == CUDA_SUCCESS);
	}
	must(waitpid(child, &status, 0) == child && status == 0, "the child hangs");
}

/* Of a process that has not allocated yet: the library may serve its child. */
SCENARIO(pool_set_in_a_child, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	(void)two_devices();
	OK(cuMemPoolSetAttribute(standards[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
				 &(cuuint64_t){1}));
	when_called("cuDeviceGetMemPool", set_in_a_child);
	OK(cuDeviceSetMemPool(0, standards[0]));
}

static atomic_bool came_back;

static void *is_cancelled_in_a_set(void *unused)
{
	when_called("cuDeviceGetMemPool", pthread_testcancel);
	pthread_cancel(pthread_self());
	OK(cuDeviceSetMemPool(1, standards[1]));
	atomic_store(&came_back, true);
	return NULL;
}

/* The lock would be left for ever. */
SCENARIO(pool_set_by_a_cancelled_thread, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUstream stream = two_devices();

	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	(void)play_elsewhere(is_cancelled_in_a_set, NULL);
	must(atomic_load(&came_back), "a thread has ended inside a call");
	OK(cuDeviceSetMemPool(1, own));
}

SCENARIO(own_contexts_are_cudas)
{
	CUcontext ctx;
	CUstream stream;

	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	stream = stream_new();
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1, "memory that would go with its context");
}

SCENARIO_PRIMARY(option_leaves_all_to_cuda, "GCPOOL_ASYNC=0", "GCPOOL_BACKEND=segments")
{
	CUstream stream = stream_new();

	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1 && gcpsim_calls("cuMemFreeAsync") == 1, "it is served");
	must(gcpsim_calls("cuMemPoolSetAttribute") == 0, "CUDA's pool is changed");
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

SCENARIO_PRIMARY(figures_of_the_default_pool)
{
	cuuint64_t zero = 0, most = ~(cuuint64_t)0;
	CUmemoryPool pool;
	CUdeviceptr p, small;
	CUstream stream = stream_new();

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
	OK(cuStreamSynchronize(stream), cuMemPoolTrimTo(pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 64 * MIB, "reserved once");
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 64 * MIB,
	     "reserved high after a reset");
	OK(cuMemFreeAsync(small, stream));
}

SCENARIO_PRIMARY(trim_waits_for_nothing, "GCPSIM_MEMORY=4G")
{
	CUmemoryPool pool;
	CUstream stream = stream_new();

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	gcpsim_set_speed(GCPSIM_NEVER);
	freed_bytes(stream, 64 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	must(gcpsim_pending() > 0, "the work is done");
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB,
	     "what is in use was given back");
}

/* --- other devices ------------------------------------------------------------ */

/* By the second device. */
static void used_by_another(CUdeviceptr p)
{
	CUcontext other;

	OK(cuDevicePrimaryCtxRetain(&other, 1), cuCtxPushCurrent(other));
	OK(cuMemsetD8(p, 1, MIB), cuCtxSynchronize(), cuCtxPopCurrent(&other));
	must(gcpsim_faults() == 0, "it has no access");
}

/* To what is there, and what will be. */
SCENARIO_PRIMARY(access_given_later, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUmemAccessDesc access = {
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
	    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUdeviceptr old, new;
	CUmemoryPool pool;
	CUstream stream;

	stream = stream_new();
	old = allocated_in(stream, MIB);
	OK(cuDeviceGetDefaultMemPool(&pool, 0), cuMemPoolSetAccess(pool, &access, 1));
	new = allocated_in(stream, 64 * MIB);
	must(real_calls() == 0, "it is not served");
	used_by_another(old);
	used_by_another(new);
}

/* What a capture has in an ordinary segment, since it could not be mapped, the graph
 * leaves to the pool: other devices that get access to the default pool do not reach
 * it. */
SCENARIO_PRIMARY(what_a_graph_leaves_is_not_for_other_devices,
		 "GCPOOL_GRAPH_SHARE=1 GCPOOL_BACKEND=vmm GCPSIM_DEVICES=2")
{
	CUgraph graph;
	CUstream stream = stream_new();

	(void)allocated(32 * MIB); /* a smaller pool grows */
	calls_fail("cuMemMap:1:999");
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemFree(allocated(4 * MIB)), cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph), cuCtxSynchronize());
	must(gcpsim_calls("cuMemAlloc_v2") > 0, "the graph had a segment");
	(void)allocated_in(stream, 4 * MIB);
	must(real_calls() == 1, "it comes from that segment");
}
