/* SPDX-License-Identifier: MIT */
/*
 * test_rest.c - ends of a capture that rest: what is freed later is used again, and
 * work that comes there after all follows what was there before.
 */
#include "capture_fake.h"

#undef TEST
#define TEST(name) CASE(name, setup_begun, teardown_end)

static int node_follows(void *graph, void *node, void **nodes, size_t count)
{
	assert_non_null(graph);
	memcpy(((struct node *)node)->dependencies, nodes, count * sizeof(*nodes));
	return 0;
}

static int setup_follow(void **state)
{
	setup(state);
	tracker->driver.node_follows = node_follows;
	return 0;
}

/* Of stream 0, from the beginning of each test to its end. */
static void *graph;

static int setup_begun(void **state)
{
	setup_follow(state);
	graph = begin(0);
	return 0;
}

static int teardown_end(void **state)
{
	end_and_destroy(graph);
	return teardown(state);
}

/* A stream waits for an event that was recorded before. */
static int wait_event(int to, void *event, struct node *const *ends)
{
	size_t at = 0;

	cuda.streams[to] = (struct gcp_capture_state){true, false, cuda.last_id, NULL};
	while (cuda.ends[to][at])
		at++;
	for (size_t i = 0; i < 4 && ends[i]; i++)
		cuda.ends[to][at++] = ends[i];
	return gcp_tracker_joined(tracker, stream_handle(to), event);
}

static bool depends_on(int stream, const struct node *node)
{
	for (int i = 0; i < 4; i++)
		if (cuda.ends[stream][i] == node)
			return true;
	return false;
}

static struct node *last_node(void)
{
	return &cuda.nodes[cuda.node_count - 1];
}

static struct node *const nothing[4];

static int work_captured(int stream)
{
	return gcp_tracker_work_captured(tracker, stream_handle(stream));
}

#define EVENT ((void *)0x7777)

/* A block that captured work on stream 0 has used, and that is free. */
static gcp_addr used_and_freed(void)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	must_free(addr);
	return addr;
}

/* The same, and it was given again, at `given`: the work that used it before. */
static gcp_addr given;

static struct node *given_again(void)
{
	given = used_and_freed();
	assert_int_equal(capture_alloc(3 * MIB), given);
	return last_node();
}

/* Each time: what it might use was given again meanwhile. */
TEST(each_stream_behind_an_old_event_follows)
{
	event_record(0, EVENT);
	gcp_addr addr = used_and_freed();
	for (int i = 1; i < 4; i++) {
		struct node *user = last_node();

		assert_int_equal(capture_alloc(3 * MIB), addr);
		OK(wait_event(i, EVENT, nothing));
		assert_true(depends_on(i, user));
		assert_int_equal(cuda.followed, i);
		kernel(i);
		wait_for(0, i);
		kernel(0);
		must_free(addr);
	}
}

/* Stream 1 goes on, maybe on the same block, before 0 waits for its event: that stood
 * for less than all its work. */
TEST(a_stream_that_went_on_holds_back_until_it_is_joined)
{
	struct node *at[4] = {NULL};

	kernel(0);
	wait_for(1, 0);
	kernel(1);
	event_record(1, EVENT);
	at[0] = last_node();
	kernel(1);
	wait_event(0, EVENT, at);
	gcp_addr addr = used_and_freed();
	assert_false(is_given_again(addr, 3 * MIB));
	OK(work_captured(1));
	kernel(1);
	wait_for(0, 1);
	assert_true(is_given_again(addr, 3 * MIB));
}

static void joined_with_one_at_rest(void)
{
	kernel(0);
	wait_for(1, 0);
	kernel(1);
	wait_for(0, 1);
}

TEST(work_on_a_stream_at_rest_follows_what_was_freed)
{
	joined_with_one_at_rest();
	struct node *user = given_again();

	OK(work_captured(1));
	assert_true(depends_on(1, user));
	kernel(1);
	/* It rests again where it is joined again. */
	wait_for(0, 1);
	gcp_addr other = used_and_freed();
	assert_true(is_given_again(other, 3 * MIB));
}

TEST(a_stream_that_waits_anew_follows_nothing)
{
	joined_with_one_at_rest();
	given_again();
	wait_for(1, 0);
	OK(work_captured(1));
	assert_int_equal(cuda.followed, 0);
}

