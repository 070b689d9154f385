/* SPDX-License-Identifier: MIT */
/*
 * test_share_marked.c - before a context goes, and before a capture begins, an event
 * comes to stand behind the latest launch of each lane, and before a stream goes behind
 * those that were made there: what follows waits for that alone, and on the device.
 */
#include "share_fake.h"
#include "cases.h"

TEST(a_launch_in_a_stream_that_has_gone_is_followed)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

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
TEST(no_event_is_made_before_another_stream_goes)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(b, 0);
	launch(a, 0);
	stream_replace(5);
	stream_replace(6);
	assert_int_equal(events, 0);
	launch(b, 1);
	assert_int_equal(waits_of_all, 1);
	assert_int_equal(fake.barrier, 0);
}

TEST(after_another_stream_has_gone_graphs_are_asked_for)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

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
TEST(a_stream_has_gone_though_another_one_goes_after_it)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

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
TEST(the_host_does_not_wait_where_nothing_is_used_again)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;
	uint64_t done;

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
TEST(a_launch_is_followed_after_another_context_has_gone)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(b, 0);
	launch(a, 0);
	gcp_tracker_context_ending(tracker);
	cuda.contexts_ending++;
	context_ended(FAKE_OTHER_CTX, true);
	launch(b, 1);
	assert_int_equal(waits_of_all, 1);
	assert_int_equal(fake.barrier, 0);
}

TEST(the_event_stands_behind_the_latest_launch)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

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

TEST(what_is_done_needs_no_event)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	(void)gcp_pool_work_is_done(pool, UINT64_MAX, true);
	stream_replace(0);
	assert_int_equal(events, 0);
}

/* Nor does it run for what comes beside the capture. */
TEST(what_its_stream_says_is_done_needs_none)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other;

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
TEST(graphs_that_are_over_go_into_a_capture_at_once)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);
	struct gcp_launch none;
	uint64_t other_work;
	void *graph;

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
TEST(a_launch_beside_a_capture_waits_on_the_device)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t done = fake.done;
	void *other;

	launch(b, 0);
	launch(a, 0);
	other = begin(3);
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(fake.done, done);
	end(3);
	graph_destroy(other);
}

TEST(so_does_one_behind_another_one_beside_it)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other = begin(3);
	uint64_t done = fake.done;

	launch(b, 0);
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(waits, 1);
	assert_int_equal(fake.done, done);
	end(3);
	graph_destroy(other);
}

TEST(a_launch_beside_an_unseen_capture_waits_on_the_device)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	uint64_t done;

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
