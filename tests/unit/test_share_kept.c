/* SPDX-License-Identifier: MIT */
/*
 * test_share_kept.c - graphs that share memory while the program has them: they do, and
 * have memory of their own before anything but a launch can run on it.
 */
#include "../../capture/share.h"
#include "share_fake.h"
#include "cases.h"

#undef TEST
#define TEST(name) CASE(name, kept_setup, share_teardown)

/* With its graph, in the lane of those that were there before. */
static struct graph *make_kept(int number, uint64_t bytes)
{
	struct graph *graph = capture_with(number, bytes, 0);

	device_catches_up();
	instantiate(graph);
	gcp_shares_prepare(tracker);
	return graph;
}

/* As the hook on a capture into the graph does, and on others. */
static int taken(const struct graph *graph)
{
	struct gcp_holder *holding;
	int result;

	assert_int_equal(gcp_holding_begin(tracker, graph->graph, false, &holding), 0);
	result = gcp_share_taken(tracker, holding);
	gcp_holding_end(tracker, holding);
	return result;
}

static int kept_setup(void **state);

TEST(a_graph_that_is_kept_shares)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);

	device_catches_up();
	instantiate(b);
	assert_false(share_memory(a, b));
	launch(b, 0);
	assert_true(share_memory(a, b));
	launch(a, 0);
	drop(b);
	assert_true(share_memory(a, b));
	assert_int_equal(fake.memory_used, 16 * MIB);
}

TEST(a_graph_that_is_used_otherwise_shares_nothing)
{
	struct graph *a = make(0, 16 * MIB), *b = capture_with(1, 16 * MIB, 0);
	struct graph *c = capture_with(2, 16 * MIB, 0);

	device_catches_up();
	assert_int_equal(taken(b), 0);
	instantiate(b);
	launch(b, 0);
	drop(b);
	assert_int_equal(instantiate_to(c, exec_handle(c, 0), false), 0);
	launch(c, 0);
	drop(c);
	for (int i = 1; i < 3; i++)
		assert_false(share_memory(a, &graphs[i]));
}

/* --- nodes --- */

static int node_of(const void *graph, int number)
{
	(void)graph;
	return number;
}

static int no_nodes(void *graph, struct gcp_node_handles **ret_handles)
{
	(void)graph;
	*ret_handles = NULL;
	return 0;
}

/* Three nodes, as the driver lists them: in no order of their handles. */
static void *node(const void *graph, uintptr_t number)
{
	return (void *)((uintptr_t)graph * 0x1000 + (number + 2) % 3 * 8);
}

static int three_nodes(void *graph, struct gcp_node_handles **ret_handles)
{
	struct gcp_node_handles *handles =
	    malloc(sizeof(*handles) + 3 * sizeof(void *));

	assert_non_null(handles);
	*handles = (struct gcp_node_handles){.count = 3};
	for (uintptr_t i = 0; i < 3; i++)
		handles->handles[i] = node(graph, i);
	*ret_handles = handles;
	return 0;
}

/* As the hook on the end of a capture does. */
static struct graph *make_listed(int number)
{
	struct graph *graph = &graphs[number];

	graph->graph = begin(0);
	graph->scratch = capture_alloc(16 * MIB);
	graph->bytes = 16 * MIB;
	must_free(pools, graph->scratch);
	end(0);
	gcp_share_captured(tracker, graph->graph);
	device_catches_up();
	instantiate(graph);
	gcp_shares_prepare(tracker);
	return graph;
}

TEST(a_node_that_was_read_may_be_of_any_graph_without_a_list)
{
	struct graph *a = make(0, 16 * MIB), *b, *c;

	tracker->driver.graph_nodes = no_nodes;
	b = make_listed(1);
	c = make(2, 16 * MIB);
	assert_true(share_memory(a, b));
	assert_int_equal(gcp_share_node_taken(tracker, &node_of), 0);
	assert_false(share_memory(a, b));
	assert_true(share_memory(a, c)); /* whose graph is gone */
}

TEST(a_node_that_was_read_is_of_the_graph_that_lists_it)
{
	struct graph *a = make(0, 16 * MIB), *b, *c, *d;

	tracker->driver.graph_nodes = three_nodes;
	b = make_listed(1);
	c = make_listed(2);
	d = make_listed(3);
	assert_int_equal(gcp_share_node_taken(tracker, node(c->graph, 1)), 0);
	assert_true(share_memory(a, b));
	assert_false(share_memory(a, c));
	assert_true(share_memory(a, d));
	assert_int_equal(gcp_share_node_taken(tracker, &node_of), 0);
	assert_true(share_memory(a, b));
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(gcp_share_node_taken(tracker, node(b->graph, i)), 0);
	assert_false(share_memory(a, b));
	assert_int_equal(gcp_share_node_taken(tracker, node(d->graph, 0)), 0);
	assert_false(share_memory(a, d));
}

