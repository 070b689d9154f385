/* SPDX-License-Identifier: MIT */
/*
 * test_full_queue.c - more epochs wait for their fences than the queue holds: nothing
 * waits for that, and no wait or barrier reaches later work.
 */
#include "../../pool/cache/cache.h"
#include "waits.h"
#include "cases.h"

/* Nor when fences are all under way. */
TEST(a_free_makes_room_in_a_full_queue)
{
	enum { COUNT = GCP_FENCE_QUEUE + 40 };
	/* Beside the heads of segments. */
	open_of((COUNT + 1 + !vmm * COUNT / 8) * 2 * MIB);
	static gcp_addr addrs[4 * COUNT];
	int count = 0;

	while (count < 4 * COUNT && gcp_pool_alloc(pool, 2 * MIB, &addrs[count]) == 0)
		count++;
	assert_true(count >= COUNT);
	for (int i = 0; i < COUNT; i++) {
		fake_submit();
		must_free(addrs[i]);
	}
	uint64_t before = fake.submitted, later = stand();
	for (int i = 0; i < COUNT; i++)
		(void)must_alloc(pool, 2 * MIB);
	assert_true(fake.done >= before || fake.barrier >= before);
	assert_false(fake_is_ordered(later));
}

/* The end of a capture behind a full queue of what frees have closed. */
TEST(a_barrier_behind_a_full_queue_does_not_stop_the_host)
{
	open_of(100 * MIB);
	for (int i = 0; i < GCP_FENCE_QUEUE; i++) {
		(void)fake_submit();
		assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	}
	uint64_t later = stand();
	assert_int_equal(gcp_pool_barrier(pool), 0);
	assert_true(fake.done < later);
	assert_true(fake_is_ordered(later));
}

/* Before memory is tight. */
TEST_BOTH(a_free_behind_a_full_queue_is_waited_for)
{
	open_of(1000 * MIB);
	gcp_addr addr = must_alloc(pool, 40 * MIB), other = must_alloc(pool, 560 * MIB);

	assert_false(gcp_pool_is_tight(pool));
	fake.stuck = true; /* ends only when it is waited for */
	(void)fake_submit();
	must_free(other);
	for (int i = 0; i < GCP_FENCE_QUEUE; i++)
		assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	must_free(addr);
	uint64_t later = stand();
	(void)must_alloc(pool, 970 * MIB);
	assert_true(fake.done < later);
}

/* A context that joins has to stand behind what the latest barrier waits for, also
 * where that epoch stood at an odd place of a full queue. */
static int joins_behind(void *ctx, void *fence)
{
	struct gcp_driver driver = fake_driver();

	return driver.fence_order(fence, false);
}

TEST(a_full_queue_keeps_what_a_barrier_stands_behind)
{
	for (int place = 100; place < 102; place++) {
		uint64_t work = 0, epoch = 0;

		if (place > 100) {
			fake_close(state);
			ordinary(state);
		}
		open_of(100 * MIB);
		fake.stuck = true;
		for (int i = 0; i < GCP_FENCE_QUEUE; i++) {
			uint64_t now = fake_submit();

			if (i == place) {
				work = now;
				epoch = gcp_timeline_stamp(pool);
			}
			assert_int_equal(
			    gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
		}
		assert_int_equal(gcp_timeline_make_ready(pool, epoch), 0);
		assert_int_equal(fake.barrier, work);
		for (int i = 0; i < GCP_FENCE_QUEUE; i++)
			assert_int_equal(
			    gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
		fake.barrier = 0;
		assert_int_equal(gcp_timeline_join(pool, FAKE_OTHER_CTX, joins_behind),
				 0);
		assert_int_equal(fake.barrier, work);
	}
}

/* --- a search that is under way ------------------------------------------------- */

static struct {
	int count;
	int (*wait)(void *fence);
} closes;

/* What other threads close meanwhile. */
static int wait_beside_closes(void *fence)
{
	for (; closes.count > 0; closes.count--) {
		(void)fake_submit();
		assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	}
	return closes.wait(fence);
}

/* It waits for all that was freed before it began, one after the other. */
TEST(what_was_freed_before_a_search_keeps_its_fence)
{
	for (int count = 500; count < 1200; count += 100) {
		if (count > 500) {
			fake_close(state);
			ordinary(state);
		}
		open_of(100 * MIB);
		gcp_addr first = must_alloc(pool, 20 * MIB),
			 second = must_alloc(pool, 64 * MIB);

		closes.count = count;
		closes.wait = pools->driver.fence_wait;
		pools->driver.fence_wait = wait_beside_closes;
		fake.stuck = true;
		(void)fake_submit();
		must_free(first);
		(void)fake_submit();
		must_free(second);
		(void)must_alloc(pool, 70 * MIB);
		assert_int_equal(closes.count, 0);
	}
}

/* Where searches are as many as epochs there is room all the same. */
TEST(searches_leave_room_in_a_full_queue)
{
	open_of(100 * MIB);
	(void)stand();
	for (int i = 0; i < 3 * GCP_FENCE_QUEUE; i++) {
		uint64_t epoch = gcp_timeline_stamp(pool);

		atomic_fetch_add(&pools->searches, 1);
		assert_int_equal(gcp_timeline_close(pool, epoch), 0);
		assert_true(gcp_timeline_stamp(pool) > epoch);
	}
}
