/*
 * test_contexts.c - contexts that may end: what other threads do meanwhile must be
 * right whether the context ends or stays. And calls that do not wait on plain CUDA.
 */
#include <errno.h>

#include "../../pool/types.h"
#include "fake.h"

#define MIB (1ull << 20)

static int joins;

static int join(void *ctx, void *fence)
{
	(void)ctx, (void)fence;
	joins++;
	return 0;
}

static int reset(void **state)
{
	(void)state;
	fake_reset();
	joins = 0;
	return 0;
}

static struct gcp_pools *small_window(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.window_bytes = 0;
	config.page_blocks = 1;
	config.thread_cache_bytes = 0;
	return fake_pools(&config);
}

/* Frees a block that work is pending on, and takes it again behind a barrier. */
static void order_one(struct gcp_pools *pools, struct gcp_pool *pool)
{
	gcp_addr addr = must_alloc(pool, 16 * MIB);

	fake_submit();
	must_free(pools, addr);
	assert_int_equal(must_alloc(pool, 16 * MIB), addr);
	assert_int_equal(fake.orders, 1);
}

/* Another thread allocates while the context may be ending: all that it was given goes
 * with the context when that ends later. */
static void every_pool_of_a_context_ends_with_it(void **state)
{
	struct gcp_pools *pools;
	struct gcp_pool *first, *second, *later;
	struct gcp_config config;
	gcp_addr a, b, c;

	(void)state;
	gcp_config_default(&config);
	pools = fake_pools(&config);
	assert_int_equal(gcp_pool_get(pools, FAKE_CTX, 0, &first), 0);
	a = must_alloc(first, 4 * MIB);
	gcp_pool_leave(pools, FAKE_CTX);
	assert_int_equal(gcp_pool_get(pools, FAKE_CTX, 0, &second), 0);
	b = must_alloc(second, 4 * MIB);
	gcp_pool_stay(pools, FAKE_CTX);
	must_free(pools, a);
	must_free(pools, b);
	fake.done = fake.submitted;

	gcp_pool_leave(pools, FAKE_CTX);
	gcp_pool_drop(pools, FAKE_CTX);
	assert_false(first->live);
	assert_false(second->live);
	uint64_t before = fake.allocs;
	assert_int_equal(gcp_pool_get(pools, FAKE_CTX, 0, &later), 0);
	c = must_alloc(later, 4 * MIB);
	assert_int_equal(fake.allocs, before + 1);
	must_free(pools, c);
	assert_null(gcp_pools_check(pools));
}

/* A pool made for a new context of the same handle is not dropped with the old. */
static void the_next_context_keeps_its_pool(void **state)
{
	struct gcp_pools *pools = small_window();
	struct gcp_pool *old = fake_pool(pools), *next;

	(void)state;
	must_alloc(old, MIB);
	gcp_pool_leave(pools, FAKE_CTX);
	assert_int_equal(gcp_pool_get(pools, FAKE_CTX, 0, &next), 0);
	assert_ptr_not_equal(old, next);
	gcp_pool_drop(pools, FAKE_CTX);
	assert_false(old->live);
	assert_true(next->live);
	assert_ptr_equal(gcp_pool_find(pools, FAKE_CTX), next);
}

/* A context that joins while another may be ending is not put behind that one's
 * barriers; they are set again when it stays. */
static void barriers_are_set_again_when_a_context_stays(void **state)
{
	struct gcp_pools *pools = small_window();
	struct gcp_pool *pool = fake_pool(pools);

	(void)state;
	order_one(pools, pool);
	gcp_pool_leave(pools, FAKE_CTX);
	gcp_pools_context_joined(pools, (void *)0x2000, join);
	assert_int_equal(joins, 0);
	gcp_pool_stay(pools, FAKE_CTX);
	assert_int_equal(fake.orders, 2);
	gcp_pools_context_joined(pools, (void *)0x2000, join);
	assert_int_equal(joins, 1);
}

/* Where a capture forbids the barrier, the pages are waited for. */
static void pages_are_completed_when_a_context_stays_in_a_capture(void **state)
{
	struct gcp_pools *pools = small_window();
	struct gcp_pool *pool = fake_pool(pools);

	(void)state;
	order_one(pools, pool);
	gcp_pool_leave(pools, FAKE_CTX);
	gcp_pools_fences_hold(pools);
	gcp_pool_stay(pools, FAKE_CTX);
	gcp_pools_fences_release(pools);
	assert_int_equal(fake.orders, 1);
	assert_true(pool->pages.completed >= pool->pages.ordered);
}

/* Somebody who obeys no queue appears meanwhile: what was ordered must be done. */
static void pages_are_completed_when_a_context_stays_and_others_write(void **state)
{
	struct gcp_pools *pools = small_window();
	struct gcp_pool *pool = fake_pool(pools), *other;

	(void)state;
	order_one(pools, pool);
	gcp_pool_leave(pools, FAKE_CTX);
	fake.third_party = true;
	assert_int_equal(gcp_pool_get(pools, (void *)0x3000, 0, &other), 0);
	must_free(pools, must_alloc(other, 4 * MIB));
	assert_int_equal(gcp_pages_barrier(other), 0);
	assert_true(pools->completed_only);
	gcp_pool_stay(pools, FAKE_CTX);
	assert_true(pool->pages.completed >= pool->pages.ordered);
}

/* cuMemFreeAsync does not wait, so nothing may wait behind it: no barrier is set on
 * its page before a free that does wait has closed another. */
static void nothing_waits_behind_an_asynchronous_free(void **state)
{
	struct gcp_pools *pools = small_window();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 16 * MIB), next;

	(void)state;
	fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr), 0);
	next = must_alloc(pool, 16 * MIB);
	assert_int_not_equal(next, addr);
	assert_int_equal(fake.orders, 0);
	must_free(pools, next);
	assert_int_equal(must_alloc(pool, 16 * MIB), addr);
	assert_int_equal(fake.orders, 1);
}

static void an_asynchronous_free_never_blocks(void **state)
{
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;

	(void)state;
	gcp_config_default(&config);
	config.blocking_free = true;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 16 * MIB);
	fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr), 0);
	assert_int_equal(fake.done, 0);
	assert_int_equal(gcp_pools_free_async(pools, addr), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(every_pool_of_a_context_ends_with_it),
	    TEST(the_next_context_keeps_its_pool),
	    TEST(barriers_are_set_again_when_a_context_stays),
	    TEST(pages_are_completed_when_a_context_stays_in_a_capture),
	    TEST(pages_are_completed_when_a_context_stays_and_others_write),
	    TEST(nothing_waits_behind_an_asynchronous_free),
	    TEST(an_asynchronous_free_never_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
