/* SPDX-License-Identifier: MIT */
/*
 * edge_cases.c - situations that ordinary programs rarely meet, each written for the
 * simulated device, where it shows whether what plain CUDA promises is kept.
 *
 *   edge_cases SCENARIO    plays one; 0: all is as on plain CUDA
 */
#include <dlfcn.h>

#include "scenarios.h"

static CUcontext context_new(CUstream *ret_stream)
{
	CUcontext ctx;

	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	OK(cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING));
	return ctx;
}

/* --- cuMemFreeAsync ------------------------------------------------------------- */

/* A block that nothing can be put behind is not freed: the driver's code, and it stays.
 */
SCENARIO(free_where_a_context_cannot_be_entered)
{
	CUstream mine, others;
	CUcontext here;
	CUdeviceptr p;

	(void)context_new(&others);
	here = context_new(&mine);
	p = allocated(MIB);
	must(gcpsim_fail("cuCtxPushCurrent:1+:709") == 0, "no such plan");
	must(cuMemFreeAsync(p, others) == CUDA_ERROR_CONTEXT_IS_DESTROYED,
	     "freed, though nothing can be put behind the work");
	must(gcpsim_fail(NULL) == 0, "no plan");
	OK(cuCtxSetCurrent(here));
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuMemFreeAsync(p, others));
}

/* --- how much is free ------------------------------------------------------------ */

/* What cuMemGetInfo calls free can be had. */
SCENARIO(free_memory_beside_a_graph, "GCPSIM_MEMORY=1G")
{
	size_t unused, total, bytes = 128 * MIB;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	CUdeviceptr p;

	primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	p = allocated(bytes);
	OK(cuMemsetD8Async(p, 1, MIB, stream));
	OK(cuMemFree(p));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuMemGetInfo(&unused, &total));
	must(total - unused >= bytes, "the graph's memory counts as free");
	must(!cuMemAlloc(&p, unused - 4 * MIB), "what is free cannot be had");
	cuMemFree(p);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuMemGetInfo(&unused, &total));
	must(total - unused < bytes, "memory of a graph that is gone is not free");
}

/* --- pitched memory -------------------------------------------------------------- */

/* What CUDA says of a wrong element does not depend on captures. */
SCENARIO(pitch_of_a_wrong_element_in_a_capture)
{
	static const CUstreamCaptureMode modes[] = {
	    CU_STREAM_CAPTURE_MODE_GLOBAL,
	    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
	    CU_STREAM_CAPTURE_MODE_RELAXED,
	};
	CUstream stream;
	CUdeviceptr p;
	CUgraph graph;
	size_t pitch;

	primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	allocated(4096);
	for (int i = 0; i < 3; i++) {
		OK(cuStreamBeginCapture(stream, modes[i]));
		must(cuMemAllocPitch(&p, &pitch, 1000, 10, 3) ==
			 CUDA_ERROR_INVALID_VALUE,
		     "another code");
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuGraphDestroy(graph));
	}
	must(gcpsim_invalidated() == 0, "a capture was destroyed");
}

static void *pitch_elsewhere(void *arg)
{
	CUdeviceptr p;
	size_t pitch;

	OK(cuCtxSetCurrent(arg));
	OK(cuMemAllocPitch(&p, &pitch, 1000, 10, 4));
	OK(cuMemFree(p));
	return NULL;
}

/* The pitch cannot be learnt just now: a thread that does not capture gets what
 * CUDA gives, and one that does gets nothing, for no graph would keep it. */
SCENARIO(unknown_pitch_beside_a_capture)
{
	CUcontext ctx = primary();
	CUstream stream;
	CUdeviceptr p;
	CUgraph graph;
	pthread_t thread;
	size_t pitch;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	allocated(4096);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	gcpsim_fail("cuMemAllocPitch_v2:1");
	must(cuMemAllocPitch(&p, &pitch, 1000, 10, 4) == CUDA_ERROR_OUT_OF_MEMORY,
	     "a capture was given memory that its graph does not keep");
	gcpsim_fail("cuMemAllocPitch_v2:1");
	pthread_create(&thread, NULL, pitch_elsewhere, ctx);
	pthread_join(thread, NULL);
	OK(cuStreamEndCapture(stream, &graph));
}

