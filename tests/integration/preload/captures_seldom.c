/* SPDX-License-Identifier: MIT */
/*
 * captures_seldom.c - reuse inside a capture: calls of the driver that fail, and
 * answers that another thread changes.
 *
 *   captures_seldom SCENARIO    plays one; 0: all is as it should be
 */
#include "scenarios.h"

enum { BYTES = 16 << 20 };

static CUstream main_stream, side;
static CUdeviceptr written;

static void begin(void)
{
	(void)primary();
	main_stream = stream_new();
	side = stream_new();
	written = allocated(MIB);
	capture_begin(main_stream);
}

/* One stream waits for all that the other one has so far. */
static void wait_for(CUstream stream, CUstream other)
{
	CUevent event;

	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), cuEventRecord(event, other));
	OK(cuStreamWaitEvent(stream, event, 0), cuEventDestroy(event));
}

static CUresult fill(CUdeviceptr p, CUstream stream)
{
	return cuMemsetD32Async(p, 1, BYTES / 4, stream);
}

static CUdeviceptr used_and_freed(CUstream stream)
{
	CUdeviceptr p = allocated(BYTES);

	OK(fill(p, stream), cuMemFree(p));
	return p;
}

static CUgraph ended(void)
{
	CUgraph graph;

	wait_for(main_stream, side);
	graph = capture_end(main_stream);
	return graph;
}

static void launched_without_a_hazard(CUgraph graph)
{
	CUgraphExec exec = instantiated(graph);

	OK(cuGraphLaunch(exec, main_stream), cuStreamSynchronize(main_stream));
	must(gcpsim_hazards() == 0, "work on one memory beside each other");
}

/* A block that main_stream has freed behind all the work of the other one. */
static CUdeviceptr freed_behind_both(void)
{
	begin();
	OK(cuMemsetD8Async(written, 1, 64, main_stream));
	wait_for(side, main_stream);
	OK(cuMemsetD8Async(written + 4096, 1, 64, side));
	wait_for(main_stream, side);
	return used_and_freed(main_stream);
}

/* The side stream rests, and its next work would have to follow what used the block
 * before. The driver refuses that: not only the first time. */
SCENARIO(work_out_of_order_stays_refused)
{
	CUdeviceptr p = freed_behind_both();

	must(allocated(BYTES) == p, "the block is used again");
	calls_fail("cuStreamUpdateCaptureDependencies:1+");
	for (int i = 0; i < 3; i++)
		must(fill(p, side) == CUDA_ERROR_OUT_OF_MEMORY, "let through");
	calls_fail(NULL);
	OK(fill(p, side));
	launched_without_a_hazard(ended());
}

SCENARIO(an_event_for_others_makes_the_order_unknown)
{
	CUevent event;
	CUdeviceptr p;

	begin();
	p = used_and_freed(main_stream);
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecordWithFlags(event, main_stream, CU_EVENT_RECORD_EXTERNAL));
	must(allocated(BYTES) != p, "memory is used again");
}

SCENARIO(ends_beside_another_thread_are_read_again)
{
	CUdeviceptr p = freed_behind_both();

	gcpsim_tear_ends(3);
	must(allocated(BYTES) == p, "what was read in pieces is read again");
	launched_without_a_hazard(ended());
}
