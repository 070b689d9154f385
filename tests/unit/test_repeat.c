/* SPDX-License-Identifier: MIT */
/*
 * test_repeat.c - a thread that asks for one size again and again keeps its blocks of
 * that size (pool/cache/repeat.c).
 */
#include "fake.h"

#include "../../pool/cache/cache.h"
#include "cases.h"

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)

static struct gcp_pools *mapped_pools(void)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	return fake_pools(&config);
}

/* malloc, kernel, free on one stream; the device is one kernel behind. Fences cost so
 * much that 16 MiB may wait. The address that the last turn had. */
static gcp_addr turns(struct gcp_pools *pools, int count, uint64_t bytes)
{
	gcp_addr addr = 0;

	for (int i = 0; i < count; i++) {
		atomic_store(&fake_pool(pools)->limits.scale, 5);
		gcp_pools_stream_used(pools, 0x5000);
		gcp_windows_update(pools);
		addr = must_alloc(fake_pool(pools), bytes);
		fake.done = fake_submit() - 1;
		must_free(pools, addr);
	}
	return addr;
}

static bool is_cached(struct gcp_pools *pools, gcp_addr addr)
{
	return atomic_load(&gcp_map_find(pools->map, addr)->state) == GCP_BLOCK_CACHED;
}

TEST(a_size_that_repeats_stays_in_the_cache)
{
	const uint64_t sizes[] = {2 * MIB, 3 * MIB, 4 * MIB, 16 * MIB};

	for (int i = 0; i < 4; i++) {
		struct gcp_pools *pools = mapped_pools();

		assert_false(is_cached(pools, turns(pools, 8, sizes[i])));
		assert_true(is_cached(pools, turns(pools, 40, sizes[i])));
		fake_finish(pools);
		fake_reset();
	}
}

/* What was allocated before the size repeated. */
TEST(a_block_of_another_size_goes_to_the_heap)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr other = must_alloc(fake_pool(pools), 2 * MIB);

	assert_true(is_cached(pools, turns(pools, 40, 3 * MIB)));
	must_free(pools, other);
	assert_false(is_cached(pools, other));
	assert_null(gcp_pools_check(pools));
	fake_finish(pools);
}

/* A fence and a barrier for 16 MiB, and hardly a query; no more memory than that. */
TEST(a_loop_calls_the_driver_once_for_an_epoch)
{
	struct gcp_pools *pools = mapped_pools();

	turns(pools, 40, 4 * MIB);
	fake.records = fake.orders = fake.queries = 0;
	turns(pools, 400, 4 * MIB);
	assert_true(fake.records <= 100 + 1);
	assert_true(fake.orders <= 100 + 1);
	assert_true(fake.queries <= 25);
	assert_true(fake.memory_used <= (4 + 16) * MIB);
	fake_finish(pools);
}

/* Many threads take several blocks of a class at once; of no class, one. */
TEST(many_threads_take_blocks_of_no_class_one_at_a_time)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	config.class_max = 128 << 10;
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr addrs[64];

	atomic_fetch_add(&fake_pool(pools)->cache_count, 2);
	gcp_pools_stream_used(pools, 0x5000);
	for (int turn = 0; turn < 4; turn++) {
		for (int i = 0; i < 64; i++)
			addrs[i] = must_alloc(fake_pool(pools), 256 << 10);
		fake.done = fake_submit();
		for (int i = 0; i < 64; i++)
			must_free(pools, addrs[i]);
		assert_null(gcp_pools_check(pools));
		assert_true(is_cached(pools, addrs[63]));
		gcp_caches_flush(fake_pool(pools));
	}
	atomic_fetch_sub(&fake_pool(pools)->cache_count, 2);
	fake_finish(pools);
}