/* --- contexts that stay ----------------------------------------------------------- */

static atomic_bool enough;

static void *retain_and_release(void *arg)
{
	CUcontext ctx;

	(void)arg;
	while (!enough) {
		OK(cuDevicePrimaryCtxRetain(&ctx, 0));
		OK(cuDevicePrimaryCtxRelease(0));
	}
	return NULL;
}

static void *allocate_once(void *arg)
{
	OK(cuCtxSetCurrent(arg));
	OK(cuMemFree(allocated(MIB)));
	return NULL;
}

/* One thread retains and releases the primary context, never the last time; others
 * that come and go find the memory of those before. */
SCENARIO(threads_beside_a_release)
{
	CUcontext ctx = primary();
	pthread_t releaser, thread;

	pthread_create(&releaser, NULL, retain_and_release, NULL);
	for (int i = 0; i < 1000; i++) {
		pthread_create(&thread, NULL, allocate_once, ctx);
		pthread_join(thread, NULL);
	}
	enough = true;
	pthread_join(releaser, NULL);
	must(gcpsim_memory_used(0) <= 64 * MIB, "memory was taken for each");
}

/* Memory that only fits when what is unused has gone back. */
SCENARIO(full_device_beside_a_release, "GCPSIM_MEMORY=256M")
{
	pthread_t releaser;
	unsigned refused = 0;
	CUdeviceptr p;

	primary();
	pthread_create(&releaser, NULL, retain_and_release, NULL);
	for (int i = 0; i < 1000; i++) {
		if (cuMemAlloc(&p, (i % 2 ? 160 : 100) * MIB))
			refused++;
		else
			OK(cuMemFree(p));
	}
	enough = true;
	pthread_join(releaser, NULL);
	must(refused == 0, "there was memory, and the library said there was none");
}

/* --- contexts that end -------------------------------------------------------- */

static atomic_bool waited_too_long;

/* Work that waits for the program's main thread. */
static void wait_for_enough(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000 && !enough; i++)
		usleep(1000);
	waited_too_long = !enough;
}

static void *destroy(void *arg)
{
	OK(cuCtxDestroy(arg));
	return NULL;
}

/* While one context is being destroyed, which waits for its work, and that for us,
 * another one goes on: with barriers, pinned memory and all. */
SCENARIO(
    destruction_that_waits_for_another_context,
    "GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1 GCPOOL_TEST_HOST_FENCE_BATCH=1")
{
	CUstream mine, others;
	CUcontext other = context_new(&others), here;
	uint64_t fences;
	pthread_t thread;
	CUdeviceptr p;
	void *pinned;

	(void)allocated(MIB);
	here = context_new(&mine);
	OK(cuMemAllocHost(&pinned, 4096));
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuLaunchHostFunc(others, wait_for_enough, NULL));
	pthread_create(&thread, NULL, destroy, other);
	usleep(100000);
	fences = gcpsim_calls("cuCtxRecordEvent") + gcpsim_calls("cuCtxWaitEvent");
	for (int i = 0; i < 200; i++) {
		OK(cuMemFreeHost(pinned));
		OK(cuMemAllocHost(&pinned, 4096));
	}
	must(gcpsim_calls("cuCtxRecordEvent") + gcpsim_calls("cuCtxWaitEvent") ==
		 fences,
	     "a context that is being destroyed was touched");
	for (int i = 0; i < 200; i++) {
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 1, MIB, mine));
		OK(cuMemFree(p));
		OK(cuCtxSetCurrent(here));
	}
	enough = true;
	pthread_join(thread, NULL);
	must(!waited_too_long, "the end of one context stopped the other");
	must(gcpsim_hazards() == 0, "memory was used again too early");
	/* And afterwards all is as before. */
	for (int i = 0; i < 200; i++) {
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 1, MIB, mine));
		OK(cuMemFree(p));
	}
	must(gcpsim_memory_used(0) < 1000 * MIB, "memory is not used again");
}

