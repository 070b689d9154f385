/* SPDX-License-Identifier: MIT */
/*
 * graphs.c - graphs whose captured code allocates and frees its temporaries,
 * replayed beside eager work that would overwrite them if their memory were
 * given to another owner too early.
 *
 * Plain CUDA refuses to allocate during these captures: the program needs the
 * library. The lives of graphs that are tried:
 *
 *   exec       graph and executable live on
 *   destroyed  the graph is destroyed, its executable lives on
 *   clone      a clone is instantiated, the original destroyed
 *   child      the graph is a child of another one, and destroyed itself
 *   update     an executable is updated to the graph, which is destroyed
 *   inflight   the executable is destroyed while it runs
 *   invalid    the capture is invalidated and dropped
 *   output     a block allocated in the capture outlives graph and executable
 *
 *   --rounds N (of each life) --words N --only LIFE
 *   --replays N    of each executable
 *   --leak         eager work writes the temporaries of the graph as well, as it
 *                  would if their memory had leaked: there must be wrong words
 *   --threads N    that capture at once; several capture in THREAD_LOCAL mode,
 *                  because instantiating is forbidden beside a GLOBAL capture
 *   --eager-thread    another thread allocates and frees meanwhile
 *
 * Exit code: 0 no wrong word, 1 wrong words or lost memory, 2 an error.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: trial.py plain code=2 @
 * Run: trial.py @ --words 2000 --rounds 12 GCPSIM_SEED=1
 * Run: trial.py @ --words 2000 --rounds 12 --eager-thread GCPSIM_SEED=2
 * Once: trial.py @ --words 2000 --rounds 6 --threads 3 --eager-thread GCPSIM_SEED=3
 * Once: trial.py @ --words 2000 --rounds 6 GCPSIM_SPEED=never
 * Once: trial.py @ --words 2000 --rounds 6 GCPSIM_SPEED=2000
 * Run: trial.py @ --words 2000 --rounds 2 --only destroyed --replays 150 GCPSIM_SEED=4
 * Once: graphs.py @
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "kernels.h"
#include "graph_forms.h"
#include "pool.h"

enum { THREADS_MAX = 16, EAGER_BLOCKS = 6, SCRATCHES = 2 };
enum { DELTA = 1000, SLOW_NS = 5000, JUNK = 0xdeadbeef };

struct setting {
	unsigned rounds, replays, threads;
	bool eager_thread, leak;
	CUstreamCaptureMode mode;
	size_t words;
	const char *only;
	struct gcpt_kernels kernels;
};

struct worker {
	pthread_t thread;
	const struct setting *set;
	CUstream stream, eager_stream;
	void *input, *output, *counter;
	void *scratch[SCRATCHES]; /* the temporaries of the latest graph */
	uint64_t random;
	uint32_t value; /* of every word of the input, this round */
	unsigned long long wrong;
};

struct life {
	const char *name;
	void (*run)(struct worker *w);
};

static atomic_bool stop;
static pthread_barrier_t begun; /* CUDA is entered before any thread captures */

/* --- pieces ------------------------------------------------------------------ */

/* Captures: output = input + DELTA, by way of two temporaries. */
static CUgraph capture(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	size_t n = w->set->words;
	CUgraph graph;
	void *a, *b;

	GCPT_OK(gcpt_capture_begin(w->stream, w->set->mode), gcpt_malloc(&a, n * 4));
	GCPT_OK(gcpt_launch_copy(k, w->stream, a, w->input, n));
	GCPT_OK(gcpt_launch_spin(k, w->stream, SLOW_NS), gcpt_malloc(&b, n * 4));
	GCPT_OK(gcpt_launch_copy(k, w->stream, b, a, n), gcpt_free(a));
	GCPT_OK(gcpt_launch_spin(k, w->stream, SLOW_NS));
	GCPT_OK(gcpt_launch_add(k, w->stream, b, n, DELTA));
	GCPT_OK(gcpt_launch_copy(k, w->stream, w->output, b, n), gcpt_free(b));
	GCPT_OK(gcpt_capture_end(w->stream, &graph));
	w->scratch[0] = a;
	w->scratch[1] = b;
	return graph;
}

/* Takes blocks of the size of the temporaries, overwrites them on another
 * stream and gives them back at once. */
