/* SPDX-License-Identifier: MIT */
/*
 * test_relaunch.c - launches that need nothing but to be counted (relaunch.c), and what
 * ends that. share_fake.h judges them.
 */
#include "../../capture/share.h"
#include "share_fake.h"
#include "cases.h"

#undef TEST
#define TEST(name) CASE(name, relaunch_setup, share_teardown)

/* Two graphs of one lane, the next launches of which into the stream are counted alone.
 */
static void launch_twice(struct graph *a, struct graph *b, int stream)
{
	for (int i = 0; i < 2; i++) {
		launch(a, stream);
		launch(b, stream);
	}
	assert_int_equal(launches_again, 2);
	assert_true(share_memory(a, b));
	launches_again = 0;
}

static int relaunch_setup(void **state)
{
	launches_again = 0;
	return share_setup(state);
}

TEST(launches_alike_ask_nothing)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch_twice(a, b, 0);
	ids_asked = queries = 0;
	for (int i = 0; i < 20; i++)
		launch(i % 2 ? a : b, 0);
	assert_int_equal(launches_again, 20);
	assert_int_equal(ids_asked + queries, 0);
	assert_int_equal(events, 0);
}

static uint64_t launches_counted(void)
{
	return must_stats(pools).graph_launches;
}

TEST(launches_are_counted_either_way)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph other = {.exec = (void *)0x50000};
	uint64_t before = launches_counted();

	launch_twice(a, b, 0);
	assert_int_equal(launches_counted(), before + 4);
	launch(a, 0);
	assert_int_equal(launches_again, 1);
	assert_int_equal(launches_counted(), before + 5);
	launch(a, 1);
	assert_int_equal(launches_counted(), before + 6);
	launch(&other, 1);
	assert_int_equal(launches_counted(), before + 6);
}

/* What has no share is not counted, and looked for once. */
TEST(what_shares_nothing_is_launched_at_once)
{
	struct graph *a = make(0, 16 * MIB), other = {.exec = (void *)0x50000};

	for (int i = 0; i < 4; i++)
		launch(&other, i % 2);
	assert_int_equal(launches_again, 3);
	launch(a, 0);
}

TEST(another_stream_with_the_same_handle_is_asked_for)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch_twice(a, b, 0);
	device_catches_up();
	launch(a, 0);
	stream_replace(0);
	launch(b, 0); /* judged */
	assert_int_equal(launches_again, 1);
}

TEST(streams_of_another_context_are_asked_for)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch_twice(a, b, 0);
	gcp_tracker_context_gone(tracker, (void *)0x77);
	launch(a, 0);
	assert_int_equal(launches_again, 0);
}

TEST(while_a_capture_is_under_way_each_is_looked_at)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *other;

	launch_twice(a, b, 0);
	other = begin(3);
	launch(a, 0);
	launch(a, 0);
	end(3);
	assert_int_equal(launches_again, 0);
	graph_destroy(other);
}

/* From then on an event stands behind each launch. */
TEST(a_second_stream_in_use_is_seen)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);

	launch_twice(a, b, 0);
	launch(c, 0);
	launch(c, 0);
	launches_again = 0;
	device_catches_up();
	launch(b, 1);
	device_catches_up();
	launch(a, 0);
	launch(c, 0);
	assert_int_equal(launches_again, 0);
	assert_int_equal(events, 3);
}

TEST(what_a_trim_took_is_mapped_again)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch_twice(a, b, 0);
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
	assert_int_equal(fake.memory_used, 0);
	launch(a, 0);
	assert_int_equal(fake.memory_used, 16 * MIB);
	launch(b, 0);
	assert_int_equal(launches_again, 0);
}