static void *make_and_destroy(void *arg)
{
	CUcontext ctx;
	CUdeviceptr p;

	(void)arg;
	for (int i = 0; i < 500; i++) {
		OK(cuDevicePrimaryCtxRetain(&ctx, 0));
		OK(cuCtxSetCurrent(ctx));
		p = allocated(MIB);
		OK(cuMemsetD8(p, 1, MIB));
		OK(cuCtxSynchronize());
		OK(cuMemFree(p));
		OK(cuCtxSetCurrent(NULL));
		OK(cuDevicePrimaryCtxRelease(0));
	}
	return NULL;
}

/* The primary context ends whenever none of the threads holds it, and comes again,
 * mostly with the same handle. */
SCENARIO(primary_context_that_comes_and_goes)
{
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, make_and_destroy, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	must(gcpsim_faults() == 0, "memory of a context that was gone was given out");
}

/* --- green contexts --- */

static CUgreenCtx green_new(void)
{
	CUdevResourceDesc description;
	CUdevResource all;
	CUgreenCtx green;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	OK(cuDevResourceGenerateDesc(&description, &all, 1));
	OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* The last green context ends the primary one, memory and all. */
SCENARIO(green_context_that_ends_the_primary)
{
	CUcontext ctx = primary();
	CUgreenCtx green = green_new(), other = green_new();
	CUdeviceptr p = allocated(MIB);

	OK(cuMemFree(p));
	must(cuDevicePrimaryCtxReset(0) == CUDA_ERROR_NOT_PERMITTED, "it was reset");
	OK(cuDevicePrimaryCtxRelease(0));
	p = allocated(MIB);
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuGreenCtxDestroy(other));
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuMemFree(p));
	OK(cuGreenCtxDestroy(green));
	must(cuMemAlloc(&p, MIB) == CUDA_ERROR_CONTEXT_IS_DESTROYED, "it lives on");
	must(primary() == ctx, "another primary context");
	p = allocated(MIB);
	OK(cuMemsetD8(p, 1, MIB));
	OK(cuCtxSynchronize());
	OK(cuMemFree(p));
	must(gcpsim_faults() == 0, "memory of a context that was gone was given out");
}

/* It has the memory of the primary context, and the pool of it. */
SCENARIO(green_contexts_have_the_pool)
{
	CUcontext ctx = primary(), green;
	uint64_t calls;

	OK(cuMemFree(allocated(MIB)));
	calls = gcpsim_calls("cuMemAlloc_v2");
	for (int i = 0; i < 2; i++) {
		OK(cuCtxFromGreenCtx(&green, green_new()));
		OK(cuCtxSetCurrent(green));
		OK(cuMemFree(allocated(MIB)));
	}
	OK(cuCtxSetCurrent(ctx));
	must(gcpsim_calls("cuMemAlloc_v2") == calls, "memory did not come of the pool");
}

/* --- barriers --- */

/* Where the thread's own context is gone CUDA says so of each: then none has been made
 * to wait, and the memory is not ready. */
SCENARIO(barrier_of_which_all_contexts_are_said_to_be_gone, "GCPOOL_TEST_WINDOW=0")
{
	CUstream streams[2];
	CUdeviceptr p;

	(void)primary();
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	gcpsim_set_speed(GCPSIM_NEVER);
	must(gcpsim_fail("cuCtxWaitEvent:1+:709") == 0, "no such plan");
	for (int i = 0; i < 16; i++) {
		p = allocated(8 * MIB);
		OK(cuMemsetD8Async(p, 1, 8 * MIB, streams[i / 4 % 2]));
		OK(cuMemFree(p));
	}
	must(gcpsim_calls("cuCtxWaitEvent") > 0, "no barrier was tried");
	OK(cuCtxSynchronize());
	must(gcpsim_hazards() == 0, "memory was used again too early");
}