/* --- memory of its own --- */

TEST(one_that_is_idle_leaves_the_lane)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	uint64_t work;

	assert_true(share_memory(a, b));
	launch(a, 0);
	work = fake.submitted;
	assert_int_equal(taken(b), 0);
	assert_true(fake.done < work);
	assert_false(share_memory(a, b));
}

/* The taken graph runs, and the others do not: they go. */
TEST(the_others_leave_one_that_runs)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 24 * MIB);
	struct graph *c = make(2, 8 * MIB);
	uint64_t work;

	launch(c, 1);
	device_catches_up();
	fake.stuck = true;
	launch(b, 0);
	work = fake.submitted;
	launch(b, 0);
	assert_int_equal(taken(b), 0);
	assert_true(fake.done < work);
	assert_false(share_memory(a, b));
	assert_false(share_memory(c, b));
	assert_true(share_memory(a, c));
	launch(a, 1);
	launch(c, 1);
	assert_true(fake.done < work);
	fake.stuck = false;
	device_catches_up();
	assert_int_equal(fake.memory_used, 24 * MIB + 16 * MIB);
}

TEST(where_others_run_too_it_waits_for_its_own_launch)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	uint64_t work;

	fake.stuck = true;
	launch(b, 0);
	work = fake.submitted;
	launch(a, 0);
	assert_int_equal(taken(b), 0);
	assert_true(fake.done >= work);
	assert_false(share_memory(a, b));
	fake.stuck = false;
}

/* The call is refused, and launches go on as before. */
TEST(without_memory_nothing_changes)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph second = *b;

	launch(a, 0);
	fake.memory_limit = fake.memory_used;
	assert_true(taken(b) != 0);
	assert_true(instantiate_to(&second, exec_handle(b, 1), false) != 0);
	assert_true(share_memory(a, b));
	launch(b, 0);
	launch(a, 0);
	fake.memory_limit = UINT64_MAX;
	device_catches_up();
	assert_int_equal(taken(b), 0);
	assert_false(share_memory(a, b));
}

/* A call that is not known cannot be refused: no later call takes that back. */
TEST(what_is_not_seen_stays_so)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct gcp_launch one = {.share = 0}, two = {.share = 0};
	int first, second;

	fake.memory_limit = fake.memory_used;
	gcp_share_all_taken(tracker);
	(void)taken(b);
	first = gcp_launch_begin(tracker, b->exec, stream_handle(0), &one);
	second = gcp_launch_begin(tracker, a->exec, stream_handle(1), &two);
	assert_true(first != 0 && second != 0);
	fake.memory_limit = UINT64_MAX;
	gcp_launch_end(tracker, b->exec, &one, 1);
	gcp_launch_end(tracker, a->exec, &two, 1);
}

/* Nor is one guarded less that is made after that. */
TEST(what_is_made_of_it_waits_for_memory_as_well)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *second = &graphs[2];
	struct gcp_launch one;

	fake.memory_limit = fake.memory_used;
	gcp_share_all_taken(tracker);
	*second = *b;
	assert_int_equal(instantiate_to(second, exec_handle(second, 1), true), 0);
	second->graph = NULL;
	assert_true(gcp_launch_begin(tracker, second->exec, stream_handle(0), &one) !=
		    0);
	fake.memory_limit = UINT64_MAX;
	launch(second, 0);
	assert_false(share_memory(a, second));
}

/* --- executables --- */

/* CUDA orders the launches of one executable, and not those of two, of one handle. */
TEST(a_new_executable_does_not_follow_the_old_one)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *again = &graphs[2];

	launch(b, 0);
	*again = *b;
	holder_destroy(b->exec, true);
	b->exec = b->graph = NULL;
	assert_int_equal(instantiate_to(again, exec_handle(again, 0), true), 0);
	launch(again, 1); /* beside the launch of the old one */
	assert_false(share_memory(a, again));
	launch(a, 1);
	device_catches_up();
	(void)gcp_pool_work_is_done(pool, UINT64_MAX, true);
	for (int i = 0; i < 4; i++)
		launch(i % 2 ? a : again, 2);
}

/* The handle is given out before the call that destroys the old one has returned. */
TEST(nor_where_the_old_one_is_just_going)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *again = &graphs[2];
	struct gcp_holder *ending;

	launch(b, 0);
	*again = *b;
	ending = gcp_holder_ending(tracker, b->exec, true);
	assert_int_equal(instantiate_to(again, exec_handle(again, 0), true), 0);
	launch(again, 1);
	launch(a, 1);
	gcp_holder_ended(tracker, ending, true);
	b->exec = b->graph = NULL;
	launch(again, 2);
	launch(a, 2);
}

