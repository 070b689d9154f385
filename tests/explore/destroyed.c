/* SPDX-License-Identifier: MIT */
/*
 * destroyed.c - what another thread does inside a call that destroys a stream: when the
 * driver is done with it, and may give the same handle to the next one, and before the
 * call returns. No sequence of whole calls comes there; the simulated
 * device has a thread run at that moment (gcpsim_when_destroyed). Played at the end of
 * a history, after a thread that is cancelled (promises.c).
 */
#include "explore.h"

#include <pthread.h>

enum { BLOCKS = 3, BLOCK_BYTES = 1 << 20, SMALL_BYTES = 512 };
enum { SPIN_KERNEL = 4, SPIN_NS = 1000 };

/* Two threads: the history's destroys, the other one works before and meanwhile. What a
 * planned fault keeps from coming is NULL, or 0, and nothing is done with it. */
struct meeting {
	CUcontext ctx;
	CUfunction spin;
	pthread_barrier_t step;
	bool came;         /* the call that destroys, to the driver */
	CUstream stream;   /* the other thread's before; then the new one */
	bool begun;        /* a capture on the new one */
	CUstream captured; /* under way */
	CUresult planned;  /* by a fault */
	CUresult result; /* the other thread's first that is neither that nor success */
};

static struct meeting *met; /* by gcpsim_when_destroyed */

static bool went(struct meeting *m, CUresult result)
{
	if (m->result == CUDA_SUCCESS || m->result == m->planned)
		m->result = result != CUDA_SUCCESS ? result : m->result;
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
	met->came = true;
	both(met);
	both(met);
}

/* The other thread is there; then it is gone. */
static pthread_t other_start(struct thread *t, struct meeting *m, void *(*run)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, m) != 0)
		failure(t->model, "no thread for the explorer itself");
	both(m);
	gcpsim_when_destroyed(destroyed);
	return thread;
}

static void other_end(struct thread *t, struct meeting *m, pthread_t thread,
		      const char *what)
{
	gcpsim_when_destroyed(NULL);
	if (!m->came && !fault_excuses(t->model))
		failure(t->model, "nothing was destroyed");
	if (!m->came)
		destroyed();
	pthread_join(thread, NULL);
	fine(t->model, m->result, what);
}

static CUstream stream_new(struct thread *t)
{
	CUstream stream;

	return FINE(t, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)) ? stream : NULL;
}

static void stream_end(struct thread *t, CUstream stream)
{
	if (stream && FINE(t, cuStreamDestroy(stream)))
		t->model->streams_gone++;
}

static CUdeviceptr take(struct thread *t, uint64_t bytes)
{
	CUdeviceptr p;

	return FINE(t, cuMemAlloc(&p, bytes)) ? p : 0;
}

static void give(struct thread *t, CUdeviceptr p)
{
	if (!p)
		return;
	plain_waits(t->model, t->context);
	if (!FINE(t, cuMemFree(p)))
		(void)cuMemFree(p);
	t->model->frees++;
}

/* --- a stream -------------------------------------------------------------------- */

/* Works on a stream; when that is gone, allocates, and captures on a new one. */
static void *stream_user(void *arg)
{
	struct meeting *m = arg;
	bool current;
	CUdeviceptr p;

	gcpsim_plain_asks(1);
	current = went(m, cuCtxSetCurrent(m->ctx));
	if (current)
		went(m, spin(m, m->stream));
	both(m);
	both(m);
	for (unsigned i = 0; current && i < BLOCKS; i++)
		if (went(m, cuMemAlloc(&p, SMALL_BYTES))) {
			gcpsim_plain_waits(m->ctx, false);
			if (!went(m, cuMemFree(p)))
				(void)cuMemFree(p);
		}
	if (!current || !went(m, cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING)))
		m->stream = NULL;
	else
		m->begun = went(
		    m, cuStreamBeginCapture(m->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	both(m);
	return NULL;
}

/* What is freed now waits for the end of the capture that goes on. */
static void blocks_give(struct thread *t, const CUdeviceptr *blocks)
{
	for (unsigned count = BLOCKS; count-- > 0;)
		give(t, blocks[count]);
}

static void capture_end(struct thread *t, CUstream stream, bool begun)
{
	CUgraph graph;

	if (begun && FINE(t, cuStreamEndCapture(stream, &graph)))
		FINE(t, cuGraphDestroy(graph));
	stream_end(t, stream);
}

static void stream_goes(struct thread *t, struct meeting *m)
{
	CUstream stream = m->stream;
	pthread_t thread = other_start(t, m, stream_user);

	stream_end(t, stream);
	other_end(t, m, thread, "what another thread does while a stream is destroyed");
}

/* The handle may be a new stream's, whose capture goes on. */
static void stream_met(struct thread *t, struct meeting *m)
{
	CUdeviceptr blocks[BLOCKS];
	bool begun;

	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = take(t, BLOCK_BYTES);
	m->stream = stream_new(t);
	begun =
	    m->stream &&
	    FINE(t, cuStreamBeginCapture(m->captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (begun)
		stream_goes(t, m);
	capture_end(t, m->captured, begun);
	blocks_give(t, blocks);
	capture_end(t, m->stream, m->begun);
}

void destroyed_play(struct thread *t, const struct op *op)
{
	struct model *w = t->model;
	struct context *context = &w->contexts[t->context < 0 ? 0 : t->context];
	struct meeting m = {.ctx = context->ctx,
			    .spin = context->functions[SPIN_KERNEL]};

	if (t->context < 0 || !all_is_calm(w) || w->setting->leak ||
	    w->setting->plain || w->setting->count || w->setting->memory_small ||
	    w->setting->quota || !library.active || !library.active() ||
	    !FINE(t, cuStreamCreate(&m.captured, CU_STREAM_NON_BLOCKING)))
		return;
	if (w->setting->fault)
		m.planned = (CUresult)w->setting->fault->code;
	plain_may_wait(w, EXCUSE_WAIT_CAPTURE);
	pthread_barrier_init(&m.step, NULL, 2);
	met = &m;
	(void)op;
	stream_met(t, &m);
	pthread_barrier_destroy(&m.step);
}