/* Plain cudaFree has waited for what was there before it, and not for what another
 * stream is given after it: the stream of the free goes on beside that. The event is
 * recorded behind the free, and in front of it. */
TEST(a_stream_goes_on_beside_work_that_was_forked_behind_a_free)
{
	for (int other = 1; other < 3; other++) {
		gcp_addr addr = capture_alloc(3 * MIB);

		kernel(0);
		event_record(0, EVENT);
		must_free(addr);
		other == 1 ? wait_for(1, 0) : (void)wait_event(2, EVENT, cuda.ends[0]);
		kernel(other);
		assert_int_equal(capture_alloc(3 * MIB), addr);
		OK(work_captured(0));
		assert_int_equal(cuda.followed, 0);
		wait_for(0, other);
	}
}

/* Also the second time, and the third: until it is in order. */
TEST(what_cannot_be_put_in_order_is_refused)
{
	joined_with_one_at_rest();
	struct node *user = given_again();

	cuda.follow_result = GCP_CUDA_OUT_OF_MEMORY;
	for (int i = 0; i < 3; i++)
		assert_int_equal(work_captured(1), GCP_CUDA_OUT_OF_MEMORY);
	cuda.follow_result = 0;
	OK(work_captured(1));
	assert_true(depends_on(1, user));
	OK(work_captured(1));
	assert_int_equal(cuda.followed, 1);
}

TEST(what_an_edit_could_not_put_in_order_follows_later)
{
	joined_with_one_at_rest();
	struct node *user = given_again();

	cuda.follow_result = GCP_CUDA_OUT_OF_MEMORY;
	gcp_tracker_order_unknown(tracker, false);
	cuda.follow_result = 0;
	OK(work_captured(1));
	assert_true(depends_on(1, user));
}

static void *edit(void *unused)
{
	gcp_tracker_order_unknown(tracker, false);
	return unused;
}

/* By its handle that thread would reach a stream of its own. */
TEST(no_other_thread_puts_a_default_stream_in_order)
{

	cuda.owner = pthread_self();
	cuda.has_owner = true;
	event_record(0, EVENT);
	struct node *user = given_again();

	cuda.follow_result = GCP_CUDA_OUT_OF_MEMORY;
	assert_int_equal(wait_event(PER_THREAD, EVENT, nothing),
			 GCP_CUDA_OUT_OF_MEMORY);
	cuda.follow_result = 0;
	fake_elsewhere(edit, NULL);
	assert_int_equal(cuda.asked_elsewhere, 0);
	OK(work_captured(PER_THREAD));
	assert_true(depends_on(PER_THREAD, user));
}

/* Fork and join, and again: nothing is freed, so there is nothing to prove. */
TEST(of_known_streams_nothing_is_asked)
{
	capture_alloc(3 * MIB);
	joined_with_one_at_rest();
	tracker->driver.capture_state = NULL;
	tracker->driver.stream_ends = NULL;
	joined_with_one_at_rest();
	OK(work_captured(1));
	tracker->driver.capture_state = state_of;
	tracker->driver.stream_ends = stream_ends;
	given_again(); /* the stream that was joined rests */
}

/* The host's memory is out just when a stream joins that would have to follow. */
TEST(a_stream_that_cannot_be_noted_is_refused)
{
	int result;

	event_record(0, EVENT);
	struct node *user = given_again();

	fake_fail_memory(1, false);
	result = wait_event(1, EVENT, nothing);
	assert_true(fake_memory_failed());
	assert_true(result == GCP_CUDA_OUT_OF_MEMORY || depends_on(1, user));
	fake_fail_memory(1, false);
	result = work_captured(1);
	assert_true(result == GCP_CUDA_OUT_OF_MEMORY || depends_on(1, user));
	fake_fail_memory(0, false);
	OK(work_captured(1));
	assert_true(depends_on(1, user));
}

/* The program asks for the graph, and then adds to it what depends on nothing. */
TEST(a_node_of_the_program_follows_what_was_given_again)
{
	gcp_tracker_graph_given(tracker, stream_handle(0), false);
	struct node *user = given_again(), *node = user + 1;

	cuda.node_count++;
	OK(gcp_tracker_node_added(tracker, graph, node));
	assert_ptr_equal(node->dependencies[0], user);
	must_free(given);
	assert_false(is_given_again(given, 3 * MIB)); /* the node may use it */
}

