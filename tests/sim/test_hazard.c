/* SPDX-License-Identifier: MIT */
/*
 * test_hazard.c - the hazard checker finds what may overlap; that it is silent about
 * what is ordered the histories of the explorer show. Nothing runs by itself here
 * (GCPSIM_NEVER): a hazard is found by order alone, whatever happens to run when.
 */
#include "scene.h"

TEST(finds_a_write_on_two_streams)
{
	fill(p, 1, s);
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "gcpt_fill"));
}

TEST(finds_a_read_beside_a_write)
{
	fill(p, 1, s);
	check(p, 1, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_a_write_beside_a_read)
{
	check(p, 1, s);
	fill(p, 1, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_it_in_every_schedule)
{
	gcpsim_set_speed(GCPSIM_IDLE);
	fill(p, 1, s);
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_one_common_byte)
{
	OK(cuMemsetD8Async(p, 1, 101, s), cuMemsetD8Async(p + 100, 1, 100, t));
	assert_int_equal(gcpsim_hazards(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "memset"));
}

TEST(finds_it_across_chunks)
{
	CUdeviceptr large;

	OK(cuMemAlloc(&large, 8 << 20));
	fill_words(large, 2 << 20, 1, s);
	fill_words(large + (5 << 20), 16, 1, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_work_after_the_event)
{
	CUevent e = event_new();

	OK(cuEventRecord(e, s));
	fill(p, 1, s);
	OK(cuStreamWaitEvent(t, e, 0));
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(is_silent_behind_a_context_fence)
{
	CUevent e = event_new();

	fill(p, 1, s);
	OK(cuCtxRecordEvent(scene_ctx, e), cuCtxWaitEvent(scene_ctx, e));
	fill(p, 2, t);
	fill(p, 3, stream_new(CU_STREAM_DEFAULT));
	assert_int_equal(gcpsim_hazards(), 1); /* the two behind it */
}

TEST(a_fence_record_alone_orders_nothing)
{
	CUevent e = event_new();

	fill(p, 1, s);
	OK(cuCtxRecordEvent(scene_ctx, e));
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(being_done_is_not_knowing)
{
	fill(p, 1, s);
	gcpsim_drain();
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(knows_the_legacy_stream)
{
	CUstream blocking = stream_new(CU_STREAM_DEFAULT);

	fill(p, 1, blocking);
	fill(p, 2, CU_STREAM_LEGACY);
	fill(p, 3, stream_new(CU_STREAM_DEFAULT));
	assert_int_equal(gcpsim_hazards(), 0);
	fill(p, 4, s);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(blocking_streams_do_not_order_each_other)
{
	fill(p, 1, stream_new(CU_STREAM_DEFAULT));
	fill(p, 2, stream_new(CU_STREAM_DEFAULT));
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(a_destroyed_stream_still_counts)
{
	CUevent e = event_new();

	fill(p, 1, s);
	OK(cuStreamDestroy(s));
	fill(p, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
	OK(cuCtxRecordEvent(scene_ctx, e), cuCtxWaitEvent(scene_ctx, e));
	fill(p, 3, stream_new(CU_STREAM_NON_BLOCKING));
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(counts_copies_and_pinned_memory)
{
	void *pinned;

	OK(cuMemHostAlloc(&pinned, BYTES, 0), cuMemcpyHtoDAsync(p, pinned, BYTES, s));
	OK(cuMemcpyDtoHAsync(pinned, bad, 8, t));
	assert_int_equal(gcpsim_hazards(), 1);
	gcpsim_touch((uintptr_t)pinned, 4, 1);
	assert_int_equal(gcpsim_hazards(), 2);
	OK(cuCtxSynchronize());
	gcpsim_host_writes(pinned, 4);
	assert_int_equal(gcpsim_hazards(), 2);
}

static void host_copy_pending(void **ret_pinned)
{
	OK(cuMemHostAlloc(ret_pinned, BYTES, 0));
	gcpsim_host_writes(*ret_pinned, BYTES); /* no work has it yet */
	OK(cuMemcpyHtoDAsync(p, *ret_pinned, BYTES, s));
	assert_int_equal(gcpsim_hazards() + gcpsim_disorders(), 0);
}

/* By both means, the second when the copy runs. */
TEST(finds_the_host_writing_what_a_copy_still_reads)
{
	void *pinned;

	host_copy_pending(&pinned);
	gcpsim_host_writes(pinned, 1);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_int_equal(gcpsim_disorders(), 0);
	OK(cuCtxSynchronize());
	assert_int_equal(gcpsim_disorders(), 1);
}

TEST(finds_the_host_reading_what_a_copy_still_writes)
{
	void *pinned;

	OK(cuMemHostAlloc(&pinned, BYTES, 0), cuMemcpyDtoHAsync(pinned, p, BYTES, s));
	gcpsim_host_reads(pinned, BYTES);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_int_equal(gcpsim_disorders(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "the host"));
}

/* A device-side order holds back only what goes through the device. */
TEST(finds_the_host_behind_a_barrier_only)
{
	CUevent e = event_new();
	void *pinned;

	host_copy_pending(&pinned);
	OK(cuCtxRecordEvent(scene_ctx, e), cuCtxWaitEvent(scene_ctx, e));
	gcpsim_host_writes(pinned, BYTES);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(limits_what_the_host_may_pin)
{
	void *a, *b;

	gcpsim_set_memory(-1, 8192);
	OK(cuMemHostAlloc(&a, 8192, 0));
	assert_int_equal(gcpsim_memory_used(-1), 8192);
	assert_int_equal(cuMemHostAlloc(&b, 512, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFreeHost(a), cuMemAllocHost(&b, 512));
	assert_int_equal(gcpsim_allocations(-1), 1);
	gcpsim_set_memory(-1, 0);
}

TEST(atomics_go_together)
{
	check(p, 0, s);
	check(p, 0, t); /* both add to `bad` */
	assert_int_equal(gcpsim_hazards(), 0);
	OK(cuMemsetD32Async(bad, 0, 2, t));
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(a_free_waits_for_its_own_context_only)
{
	CUcontext other;
	CUdeviceptr q;

	OK(cuCtxCreate(&other, NULL, 0, 0), cuMemAlloc(&q, BYTES));
	OK(cuCtxSetCurrent(scene_ctx));
	fill(q, 1, s); /* another context's stream */
	OK(cuMemFree(q));
	assert_int_equal(gcpsim_hazards(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "cuMemFree"));
	OK(cuCtxDestroy(other));
}

TEST(stream_ordered_memory_has_its_order)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, BYTES, s));
	fill(q, 1, s);
	OK(cuMemFreeAsync(q, s));
	assert_int_equal(gcpsim_hazards(), 0);
	OK(cuMemAllocAsync(&q, BYTES, s));
	fill(q, 1, t);
	assert_int_equal(gcpsim_hazards(), 1);
	OK(cuMemFreeAsync(q, s));
	assert_int_equal(gcpsim_hazards(), 2);
	OK(cuCtxSynchronize());
}

/* Two branches; returns the graph. */
static CUgraph fork_graph(CUdeviceptr left, CUdeviceptr right)
{
	CUevent fork = event_new(), join = event_new();
	CUgraph graph;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuEventRecord(fork, s), cuStreamWaitEvent(t, fork, 0));
	fill(left, 1, s);
	fill(right, 2, t);
	OK(cuEventRecord(join, t), cuStreamWaitEvent(s, join, 0));
	check(left, 1, s);
	OK(cuStreamEndCapture(s, &graph));
	return graph;
}

TEST(sees_into_launched_graphs)
{
	CUgraphExec exec, racy;
	CUdeviceptr q;

	OK(cuMemAlloc(&q, BYTES), cuGraphInstantiate(&exec, fork_graph(p, q), 0));
	OK(cuGraphInstantiate(&racy, fork_graph(p, p), 0), cuGraphLaunch(exec, s));
	OK(cuGraphLaunch(exec, t)); /* behind the first */
	assert_int_equal(gcpsim_hazards(), 0);
	fill(q, 3, s);
	assert_int_equal(gcpsim_hazards(), 1);
	OK(cuCtxSynchronize());
	gcpsim_reset_findings();
	OK(cuGraphLaunch(racy, s));
	assert_true(gcpsim_hazards() > 0);
}

/* The two means: what may happen, and what did happen in this schedule. */
TEST(tags_tell_what_did_happen)
{
	fill(p, 1, s);
	check(p, 1, t);
	assert_int_equal(gcpsim_hazards(), 1);
	OK(cuStreamSynchronize(t)); /* runs the reader alone */
	assert_int_equal(gcpsim_disorders(), 1);
	OK(cuStreamSynchronize(s));
	gcpsim_reset_findings();
	fill(p, 1, s);
	check(p, 1, t);
	OK(cuStreamSynchronize(s), cuStreamSynchronize(t));
	assert_int_equal(gcpsim_hazards(), 1);
	assert_int_equal(gcpsim_disorders(), 0);
}

TEST(tags_know_single_bytes)
{
	OK(cuMemsetD8Async(p, 1, 100, s), cuMemsetD8Async(p + 99, 2, 100, t));
	OK(cuStreamSynchronize(t));
	assert_int_equal(gcpsim_disorders(), 1);
	OK(cuCtxSynchronize());
	gcpsim_reset_findings();
	OK(cuMemsetD8Async(p + 1000, 1, 100, s), cuMemsetD8Async(p + 1100, 2, 100, t));
	OK(cuStreamSynchronize(t), cuStreamSynchronize(s));
	assert_int_equal(gcpsim_disorders(), 0);
}

/* Both books over a long random run with a right and a wrong order. */
static void random_run(bool ordered)
{
	CUevent e = event_new();
	uint32_t dice = 12345;

	gcpsim_set_speed(GCPSIM_RANDOM);
	for (int i = 0; i < 2000; i++) {
		CUstream from = i & 1 ? s : t, to = i & 1 ? t : s;

		dice = dice * 1664525 + 1013904223;
		OK(cuMemsetD8Async(p + (dice >> 21), (unsigned char)i, dice >> 8 & 1023,
				   from));
		if (!ordered && i % 64 == 0)
			continue;
		OK(cuEventRecord(e, from), cuStreamWaitEvent(to, e, 0));
	}
	OK(cuCtxSynchronize());
}

TEST(both_means_agree_on_a_long_run)
{
	random_run(true);
	assert_int_equal(gcpsim_hazards(), 0);
	assert_int_equal(gcpsim_disorders(), 0);
	random_run(false);
	assert_true(gcpsim_hazards() > 0);
	assert_true(gcpsim_disorders() > 0);
}

TEST(reports_memory_that_is_not_there)
{
	OK(cuMemFree(p));
	fill(p, 1, s);
	assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(gcpsim_faults(), 1);
	assert_int_equal(cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(reports_destroyed_handles)
{
	OK(cuStreamDestroy(s));
	assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(gcpsim_misuses(), 1);
}
