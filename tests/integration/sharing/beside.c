/* SPDX-License-Identifier: MIT */
/*
 * beside.c - memory that a graph uses, while streams and contexts come and go beside
 * its capture, and other captures free it: no allocation gets it while the graph is
 * there.
 *
 *   beside SCENARIO    plays one; 0: all is as it should be
 *
 * Environment: GCPOOL_GRAPH_SHARE=1 GCPOOL_BACKEND=vmm GCPSIM_DEVICES=2
 */
#include <dlfcn.h>

#include "../../../interpose/gcpool.h"
#include "scenarios.h"

enum { BYTES = 4 << 20, TRIES = 20 };

static CUcontext context;
static CUstream stream;
static CUdeviceptr in_graph, small;

static CUstream stream_new(void)
{
	CUstream new;

	OK(cuStreamCreate(&new, CU_STREAM_NON_BLOCKING));
	return new;
}

static void begin(void)
{
	context = primary();
	stream = stream_new();
	small = allocated(1024);
}

/* What a thread does in the capture of another one, which has begun it on `stream`. */
static void *thread_of(void *arg)
{
	OK(cuCtxSetCurrent(context));
	OK(cuMemsetD8Async(small, 1, 1024, stream)); /* it is captured */
	((void (*)(void))arg)();
	OK(cuMemsetD8Async(in_graph, 7, BYTES, stream));
	return NULL;
}

static void do_elsewhere(void *(*what)(void *), void *arg)
{
	pthread_t thread;

	pthread_create(&thread, NULL, what, arg);
	pthread_join(thread, NULL);
}

/* No allocation gets what the graph writes, and keeps what is written there. */
static void the_graph_keeps_its_memory(void)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuCtxSynchronize());
	for (int i = 0; i < TRIES; i++)
		must(allocated(BYTES) != in_graph, "memory of a graph is given out");
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
}

static void in_capture(enum CUstreamCaptureMode_enum mode, void (*what)(void))
{
	OK(cuStreamBeginCapture(stream, mode));
	do_elsewhere(thread_of, (void *)what);
	the_graph_keeps_its_memory();
}

static void take_and_free(void)
{
	in_graph = allocated(BYTES);
	OK(cuMemFree(in_graph));
}

/* --- streams and contexts that go ----------------------------------------------- */

static CUstream other_stream;

static void *destroy_stream(void *arg)
{
	(void)arg;
	OK(cuStreamDestroy(other_stream));
	return NULL;
}

static void take_after_a_stream_has_gone(void)
{
	do_elsewhere(destroy_stream, NULL);
	take_and_free();
}

SCENARIO(a_stream_goes_beside_a_capture)
{
	begin();
	other_stream = stream_new();
	in_capture(CU_STREAM_CAPTURE_MODE_RELAXED, take_after_a_stream_has_gone);
}

static CUcontext other_context;
static pthread_t destroyer;
static atomic_bool may_end, has_begun;

static void until_told(void *arg)
{
	(void)arg;
	atomic_store(&has_begun, true);
	while (!atomic_load(&may_end))
		sched_yield();
}

static void *destroy_context(void *arg)
{
	(void)arg;
	OK(cuCtxDestroy(other_context));
	return NULL;
}

static void take_while_a_context_ends(void)
{
	pthread_create(&destroyer, NULL, destroy_context, NULL);
	while (!atomic_load(&has_begun))
		sched_yield();
	usleep(100000); /* it waits for that work, in its call */
	take_and_free();
	atomic_store(&may_end, true);
	pthread_join(destroyer, NULL);
}

SCENARIO(a_context_ends_beside_a_capture)
{
	CUstream there;

	begin();
	OK(cuCtxCreate(&other_context, NULL, 0, 1));
	there = stream_new();
	OK(cuLaunchHostFunc(there, until_told, NULL));
	OK(cuCtxSetCurrent(context));
	in_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, take_while_a_context_ends);
}

/* --- a stream that the program names --------------------------------------------- */