TEST(an_executable_with_the_handle_of_another_one_is_new)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB), *c;
	void *exec = a->exec;
	struct gcp_holder *holding;

	launch_twice(a, b, 0);
	device_catches_up();
	exec_destroy(a);
	c = capture_with(2, 32 * MIB, 0);
	assert_int_equal(gcp_holding_begin(tracker, c->graph, false, &holding), 0);
	c->exec = exec;
	gcp_holding_new(tracker, holding, exec, true);
	gcp_share_instantiated(tracker, exec);
	device_catches_up();
	drop(c);
	launch(c, 0);
	assert_int_equal(launches_again, 0);
	launch(b, 0);
	assert_true(share_memory(b, c));
}

/* Until the call has returned it may not have begun. */
TEST(it_is_in_progress)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	launch_twice(a, b, 0);
	device_catches_up();
	launch_begin(a, 0, &now);
	assert_int_equal(launches_again, 1);
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 0);
	launch(b, 1);
	assert_false(share_memory(a, b));
	launch_real(a, 0);
	gcp_launch_end(tracker, a->exec, &now, 0);
}

/* Of two calls at once neither is known to be the last. */
TEST(beside_another_one_of_the_lane_it_is_looked_at)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch first, second;

	fake.stuck = true;
	launch_twice(a, b, 1);
	launch_begin(a, 1, &first);
	launch_begin(b, 1, &second);
	assert_int_equal(launches_again, 1);
	launch_real(b, 1);
	gcp_launch_end(tracker, b->exec, &second, 0);
	launch_real(a, 1);
	gcp_launch_end(tracker, a->exec, &first, 0);
	launch(b, 2); /* judged */
	assert_int_equal(waits_of_all, 1);
}

TEST(beside_a_launch_of_the_same_one_it_is_looked_at)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch first, second;

	launch_twice(a, b, 0);
	device_catches_up();
	launch_begin(a, 0, &first);
	launch_begin(a, 0, &second);
	assert_int_equal(launches_again, 1);
	launch_real(a, 0);
	gcp_launch_end(tracker, a->exec, &second, 0);
	device_catches_up();
	launch(b, 1); /* the first one has not begun */
	assert_false(share_memory(a, b));
	launch_real(a, 0);
	gcp_launch_end(tracker, a->exec, &first, 0);
}

/* Until then its stream says nothing of the lane. */
TEST(after_one_that_has_failed_the_next_is_looked_at)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch failed;

	launch_twice(a, b, 0);
	launch_begin(a, 0, &failed);
	gcp_launch_end(tracker, NULL, &failed, 1);
	launches_again = 0;
	launch(a, 0);
	assert_int_equal(launches_again, 0);
	device_catches_up();
	(void)fake_submit(); /* no fence tells */
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
}

/* In no lane, too. */
TEST(beside_a_launch_of_a_graph_without_a_lane_it_is_looked_at)
{
	struct graph *a = make(0, 16 * MIB), *b;
	struct gcp_launch first, second;

	launch(a, 0);
	fake_submit(); /* may use the memory of the capture */
	b = capture_with(1, 16 * MIB, 0);
	instantiate(b);
	for (int i = 0; i < 5; i++)
		launch(b, 0);
	launch_begin(b, 0, &first);
	launch_begin(b, 0, &second);
	assert_int_equal(launches_again, 1);
	launch_real(b, 0);
	gcp_launch_end(tracker, b->exec, &first, 0);
	launch_real(b, 0);
	gcp_launch_end(tracker, b->exec, &second, 0);
}

/* Its end is counted all the same. */
TEST(things_may_change_during_the_call)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;

	launch_twice(a, b, 0);
	launch_begin(a, 0, &now);
	stream_replace(3);
	launch_real(a, 0);
	assert_false(gcp_launch_again_ended(tracker, &now));
	gcp_launch_end(tracker, a->exec, &now, 0);
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
}

