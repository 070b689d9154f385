/* SPDX-License-Identifier: MIT */
/*
 * conform_contexts.c - contexts that end while something is in them, and what their
 * handles are good for then: the transcript. Fences and green contexts are in
 * conform_fences.c.
 */
#include "conform_apart.h"

#include <pthread.h>

enum { SPIN_NS = 200000000 };

static CUcontext own;
static CUstream u; /* of `own` */

/* Makes `own` and leaves it current. */
static void new_own(void)
{
	MUST(cuCtxCreate(&own, NULL, 0, conform_device));
	u = new_stream(CU_STREAM_NON_BLOCKING);
}

static long long active(void)
{
	unsigned flags;
	int is = 9;

	MUST(cuDevicePrimaryCtxGetState(conform_device, &flags, &is));
	return is;
}

static long long is_current(CUcontext ctx)
{
	CUcontext now = NULL;

	MUST(cuCtxGetCurrent(&now));
	return now == ctx;
}

/* --- ends with a capture in it -------------------------------------------- */

static void own_with_a_capture(void)
{
	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	TELL(cuCtxDestroy(own));
	TELL(gone());
	TELL(is_current(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuCtxSynchronize());
	TELL(gone());
}

static void own_with_a_global_capture(void)
{
	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemAlloc(&(CUdeviceptr){0}, 4096));
	TELL(cuCtxSynchronize());
}

static void own_with_another_ones_capture(void)
{
	new_own();
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuCtxSynchronize());
	TELL(status_of(s));
	TELL(cuCtxDestroy(own));
	TELL(status_of(s));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(end(s));
}

static void reset_with_a_capture(void)
{
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(active());
	TELL(gone());
	TELL(cuCtxSynchronize());
	TELL(end(s));
}

