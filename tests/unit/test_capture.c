/* SPDX-License-Identifier: MIT */
/*
 * test_capture.c - how long a graph's memory stays, and which pool an
 * allocation belongs to while captures are under way.
 */
#include "../../capture/capture_types.h"
#include "capture_fake.h"
#include "cases.h"

/* --- lifetimes ---------------------------------------------------------------- */

TEST(without_captures_no_event_is_pending)
{
	assert_false(gcp_tracker_has_pending_events(tracker));
	begin(0);
	assert_true(gcp_tracker_has_pending_events(tracker));
	end(0);
	assert_false(gcp_tracker_has_pending_events(tracker));
}

TEST(memory_stays_private_until_the_graph_is_gone)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	assert_true(is_private(addr));
	must_free(pools, addr);
	end(0);
	assert_true(private_bytes() > 0);
	/* It is not given out again while the graph lives, however long. */
	for (int i = 0; i < 100; i++) {
		gcp_addr other = must_alloc(pool, 3 * MIB);

		assert_int_not_equal(other, addr);
		fake.done = fake.submitted;
		must_free(pools, other);
	}
	graph_destroy(graph);
	assert_int_equal(private_bytes(), 0);
}

TEST(blocks_that_the_program_holds_outlive_the_graph)
{
	void *owner;
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	end(0);
	graph_destroy(graph);
	assert_int_equal(private_bytes(), 0);
	assert_int_equal(gcp_pools_owner(pools, addr, &owner), 0);
	assert_false(is_private(addr));
	must_be_sound(pools);
	must_free(pools, addr);
}

/* The program's own work on a block, freed within the capture or after it. */
static void released_after(bool within)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(300 * MIB);
	uint64_t work = fake_submit();

	if (within)
		must_free(pools, addr);
	end(0);
	if (!within)
		must_free(pools, addr);
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	for (int i = 0; i < 8; i++) {
		gcp_addr other = must_alloc(pool, 300 * MIB);
		if (other == addr)
			assert_true(fake_is_ordered(work));
		must_free(pools, other);
	}
}

TEST(released_memory_waits_for_a_fence)
{
	released_after(true);
	released_after(false);
}

TEST(graphs_that_come_and_go_take_no_more_memory)
{
	uint64_t used = 0;

	for (int round = 0; round < 64; round++) {
		void *graph = begin(0);

		for (int i = 0; i < 4; i++) {
			must_free(pools, capture_alloc(8 << 10));
			must_free(pools, capture_alloc(300 << 10));
			must_free(pools, capture_alloc(3 * MIB));
		}
		end(0);
		graph_destroy(graph);
		if (round == 2) /* two epochs are on their way */
			used = fake.memory_used;
	}
	assert_int_equal(fake.memory_used, used);
}

TEST(a_begin_that_fails_leaves_nothing)
{
	struct gcp_capture *capture;

	assert_int_equal(gcp_tracker_begin_prepare(tracker, &capture), 0);
	assert_true(gcp_tracker_capturing(tracker));
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(0),
			       GCP_CAPTURE_GLOBAL, 900);
	assert_false(gcp_tracker_capturing(tracker));
}

TEST(a_capture_that_cannot_be_followed_does_not_begin)
{
	struct gcp_capture *capture = NULL;

	for (unsigned at = 1; at <= 6; at++) {
		fake_fail_memory(at, false);
		assert_int_equal(gcp_tracker_begin_prepare(tracker, &capture), -ENOMEM);
		fake_fail_memory(0, false);
		assert_null(capture);
		assert_false(gcp_tracker_capturing(tracker));
	}
	must_free(pools, must_alloc(pool, 3 * MIB)); /* fences are not held */
	void *graph = begin(0);
	assert_true(is_private(capture_alloc(4096)));
	end(0);
	graph_destroy(graph);
}

