/* SPDX-License-Identifier: MIT */
/*
 * test_many_events.c - what a fork and a join cost while many events of the capture
 * live: how many of these are looked at.
 */
#include "../../capture/capture_types.h"
#include "../../pool/pool_types.h"
#include "capture_fake.h"
#include "watched_pages.h"
#include "cases.h"

enum { MANY = WATCHED_MAX - 1, LOOKS_MAX = 100 };

static void *page_of_its_own(size_t count, size_t bytes)
{
	return count * bytes == sizeof(struct gcp_open_end) ? watched_page() : NULL;
}

static void *event_handle(int i)
{
	return (void *)(uintptr_t)(0x10000 + i);
}

/* The block may be used again as soon as stream 1 has waited for stream 0. */
static gcp_addr block_free_behind_a_join(int events)
{
	gcp_addr addr = capture_alloc(3 * MIB);

	kernel(0);
	wait_for(1, 0);
	kernel(1);
	wait_for(0, 1);
	must_free(pools, addr);
	watched.count = 0;
	fake_calloc = page_of_its_own;
	for (int i = 0; i < events; i++)
		event_record(0, event_handle(i));
	fake_calloc = NULL;
	assert_int_equal(watched.count, events);
	return addr;
}

static void few_are_looked_at(int events)
{
	void *graph = begin(0);
	gcp_addr addr = block_free_behind_a_join(events), again;

	watch_begin();
	event_record(0, event_handle(events / 2));
	event_gone(event_handle(events / 3));
	wait_for(1, 0);
	again = capture_alloc(3 * MIB);
	watch_end();
	assert_int_equal(again, addr);
	assert_in_range(watched.looks, 2, LOOKS_MAX);
	end(0);
	graph_destroy(graph);
}

TEST(a_join_looks_at_few_of_many_events)
{
	few_are_looked_at(1000);
	few_are_looked_at(MANY);
}

/* Where events and joined streams need no proof. */
TEST(a_join_looks_at_few_of_many_events_at_rest)
{
	tracker->driver.stream_follow = stream_follow;
	a_join_looks_at_few_of_many_events(state);
}
