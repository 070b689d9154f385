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

/* A block of so many bytes with work in the stream, and freed there. */
static CUdeviceptr freed_bytes(CUstream stream, size_t bytes)
{
	CUdeviceptr p = allocated_in(stream, bytes);

	OK(cuMemsetD8Async(p, 1, bytes, stream));
	OK(cuMemFreeAsync(p, stream));
	return p;
}

/* A block with work in `worked`, freed in `freed` in the order of that work. */
static CUdeviceptr freed_behind_work(CUstream worked, CUstream freed)
{
	CUdeviceptr p = allocated_in(worked, MIB);
	CUevent event;

	OK(cuMemsetD8Async(p, 1, MIB, worked));
	if (worked != freed && worked != CU_STREAM_LEGACY) {
		OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
		OK(cuEventRecord(event, worked));
		OK(cuStreamWaitEvent(freed, event, 0));
	}
	OK(cuMemFreeAsync(p, freed));
	return p;
}

static void must_be_in_order(void)
{
	must(gcpsim_hazards() == 0, "the block is used again too early");
}

/* Allocates in a stream, waits for it, and works in another. */
static void use_elsewhere(CUstream stream, CUstream other)
{
	CUdeviceptr p = allocated_in(stream, MIB);

	OK(cuStreamSynchronize(stream));
	OK(cuMemsetD8Async(p, 2, MIB, other));
	must_be_in_order();
}

/* --- reuse ------------------------------------------------------------------------ */

SCENARIO(free_in_the_per_thread_stream)
{
	CUstream other;

	primary();
	other = stream_new(CU_STREAM_NON_BLOCKING);
	gcpsim_set_speed(GCPSIM_NEVER);
	freed_behind_work(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD);
	use_elsewhere(CU_STREAM_PER_THREAD, other);
}

static atomic_bool freed_there, over;

/* Keeps its event until the other thread has done its part. */
static void *frees_there(void *ctx)
{
	OK(cuCtxSetCurrent(ctx));
	freed_bytes(stream_new(CU_STREAM_DEFAULT), MIB);
	atomic_store(&freed_there, true);
	while (!atomic_load(&over))
		usleep(1000);
	return NULL;
}

/* Two that record the same event make their streams wait for each other. A thread that
 * uses many contexts hands events on. */
