/* SPDX-License-Identifier: MIT */
/*
 * test_share_own.c - a graph that shares memory is guarded until it has left its lane
 * for sure, and its lane counts each launch until that ends.
 */
#include <unistd.h>

#include "share_fake.h"
#include "cases.h"

static int begin_it(const struct graph *graph, int stream, struct gcp_launch *launch)
{
	*launch = (struct gcp_launch){.share = 0};
	return gcp_launch_begin(tracker, graph->exec, stream_handle(stream), launch);
}

/* Own memory could not be had; the next try must not go unguarded. */
TEST(without_memory_of_its_own_it_is_refused_again)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch none;
	int first, second;

	launch(b, 0);
	fake.memory_limit = fake.memory_used;
	context_of_streams = FAKE_OTHER_CTX;
	first = begin_it(a, 3, &none);
	second = begin_it(a, 3, &none);
	assert_true(first != 0);
	assert_true(second != 0 || !share_memory(a, b));
	fake.memory_limit = UINT64_MAX;
	assert_int_equal(begin_it(a, 3, &none), 0);
	assert_false(share_memory(a, b));
}

/* The same after an unknown call, whose failure is not told at all. */
TEST(without_memory_an_unknown_call_leaves_launches_guarded)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch one, two;
	int first, second;

	fake.memory_limit = fake.memory_used;
	gcp_share_all_taken(tracker);
	first = begin_it(a, 0, &one);
	second = begin_it(b, 1, &two);
	assert_true(first != 0 || second != 0 || !share_memory(a, b));
	fake.memory_limit = UINT64_MAX;
}

/* Another thread has the handle of an executable that is just being destroyed. */
TEST(a_handle_given_out_again_is_another_executable)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch launch_of_new = {.share = 0};
	struct gcp_holder *ending;
	void *exec = a->exec;
	bool again;

	for (int i = 0; i < 2; i++) {
		launch(a, 0);
		launch(b, 0);
	}
	device_catches_up();
	ending = gcp_holder_ending(tracker, exec, true);
	/* the real cuGraphExecDestroy; then another thread */
	gcp_holding_new(tracker, NULL, exec, true); /* of a graph without memory */
	again = gcp_launch_again(tracker, exec, stream_handle(0), &launch_of_new);
	gcp_holder_ended(tracker, ending, true);
	gcp_tracker_collect(tracker);
	a->exec = NULL;
	if (again && launch_of_new.share &&
	    !gcp_launch_again_ended(tracker, &launch_of_new))
		gcp_launch_end(tracker, NULL, &launch_of_new, 0);
	a->scratch = 0;
	launch(b, 0);
	device_catches_up();
	(void)gcp_share_trim(tracker, -1, 0);
	assert_int_equal(fake.memory_used, 0);
	assert_int_equal(launch_of_new.share, 0);
}

/* The executable goes while a launch of it is counted. */
TEST(an_executable_that_goes_in_its_launch_leaves_the_lane)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now = {.share = 0};

	for (int i = 0; i < 2; i++) {
		launch(a, 0);
		launch(b, 0);
	}
	device_catches_up();
	assert_true(gcp_launch_again(tracker, a->exec, stream_handle(0), &now));
	exec_destroy(a); /* cancelled in the real call; a destructor of the program */
	gcp_launch_end(tracker, NULL, &now, 1);
	gcp_tracker_collect(tracker);
	launch(b, 0);
	device_catches_up();
	(void)gcp_share_trim(tracker, -1, 0);
	assert_int_equal(fake.memory_used, 0);
}

/* What that comes to where a second stream is used. */
TEST(launches_of_the_lane_end)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct gcp_launch now = {.share = 0};

	for (int i = 0; i < 2; i++) {
		launch(a, 0);
		launch(b, 0);
	}
	device_catches_up();
	assert_true(gcp_launch_again(tracker, a->exec, stream_handle(0), &now));
	exec_destroy(a);
	gcp_launch_end(tracker, NULL, &now, 1);
	gcp_tracker_collect(tracker);
	launch(b, 0);
	fake.stuck = true;
	alarm(5);
	launch(b, 1); /* follows itself */
	alarm(0);
	fake.stuck = false;
	device_catches_up();
}

