/* SPDX-License-Identifier: MIT */
/*
 * test_share_pools.c - whose graph pool is its own: what other captures have had or
 * may get, other graphs may run on, or lies in several contexts is never shared.
 */
#include "../../capture/share.h"
#include "share_fake.h"
#include "cases.h"

/* A graph that is alone in its lane: one that may share comes there. */
static struct graph *make_first(void)
{
	struct graph *first = make(0, 16 * MIB);

	launch(first, 0);
	device_catches_up();
	assert_int_equal(must_stats(pools).lane_bytes.current, 16 * MIB);
	return first;
}

/* However often the graph is launched, and one more capture begins. */
static void must_share_nothing(struct graph *graph)
{
	gcp_share_captured(tracker, graph->graph);
	device_catches_up();
	instantiate(graph);
	drop(graph);
	for (int i = 0; i < 8; i++) {
		launch(graph, 0);
		device_catches_up();
	}
	gcp_shares_prepare(tracker);
	assert_false(share_memory(&graphs[0], graph));
	assert_int_equal(must_stats(pools).lane_bytes.current, 16 * MIB);
	must_be_sound(pools);
}

static void scratch_of(struct graph *graph, uint64_t bytes)
{
	graph->scratch = capture_alloc(bytes);
	graph->bytes = bytes;
	must_free(pools, graph->scratch);
}

/* What one of its graphs has freed the next one uses, at the same addresses. */
TEST(graphs_in_a_pool_of_the_program_share_it_alone)
{
	uint64_t id;

	make_first();
	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	for (int i = 1; i < 3; i++) {
		graphs[i].graph = begin(0);
		scratch_of(&graphs[i], 16 * MIB);
		end(0);
		must_share_nothing(&graphs[i]);
	}
	assert_int_equal(graphs[1].scratch, graphs[2].scratch);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
}

/* Also when no other one holds it any more. */
TEST(memory_that_two_captures_have_had_is_not_shared)
{
	struct graph *b = &graphs[1];
	void *other;

	make_first();
	other = begin(1);
	b->graph = begin(0);
	scratch_of(b, 16 * MIB); /* of both: by the thread that began them */
	end(1);
	graph_destroy(other);
	gcp_tracker_collect(tracker);
	end(0);
	must_share_nothing(b);
}

/* What is made, during the capture, of a child whose graph is not known may run on any
 * memory. */
TEST(memory_that_another_graph_may_run_on_is_not_shared)
{
	void *child = (void *)0x77, *exec = (void *)0x78;
	struct gcp_holder *holding;
	struct graph *b = &graphs[1];

	make_first();
	gcp_graph_part(tracker, NULL, child);
	b->graph = begin(0);
	scratch_of(b, 16 * MIB);
	assert_int_equal(gcp_holding_begin(tracker, child, false, &holding), 0);
	assert_non_null(holding);
	gcp_holding_new(tracker, holding, exec, true);
	end(0);
	must_share_nothing(b);
	holder_destroy(exec, true);
}

/* Also when there is one context again. */
TEST(memory_in_two_contexts_is_not_shared)
{
	struct graph *b = &graphs[1];
	struct gcp_pool *other;
	gcp_addr addr;

	make_first();
	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	b->graph = begin(0);
	assert_int_equal(gcp_tracker_alloc(tracker, other, FAKE_OTHER_CTX,
					   hint_of(NULL), 16 * MIB, &addr),
			 0);
	must_free(pools, addr);
	scratch_of(b, 16 * MIB);
	end(0);
	gcp_pool_detach(pools, FAKE_OTHER_CTX);
	gcp_pool_reset(pools, FAKE_OTHER_CTX);
	must_share_nothing(b);
}
