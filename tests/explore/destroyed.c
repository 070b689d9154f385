/* SPDX-License-Identifier: MIT */
/*
 * destroyed.c - what another thread does inside a call that destroys a stream or an
 * event: when the driver is done with it, and may give the same handle to the next one,
 * and before the call returns. No sequence of whole calls comes there; the simulated
 * device has a thread run at that moment (gcpsim_when_destroyed). Played at the end of
 * a history, after a thread that is cancelled (promises.c).
 */
#include "explore.h"

#include <pthread.h>

enum { BLOCKS = 3, BLOCK_BYTES = 1 << 20, SMALL_BYTES = 512 };
enum { TEMPORARY_BYTES = 3 << 20, WRITTEN_BYTES = 4096, BRANCHES = 2 };
enum { SPIN_KERNEL = 4, SPIN_NS = 1000 };

/* Two threads: the history's destroys, the other one works before and meanwhile. */
struct meeting {
	CUcontext ctx;
	CUfunction spin;
	pthread_barrier_t step;
	CUstream stream;   /* the other thread's before; then the new one */
	CUstream captured; /* under way */
	CUevent event;     /* the new one */
	CUstream branches[BRANCHES];
	unsigned branch_count; /* used */
	CUdeviceptr temporary;
	CUresult result; /* the other thread's first that is no success */
};

static struct meeting *met; /* by gcpsim_when_destroyed */

static bool went(struct meeting *m, CUresult result)
{
	if (m->result == CUDA_SUCCESS)
		m->result = result;
	return result == CUDA_SUCCESS;
}

