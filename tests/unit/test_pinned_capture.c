/* SPDX-License-Identifier: MIT */
/*
 * test_pinned_capture.c - how long a graph's pinned memory stays.
 */
#include "../../pool/pinned/pinned_types.h"
#include "capture_fake.h"
#include "fake_pinned.h"
#include "cases.h"

static void *capture_take(uint64_t bytes)
{
	void *p = NULL;

	assert_int_equal(gcp_tracker_host_alloc(tracker, pool, FAKE_CTX, hint_of(NULL),
						bytes, 0, &p),
			 0);
	return p;
}

static void *take(uint64_t bytes)
{
	void *p = NULL;

	assert_int_equal(gcp_pinned_alloc(pool, bytes, 0, NULL, &p), 0);
	return p;
}

static void give(void *p)
{
	assert_int_equal(gcp_pinned_free(pools, p), 0);
}

static uint64_t kept_bytes(void)
{
	struct gcp_pinned_stats stats;

	gcp_tracker_collect(tracker);
	assert_int_equal(gcp_pinned_stats(pools, &stats), 0);
	return stats.private_bytes.current;
}

/* The copy that was captured from it runs at every replay. */
TEST(a_block_is_never_given_out_twice_in_a_capture)
{
	void *graph = begin(0), *p, *q;

	p = capture_take(MIB);
	give(p);
	q = capture_take(MIB);
	assert_ptr_not_equal(p, q);
	give(q);
	assert_int_equal(kept_bytes(), 2 * MIB);
	end_and_destroy(graph);
	assert_int_equal(kept_bytes(), 0);
}

TEST(it_is_not_given_out_while_the_graph_lives)
{
	void *graph = begin(0), *p = capture_take(MIB);

	give(p);
	end(0);
	for (int i = 0; i < 20; i++) {
		void *other = take(MIB);

		assert_ptr_not_equal(other, p);
		fake.done = fake.submitted;
		give(other);
	}
	/* Nor another capture. */
	void *second = begin(1), *q = capture_take(MIB);
	assert_ptr_not_equal(q, p);
	give(q);
	end(1);
	graph_destroy(second);
	graph_destroy(graph);
	assert_int_equal(kept_bytes(), 0);
}

TEST(after_the_graph_it_waits_for_a_fence)
{
	void *graph = begin(0), *p = capture_take(MIB), *q;

	fake_submit(); /* the program's own work on it */
	give(p);
	end_and_destroy(graph);
	gcp_tracker_collect(tracker);
	q = take(MIB);
	assert_ptr_not_equal(q, p);
	fake.done = fake.submitted;
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
}

TEST(a_block_that_is_held_outlives_the_graph)
{
	void *graph = begin(0), *p = capture_take(MIB);

	end_and_destroy(graph);
	assert_int_equal(kept_bytes(), 0);
	memset(p, 1, MIB);
	must_be_sound(pools);
	give(p);
	assert_ptr_equal(take(MIB), p);
	give(p);
}

TEST(a_common_block_freed_in_a_capture_waits_for_its_end)
{
	void *p = take(MIB), *graph = begin(0), *q;

	give(p);
	q = capture_take(MIB);
	assert_ptr_not_equal(q, p);
	assert_int_equal(fake_pinned.records, 0);
	end(0);
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
}

TEST(a_context_that_is_gone_takes_it_along)
{
	void *graph = begin(0), *p = capture_take(MIB), *q = capture_take(MIB);

	give(p);
	end(0);
	gcp_tracker_context_gone(tracker, FAKE_CTX);
	gcp_pool_reset(pools, FAKE_CTX);
	assert_int_equal(kept_bytes(), 0);
	assert_int_equal(gcp_pinned_free(pools, q), -ENOENT);
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	must_be_sound(pools);
}