/* It stands behind the barrier, as those that were there; the host waits for nothing.
 */
SCENARIO(context_made_behind_a_barrier, "GCPOOL_TEST_WINDOW=0")
{
	CUstream stream, other;
	uint64_t waits, pending;
	CUdeviceptr p;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 16; i++) {
		p = allocated(8 * MIB);
		OK(cuMemsetD8Async(p, 1, 8 * MIB, stream));
		OK(cuMemFree(p));
	}
	waits = gcpsim_calls("cuCtxWaitEvent");
	pending = gcpsim_pending();
	must(waits > 0 && pending > 0, "no barrier was set");
	(void)context_new(&other);
	must(gcpsim_calls("cuCtxWaitEvent") > waits, "it does not stand behind it");
	must(gcpsim_pending() >= pending, "the host has waited");
	p = allocated(8 * MIB);
	OK(cuMemsetD8Async(p, 1, 8 * MIB, other));
	OK(cuStreamSynchronize(other));
	OK(cuMemFree(p));
	must(gcpsim_hazards() == 0, "memory was used again too early");
}

/* A call that made none leaves what it was given as it was: no context, or another
 * one's handle. The pool goes on as with one context. */
SCENARIO(contexts_that_were_not_made, "GCPOOL_TEST_WINDOW=0")
{
	CUcontext ctx = primary(), wrong_one = (CUcontext)(uintptr_t)0x10;
	uint64_t used;
	CUstream stream;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	must(gcpsim_fail("cuCtxCreate:1+:2,cuCtxFromGreenCtx:1+:2,cuCtxSetCurrent:1+:2,"
			 "cuCtxPushCurrent:1:2,cuDevicePrimaryCtxRetain:1:2") == 0,
	     "no such plan");
	must(cuCtxCreate(&wrong_one, NULL, 0, 0) != CUDA_SUCCESS, "created");
	must(cuCtxFromGreenCtx(&wrong_one, NULL) != CUDA_SUCCESS, "it is green");
	must(cuCtxSetCurrent(wrong_one) != CUDA_SUCCESS, "current");
	must(cuCtxPushCurrent(wrong_one) != CUDA_SUCCESS, "pushed");
	must(cuDevicePrimaryCtxRetain(&wrong_one, 0) != CUDA_SUCCESS, "retained");
	must(cuCtxCreate(&ctx, NULL, 0, 0) != CUDA_SUCCESS, "created");
	must(gcpsim_fail(NULL) == 0, "no plan");
	gcpsim_set_speed(GCPSIM_NEVER);
	OK(cuMemFree(allocated(8 * MIB)));
	used = gcpsim_memory_used(0);
	for (int i = 0; i < 32; i++) {
		CUdeviceptr p = allocated(8 * MIB);

		OK(cuMemsetD8Async(p, 1, 8 * MIB, stream));
		OK(cuMemFree(p));
	}
	must(gcpsim_calls("cuCtxWaitEvent") > 0 &&
		 gcpsim_memory_used(0) <= used + 64 * MIB,
	     "no barrier is set, as with several contexts");
	must(gcpsim_misuses() == 0, "the driver was given a context that is none");
}

/* The end of a capture that has used memory again sets a barrier, and finds a second
 * primary context: a green one has made that, of code that the library does not see.
 * This is no reason to wait for work. */
