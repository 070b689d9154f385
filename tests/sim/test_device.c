/* SPDX-License-Identifier: MIT */
/*
 * test_device.c - the simulated device: when work runs, where memory is, how
 * much there is, and what graphs keep alive.
 */
#include "scene.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* --- time ----------------------------------------------------------------- */

TEST(nothing_runs_until_a_thread_waits)
{
	uint32_t word = 0;

	OK(cuMemsetD32(p, 7, 1));
	OK(cuCtxSynchronize());
	fill(p, 1, s);
	assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	assert_int_equal(gcpsim_peek(p, &word, 4), 0);
	assert_int_equal(word, 7);
	OK(cuStreamSynchronize(s));
	assert_int_equal(gcpsim_peek(p, &word, 4), 0);
	assert_int_equal(word, 1);
}

TEST(a_wait_runs_only_what_it_needs)
{
	fill(p, 1, s);
	spin(1000, t);
	OK(cuStreamSynchronize(t));
	assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
}

TEST(a_missing_wait_shows_as_wrong_data)
{
	fill(p, 0, s);
	OK(cuStreamSynchronize(s));
	fill(p, 1, s);
	check(p, 1, t);
	OK(cuStreamSynchronize(t));
	assert_int_equal(wrong_words(), WORDS);
}

TEST(an_idle_device_is_done_at_once)
{
	gcpsim_set_speed(GCPSIM_IDLE);
	fill(p, 1, s);
	OK(cuStreamQuery(s));
	assert_int_equal(gcpsim_pending(), 0);
}

/* A mark per kernel, in the order in which they ended. */
static uint64_t random_schedule(uint64_t seed)
{
	CUstream streams[4];
	uint64_t trace = 0;

	gcpsim_set_seed(seed);
	gcpsim_set_speed(GCPSIM_RANDOM);
	for (int i = 0; i < 4; i++)
		streams[i] = stream_new(CU_STREAM_NON_BLOCKING);
	for (int round = 0; round < 32; round++) {
		fill(p, 1, streams[round % 4]);
		for (int i = 0; i < 4; i++)
			trace = trace * 31 + (uint64_t)cuStreamQuery(streams[i]);
	}
	OK(cuCtxSynchronize());
	for (int i = 0; i < 4; i++)
		OK(cuStreamDestroy(streams[i]));
	return trace;
}

TEST(a_seed_is_a_schedule)
{
	uint64_t first = random_schedule(5);

	assert_true(first == random_schedule(5));
	assert_true(first != random_schedule(6));
}

TEST(a_kernel_takes_its_time)
{
	CUevent a, b;
	float ms;

	gcpsim_set_speed(1000);
	OK(cuEventCreate(&a, 0));
	OK(cuEventCreate(&b, 0));
	OK(cuEventRecord(a, s));
	spin(5000000, s);
	OK(cuEventRecord(b, s));
	OK(cuEventSynchronize(b));
	OK(cuEventElapsedTime(&ms, a, b));
	assert_true(ms >= 5 && ms < 6);
}

TEST(a_poll_does_not_hang_for_ever)
{
	CUevent e = event_new();

	fill(p, 1, s);
	OK(cuEventRecord(e, s));
	while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
		;
}

static int called;
static CUresult called_result;

static void CUDA_CB host_function(void *data)
{
	size_t a, b;

	called += *(int *)data;
	called_result = cuMemGetInfo(&a, &b);
}