/* What is freed counts from the begin on, whatever memory there is by then. */
TEST(a_begun_capture_is_in_its_shared_pool_for_sure)
{
	struct gcp_capture *capture;
	struct gcp_graph_pool_info info;
	uint64_t id;

	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	assert_int_equal(gcp_tracker_begin_prepare(tracker, &capture), 0);
	fake_fail_memory(1, true);
	cuda.streams[0] = (struct gcp_capture_state){true, false, 1, &cuda};
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(0),
			       GCP_CAPTURE_GLOBAL, 0);
	fake_fail_memory(0, false);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.captures, 1);
	assert_int_equal(info.graphs, 1);
	fake.capturing++;
	end(0);
	graph_destroy(&cuda);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
}

TEST(an_end_that_is_refused_ends_nothing)
{
	void *graph = begin(0);

	/* The wrong thread tried: CUDA goes on capturing, */
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(0), false);
	assert_true(gcp_tracker_capturing(tracker));
	cuda.state_result = 2; /* and may not say so, */
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(0), false);
	assert_true(gcp_tracker_capturing(tracker));
	end(0); /* nor when it has ended */
	assert_false(gcp_tracker_capturing(tracker));
	cuda.state_result = 0;
	graph_destroy(graph);
}

TEST(an_invalidated_capture_goes_with_its_end)
{
	void *graph = begin(0);

	capture_alloc(3 * MIB);
	cuda.streams[0].active = false;
	cuda.streams[0].invalidated = true;
	graph_destroy(graph); /* CUDA does, at the end of an invalidated capture */
	end(0);
	assert_false(gcp_tracker_capturing(tracker));
}

/* Its graph may be gone already. */
TEST(the_graph_of_an_invalidated_capture_holds_nothing)
{
	void *graph = begin(0);

	cuda.streams[0].active = false;
	cuda.streams[0].invalidated = true;
	capture_alloc(3 * MIB);
	assert_false(gcp_tracker_holds(tracker));
	graph_destroy(graph);
	end(0);
}

TEST(destroying_the_stream_abandons_the_capture)
{
	void *graph = begin(0);

	capture_alloc(3 * MIB);
	graph_destroy(graph);
	fake.capturing--;
	gcp_tracker_stream_gone(tracker, FAKE_CTX, stream_handle(0),
				gcp_tracker_moment(tracker));
	assert_false(gcp_tracker_capturing(tracker));
}

/* As soon as the real call has destroyed it, another thread may get the same handle for
 * a new stream, and capture there. */
TEST(the_late_report_of_a_stream_leaves_a_new_one_alone)
{
	void *graph = begin(0);
	uint64_t moment;

	end(0);
	graph_destroy(graph);
	moment = gcp_tracker_moment(tracker); /* the real call comes next */
	graph = begin(0);
	gcp_tracker_stream_gone(tracker, FAKE_CTX, stream_handle(0), moment);
	assert_true(gcp_tracker_capturing(tracker));
	cuda.state_result = 2; /* nor does it matter what CUDA says of it */
	gcp_tracker_stream_gone(tracker, FAKE_CTX, stream_handle(0), moment);
	assert_true(gcp_tracker_capturing(tracker));
	cuda.state_result = 0;
	end(0);
	assert_false(gcp_tracker_capturing(tracker));
	graph_destroy(graph);
}

TEST(destroying_the_context_abandons_its_captures)
{
	void *graph = begin(0);

	begin(1);
	capture_alloc(3 * MIB);
	fake.capturing -= 2;
	gcp_tracker_context_gone(tracker, FAKE_CTX);
	gcp_pool_reset(pools, FAKE_CTX);
	graph_destroy(graph);
	graph_destroy((char *)graph + 1);
	assert_false(gcp_tracker_capturing(tracker));
	fake.memory_used = 0; /* it went with the context */
}

TEST(a_graph_holds_the_pool_for_all_made_from_it)
{
	/* CUDA moves the user object along; we see one destruction only. */
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	struct gcp_graph_pool_info info;

	end(0);
	must_free(pools, addr);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 1);
	assert_int_equal(info.references, 1);
	assert_int_equal(info.graphs, 1);
	assert_int_equal(info.captures, 0);
	graph_destroy(graph);
	assert_int_equal(gcp_graph_pools_list(tracker, &info, 1), 0);
}