static struct gcp_launch first_of_b;

static void *takes_all(void *unused)
{
	gcp_share_all_taken(tracker);
	return unused;
}

static void *ends_the_first(void *b)
{
	gcp_sleep(200 * 1000 * 1000);
	gcp_launch_end(tracker, ((struct graph *)b)->exec, &first_of_b, 0);
	return NULL;
}

/* Another thread launches while make_own waits, without the lock. */
TEST(while_it_is_waited_for_launches_are_guarded)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	pthread_t taker, ender;
	struct gcp_launch now;

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	assert_int_equal(begin_it(b, 0, &first_of_b), 0);
	launch_real(b, 0);
	pthread_create(&taker, NULL, takes_all, NULL);
	gcp_sleep(50 * 1000 * 1000);
	launch(a, 0);
	pthread_create(&ender, NULL, ends_the_first, b);
	assert_int_equal(begin_it(b, 1, &now), 0);
	launch_real(b, 1); /* judged */
	pthread_join(ender, NULL);
	pthread_join(taker, NULL);
	gcp_launch_end(tracker, b->exec, &now, 0);
	device_catches_up();
}

/* Its launches are not seen from then on. */
static void launched_elsewhere(const struct graph *graph)
{
	context_of_streams = FAKE_OTHER_CTX;
	launch(graph, 3);
	context_of_streams = FAKE_CTX;
	device_catches_up();
}

TEST(no_other_graph_moves_to_the_lane_of_one_alone)
{
	struct graph *a = make(0, 16 * MIB), *b = make(1, 16 * MIB);
	struct graph *c = make(2, 16 * MIB);

	launched_elsewhere(a);
	launch(c, 0);
	launch(b, 1); /* a's lane is idle */
	assert_int_equal(must_stats(pools).graph_moves, 1);
	assert_false(share_memory(a, b));
	assert_false(share_memory(a, c));
}

TEST(no_later_graph_shares_the_lane_of_one_alone)
{
	struct graph *a = make(0, 16 * MIB), *b;

	launched_elsewhere(a);
	b = make(1, 16 * MIB);
	launch(b, 0);
	assert_false(share_memory(a, b));
}

/* The fences of one context say nothing of work in another, which may use the memory
 * of a capture as well. */
TEST(with_another_context_no_graph_comes_to_share)
{
	struct graph *a = make(0, 16 * MIB), *b, *c;
	struct gcp_pool *other;

	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	b = make(1, 16 * MIB);
	launch(b, 0);
	assert_false(share_memory(a, b));
	device_catches_up();
	gcp_pool_detach(pools, FAKE_OTHER_CTX);
	gcp_pool_reset(pools, FAKE_OTHER_CTX);
	c = make(2, 16 * MIB);
	assert_true(share_memory(a, c));
}

/* Memory may come to a heap with work of others on it, ordered by a barrier, and no
 * free in the heap after that: the block's own epoch alone tells. */
TEST(a_block_with_work_on_it_is_no_scratch)
{
	struct gcp_heap *heap;
	struct gcp_lane *lane;
	gcp_addr addr;

	assert_int_equal(gcp_heap_create(pool, &heap), 0);
	gcp_heap_set_reuse(heap, GCP_REUSE_FENCED, GCP_GROUP_FIRST);
	assert_int_equal(gcp_heap_alloc(heap, 16 * MIB, GCP_USE_CAPTURED, &addr), 0);
	fake_submit();
	must_free(pools, addr);
	heap->awaited_epoch = 0;
	assert_int_equal(gcp_pool_barrier(pool),
			 0); /* later work of the context waits */
	assert_int_equal(gcp_lane_create(pool, &lane), 0);
	assert_int_equal(gcp_heap_share(heap, lane), -EBUSY);
	device_catches_up();
	(void)gcp_pool_work_is_done(pool, UINT64_MAX, true);
	assert_int_equal(gcp_heap_share(heap, lane), 0);
	gcp_heap_release(heap);
	gcp_lane_destroy(lane);
}