/* Another stream is made to follow it after the free. */
TEST(what_is_given_again_comes_behind_a_node_of_the_program)
{
	struct node *node = &cuda.nodes[NODES - 1];
	gcp_addr addr;

	kernel(0);
	wait_for(1, 0);
	addr = capture_alloc(3 * MIB);
	node->dependencies[0] = last_node();
	OK(gcp_tracker_node_added(tracker, graph, node));
	must_free(addr);
	kernel(1);
	gcp_tracker_graph_given(tracker, stream_handle(1), false);
	cuda.ends[1][1] = node;
	assert_true(is_given_again(addr, 3 * MIB));
	OK(work_captured(0));
	assert_true(depends_on(0, node));
}

TEST(a_stream_that_is_turned_back_follows_what_was_given_again)
{
	gcp_tracker_graph_given(tracker, stream_handle(0), false);
	struct node *user = given_again();

	gcp_tracker_graph_given(tracker, stream_handle(0), true);
	cuda.ends[0][0] = NULL;
	OK(work_captured(0));
	assert_true(depends_on(0, user));
}

/* And what it was before follows nothing any more. */
TEST(a_stream_at_rest_that_is_turned_back_follows_once)
{
	joined_with_one_at_rest();
	struct node *user = given_again();

	gcp_tracker_graph_given(tracker, stream_handle(1), true);
	gcp_tracker_order_unknown(tracker, false);
	assert_true(depends_on(1, user));
	assert_int_equal(cuda.followed, 1);
}

static void stream_goes(void)
{
	gcp_tracker_stream_ending(tracker, FAKE_CTX, stream_handle(1));
}

static void context_goes(void)
{
	gcp_tracker_context_ending(tracker);
	gcp_tracker_context_gone(tracker, NULL);
}

/* A new stream has the handle of one that is gone, and has met none of the nodes that
 * that one had met. */
static void a_new_stream_follows_after(void (*goes)(void))
{
	kernel(0);
	event_record(0, EVENT);
	struct node *const before[4] = {last_node()};
	gcp_addr addr = used_and_freed();
	joined_with_one_at_rest();
	assert_int_equal(capture_alloc(3 * MIB), addr);
	goes();
	memset(cuda.ends[1], 0, sizeof(cuda.ends[1]));
	OK(wait_event(1, EVENT, before));
	assert_int_equal(cuda.followed, 1);
}

TEST(a_stream_with_the_handle_of_one_that_is_gone_follows)
{
	a_new_stream_follows_after(stream_goes);
}

TEST(a_stream_of_a_context_that_is_gone_is_another_one_later)
{
	a_new_stream_follows_after(context_goes);
}

static void *wait_in_own_default_stream(void *event)
{
	struct node *const before[4] = {&cuda.nodes[0]};

	cuda.owner = pthread_self();
	memset(cuda.ends[PER_THREAD], 0, sizeof(cuda.ends[PER_THREAD]));
	OK(wait_event(PER_THREAD, event, before));
	return NULL;
}

/* By the handle they are one. */
CASE(a_default_stream_of_another_thread_follows, setup_follow, teardown)
{

	cuda.owner = pthread_self();
	cuda.has_owner = true;
	graph = begin(PER_THREAD);
	kernel(PER_THREAD);
	event_record(PER_THREAD, EVENT);
	gcp_addr addr = capture_alloc(3 * MIB);
	kernel(PER_THREAD);
	must_free(addr);
	wait_for(1, PER_THREAD);
	kernel(1);
	wait_for(PER_THREAD, 1);
	assert_int_equal(capture_alloc(3 * MIB), addr);
	fake_elsewhere(wait_in_own_default_stream, EVENT);
	assert_int_equal(cuda.followed, 1);
	cuda.owner = pthread_self();
	end(PER_THREAD);
	graph_destroy(graph);
}

TEST(a_node_that_is_destroyed_is_followed_no_more)
{
	joined_with_one_at_rest();
	struct node *user = given_again();

	gcp_tracker_node_gone(tracker, user);
	gcp_tracker_order_unknown(tracker, false);
	assert_false(depends_on(1, user));
}
