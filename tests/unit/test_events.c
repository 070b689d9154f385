/* SPDX-License-Identifier: MIT */
/*
 * test_events.c - which places an event stands for while a capture is under way, and
 * whose order proves nothing.
 */
#include <limits.h>

#include "../../capture/capture_types.h"
#include "../../pool/pool_types.h"
#include "capture_fake.h"
#include "cases.h"

/* When an event goes the graph is searched. */
static void look(void)
{
	event_record(0, (void *)0x7778);
	event_gone((void *)0x7778);
}

/* The call that records it anew may fail, and another thread may make one as well. */
TEST(an_event_stands_for_its_old_place_until_it_has_a_new_one)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t first, second;

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
	first = gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	second =
	    gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	gcp_tracker_event_recorded(tracker, event, second, true);
	gcp_tracker_event_recorded(tracker, event, first, true); /* the last one? */
	look();
	assert_false(is_given_again(addr, 3 * MIB));
	event_gone(event); /* from both places */
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

TEST(an_event_recorded_anew_has_left_its_old_place)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t record;

	kernel(0);
	event_record(0, event);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB));
	record =
	    gcp_tracker_event_recording(tracker, FAKE_CTX, stream_handle(0), event);
	assert_false(is_given_again(addr, 3 * MIB));
	gcp_tracker_event_recorded(tracker, event, record, true);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

/* As soon as the real call has destroyed it, another thread may get the same handle for
 * a new event, and record that. */
TEST(the_late_report_of_an_event_leaves_a_new_one_alone)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);
	uint64_t moment;

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
TEST(what_captures_shared_waits_for_the_last_of_them)
{
	void *first = begin(0), *second = begin(1);
	gcp_addr addr = capture_alloc(3 * MIB);

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

/* However many nodes lie between a free and the moment that every end follows. */
TEST(a_proof_reaches_over_thousands_of_nodes)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB), other;

	kernel(0);
	wait_for(1, 0);
	kernel(1);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	other = capture_alloc(3 * MIB);
	assert_int_not_equal(other, addr);
	for (int i = 0; i < 6000; i++)
		kernel(i % 2);
	wait_for(0, 1);
	assert_false(is_given_again(addr, 3 * MIB));
	wait_for(1, 0);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

/* However many nodes a stream, and a node, come behind. */
TEST(a_proof_reads_wide_joins)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	struct node *first, *side[WIDE - 20];

	kernel(0);
	wait_for(1, 0);
	first = cuda.ends[0][0];
	for (int i = 0; i < WIDE - 20; i++) {
		cuda.ends[0][0] = first;
		kernel(0); /* uses the block */
		side[i] = cuda.ends[0][0];
	}
	memcpy(cuda.ends[0], side, sizeof(side));
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB)); /* stream 1 follows none */
	kernel(0);
	wait_for(1, 0);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

#define OTHER_CTX ((void *)0x20000)

/* The per-thread default stream is another one in each context. */
static int ends_by_context(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	return stream_ends(ctx,
			   ctx == OTHER_CTX ? stream_handle(PER_THREAD - 1) : stream,
			   ret_nodes, count);
}

static void default_stream_of_other_context_waits(void *event)
{
	event_record(PER_THREAD, event);
	gcp_tracker_forked(tracker);
	memcpy(cuda.ends[PER_THREAD - 1], cuda.ends[PER_THREAD],
	       sizeof(cuda.ends[PER_THREAD]));
	gcp_tracker_joined(tracker, OTHER_CTX, CU_PER_THREAD, event);
	event_gone(event);
}

TEST(default_streams_of_two_contexts_are_two_ends)
{
	void *graph;
	gcp_addr addr;

	cuda.has_owner = true;
	cuda.owner = pthread_self();
	tracker->driver.stream_ends = ends_by_context;
	graph = begin(PER_THREAD);
	addr = capture_alloc(3 * MIB);
	kernel(PER_THREAD);
	default_stream_of_other_context_waits((void *)0x7777);
	kernel(PER_THREAD); /* uses the block */
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB));
	default_stream_of_other_context_waits((void *)0x7777);
	assert_true(is_given_again(addr, 3 * MIB));
	end(PER_THREAD);
	graph_destroy(graph);
	cuda.has_owner = false;
}

