/* SPDX-License-Identifier: MIT */
/*
 * graph_scratch.c - graphs whose captured code allocates and frees its temporaries:
 * how much they hold together, and whether they stay apart when they run side by side.
 * Plain CUDA refuses to allocate during these captures: the program needs the library.
 *
 *   --play held      memory held by --graphs graphs with --bytes of temporaries each,
 *                    launched one after the other
 *   --play stress    --launches launches of --graphs graphs: --order one (stream), turn
 *                    (over --streams streams), threads (--threads of them at the same
 *                    time, each with a stream of its own and all graphs)
 *   --play launch    host time of a launch into the same stream
 *   --play trim      gcpool_trim, and the first launch after it
 *
 *   --form once      the program destroys each graph, as PyTorch does (the default)
 *          kept      it keeps them
 *          all       ... and launches in turn a second executable, a clone's, a
 *                    parent's and one that was updated to the graph, one after the
 *                    other: they use the same temporaries
 *
 * Each graph fills its temporaries with a value of its own and counts the words that
 * differ from it, so that a graph finds what another one wrote there meanwhile.
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error.
 *
 * Run: graph_scratch.py @
 */
#include <pthread.h>

#include "kernels.h"
#include "graph_forms.h"
#include "pool.h"

enum { GRAPHS_MAX = 1024, STREAMS_MAX = 16, TIMES = 9, QUEUE = 256, BLOCKS_MAX = 64 };

struct setting {
	unsigned graphs, streams, threads, nodes;
	uint64_t launches, bytes, spin_ns, seed;
	bool every_stream; /* each thread launches into all of them */
	unsigned forms;    /* executables of each graph */
	bool kept;
	struct gcpt_kernels kernels;
};

enum { FORMS = 5 };
static struct setting set;
static CUgraph kept[GRAPHS_MAX][2];
static CUgraphExec execs[GRAPHS_MAX], forms[GRAPHS_MAX][FORMS];
static CUevent latest[GRAPHS_MAX];        /* launch, with several forms */
static pthread_mutex_t locks[GRAPHS_MAX]; /* of each: CUDA has none */
static CUstream streams[STREAMS_MAX];
static void *counter;

/* --- graphs ------------------------------------------------------------------ */

/* Two temporaries, one after the other, so that half of --bytes is each; between them
 * the graph takes its time. */
static void capture_work(unsigned number, CUstream stream)
{
	const struct gcpt_kernels *k = &set.kernels;
	uint64_t n = set.bytes / 8;
	uint32_t value = 0x10001u * (number + 1);
	void *a, *b;

	GCPT_OK(gcpt_malloc(&a, n * 4), gcpt_malloc(&b, n * 4));
	GCPT_OK(gcpt_launch_fill(k, stream, a, n, value));
	for (unsigned i = 0; i < set.nodes; i++)
		GCPT_OK(gcpt_launch_spin(k, stream, set.spin_ns));
	GCPT_OK(gcpt_launch_copy(k, stream, b, a, n));
	GCPT_OK(gcpt_launch_check(k, stream, a, n, value, counter), gcpt_free(a));
	GCPT_OK(gcpt_launch_check(k, stream, b, n, value, counter), gcpt_free(b));
}

static CUgraph capture(unsigned number, CUstream stream)
{
	CUgraph graph;

	GCPT_OK(gcpt_capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	capture_work(number, stream);
	GCPT_OK(gcpt_capture_end(stream, &graph));
	return graph;
}

static void forms_make(unsigned number)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph = kept[number][0], clone, other;
	CUgraphExec *form = forms[number];

	form[0] = execs[number];
	form[1] = gcpt_life(graph);
	GCPT_OK(cu.cuGraphClone(&clone, graph));
	form[2] = gcpt_life(clone);
	kept[number][1] = gcpt_graph_to_child(clone);
	form[3] = gcpt_life(kept[number][1]);
	other = capture(number, streams[0]);
	form[4] = gcpt_life(other);
	gcpt_graph_destroy(other);
	GCPT_OK(cu.cuGraphExecUpdate(form[4], graph, &info));
	GCPT_OK(cu.cuEventCreate(&latest[number], CU_EVENT_DISABLE_TIMING));
}

static void graphs_make(void)
{
	for (unsigned i = 0; i < set.graphs; i++) {
		CUgraph graph = capture(i, streams[0]);

		execs[i] = gcpt_life(graph);
		if (set.kept)
			kept[i][0] = graph;
		else
			gcpt_graph_destroy(graph);
		if (set.forms > 1)
			forms_make(i);
	}
}