static __typeof__(gcpool_malloc) *named_malloc;
static __typeof__(gcpool_free) *named_free;

static void *take_named(void *arg)
{
	void *p;

	(void)arg;
	OK(cuCtxSetCurrent(context));
	must(named_malloc(&p, BYTES, 0, stream) == 0, "gcpool_malloc");
	in_graph = (CUdeviceptr)p;
	OK(cuMemsetD8Async(in_graph, 7, BYTES, stream));
	must(named_free(p, stream) == 0, "gcpool_free");
	return NULL;
}

static void *begin_relaxed(void *arg)
{
	OK(cuCtxSetCurrent(context));
	OK(cuStreamBeginCapture(arg, CU_STREAM_CAPTURE_MODE_RELAXED));
	return NULL;
}

/* The thread has not worked on the stream; and one that captures on another one. */
SCENARIO(a_named_stream_captures)
{
	CUstream own;
	CUgraph graph;

	begin();
	*(void **)&named_malloc = dlsym(RTLD_DEFAULT, "gcpool_malloc");
	*(void **)&named_free = dlsym(RTLD_DEFAULT, "gcpool_free");
	if (!named_malloc)
		return; /* plain CUDA */
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	do_elsewhere(take_named, NULL);
	the_graph_keeps_its_memory();

	own = stream_new();
	do_elsewhere(begin_relaxed, stream);
	OK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD8Async(small, 1, 1024, own));
	(void)take_named(NULL);
	OK(cuStreamEndCapture(own, &graph));
	OK(cuGraphDestroy(graph));
	the_graph_keeps_its_memory();
}

/* --- results -------------------------------------------------------------------- */

static CUgraph captured_result(CUdeviceptr *ret_result)
{
	CUdeviceptr scratch;
	CUgraph graph;

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	*ret_result = allocated(BYTES);
	OK(cuMemsetD8Async(*ret_result, 1, BYTES, stream));
	scratch = allocated(BYTES);
	OK(cuMemsetD8Async(scratch, 2, BYTES, stream));
	OK(cuMemFree(scratch));
	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

/* Another graph reads what the first one leaves, and its capture frees that before the
 * first one shares memory: when it is instantiated. */
SCENARIO(a_result_is_freed_in_another_capture)
{
	CUdeviceptr result, out, scratch[2];
	CUgraphExec execs[2];
	CUgraph graphs[2];
	unsigned char found = 0;

	begin();
	out = allocated(BYTES);
	graphs[0] = captured_result(&result);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < 2; i++) {
		scratch[i] = allocated(BYTES);
		OK(cuMemsetD8Async(scratch[i], 3, BYTES, stream));
	}
	OK(cuMemcpyDtoDAsync(out, result, BYTES, stream));
	OK(cuMemFree(result));
	for (int i = 0; i < 2; i++)
		OK(cuMemFree(scratch[i]));
	OK(cuStreamEndCapture(stream, &graphs[1]));
	for (int i = 0; i < 2; i++)
		OK(cuGraphInstantiateWithFlags(&execs[i], graphs[i], 0));
	for (int turn = 0; turn < 4; turn++) {
		for (int i = 0; i < 2; i++)
			OK(cuGraphLaunch(execs[i], stream));
		OK(cuStreamSynchronize(stream));
		OK(cuMemcpyDtoH(&found, out, 1));
		must(found == 1, "a result is overwritten");
	}
}

/* What a capture may use for any work lies in ordinary segments, which the graph leaves
 * to the pool: other devices that get access to the default pool do not reach them. */
SCENARIO(what_a_graph_leaves_is_not_for_other_devices)
{
	CUgraph graph;

	begin();
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemFree(allocated(BYTES)));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuCtxSynchronize());
	must(gcpsim_calls("cuMemAlloc_v2") > 0, "the graph had a segment");
	OK(cuMemAllocAsync(&small, BYTES, stream));
	must(gcpsim_calls("cuMemAllocAsync") == 1, "it comes from that segment");
}