/* --- routing ------------------------------------------------------------------ */

static void *alloc_in_thread(void *arg)
{
	*(gcp_addr *)arg = capture_alloc(3 * MIB);
	return NULL;
}

static gcp_addr alloc_from_other_thread(void)
{
	pthread_t thread;
	gcp_addr addr;

	pthread_create(&thread, NULL, alloc_in_thread, &addr);
	pthread_join(thread, NULL);
	return addr;
}

TEST(other_threads_join_a_global_capture)
{
	void *graph = begin_with(0, GCP_CAPTURE_GLOBAL);

	assert_true(is_private(alloc_from_other_thread()));
	cuda.thread_mode = GCP_CAPTURE_RELAXED;
	assert_false(is_private(alloc_from_other_thread()));
	end(0);
	graph_destroy(graph);
}

TEST(other_threads_are_free_of_local_captures)
{
	void *graph = begin_with(0, GCP_CAPTURE_THREAD_LOCAL);

	assert_false(is_private(alloc_from_other_thread()));
	assert_true(is_private(capture_alloc(4096)));
	end(0);
	graph_destroy(graph);
}

static void *alloc_on_captured_stream(void *arg)
{
	*(gcp_addr *)arg = capture_alloc_on(stream_handle(3), 3 * MIB);
	return NULL;
}

TEST(a_thread_that_works_on_a_captured_stream_belongs_to_it)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);
	pthread_t thread;
	gcp_addr addr;

	cuda.streams[3] = cuda.streams[0]; /* joined by an event */
	pthread_create(&thread, NULL, alloc_on_captured_stream, &addr);
	pthread_join(thread, NULL);
	assert_true(is_private(addr));
	end(0);
	graph_destroy(graph);
}

TEST(it_belongs_to_no_other_capture)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);
	void *other = begin_with(1, GCP_CAPTURE_RELAXED);
	pthread_t thread;
	gcp_addr addr;

	cuda.streams[3] = cuda.streams[0]; /* joined by an event */
	pthread_create(&thread, NULL, alloc_on_captured_stream, &addr);
	pthread_join(thread, NULL);
	must_free(pools, addr);
	end(0);
	end(1);
	graph_destroy(graph);
	assert_int_equal(private_bytes(), 0);
	graph_destroy(other);
}

/* Where CUDA does not say which capture has begun, it may be any. */
TEST(a_capture_without_a_number_may_be_any)
{
	struct gcp_capture *capture;
	pthread_t thread;
	gcp_addr addr;

	assert_int_equal(gcp_tracker_begin_prepare(tracker, &capture), 0);
	cuda.state_result = 1;
	gcp_tracker_begin_done(tracker, capture, FAKE_CTX, stream_handle(0),
			       GCP_CAPTURE_RELAXED, 0);
	cuda.state_result = 0;
	fake.capturing++;
	cuda.streams[0] = (struct gcp_capture_state){true, false, 7, &cuda};
	cuda.streams[3] = cuda.streams[0]; /* joined by an event */
	pthread_create(&thread, NULL, alloc_on_captured_stream, &addr);
	pthread_join(thread, NULL);
	assert_true(is_private(addr));
	/* The wrong thread tried to end it. */
	gcp_tracker_end_done(tracker, FAKE_CTX, stream_handle(0), false);
	assert_true(gcp_tracker_capturing(tracker));
	end(0);
	assert_false(gcp_tracker_capturing(tracker));
	/* Its graph is not known, so no call can tell when it is gone. */
	gcp_tracker_destroy(tracker);
	must_free(pools, addr);
	fake_finish(pools);
	setup(NULL);
}

/* --- streams that go ---------------------------------------------------------- */

static struct gcp_stream_hint noted;

static void *alloc_as_noted(void *arg)
{
	gcp_addr addr = 0;

	assert_int_equal(
	    gcp_tracker_alloc(tracker, pool, FAKE_CTX, noted, 3 * MIB, &addr), 0);
	*(bool *)arg = is_private(addr);
	must_free(pools, addr);
	return NULL;
}

