/* SPDX-License-Identifier: MIT */
/*
 * words.c - what the library says of an unmodified program, and writes of it.
 *
 *   words SCENARIO     plays one; words.py reads what was said
 *
 * Script: words.py
 */
#include <sys/syscall.h>
#include <sys/wait.h>

#include "scenarios.h"

enum { PROBES = 100 };

/* A program that finds out how much there is by asking for too much. */
SCENARIO_PRIMARY(probes)
{
	CUdeviceptr p;

	for (int i = 0; i < PROBES; i++)
		must(cuMemAlloc(&p, 4096 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
		     "more memory than there is");
}

SCENARIO_PRIMARY(a_quota_is_used_up)
{
	CUdeviceptr p;

	(void)allocated(256 * MIB);
	must(cuMemAlloc(&p, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than the quota");
}

SCENARIO_PRIMARY(other_memory_is_refused)
{
	CUdeviceptr p;
	CUstream stream = stream_new();

	(void)allocated(MIB);
	must(cuMemAllocAsync(&p, 4096 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than there is");
}

SCENARIO_PRIMARY(pinned_memory_is_refused)
{
	void *p;

	OK(cuMemAllocHost(&p, MIB));
	must(cuMemHostAlloc(&p, 64 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY,
	     "memory beyond the quota");
}

/* The line asks CUDA how much there is: no capture may die of that. */
SCENARIO_PRIMARY(memory_is_out_in_a_capture)
{
	CUdeviceptr q;
	CUgraph graph;
	CUstream stream = stream_new();
	CUdeviceptr p = allocated(MIB);

	capture_begin(stream);
	q = allocated(MIB);
	OK(cuMemsetD8Async(q, 1, MIB, stream));
	must(cuMemAlloc(&p, 1024 * MIB) == CUDA_ERROR_OUT_OF_MEMORY,
	     "more memory than there is");
	OK(cuMemsetD8Async(q, 2, MIB, stream), cuStreamEndCapture(stream, &graph));
	must(graph != NULL, "the capture did not survive");
	OK(cuGraphDestroy(graph));
}

SCENARIO_PRIMARY(blocks_are_left)
{
	(void)allocated(3 * MIB);
	(void)allocated(1000);
	(void)allocated(5 * MIB);
	OK(cuMemFree(allocated(700)));
}

/* A child has no statistics of its own, though no handler of pthread_atfork runs. */
SCENARIO_PRIMARY(forks)
{
	pid_t child;
	int status;

	OK(cuMemFree(allocated(MIB)));
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		exit(0);
	must(waitpid(child, &status, 0) == child && status == 0, "the child failed");
}

/* With limits of 0 what is freed is the driver's again, also what work still uses. */
SCENARIO_PRIMARY(nothing_is_kept)
{
	CUdeviceptr large, small;
	void *pinned;
	CUstream stream = stream_new();

	for (int i = 0; i < 20; i++) {
		large = allocated(64 * MIB);
		small = allocated(1000);
		OK(cuMemAllocHost(&pinned, MIB));
		OK(cuMemsetD8Async(large, 1, MIB, stream));
		OK(cuMemcpyHtoDAsync(large, pinned, MIB, stream), cuMemFree(small));
		OK(cuMemFree(large), cuMemFreeHost(pinned));
	}
}