/* Until its launch, and for nothing that came after a free had closed its epoch. */
TEST(no_later_work_than_the_launch_is_waited_for)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	gcp_addr block = must_alloc(pool, 2 * MIB);
	uint64_t later;

	launch_twice(a, b, 0);
	device_catches_up();
	launch(a, 0);
	launch(b, 0);
	must_free(pools, block);
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	later = fake_submit();
	gcp_share_all_taken(tracker);
	assert_true(fake.done < later);
	assert_false(share_memory(a, b));
}

/* The first is over when the second begins, and need not wait for it elsewhere. */
TEST(a_launch_that_is_over_waits_for_none_after_it)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);

	launch_twice(a, b, 0);
	device_catches_up();
	launch(a, 0);
	assert_int_equal(launches_again, 1);
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	device_catches_up();
	assert_int_equal(gcp_timeline_poll_all(pool), 0);
	launch(b, 0);
	assert_int_equal(launches_again, 2);
	fake.stuck = true;
	waits = waits_of_all = 0;
	launch(a, 1);
	fake.stuck = false;
	assert_int_equal(waits + waits_of_all, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
}

/* --- default streams --- */

static struct gcp_launch by_the_thread;

static void *launches_into_its_default_stream(void *arg)
{
	cuda.owner = pthread_self();
	launch_begin(arg, PER_THREAD, &by_the_thread);
	return NULL;
}

TEST(the_default_stream_of_another_thread_is_another_one)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now;
	pthread_t thread;

	cuda.has_owner = true;
	cuda.owner = pthread_self();
	launch_twice(a, b, PER_THREAD);
	(void)gcp_pool_work_is_done(pool, gcp_pool_work_now(pool), true);
	device_catches_up();
	launch_begin(a, PER_THREAD, &now);
	launch_real(a, 2); /* where the other thread's stream is idle */
	assert_true(gcp_launch_again_ended(tracker, &now));
	assert_int_equal(
	    pthread_create(&thread, NULL, launches_into_its_default_stream, b), 0);
	pthread_join(thread, NULL);
	assert_int_equal(launches_again, 1);
	assert_false(share_memory(a, b));
	launch_real(b, 3);
	by_the_thread.stream = stream_handle(3);
	gcp_launch_end(tracker, b->exec, &by_the_thread, 0);
	device_catches_up();
	cuda.has_owner = false;
}

TEST(the_default_stream_of_another_context_is_another_one)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	void *ctx = context_of_streams;

	cuda.has_owner = true;
	cuda.owner = pthread_self();
	launch_twice(a, b, PER_THREAD);
	device_catches_up();
	context_of_streams = (void *)0x77;
	launch(a, PER_THREAD);
	context_of_streams = ctx;
	assert_int_equal(launches_again, 0);
	assert_false(share_memory(a, b));
	cuda.has_owner = false;
}

/* It is guarded until it has that. */
TEST(nothing_is_noted_of_a_graph_that_waits_for_memory)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now = {.share = 0};

	fake.memory_limit = fake.memory_used;
	gcp_share_all_taken(tracker);
	assert_true(share_memory(a, b));
	gcp_tracker_lock(tracker);
	gcp_launch_note(tracker, a->exec, stream_handle(0));
	gcp_tracker_unlock(tracker);
	assert_false(gcp_launch_again(tracker, a->exec, stream_handle(0), &now));
	fake.memory_limit = UINT64_MAX;
}

/* --- graphs without a lane --- */

TEST(a_graph_without_a_lane_gets_one_in_time)
{
	struct graph *a = make(0, 16 * MIB), *b;

	fake_submit(); /* may use the memory of the capture */
	b = capture_with(1, 16 * MIB, 0);
	instantiate(b);
	for (int i = 0; i < 6; i++)
		launch(b, 0);
	assert_int_equal(launches_again, 1); /* the last of them */
	drop(b);                             /* in flight */
	assert_false(share_memory(a, b));
	for (int i = 0; i < 3; i++) {
		device_catches_up();
		launch(b, 0);
	}
	assert_true(share_memory(a, b));
}
