/* SPDX-License-Identifier: MIT */
/*
 * test_capture_steps.c - what an allocation costs in a long capture, and what a join,
 * counted in steps of the tracker and the pool (steps.h) and in looks at the graph.
 */
#define CAPTURE_FAKE_NODES 80000
#include "../../capture/capture_types.h"
#include "capture_fake.h"
#include "steps.h"
#include "cases.h"

enum {
	MANY = 50000,
	FEWER = 16,
	BETWEEN_JOINS = 10,
	FORKED_MOST = 3, /* times a line's steps */
	JOIN_STEPS_MOST = 2000,
	LOOKS_MOST = 16, /* for each allocation: answers, and nodes in them */
};

enum shape { LINE, FORKED, JOINED };

/* For each allocation. */
struct cost {
	double steps, looks;
};

static uint64_t looks;

static int ends_counted(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	int result = stream_ends(ctx, stream, ret_nodes, count);

	looks += 1 + (result == 0 ? *count : 0);
	return result;
}

static int dependencies_counted(void *node, void **ret_nodes, size_t *count)
{
	int result = node_dependencies(node, ret_nodes, count);

	looks += 1 + (result == 0 ? *count : 0);
	return result;
}

/* The side stream has begun with stream 0's first work, and is joined at the end; or
 * again and again, and begins anew each time. */
static struct cost cost_of(enum shape shape, int allocations)
{
	uint64_t steps = steps_done();
	void *graph = begin(0);

	looks = 0;
	memset(cuda.ends, 0, sizeof(cuda.ends));
	cuda.node_count = 0;
	kernel(0);
	if (shape != LINE) {
		wait_for(1, 0);
		kernel(1);
	}
	for (int i = 1; i <= allocations; i++) {
		gcp_addr addr = capture_alloc(4096);

		kernel(0);
		must_free(pools, addr);
		if (shape == JOINED && i % BETWEEN_JOINS == 0) {
			wait_for(0, 1);
			wait_for(1, 0);
			kernel(1);
		}
	}
	if (shape != LINE)
		wait_for(0, 1);
	end(0);
	memset(cuda.streams, 0, sizeof(cuda.streams));
	graph_destroy(graph);
	return (struct cost){(double)(steps_done() - steps) / allocations,
			     (double)looks / allocations};
}

static void costs_are_bounded(int allocations)
{
	struct cost line = cost_of(LINE, allocations);
	struct cost forked = cost_of(FORKED, allocations);
	struct cost joined = cost_of(JOINED, allocations);
	double join = (joined.steps - forked.steps) * BETWEEN_JOINS;

	print_message(
	    "# %d allocations: %.0f steps each in a line, %.0f and %.1f looks "
	    "beside a fork, %.0f and %.1f with joins, %.0f a join\n",
	    allocations, line.steps, forked.steps, forked.looks, joined.steps,
	    joined.looks, join);
	assert_true(line.steps > 0);
	assert_true(forked.steps <= FORKED_MOST * line.steps);
	assert_true(joined.steps <= FORKED_MOST * line.steps);
	assert_true(forked.looks <= LOOKS_MOST && joined.looks <= LOOKS_MOST);
	assert_true(join <= JOIN_STEPS_MOST);
}

TEST(a_forked_capture_costs_at_most_three_times_a_line)
{
	tracker->driver.stream_ends = ends_counted;
	tracker->driver.node_dependencies = dependencies_counted;
	costs_are_bounded(MANY / FEWER);
	costs_are_bounded(MANY);
}