/* Of several forms none may run beside another one. */
static void graph_launch(unsigned number, uint64_t form, CUstream stream)
{
	if (set.forms == 1) {
		GCPT_OK(gcpt_graph_launch(execs[number], stream));
		return;
	}
	GCPT_OK(cu.cuStreamWaitEvent(stream, latest[number], 0));
	GCPT_OK(gcpt_graph_launch(forms[number][form % FORMS], stream));
	GCPT_OK(cu.cuEventRecord(latest[number], stream));
}

static void graphs_end(void)
{
	for (unsigned i = 0; i < set.graphs; i++) {
		gcpt_exec_destroy(execs[i]);
		for (unsigned k = 1; k < set.forms; k++)
			gcpt_exec_destroy(forms[i][k]);
		for (unsigned k = 0; k < 2; k++)
			if (kept[i][k])
				gcpt_graph_destroy(kept[i][k]);
		if (latest[i])
			GCPT_OK(cu.cuEventDestroy(latest[i]));
	}
}

/* One after the other, and waits. */
static void graphs_run(void)
{
	for (unsigned i = 0; i < set.graphs * set.forms; i++)
		graph_launch(i / set.forms, i % set.forms, streams[0]);
	GCPT_OK(gcpt_stream_sync(streams[0]));
}

static unsigned long long wrong_words(void)
{
	unsigned long long wrong;

	GCPT_OK(gcpt_sync(), gcpt_copy(&wrong, counter, sizeof(wrong)));
	return wrong;
}

static int result(void)
{
	unsigned long long wrong = wrong_words();

	graphs_end();
	gcpt_private_wait(0); /* CUDA tells of their end on a thread of its own */
	printf("wrong words: %llu\n", wrong);
	return wrong != 0;
}

/* --- held --------------------------------------------------------------------- */

static uint64_t reserved(void)
{
	struct gcpool_stats stats;

	return gcpt_pool_stats(&stats) ? stats.reserved_bytes.current : 0;
}

static uint64_t used(void)
{
	size_t left, total;

	GCPT_OK(gcpt_mem_info(&left, &total));
	return total - left;
}

static double mib(uint64_t after, uint64_t before)
{
	return ((double)after - (double)before) / 1048576;
}

static int play_held(void)
{
	uint64_t pool, device, trimmed;

	gcpt_pool_trim(&trimmed);
	pool = reserved();
	device = used();
	graphs_make();
	graphs_run();
	graphs_run();
	printf("held: %.1f MiB of the library, %.1f MiB of the device\n",
	       mib(reserved(), pool), mib(used(), device));
	gcpt_pool_trim(&trimmed);
	graphs_run();
	printf("after a trim: %.1f MiB of the library, %.1f MiB of the device\n",
	       mib(reserved(), pool), mib(used(), device));
	return result();
}

/* --- stress --------------------------------------------------------------------- */

/* So that the queues stay short enough to be waited for. */
static void keep_short(uint64_t i, CUstream stream)
{
	if (i % QUEUE == QUEUE - 1)
		GCPT_OK(gcpt_stream_sync(stream));
}

static int play_turns(unsigned count)
{
	uint64_t random = set.seed;

	graphs_make();
	for (uint64_t i = 0; i < set.launches; i++) {
		CUstream stream = streams[i % count];
		uint64_t number = gcpt_random(&random);

		graph_launch((unsigned)(number % set.graphs), number >> 32, stream);
		keep_short(i, stream);
	}
	return result();
}

/* Calls with one executable are made one at a time; its launches follow each other,
 * whatever their streams. */
static void launch_locked(unsigned number, CUstream stream)
{
	static unsigned form;

	pthread_mutex_lock(&locks[number]);
	graph_launch(number, form++, stream);
	pthread_mutex_unlock(&locks[number]);
}

static void *launches_run(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	uint64_t random = set.seed + number;

	GCPT_OK(gcpt_use(0));
	for (uint64_t i = 0; i < set.launches / set.threads; i++) {
		CUstream stream = streams[number % set.streams];

		if (set.every_stream)
			stream = streams[gcpt_random(&random) % set.streams];
		launch_locked((unsigned)(gcpt_random(&random) % set.graphs), stream);
		keep_short(i, stream);
	}
	return NULL;
}

