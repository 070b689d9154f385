/* SPDX-License-Identifier: MIT */
/*
 * bench_captures.c - what an allocation costs in a long capture: of one line of work;
 * beside a stream that was forked and is joined at the end; and where one is joined
 * after every ten, and forked again. On the simulated driver, under the library. The
 * same captures with memory that was there before say what the driver itself takes.
 *
 *   meson test -C build --benchmark --verbose
 *   bench_captures [--driver] [ALLOCATIONS]: only the latter, also without the library
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 7, BETWEEN_JOINS = 10, BYTES = 4096 };

enum shape { LINE, FORKED, JOINED, SHAPES };

static CUstream line, side;
static CUevent fork_event, join_event;
static CUdeviceptr old; /* for both */
static int allocations = 50000;

static void must(CUresult result)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "bench_captures: result %d\n", result);
		exit(1);
	}
}

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void fork_side(void)
{
	must(cuEventRecord(fork_event, line));
	must(cuStreamWaitEvent(side, fork_event, 0));
	must(cuMemsetD8Async(old + BYTES, 0, BYTES, side));
}

static void join_side(void)
{
	must(cuEventRecord(join_event, side));
	must(cuStreamWaitEvent(line, join_event, 0));
}

/* ns for each allocation, with its kernel and its free; the capture's end is in it. */
static double capture_ns(enum shape shape, int allocates)
{
	double since = cpu_ns();
	CUgraph graph;

	must(cuStreamBeginCapture(line, CU_STREAM_CAPTURE_MODE_GLOBAL));
	must(cuMemsetD8Async(old, 0, BYTES, line));
	if (shape != LINE)
		fork_side();
	for (int i = 1; i <= allocations; i++) {
		CUdeviceptr addr = old;

		if (allocates)
			must(cuMemAlloc(&addr, BYTES));
		must(cuMemsetD8Async(addr, 1, BYTES, line));
		if (allocates)
			must(cuMemFree(addr));
		if (shape == JOINED && i % BETWEEN_JOINS == 0) {
			join_side();
			fork_side();
		}
	}
	if (shape != LINE)
		join_side();
	must(cuStreamEndCapture(line, &graph));
	since = cpu_ns() - since;
	must(cuGraphDestroy(graph));
	return since / allocations;
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"one line", "forked, joined at the end",
					    "joined after every ten"};
	double best[SHAPES][2] = {0};
	CUcontext ctx;

	int most = 2;

	if (argc > 1 && strcmp(argv[1], "--driver") == 0) {
		most = 1;
		argc--;
		argv++;
	}
	if (argc > 1)
		allocations = atoi(argv[1]);
	if (allocations < 1) {
		fprintf(stderr, "bench_captures: [--driver] [ALLOCATIONS]\n");
		return 2;
	}
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&ctx, 0));
	must(cuCtxSetCurrent(ctx));
	must(cuStreamCreate(&line, CU_STREAM_NON_BLOCKING));
	must(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	must(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
	must(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
	must(cuMemAlloc(&old, (size_t)2 * BYTES));
	for (int repeat = 0; repeat < REPEATS; repeat++)
		for (int shape = 0; shape < SHAPES; shape++)
			for (int allocates = 0; allocates < most; allocates++) {
				double ns = capture_ns(shape, allocates);

				if (repeat == 0 || ns < best[shape][allocates])
					best[shape][allocates] = ns;
			}
	printf("a capture of %d turns, each with a kernel: CPU time in ns for each, "
	       "the best "
	       "of %d,\nwith memory that was there before; and with an allocation and "
	       "a free "
	       "in each; times the line\n",
	       allocations, REPEATS);
	for (int shape = 0; shape < SHAPES; shape++) {
		printf("%-28s %8.0f", names[shape], best[shape][0]);
		if (most == 2)
			printf(" %8.0f %8.2f", best[shape][1],
			       best[shape][1] / best[LINE][1]);
		printf("\n");
	}
	for (int allocates = 0; allocates < most; allocates++)
		printf("a join and a fork%s: %.0f ns\n",
		       allocates ? " beside allocations" : "",
		       (best[JOINED][allocates] - best[FORKED][allocates]) *
			   BETWEEN_JOINS);
	return 0;
}