TEST(host_functions_run_in_order_and_may_not_call)
{
	int three = 3;

	called = 0;
	fill(p, 1, s);
	OK(cuLaunchHostFunc(s, host_function, &three));
	assert_int_equal(called, 0);
	OK(cuStreamSynchronize(s));
	assert_int_equal(called, 3);
	assert_int_equal(called_result, CUDA_ERROR_NOT_PERMITTED);
	assert_int_equal(gcpsim_misuses(), 1);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void CUDA_CB locking_function(void *data)
{
	(void)data;
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
}

TEST(a_host_function_may_need_what_the_caller_holds)
{
	gcpsim_set_speed(GCPSIM_IDLE);
	pthread_mutex_lock(&held);
	OK(cuLaunchHostFunc(s, locking_function, NULL));
	assert_int_equal(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	pthread_mutex_unlock(&held);
	OK(cuStreamSynchronize(s));
}

/* --- memory --------------------------------------------------------------- */

TEST(the_host_may_not_touch_device_memory)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *)(uintptr_t)p = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

TEST(blocks_cost_what_they_cost_on_a_gpu)
{
	uint64_t before = gcpsim_memory_used(0);
	CUdeviceptr q, r;

	OK(cuMemAlloc(&q, 5 * MIB));
	assert_int_equal(gcpsim_memory_used(0) - before, 6 * MIB);
	assert_int_equal(q % (2 * MIB), 0);
	OK(cuMemAlloc(&r, 512));
	assert_int_equal(gcpsim_memory_used(0) - before, 6 * MIB);
	assert_int_equal(r % 512, 0);
	OK(cuMemFree(q));
	OK(cuMemFree(r));
	assert_int_equal(gcpsim_memory_used(0), before);
}

TEST(memory_ends)
{
	size_t available, total, all;
	CUdeviceptr q, r;

	OK(cuMemGetInfo(&available, &total));
	assert_int_equal(cuMemAlloc(&q, available + 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc(&q, available));
	assert_int_equal(cuMemAlloc(&r, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree(q));
	OK(cuMemAlloc(&r, 2 * MIB));
	OK(cuMemGetInfo(&available, &all));
	gcpsim_set_memory(0, total - available + 2 * MIB); /* others have the rest */
	OK(cuMemGetInfo(&available, &all));
	assert_int_equal(all, total);
	OK(cuDeviceTotalMem(&all, 0));
	assert_int_equal(all, total);
	assert_int_equal(available, 2 * MIB);
	OK(cuMemAlloc(&q, available));
	OK(cuMemFree(q));
	assert_int_equal(cuMemAlloc(&q, 3 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	gcpsim_set_memory(0, total);
	OK(cuMemAlloc(&q, 2 * MIB));
}

TEST(mapped_memory_shows_the_same_bytes_twice)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr a, b;
	uint32_t word;

	OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
	OK(cuMemAddressReserve(&a, 2 * MIB, 0, 0, 0));
	OK(cuMemAddressReserve(&b, 2 * MIB, 0, 0, 0));
	assert_int_equal(cuMemsetD32(a, 5, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemMap(a, 2 * MIB, 0, handle, 0));
	OK(cuMemMap(b, 2 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(a, 2 * MIB, &access, 1));
	OK(cuMemSetAccess(b, 2 * MIB, &access, 1));
	fill(a, 5, s);
	OK(cuStreamSynchronize(s));
	OK(cuMemcpyDtoH(&word, b, 4));
	assert_int_equal(word, 5);
	OK(cuMemUnmap(a, 2 * MIB));
	OK(cuMemUnmap(b, 2 * MIB));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(a, 2 * MIB));
	OK(cuMemAddressFree(b, 2 * MIB));
}

TEST(copies_of_pageable_memory_are_taken_aside)
{
	uint32_t word = 5, back = 0;

	OK(cuMemcpyHtoDAsync(p, &word, 4, s));
	word = 6;
	OK(cuMemcpyDtoHAsync(&back, p, 4, s)); /* waits */
	assert_int_equal(back, 5);
}

TEST(a_context_takes_its_memory_along)
{
	CUcontext other;
	CUdeviceptr q;
	uint64_t before = gcpsim_allocations(0);

	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuMemAlloc(&q, 4));
	OK(cuCtxDestroy(other));
	assert_int_equal(gcpsim_allocations(0), before);
	OK(cuCtxSetCurrent(scene_ctx));
	assert_int_equal(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
}

/* --- graphs --------------------------------------------------------------- */

static int destroyed;

static void CUDA_CB destroy(void *data)
{
	(void)data;
	__atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
}

TEST(user_objects_outlive_launches)
{
	CUuserObject user;
	CUgraphExec exec;
	CUgraph graph;

	destroyed = 0;
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill(p, 9, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuUserObjectCreate(&user, NULL, destroy, 1,
			      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(graph, user, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphLaunch(exec, t));
	OK(cuGraphExecDestroy(exec));
	OK(cuStreamSynchronize(s));
	assert_int_equal(destroyed, 0);
	assert_int_equal(gcpsim_user_objects(), 1);
	OK(cuStreamSynchronize(t));
	assert_int_equal(destroyed, 1);
	assert_int_equal(gcpsim_user_objects(), 0);
}

TEST(a_graph_runs_its_nodes_in_order)
{
	CUgraphNode first, second;
	CUgraphExec exec;
	CUgraph graph, child;
	uint64_t words = WORDS;
	uint32_t one = 1, two = 2;
	void *fill_args[] = {&p, &words, &one};
	void *add_args[] = {&p, &words, &two};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = scene_function("gcpt_fill"),
					  .kernelParams = fill_args};

	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddKernelNode(&first, child, NULL, 0, &kernel));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddChildGraphNode(&first, graph, NULL, 0, child));
	kernel.func = scene_function("gcpt_add");
	kernel.kernelParams = add_args;
	OK(cuGraphAddKernelNode(&second, graph, &first, 1, &kernel));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, s));
	check(p, 3, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(wrong_words(), 0);
	assert_int_equal(gcpsim_hazards(), 0);
}

TEST(memory_nodes_live_as_long_as_their_graphs)
{
	uint64_t before = gcpsim_allocations(0);
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr q;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&q, BYTES, s));
	fill(q, 4, s);
	check(q, 4, s);
	OK(cuMemFreeAsync(q, s));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphLaunch(exec, t));
	OK(cuCtxSynchronize());
	assert_int_equal(wrong_words(), 0);
	assert_int_equal(gcpsim_hazards(), 0);
	assert_int_equal(gcpsim_allocations(0), before + 1);
	OK(cuGraphExecDestroy(exec));
	assert_int_equal(gcpsim_allocations(0), before);
}