/* Another thread allocates, which gave work to stream 3 when `noted` was. */
static bool allocates_as_noted(void)
{
	pthread_t thread;
	bool is = false;

	pthread_create(&thread, NULL, alloc_as_noted, &is);
	pthread_join(thread, NULL);
	return is;
}

TEST(a_stream_about_to_be_destroyed_is_not_asked)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);

	cuda.streams[3] = cuda.streams[0]; /* joined by an event */
	noted = hint_of(stream_handle(3));
	assert_true(allocates_as_noted());
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(3));
	cuda.destroyed = 3;
	assert_true(allocates_as_noted()); /* that work was captured, it may be */
	gcp_tracker_stream_gone(tracker, FAKE_CTX, stream_handle(3),
				gcp_tracker_moment(tracker));
	assert_true(allocates_as_noted());
	noted.begun--; /* the capture has begun since */
	assert_false(allocates_as_noted());
	noted.begun++;
	noted.eager = true;
	assert_false(allocates_as_noted());
	end(0);
	graph_destroy(graph);
}

/* Its handle tells; where too many have gone, it may be one of them. */
TEST(a_stream_is_asked_though_others_have_gone)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);

	cuda.streams[3] = cuda.streams[0];
	noted = hint_of(stream_handle(3));
	for (int i = 0; i < GCP_GONE_KEPT; i++)
		gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(4));
	assert_true(allocates_as_noted());
	cuda.streams[3] = (struct gcp_capture_state){0};
	assert_false(allocates_as_noted());
	cuda.destroyed = 3;
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(4));
	assert_true(allocates_as_noted());
	end(0);
	graph_destroy(graph);
}

/* Nor about what its next work would depend on. */
TEST(a_stream_about_to_be_destroyed_proves_nothing)
{
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	wait_for(3, 0);
	must_free(pools, addr);
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(3));
	cuda.destroyed = 3;
	gcp_addr next = capture_alloc(3 * MIB);
	assert_int_not_equal(next, addr);
	must_free(pools, next);
	end(0);
	graph_destroy(graph);
}

/* One after the other, and no free of a common block closes an epoch between. */
TEST(memory_of_a_gone_graph_serves_the_next_one)
{
	gcp_addr first = 0;

	for (int i = 0; i < 4; i++) {
		void *graph = begin(0);
		gcp_addr addr = capture_alloc(64 * MIB);

		first = first ? first : addr;
		assert_int_equal(addr, first);
		must_free(pools, addr);
		end(0);
		graph_destroy(graph);
	}
	gcp_tracker_collect(tracker);
}

/* A call that may end a context, and all its streams, but does not. */
TEST(no_stream_is_asked_while_a_context_may_be_ending)
{
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);

	cuda.streams[3] = cuda.streams[0];
	noted = hint_of(stream_handle(3));
	cuda.contexts_ending++;
	cuda.destroyed = 3;
	assert_true(allocates_as_noted()); /* it may be in the capture */
	cuda.destroyed = 0;
	context_ended(FAKE_CTX, false);
	assert_true(allocates_as_noted());
	end(0);
	graph_destroy(graph);
}

TEST(no_stream_is_asked_of_a_context_that_has_gone)
{
	void *const other = (void *)0x20000;
	void *graph = begin_with(0, GCP_CAPTURE_RELAXED);
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	noted = hint_of(stream_handle(3));
	gcp_tracker_forked(tracker);
	cuda.streams[3] = cuda.streams[0];
	gcp_tracker_joined(tracker, other, stream_handle(3), NULL);
	must_free(pools, addr);
	cuda.contexts_ending++;
	cuda.destroyed = 3;
	assert_true(allocates_as_noted());
	context_ended(other, true);
	assert_true(allocates_as_noted());
	must_free(pools, capture_alloc(3 * MIB));
	end(0);
	graph_destroy(graph);
}

