/* SPDX-License-Identifier: MIT */
/*
 * test_share_handles.c - of which handles lanes are made: how large they are, and which
 * are mapped where (share_fake.h judges the launches).
 */
#include "../../capture/capture_types.h"
#include "share_fake.h"
#include "cases.h"

/* The pages of the launch, each once. */
static unsigned pages_of(int launch)
{
	const uint64_t *pages = launches[launch].pages;
	unsigned count = 0;

	for (int i = 0; i < PAGES; i++) {
		for (int j = 0; pages[i] != 0 && j < i; j++)
			assert_int_not_equal(pages[i], pages[j]);
		count += pages[i] != 0;
	}
	return count;
}

TEST(a_larger_graph_has_each_page_once)
{
	struct graph *a = make(0, 64 * MIB), *b = make(1, 80 * MIB);

	launch(a, 0);
	launch(b, 0);
	assert_int_equal(pages_of(1), 40);
	assert_int_equal(fake.memory_used, 80 * MIB);
}

/* The same of handles of each size: made beside those that are there, left to another
 * graph, and taken along. */
TEST(large_handles_are_as_small_ones)
{
	struct graph *a = make(0, 512 * MIB), *b = make(1, 1024 * MIB);
	struct gcp_launch now;

	(void)gcp_share_trim(tracker, -1, 0);
	fake.memory_limit = 800 * MIB;
	assert_int_equal(gcp_launch_begin(tracker, b->exec, stream_handle(0), &now),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(fake.memory_used, 0);
	fake.memory_limit = UINT64_MAX;
	launch(a, 0);
	launch(b, 0);
	assert_int_equal(pages_of(1), 512);
	assert_int_equal(fake.memory_used, 1024 * MIB);
	launch(b, 1);
	device_catches_up();
	launch(a, 0);
	launch(b, 1);
	assert_false(share_memory(a, b));
	assert_int_equal(fake.memory_used, 1536 * MIB);
	must_be_sound(pools);
}

TEST(shorter_scratch_fits_into_the_handles_of_longer)
{
	static const uint64_t sizes[] = {512, 496, 304, 192, 96, 64, 32, 16};
	uint64_t creates;

	make(0, sizes[0] * MIB);
	(void)gcp_share_trim(tracker, -1, 0);
	assert_int_equal(fake.memory_used, 0);
	creates = fake.creates;
	launch(&graphs[0], 0); /* all that it takes is made anew */
	assert_int_equal(fake.creates - creates, 7);
	for (int i = 1; i < 8; i++)
		make(i, sizes[i] * MIB);
	assert_int_equal(fake.memory_used, 512 * MIB);
	assert_int_equal(must_stats(pools).lane_bytes.current, 512 * MIB);
	must_be_sound(pools);
}

/* What the handles of longer scratch leave is made once, below a 16th of it. */
TEST(odd_scratch_takes_little_more)
{
	static const uint64_t sizes[] = {512, 510, 300, 190, 100, 62, 6, 2};

	for (int i = 0; i < 8; i++)
		make(i, sizes[i] * MIB);
	assert_in_range(fake.memory_used, 512 * MIB, 544 * MIB - 1);
	must_be_sound(pools);
}

/* Blocks that the program keeps lie between its runs of scratch. */
static struct graph *make_of_runs(int number, unsigned runs, uint64_t bytes)
{
	struct graph *graph = &graphs[number];
	gcp_addr scratch[16];

	graph->graph = begin(0);
	for (unsigned i = 0; i < runs; i++) {
		scratch[i] = capture_alloc(bytes);
		(void)capture_alloc(2 * MIB);
	}
	graph->scratch = scratch[0];
	graph->bytes = bytes;
	for (unsigned i = 0; i < runs; i++)
		must_free(pools, scratch[i]);
	end(0);
	gcp_share_captured(tracker, graph->graph);
	fake.done = fake.submitted;
	instantiate(graph);
	drop(graph);
	return graph;
}

TEST(many_short_runs_fit_into_the_handles_of_a_long_one)
{
	struct graph *a = make(0, 512 * MIB), *b = make_of_runs(1, 16, 32 * MIB);
	uint64_t kept = 16 * 2 * MIB;

	(void)gcp_share_trim(tracker, -1, 0);
	assert_int_equal(fake.memory_used, kept);
	launch(a, 0);
	launch(b, 0);
	assert_int_equal(fake.memory_used, kept + 512 * MIB);
	must_be_sound(pools);
}
