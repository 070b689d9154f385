/* SPDX-License-Identifier: MIT */
/*
 * probe_capture.c - prints facts about captures that are given up: whether user
 * objects of the graph being captured are destroyed when its stream, or its
 * context, is destroyed, and what CUDA says of the stream then; and when those of
 * a running executable are. Run plain, on a GPU.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

static struct {
	typeof(cuInit) *init;
	typeof(cuCtxCreate) *ctx_create;
	typeof(cuCtxDestroy) *ctx_destroy;
	typeof(cuCtxSetCurrent) *ctx_set;
	typeof(cuDevicePrimaryCtxRetain) *primary_retain;
	typeof(cuDevicePrimaryCtxReset) *primary_reset;
	typeof(cuStreamCreate) *stream_create;
	typeof(cuStreamDestroy) *stream_destroy;
	typeof(cuStreamSynchronize) *stream_sync;
	typeof(cuStreamBeginCapture) *begin;
	typeof(cuStreamEndCapture) *end;
	typeof(cuStreamGetCaptureInfo) *info;
	typeof(cuStreamIsCapturing) *capturing;
	typeof(cuUserObjectCreate) *object_create;
	typeof(cuGraphRetainUserObject) *graph_retain;
	typeof(cuGraphDestroy) *graph_destroy;
	typeof(cuMemAlloc) *alloc;
	typeof(cuMemFree) *free;
	typeof(cuCtxSynchronize) *sync;
	typeof(cuLaunchHostFunc) *host;
	typeof(cuGraphInstantiateWithFlags) *instantiate;
	typeof(cuGraphLaunch) *launch;
	typeof(cuGraphExecUpdate) *update;
	typeof(cuGraphExecDestroy) *exec_destroy;
} cuda;

static atomic_int destroyed;

static void CUDA_CB count(void *arg)
{
	(void)arg;
	atomic_fetch_add(&destroyed, 1);
}

/* Whether the destructor ran, within half a second. */
static const char *ran(int before)
{
	for (int i = 0; i < 50 && atomic_load(&destroyed) == before; i++)
		usleep(10000);
	return atomic_load(&destroyed) == before ? "did NOT run" : "ran";
}

static void tell(const char *when, CUstream stream)
{
	CUstreamCaptureStatus status = (CUstreamCaptureStatus)-1;
	cuuint64_t id = 0;
	CUgraph graph = NULL;
	CUresult result = cuda.info(stream, &status, &id, &graph, NULL, NULL, NULL);

	printf("  %s: cuStreamGetCaptureInfo code %d, status %d, id %llu, graph %s\n",
	       when, result, (int)status, (unsigned long long)id,
	       graph ? "given" : "none");
}

