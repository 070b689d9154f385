/* SPDX-License-Identifier: MIT */
/*
 * test_repeat.c - a thread that asks for one size again and again keeps its blocks of
 * that size (pool/cache/repeat.c).
 */
#include "../../pool/cache/cache.h"
#include "fake.h"
#include "cases.h"

static int setup(void **state)
{
	struct gcp_config config;

	fake_setup(state);
	gcp_config_default_mapped(&config);
	fake_open(&config);
	return 0;
}

#define TEST(name) CASE(name, setup, fake_close)

/* malloc, kernel, free on one stream; the device is one kernel behind. Fences cost so
 * much that 16 MiB may wait. The address that the last turn had. */
static gcp_addr turns(int count, uint64_t bytes)
{
	gcp_addr addr = 0;

	for (int i = 0; i < count; i++) {
		atomic_store(&pool->limits.scale, 5);
		gcp_pools_stream_used(pools, 0x5000);
		gcp_windows_update(pools);
		addr = must_alloc(pool, bytes);
		fake.done = fake_submit() - 1;
		must_free(addr);
	}
	return addr;
}

static bool is_cached(gcp_addr addr)
{
	return atomic_load(&gcp_map_find(pools->map, addr)->state) == GCP_BLOCK_CACHED;
}

TEST(a_size_that_repeats_stays_in_the_cache)
{
	const uint64_t sizes[] = {2 * MIB, 3 * MIB, 4 * MIB, 16 * MIB};

	for (int i = 0; i < 4; i++) {
		assert_false(is_cached(turns(8, sizes[i])));
		assert_true(is_cached(turns(40, sizes[i])));
		fake_close(state);
		setup(state);
	}
}

/* What was allocated before the size repeated. */
TEST(a_block_of_another_size_goes_to_the_heap)
{
	gcp_addr other = must_alloc(pool, 2 * MIB);

	assert_true(is_cached(turns(40, 3 * MIB)));
	must_free(other);
	assert_false(is_cached(other));
}

/* Each turn of the loop would close an epoch. */
TEST(a_loop_over_a_large_size_gets_a_wider_window)
{
	for (int i = 0; i < 64; i++, fake.done = fake_submit())
		must_free(must_alloc(pool, 4 * MIB));
	assert_true(atomic_load(&pool->limits.scale) > 0);
}

/* They would take from each other at each miss what each of them needs next. */
TEST(a_miss_of_many_threads_empties_no_caches)
{
	gcp_addr small = (must_alloc(pool, 4 * MIB), must_alloc(pool, 4096));

	must_free(small);
	atomic_store(&pool->cache_count, 3);
	must_alloc(pool, 8 * MIB);
	assert_true(is_cached(small));
	atomic_store(&pool->cache_count, 1);
	must_alloc(pool, 16 * MIB);
	assert_null(gcp_map_find(pools->map, small)); /* merged with what is free */
}
