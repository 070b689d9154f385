/* SPDX-License-Identifier: MIT */
/*
 * forks.c - captures that are more than one line: several streams forked and
 * joined in one capture, with frees between, and two threads that capture at
 * the same time while a third one allocates and frees. All graphs are replayed
 * beside eager work and every word is checked.
 *
 *   --rounds N --words N
 *   --together     two capturing threads and a thread of eager work, in the modes
 * global and thread-local; otherwise forks in one thread, in all modes
 *
 * Plain CUDA refuses. Exit code: 0 all right, 1 wrong words or memory kept, 2 an
 * error.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: trial.py plain code=2 @ --words 2000
 * Run: trial.py @ --words 2000 --rounds 8 GCPSIM_SEED=1
 * Run: trial.py @ --words 2000 --rounds 8 GCPSIM_SEED=2
 * Run: trial.py @ --words 2000 --rounds 4 GCPSIM_SPEED=never
 * Run: trial.py @ --words 2000 --rounds 8 --together GCPSIM_SEED=3
 * Run: trial.py @ --words 2000 --rounds 8 --together GCPSIM_SEED=4
 * Run: trial.py @ --words 2000 --rounds 4 --together GCPSIM_SPEED=2000
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "pool.h"
#include "util.h"

enum { BRANCHES = 3, LINKS = 3, EAGER_BLOCKS = 6, REPLAYS = 3 };
enum { SLOW_NS = 5000, JUNK = 0xdeadbeef };

struct worker {
	pthread_t thread;
	const struct gcpt_kernels *kernels;
	size_t words;
	unsigned rounds, number;
	CUstreamCaptureMode mode;
	CUstream stream, branch[BRANCHES], eager_stream;
	CUevent fork, join[BRANCHES];
	void *input, *output[BRANCHES], *last, *counter;
	unsigned long long wrong;
};

static const CUstreamCaptureMode modes[] = {
    CU_STREAM_CAPTURE_MODE_GLOBAL,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED,
};

static pthread_barrier_t step; /* of the capturing threads */
static sem_t entered;          /* the thread of eager work is in CUDA */
static atomic_bool stop;

/* --- captured work --------------------------------------------------------------- */

/* One link of a branch: a temporary, by way of which *value grows by delta. */
static void link_capture(struct worker *w, CUstream stream, void *to, const void *from,
			 uint32_t delta)
{
	void *p;

	GCPT_OK(gcpt_malloc(&p, w->words * 4));
	GCPT_OK(gcpt_launch_copy(w->kernels, stream, p, from, w->words));
	GCPT_OK(gcpt_launch_spin(w->kernels, stream, SLOW_NS));
	GCPT_OK(gcpt_launch_add(w->kernels, stream, p, w->words, delta));
	GCPT_OK(gcpt_launch_copy(w->kernels, stream, to, p, w->words));
	GCPT_OK(gcpt_free(p));
}

static void fork_all(struct worker *w)
{
	GCPT_OK((int)cu.cuEventRecord(w->fork, w->stream));
	for (int b = 0; b < BRANCHES; b++)
		GCPT_OK((int)cu.cuStreamWaitEvent(w->branch[b], w->fork, 0));
}

static void join_all(struct worker *w)
{
	for (int b = 0; b < BRANCHES; b++) {
		GCPT_OK((int)cu.cuEventRecord(w->join[b], w->branch[b]));
		GCPT_OK((int)cu.cuStreamWaitEvent(w->stream, w->join[b], 0));
	}
}

/* Branch b gives output[b] = input + 1 + LINKS * (b + 1), link after link and the
 * branches in turn, so that frees of one stand before allocations of the others;
 * `last` is output[0] + 7, computed after the join. */
static void body(struct worker *w)
{
	void *head;

	GCPT_OK(gcpt_malloc(&head, w->words * 4));
	GCPT_OK(gcpt_launch_copy(w->kernels, w->stream, head, w->input, w->words));
	GCPT_OK(gcpt_launch_add(w->kernels, w->stream, head, w->words, 1));
	fork_all(w);
	for (int i = 0; i < LINKS; i++)
		for (int b = 0; b < BRANCHES; b++)
			link_capture(w, w->branch[b], w->output[b],
				     i ? w->output[b] : head, (uint32_t)b + 1);
	join_all(w);
	GCPT_OK(gcpt_free(head));
	link_capture(w, w->stream, w->last, w->output[0], 7);
}

/* Overwrites what the common pool gives. */
static void eager(struct worker *w)
{
	void *p;

	for (int i = 0; i < EAGER_BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&p, w->words * 4));
		GCPT_OK(
		    gcpt_launch_fill(w->kernels, w->eager_stream, p, w->words, JUNK));
		GCPT_OK(gcpt_free(p));
	}
}

static void replay(struct worker *w, CUgraphExec exec)
{
	for (uint32_t i = 0; i < REPLAYS; i++) {
		uint32_t value = w->number * 100000 + i;

		GCPT_OK(
		    gcpt_launch_fill(w->kernels, w->stream, w->input, w->words, value));
		GCPT_OK(gcpt_graph_launch(exec, w->stream));
		eager(w);
		for (uint32_t b = 0; b < BRANCHES; b++)
			GCPT_OK(gcpt_launch_check(w->kernels, w->stream, w->output[b],
						  w->words, value + 1 + LINKS * (b + 1),
						  w->counter));
		GCPT_OK(gcpt_launch_check(w->kernels, w->stream, w->last, w->words,
					  value + 8 + LINKS, w->counter));
	}
}

