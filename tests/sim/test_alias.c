/* SPDX-License-Identifier: MIT */
/*
 * test_alias.c - one memory at two addresses: both checkers know it as one, and know
 * which memory was behind an address when the work there was submitted. Nothing runs
 * by itself here (GCPSIM_NEVER).
 */
#include "scene.h"

#undef TEST
#define TEST(name) CASE(name, alias_open, alias_close)

enum { CHUNK = 2 << 20 };

static CUmemGenericAllocationHandle memory_new(CUmemLocationType where)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = where}};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, CHUNK, &prop, 0));
	return handle;
}

static CUdeviceptr address_new(void)
{
	CUdeviceptr addr;

	OK(cuMemAddressReserve(&addr, CHUNK, 0, 0, 0));
	return addr;
}

static void map(CUdeviceptr addr, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemMap(addr, CHUNK, 0, handle, 0));
	OK(cuMemSetAccess(addr, CHUNK, &access, 1));
}

static void unmap(CUdeviceptr addr)
{
	OK(cuMemUnmap(addr, CHUNK));
}

/* Two memories, and two addresses of the first of them. */
static CUmemGenericAllocationHandle first, second;
static CUdeviceptr a, b;

static int alias_open(void **state)
{
	scene_open(state);
	first = memory_new(CU_MEM_LOCATION_TYPE_DEVICE);
	second = memory_new(CU_MEM_LOCATION_TYPE_DEVICE);
	a = address_new();
	b = address_new();
	map(a, first);
	map(b, first);
	return 0;
}

static int alias_close(void **state)
{
	cuCtxSynchronize();
	cuMemUnmap(a, CHUNK);
	cuMemUnmap(b, CHUNK);
	cuMemRelease(first);
	cuMemRelease(second);
	cuMemAddressFree(a, CHUNK);
	cuMemAddressFree(b, CHUNK);
	return scene_close(state);
}

