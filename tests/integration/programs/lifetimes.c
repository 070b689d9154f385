/* SPDX-License-Identifier: MIT */
/*
 * lifetimes.c - how the memory of graphs ends: each life of a graph is lived to
 * its end, also the abnormal ones, and then nothing may be left in private pools
 * and no word be wrong. graphs.c tries the normal ones at length.
 *
 *   --rounds N     of each life (default 5)
 *   --words N      of each temporary
 *   --only LIFE    this life alone
 *   --bound N      N rounds of capture, replay and destruction instead: memory
 *                  taken from the driver must stay where it is after the first
 *
 * Prints a line for each life. Exit code: 0 all is back, 1 not, 2 an error.
 *
 * Run: both: trial.py @ --words 2000 GCPSIM_SEED=1
 * Run: both: trial.py @ --words 2000 GCPSIM_SEED=2
 * Run: both: trial.py @ --words 2000 GCPSIM_SPEED=never
 * Run: both: trial.py @ --words 2000 --bound 200 GCPSIM_SEED=3
 * Run: both: trial.py @ --words 2000 --bound 200 GCPSIM_SPEED=2000
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "kernels.h"
#include "graph_forms.h"
#include "pool.h"
#include "util.h"

enum { DELTA = 1000, SLOW_NS = 200000, JUNK = 0xdeadbeef, EAGER_BLOCKS = 8 };

struct scene {
	struct gcpt_kernels kernels;
	CUstream stream, eager_stream;
	void *input, *output, *counter;
	size_t words;
	unsigned kept; /* times that memory was not private, or private too long */
};

struct life {
	const char *name;
	void (*run)(struct scene *s);
};

/* --- pieces ------------------------------------------------------------------- */

/* On `stream`: output = input + DELTA, by way of a temporary. */
static void work_capture(struct scene *s, CUstream stream)
{
	const struct gcpt_kernels *k = &s->kernels;
	void *p;

	GCPT_OK(gcpt_malloc(&p, s->words * 4));
	GCPT_OK(gcpt_launch_copy(k, stream, p, s->input, s->words));
	GCPT_OK(gcpt_launch_spin(k, stream, SLOW_NS));
	GCPT_OK(gcpt_launch_add(k, stream, p, s->words, DELTA));
	GCPT_OK(gcpt_launch_copy(k, stream, s->output, p, s->words));
	GCPT_OK(gcpt_free(p));
}

static CUgraph capture(struct scene *s)
{
	CUgraph graph;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	work_capture(s, s->stream);
	GCPT_OK(gcpt_capture_end(s->stream, &graph));
	return graph;
}

/* Overwrites whatever the common pool gives. */
static void eager(struct scene *s)
{
	void *p[EAGER_BLOCKS];

	for (unsigned i = 0; i < EAGER_BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&p[i], s->words * 4));
		GCPT_OK(gcpt_launch_fill(&s->kernels, s->eager_stream, p[i], s->words,
					 JUNK));
	}
	for (unsigned i = 0; i < EAGER_BLOCKS; i++)
		GCPT_OK(gcpt_free(p[i]));
}

static void launch(struct scene *s, CUgraphExec exec, uint32_t value)
{
	GCPT_OK(gcpt_launch_fill(&s->kernels, s->stream, s->input, s->words, value));
	GCPT_OK(gcpt_graph_launch(exec, s->stream));
}

static void check(struct scene *s, const void *p, uint32_t expected)
{
	GCPT_OK(gcpt_launch_check(&s->kernels, s->stream, p, s->words, expected,
				  s->counter));
}

static void replay(struct scene *s, CUgraphExec exec)
{
	for (uint32_t value = 1; value < 4; value++) {
		launch(s, exec, value);
		eager(s);
		check(s, s->output, value + DELTA);
	}
}

/* Whether the library is there and holds memory for graphs, as it must now. */
static void private_demand(struct scene *s)
{
	struct gcpool_stats stats;

	if (gcpt_pool_stats(&stats) && !stats.private_bytes.current)
		s->kept++;
}

/* --- lives that end well ------------------------------------------------------ */

static void life_exec(struct scene *s)
{
	CUgraph graph = capture(s);
	CUgraphExec exec = gcpt_life(graph);

	replay(s, exec);
	gcpt_exec_destroy(exec);
	private_demand(s);
	gcpt_graph_destroy(graph);
}