static int play_threads(void)
{
	pthread_t threads[STREAMS_MAX];

	graphs_make();
	for (unsigned i = 0; i < set.graphs; i++)
		pthread_mutex_init(&locks[i], NULL);
	for (unsigned i = 0; i < set.threads; i++)
		if (pthread_create(&threads[i], NULL, launches_run,
				   (void *)(uintptr_t)i) != 0)
			return 2;
	for (unsigned i = 0; i < set.threads; i++)
		pthread_join(threads[i], NULL);
	return result();
}

static int play_stress(const char *order)
{
	if (strcmp(order, "threads") == 0)
		return play_threads();
	return play_turns(strcmp(order, "one") == 0 ? 1 : set.streams);
}

/* --- times ---------------------------------------------------------------------- */

static double launch_ns(unsigned count)
{
	uint64_t start = gcpt_now_ns(), end;

	for (unsigned i = 0; i < count; i++)
		GCPT_OK(gcpt_graph_launch(execs[i % set.graphs], streams[0]));
	end = gcpt_now_ns();
	GCPT_OK(gcpt_stream_sync(streams[0]));
	return (double)(end - start) / count;
}

static int play_launch(void)
{
	struct gcpool_stats stats = {0};
	double times[TIMES * 5];

	graphs_make();
	graphs_run();
	graphs_run();
	for (unsigned i = 0; i < TIMES * 5; i++)
		times[i] = launch_ns(QUEUE / 2);
	(void)gcpt_pool_stats(&stats);
	printf("launch: %.0f ns, lanes: %llu\n", gcpt_median(times, TIMES * 5),
	       (unsigned long long)stats.lane.current);
	return result();
}

static int play_trim(void)
{
	double trims[TIMES], launches[TIMES];
	uint64_t bytes = 0;

	graphs_make();
	graphs_run();
	graphs_run();
	for (unsigned i = 0; i < TIMES; i++) {
		uint64_t start = gcpt_now_ns(), middle;

		gcpt_pool_trim(&bytes);
		middle = gcpt_now_ns();
		GCPT_OK(gcpt_graph_launch(execs[i % set.graphs], streams[0]));
		launches[i] = (double)(gcpt_now_ns() - middle) / 1e6;
		trims[i] = (double)(middle - start) / 1e6;
		GCPT_OK(gcpt_stream_sync(streams[0]));
	}
	printf("trim: %.3f ms, next launch: %.3f ms, given back: %.1f MiB\n",
	       gcpt_median(trims, TIMES), gcpt_median(launches, TIMES), mib(bytes, 0));
	return result();
}

/* --- a full device --------------------------------------------------------------- */

int main(int argc, char **argv)
{
	const char *play = gcpt_arg_text(argc, argv, "--play", "held");
	const char *form = gcpt_arg_text(argc, argv, "--form", "once");
	uint64_t zero = 0;

	set = (struct setting){
	    .graphs = (unsigned)gcpt_arg(argc, argv, "--graphs", 4),
	    .streams = (unsigned)gcpt_arg(argc, argv, "--streams", 4),
	    .threads = (unsigned)gcpt_arg(argc, argv, "--threads", 4),
	    .nodes = (unsigned)gcpt_arg(argc, argv, "--nodes", 1),
	    .launches = gcpt_arg(argc, argv, "--launches", 1000),
	    .bytes = gcpt_arg(argc, argv, "--bytes", 4 << 20),
	    .spin_ns = gcpt_arg(argc, argv, "--spin", 2000),
	    .seed = gcpt_arg(argc, argv, "--seed", 1),
	    .every_stream = gcpt_flag(argc, argv, "--every-stream"),
	    .forms = strcmp(form, "all") == 0 ? FORMS : 1,
	    .kept = strcmp(form, "once") != 0,
	};
	if (!set.graphs || set.graphs > GRAPHS_MAX || !set.streams || !set.threads ||
	    set.streams > STREAMS_MAX || set.threads > STREAMS_MAX || set.bytes < 8)
		return 2;
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	for (unsigned i = 0; i < set.streams || i < 2; i++)
		GCPT_OK(gcpt_stream_create(&streams[i]));
	GCPT_OK(gcpt_malloc(&counter, sizeof(zero)));
	GCPT_OK(gcpt_copy(counter, &zero, sizeof(zero)));
	if (strcmp(play, "held") == 0)
		return play_held();
	if (strcmp(play, "stress") == 0)
		return play_stress(gcpt_arg_text(argc, argv, "--order", "one"));
	if (strcmp(play, "launch") == 0)
		return play_launch();
	return strcmp(play, "trim") == 0 ? play_trim() : 2;
}
