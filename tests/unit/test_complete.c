/*
 * test_complete.c - work that has to be done, not only ordered: before other
 * processes and devices may touch memory, and at the end of a capture. And who waits
 * for that holds nobody else back.
 */
#include "../../pool/types.h"
#include "capture_fake.h"

/* A block of a named graph pool that was freed while `*ret_work` ran on it, and that a
 * second capture was then given. */
static gcp_addr recycled(uint64_t *ret_work, void *ret_graphs[2], uint64_t *ret_id)
{
	assert_int_equal(gcp_graph_pool_create(tracker, ret_id), 0);
	assert_int_equal(gcp_graph_pool_use(tracker, *ret_id), 0);
	ret_graphs[0] = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB);
	end(0);
	*ret_work = fake_submit();
	must_free(pools, addr);
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
	assert_int_equal(gcp_graph_pool_release(tracker, id), 0);
	gcp_tracker_collect(tracker);
}

static void a_block_that_outlived_its_graphs_is_exported_when_done(void **state)
{
	uint64_t work, id;
	void *graphs[2];
	gcp_addr addr = recycled(&work, graphs, &id);

	(void)state;
	assert_true(fake_is_ordered(work));
	assert_true(fake.done < work);
	graphs_destroy(graphs, id);
	assert_false(is_private(addr));
	assert_int_equal(gcp_pools_complete(pools, addr), 0);
	assert_true(fake.done >= work);
	must_free(pools, addr);
}

/* The page of the graph pool's latest free cannot be closed then. */
static void it_is_exported_while_another_capture_is_under_way_too(void **state)
{
	void *other, *graph = begin(0);
	gcp_addr addr = capture_alloc(3 * MIB), beside = capture_alloc(3 * MIB);

	(void)state;
	end(0);
	fake_submit();
	must_free(pools, beside);
	other = begin(1);
	graph_destroy(graph);
	gcp_tracker_collect(tracker);
	assert_false(is_private(addr));
	assert_int_equal(gcp_pools_complete(pools, addr), 0);
	end(1);
	graph_destroy(other);
	must_free(pools, addr);
}

/* Network cards and the like write into memory whatever streams wait for. */
static void what_a_graph_recycled_is_done_where_others_write(void **state)
{
	uint64_t work, id;
	void *graphs[2];

	(void)state;
	fake.third_party = true;
	gcp_addr addr = recycled(&work, graphs, &id);
	assert_true(fake.done >= work);
	graphs_destroy(graphs, id);
	must_free(pools, addr);
}

static struct {
	int (*wait)(void *fence);
	struct gcp_pool *pool;
	uint64_t page;
	int result; /* of who wants the page meanwhile */
	int waits;
} waiter;

static int waiting(void *fence)
{
	waiter.waits++;
	waiter.result = gcp_pages_make_ready(waiter.pool, waiter.page);
	return waiter.wait(fence);
}

/* A trim waits for a kernel that waits for what another thread launches after its
 * next allocation: that must not be held back behind the kernel. */
static void who_waits_for_work_holds_nobody_back(void **state)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pools *own;

	(void)state;
	fake_reset();
	waiter.wait = driver.fence_wait;
	driver.fence_wait = waiting;
	gcp_config_default(&config);
	assert_int_equal(gcp_pools_create(&config, &driver, &own), 0);
	waiter.pool = fake_pool(own);
	gcp_addr addr = must_alloc(waiter.pool, 3 * MIB);
	fake_submit();
	waiter.page = gcp_pages_tag(waiter.pool);
	must_free(own, addr);
	assert_true(gcp_pools_trim(own, 0, 0) > 0);
	assert_int_equal(waiter.waits, 1);
	assert_int_equal(waiter.result, -EBUSY);
	assert_int_equal(fake.orders, 0);
	fake_finish(own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_block_that_outlived_its_graphs_is_exported_when_done),
	    TEST(what_a_graph_recycled_is_done_where_others_write),
	    cmocka_unit_test(who_waits_for_work_holds_nobody_back),
	    TEST(it_is_exported_while_another_capture_is_under_way_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