/* --- rounds ------------------------------------------------------------------- */

static void worker_begin(struct worker *w)
{
	unsigned long long zero = 0;

	GCPT_OK(gcpt_stream_create(&w->stream));
	GCPT_OK(gcpt_stream_create(&w->eager_stream));
	GCPT_OK((int)cu.cuEventCreate(&w->fork, CU_EVENT_DISABLE_TIMING));
	for (int b = 0; b < BRANCHES; b++) {
		GCPT_OK(gcpt_stream_create(&w->branch[b]));
		GCPT_OK((int)cu.cuEventCreate(&w->join[b], CU_EVENT_DISABLE_TIMING));
		GCPT_OK(gcpt_malloc(&w->output[b], w->words * 4));
	}
	GCPT_OK(gcpt_malloc(&w->input, w->words * 4));
	GCPT_OK(gcpt_malloc(&w->last, w->words * 4));
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(zero)));
	GCPT_OK(gcpt_copy(w->counter, &zero, sizeof(zero)));
}

static void worker_end(struct worker *w)
{
	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_copy(&w->wrong, w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_stream_destroy(w->stream));
	GCPT_OK(gcpt_stream_destroy(w->eager_stream));
	GCPT_OK((int)cu.cuEventDestroy(w->fork));
	for (int b = 0; b < BRANCHES; b++) {
		GCPT_OK(gcpt_stream_destroy(w->branch[b]));
		GCPT_OK((int)cu.cuEventDestroy(w->join[b]));
		GCPT_OK(gcpt_free(w->output[b]));
	}
	GCPT_OK(gcpt_free(w->input));
	GCPT_OK(gcpt_free(w->last));
	GCPT_OK(gcpt_free(w->counter));
}

/* The capturing threads keep step: what CUDA forbids while another thread captures
 * (instantiating, beside a GLOBAL capture) comes when none does. */
static void *worker_run(void *arg)
{
	struct worker *w = arg;
	CUgraphExec exec;
	CUgraph graph;

	GCPT_OK(gcpt_use(0));
	for (unsigned i = 0; i < w->rounds; i++) {
		pthread_barrier_wait(&step);
		GCPT_OK(gcpt_capture_begin(w->stream, w->mode));
		pthread_barrier_wait(&step); /* both are under way */
		body(w);
		pthread_barrier_wait(&step); /* and both still are */
		GCPT_OK(gcpt_capture_end(w->stream, &graph));
		pthread_barrier_wait(&step);
		GCPT_OK(gcpt_instantiate(&exec, graph));
		GCPT_OK((int)cu.cuGraphDestroy(graph));
		replay(w, exec);
		GCPT_OK((int)cu.cuGraphExecDestroy(exec));
	}
	return NULL;
}

/* Allocates and frees, launches, and never waits: the others capture. */
static void *eager_run(void *arg)
{
	struct worker *w = arg;

	GCPT_OK(gcpt_use(0));
	sem_post(&entered);
	while (!atomic_load(&stop)) {
		eager(w);
		usleep(200);
	}
	return NULL;
}

/* Waits for the thread of eager work to be in CUDA before any thread captures. */
static void eager_begin(struct worker *w)
{
	sem_init(&entered, 0, 0);
	atomic_store(&stop, false);
	pthread_create(&w->thread, NULL, eager_run, w);
	sem_wait(&entered);
}

static unsigned long long run(struct worker base, unsigned threads)
{
	struct worker workers[3];
	unsigned long long wrong = 0;

	for (unsigned i = 0; i < 3; i++) {
		workers[i] = base;
		workers[i].number = i + 1;
		worker_begin(&workers[i]);
	}
	if (threads > 1)
		eager_begin(&workers[2]);
	pthread_barrier_init(&step, NULL, threads);
	for (unsigned i = 0; i < threads; i++)
		pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&stop, true);
	if (threads > 1)
		pthread_join(workers[2].thread, NULL);
	for (unsigned i = 0; i < 3; i++) {
		worker_end(&workers[i]);
		wrong += workers[i].wrong;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	bool together = gcpt_flag(argc, argv, "--together"), kept = false;
	struct gcpt_kernels kernels;
	struct worker base = {
	    .kernels = &kernels,
	    .rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 50),
	    .words = gcpt_arg(argc, argv, "--words", 65536),
	};
	unsigned long long wrong = 0;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&kernels));
	for (unsigned m = 0; m < (together ? 2 : 3); m++) {
		base.mode = modes[m];
		wrong += run(base, together ? 2 : 1);
		kept = !gcpt_private_wait(0) || kept;
	}
	printf("forks: %u rounds, %s: wrong words: %llu, private bytes: %s\n",
	       base.rounds, together ? "two threads and a third" : "one thread", wrong,
	       kept ? "NOT BACK" : "all back");
	return wrong || kept ? 1 : 0;
}
