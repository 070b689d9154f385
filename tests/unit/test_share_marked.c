/* SPDX-License-Identifier: MIT */
/*
 * test_share_marked.c - before a context goes, and before a capture begins, an event
 * comes to stand behind the latest launch of each lane, and before a stream goes behind
 * those that were made there: what follows waits for that alone, and on the device.
 */
#include "share_fake.h"

static void a_launch_in_a_stream_that_has_gone_is_followed(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	stream_replace(0);
	launch(b, 1);
	assert_true(share_memory(a, b));
	assert_int_equal(waits_of_all, 1);
	assert_int_equal(fake.barrier, 0); /* other work is not waited for */
	exec_destroy(a);
}

/* To make an event, or to record one, can take until the launch queue has room. */
static void no_event_is_made_before_another_stream_goes(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	stream_replace(5);
	stream_replace(6);
	assert_int_equal(events, 0);
	launch(b, 1);
	assert_int_equal(waits_of_all, 1);
	assert_int_equal(fake.barrier, 0);
}

static void after_another_stream_has_gone_graphs_are_asked_for(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	device_catches_up();
	(void)fake_submit();
	stream_replace(5);
	launch(b, 1);
	assert_int_equal(waits_of_all, 0);
	assert_int_equal(must_stats(pools).graph_waits, 0);
}

/* The stream of the latest launch goes while that call is still under way. */
static void a_stream_has_gone_though_another_one_goes_after_it(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	(void)state;
	launch(b, 0);
	launch_begin(a, 0, &now);
	launch_real(a, 0);
	stream_replace(0);
	gcp_launch_end(tracker, a->exec, &now, 0);
	stream_replace(5);
	queries = 0;
	launch(b, 1);
	assert_int_equal(queries, 0);
	assert_true(fake.barrier > 0);
}

/* Where memory is used again only when its work is done: a launch follows others all
 * the same, on the device. */
static void the_host_does_not_wait_where_nothing_is_used_again(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;
	uint64_t done;

	(void)state;
	pools->completed_only = true;
	launch(b, 0);
	launch_begin(a, 0, &now);
	launch_real(a, 0);
	stream_replace(0);
	gcp_launch_end(tracker, a->exec, &now, 0);
	stream_replace(5);
	done = fake.done;
	launch(b, 1);
	assert_int_equal(fake.done, done);
	assert_true(fake.barrier > 0);
}

/* As the hook does. */
static void a_launch_is_followed_after_another_context_has_gone(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	gcp_tracker_context_ending(tracker);
	cuda.contexts_ending++;
	context_ended(FAKE_OTHER_CTX, true);
	launch(b, 1);
	assert_int_equal(waits_of_all, 1);
	assert_int_equal(fake.barrier, 0);
}

static void the_event_stands_behind_the_latest_launch(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(b, 0);
	launch(a, 0);
	launch(b, 0);
	launch(a, 0);
	gcp_tracker_context_ending(tracker); /* none does after all */
	device_catches_up();
	launch(b, 0);
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(waits_of_all, 1);
}

static void what_is_done_needs_no_event(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	(void)state;
	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	(void)gcp_pool_work_is_done(pool, UINT64_MAX, true);
	stream_replace(0);
	assert_int_equal(events, 0);
}

/* Nor does it run for what comes beside the capture. */
static void what_its_stream_says_is_done_needs_none(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other;

	(void)state;
	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	(void)fake_submit();
	other = begin(3);
	assert_int_equal(events, 0);
	launch(a, 1);
	assert_true(share_memory(a, b));
	launch(b, 2);
	assert_int_equal(must_stats(pools).graph_waits, 0);
	end(3);
	graph_destroy(other);
}

/* They were launched before the last one, which is over. */
static void graphs_that_are_over_go_into_a_capture_at_once(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);
	struct gcp_launch none;
	uint64_t other_work;
	void *graph;

	(void)state;
	launch(c, 0);
	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	other_work = fake_submit();
	graph = begin(1);
	launch_begin(a, 1, &none);
	launch_begin(b, 1, &none);
	assert_true(fake.done < other_work);
	assert_false(share_memory(a, b));
	end(1);
	graph_destroy(graph);
}

/* The host does not wait, as it does in a free: no work is done meanwhile. */
static void a_launch_beside_a_capture_waits_on_the_device(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t done = fake.done;
	void *other;

	(void)state;
	launch(b, 0);
	launch(a, 0);
	other = begin(3);
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(fake.done, done);
	end(3);
	graph_destroy(other);
}

static void so_does_one_behind_another_one_beside_it(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other = begin(3);
	uint64_t done = fake.done;

	(void)state;
	launch(b, 0);
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(fake.done, done);
	end(3);
	graph_destroy(other);
}

static void a_launch_beside_an_unseen_capture_waits_on_the_device(void **state)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t done;

	(void)state;
	launch(b, 0);
	launch(a, 0);
	done = fake.done;
	gcp_share_captures_unseen(tracker);
	gcp_pools_fences_hold(pools); /* as the hook does, for good */
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(fake.done, done);
	gcp_pools_fences_release(pools);
}

#define MARKED_TEST(name)                                                              \
	cmocka_unit_test_setup_teardown(name, share_setup, share_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    MARKED_TEST(a_launch_in_a_stream_that_has_gone_is_followed),
	    MARKED_TEST(no_event_is_made_before_another_stream_goes),
	    MARKED_TEST(after_another_stream_has_gone_graphs_are_asked_for),
	    MARKED_TEST(a_stream_has_gone_though_another_one_goes_after_it),
	    MARKED_TEST(the_host_does_not_wait_where_nothing_is_used_again),
	    MARKED_TEST(a_launch_is_followed_after_another_context_has_gone),
	    MARKED_TEST(the_event_stands_behind_the_latest_launch),
	    MARKED_TEST(what_is_done_needs_no_event),
	    MARKED_TEST(what_its_stream_says_is_done_needs_none),
	    MARKED_TEST(graphs_that_are_over_go_into_a_capture_at_once),
	    MARKED_TEST(a_launch_beside_a_capture_waits_on_the_device),
	    MARKED_TEST(so_does_one_behind_another_one_beside_it),
	    MARKED_TEST(a_launch_beside_an_unseen_capture_waits_on_the_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