/* A stream that captures, with a user object on its graph. */
static CUstream capture_new(CUstreamCaptureMode mode)
{
	CUstreamCaptureStatus status;
	CUuserObject object = NULL;
	CUgraph graph = NULL;
	CUstream stream;
	cuuint64_t id;
	CUresult results[5];

	results[0] = cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING);
	results[1] = cuda.begin(stream, mode);
	results[2] = cuda.info(stream, &status, &id, &graph, NULL, NULL, NULL);
	results[3] = cuda.object_create(&object, NULL, count, 1,
					CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	results[4] = cuda.graph_retain(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
	for (int i = 0; i < 5; i++)
		if (results[i])
			printf("  preparation %d failed: code %d\n", i, results[i]);
	tell("while capturing", stream);
	return stream;
}

/* What other calls of the process say once the capture has been given up. */
static void aftermath(void)
{
	CUdeviceptr p = 0;
	CUresult result = cuda.alloc(&p, 4096);

	printf("  afterwards: cuMemAlloc code %d", result);
	if (!result)
		printf(", cuMemFree code %d", cuda.free(p));
	printf(", cuCtxSynchronize code %d\n", cuda.sync());
}

static void stream_destroyed(CUstreamCaptureMode mode, const char *name)
{
	int before = atomic_load(&destroyed);
	CUstream stream;
	CUresult result;

	printf("stream destroyed while capturing, %s mode\n", name);
	stream = capture_new(mode);
	result = cuda.stream_destroy(stream);
	printf("  cuStreamDestroy code %d; the destructor %s\n", result, ran(before));
	if (result) {
		CUgraph graph = NULL;

		tell("then", stream);
		result = cuda.end(stream, &graph);
		printf("  cuStreamEndCapture code %d, graph %s\n", result,
		       graph ? "given" : "none");
		if (graph)
			cuda.graph_destroy(graph);
		result = cuda.stream_destroy(stream);
		printf("  cuStreamDestroy code %d; the destructor %s\n", result,
		       ran(before));
	}
	aftermath();
}

static void invalidated(void)
{
	int before = atomic_load(&destroyed);
	CUgraph graph = NULL;
	CUstream stream;
	CUresult result;

	printf("capture invalidated by synchronizing, then the stream destroyed\n");
	stream = capture_new(CU_STREAM_CAPTURE_MODE_GLOBAL);
	printf("  cuStreamSynchronize code %d\n", cuda.stream_sync(stream));
	tell("then", stream);
	result = cuda.stream_destroy(stream);
	printf("  cuStreamDestroy code %d; the destructor %s\n", result, ran(before));
	aftermath();

	before = atomic_load(&destroyed);
	printf("capture invalidated, then ended\n");
	stream = capture_new(CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuda.stream_sync(stream);
	result = cuda.end(stream, &graph);
	printf("  cuStreamEndCapture code %d; the destructor %s\n", result,
	       ran(before));
	tell("then", stream);
	cuda.stream_destroy(stream);
}

static atomic_int finished;

static void CUDA_CB slow(void *arg)
{
	(void)arg;
	usleep(300000);
	atomic_fetch_add(&finished, 1);
}

/* A graph with a slow host function and a user object. */
static CUgraph graph_slow(void)
{
	CUstream stream = capture_new(CU_STREAM_CAPTURE_MODE_RELAXED);
	CUgraph graph = NULL;
	CUresult results[2];

	results[0] = cuda.host(stream, slow, NULL);
	results[1] = cuda.end(stream, &graph);
	if (results[0] || results[1])
		printf("  codes %d, %d\n", results[0], results[1]);
	cuda.stream_destroy(stream);
	return graph;
}

/* Whether an executable that is updated, or destroyed, while it runs keeps the
 * user objects of what is running. */
static void inflight(bool update)
{
	CUgraph first = graph_slow(), second = graph_slow();
	int before = atomic_load(&destroyed), done = atomic_load(&finished);
	CUgraphExecUpdateResultInfo info;
	CUstreamCaptureStatus status;
	CUgraphExec exec = NULL;
	CUresult results[4];
	bool early;
	CUstream stream;

	printf("executable %s while a launch of 300 ms is in flight\n",
	       update ? "updated" : "destroyed");
	cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING);
	results[0] = cuda.instantiate(&exec, first, 0);
	results[1] = cuda.graph_destroy(first);
	results[2] = cuda.launch(exec, stream);
	results[3] =
	    update ? cuda.update(exec, second, &info) : cuda.exec_destroy(exec);
	printf("  codes %d, %d, %d, %d\n", results[0], results[1], results[2],
	       results[3]);
	for (int i = 0; i < 1000 && atomic_load(&destroyed) == before &&
			atomic_load(&finished) == done;
	     i++) {
		cuda.capturing(stream, &status); /* some call */
		usleep(1000);
	}
	early = atomic_load(&destroyed) != before && atomic_load(&finished) == done;
	printf("  the destructor %s before the launch was done\n",
	       early ? "RAN" : "did not run");
	cuda.stream_sync(stream);
	printf("  after the launch: the destructor %s\n", ran(before));
	if (update)
		cuda.exec_destroy(exec);
	cuda.graph_destroy(second);
	cuda.stream_destroy(stream);
}

/* Facts about a handle that is gone may end the process: these come last. */
static void context_destroyed(CUcontext primary)
{
	int before = atomic_load(&destroyed);
	CUcontext own;
	CUresult result;

	printf("own context destroyed while one of its streams captures\n");
	result = cuda.ctx_create(&own, NULL, 0, 0);
	if (result) {
		printf("  cuCtxCreate code %d\n", result);
		return;
	}
	capture_new(CU_STREAM_CAPTURE_MODE_GLOBAL);
	printf("  cuCtxDestroy code %d; the destructor %s\n", cuda.ctx_destroy(own),
	       ran(before));
	cuda.ctx_set(primary);
	aftermath();
}

static void primary_reset(void)
{
	int before = atomic_load(&destroyed);
	CUcontext primary;
	CUresult result;

	printf("primary context reset while one of its streams captures\n");
	capture_new(CU_STREAM_CAPTURE_MODE_GLOBAL);
	result = cuda.primary_reset(0);
	printf("  cuDevicePrimaryCtxReset code %d; the destructor %s\n", result,
	       ran(before));
	cuda.primary_retain(&primary, 0);
	cuda.ctx_set(primary);
	aftermath();
}

static void handle_used_after(void)
{
	CUstreamCaptureStatus status = (CUstreamCaptureStatus)-1;
	CUstream stream;
	CUresult result;

	printf("the handle of a stream that was destroyed while capturing\n");
	stream = capture_new(CU_STREAM_CAPTURE_MODE_RELAXED);
	printf("  cuStreamDestroy code %d\n", cuda.stream_destroy(stream));
	fflush(stdout);
	tell("then", stream);
	fflush(stdout);
	result = cuda.capturing(stream, &status);
	printf("  cuStreamIsCapturing code %d, status %d\n", result, (int)status);
}

#define STRING(name)      #name
#define TEXT(name)        STRING(name)
#define FIND(field, name) (cuda.field = (typeof(cuda.field))dlsym(driver, TEXT(name)))

static int find_all(void *driver)
{
	return FIND(init, cuInit) && FIND(ctx_create, cuCtxCreate) &&
	       FIND(ctx_destroy, cuCtxDestroy) && FIND(ctx_set, cuCtxSetCurrent) &&
	       FIND(primary_retain, cuDevicePrimaryCtxRetain) &&
	       FIND(primary_reset, cuDevicePrimaryCtxReset) &&
	       FIND(stream_create, cuStreamCreate) &&
	       FIND(stream_destroy, cuStreamDestroy) &&
	       FIND(stream_sync, cuStreamSynchronize) &&
	       FIND(begin, cuStreamBeginCapture) && FIND(end, cuStreamEndCapture) &&
	       FIND(info, cuStreamGetCaptureInfo) &&
	       FIND(capturing, cuStreamIsCapturing) &&
	       FIND(object_create, cuUserObjectCreate) &&
	       FIND(graph_retain, cuGraphRetainUserObject) &&
	       FIND(graph_destroy, cuGraphDestroy) && FIND(alloc, cuMemAlloc) &&
	       FIND(free, cuMemFree) && FIND(sync, cuCtxSynchronize) &&
	       FIND(host, cuLaunchHostFunc) &&
	       FIND(instantiate, cuGraphInstantiateWithFlags) &&
	       FIND(launch, cuGraphLaunch) && FIND(update, cuGraphExecUpdate) &&
	       FIND(exec_destroy, cuGraphExecDestroy);
}

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext primary;

	if (!driver || !find_all(driver) || cuda.init(0) ||
	    cuda.primary_retain(&primary, 0) || cuda.ctx_set(primary)) {
		printf("no driver, no device, or too old a driver\n");
		return 77;
	}
	stream_destroyed(CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
	stream_destroyed(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local");
	stream_destroyed(CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
	invalidated();
	inflight(false);
	inflight(true);
	fflush(stdout);
	context_destroyed(primary);
	fflush(stdout);
	primary_reset();
	fflush(stdout);
	handle_used_after();
	return 0;
}
