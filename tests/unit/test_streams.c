/* SPDX-License-Identifier: MIT */
/*
 * test_streams.c - memory that is allocated and freed in the order of a stream
 * (pool/device/stream_alloc.c).
 */
#include "fake.h"

#include "../../pool/pool_types.h"

#include <errno.h>

#define MIB (1ull << 20)

enum { STREAM = 7, TURNS = 1000 };

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

/* The work of no turn is done before the next one. */
static void a_block_that_its_stream_takes_again_needs_no_fence(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr, first = 0;

	(void)state;
	for (int i = 0; i < TURNS; i++) {
		assert_int_equal(gcp_pool_alloc_stream(pool, MIB, STREAM, &addr), 0);
		first = first ? first : addr;
		assert_int_equal(addr, first);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);
	}
	assert_int_equal(fake.records, 0);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* No thread keeps any; and its work is not done. */
static void what_lies_in_the_heap_serves_its_stream_alone(void **state)
{
	static const struct {
		uint64_t bytes;
		int count; /* as many as fill what the driver gave for them */
	} blocks[] = {{MIB, 20}, {40 * MIB, 1}};
	gcp_addr addrs[20];
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_pool *pool = fake_pool(pools);

		for (uint64_t turn = 0; turn < 3; turn++) {
			uint64_t used = fake.memory_used;

			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pool_alloc_stream(pool, blocks[i].bytes,
							  STREAM + turn / 2, &addrs[j]),
				    0);
			/* The third is another stream's. */
			assert_int_equal(fake.memory_used > used, turn != 1);
			fake_submit();
			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pools_free_async(pools, addrs[j],
							 STREAM + turn / 2),
				    0);
			must_be_sound(pools);
		}
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* Of a segment that is never split; up to an eighth may stay unused. */
static void a_huge_block_serves_what_nearly_fills_it(void **state)
{
	const uint64_t sizes[] = {3600 * MIB, 3200 * MIB, 3180 * MIB};
	struct gcp_config config;

	(void)state;
	gcp_config_default(&config);
	assert_true(sizes[2] > config.split_limit);
	for (int i = 0; i < 3; i++) {
		struct gcp_pools *pools = fake_pools(NULL);
		gcp_addr addr, again;

		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[0], STREAM, &addr),
		    0);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[i], STREAM, &again),
		    0);
		assert_int_equal(again == addr, i < 2);
		must_be_sound(pools);
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* What is free already is that for every context. */
static void a_stream_frees_blocks_of_its_own_context(void **state)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools), *other;
	gcp_addr addr = must_alloc(pool, MIB);

	(void)state;
	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EXDEV);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), 0);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(pool, 0xdead0000, STREAM), -ENOENT);
	must_be_sound(pools);
	fake_finish(pools);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_block_that_its_stream_takes_again_needs_no_fence),
	    TEST(what_lies_in_the_heap_serves_its_stream_alone),
	    TEST(a_huge_block_serves_what_nearly_fills_it),
	    TEST(a_stream_frees_blocks_of_its_own_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
