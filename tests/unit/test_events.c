/* SPDX-License-Identifier: MIT */
/*
 * test_events.c - which places an event stands for while a capture is under way, and
 * whose order proves nothing.
 */
#include "capture_fake.h"

/* When an event goes the graph is searched. */
static void look(void)
{
	event_record(0, (void *)0x7778);
	event_gone((void *)0x7778);
}

/* The call that records it anew may fail, and another thread may make one as well. */
static void an_event_stands_for_its_old_place_until_it_has_a_new_one(void **state)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t first, second;

	(void)state;
	kernel(0);
	event_record(0, event);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	first = gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	assert_false(is_given_again(addr, 3 * MIB));
	gcp_tracker_event_recorded(tracker, event, first, false);
	look();
	assert_false(is_given_again(addr, 3 * MIB));
	event_record(0, event);
	look();
	assert_true(is_given_again(addr, 3 * MIB));
	must_free(pools, addr);
	first = gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	kernel(0); /* uses it too, for all we know */
	second =
	    gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	gcp_tracker_event_recorded(tracker, event, second, true);
	gcp_tracker_event_recorded(tracker, event, first, true); /* the last one? */
	look();
	assert_false(is_given_again(addr, 3 * MIB));
	event_gone(event);
	end(0);
	graph_destroy(graph);
}

/* As soon as the real call has destroyed it, another thread may get the same handle for
 * a new event, and record that. */
static void the_late_report_of_an_event_leaves_a_new_one_alone(void **state)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t moment;

	(void)state;
	kernel(0);
	event_record(0, event);
	moment = gcp_tracker_moment(tracker); /* the real call comes next */
	event_record(0, event);               /* another event, the same handle */
	kernel(0);                            /* uses the block */
	must_free(pools, addr);
	gcp_tracker_event_gone(tracker, event, moment);
	assert_false(is_given_again(addr, 3 * MIB));
	event_gone(event);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

/* The other one's graph may be launched beside all that this one leads to. */
static void what_captures_shared_waits_for_the_last_of_them(void **state)
{
	void *first = begin(0), *second = begin(1);
	gcp_addr addr = capture_alloc(3 * MIB);

	(void)state;
	kernel(0);
	kernel(1);
	must_free(pools, addr);
	end(1);
	wait_for(2, 0);
	wait_for(0, 2);
	look();
	assert_false(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(first);
	graph_destroy(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(an_event_stands_for_its_old_place_until_it_has_a_new_one),
	    TEST(the_late_report_of_an_event_leaves_a_new_one_alone),
	    TEST(what_captures_shared_waits_for_the_last_of_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
