/* SPDX-License-Identifier: MIT */
/*
 * test_holders.c - which graphs and executables hold graph pools, and when the memory
 * of those that nothing holds any more may be used again.
 */
#include "capture_fake.h"
#include "fake_pinned.h"

static void *handle(int i)
{
	return (void *)(uintptr_t)(0x50000 + 16 * i);
}

/* A graph that has captured a block, freed meanwhile. */
static void *captured(void)
{
	void *graph = begin(0);

	must_free(capture_alloc(3 * MIB));
	end(0);
	return graph;
}

static struct gcp_holder *holding_of(void *from, bool is_exec)
{
	struct gcp_holder *holding;

	OK(gcp_holding_begin(tracker, from, is_exec, GCP_MAKING_COPY, &holding));
	return holding;
}

/* As the hooks do for a clone, an instantiation, an update. */
static void *made(int i, void *from, bool is_exec)
{
	gcp_holding_new(tracker, holding_of(from, false), handle(i), is_exec);
	return handle(i);
}

/* As they do for a child graph. */
static void added(void *parent, void *child)
{
	gcp_holding_add(tracker, holding_of(child, false), parent, false);
}

/* A capture that makes a graph of this handle, or goes into the one that exists. */
static void begin_graph(int stream, void *graph, bool exists)
{
	struct gcp_capture *capture;

	OK(gcp_tracker_begin_prepare(tracker, exists, &capture));
	fake.capturing++;
	cuda.streams[stream] =
	    (struct gcp_capture_state){true, false, ++cuda.last_id, graph};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(stream),
			       GCP_CAPTURE_GLOBAL, 0);
	must_free(capture_alloc_on(stream_handle(stream), 3 * MIB));
}

static void captured_into(int stream, void *graph)
{
	begin_graph(stream, graph, true);
	end(stream);
}

static uint64_t graph_pools(void)
{
	return gcp_graph_pools_list(tracker, NULL, 0);
}

/* --- small blocks, of the common heap --- */

TEST(a_small_block_serves_nothing_else_while_its_graph_lives)
{
	void *graph = begin(0);
	gcp_addr freed = capture_alloc(5000), held = capture_alloc(5000);

	must_free(freed);
	end(0);
	assert_int_equal(must_stats().reserved_bytes.current, 2 * MIB);
	assert_int_equal(must_stats().allocation.current, 1);
	assert_int_equal(gcp_pools_free(pools, freed), -EINVAL);
	for (int i = 0; i < 20; i++)
		assert_int_not_equal(must_alloc(pool, 5000), freed);
	must_be_sound();
	graph_destroy(graph);
	assert_int_equal(must_stats().allocation.current,
			 21); /* one is the program's */
	must_free(held);
	must_be_sound();
	assert_int_equal(pool->common.lent_bytes, 0);
}

/* No graph would keep plain memory, and its free would end the capture. */
TEST(a_small_block_of_a_context_without_fences_is_the_graphs_own)
{
	fake.record_result = 801;
	must_free(must_alloc(pool, 64 * MIB));
	void *graph = begin(0);
	must_free(capture_alloc(5000));
	end(0);
	assert_int_equal(private_bytes(), 2 * MIB);
	graph_destroy(graph);
}

/* --- what is made of a graph --- */

/* A program may do that for each launch. */
TEST(what_is_set_for_a_child_goes_with_the_next)
{
	void *exec = handle(0), *node = handle(1), *other = handle(2), *graph;

	for (int i = 0; i < 4; i++) {
		graph = captured();
		gcp_holding_set(tracker, holding_of(graph, false), exec,
				i == 0 ? other : node, true);
		graph_destroy(graph);
	}
	assert_int_equal(graph_pools(), 2);
	graph = captured();
	gcp_holding_set(tracker, holding_of(graph, false), exec, node, false);
	graph_destroy(graph);
	assert_int_equal(graph_pools(), 3);
	graph = begin(0);
	OK(gcp_graph_launched(tracker, FAKE_CTX, stream_handle(0), exec));
	end(0);
	gcp_holding_set(tracker, NULL, exec, node, true);
	holder_destroy(exec, true);
	assert_int_equal(graph_pools(), 3);
	graph_destroy(graph);
	assert_int_equal(graph_pools(), 0);
	assert_false(gcp_tracker_holds(tracker));
}