static void life_destroyed(struct scene *s)
{
	CUgraph graph = capture(s);
	CUgraphExec exec = gcpt_life(graph);

	gcpt_graph_destroy(graph);
	private_demand(s);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

static void life_never_instantiated(struct scene *s)
{
	CUgraph graph = capture(s);

	private_demand(s);
	gcpt_graph_destroy(graph);
}

static void life_clone(struct scene *s)
{
	CUgraph clone = gcpt_graph_to_clone(capture(s));
	CUgraphExec exec;

	private_demand(s);
	exec = gcpt_life(clone);
	gcpt_graph_destroy(clone);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

static void life_child(struct scene *s)
{
	CUgraph outer = gcpt_graph_to_child(capture(s));
	CUgraphExec exec;

	private_demand(s);
	exec = gcpt_life(outer);
	gcpt_graph_destroy(outer);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

/* The executable lets go of the first graph's memory and holds the second's. */
static void life_update(struct scene *s)
{
	CUgraph first = capture(s), second;
	CUgraphExec exec = gcpt_life(first);
	uint64_t one = gcpt_private_bytes();

	gcpt_graph_destroy(first);
	replay(s, exec);
	second = capture(s);
	gcpt_exec_update(exec, second);
	GCPT_OK(gcpt_sync());
	s->kept += !gcpt_private_wait(one);
	private_demand(s);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

/* The executable is updated while launches of what it was are still running. */
static void life_update_inflight(struct scene *s)
{
	CUgraph first = capture(s), second = capture(s);
	CUgraphExec exec = gcpt_life(first);

	gcpt_graph_destroy(first);
	launch(s, exec, 7);
	launch(s, exec, 8);
	gcpt_exec_update(exec, second);
	eager(s);
	check(s, s->output, 8 + DELTA);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

static void life_inflight(struct scene *s)
{
	CUgraph graph = capture(s);
	CUgraphExec exec = gcpt_life(graph);

	gcpt_graph_destroy(graph);
	launch(s, exec, 5);
	launch(s, exec, 6);
	gcpt_exec_destroy(exec);
	eager(s);
	check(s, s->output, 6 + DELTA);
}

/* What the program still holds stays valid when the graph is gone. */
static void life_output(struct scene *s)
{
	CUgraphExec exec;
	CUgraph graph;
	void *p;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GCPT_OK(gcpt_malloc(&p, s->words * 4));
	GCPT_OK(gcpt_launch_copy(&s->kernels, s->stream, p, s->input, s->words));
	GCPT_OK(gcpt_capture_end(s->stream, &graph));
	exec = gcpt_life(graph);
	launch(s, exec, 9);
	gcpt_graph_destroy(graph);
	gcpt_exec_destroy(exec);
	GCPT_OK(gcpt_sync());
	s->kept += !gcpt_private_wait(0); /* it belongs to the common pool now */
	eager(s);
	check(s, p, 9);
	GCPT_OK(gcpt_free(p));
}

/* --- lives that end badly ----------------------------------------------------- */

/* Synchronizing the capturing stream is what CUDA forbids most clearly. */
static void life_invalid(struct scene *s)
{
	CUgraph graph = NULL;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	work_capture(s, s->stream);
	private_demand(s);
	gcpt_stream_sync(s->stream);
	gcpt_capture_end(s->stream, &graph);
	gcpt_last_error();
}

static void life_stream_destroyed(struct scene *s)
{
	CUstream stream;

	GCPT_OK(gcpt_stream_create(&stream));
	GCPT_OK(gcpt_capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	work_capture(s, stream);
	gcpt_stream_destroy(stream);
	gcpt_last_error();
}

/* No capture begins, and none is thought to be under way. */
static void life_begin_fails(struct scene *s)
{
	CUgraph graph;

	s->kept += !gcpt_capture_begin(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
	gcpt_last_error();
	s->kept += !gcpt_capture_begin(s->stream, (CUstreamCaptureMode)77);
	gcpt_last_error();
	eager(s);
	s->kept += gcpt_private_bytes() != 0;
	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	work_capture(s, s->stream);
	s->kept += !gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	gcpt_last_error();
	if (!gcpt_capture_end(s->stream, &graph))
		gcpt_graph_destroy(graph);
	gcpt_last_error();
}

static void *thread_capture(void *arg)
{
	struct scene *s = arg;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	work_capture(s, s->stream);
	return NULL;
}

/* The capturing thread ends; another one ends its capture. */
static void life_thread_gone(struct scene *s)
{
	pthread_t thread;
	CUgraphExec exec;
	CUgraph graph;

	pthread_create(&thread, NULL, thread_capture, s);
	pthread_join(thread, NULL);
	private_demand(s);
	GCPT_OK(gcpt_capture_end(s->stream, &graph));
	exec = gcpt_life(graph);
	gcpt_graph_destroy(graph);
	replay(s, exec);
	gcpt_exec_destroy(exec);
}

/* A context of the program's own is destroyed while one of its streams captures. */
static void life_context_destroyed(struct scene *s)
{
	CUcontext before, context;
	CUgraph graph;
	CUstream stream;
	void *p;

	GCPT_OK((int)cu.cuCtxGetCurrent(&before));
	GCPT_OK((int)cu.cuCtxCreate(&context, NULL, 0, 0));
	GCPT_OK((int)cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GCPT_OK((int)cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GCPT_OK(gcpt_malloc(&p, s->words * 4));
	private_demand(s);
	GCPT_OK(
	    (int)cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 1, s->words, stream));
	if (cu.cuCtxDestroy(context)) { /* refused: once more without the capture */
		cu.cuStreamEndCapture(stream, &graph);
		GCPT_OK((int)cu.cuCtxDestroy(context));
	}
	GCPT_OK((int)cu.cuCtxSetCurrent(before));
	gcpt_last_error();
}

static void scene_begin(struct scene *s);

/* The primary context is reset while one of its streams captures. */
static void life_context_reset(struct scene *s)
{
	CUgraph graph = NULL;
	int code;

	GCPT_OK(gcpt_capture_begin(s->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	work_capture(s, s->stream);
	private_demand(s);
	code = gcpt_device_reset(0);
	if (code) { /* refused because of the capture: once more without it */
		gcpt_capture_end(s->stream, &graph);
		gcpt_last_error();
		GCPT_OK(gcpt_device_reset(0));
	}
	scene_begin(s);
	eager(s);
}

static const struct life lives[] = {
    {"exec", life_exec},
    {"destroyed", life_destroyed},
    {"never instantiated", life_never_instantiated},
    {"clone", life_clone},
    {"child", life_child},
    {"update", life_update},
    {"update in flight", life_update_inflight},
    {"in flight", life_inflight},
    {"output", life_output},
    {"invalidated", life_invalid},
    {"stream destroyed", life_stream_destroyed},
    {"begin fails", life_begin_fails},
    {"thread gone", life_thread_gone},
    {"context destroyed", life_context_destroyed},
    {"context reset", life_context_reset}, /* last: all that was is gone */
};

/* --- the run ------------------------------------------------------------------ */

static void scene_begin(struct scene *s)
{
	unsigned long long zero = 0;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&s->kernels));
	GCPT_OK(gcpt_stream_create(&s->stream));
	GCPT_OK(gcpt_stream_create(&s->eager_stream));
	GCPT_OK(gcpt_malloc(&s->input, s->words * 4));
	GCPT_OK(gcpt_malloc(&s->output, s->words * 4));
	GCPT_OK(gcpt_malloc(&s->counter, sizeof(zero)));
	GCPT_OK(gcpt_copy(s->counter, &zero, sizeof(zero)));
}

/* Wrong words since the last call. */
static unsigned long long wrong_take(struct scene *s)
{
	unsigned long long wrong, zero = 0;

	GCPT_OK(gcpt_sync());
	GCPT_OK(gcpt_copy(&wrong, s->counter, sizeof(wrong)));
	GCPT_OK(gcpt_copy(s->counter, &zero, sizeof(zero)));
	return wrong;
}

static bool live(struct scene *s, const struct life *life, unsigned rounds)
{
	unsigned long long wrong = 0;
	bool back = true;

	s->kept = 0;
	for (unsigned i = 0; i < rounds; i++) {
		life->run(s);
		eager(s);
		wrong += wrong_take(s);
		back = gcpt_private_wait(0) && back;
	}
	printf("%-19s wrong words: %llu, private bytes: %llu, %s\n", life->name, wrong,
	       (unsigned long long)gcpt_private_bytes(),
	       !back     ? "NOT BACK"
	       : s->kept ? "COUNTED WRONG"
			 : "as it should be");
	fflush(stdout);
	return back && !wrong && !s->kept;
}

static uint64_t reserved_bytes(void)
{
	struct gcpool_stats stats;

	return gcpt_pool_stats(&stats) ? stats.reserved_bytes.current : 0;
}

/* Graphs that come and go do not make the pool grow. The memory of those whose
 * launches are in flight is in use, so each round waits for its own. */
static bool bound(struct scene *s, unsigned rounds)
{
	uint64_t first = 0, most = 0, now, allowed = (64u << 20) + 64 * s->words;
	unsigned long long wrong;

	for (unsigned i = 0; i < rounds; i++) {
		life_destroyed(s);
		GCPT_OK(gcpt_sync());
		gcpt_private_wait(0);
		now = reserved_bytes();
		if (i < rounds / 10)
			first = now > first ? now : first;
		most = now > most ? now : most;
	}
	wrong = wrong_take(s);
	printf(
	    "bound: %u rounds, reserved MiB first %.0f most %.0f, wrong words: %llu\n",
	    rounds, (double)first / 1048576, (double)most / 1048576, wrong);
	return !wrong && most <= first + allowed && gcpt_private_wait(0);
}

int main(int argc, char **argv)
{
	struct scene s = {.words = gcpt_arg(argc, argv, "--words", 65536)};
	unsigned rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 5);
	unsigned bounds = (unsigned)gcpt_arg(argc, argv, "--bound", 0);
	const char *only = gcpt_arg_text(argc, argv, "--only", NULL);
	bool good = true;

	if (!s.words || !rounds)
		return 2;
	scene_begin(&s);
	if (bounds)
		return bound(&s, bounds) ? 0 : 1;
	for (size_t i = 0; i < sizeof(lives) / sizeof(*lives); i++)
		if (!only || !strcmp(only, lives[i].name))
			good = live(&s, &lives[i], rounds) && good;
	return good ? 0 : 1;
}