static void released_with_a_capture(void)
{
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(active());
	TELL(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	TELL(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemAlloc(&p, 4096));
	TELL(cuCtxSynchronize());
}

/* The graph was captured in a context that is gone; another one is current. */
static void graph_of_a_dead_context(void)
{
	CUgraph g;

	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	MUST(cuMemsetD8Async(p, 0, 4, u));
	MUST(end(u));
	g = graph;
	TELL(cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(gone());
	TELL(cuGraphDestroy(g));
	TELL(gone());
}

static void exec_of_a_dead_context(void)
{
	CUgraphExec exec;

	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	MUST(cuMemsetD8Async(p, 0, 4, u));
	MUST(end(u));
	MUST(cuGraphInstantiate(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphLaunch(exec, u));
	TELL(cuCtxDestroy(own)); /* the driver crashes on its exec from now on */
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(gone());
}

static void objects_of_a_reset(void)
{
	CUgraphExec exec;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	MUST(conform_fill(p, 4, 1, s));
	MUST(end(s));
	MUST(cuGraphInstantiate(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphLaunch(exec, s));
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(gone());
	MUST(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(gone());
}

/* --- ends with work pending ----------------------------------------------- */

static int ran;

static void CUDA_CB count_run(void *data)
{
	struct timespec pause = {0, 100000000};

	(void)data;
	nanosleep(&pause, NULL);
	__atomic_fetch_add(&ran, 1, __ATOMIC_SEQ_CST);
}

/* Has a destroyed context's work been done when the call returns? */
static void own_with_work(void)
{
	new_own();
	MUST(cuLaunchHostFunc(u, count_run, NULL));
	TELL(cuCtxDestroy(own));
	TELL(ran);
}

static void reset_with_work(void)
{
	MUST(conform_spin(SPIN_NS, s));
	MUST(cuLaunchHostFunc(s, count_run, NULL));
	TELL(cuDevicePrimaryCtxReset(conform_device));
	TELL(ran);
	TELL(active());
	TELL(is_current(conform_ctx));
	TELL(cuMemAlloc(&p, 4096));
	TELL(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	TELL(is_current(conform_ctx));
	TELL(active());
	TELL(cuMemAlloc(&p, 4096));
}

static void released_with_work(void)
{
	MUST(conform_spin(SPIN_NS, s));
	MUST(cuLaunchHostFunc(s, count_run, NULL));
	TELL(cuDevicePrimaryCtxRelease(conform_device));
	TELL(ran);
	TELL(active());
}

/* --- is current elsewhere ------------------------------------------------- */

static pthread_barrier_t step;
static CUcontext shared_ctx;

static void *other_thread(void *unused)
{
	CUdeviceptr q;
	CUcontext ctx;

	MUST(cuCtxSetCurrent(shared_ctx));
	TELL(cuMemAlloc(&q, 4096));
	pthread_barrier_wait(&step); /* it ends */
	pthread_barrier_wait(&step);
	TELL(cuCtxGetCurrent(&ctx));
	TELL(ctx == shared_ctx);
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuCtxSynchronize());
	TELL(cuStreamCreate(&(CUstream){0}, 0));
	TELL(cuCtxGetDevice(&(CUdevice){0}));
	if (shared_ctx == conform_ctx)
		TELL(cuCtxPushCurrent(shared_ctx));
	TELL(cuCtxSetCurrent(shared_ctx));
	pthread_barrier_wait(&step); /* it may begin again */
	pthread_barrier_wait(&step);
	TELL(cuCtxGetCurrent(&ctx));
	TELL(ctx == shared_ctx);
	TELL(cuMemAlloc(&q, 4096));
	TELL(cuCtxPopCurrent(&ctx));
	TELL(cuCtxSetCurrent(NULL));
	return unused;
}

static void ends_elsewhere(CUresult (*finish)(void), CUresult (*again)(void))
{
	pthread_t thread;

	pthread_barrier_init(&step, NULL, 2);
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_barrier_wait(&step);
	TELL(finish());
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	TELL(again());
	pthread_barrier_wait(&step);
	pthread_join(thread, NULL);
}

static CUresult destroy_own(void)
{
	return cuCtxDestroy(own);
}

static CUresult release(void)
{
	return cuDevicePrimaryCtxRelease(conform_device);
}

static CUresult reset(void)
{
	return cuDevicePrimaryCtxReset(conform_device);
}

static CUresult retain(void)
{
	return cuDevicePrimaryCtxRetain(&conform_ctx, conform_device);
}

static CUresult stay(void)
{
	return CUDA_SUCCESS;
}

static void own_ends_elsewhere(void)
{
	new_own();
	shared_ctx = own;
	ends_elsewhere(destroy_own, stay);
}

static void primary_released_elsewhere(void)
{
	shared_ctx = conform_ctx;
	ends_elsewhere(release, retain);
}

static void primary_reset_elsewhere(void)
{
	shared_ctx = conform_ctx;
	ends_elsewhere(reset, retain);
}

/* --- handles of the dead -------------------------------------------------- */

static CUevent dead_event;

/* `own`, `u` and dead_event are no more. */
static void bury(void)
{
	new_own();
	dead_event = new_event();
	MUST(cuEventRecord(dead_event, u));
	MUST(cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
}

/* Of a primary context: its handle stays good, as one sees. */
static void dead_context_made_current(void)
{
	CUcontext ctx;

	MUST(cuCtxSetCurrent(NULL));
	MUST(cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuCtxSetCurrent(conform_ctx));
	TELL(is_current(conform_ctx));
	TELL(cuMemAlloc(&p, 4096));
	TELL(active());
	TELL(cuCtxGetDevice(&(CUdevice){0}));
	TELL(cuCtxPushCurrent(conform_ctx));
	TELL(cuCtxPopCurrent(&ctx));
	TELL(ctx == conform_ctx);
	TELL(cuCtxSetCurrent(NULL));
}

static void null_context_recorded(void)
{
	CUevent done = new_event();

	TELL(cuCtxRecordEvent(NULL, done));
	TELL(cuCtxWaitEvent(NULL, done));
	TELL(cuCtxPushCurrent(NULL));
	TELL(cuCtxDestroy(NULL));
}

static void dead_event_queried(void)
{
	bury();
	TELL(cuEventQuery(dead_event));
}

static void dead_event_waited_for(void)
{
	bury();
	TELL(cuStreamWaitEvent(s, dead_event, 0));
}

static void dead_event_destroyed(void)
{
	bury();
	TELL(cuEventDestroy(dead_event));
}

int main(int argc, char **argv)
{
	apart_init(argc, argv);
	APART(own_with_a_capture);
	APART(own_with_a_global_capture);
	APART(own_with_another_ones_capture);
	APART(reset_with_a_capture);
	APART(released_with_a_capture);
	APART(graph_of_a_dead_context);
	APART(exec_of_a_dead_context);
	APART(objects_of_a_reset);
	APART(own_with_work);
	APART(reset_with_work);
	APART(released_with_work);
	APART(own_ends_elsewhere);
	APART(primary_released_elsewhere);
	APART(primary_reset_elsewhere);
	APART(dead_context_made_current);
	APART(null_context_recorded);
	APART(dead_event_queried);
	APART(dead_event_waited_for);
	APART(dead_event_destroyed);
	return 0;
}