SCENARIO(threads_of_many_contexts_share_no_event)
{
	enum { OTHERS = 16 };
	CUcontext ctx = primary(), other[OTHERS];
	CUstream stream = stream_new(CU_STREAM_DEFAULT);
	unsigned long before;
	pthread_t thread;

	(void)stream_new(CU_STREAM_DEFAULT); /* for another number of the last one */
	for (int i = 0; i < OTHERS; i++)
		OK(cuCtxCreate(&other[i], NULL, 0, 0));
	for (int i = 0; i < OTHERS; i++) {
		OK(cuCtxSetCurrent(ctx));
		if (i == OTHERS - 1)
			freed_bytes(stream, MIB);
		OK(cuCtxSetCurrent(other[i]));
		freed_bytes(stream_new(CU_STREAM_DEFAULT), MIB);
	}
	OK(cuCtxSetCurrent(ctx));
	pthread_create(&thread, NULL, frees_there, ctx);
	while (!atomic_load(&freed_there))
		usleep(1000);
	before = gcpsim_calls("cuEventCreate");
	freed_bytes(stream, MIB);
	must(gcpsim_calls("cuEventCreate") > before, "two threads share an event");
	atomic_store(&over, true);
	pthread_join(thread, NULL);
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

SCENARIO(pool_set_while_the_device_is_learnt, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUstream stream = two_devices();

	must(gcpsim_when_called("cuDeviceGetMemPool", set_meanwhile) == 0, "no call");
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must_be_cudas(stream);
}

/* In the middle of the parent's call. */
static void set_in_a_child(void)
{
	int status = 1;
	pid_t child = fork();

	if (child == 0) {
		alarm(5);
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
	must(gcpsim_when_called("cuDeviceGetMemPool", set_in_a_child) == 0, "no call");
	OK(cuDeviceSetMemPool(0, standards[0]));
}

static atomic_bool came_back;

static void *is_cancelled_in_a_set(void *unused)
{
	(void)unused;
	must(gcpsim_when_called("cuDeviceGetMemPool", pthread_testcancel) == 0,
	     "no call");
	pthread_cancel(pthread_self());
	OK(cuDeviceSetMemPool(1, standards[1]));
	atomic_store(&came_back, true);
	return NULL;
}

/* The lock would be left for ever. */
SCENARIO(pool_set_by_a_cancelled_thread, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUstream stream = two_devices();
	pthread_t victim;

	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	alarm(8);
	pthread_create(&victim, NULL, is_cancelled_in_a_set, NULL);
	pthread_join(victim, NULL);
	must(atomic_load(&came_back), "a thread has ended inside a call");
	OK(cuDeviceSetMemPool(1, own));
}

SCENARIO(own_contexts_are_cudas)
{
	CUcontext ctx;
	CUstream stream;

	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1, "memory that would go with its context");
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

SCENARIO(trim_gives_back_what_is_done, "GCPSIM_MEMORY=4G")
{
	uint64_t before = gcpsim_memory_used(0);
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr held;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	held = allocated_in(stream, MIB);
	freed_bytes(stream, 64 * MIB);
	OK(cuStreamSynchronize(stream));
	OK(cuMemPoolTrimTo(pool, 128 * MIB));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB,
	     "kept too little");
	OK(cuMemPoolTrimTo(pool, 0));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 18 * MIB,
	     "kept too much");
	must(gcpsim_memory_used(0) <= before + 18 * MIB,
	     "the device has not got it back");
	OK(cuMemsetD8Async(held, 1, MIB, stream));
	OK(cuMemFreeAsync(held, stream));
	must_be_in_order();
}

SCENARIO(trim_waits_for_nothing, "GCPSIM_MEMORY=4G")
{
	CUmemoryPool pool;
	CUstream stream;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	gcpsim_set_speed(GCPSIM_NEVER);
	freed_bytes(stream, 64 * MIB);
	OK(cuMemPoolTrimTo(pool, 0));
	must(gcpsim_pending() > 0, "the work is done");
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB,
	     "what is in use was given back");
	must_be_in_order();
}

SCENARIO(trim_beside_a_capture, "GCPSIM_MEMORY=4G")
{
	CUmemoryPool pool;
	CUstream stream, captured;
	CUgraph graph;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	captured = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	freed_bytes(stream, 64 * MIB);
	OK(cuStreamSynchronize(stream));
	OK(cuMemPoolTrimTo(pool, 0));
	OK(cuStreamEndCapture(captured, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuMemPoolTrimTo(pool, 0));
	must(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 16 * MIB,
	     "kept too much");
	must_be_in_order();
}

SCENARIO(figures_of_a_block)
{
	CUmemoryPool pool, standard;
	CUcontext ctx, here = primary();
	CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = allocated_in(stream, 1000), plain = allocated(1000), base;
	size_t bytes;

	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + 10));
	must(pool == standard, "the block is in no pool");
	OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain));
	must(!pool, "memory of cuMemAlloc is in a pool");
	OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	must(!ctx, "the block is of a context");
	OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, plain));
	must(ctx == here, "memory of cuMemAlloc is of no context");
	OK(cuMemGetAddressRange(&base, &bytes, p + 10));
	must(base == p && bytes == 1000, "the range");
}

/* Plain CUDA makes none (driver 580, measured). */
SCENARIO(handle_of_stream_ordered_memory)
{
	CUstream stream = (primary(), stream_new(CU_STREAM_NON_BLOCKING));
	CUdeviceptr p = allocated_in(stream, MIB);
	CUipcMemHandle handle;
	int able = 1;

	must(cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_INVALID_VALUE,
	     "a handle that plain CUDA does not make");
	OK(cuPointerGetAttribute(&able, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
				 p));
	must(!able, "the attribute promises one");
}

