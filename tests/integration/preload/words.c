/* SPDX-License-Identifier: MIT */
/*
 * words.c - what the library says of an unmodified program, and writes of it.
 *
 *   words SCENARIO     plays one; words.py reads what was said
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "edge_cases.h"

enum { PROBES = 100 };

/* A program that finds out how much there is by asking for too much. */
static void probes(void)
{
	CUdeviceptr p;

	(void)primary();
	for (int i = 0; i < PROBES; i++)
		must(cuMemAlloc(&p, 4096 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
		     "more memory than there is");
}

static void a_quota_is_used_up(void)
{
	CUdeviceptr p;

	(void)primary();
	(void)allocated(256 * MIB);
	must(cuMemAlloc(&p, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than the quota");
}

static void other_memory_is_refused(void)
{
	CUstream stream;
	CUdeviceptr p;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	(void)allocated(MIB);
	must(cuMemAllocAsync(&p, 4096 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than there is");
}

static void pinned_memory_is_refused(void)
{
	void *p;

	(void)primary();
	OK(cuMemAllocHost(&p, MIB));
	must(cuMemHostAlloc(&p, 64 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
}

/* The line asks CUDA how much there is: no capture may die of that. */
static void memory_is_out_in_a_capture(void)
{
	CUdeviceptr p, q;
	CUstream stream;
	CUgraph graph;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = allocated(MIB);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	q = allocated(MIB);
	OK(cuMemsetD8Async(q, 1, MIB, stream));
	must(cuMemAlloc(&p, 1024 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than there is");
	OK(cuMemsetD8Async(q, 2, MIB, stream));
	OK(cuStreamEndCapture(stream, &graph));
	must(graph != NULL, "the capture did not survive");
	OK(cuGraphDestroy(graph));
}

static void blocks_are_left(void)
{
	(void)primary();
	(void)allocated(3 * MIB);
	(void)allocated(1000);
	(void)allocated(5 * MIB);
	OK(cuMemFree(allocated(700)));
}

/* Frees for ever; once in a while one is large enough to close an epoch. */
static void runs_on(void)
{
	const struct timespec little = {.tv_nsec = 1000 * 1000};

	(void)primary();
	for (;;) {
		OK(cuMemFree(allocated(64 * MIB)));
		OK(cuMemFree(allocated(1000)));
		nanosleep(&little, NULL);
	}
}

static void ends_without_exit(void)
{
	time_t until = time(NULL) + 2;

	(void)primary();
	while (time(NULL) < until)
		OK(cuMemFree(allocated(64 * MIB)));
	_exit(0);
}

static void ends_quickly(void)
{
	(void)primary();
	OK(cuMemFree(allocated(MIB)));
	quick_exit(0);
}

/* The child of a fork has no statistics of its own. */
static void forks(void)
{
	pid_t child;
	int status;

	(void)primary();
	OK(cuMemFree(allocated(MIB)));
	child = fork();
	if (child == 0)
		exit(0);
	must(waitpid(child, &status, 0) == child && status == 0, "the child failed");
}

/* With limits of 0 what is freed is the driver's again, also what work still uses. */
static void nothing_is_kept(void)
{
	CUdeviceptr large, small;
	CUstream stream;
	void *pinned;

	(void)primary();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 20; i++) {
		large = allocated(64 * MIB);
		small = allocated(1000);
		OK(cuMemAllocHost(&pinned, MIB));
		OK(cuMemsetD8Async(large, 1, MIB, stream));
		OK(cuMemcpyHtoDAsync(large, pinned, MIB, stream));
		OK(cuMemFree(small));
		OK(cuMemFree(large));
		OK(cuMemFreeHost(pinned));
	}
}

/* As programs that become daemons do. */
static void goes_elsewhere(void)
{
	CUdeviceptr p;

	(void)primary();
	p = allocated(MIB);
	must(chdir("/") == 0, "no root");
	OK(cuMemFree(p));
}

static const struct scenario scenarios[] = {
    SCENARIO(probes),
    SCENARIO(a_quota_is_used_up),
    SCENARIO(other_memory_is_refused),
    SCENARIO(pinned_memory_is_refused),
    SCENARIO(memory_is_out_in_a_capture),
    SCENARIO(blocks_are_left),
    SCENARIO(runs_on),
    SCENARIO(ends_without_exit),
    SCENARIO(ends_quickly),
    SCENARIO(forks),
    SCENARIO(nothing_is_kept),
    SCENARIO(goes_elsewhere),
};

int main(int argc, char **argv)
{
	return scenario_play(scenarios, sizeof(scenarios) / sizeof(*scenarios), argc,
			     argv);
}