static CUresult spin(const struct meeting *m, CUstream stream)
{
	uint64_t ns = SPIN_NS;
	void *params[] = {&ns};

	return cuLaunchKernel(m->spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

/* Where the two threads wait for each other. */
static void both(struct meeting *m)
{
	pthread_barrier_wait(&m->step);
}

/* The other thread goes on, and has done its part. */
static void destroyed(void)
{
	both(met);
	both(met);
}

/* --- a stream -------------------------------------------------------------------- */

/* Works on a stream; when that is gone, allocates, and captures on a new one. */
static void *stream_user(void *arg)
{
	struct meeting *m = arg;
	CUdeviceptr p;

	gcpsim_plain_asks(1);
	went(m, cuCtxSetCurrent(m->ctx));
	went(m, spin(m, m->stream));
	both(m);
	both(m);
	for (unsigned i = 0; i < BLOCKS; i++)
		if (went(m, cuMemAlloc(&p, SMALL_BYTES))) {
			gcpsim_plain_waits(m->ctx);
			went(m, cuMemFree(p));
		}
	if (went(m, cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING)))
		went(m,
		     cuStreamBeginCapture(m->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	both(m);
	return NULL;
}

/* What is freed now waits for the end of the capture that goes on. */
static void blocks_give(struct thread *t, const CUdeviceptr *blocks, unsigned count)
{
	while (count-- > 0) {
		plain_waits(t->model, t->context);
		FINE(t, cuMemFree(blocks[count]));
		t->model->frees++;
	}
}

static unsigned blocks_take(struct thread *t, CUdeviceptr *ret_blocks)
{
	unsigned count = 0;

	while (count < BLOCKS && FINE(t, cuMemAlloc(&ret_blocks[count], BLOCK_BYTES)))
		count++;
	return count;
}

static void capture_end(struct thread *t, CUstream stream)
{
	CUgraph graph;

	if (FINE(t, cuStreamEndCapture(stream, &graph)))
		FINE(t, cuGraphDestroy(graph));
	FINE(t, cuStreamDestroy(stream));
	t->model->streams_gone++;
}

/* The handle may be a new stream's, whose capture goes on. */
static void stream_met(struct thread *t, struct meeting *m)
{
	CUdeviceptr blocks[BLOCKS];
	unsigned count = blocks_take(t, blocks);
	pthread_t thread;

	FINE(t, cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING));
	FINE(t, cuStreamBeginCapture(m->captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (pthread_create(&thread, NULL, stream_user, m) != 0)
		failure(t->model, "no thread for the explorer itself");
	both(m);
	gcpsim_when_destroyed(destroyed);
	FINE(t, cuStreamDestroy(m->stream));
	t->model->streams_gone++;
	pthread_join(thread, NULL);
	fine(t->model, m->result,
	     "what another thread does while a stream is destroyed");
	capture_end(t, m->captured);
	blocks_give(t, blocks, count);
	capture_end(t, m->stream);
}

/* --- an event -------------------------------------------------------------------- */

/* Records a new event in the capture, in front of work on its memory. */
static void *event_user(void *arg)
{
	struct meeting *m = arg;

	gcpsim_plain_asks(1);
	went(m, cuCtxSetCurrent(m->ctx));
	both(m);
	both(m);
	if (went(m, cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING)))
		went(m, cuEventRecord(m->event, m->captured));
	went(m, cuMemsetD8Async(m->temporary, 1, WRITTEN_BYTES, m->captured));
	both(m);
	return NULL;
}

/* Work behind the new event, which need not come after that work: on memory that is
 * taken now. */
static void branch_add(struct thread *t, struct meeting *m)
{
	CUdeviceptr next = 0;
	CUstream branch = m->branches[m->branch_count++];
	CUevent joined;

	FINE(t, cuMemFree(m->temporary));
	FINE(t, cuMemAlloc(&next, TEMPORARY_BYTES));
	FINE(t, cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	FINE(t, cuStreamWaitEvent(branch, m->event, 0));
	FINE(t, cuMemsetD8Async(next, 2, WRITTEN_BYTES, branch));
	FINE(t, cuEventRecord(joined, branch));
	FINE(t, cuStreamWaitEvent(m->captured, joined, 0));
	FINE(t, cuMemFree(next));
	FINE(t, cuEventDestroy(m->event));
	FINE(t, cuEventDestroy(joined));
	t->model->frees += 2;
}

/* The simulated device reports two branches that write the same memory. */
static void graph_run(struct thread *t, struct meeting *m)
{
	CUgraphExec exec;
	CUgraph graph;

	FINE(t, cuStreamEndCapture(m->captured, &graph));
	FINE(t, cuGraphInstantiateWithFlags(&exec, graph, 0));
	FINE(t, cuGraphLaunch(exec, m->captured));
	gcpsim_plain_asks(1);
	FINE(t, cuStreamSynchronize(m->captured));
	gcpsim_plain_asks(-1);
	FINE(t, cuGraphExecDestroy(exec));
	FINE(t, cuGraphDestroy(graph));
	FINE(t, cuStreamDestroy(m->captured));
	for (unsigned i = 0; i < BRANCHES; i++)
		FINE(t, cuStreamDestroy(m->branches[i]));
	t->model->streams_gone += 1 + BRANCHES;
}

/* A first branch that needs an order with what was given again, which the library adds
 * where the driver lets it: from then on events hold memory back there, too. */
static void branch_late(struct thread *t, struct meeting *m)
{
	FINE(t, cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING));
	FINE(t, cuEventRecord(m->event, m->captured));
	FINE(t, cuMemAlloc(&m->temporary, TEMPORARY_BYTES));
	FINE(t, cuMemsetD8Async(m->temporary, 3, WRITTEN_BYTES, m->captured));
	branch_add(t, m);
}

static void event_met(struct thread *t, struct meeting *m)
{
	CUevent event;
	pthread_t thread;

	for (unsigned i = 0; i < BRANCHES; i++)
		FINE(t, cuStreamCreate(&m->branches[i], CU_STREAM_NON_BLOCKING));
	FINE(t, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	FINE(t, cuStreamBeginCapture(m->captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	FINE(t, spin(m, m->captured));
	if (setting_has(t->model->setting, "cuStreamUpdateCaptureDependencies"))
		branch_late(t, m);
	FINE(t, cuMemAlloc(&m->temporary, TEMPORARY_BYTES));
	FINE(t, cuEventRecord(event, m->captured));
	if (pthread_create(&thread, NULL, event_user, m) != 0)
		failure(t->model, "no thread for the explorer itself");
	both(m);
	gcpsim_when_destroyed(destroyed);
	FINE(t, cuEventDestroy(event));
	pthread_join(thread, NULL);
	fine(t->model, m->result,
	     "what another thread does while an event is destroyed");
	branch_add(t, m);
	graph_run(t, m);
}

void destroyed_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct context *context = &w->contexts[t->context < 0 ? 0 : t->context];
	struct meeting m = {.ctx = context->ctx,
			    .spin = context->functions[SPIN_KERNEL]};

	if (t->context < 0 || !all_is_calm(w) || !plain_stays_compared(w) ||
	    w->setting->plain || w->setting->count || w->setting->memory_small ||
	    w->setting->quota || !library.active || !library.active() ||
	    !FINE(t, cuStreamCreate(&m.captured, CU_STREAM_NON_BLOCKING)))
		return;
	w->left |= graphs_are_kept(w);
	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	pthread_barrier_init(&m.step, NULL, 2);
	met = &m;
	if (op->how & 1)
		stream_met(t, &m);
	else
		event_met(t, &m);
	pthread_barrier_destroy(&m.step);
}