static CUgraphExec leaves_memory(unsigned long long flags, CUdeviceptr *ret_p)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(ret_p, BYTES, s));
	fill(*ret_p, 4, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, flags));
	OK(cuGraphDestroy(graph));
	return exec;
}

TEST(memory_that_a_graph_left_is_freed_before_its_next_launch)
{
	uint64_t before = gcpsim_allocations(0);
	CUgraphExec exec;
	CUdeviceptr q;

	exec = leaves_memory(0, &q);
	assert_int_equal(cuMemFreeAsync(q, s), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(exec, s));
	assert_int_equal(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
	check(q, 4, s);
	OK(cuMemFreeAsync(q, s));
	assert_int_equal(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphLaunch(exec, s));
	OK(cuCtxSynchronize());
	OK(cuMemFree(q));
	OK(cuGraphExecDestroy(exec));
	assert_int_equal(gcpsim_allocations(0), before);
	assert_int_equal(wrong_words(), 0);
}

TEST(an_executable_may_free_at_its_launch)
{
	uint64_t before = gcpsim_allocations(0);
	CUgraphExec exec;
	CUdeviceptr q;

	exec = leaves_memory(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, &q);
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphLaunch(exec, s));
	check(q, 4, s);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(exec));
	assert_int_equal(gcpsim_allocations(0), before + 1);
	OK(cuMemFreeAsync(q, s));
	OK(cuCtxSynchronize());
	assert_int_equal(gcpsim_allocations(0), before);
	assert_int_equal(wrong_words(), 0);
	assert_int_equal(gcpsim_hazards(), 0);
}
