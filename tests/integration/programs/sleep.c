/* SPDX-License-Identifier: MIT */
/*
 * sleep.c - sleeps and wakes: blocks and outputs of graphs hold what they held, at the
 * same addresses, and the graphs run as before.
 *
 *   --blocks N --bytes BYTES   what is held
 *   --rounds N                 sleeps, and as many wakes by the next call
 *   --frees N                  small blocks that are freed meanwhile
 *   --workers N                threads that fill and check meanwhile
 *   --outside                  says what nvidia-smi sees awake and asleep
 *   --idle                     says "ready", and checks once a line has come
 *
 * Exit code: 0 no wrong word, 1 wrong words, 2 an error.
 *
 * Styles: static shared linked dlsym ptsz
 * Tried: everywhere
 * Run: mapped: trial.py @ --bytes 4m GCPOOL_WAKE=auto
 * Run: mapped: trial.py @ --frees 400000 --bytes 512 --rounds 2 GCPOOL_WAKE=auto
 * Run: mapped: trial.py @ --workers 2 GCPOOL_WAKE=auto
 * Run: mapped: trial.py @ --blocks 30 GCPOOL_QUOTA=28M GCPOOL_SPILL=1G GCPOOL_WAKE=auto
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "kernels.h"
#include "graph_forms.h"

enum { GRAPHS = 2, BLOCKS_MAX = 4096, WORKERS_MAX = 16, FREES_MAX = 400000 };

static struct gcpt_kernels k;
static uint64_t blocks, bytes, rounds, workers, frees;
static void *block[BLOCKS_MAX], *output[GRAPHS], *wrong, *gone[FREES_MAX];
static CUgraphExec graph[GRAPHS];
static CUstream stream;
static int (*gcpool_sleep)(unsigned timeout_ms), (*gcpool_wake)(void);
static volatile bool ended;

/* Its temporary has no content between two launches. */
static CUgraphExec captured(void **ret_output, uint32_t value)
{
	CUgraphExec exec;
	CUgraph made;
	void *temporary;

	GCPT_OK(gcpt_capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	GCPT_OK(gcpt_malloc(ret_output, bytes), gcpt_malloc(&temporary, bytes));
	GCPT_OK(gcpt_launch_fill(&k, stream, temporary, bytes / 4, value));
	GCPT_OK(gcpt_launch_copy(&k, stream, *ret_output, temporary, bytes / 4));
	GCPT_OK(gcpt_free(temporary), gcpt_capture_end(stream, &made));
	exec = gcpt_life(made);
	gcpt_graph_destroy(made);
	return exec;
}

static void outside(const char *when)
{
	printf("%s, MiB used of the device: ", when);
	fflush(stdout);
	if (system("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"))
		puts("unknown");
	fflush(stdout);
}

static void check(void *p, uint32_t value)
{
	GCPT_OK(gcpt_launch_check(&k, stream, p, bytes / 4, value, wrong));
}

static uint32_t value_of(uint64_t round, uint64_t i)
{
	return (uint32_t)(round * 7919 + i + 1);
}

static uint32_t wrong_words(void)
{
	uint32_t count;

	GCPT_OK(gcpt_stream_sync(stream), gcpt_copy(&count, wrong, sizeof(count)));
	return count;
}

/* All holds what the last round left, and gets new contents. */
static void turn(uint64_t round)
{
	for (uint64_t i = 0; i < blocks; i++) {
		check(block[i], value_of(round, i));
		GCPT_OK(gcpt_launch_fill(&k, stream, block[i], bytes / 4,
					 value_of(round + 1, i)));
	}
	for (unsigned i = 0; i < GRAPHS; i++) {
		check(output[i], 100 + i);
		GCPT_OK(gcpt_launch_fill(&k, stream, output[i], bytes / 4, 0));
		GCPT_OK(gcpt_graph_launch(graph[i], stream));
		check(output[i], 100 + i);
	}
}

static void *work(void *unused)
{
	CUstream own;
	void *p;

	(void)unused;
	GCPT_OK(gcpt_use(0), gcpt_stream_create(&own));
	for (uint32_t i = 1; !ended; i++) {
		GCPT_OK(gcpt_malloc(&p, bytes));
		GCPT_OK(gcpt_launch_fill(&k, own, p, bytes / 4, i));
		GCPT_OK(gcpt_launch_check(&k, own, p, bytes / 4, i, wrong));
		GCPT_OK(gcpt_free(p));
		if (i % 16 == 0)
			GCPT_OK(gcpt_stream_sync(own));
	}
	GCPT_OK(gcpt_stream_sync(own));
	return NULL;
}

static int sleep_now(void)
{
	uint64_t start = gcpt_now_ns();
	int result = gcpool_sleep(10000);

	if (result)
		printf("gcpool_sleep: %d\n", result);
	else
		printf("asleep after %.1f ms\n", (double)(gcpt_now_ns() - start) / 1e6);
	return result;
}

static int sleeps_play(bool outsides)
{
	for (uint64_t round = 0; round < rounds; round++) {
		uint64_t start;

		for (uint64_t i = 0; i < frees; i++)
			GCPT_OK(gcpt_malloc(&gone[i], bytes));
		if (sleep_now() != 0)
			return 1;
		if (outsides && round < 2)
			outside("asleep");
		start = gcpt_now_ns();
		for (uint64_t i = 0; i < frees; i++)
			GCPT_OK(gcpt_free(gone[i])); /* and sleeps on */
		if (!workers && (gcpool_sleep(0) != -EALREADY ||
				 gcpt_free(*gone) == 0 || gcpool_wake() != -EALREADY))
			return 1;
		if (round % 2 && gcpool_wake() > 0)
			return 1;
		turn(round);
		printf("awake, %.1f ms\n", (double)(gcpt_now_ns() - start) / 1e6);
	}
	return 0;
}

static int play(int argc, char **argv)
{
	pthread_t threads[WORKERS_MAX];
	int result;

	workers = gcpt_arg(argc, argv, "--workers", 0);
	for (uint64_t i = 0; i < workers && i < WORKERS_MAX; i++)
		GCPT_OK(pthread_create(&threads[i], NULL, work, NULL));
	result = sleeps_play(gcpt_flag(argc, argv, "--outside"));
	ended = true;
	for (uint64_t i = 0; i < workers && i < WORKERS_MAX; i++)
		GCPT_OK(pthread_join(threads[i], NULL));
	return result;
}

int main(int argc, char **argv)
{
	int result = 0;

	blocks = gcpt_arg(argc, argv, "--blocks", 8);
	bytes = gcpt_arg(argc, argv, "--bytes", 1 << 20);
	rounds = gcpt_arg(argc, argv, "--rounds", 6);
	*(void **)&gcpool_sleep = dlsym(RTLD_DEFAULT, "gcpool_sleep");
	*(void **)&gcpool_wake = dlsym(RTLD_DEFAULT, "gcpool_wake");
	frees = gcpt_arg(argc, argv, "--frees", 1);
	if (blocks > BLOCKS_MAX || frees > FREES_MAX || !gcpool_sleep || !gcpool_wake)
		return 2;
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&k), gcpt_stream_create(&stream));
	if (gcpt_flag(argc, argv, "--outside"))
		outside("a bare context");
	GCPT_OK(gcpt_malloc(&wrong, 4), gcpt_set_async(wrong, 0, 4, stream));
	for (unsigned i = 0; i < GRAPHS; i++) {
		graph[i] = captured(&output[i], 100 + i);
		GCPT_OK(gcpt_graph_launch(graph[i], stream));
	}
	for (uint64_t i = 0; i < blocks; i++) {
		GCPT_OK(gcpt_malloc(&block[i], bytes));
		GCPT_OK(
		    gcpt_launch_fill(&k, stream, block[i], bytes / 4, value_of(0, i)));
	}
	GCPT_OK(gcpt_stream_sync(stream));
	if (gcpt_flag(argc, argv, "--outside"))
		outside("awake");
	if (!gcpt_flag(argc, argv, "--idle")) {
		result = play(argc, argv);
	} else {
		puts("ready");
		fflush(stdout);
		for (rounds = 0; getchar() != EOF; rounds++)
			turn(rounds);
	}
	printf("%u wrong words after %llu rounds\n", wrong_words(),
	       (unsigned long long)rounds);
	return result ? 2 : wrong_words() != 0;
}
