/* SPDX-License-Identifier: MIT */
/*
 * capture_end.c - what the end of a capture costs: the library asks the driver for the
 * nodes of a graph that may share memory there (capture/share.c).
 *
 *   capture_end [--memory] NODES ...    graphs of so many fills, in one line and in
 * two;
 *                                       --memory: each takes some, as only the library
 *                                       serves it
 *
 * Prints a line for each: medians of nine ends, in microseconds. Exit code: 0, or 2 for
 * an error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

enum { TURNS = 9 };

#define OK(call)                                                                       \
	do {                                                                           \
		int code_ = (int)(call);                                               \
		if (code_ != 0) {                                                      \
			printf("%s: %d\n", #call, code_);                              \
			exit(2);                                                       \
		}                                                                      \
	} while (0)

static CUstream streams[2];
static CUevent event;
static CUdeviceptr memory;
static bool takes;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void link_streams(CUstream from, CUstream to)
{
	OK(cuEventRecord(event, from));
	OK(cuStreamWaitEvent(to, event, 0));
}

static double end_of(int nodes, int lines)
{
	CUdeviceptr own;
	CUgraph graph;

	OK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	if (takes) {
		OK(cuMemAlloc(&own, 4096));
		OK(cuMemFree(own));
	}
	if (lines == 2)
		link_streams(streams[0], streams[1]);
	for (int i = 0; i < nodes; i++)
		OK(cuMemsetD8Async(memory + (CUdeviceptr)(i % lines), 1, 1,
				   streams[i % lines]));
	if (lines == 2)
		link_streams(streams[1], streams[0]);
	double start = now_us();
	OK(cuStreamEndCapture(streams[0], &graph));
	double took = now_us() - start;
	OK(cuGraphDestroy(graph));
	return took;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(int nodes, int lines)
{
	double took[TURNS];

	for (int i = 0; i < TURNS; i++)
		took[i] = end_of(nodes, lines);
	qsort(took, TURNS, sizeof(took[0]), ascending);
	return took[TURNS / 2];
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;

	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAlloc(&memory, 4096));
	takes = argc > 1 && strcmp(argv[1], "--memory") == 0;
	for (int i = 1 + takes; i < argc; i++)
		printf("nodes %s line %.1f fork %.1f\n", argv[i],
		       median_of(atoi(argv[i]), 1), median_of(atoi(argv[i]), 2));
	return 0;
}