/* Judged as a graph of its own. */
static struct graph *second_of(const struct graph *graph, int number)
{
	struct graph *second = &graphs[number];

	*second = *graph;
	assert_int_equal(instantiate_to(second, exec_handle(second, 1), true), 0);
	second->graph = NULL;
	return second;
}

TEST(two_executables_of_a_graph_share_as_one)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *second = second_of(b, 2);
	uint64_t used = fake.memory_used;

	fake.stuck = true;
	for (int i = 0; i < 60; i++)
		launch(&graphs[i * 7 % 3], i * 5 % 4);
	launch(b, 0);
	launch(second, 0);
	launch(second, 1);
	launch(b, 1);
	fake.stuck = false;
	assert_true(share_memory(a, b) || fake.memory_used > used);
}

/* Calls in progress come in any order. */
TEST(the_last_of_two_executables_at_once_is_not_known)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *second = second_of(b, 2);
	struct gcp_launch one, two;

	launch(a, 0);
	launch_begin(b, 0, &one);
	launch_begin(second, 0, &two);
	launch_real(second, 0);
	launch_real(b, 0);
	gcp_launch_end(tracker, second->exec, &two, 0);
	gcp_launch_end(tracker, b->exec, &one, 0);
	launch(second, 1); /* judged: behind b's, too */
	launch(a, 1);
}

/* No other graph comes to their lane, which no stream keeps in order. */
TEST(where_executables_are_side_by_side_no_graph_follows)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *c = make(3, 16 * MIB), *second = second_of(b, 2);

	launch(b, 0);
	launch(second, 1); /* the others have left */
	assert_false(share_memory(a, b));
	launch(a, 2);
	launch(c, 1); /* judged */
	assert_false(share_memory(c, b));
	device_catches_up();
	(void)gcp_pool_work_is_done(pool, UINT64_MAX, true);
	launch(a, 2);
	launch(c, 1);
	launch(b, 1);
}

/* Another lane would take as much again. */
TEST(alone_and_idle_it_needs_no_memory)
{
	struct graph *b = make_kept(1, 16 * MIB);

	fake.memory_limit = fake.memory_used;
	assert_int_equal(taken(b), 0);
	launch(b, 0);
	fake.memory_limit = UINT64_MAX;
}

/* Also where launches are only counted. */
TEST(the_latest_of_two_executables_is_known)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *second = second_of(b, 2);

	for (int i = 0; i < 3; i++) {
		launch(b, 0);
		launch(second, 0);
	}
	assert_true(launches_again > 0);
	launch(b, 0);
	launch(second, 1); /* beside b's */
	launch(a, 1);
}

TEST(an_executable_that_switches_is_followed_by_its_own_alone)
{
	struct graph *b = make_kept(1, 16 * MIB), *second = second_of(b, 2);
	struct gcp_launch one;

	launch(b, 0);
	launch_begin(b, 1, &one); /* follows itself */
	gcp_tracker_lock(tracker);
	assert_false(gcp_share_of_exec(tracker, second->exec)->track->switching == 0);
	gcp_tracker_unlock(tracker);
	launch_real(b, 1);
	gcp_launch_end(tracker, b->exec, &one, 0);
	launch(second, 1);
}

static struct graph *copy_of(struct graph *graph, int number)
{
	struct graph *copy = &graphs[number];
	struct gcp_holder *holding;

	assert_int_equal(gcp_holding_begin(tracker, graph->graph, false, &holding), 0);
	gcp_share_copied(tracker, holding);
	*copy = *graph;
	copy->graph = (void *)((uintptr_t)graph->graph | 0x20000000);
	gcp_holding_new(tracker, holding, copy->graph, false);
	return copy;
}

/* Its executables are launches of the graph. */
TEST(a_clone_shares)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *clone = copy_of(b, 2);

	drop(b);
	instantiate(clone);
	assert_true(share_memory(a, clone));
	launch(clone, 0);
	launch(a, 1);
	launch(b, 0);
	launch(clone, 0);
	launch(a, 1);
	launch(clone, 1);
	launch(b, 1);
	launch(clone, 0);
	launch(a, 0);
	launch(clone, 2);
	device_catches_up();
}

/* Its nodes are not listed, and its graph may be gone. */
TEST(a_node_that_was_read_may_be_a_clone_s)
{
	struct graph *a = make(0, 16 * MIB), *b, *clone;

	tracker->driver.graph_nodes = three_nodes;
	b = make_listed(1);
	clone = copy_of(b, 2);
	instantiate(clone);
	launch(a, 0);
	launch(clone, 0);
	assert_int_equal(gcp_share_node_taken(tracker, &node_of), 0);
	assert_false(share_memory(a, clone));
}