TEST(an_update_that_fails_leaves_both)
{
	void *first = captured(), *second = captured(), *exec = made(0, first, true);

	gcp_holding_add(tracker, holding_of(second, false), exec, true);
	graph_destroy(first);
	graph_destroy(second);
	assert_int_equal(graph_pools(), 2);
	holder_destroy(exec, true);
}

/* --- parts --- */

TEST(a_body_belongs_to_its_graph)
{
	void *outer = handle(0), *body = handle(1), *inner = handle(2), *exec;

	gcp_graph_part(tracker, outer, body, false);
	gcp_graph_part(tracker, body, inner, false);
	captured_into(0, inner);
	exec = made(3, outer, true);
	graph_destroy(outer);
	assert_int_equal(graph_pools(), 1);
	holder_destroy(exec, true);
	assert_int_equal(graph_pools(), 0);
	assert_false(gcp_tracker_holds(tracker));
}

/* While a call that is refused seems to take the graph away. */
TEST(what_comes_to_a_part_meanwhile_belongs_to_its_graph)
{
	void *outer = handle(0), *body = handle(1), *inner = handle(2), *exec;
	struct gcp_holder *ending;

	gcp_graph_part(tracker, outer, body, false);
	ending = gcp_holder_ending(tracker, outer, false);
	gcp_graph_part(tracker, body, inner, false);
	captured_into(0, body);
	captured_into(0, inner);
	gcp_holding_add(tracker, ending, outer, false);
	captured_into(0, inner);
	exec = made(3, outer, true);
	graph_destroy(outer);
	gcp_holding_new(tracker, NULL, body, false);
	gcp_holding_new(tracker, NULL, inner, false);
	assert_int_equal(graph_pools(), 3);
	holder_destroy(exec, true);
	assert_int_equal(graph_pools(), 0);
}

TEST(a_graph_that_moves_into_another_one_is_part_of_it)
{
	void *parent = handle(0), *child = captured();

	added(parent, child);
	gcp_graph_part(tracker, parent, child, true);
	captured_into(0, child);
	assert_int_equal(graph_pools(), 2);
	graph_destroy(parent);
	assert_int_equal(graph_pools(), 0);
	assert_false(gcp_tracker_holds(tracker));
}

/* Nothing is released any more: the rest of the process has to know. */
static void start_again(void)
{
	gcp_tracker_destroy(tracker);
	fake_close(NULL);
	setup(NULL);
}

TEST(a_part_of_an_unknown_graph_keeps_its_memory_for_good)
{
	void *graph = captured(), *exec;

	gcp_graph_part(tracker, NULL, handle(0), false);
	exec = made(1, handle(0), true); /* any graph may be in it */
	graph_destroy(graph);
	assert_int_equal(graph_pools(), 1);
	holder_destroy(exec, true);
	assert_int_equal(graph_pools(), 0);
	captured_into(0, handle(0));
	graph_destroy(handle(0));
	assert_int_equal(graph_pools(), 1);
	start_again();
}

/* --- for good --- */

TEST(a_call_that_is_not_known_may_have_copied_any_graph)
{
	void *graph = captured(), *later;

	gcp_graphs_keep(tracker, false);
	later = captured();
	graph_destroy(graph);
	graph_destroy(later);
	assert_int_equal(graph_pools(), 1);
	gcp_graphs_keep(tracker, true);
	graph_destroy(captured());
	assert_int_equal(graph_pools(), 2);
	start_again();
}

TEST(what_a_node_was_given_is_kept_for_good)
{
	void *graph = captured();

	gcp_holding_keep(tracker, NULL); /* it held nothing */
	gcp_holding_keep(tracker, holding_of(graph, false));
	graph_destroy(graph);
	assert_int_equal(graph_pools(), 1);
	start_again();
}

/* --- launches of what is gone --- */

#define OTHER_CTX ((void *)0xc0c0)

static void launch_elsewhere(void *exec)
{
	assert_true(gcp_exec_is_away(tracker, exec, OTHER_CTX, OTHER_CTX));
	cuda.launches_latest++;
}

static uint64_t private_bytes_looked(void)
{
	gcp_tracker_collect(tracker);
	return private_bytes();
}

