/* SPDX-License-Identifier: MIT */
/*
 * test_plain.c - the books of plain CUDA: as much memory as the driver's own calls
 * take, and no wait but those that a free has had.
 */
#include "scene.h"

enum { MIB = 1 << 20 };

TEST(the_books_have_the_drivers_rules)
{
	static const uint64_t sizes[] = {1,       600,     300 << 10, MIB,
					 MIB + 1, 5 * MIB, 40000};
	enum { COUNT = sizeof(sizes) / sizeof(*sizes) };
	uint64_t before = gcpsim_memory_used(0), numbers[COUNT];
	CUdeviceptr blocks[COUNT];

	/* The driver's small allocations share memory with those of the scene. */
	for (int i = 0; i < COUNT; i++) {
		OK(cuMemAlloc(&blocks[i], sizes[i]));
		numbers[i] = gcpsim_plain_alloc(0, sizes[i]);
		assert_int_not_equal(numbers[i], 0);
	}
	assert_in_range(gcpsim_plain_used(0), gcpsim_memory_used(0) - before,
			gcpsim_memory_used(0) - before + 2 * MIB);
	for (int i = 0; i < COUNT; i++) {
		OK(cuMemFree(blocks[i]));
		gcpsim_plain_free(numbers[i]);
	}
	assert_int_equal(gcpsim_plain_used(0), 0);
	assert_true(gcpsim_plain_peak(0) >= 10 * MIB);
	assert_true(gcpsim_memory_peak(0) >= gcpsim_plain_peak(0) - 2 * MIB);
}

TEST(the_books_end_where_the_device_does)
{
	uint64_t half;

	gcpsim_set_memory(0, 64 * MIB);
	half = gcpsim_plain_alloc(0, 40 * MIB);
	assert_int_not_equal(half, 0);
	assert_int_equal(gcpsim_plain_alloc(0, 40 * MIB), 0);
	gcpsim_set_memory(0, 80 * MIB);
	gcpsim_plain_free(gcpsim_plain_alloc(0, 40 * MIB));
	assert_int_equal(gcpsim_plain_used(0), 40 * MIB);
	assert_int_equal(gcpsim_plain_peak(0), 80 * MIB);
	gcpsim_plain_free(half);
	gcpsim_set_memory(-1, MIB);
	assert_int_equal(gcpsim_plain_alloc(-1, MIB + 1), 0);
	half = gcpsim_plain_alloc(-1, 100);
	assert_int_equal(gcpsim_plain_used(-1), 512);
	gcpsim_plain_free(half);
	gcpsim_set_memory(-1, 0);
}

TEST(a_wait_for_later_work_is_new)
{
	gcpsim_plain_watch();
	gcpsim_plain_waits(scene_ctx, false);
	fill(p, 1, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(gcpsim_new_waits(), 1);
	OK(cuStreamSynchronize(s)); /* nothing is left */
	assert_int_equal(gcpsim_new_waits(), 1);
}

/* Of another context, whose free would be a new wait; not of the thread's own. */
TEST(pinned_memory_is_stuck_behind_later_work)
{
	CUcontext other;
	void *host;

	OK(cuMemHostAlloc(&host, BYTES, 0), cuCtxCreate(&other, NULL, 0, 0));
	assert_int_equal(gcpsim_plain_stuck(scene_ctx), 0);
	OK(cuCtxSetCurrent(scene_ctx));
	fill(p, 1, s);
	assert_int_equal(gcpsim_plain_stuck(scene_ctx), 0);
	OK(cuCtxSetCurrent(other));
	assert_int_equal(gcpsim_plain_stuck(scene_ctx), BYTES);
	gcpsim_plain_waits(scene_ctx, true);
	assert_int_equal(gcpsim_plain_stuck(scene_ctx), 0);
	OK(cuCtxDestroy(other), cuCtxSetCurrent(scene_ctx), cuMemFreeHost(host));
}

/* As many queries as a loop makes that waits; in one call, and in many. */
TEST(queries_of_many_calls_are_no_wait)
{
	enum { QUERIES = 10000 };
	CUevent event = event_new();

	gcpsim_plain_watch();
	gcpsim_plain_waits(scene_ctx, false);
	fill(p, 1, s);
	OK(cuEventRecord(event, s));
	for (int i = 0; i < QUERIES; i++) {
		assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
		assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
		gcpsim_plain_returned();
	}
	assert_int_equal(gcpsim_new_waits(), 0);
	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
		;
	assert_int_equal(gcpsim_new_waits(), 1);
	assert_int_equal(gcpsim_new_looks(), 1);
	gcpsim_plain_waits(scene_ctx, false);
	OK(cuEventDestroy(event));
}

TEST(a_barrier_behind_later_work_is_new)
{
	CUevent event = event_new();

	gcpsim_plain_watch();
	fill(p, 1, s);
	gcpsim_plain_waits(scene_ctx, false);
	OK(cuCtxRecordEvent(scene_ctx, event), cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 0);
	fill(p, 2, t);
	OK(cuCtxRecordEvent(scene_ctx, event), cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 1);
	gcpsim_plain_waits(scene_ctx, false);
	OK(cuEventDestroy(event));
}

/* All later work is behind it already; a barrier behind anything else is another. */
TEST(a_barrier_that_is_set_again_is_not_new)
{
	CUevent event = event_new();

	gcpsim_plain_watch();
	fill(p, 1, s);
	OK(cuCtxRecordEvent(scene_ctx, event), cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 1);
	OK(cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 1);
	fill(p, 2, t);
	OK(cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 1);
	OK(cuCtxRecordEvent(scene_ctx, event), cuCtxWaitEvent(scene_ctx, event));
	assert_int_equal(gcpsim_new_waits(), 2);
	gcpsim_plain_waits(scene_ctx, false);
	OK(cuEventDestroy(event));
}

/* Behind what the stream was given itself, and no more. */
TEST(a_stream_behind_an_event_of_another_is_new)
{
	CUevent event = event_new();

	gcpsim_plain_watch();
	fill(p, 1, s);
	OK(cuEventRecord(event, s), cuStreamWaitEvent(s, event, 0));
	assert_int_equal(gcpsim_new_waits(), 0);
	gcpsim_plain_asks(1);
	OK(cuStreamWaitEvent(t, event, 0));
	gcpsim_plain_asks(-1);
	OK(cuStreamWaitEvent(t, event, 0)); /* it comes after that anyway */
	assert_int_equal(gcpsim_new_waits(), 0);
	fill(p, 1, s);
	OK(cuEventRecord(event, s), cuStreamWaitEvent(t, event, 0));
	assert_int_equal(gcpsim_new_waits(), 1);
	gcpsim_plain_waits(scene_ctx, false);
	OK(cuEventDestroy(event));
}
