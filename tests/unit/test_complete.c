/* SPDX-License-Identifier: MIT */
/*
 * test_complete.c - work that has to be done, not only ordered: before other
 * processes and devices may touch memory, and at the end of a capture. And a thread
 * that waits for that holds no other thread back.
 */
#include "../../pool/timeline/timeline.h"
#include "capture_fake.h"

/* A block of a named graph pool that was freed while `*ret_work` ran on it, and that a
 * second capture was then given. */
static gcp_addr recycled(uint64_t *ret_work, void *ret_graphs[2], uint64_t *ret_id)
{
	OK(gcp_graph_pool_create(tracker, ret_id));
	OK(gcp_graph_pool_use(tracker, *ret_id));
	ret_graphs[0] = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	end(0);
	*ret_work = fake_submit();
	must_free(addr);
	ret_graphs[1] = begin(0);
	assert_int_equal(capture_alloc(3 * MIB), addr);
	end(0);
	gcp_graph_pool_use(tracker, 0);
	return addr;
}

static void graphs_destroy(void *graphs[2], uint64_t id)
{
	graph_destroy(graphs[0]);
	graph_destroy(graphs[1]);
	OK(gcp_graph_pool_release(tracker, id));
	gcp_tracker_collect(tracker);
}

TEST(a_block_that_outlived_its_graphs_is_exported_when_done)
{
	uint64_t work, id;
	void *graphs[2];
	gcp_addr addr = recycled(&work, graphs, &id);

	assert_true(fake_is_ordered(work));
	assert_true(fake.done < work);
	graphs_destroy(graphs, id);
	assert_false(is_private(addr));
	OK(gcp_pools_complete(pools, addr));
	assert_true(fake.done >= work);
	must_free(addr);
}

/* Network cards and the like write into memory whatever streams wait for. */
TEST(what_a_graph_recycled_is_done_where_others_write)
{
	uint64_t work, id;
	void *graphs[2];

	fake.third_party = true;
	gcp_addr addr = recycled(&work, graphs, &id);
	assert_true(fake.done >= work);
	graphs_destroy(graphs, id);
	must_free(addr);
}

/* The youngest fence of several is waited for, not the oldest. */
CASE(what_is_exported_is_done_behind_the_latest_free, fake_setup, fake_close)
{
	struct gcp_config config;
	gcp_addr older, newer;

	gcp_config_default(&config);
	config.window_bytes = 0; /* reuse behind a barrier at once */
	config.epoch_blocks = 1;
	config.thread_cache_bytes = 0;
	fake_open(&config);
	older = must_alloc(pool, 20 * MIB);
	newer = must_alloc(pool, 40 * MIB);
	fake_submit();
	must_free(older);
	uint64_t work = fake_submit();
	must_free(newer);
	assert_int_equal(must_alloc(pool, 40 * MIB), newer);
	assert_true(fake.done < work - 1);
	OK(gcp_pools_complete(pools, newer));
	assert_true(fake.done >= work);
	must_free(newer);
}

static struct {
	int (*wait)(void *fence, bool own);
	uint64_t epoch;
	int result; /* of the thread that wants the epoch meanwhile */
	int waits;
} waiter;

static int waiting(void *fence, bool own)
{
	waiter.waits++;
	waiter.result = gcp_timeline_make_ready(pool, waiter.epoch);
	return waiter.wait(fence, own);
}

/* A trim waits for a kernel that waits for what another thread launches after its
 * next allocation: that must not be held back behind the kernel. */
CASE(a_wait_for_work_holds_no_thread_back, fake_setup, fake_close)
{
	struct gcp_driver driver = fake_driver();

	waiter.wait = driver.fence_wait;
	driver.fence_wait = waiting;
	fake_open_over(NULL, &driver);
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	fake_submit();
	waiter.epoch = gcp_timeline_stamp(pool);
	must_free(addr);
	assert_true(gcp_pools_trim(pools, 0, 0, true) > 0);
	assert_int_equal(waiter.waits, 1);
	assert_int_equal(waiter.result, -EBUSY);
	assert_int_equal(fake.orders, 0);
}

static struct {
	int (*wait)(void *fence, bool own);
	int error; /* of each wait; 0: none */
} refusing;

static int wait_or_refuse(void *fence, bool own)
{
	return refusing.error ? refusing.error : refusing.wait(fence, own);
}

/* An error of the device, or of a wait alone: nothing is known of the work. */
CASE(a_wait_that_fails_completes_nothing, fake_setup, fake_close)
{
	struct gcp_driver driver = fake_driver();

	fake.stuck = true;
	refusing.wait = driver.fence_wait;
	refusing.error = 719;
	driver.fence_wait = wait_or_refuse;
	fake_open_over(NULL, &driver);
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit(), epoch = gcp_timeline_stamp(pool);
	must_free(addr);
	assert_int_equal(gcp_timeline_complete(pool, epoch, false), 719);
	assert_false(gcp_timeline_is_completed(&pool->timeline, epoch));
	assert_true(work > fake.done);
	refusing.error = 0;
	OK(gcp_timeline_complete(pool, epoch, false));
	assert_true(gcp_timeline_is_completed(&pool->timeline, epoch));
	assert_true(work <= fake.done);
}