/* Also beside a capture. */
TEST(memory_waits_for_launches_in_another_context)
{
	void *graph = captured(), *exec = made(7, graph, true), *other;

	assert_false(gcp_exec_is_away(tracker, exec, OTHER_CTX, FAKE_CTX));
	launch_elsewhere(exec);
	launch_elsewhere(exec);
	graph_destroy(graph);
	holder_destroy(exec, true);
	assert_true(private_bytes_looked() > 0);
	other = begin(1);
	cuda.launches_done = 1;
	cuda.launches_latest++; /* of others */
	assert_true(private_bytes_looked() > 0);
	cuda.launches_done = 2;
	assert_int_equal(private_bytes_looked(), 0);
	end(1);
	graph_destroy(other);
}

static bool graphs_look(void)
{
	return gcp_tracker_waiting(tracker) > 0 && gcp_tracker_look(tracker);
}

/* The capture ends with pinned memory that is freed; what it has captured is launched
 * in another context, and is no more. */
static void *pinned_run_elsewhere(void *graph)
{
	void *exec, *p;

	OK(gcp_tracker_host_alloc(tracker, pool, FAKE_CTX, hint_of(NULL), MIB, 0, &p));
	end(0);
	OK(gcp_pinned_free(pools, p));
	exec = made(7, graph, true);
	launch_elsewhere(exec);
	graph_destroy(graph);
	holder_destroy(exec, true);
	return p;
}

/* The launch is done. */
static gcp_addr launched_elsewhere(void **ret_p)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(64 * MIB);

	pools->driver.graphs_look = graphs_look;
	must_free(addr);
	*ret_p = pinned_run_elsewhere(graph);
	cuda.launches_done = cuda.launches_latest;
	assert_int_equal(gcp_tracker_waiting(tracker), 1);
	return addr;
}

TEST(memory_launched_in_another_context_serves_before_new_is_taken)
{
	void *p, *again;
	gcp_addr addr = launched_elsewhere(&p);

	assert_int_equal(must_alloc(pool, 64 * MIB), addr);
	assert_int_equal(gcp_tracker_waiting(tracker), 0);
	must_free(addr);
	addr = launched_elsewhere(&p);
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &again));
	assert_ptr_equal(again, p);
	assert_int_equal(gcp_tracker_waiting(tracker), 0);
}

/* Pinned memory beyond its limit, too: its free may wait for what other threads submit
 * meanwhile. */
TEST(an_allocation_frees_no_pinned_memory_of_graphs)
{
	void *graph = begin(0);

	pools->config.pinned_cache_limit = 0;
	must_free(capture_alloc(3 * MIB));
	(void)pinned_run_elsewhere(graph);
	cuda.launches_done = 1;
	pools->driver.graphs_look = graphs_look;
	must_free(capture_alloc(MIB));
	assert_int_equal(gcp_tracker_waiting(tracker), 0);
	assert_int_equal(fake_pinned.blocks, 1);
	gcp_tracker_collect(tracker);
	assert_int_equal(fake_pinned.blocks, 0);
}

/* Also of a graph that has no other memory. */
TEST(pinned_memory_waits_for_launches_in_other_contexts)
{
	void *p = pinned_run_elsewhere(begin(0)), *q, *r;

	gcp_tracker_collect(tracker);
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &q));
	assert_ptr_not_equal(q, p);
	cuda.launches_done = 1;
	gcp_tracker_collect(tracker);
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &r));
	assert_ptr_equal(r, p);
	OK(gcp_pinned_free(pools, q), gcp_pinned_free(pools, r));
}

/* The device may launch it: any launch may be one of it. */
TEST(memory_waits_for_launches_that_are_not_seen)
{
	void *graph = captured(), *other = captured(), *exec = made(7, other, true);
	struct gcp_holder *holding;

	OK(gcp_holding_begin(tracker, graph, false, GCP_MAKING_UNSEEN, &holding));
	gcp_holding_new(tracker, holding, (void *)0x77, true);
	assert_true(gcp_exec_is_away(tracker, exec, FAKE_CTX, NULL));
	launch_elsewhere(exec);
	graph_destroy(graph);
	holder_destroy((void *)0x77, true);
	assert_int_equal(graph_pools(), 2);
	cuda.launches_done = 1;
	assert_true(private_bytes_looked() > 0);
	assert_int_equal(graph_pools(), 1);
	graph_destroy(other);
	holder_destroy(exec, true);
	assert_int_equal(private_bytes_looked(), 0);
}
