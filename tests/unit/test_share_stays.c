/* SPDX-License-Identifier: MIT */
/*
 * test_share_stays.c - memory that graphs share is there while a call looks at it: what
 * was given back comes again, and meanwhile it is mapped nowhere else.
 */
#include <unistd.h>

#include "../../capture/share.h"
#include "share_fake.h"
#include "cases.h"

/* With its graph, in the lane of those that were there before. */
static struct graph *make_kept(int number)
{
	struct graph *graph = capture_with(number, 16 * MIB, 0);

	device_catches_up();
	instantiate(graph);
	gcp_shares_prepare(tracker);
	return graph;
}

static struct gcp_holder *looked_at(const struct graph *graph)
{
	struct gcp_holder *holding;

	assert_int_equal(gcp_holding_begin(tracker, graph->graph, false, &holding), 0);
	return holding;
}

static struct gcp_holder *stays(const struct graph *graph)
{
	struct gcp_holder *holding = looked_at(graph);
	bool any;

	assert_int_equal(gcp_share_stays(tracker, holding, &any), 0);
	assert_true(any);
	return holding;
}

static void over(struct gcp_holder *holding)
{
	gcp_share_may_move(tracker, holding);
	gcp_holding_end(tracker, holding);
}

/* Its addresses, and where they are mapped to. */
struct place {
	const struct graph *graph;
	uint64_t pages[PAGES];
};

/* All of them are. */
static struct place place_of(const struct graph *graph)
{
	struct place place = {.graph = graph};

	pages_read(graph, place.pages);
	return place;
}

static bool is_there(const struct place *place)
{
	struct place now = place_of(place->graph);

	return memcmp(now.pages, place->pages, sizeof(now.pages)) == 0;
}

TEST(what_was_given_back_comes_again)
{
	struct graph *a = make_kept(0), *b = make_kept(1);
	struct gcp_holder *holding;
	struct place place;

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
	holding = stays(a);
	place = place_of(a);
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 0);
	assert_true(is_there(&place));
	over(holding);
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
	launch(a, 0);
	launch(b, 0);
}

TEST(without_memory_nothing_stays)
{
	struct graph *a = make_kept(0);
	struct gcp_holder *holding;
	bool any = true;

	launch(a, 0);
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
	holding = looked_at(a);
	fake.memory_limit = fake.memory_used;
	assert_int_equal(gcp_share_stays(tracker, holding, &any),
			 GCP_CUDA_OUT_OF_MEMORY);
	assert_false(any);
	gcp_holding_end(tracker, holding);
	fake.memory_limit = UINT64_MAX;
	launch(a, 0);
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
}

/* Nothing shared is in it: the refusal stands. */
TEST(a_graph_in_no_lane_is_there)
{
	struct graph *a = capture_with(0, 16 * MIB, 0);
	struct gcp_holder *holding;
	bool any = true;

	device_catches_up();
	holding = looked_at(a);
	assert_int_equal(gcp_share_stays(tracker, holding, &any), 0);
	assert_false(any);
	assert_int_equal(gcp_share_stays(tracker, NULL, &any), 0);
	gcp_holding_end(tracker, holding);
	instantiate(a);
	launch(a, 0); /* nothing keeps it out of a lane */
	device_catches_up();
	assert_int_equal(gcp_share_trim(tracker, -1, 0), 16 * MIB);
}

/* It would go to another lane, where it need not wait. */
TEST(a_launch_leaves_it_where_it_is)
{
	struct graph *a = make_kept(0), *b = make_kept(1);
	struct gcp_holder *holding;
	struct place place;

	launch(a, 0);
	launch(b, 0);
	assert_true(share_memory(a, b));
	device_catches_up();
	launch(b, 1);
	place = place_of(a);
	holding = stays(a);
	launch(a, 0);
	assert_true(is_there(&place));
	assert_int_equal(waits + waits_of_all, 1);
	over(holding);
}

/* It would leave the lane to the one that is launched beside itself. */
TEST(a_launch_of_another_graph_leaves_it_where_it_is)
{
	struct graph *a = make_kept(0), *b = make_kept(1);
	struct gcp_holder *holding;
	struct place place;

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	launch(b, 1);
	assert_int_equal(instantiate_to(b, exec_handle(b, 1), true), 0);
	place = place_of(a);
	holding = stays(a);
	launch(b, 0);
	assert_true(is_there(&place));
	over(holding);
	holder_destroy(exec_handle(b, 0), true);
}

TEST(in_no_lane_it_enters_none)
{
	struct graph *b = capture_with(0, 16 * MIB, 0), *c = make_kept(1);
	struct gcp_holder *both;
	struct place place;
	bool any;

	(void)make(2, 16 * MIB);
	instantiate(b);
	both = looked_at(b);
	gcp_holding_add(tracker, both, c->graph, false); /* as a child */
	both = looked_at(c);
	assert_int_equal(gcp_share_stays(tracker, both, &any), 0);
	assert_true(any); /* of one of the two */
	place = place_of(b);
	device_catches_up();
	gcp_shares_prepare(tracker);
	assert_true(is_there(&place));
	over(both);
}

static struct graph *wanted;
static _Atomic bool owns;

static void *take(void *unused)
{
	struct gcp_holder *holding = looked_at(wanted);

	assert_int_equal(gcp_share_taken(tracker, holding), 0);
	gcp_holding_end(tracker, holding);
	atomic_store(&owns, true);
	return unused;
}

/* The others of the lane leave it then. */
TEST(it_gets_memory_of_its_own_where_it_is)
{
	struct graph *a = make_kept(0), *b = make_kept(1);
	struct gcp_holder *holding;
	struct place place;

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	place = place_of(a);
	holding = stays(a);
	wanted = a;
	take(NULL);
	assert_true(is_there(&place));
	assert_false(share_memory(a, b));
	over(holding);
}

/* Where they cannot, because they run, it has to, and is waited for. */
TEST(memory_of_its_own_waits_for_the_call)
{
	struct graph *a = make_kept(0), *b = make_kept(1);
	struct gcp_holder *holding;
	struct place place;
	pthread_t thread;

	launch(a, 0);
	launch(b, 0);
	device_catches_up();
	launch(b, 1);
	place = place_of(a);
	holding = stays(a);
	wanted = a;
	atomic_store(&owns, false);
	assert_int_equal(pthread_create(&thread, NULL, take, NULL), 0);
	usleep(20000);
	assert_false(atomic_load(&owns));
	assert_true(is_there(&place));
	over(holding);
	pthread_join(thread, NULL);
	assert_false(share_memory(a, b));
}
