/* SPDX-License-Identifier: MIT */
/*
 * fuzz_explore.c - a fuzzer of the whole library: each input is a history of the
 * explorer (tests/explore/draw.h), which is correct on plain CUDA whatever the bytes
 * are, and is played on the simulated device with all of the explorer's oracles.
 *
 * Each input is played in a child, as by the explorer. What the child has covered of
 * the library goes to this process through shared memory, so that libFuzzer sees it.
 * An input that fails can be played alone and shrunk:
 *
 *   explore --library LIBRARY --bytes FILE --shrink
 */
#include "../trial.h"

#include <sys/mman.h>

enum { SECONDS = 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the library's build for this; probe.c. */
extern void gcpool_explore_counters(uint8_t **ret_start, uint8_t **ret_stop);

static uint8_t *counters, *covered; /* the library's; shared */
static size_t counter_count;

/* The child's end, however it comes about. */
static void child_ends(void)
{
	memcpy(covered, counters, counter_count);
}

static void start(void)
{
	uint8_t *stop;

	setenv("GCPOOL_LOG", "error", 1);
	trial_init();
	gcpool_explore_counters(&counters, &stop);
	counter_count = (size_t)(stop - counters);
	covered = mmap(NULL, counter_count, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counter_count == 0 || covered == MAP_FAILED) {
		fputs("fuzz_explore: what is covered is not counted\n", stderr);
		exit(2);
	}
	trial_child_ends = child_ends;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct trial trial = {.seconds = SECONDS};
	static struct history history;
	struct source source = source_of_bytes(data, size);
	struct setting setting;

	if (!covered)
		start();
	setting_draw(&setting, &source);
	history_draw(&history, &setting);
	memset(covered, 0, counter_count);
	if (!trial_run(&trial, &setting, &history, NULL)) {
		fprintf(stderr, "fuzz_explore: step %u of %u operations: %s\n",
			outcome->step, history.count, outcome->why);
		abort();
	}
	memcpy(counters, covered, counter_count);
	return 0;
}