/* A graph's memory comes from CUDA, with the device full of what the pool has cached.
 */
SCENARIO(threshold_of_what_is_cudas)
{
	CUmemoryPool pool, standard;
	CUcontext ctx;
	CUstream stream;

	OK(cuDeviceGetDefaultMemPool(&standard, 0));
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(gcpsim_calls("cuMemPoolSetAttribute") == 1, "CUDA's pool keeps nothing");
	must(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0, "the program sees it");
	OK(cuDeviceGetMemPool(&pool, 0));
	must(pool == standard, "another pool");
}

/* As programs do at their start. */
SCENARIO(threshold_set_before_all_else)
{
	cuuint64_t threshold = 4 * MIB;
	CUmemoryPool pool;
	CUcontext ctx;
	CUstream stream;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(gcpsim_calls("cuMemPoolSetAttribute") == 1, "the library has set it");
	must(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold,
	     "it is not what the program has set");
}

/* --- threads ------------------------------------------------------------------ */

static void *allocates_in_a_stream(void *ctx)
{
	CUstream stream;

	OK(cuCtxSetCurrent(ctx));
	stream = stream_new(CU_STREAM_DEFAULT);
	freed_bytes(stream, MIB);
	OK(cuStreamDestroy(stream));
	return NULL;
}

/* Each has events of its own for the streams that the legacy one is tied to. */
SCENARIO(threads_that_are_gone_leave_their_events)
{
	CUcontext ctx = primary();
	uint64_t events = 0;
	pthread_t thread;

	for (int i = 0; i < 40; i++) {
		if (i == 8)
			events = gcpsim_calls("cuEventCreate");
		pthread_create(&thread, NULL, allocates_in_a_stream, ctx);
		pthread_join(thread, NULL);
	}
	must(gcpsim_calls("cuEventCreate") <= events + 8, "each makes new ones");
	must_be_in_order();
}

/* --- other devices ------------------------------------------------------------ */

static void access_give(CUmemLocationType type, int id)
{
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemoryPool pool;

	access.location.type = type;
	access.location.id = id;
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAccess(pool, &access, 1));
}

/* By the second device. */
static void used_by_another(CUdeviceptr p)
{
	CUcontext other;

	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxPushCurrent(other));
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuCtxSynchronize());
	OK(cuCtxPopCurrent(&other));
	must(gcpsim_faults() == 0, "it has no access");
}

SCENARIO(access_of_a_device_given_before_all_else,
	 "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUstream stream;
	CUdeviceptr p;

	primary();
	access_give(CU_MEM_LOCATION_TYPE_DEVICE, 1);
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	p = allocated_in(stream, MIB);
	must(real_calls() == 0, "it is not served");
	used_by_another(p);
	OK(cuMemFreeAsync(p, stream));
}

/* To what is there, and what will be. */
SCENARIO(access_given_later, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUdeviceptr old, new;
	CUstream stream;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	old = allocated_in(stream, MIB);
	access_give(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	access_give(CU_MEM_LOCATION_TYPE_DEVICE, 1);
	new = allocated_in(stream, 64 * MIB);
	must(real_calls() == 0, "it is not served");
	used_by_another(old);
	used_by_another(new);
	OK(cuMemFreeAsync(old, stream));
	OK(cuMemFreeAsync(new, stream));
}

SCENARIO(access_of_the_host_is_cudas, "GCPOOL_BACKEND=vmm")
{
	CUstream stream;

	primary();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 0, "it is not served");
	access_give(CU_MEM_LOCATION_TYPE_HOST, 0);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1, "memory that the host cannot reach");
}

SCENARIO(access_given_before_all_else, "GCPOOL_BACKEND=vmm")
{
	CUstream stream;

	primary();
	access_give(CU_MEM_LOCATION_TYPE_HOST, 0);
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuMemFreeAsync(allocated_in(stream, MIB), stream));
	must(real_calls() == 1, "memory that the host cannot reach");
}
