/* SPDX-License-Identifier: MIT */
/*
 * loop.c - the time of malloc + kernel + free, the habit that a caching
 * allocator is made for.
 *
 *   --size BYTES --iterations N --warm N (before the clock starts)
 *   --async          cudaMallocAsync and cudaFreeAsync, with a driver pool that
 *                    keeps what is freed
 *   --no-kernel      malloc + free alone
 *   --pause US       sleep after each iteration
 *
 * Prints nanoseconds per iteration.
 *
 * Styles: static shared linked dlsym
 */
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

struct setting {
	size_t bytes;
	unsigned iterations, pause; /* in microseconds */
	bool async, kernel;
	CUstream stream;
	struct gcpt_kernels kernels;
};

static void iterate(const struct setting *set)
{
	void *p;

	if (set->async)
		GCPT_OK(gcpt_malloc_async(&p, set->bytes, set->stream));
	else
		GCPT_OK(gcpt_malloc(&p, set->bytes));
	if (set->kernel) {
		size_t words = set->bytes / 4 < 256 ? set->bytes / 4 : 256;

		GCPT_OK(gcpt_launch_fill(&set->kernels, set->stream, p, words, 1));
	}
	if (set->async)
		GCPT_OK(gcpt_free_async(p, set->stream));
	else
		GCPT_OK(gcpt_free(p));
	if (set->pause)
		usleep(set->pause);
}

static double run(const struct setting *set, unsigned iterations)
{
	uint64_t start = gcpt_now_ns();

	for (unsigned i = 0; i < iterations; i++)
		iterate(set);
	GCPT_OK(gcpt_stream_sync(set->stream));
	return iterations ? (double)(gcpt_now_ns() - start) / iterations : 0;
}

int main(int argc, char **argv)
{
	struct setting set = {
	    .bytes = gcpt_arg(argc, argv, "--size", 4 << 20),
	    .iterations = (unsigned)gcpt_arg(argc, argv, "--iterations", 20000),
	    .pause = (unsigned)gcpt_arg(argc, argv, "--pause", 0),
	    .async = gcpt_flag(argc, argv, "--async"),
	    .kernel = !gcpt_flag(argc, argv, "--no-kernel"),
	};

	GCPT_OK(gcpt_use(0), gcpt_kernels_load(&set.kernels));
	GCPT_OK(gcpt_stream_create(&set.stream));
	if (set.async)
		GCPT_OK(gcpt_async_keep(0));
	run(&set, (unsigned)gcpt_arg(argc, argv, "--warm", 1000));
	printf("loop: %zu bytes: %.0f ns per iteration\n", set.bytes,
	       run(&set, set.iterations));
	GCPT_OK(gcpt_stream_destroy(set.stream));
	return 0;
}