static void eager(struct worker *w)
{
	void *p;

	for (int i = 0; w->set->leak && i < SCRATCHES; i++)
		if (w->scratch[i])
			GCPT_OK(gcpt_launch_fill(&w->set->kernels, w->eager_stream,
						 w->scratch[i], w->set->words, JUNK));
	for (int i = 0; i < EAGER_BLOCKS; i++) {
		GCPT_OK(gcpt_malloc(&p, w->set->words * 4));
		GCPT_OK(gcpt_launch_fill(&w->set->kernels, w->eager_stream, p,
					 w->set->words, JUNK));
		GCPT_OK(gcpt_free(p));
	}
}

static void launch(struct worker *w, CUgraphExec exec)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	size_t n = w->set->words;

	w->value = (uint32_t)gcpt_random(&w->random);
	GCPT_OK(gcpt_launch_fill(k, w->stream, w->input, n, w->value));
	GCPT_OK(gcpt_graph_launch(exec, w->stream));
}

static void check(struct worker *w)
{
	GCPT_OK(gcpt_launch_check(&w->set->kernels, w->stream, w->output, w->set->words,
				  w->value + DELTA, w->counter));
}

static void replay(struct worker *w, CUgraphExec exec)
{
	for (unsigned i = 0; i < w->set->replays; i++) {
		launch(w, exec);
		eager(w);
		check(w);
	}
}

/* --- lives -------------------------------------------------------------------- */

static void life_exec(struct worker *w)
{
	CUgraph graph = capture(w);
	CUgraphExec exec = gcpt_life(graph);

	replay(w, exec);
	gcpt_exec_destroy(exec);
	gcpt_graph_destroy(graph);
}

static void life_destroyed(struct worker *w)
{
	CUgraph graph = capture(w);
	CUgraphExec exec = gcpt_life(graph);

	gcpt_graph_destroy(graph);
	replay(w, exec);
	gcpt_exec_destroy(exec);
}

static void life_clone(struct worker *w)
{
	CUgraph clone = gcpt_graph_to_clone(capture(w));
	CUgraphExec exec;

	eager(w);
	exec = gcpt_life(clone);
	gcpt_graph_destroy(clone);
	replay(w, exec);
	gcpt_exec_destroy(exec);
}

static void life_child(struct worker *w)
{
	CUgraph outer = gcpt_graph_to_child(capture(w));
	CUgraphExec exec;

	eager(w);
	exec = gcpt_life(outer);
	gcpt_graph_destroy(outer);
	replay(w, exec);
	gcpt_exec_destroy(exec);
}

static void life_update(struct worker *w)
{
	CUgraph first = capture(w), second = capture(w);
	CUgraphExec exec = gcpt_life(first);

	gcpt_graph_destroy(first);
	replay(w, exec);
	gcpt_exec_update(exec, second);
	replay(w, exec);
	gcpt_exec_destroy(exec);
}

static void life_inflight(struct worker *w)
{
	CUgraph graph = capture(w);
	CUgraphExec exec = gcpt_life(graph);

	gcpt_graph_destroy(graph);
	launch(w, exec);
	gcpt_exec_destroy(exec);
	eager(w);
	check(w);
}

/* Synchronizing the capturing stream is what CUDA forbids most clearly. */
static void life_invalid(struct worker *w)
{
	CUgraph graph = NULL;
	void *p;

	GCPT_OK(gcpt_capture_begin(w->stream, w->set->mode));
	GCPT_OK(gcpt_malloc(&p, w->set->words * 4));
	GCPT_OK(gcpt_launch_fill(&w->set->kernels, w->stream, p, w->set->words, 1));
	gcpt_stream_sync(w->stream);
	GCPT_OK(gcpt_free(p));
	gcpt_capture_end(w->stream, &graph);
	gcpt_last_error();
	eager(w);
}

static void life_output(struct worker *w)
{
	const struct gcpt_kernels *k = &w->set->kernels;
	size_t n = w->set->words;
	CUgraphExec exec;
	CUgraph graph;
	void *p;

	GCPT_OK(gcpt_capture_begin(w->stream, w->set->mode), gcpt_malloc(&p, n * 4));
	GCPT_OK(gcpt_launch_copy(k, w->stream, p, w->input, n));
	GCPT_OK(gcpt_capture_end(w->stream, &graph));
	exec = gcpt_life(graph);
	launch(w, exec);
	gcpt_exec_destroy(exec);
	gcpt_graph_destroy(graph);
	eager(w);
	GCPT_OK(gcpt_launch_check(k, w->stream, p, n, w->value, w->counter));
	GCPT_OK(gcpt_free(p));
	eager(w);
}

static const struct life lives[] = {
    {"exec", life_exec},       {"destroyed", life_destroyed},
    {"clone", life_clone},     {"child", life_child},
    {"update", life_update},   {"inflight", life_inflight},
    {"invalid", life_invalid}, {"output", life_output},
};

