/* SPDX-License-Identifier: MIT */
/*
 * conform_contexts.c - contexts that end while something is in them, and what their
 * handles are good for then: the transcript. Fences and green contexts are in
 * conform_fences.c.
 */
#include "conform_sections.h"

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

SECTION(own_with_a_capture)
{
	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	TELL(cuCtxDestroy(own), gone(), is_current(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuCtxSynchronize(), gone());
}

SECTION(own_with_a_global_capture)
{
	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(cuMemAlloc(&(CUdeviceptr){0}, 4096), cuCtxSynchronize());
}

SECTION(own_with_another_ones_capture)
{
	new_own();
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuCtxSynchronize(), status_of(s), cuCtxDestroy(own), status_of(s));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(end(s));
}

SECTION(reset_with_a_capture)
{
	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	TELL(cuDevicePrimaryCtxReset(conform_device), active(), gone());
	TELL(cuCtxSynchronize(), end(s));
}

SECTION(released_with_a_capture)
{
	begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	TELL(cuDevicePrimaryCtxRelease(conform_device), active());
	TELL(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	TELL(cuCtxSetCurrent(conform_ctx), cuMemAlloc(&p, 4096), cuCtxSynchronize());
}

/* The graph was captured in a context that is gone; another one is current. */
SECTION(graph_of_a_dead_context)
{
	CUgraph g;

	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	MUST(cuMemsetD8Async(p, 0, 4, u), end(u));
	g = graph;
	TELL(cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(gone(), cuGraphDestroy(g), gone());
}

SECTION(exec_of_a_dead_context)
{
	CUgraphExec exec;

	new_own();
	begin(u, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(u));
	MUST(cuMemsetD8Async(p, 0, 4, u), end(u), cuGraphInstantiate(&exec, graph, 0));
	MUST(cuGraphDestroy(graph), cuGraphLaunch(exec, u));
	TELL(cuCtxDestroy(own)); /* the driver crashes on its exec from now on */
	MUST(cuCtxSetCurrent(conform_ctx));
	TELL(gone());
}

SECTION(objects_of_a_reset)
{
	CUgraphExec exec;

	begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	attach(captured_graph(s));
	MUST(conform_fill(p, 4, 1, s), end(s), cuGraphInstantiate(&exec, graph, 0));
	MUST(cuGraphDestroy(graph), cuGraphLaunch(exec, s));
	TELL(cuDevicePrimaryCtxReset(conform_device), gone());
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
SECTION(own_with_work)
{
	new_own();
	MUST(cuLaunchHostFunc(u, count_run, NULL));
	TELL(cuCtxDestroy(own), ran);
}

SECTION(reset_with_work)
{
	MUST(conform_spin(SPIN_NS, s), cuLaunchHostFunc(s, count_run, NULL));
	TELL(cuDevicePrimaryCtxReset(conform_device), ran, active());
	TELL(is_current(conform_ctx), cuMemAlloc(&p, 4096));
	TELL(cuDevicePrimaryCtxRetain(&conform_ctx, conform_device));
	TELL(is_current(conform_ctx), active(), cuMemAlloc(&p, 4096));
}

SECTION(released_with_work)
{
	MUST(conform_spin(SPIN_NS, s), cuLaunchHostFunc(s, count_run, NULL));
	TELL(cuDevicePrimaryCtxRelease(conform_device), ran, active());
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
	TELL(cuCtxGetCurrent(&ctx), ctx == shared_ctx, cuMemAlloc(&q, 4096));
	TELL(cuCtxSynchronize(), cuStreamCreate(&(CUstream){0}, 0));
	TELL(cuCtxGetDevice(&(CUdevice){0}));
	if (shared_ctx == conform_ctx)
		TELL(cuCtxPushCurrent(shared_ctx));
	TELL(cuCtxSetCurrent(shared_ctx));
	pthread_barrier_wait(&step); /* it may begin again */
	pthread_barrier_wait(&step);
	TELL(cuCtxGetCurrent(&ctx), ctx == shared_ctx, cuMemAlloc(&q, 4096));
	TELL(cuCtxPopCurrent(&ctx), cuCtxSetCurrent(NULL));
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

CALL(destroy_own, cuCtxDestroy(own))
CALL(release, cuDevicePrimaryCtxRelease(conform_device))
CALL(reset, cuDevicePrimaryCtxReset(conform_device))
CALL(retain, cuDevicePrimaryCtxRetain(&conform_ctx, conform_device))
CALL(stay, CUDA_SUCCESS)

SECTION(own_ends_elsewhere)
{
	new_own();
	shared_ctx = own;
	ends_elsewhere(destroy_own, stay);
}

SECTION(primary_released_elsewhere)
{
	shared_ctx = conform_ctx;
	ends_elsewhere(release, retain);
}

SECTION(primary_reset_elsewhere)
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
	MUST(cuEventRecord(dead_event, u), cuCtxDestroy(own));
	MUST(cuCtxSetCurrent(conform_ctx));
}

/* Of a primary context: its handle stays good, as one sees. */
SECTION(dead_context_made_current)
{
	CUcontext ctx;

	MUST(cuCtxSetCurrent(NULL), cuDevicePrimaryCtxRelease(conform_device));
	TELL(cuCtxSetCurrent(conform_ctx), is_current(conform_ctx));
	TELL(cuMemAlloc(&p, 4096), active(), cuCtxGetDevice(&(CUdevice){0}));
	TELL(cuCtxPushCurrent(conform_ctx), cuCtxPopCurrent(&ctx), ctx == conform_ctx);
	TELL(cuCtxSetCurrent(NULL));
}

SECTION(null_context_recorded)
{
	CUevent done = new_event();

	TELL(cuCtxRecordEvent(NULL, done), cuCtxWaitEvent(NULL, done));
	TELL(cuCtxPushCurrent(NULL), cuCtxDestroy(NULL));
}

SECTION(dead_event_queried)
{
	bury();
	TELL(cuEventQuery(dead_event));
}

SECTION(dead_event_waited_for)
{
	bury();
	TELL(cuStreamWaitEvent(s, dead_event, 0));
}

SECTION(dead_event_destroyed)
{
	bury();
	TELL(cuEventDestroy(dead_event));
}