TEST(a_context_that_has_gone_proves_nothing)
{
	void *const other = (void *)0x20000;
	void *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	gcp_tracker_forked(tracker);
	cuda.streams[3] = cuda.streams[0];
	gcp_tracker_joined(tracker, other, stream_handle(3), NULL);
	must_free(pools, addr);
	cuda.contexts_ending++;
	cuda.destroyed = 3;
	context_ended(other, true);
	gcp_addr next = capture_alloc(3 * MIB);
	assert_int_not_equal(next, addr);
	must_free(pools, next);
	end(0);
	graph_destroy(graph);
}

/* --- several captures --------------------------------------------------------- */

TEST(no_thread_joins_a_capture_whose_end_is_under_way)
{
	void *graph = begin(0);

	gcp_tracker_end_prepare(tracker, FAKE_CTX, stream_handle(0));
	/* CUDA may have ended it by now, and its graph may be gone. */
	gcp_addr addr = alloc_from_other_thread();
	assert_false(is_private(addr));
	end(0);
	must_free(pools, addr);
	graph_destroy(graph);
}

TEST(several_captures_hold_a_block_together)
{
	void *first = begin(0), *second = begin(1);
	gcp_addr addr = capture_alloc(3 * MIB);

	end(0);
	end(1);
	must_free(pools, addr);
	graph_destroy(first);
	assert_true(private_bytes() > 0); /* the second graph may address it */
	graph_destroy(second);
	assert_int_equal(private_bytes(), 0);
}

/* Of all that the capture holds: what it shared with another one is not the
 * program's. */
TEST(a_named_pool_serves_its_capture_after_a_shared_block)
{
	void *first = begin(0), *second;
	struct gcp_graph_pool_info info[3];
	uint64_t id, bytes = 0;

	assert_int_equal(gcp_graph_pool_create(tracker, &id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, id), 0);
	second = begin(1);
	must_free(pools, capture_alloc(3 * MIB));
	end(0);
	gcp_addr addr = capture_alloc(5 * MIB);
	size_t count = gcp_graph_pools_list(tracker, info, 3);
	for (size_t i = 0; i < count; i++)
		bytes += info[i].id == id ? info[i].allocated_bytes : 0;
	assert_true(bytes >= 5 * MIB);
	end(1);
	must_free(pools, addr);
	graph_destroy(first);
	graph_destroy(second);
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
}

TEST(of_two_named_pools_a_capture_uses_its_own)
{
	uint64_t ids[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(gcp_graph_pool_create(tracker, &ids[i]), 0);
	for (int i = 0; i < 2; i++) {
		struct gcp_graph_pool_info info[3];
		void *graph;

		assert_int_equal(gcp_graph_pool_use(tracker, ids[i]), 0);
		graph = begin(0);
		gcp_addr addr = capture_alloc(5 * MIB);
		end(0);
		assert_int_equal(gcp_graph_pools_list(tracker, info, 3), 2);
		for (int k = 0; k < 2; k++) {
			bool is_own = info[k].id == ids[i];

			assert_int_equal(info[k].graphs, is_own);
			assert_true(info[k].allocated_bytes >= is_own * 5 * MIB);
			assert_true(info[k].reserved_bytes >= info[k].allocated_bytes);
		}
		must_free(pools, addr);
		graph_destroy(graph);
		gcp_tracker_collect(tracker);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(gcp_graph_pool_release(tracker, ids[i]), 0);
}

/* A huge segment is never split, so it is of no use to a block much smaller. */
TEST(a_capture_takes_over_no_huge_segment_that_it_cannot_use)
{
	const uint64_t larger = 1536 * MIB, smaller = 1100 * MIB;
	gcp_addr addr;
	void *graph;

	must_free(pools, must_alloc(pool, larger));
	fake.done = fake.submitted;
	assert_int_equal(gcp_pool_barrier(pool), 0);
	graph = begin(0);
	addr = capture_alloc(smaller);
	assert_int_equal(private_bytes(), smaller);
	end(0);
	must_free(pools, addr);
	graph_destroy(graph);
}