/* --- threads ------------------------------------------------------------------- */

static void worker_begin(struct worker *w)
{
	unsigned long long zero = 0;

	GCPT_OK(gcpt_use(0), gcpt_stream_create(&w->stream));
	GCPT_OK(gcpt_stream_create(&w->eager_stream));
	GCPT_OK(gcpt_malloc(&w->input, w->set->words * 4));
	GCPT_OK(gcpt_malloc(&w->output, w->set->words * 4));
	GCPT_OK(gcpt_malloc(&w->counter, sizeof(zero)));
	GCPT_OK(gcpt_set_async(w->counter, 0, sizeof(zero), w->stream));
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	worker_begin(w);
	pthread_barrier_wait(&begun);
	for (unsigned i = 0; i < w->set->rounds; i++)
		for (size_t l = 0; l < sizeof(lives) / sizeof(*lives); l++)
			if (!w->set->only || !strcmp(w->set->only, lives[l].name))
				lives[l].run(w);
	return NULL;
}

/* Only allocates and frees, while others capture. */
static void *eager_run(void *arg)
{
	struct worker *w = arg;

	worker_begin(w);
	pthread_barrier_wait(&begun);
	while (!atomic_load(&stop)) {
		eager(w);
		usleep(200);
	}
	return NULL;
}

/* After the threads: no stream captures any more, so waiting is allowed. */
static unsigned long long worker_end(struct worker *w)
{
	GCPT_OK(gcpt_stream_sync(w->stream), gcpt_stream_sync(w->eager_stream));
	GCPT_OK(gcpt_copy(&w->wrong, w->counter, sizeof(w->wrong)));
	GCPT_OK(gcpt_stream_destroy(w->stream), gcpt_stream_destroy(w->eager_stream));
	GCPT_OK(gcpt_free(w->input), gcpt_free(w->output), gcpt_free(w->counter));
	return w->wrong;
}

static unsigned long long run_all(const struct setting *set)
{
	struct worker *workers = calloc(set->threads + 1, sizeof(*workers));
	unsigned long long wrong = 0;

	if (!workers)
		exit(2);
	atomic_store(&stop, false);
	pthread_barrier_init(&begun, NULL, set->threads + set->eager_thread);
	for (unsigned i = 0; i < set->threads + set->eager_thread; i++) {
		workers[i].set = set;
		workers[i].random = i + 1;
		pthread_create(&workers[i].thread, NULL,
			       i < set->threads ? worker_run : eager_run, &workers[i]);
	}
	for (unsigned i = 0; i < set->threads; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&stop, true);
	if (set->eager_thread)
		pthread_join(workers[set->threads].thread, NULL);
	for (unsigned i = 0; i < set->threads + set->eager_thread; i++)
		wrong += worker_end(&workers[i]);
	free(workers);
	return wrong;
}

int main(int argc, char **argv)
{
	struct setting set = {
	    .rounds = (unsigned)gcpt_arg(argc, argv, "--rounds", 50),
	    .replays = (unsigned)gcpt_arg(argc, argv, "--replays", 3),
	    .threads = (unsigned)gcpt_arg(argc, argv, "--threads", 1),
	    .words = gcpt_arg(argc, argv, "--words", 65536),
	    .only = gcpt_arg_text(argc, argv, "--only", NULL),
	    .leak = gcpt_flag(argc, argv, "--leak"),
	    .eager_thread = gcpt_flag(argc, argv, "--eager-thread"),
	};
	size_t before, after, total;
	struct setting warm;
	unsigned long long wrong;
	bool lost;

	if (!set.threads || set.threads > THREADS_MAX || !set.words)
		return 2;
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	if (set.threads > 1)
		set.mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	warm = set;
	warm.rounds = 1;
	run_all(&warm);
	GCPT_OK(gcpt_sync(), gcpt_mem_info(&before, &total));
	wrong = run_all(&set);
	/* CUDA tells of the ends of graphs on a thread of its own. */
	lost = !gcpt_private_wait(0);
	GCPT_OK(gcpt_mem_info(&after, &total));
	/* Graphs themselves take memory of the driver's, in lumps. */
	lost |= before > after && before - after > (32u << 20) + 16 * set.words;
	printf("graphs: %u rounds, %u threads: wrong words: %llu, memory: %s\n",
	       set.rounds, set.threads, wrong, lost ? "LOST" : "all back");
	return wrong || lost ? 1 : 0;
}