/* However many events stand for places in the capture. */
TEST(a_proof_needs_every_one_of_many_events)
{
	enum { EVENTS = 300 };
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	for (int i = 0; i < EVENTS; i++)
		event_record(0, (void *)(uintptr_t)(0x8000 + i));
	kernel(0); /* uses the block */
	must_free(pools, addr);
	for (int i = 0; i < EVENTS; i++) {
		assert_int_not_equal(capture_alloc(3 * MIB), addr);
		event_gone((void *)(uintptr_t)(0x8000 + i));
	}
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

/* What comes before the later ones need not come before the first. */
TEST(a_proof_needs_the_oldest_event_of_each_stream)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	event_record(0, (void *)0x8000);
	wait_for(1, 0);
	event_record(1, (void *)0x8001);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	wait_for(1, 0);
	event_record(0, (void *)0x8002);
	event_record(1, (void *)0x8003);
	assert_false(is_given_again(addr, 3 * MIB));
	event_gone((void *)0x8001);
	assert_false(is_given_again(addr, 3 * MIB));
	event_gone((void *)0x8000);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static void *destroy_event(void *event)
{
	event_gone(event);
	return NULL;
}

/* The capture's own stream is one that the other thread cannot ask about. */
TEST(an_event_may_go_in_another_thread)
{
	void *event = (void *)0x7777, *graph;
	gcp_addr addr;
	pthread_t other;

	cuda.owner = pthread_self();
	cuda.has_owner = true;
	graph = begin(PER_THREAD);
	addr = capture_alloc(3 * MIB);
	kernel(PER_THREAD);
	event_record(PER_THREAD, event);
	kernel(PER_THREAD); /* uses the block */
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB));
	pthread_create(&other, NULL, destroy_event, event);
	pthread_join(other, NULL);
	assert_true(is_given_again(addr, 3 * MIB));
	end(PER_THREAD);
	graph_destroy(graph);
}

/* No stream is asked then; but only for as long. */
TEST(a_proof_waits_while_a_context_may_be_ending)
{
	void *graph = begin(0), *event = (void *)0x7777;
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	event_record(0, event);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	assert_false(is_given_again(addr, 3 * MIB));
	cuda.contexts_ending++;
	event_gone(event);
	assert_false(is_given_again(addr, 3 * MIB));
	context_ended((void *)0x999, false);
	assert_true(is_given_again(addr, 3 * MIB));
	end(0);
	graph_destroy(graph);
}

static int answers_torn;

static int ends_later(void *ctx, void *stream, void **ret_nodes, size_t *count)
{
	return answers_torn-- > 0 ? -EAGAIN
				  : stream_ends(ctx, stream, ret_nodes, count);
}

/* Another thread captures just then: only this proof is missing, and this look. */
TEST(ends_that_cannot_be_read_just_now_are_read_later)
{
	void *event = (void *)0x7777, *graph;
	gcp_addr addr;

	tracker->driver.stream_ends = ends_later;
	tracker->driver.stream_follow = stream_follow;
	graph = begin(0);
	addr = capture_alloc(3 * MIB);
	kernel(0);
	wait_for(1, 0);
	wait_for(0, 1);
	kernel(0); /* uses the block */
	must_free(pools, addr);
	answers_torn = INT_MAX;
	event_record(0, event);
	wait_for(1, 0);
	assert_int_not_equal(capture_alloc(3 * MIB), addr);
	answers_torn = 0;
	assert_int_equal(capture_alloc(3 * MIB), addr);
	event_gone(event);
	end(0);
	graph_destroy(graph);
}

static gcp_addr freed_beside;

static void free_beside(void)
{
	kernel(0); /* uses the block */
	must_free(pools, freed_beside);
}

/* Another thread captures and frees while the ends are read. */
TEST(what_is_freed_beside_a_look_waits_for_the_next)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	freed_beside = capture_alloc(3 * MIB);
	kernel(0);
	wait_for(1, 0);
	must_free(pools, addr);
	cuda.once_read = free_beside;
	assert_false(is_given_again(freed_beside, 3 * MIB)); /* side lags */
	assert_null(cuda.once_read);
	wait_for(1, 0);
	assert_true(is_given_again(freed_beside, 3 * MIB));
	end(0);
	graph_destroy(graph);
}
