/* SPDX-License-Identifier: MIT */
/*
 * test_heads.c - an ordinary segment that blocks share begins with a page that none of
 * them has: code that the library does not see frees the whole segment by that address.
 */
#include "fake.h"

#include "../../pool/cache/cache.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

enum { BLOCKS = 96, STREAM = 0x5000 };

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

/* Segments of the simulated driver lie so far apart. */
static uint64_t segment_of(gcp_addr addr)
{
	return addr >> 32;
}

static void must_share_no_beginning(const gcp_addr *addrs, int count)
{
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			assert_false(i != j && addrs[i] &&
				     segment_of(addrs[i]) == segment_of(addrs[j]) &&
				     addrs[i] % (UINT64_C(1) << 32) == 0);
}

static void must_go_back(struct gcp_pools *pools, const gcp_addr *addrs, int count)
{
	for (int i = 0; i < count; i++)
		if (addrs[i])
			must_free(pools, addrs[i]);
	must_be_sound(pools);
	assert_int_equal(gcp_pools_reclaimable(pools, 0), fake.memory_used);
	gcp_pools_trim(pools, 0, 0);
	assert_int_equal(fake.memory_used, 0);
	fake_finish(pools);
}

static void no_block_begins_a_segment_that_others_share(void **state)
{
	static const uint64_t sizes[] = {512,           4 * KIB, 100 * KIB, 128 * KIB,
					 256 * KIB,     MIB,     2 * MIB,   3 * MIB,
					 4 * MIB + 512, 8 * MIB, 24 * MIB};
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

	(void)state;
	for (int only = -1; only < SIZES; only++) {
		struct gcp_pools *pools = fake_pools(NULL);
		gcp_addr addrs[BLOCKS];

		for (int i = 0; i < BLOCKS; i++)
			addrs[i] = must_alloc(fake_pool(pools),
					      sizes[only < 0 ? i % SIZES : only]);
		must_be_sound(pools);
		must_share_no_beginning(addrs, BLOCKS);
		must_go_back(pools, addrs, BLOCKS);
	}
}

/* A block of its own begins its segment; parts of the segment do not. */
static void a_segment_is_cut_behind_its_first_page(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr whole = must_alloc(pool, 64 * MIB), parts[3] = {0};

	(void)state;
	assert_int_equal(whole % (UINT64_C(1) << 32), 0);
	must_free(pools, whole);
	parts[0] = must_alloc(pool, 31 * MIB);
	parts[1] = must_alloc(pool, 33 * MIB - GCP_PAGE);
	assert_int_equal(segment_of(parts[0]), segment_of(whole));
	assert_int_equal(segment_of(parts[1]), segment_of(whole));
	must_share_no_beginning(parts, 2);
	must_be_sound(pools);
	for (int i = 0; i < 2; i++)
		must_free(pools, parts[i]);
	fake.done = fake.submitted;
	/* Free again it is whole, also for one that fills it. */
	assert_int_equal(must_alloc(pool, 64 * MIB), whole);
	must_go_back(pools, &whole, 1);
}

/* What is too large for the rest has all of it. */
static void what_nearly_fills_a_segment_begins_it(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr whole = must_alloc(pool, 64 * MIB);

	(void)state;
	must_free(pools, whole);
	assert_int_equal(must_alloc(pool, 64 * MIB - 512), whole);
	must_go_back(pools, &whole, 1);
}

/* What waits for its epoch serves its stream in parts. */
static void parts_in_a_stream_lie_behind_the_head(void **state)
{
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr whole, parts[2];

	(void)state;
	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	assert_int_equal(gcp_pool_alloc_stream(pool, 64 * MIB, STREAM, &whole), 0);
	fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, whole, STREAM), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
		    gcp_pool_alloc_stream(pool, 16 * MIB, STREAM, &parts[i]), 0);
		assert_int_equal(segment_of(parts[i]), segment_of(whole));
		must_be_sound(pools);
	}
	must_share_no_beginning(parts, 2);
	must_go_back(pools, parts, 2);
}

/* An allocation waits for parts that fill a segment only with its head. */
static void what_waits_fills_a_segment_with_its_head(void **state)
{
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr whole, parts[2];
	uint64_t epoch;

	(void)state;
	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	whole = must_alloc(pool, 64 * MIB);
	must_free(pools, whole);
	fake.done = fake.submitted;
	parts[0] = must_alloc(pool, 31 * MIB);
	parts[1] = must_alloc(pool, 33 * MIB - GCP_PAGE);
	fake_submit();
	for (int i = 0; i < 2; i++)
		must_free(pools, parts[i]);
	gcp_mutex_lock(&pool->lock);
	epoch = gcp_heap_fitting_epoch(&pool->common, 64 * MIB, GCP_CLASS_NONE);
	gcp_mutex_unlock(&pool->lock);
	assert_int_not_equal(epoch, 0);
	must_go_back(pools, NULL, 0);
}

/* Code that the library does not see frees a block that fills its segment, as it may,
 * and the driver gives its addresses again. */
static void what_is_freed_elsewhere_leaves_the_books(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr other = must_alloc(pool, 40 * MIB);
	struct gcp_stats before = must_stats(pools), after;

	(void)state;
	for (int i = 0; i < 8; i++) {
		gcp_addr addr = must_alloc(pool, 64 * MIB);

		assert_int_equal(fake_driver().mem_free(pool->ctx, addr), 0);
		fake.next_addr = segment_of(addr);
		if (i % 2) { /* the next one is larger, and begins there */
			gcp_addr more = must_alloc(pool, 80 * MIB);

			assert_int_equal(more, addr);
			must_free(pools, more);
			fake.done = fake.submitted;
			gcp_pools_trim(pools, 0, 0);
			fake.next_addr = segment_of(addr) + 1;
		}
		must_be_sound(pools);
	}
	after = must_stats(pools);
	assert_int_equal(after.allocation.current, before.allocation.current);
	assert_int_equal(after.allocated_bytes.current, before.allocated_bytes.current);
	assert_int_equal(after.active_bytes.current, before.active_bytes.current);
	assert_int_equal(after.reserved_bytes.current, before.reserved_bytes.current);
	must_go_back(pools, &other, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(no_block_begins_a_segment_that_others_share, setup),
	    cmocka_unit_test_setup(a_segment_is_cut_behind_its_first_page, setup),
	    cmocka_unit_test_setup(what_nearly_fills_a_segment_begins_it, setup),
	    cmocka_unit_test_setup(parts_in_a_stream_lie_behind_the_head, setup),
	    cmocka_unit_test_setup(what_waits_fills_a_segment_with_its_head, setup),
	    cmocka_unit_test_setup(what_is_freed_elsewhere_leaves_the_books, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