/* Fills the memory at `at`, and checks what it finds there. */
static CUgraphExec graph_at(CUdeviceptr at, uint32_t value)
{
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill(at, value, s);
	check(at, value, s);
	OK(cuStreamEndCapture(s, &graph), cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static uint32_t word_at(CUdeviceptr addr)
{
	uint32_t word = 0;

	assert_int_equal(gcpsim_peek(addr, &word, sizeof(word)), 0);
	return word;
}

TEST(finds_work_behind_two_addresses)
{
	fill(a, 1, s);
	assert_int_equal(gcpsim_hazards(), 0);
	fill(b, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_an_unmapping_under_work)
{
	fill(a, 1, s);
	unmap(b); /* nothing runs there */
	assert_int_equal(gcpsim_hazards(), 0);
	unmap(a);
	assert_int_equal(gcpsim_hazards(), 1);
}

TEST(finds_graphs_side_by_side_on_one_memory)
{
	CUgraphExec one = graph_at(a, 1), other = graph_at(b, 2);

	OK(cuGraphLaunch(one, s));
	assert_int_equal(gcpsim_hazards(), 0);
	OK(cuGraphLaunch(other, t));
	assert_true(gcpsim_hazards() > 0);
}

/* The second means: what did happen, at another address. */
TEST(tags_tell_it_across_addresses)
{
	fill(a, 1, s);
	check(b, 1, t);
	OK(cuStreamSynchronize(t)); /* the reader alone */
	assert_int_equal(gcpsim_disorders(), 1);
	OK(cuStreamSynchronize(s));
	gcpsim_reset_findings();
	fill(a, 1, s);
	check(b, 1, t);
	OK(cuStreamSynchronize(s), cuStreamSynchronize(t));
	assert_int_equal(gcpsim_disorders(), 0);
}

TEST(a_graph_works_on_what_is_mapped_when_it_runs)
{
	CUgraphExec one = graph_at(a, 7);

	OK(cuGraphLaunch(one, s), cuStreamSynchronize(s));
	fill(b, 0, s);
	OK(cuStreamSynchronize(s));
	unmap(a);
	map(a, second);
	OK(cuGraphLaunch(one, s), cuStreamSynchronize(s));
	assert_int_equal(gcpsim_hazards() + gcpsim_disorders(), 0);
	assert_int_equal(word_at(a), 7);
	assert_int_equal(word_at(b), 0);
}

TEST(finds_a_graph_that_is_given_other_memory_in_flight)
{
	CUgraphExec one = graph_at(a, 1);

	OK(cuGraphLaunch(one, s));
	unmap(a);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "cuMemUnmap"));
	map(a, second);
	assert_int_equal(gcpsim_disorders(), 0);
	OK(cuStreamSynchronize(s));
	assert_true(gcpsim_disorders() > 0); /* it ran on the other one */
}

TEST(finds_memory_that_is_mapped_under_work)
{
	CUgraphExec one = graph_at(a, 1);

	unmap(a);
	OK(cuGraphLaunch(one, s));
	assert_int_equal(gcpsim_hazards(), 0);
	map(a, second);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_non_null(strstr(gcpsim_last_report(), "cuMemMap"));
}

/* Measured: the executable of a graph with copies is made while memory is there. */
TEST(an_executable_is_made_of_mapped_memory)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill(a, 3, s);
	OK(cuMemcpyDtoDAsync(p, a, BYTES, s), cuStreamEndCapture(s, &graph));
	unmap(a);
	assert_int_equal(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
	map(a, first);
	OK(cuGraphInstantiate(&exec, graph, 0));
	unmap(a);
	OK(cuGraphExecUpdate(exec, graph, &info));
	map(a, second);
	OK(cuGraphLaunch(exec, s), cuStreamSynchronize(s));
	assert_int_equal(word_at(p), 3);
	OK(cuGraphExecDestroy(exec), cuGraphDestroy(graph));
}

TEST(a_launch_without_memory_is_a_fault)
{
	CUgraphExec one = graph_at(a, 1);

	unmap(a);
	OK(cuGraphLaunch(one, s));
	assert_int_equal(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(gcpsim_faults(), 1);
}

/* The memory goes from one address to another, under work that has it still. */
TEST(memory_keeps_its_history_when_it_moves)
{
	CUdeviceptr c = address_new();

	fill(a, 1, s);
	unmap(b); /* nothing runs there */
	map(c, first);
	assert_int_equal(gcpsim_hazards(), 0);
	fill(c, 2, t);
	assert_int_equal(gcpsim_hazards(), 1);
	OK(cuCtxSynchronize());
	unmap(c);
	OK(cuMemAddressFree(c, CHUNK));
}

TEST(finds_the_host_at_the_other_address)
{
	fill(a, 1, s);
	gcpsim_touch(b, 4, 0);
	assert_int_equal(gcpsim_hazards(), 1);
	assert_int_equal(gcpsim_disorders(), 1);
	OK(cuStreamSynchronize(s));
	gcpsim_touch(b, 4, 1);
	fill(a, 1, s);
	OK(cuStreamSynchronize(s));
	assert_int_equal(gcpsim_hazards(), 1);
	assert_int_equal(gcpsim_disorders(), 1);
}

TEST(takes_whole_handles_only)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle large;

	OK(cuMemCreate(&large, 2 * CHUNK, &prop, 0));
	unmap(b);
	assert_int_equal(cuMemMap(b, CHUNK, CHUNK, large, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cuMemMap(b, CHUNK, 0, large, 0), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuMemRelease(large));
}

/* In all else it is memory of the device. */
TEST(host_memory_counts_on_the_host_and_up_to_a_limit)
{
	CUmemAllocationProp prop = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	CUmemGenericAllocationHandle host, more;
	uint64_t before = gcpsim_memory_used(0);

	gcpsim_set_memory(-2, CHUNK);
	host = memory_new(CU_MEM_LOCATION_TYPE_HOST_NUMA);
	assert_int_equal(cuMemCreate(&more, CHUNK, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(gcpsim_memory_used(-2), CHUNK);
	assert_int_equal(gcpsim_memory_used(0), before);
	assert_int_equal(gcpsim_is_on_host(b), 0);
	unmap(b);
	map(b, host);
	assert_int_equal(gcpsim_is_on_host(b), 1);
	fill(b, 5, s);
	check(b, 5, s);
	OK(cuStreamSynchronize(s), cuMemRelease(host));
	assert_int_equal(wrong_words() + gcpsim_faults(), 0);
	unmap(b);
	assert_int_equal(gcpsim_memory_used(-2), 0);
	gcpsim_set_memory(-2, UINT64_MAX);
}