/* A parent with both as children: they may run at the same time, and lie apart. */
TEST(the_children_of_one_graph_lie_apart)
{
	struct graph *a = make_kept(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct gcp_holder *one, *two;
	struct graph *parent = &graphs[2];

	assert_true(share_memory(a, b));
	assert_int_equal(gcp_holding_begin(tracker, a->graph, false, &one), 0);
	assert_int_equal(gcp_holding_begin(tracker, b->graph, false, &two), 0);
	gcp_share_copied(tracker, one);
	gcp_share_copied(tracker, two);
	parent->graph = (void *)0x7000000;
	gcp_holding_new(tracker, NULL, parent->graph, false);
	gcp_holding_add(tracker, one, parent->graph, false);
	gcp_holding_add(tracker, two, parent->graph, false);
	assert_true(share_memory(a, b));
	assert_int_equal(instantiate_to(parent, (void *)0x7010000, true), 0);
	assert_false(share_memory(a, b));
}

/* As the hook does. */
static void update(struct graph *graph, void *exec)
{
	struct gcp_holder *holding;

	assert_int_equal(gcp_holding_begin(tracker, graph->graph, false, &holding), 0);
	assert_int_equal(gcp_share_instantiates(tracker, holding, true), 0);
	gcp_holding_new(tracker, holding, exec, true);
	gcp_share_instantiated(tracker, exec);
	gcp_tracker_collect(tracker);
	graph->exec = exec;
}

TEST(an_executable_that_is_updated_shares_on)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *c = capture_with(2, 16 * MIB, 0);

	device_catches_up();
	launch(b, 0);
	update(c, b->exec);
	b->exec = NULL;
	launch(c, 1); /* the launch before the update still runs */
	gcp_tracker_lock(tracker);
	assert_true(gcp_share_of_exec(tracker, c->exec)->bound);
	gcp_tracker_unlock(tracker);
	assert_false(share_memory(b, c));
	launch(a, 1);
	device_catches_up();
	drop(b);
	gcp_tracker_collect(tracker);
	for (int i = 0; i < 4; i++)
		launch(i % 2 ? a : c, i % 3);
}

/* Its own graph, with other parameters, is not another use of it. */
TEST(an_executable_that_is_updated_to_its_graph_shares_on)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);

	launch(b, 0);
	update(b, b->exec);
	launch(b, 0);
	launch(a, 0);
	assert_true(share_memory(a, b));
}

/* As the hook does. */
static void update_fails(const struct graph *graph, void *exec)
{
	struct gcp_holder *holding;

	assert_int_equal(gcp_holding_begin(tracker, graph->graph, false, &holding), 0);
	assert_int_equal(gcp_share_instantiates(tracker, holding, true), 0);
	gcp_share_not_updated(tracker, holding, exec);
	gcp_holding_add(tracker, holding, exec, true);
}

/* It may run on the memory of both, and its launches are those of one. */
TEST(after_an_update_that_failed_it_shares_with_one)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *c = make_kept(2, 16 * MIB);

	update_fails(c, b->exec);
	assert_true(share_memory(a, b) && share_memory(a, c));
	launch(c, 0);
	assert_true(share_memory(a, c)); /* the executable may never run again */
	device_catches_up();
	launch(b, 0);
	assert_true(share_memory(a, b));
	assert_false(share_memory(b, c));
}

/* Also if it held nothing before. */
TEST(after_an_update_that_failed_it_holds_what_it_may_run_on)
{
	struct graph *a = make(0, 16 * MIB), *c = make_kept(1, 16 * MIB);
	struct gcp_launch none;
	void *exec = (void *)0x7010000;

	assert_true(share_memory(a, c));
	update_fails(c, exec);
	assert_int_equal(gcp_launch_begin(tracker, exec, stream_handle(0), &none), 0);
	assert_int_equal(none.share, 0);
	assert_false(share_memory(a, c));
	holder_destroy(exec, true);
}

TEST(an_update_to_its_own_graph_that_failed_changes_nothing)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);

	update_fails(b, b->exec);
	launch(b, 0);
	launch(b, 0);
	assert_true(share_memory(a, b));
}

TEST(without_memory_an_executable_that_is_mixed_is_not_launched)
{
	struct graph *a = make(0, 16 * MIB), *b = make_kept(1, 16 * MIB);
	struct graph *c = make_kept(2, 16 * MIB);
	struct gcp_launch none;

	launch(a, 0);
	update_fails(c, b->exec);
	fake.memory_limit = fake.memory_used;
	assert_true(gcp_launch_begin(tracker, b->exec, stream_handle(1), &none) != 0);
	launch(c, 0);
	fake.memory_limit = UINT64_MAX;
	device_catches_up();
	launch(b, 1);
	assert_false(share_memory(b, c));
}

static int kept_setup(void **state)
{
	launches_again = 0;
	return share_setup(state);
}
