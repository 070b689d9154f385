/* SPDX-License-Identifier: MIT */
/*
 * test_share.c - graphs that share memory: which may, what their addresses are mapped
 * to, and that no two launches meet in one place (share_fake.h judges them).
 */
#include "../../capture/share.h"
#include "share_fake.h"
#include "cases.h"

/* --- which graphs share --- */

/* Work beside the capture, on memory that the capture has freed. */
TEST(work_beside_the_capture_is_completed_first)
{
	struct graph *a = make(0, 16 * MIB), *b = &graphs[1];

	b->graph = begin(0);
	b->scratch = capture_alloc(16 * MIB);
	b->bytes = 16 * MIB;
	(void)submit_eagerly();
	must_free(pools, b->scratch);
	end(0);
	gcp_share_captured(tracker, b->graph);
	instantiate(b);
	drop(b);
	assert_false(share_memory(a, b));
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	launch(b, 0);
	assert_true(share_memory(a, b));
}

TEST(a_graph_in_flight_is_not_bound)
{
	struct graph *a = make(0, 16 * MIB), *b;
	uint64_t beside = fake_submit();

	b = capture_with(1, 16 * MIB, 0);
	instantiate(b);
	launch(b, 0); /* the work beside its capture is on its way */
	assert_false(share_memory(a, b));
	fake.done = beside;
	drop(b);
	assert_false(share_memory(a, b)); /* judged: nothing was unmapped */
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	launch(b, 0);
	assert_true(share_memory(a, b));
}

/* --- launches --- */

/* While it runs its launches elsewhere are crossings: CUDA orders those of one
 * executable.
 */
TEST(a_crossing_follows_the_lane_and_the_lane_follows_it)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch(b, 0);
	for (int i = 0; i < 20; i++)
		launch(a, i % 4);
	assert_int_equal(waits_of_all, 0);
	launch(b, 0);
	assert_int_equal(waits_of_all, 1);
	assert_true(share_memory(a, b));
	device_catches_up();
	launch(a, 2);
	assert_false(share_memory(a, b));
}

static struct graph *leaving;

static void leaves(void)
{
	launch(leaving, 2);
}

/* Launches that are only counted have no event: the one before says nothing of them. */
TEST(an_event_stands_behind_one_launch)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);

	leaving = b;
	launch(b, 0);
	launch(a, 0);
	launch(c, 1);
	device_catches_up();
	once_created = leaves;
	launch(a, 0);
	device_catches_up();
	fake.stuck = true;
	launch(a, 0);
	launch(a, 2);
	assert_int_equal(must_stats(pools).graph_moves, 2); /* of c and b */
}

TEST(launched_into_a_capture_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;
	void *parent;

	launch(b, 1);
	launch(a, 1);
	device_catches_up();
	parent = begin(2);
	launch_begin(a, 2, &none);
	assert_int_equal(none.share, 0);
	assert_false(share_memory(a, b));
	end(2);
	/* Launches of the other graph are not seen: its memory stays where it is. */
	gcp_share_trim(tracker, -1, 0);
	assert_int_not_equal(fake_physical(a->scratch), 0);
	graph_destroy(parent);
	make(2, 32 * MIB);
	launch(&graphs[2], 0);
	launch(b, 3);
	assert_false(share_memory(a, &graphs[2]));
	assert_false(share_memory(a, b));
}

/* Of a capture that began in an unknown way the device tells. Nothing moves before, and
 * what was noted of a launch counts no more. */
TEST(launched_into_an_unseen_capture_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	for (int i = 0; i < 2; i++) {
		launch(b, 1);
		launch(a, 1);
	}
	gcp_share_captures_unseen(tracker);
	assert_true(share_memory(a, b));
	device_catches_up();
	cuda.streams[1] = (struct gcp_capture_state){.active = true, .id = 77};
	assert_false(gcp_launch_again(tracker, a->exec, stream_handle(1), &now));
	launch_begin(a, 1, &now);
	assert_int_equal(now.share, 0);
	assert_false(share_memory(a, b));
	cuda.streams[1] = (struct gcp_capture_state){.active = false};
	launch(b, 1);
	assert_false(gcp_launch_again(tracker, b->exec, stream_handle(1), &now));
}

TEST(in_a_stream_of_another_context_it_has_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;

	context_of_streams = FAKE_OTHER_CTX;
	launch_begin(a, 3, &none);
	assert_int_equal(none.share, 0);
	assert_false(share_memory(a, b));
}

TEST(an_unknown_call_gives_each_memory_of_its_own)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	gcp_share_all_taken(tracker);
	assert_false(share_memory(a, b));
	launch(a, 0);
	launch(b, 1);
	assert_int_equal(must_stats(pools).graph_moves, 0);
}

TEST(what_a_graph_that_ended_runs_on_does_not_move)
{
	struct graph *a = make(0, 16 * MIB);

	make(1, 16 * MIB);
	launch(a, 0);
	gcp_holding_new(tracker, NULL, a->exec, true);
	gcp_tracker_collect(tracker);
	launch(&graphs[1], 1); /* judged */
	assert_false(share_memory(a, &graphs[1]));
}

TEST(what_a_graph_that_ended_runs_on_is_waited_for)
{
	struct graph *a = make(0, 16 * MIB);

	make(1, 16 * MIB);
	fake.stuck = true;
	launch(&graphs[1], 0);
	launch(a, 0);
	uint64_t work = fake.submitted;
	gcp_holding_new(tracker, NULL, a->exec, true);
	gcp_tracker_collect(tracker);
	gcp_share_all_taken(tracker);
	assert_true(fake.done >= work);
}

/* --- ends --- */

TEST(idle_lanes_give_back_and_are_filled_again)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 32 * MIB);

	launch(a, 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 0); /* it runs */
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, 0, 32 * MIB), 0); /* it is kept */
	assert_int_equal(gcp_share_trim(tracker, 1, 0), 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 32 * MIB);
	assert_int_equal(fake.memory_used, 0);
	must_be_sound(pools);
	launch(b, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	launch(a, 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	must_be_sound(pools);
}

/* The large one has moved to where there is enough. */
TEST(what_no_graph_of_a_lane_needs_goes_back)
{
	struct graph *a = make(0, 4 * MIB), *b = make(1, 40 * MIB);
	struct graph *c = make(2, 40 * MIB);

	launch(a, 0);
	launch(c, 1);
	launch(b, 1);
	assert_true(share_memory(b, c));
	assert_int_equal(fake.memory_used, 80 * MIB);
	assert_int_equal(gcp_share_trim(tracker, 1, 0), 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 80 * MIB), 0);
	assert_int_equal(gcp_share_trim(tracker, 0, 0), 36 * MIB); /* they run */
	assert_int_equal(fake.memory_used, 44 * MIB);
	must_be_sound(pools);
	for (int i = 0; i < 20; i++)
		launch(i % 2 ? b : a, i % 2);
	assert_int_equal(fake.memory_used, 44 * MIB);
}

TEST(without_memory_a_launch_fails_and_may_be_tried_again)
{
	struct graph *a = make(0, 16 * MIB);
	struct gcp_launch now;

	launch(a, 0);
	device_catches_up();
	assert_true(gcp_share_trim(tracker, -1, 0) > 0);
	fake.memory_limit = 8 * MIB;
	assert_int_equal(gcp_launch_begin(tracker, a->exec, stream_handle(0), &now),
			 GCP_CUDA_OUT_OF_MEMORY);
	must_be_sound(pools);
	fake.memory_limit = UINT64_MAX;
	launch(a, 0);
}
