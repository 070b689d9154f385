/* SPDX-License-Identifier: MIT */
/*
 * window.c - how much throughput malloc and free around each kernel cost.
 *
 * Launches kernels of 20 us round-robin over some streams: once upon blocks
 * that live throughout, once with malloc before and free after each launch.
 * Prints the ratio of the two, 1 being "allocation is free".
 *
 *   --streams N --launches N --size BYTES --work NS --trials N
 *
 * Styles: static shared linked dlsym
 */

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { STREAMS_MAX = 64, TRIALS_MAX = 64, TOUCHED_WORDS = 256 };

struct setting {
	unsigned streams, launches;
	size_t bytes;
	uint64_t work_ns;
	CUstream stream[STREAMS_MAX];
	void *fixed[STREAMS_MAX];
	struct gcpt_kernels kernels;
};

static void launch_once(const struct setting *set, unsigned i, bool allocate)
{
	unsigned s = i % set->streams;
	void *p = set->fixed[s];

	if (allocate)
		GCPT_OK(gcpt_malloc(&p, set->bytes));
	GCPT_OK(gcpt_launch_fill_slow(&set->kernels, set->stream[s], p, TOUCHED_WORDS,
				      i, set->work_ns));
	if (allocate)
		GCPT_OK(gcpt_free(p));
}

/* Nanoseconds per launch. */
static double run(const struct setting *set, unsigned launches, bool allocate)
{
	uint64_t start;

	GCPT_OK(gcpt_sync());
	start = gcpt_now_ns();
	for (unsigned i = 0; i < launches; i++)
		launch_once(set, i, allocate);
	GCPT_OK(gcpt_sync());
	return (double)(gcpt_now_ns() - start) / launches;
}

static void prepare(struct setting *set)
{
	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set->kernels));
	for (unsigned s = 0; s < set->streams; s++) {
		GCPT_OK(gcpt_stream_create(&set->stream[s]));
		GCPT_OK(gcpt_malloc(&set->fixed[s], set->bytes));
	}
	run(set, set->launches / 4 + 1, false);
	run(set, set->launches / 4 + 1, true);
}

int main(int argc, char **argv)
{
	struct setting set = {
	    .streams = (unsigned)gcpt_arg(argc, argv, "--streams", 4),
	    .launches = (unsigned)gcpt_arg(argc, argv, "--launches", 4000),
	    .bytes = gcpt_arg(argc, argv, "--size", 1 << 20),
	    .work_ns = gcpt_arg(argc, argv, "--work", 20000),
	};
	unsigned trials = (unsigned)gcpt_arg(argc, argv, "--trials", 5);
	double without[TRIALS_MAX], with[TRIALS_MAX], a, b;

	if (!set.streams || set.streams > STREAMS_MAX || !set.launches || !trials ||
	    trials > TRIALS_MAX || set.bytes < TOUCHED_WORDS * 4) {
		fprintf(stderr, "window: an argument is out of bounds\n");
		return 2;
	}
	prepare(&set);
	for (unsigned i = 0; i < trials; i++) {
		without[i] = run(&set, set.launches, false);
		with[i] = run(&set, set.launches, true);
	}
	a = gcpt_median(without, trials);
	b = gcpt_median(with, trials);
	printf("window: %u streams: %.0f ns per launch without allocation, %.0f with; "
	       "ratio %.3f\n",
	       set.streams, a, b, a / b);
	return 0;
}
