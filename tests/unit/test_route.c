/* SPDX-License-Identifier: MIT */
/*
 * test_route.c - which pool an allocation is taken from while captures are under way,
 * and what it is for: captured work, which may be given what the order of the graph
 * allows again, or any work, which gets no block twice.
 */
#include "capture_fake.h"

static gcp_addr elsewhere;

/* Each replay of the graph will touch it. */
static gcp_addr freed_by_the_capture(void)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	must_free(addr);
	return addr;
}

static void *take_with_hint(void *arg)
{
	const struct gcp_stream_hint *hint = arg;

	OK(gcp_tracker_alloc(tracker, pool, FAKE_CTX, *hint, 3 * MIB, &elsewhere));
	return NULL;
}

/* Of a thread whose last work was captured, by an earlier capture: another thread has
 * the stream capture again since, and what it allocates may be for eager work. */
TEST(a_later_capture_of_its_stream_gives_a_thread_nothing_twice)
{
	void *graph = begin(0), *later;
	struct gcp_stream_hint hint = hint_of(stream_handle(0));
	gcp_addr addr;

	end(0);
	later = begin(0);
	addr = freed_by_the_capture();
	fake_elsewhere(take_with_hint, &hint);
	assert_true(is_private(elsewhere));
	assert_int_not_equal(elsewhere, addr);
	hint = hint_of(stream_handle(0));
	fake_elsewhere(take_with_hint, &hint);
	assert_int_equal(elsewhere, addr);
	end(0);
	graph_destroy(later);
	graph_destroy(graph);
}

/* It may have worked elsewhere last. */
TEST(a_thread_whose_stream_cannot_be_asked_gets_nothing_twice)
{
	void *graph = begin(0);
	gcp_addr addr = freed_by_the_capture();

	cuda.contexts_ending++;
	assert_int_not_equal(capture_alloc_on(stream_handle(0), 3 * MIB), addr);
	cuda.contexts_ending--;
	assert_int_equal(capture_alloc_on(stream_handle(0), 3 * MIB), addr);
	end_and_destroy(graph);
}

/* Nor one that has not named the pool itself, and whose last work was eager. */
TEST(a_thread_that_names_no_pool_gets_nothing_of_it_twice)
{
	struct gcp_stream_hint hint = hint_of(stream_handle(1));
	gcp_addr addr;
	uint64_t id;
	void *graph;

	OK(gcp_graph_pool_create(tracker, &id), gcp_graph_pool_use(tracker, id));
	graph = begin(0);
	addr = freed_by_the_capture();
	hint.eager = true;
	cuda.contexts_ending++;
	fake_elsewhere(take_with_hint, &hint);
	cuda.contexts_ending--;
	assert_int_not_equal(elsewhere, addr);
	OK(gcp_graph_pool_release(tracker, id));
	end_and_destroy(graph);
}

/* Of a thread whose last work was eager: other streams, or its own, are gone since. */
TEST(memory_for_eager_work_is_no_capture_s_when_streams_have_gone)
{
	void *graph = begin(0);
	struct gcp_stream_hint hint = hint_of(stream_handle(1));

	hint.eager = true;
	cuda.thread_mode = GCP_CAPTURE_RELAXED;
	for (int i = 0; i < 3; i++) {

		fake_elsewhere(take_with_hint, &hint);
		assert_false(is_private(elsewhere));
		must_free(elsewhere);
		gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(2 - i));
	}
	end_and_destroy(graph);
}

static void *begin_into_graph(int i)
{
	void *graph = (void *)(uintptr_t)(0x9000 + ++cuda.last_id);
	struct gcp_capture *capture;

	OK(gcp_tracker_begin_prepare(tracker, true, &capture));
	fake.capturing++;
	cuda.streams[i] = (struct gcp_capture_state){true, false, cuda.last_id, graph};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(i),
			       GCP_CAPTURE_GLOBAL, 0);
	return graph;
}

/* Which may run beside what the program captures into it now. */
TEST(a_capture_into_a_graph_gets_nothing_that_the_graph_has_used)
{
	gcp_addr addr, small;
	void *graph, *again;
	uint64_t id;

	OK(gcp_graph_pool_create(tracker, &id), gcp_graph_pool_use(tracker, id));
	graph = begin(0);
	addr = capture_alloc(3 * MIB);
	small = capture_alloc(700);
	must_free(addr);
	must_free(small);
	end(0);
	again = begin_into_graph(0);
	assert_false(is_given_again(addr, 3 * MIB));
	assert_false(is_given_again(small, 700));
	must_be_sound();
	kernel(0);
	wait_for(1, 0); /* what it captures itself follows that, the rest need not */
	assert_false(is_given_again(addr, 3 * MIB));
	assert_false(is_given_again(small, 700));
	end(0);
	OK(gcp_graph_pool_release(tracker, id));
	graph_destroy(graph);
	graph_destroy(again);
}

/* CUDA refuses to capture the legacy stream. */
TEST(a_capture_that_was_refused_is_none)
{
	struct gcp_capture *capture;

	OK(gcp_tracker_begin_prepare(tracker, false, &capture));
	assert_true(gcp_tracker_capturing(tracker));
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, NULL, GCP_CAPTURE_GLOBAL,
			       900);
	assert_false(gcp_tracker_capturing(tracker));
}

/* Another thread is about to end the capture, which is noted only then. */
TEST(a_capture_that_is_noted_late_ends)
{
	struct gcp_capture *capture;
	uint64_t number;

	OK(gcp_tracker_begin_prepare(tracker, false, &capture));
	number = gcp_tracker_end_prepare(tracker, FAKE_CTX, stream_handle(0));
	assert_int_equal(number, 0);
	cuda.streams[0] = (struct gcp_capture_state){.active = true, .id = 1};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(0),
			       GCP_CAPTURE_RELAXED, 0);
	assert_true(gcp_tracker_capturing(tracker));
	cuda.streams[0].active = false;
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(0), number, GCP_END_SURE);
	assert_false(gcp_tracker_capturing(tracker));
}