SCENARIO(capture_whose_end_finds_a_context, "GCPSIM_DEVICES=2")
{
	CUstream stream, other;
	CUgraph graph;
	CUdeviceptr p;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	gcpsim_set_speed(GCPSIM_NEVER);
	p = allocated(8 * MIB);
	OK(cuMemsetD8Async(p, 1, 8 * MIB, other));
	(void)gcpsim_green_context(1);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < 4; i++) {
		p = allocated(MIB);
		OK(cuMemsetD8Async(p, 2, MIB, stream));
		OK(cuMemFree(p));
	}
	OK(cuStreamEndCapture(stream, &graph));
	must(cuStreamQuery(other) == CUDA_ERROR_NOT_READY, "work was waited for");
}

/* A green context makes a primary one, which joins the barriers that were set before.
 */
SCENARIO(green_context_joins_the_barriers, "GCPOOL_TEST_WINDOW=0")
{
	CUstream stream, other;
	CUcontext own;
	CUdeviceptr p;

	OK(cuCtxCreate(&own, NULL, 0, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	gcpsim_set_speed(GCPSIM_NEVER);
	for (int i = 0; i < 16; i++) {
		p = allocated(8 * MIB);
		OK(cuMemsetD8Async(p, 1, 8 * MIB, stream));
		OK(cuMemFree(p));
	}
	must(gcpsim_calls("cuCtxWaitEvent") > 0, "no barrier was set");
	p = allocated(8 * MIB);
	OK(cuGreenCtxStreamCreate(&other, green_new(), CU_STREAM_NON_BLOCKING, 0));
	OK(cuMemsetD8Async(p, 2, 8 * MIB, other));
	must(gcpsim_hazards() == 0, "memory was used again too early");
}

/* --- older drivers --- */

/* A driver with the oldest form of cuStreamGetCaptureInfo alone offers that one to
 * a caller that asks for a newer form: it says nothing of the order in the graph. */
SCENARIO(reuse_in_a_capture_of_unknown_order,
	 "GCPSIM_FAIL=cuGraphNodeGetDependencies_v2:1+:801")
{
	CUdeviceptr first, second;
	CUstream main_stream, side;
	CUevent early;

	primary();
	OK(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&early, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuEventRecord(early, main_stream));
	first = allocated(MIB);
	OK(cuMemsetD8Async(first, 1, MIB, main_stream));
	OK(cuMemFree(first));
	second = allocated(MIB);
	must(first != second, "the side stream may use it before the main one does");
	OK(cuStreamWaitEvent(side, early, 0));
}

/* --- events of a capture ------------------------------------------------------ */

/* A block is freed
 * after the work that an event stands for, and the event is recorded anew, in a way
 * that leaves it where it was. */

static void forks_from_the_old_place(void (*record)(CUevent event, CUstream stream))
{
	CUevent event, passing;
	CUstream main, side;
	CUdeviceptr p, q;
	CUgraph graph;

	context_new(&main);
	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&passing, CU_EVENT_DISABLE_TIMING));
	q = allocated(MIB);
	OK(cuStreamBeginCapture(main, CU_STREAM_CAPTURE_MODE_GLOBAL));
	p = allocated(3 * MIB);
	OK(cuMemsetD8Async(q, 1, MIB, main));
	OK(cuEventRecord(event, main));
	OK(cuMemsetD8Async(p, 1, 3 * MIB, main));
	OK(cuMemFree(p));
	allocated(3 * MIB); /* time to write down what was freed */
	record(event, main);
	OK(cuEventRecord(passing, main));
	OK(cuEventDestroy(passing)); /* and to look for a proof */
	must(allocated(3 * MIB) != p, "the block is used again beside its work");
	OK(cuStreamWaitEvent(side, event, 0));
	OK(cuEventRecord(event, side));
	OK(cuStreamWaitEvent(main, event, 0));
	OK(cuStreamEndCapture(main, &graph));
}

static void record_refused(CUevent event, CUstream stream)
{
	must(cuEventRecordWithFlags(event, stream, 0x80) == CUDA_ERROR_INVALID_VALUE,
	     "flags that there are not");
}

