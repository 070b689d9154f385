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