SCENARIO(event_record_refused_in_a_capture)
{
	forks_from_the_old_place(record_refused);
}

/* --- devices ------------------------------------------------------------------ */

/* A copy needs no access between the devices on plain CUDA; to mapped memory it does,
 * and the other one's context was there before that memory. */
SCENARIO(copies_to_a_device_that_was_used_first, "GCPSIM_DEVICES=2 GCPOOL_BACKEND=vmm")
{
	CUcontext other, here;
	CUdeviceptr to, from;

	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	here = primary();
	from = allocated(8 * MIB);
	OK(cuMemsetD8(from, 7, 8 * MIB));
	OK(cuCtxSetCurrent(other));
	to = allocated(8 * MIB);
	OK(cuMemcpyDtoD(to, from, 8 * MIB));
	OK(cuCtxSynchronize());
	OK(cuCtxSetCurrent(here));
	OK(cuMemcpyDtoD(from, to, 8 * MIB));
	OK(cuCtxSynchronize());
	must(gcpsim_faults() == 0, "the other device has no access");
}

/* --- handles of physical memory ----------------------------------------------- */

/* The program's own is told; what lies behind a block is others' as well. */
SCENARIO(handles_of_mapped_memory, "GCPOOL_BACKEND=vmm")
{
	CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle own, told = 0;
	CUdeviceptr block, p;

	(void)primary();
	block = allocated(8 * MIB);
	wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemCreate(&own, 2 * MIB, &wanted, 0));
	OK(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(p, 2 * MIB, 0, own, 0));
	must(cuMemRetainAllocationHandle(&told, (void *)(uintptr_t)block) ==
		 CUDA_ERROR_INVALID_VALUE,
	     "the handle of a block");
	OK(cuMemRetainAllocationHandle(&told, (void *)(uintptr_t)p));
	must(told == own, "another handle");
	OK(cuMemRelease(told));
	OK(cuMemUnmap(p, 2 * MIB));
	OK(cuMemRelease(own));
	OK(cuMemAddressFree(p, 2 * MIB));
}

SCENARIO(attributes_are_set)
{
	CUdeviceptr managed;
	int set = 1;

	(void)primary();
	OK(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				 allocated(MIB)));
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
				   (CUdeviceptr)(uintptr_t)&set) ==
		 CUDA_ERROR_INVALID_VALUE,
	     "set on the stack");
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				   allocated(MIB)) == CUDA_ERROR_INVALID_VALUE,
	     "the type is set");
	/* Of memory that is not the pool's it is the driver's to keep, and to refuse.
	 */
	OK(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	must(gcpsim_fail("cuPointerSetAttribute:1:999") == 0, "no such plan");
	must(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed) ==
		 CUDA_ERROR_UNKNOWN,
	     "another code");
}

/* --- the run ---------------------------------------------------------------------- */

enum { MANY_THREADS = 400 };
static pthread_barrier_t all_have_freed;

static void *frees_in_stream_order(void *ctx)
{
	CUdeviceptr p;

	OK(cuCtxSetCurrent(ctx));
	OK(cuMemAllocAsync(&p, 4096, NULL));
	OK(cuMemFreeAsync(p, NULL));
	pthread_barrier_wait(&all_have_freed);
	return NULL;
}

/* Each thread marks its free by an event; some are kept for other threads. */
SCENARIO(events_of_many_threads_are_few)
{
	CUcontext ctx = primary();
	pthread_t threads[MANY_THREADS];
	uint64_t left;

	pthread_barrier_init(&all_have_freed, NULL, MANY_THREADS);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY_THREADS; i++)
			pthread_create(&threads[i], NULL, frees_in_stream_order, ctx);
		for (int i = 0; i < MANY_THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	left = gcpsim_calls("cuEventCreate") - gcpsim_calls("cuEventDestroy_v2");
	must(left < MANY_THREADS, "events of threads that are gone");
}
