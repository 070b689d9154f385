/* SPDX-License-Identifier: MIT */
/*
 * test_decay.c - memory that nothing has used for a while goes back, and what a program
 * uses again stays.
 */
#include "../../pool/cache/cache.h"
#include "fake.h"
#include "cases.h"

#include <semaphore.h>

#define MS (1000ull * 1000)

/* Memory that is idle for a second goes back; each free closes an epoch. */
static int setup(void **state)
{
	struct gcp_config config;

	fake_setup(state);
	gcp_config_default(&config);
	config.decay_ms = 1000;
	config.epoch_blocks = 1;
	fake_open(&config);
	return 0;
}

#define TEST(name) CASE(name, setup, fake_close)

static void spike(int count, uint64_t bytes)
{
	static gcp_addr addrs[16 << 10];

	for (int i = 0; i < count; i++)
		addrs[i] = must_alloc(pool, bytes);
	for (int i = 0; i < count; i++)
		must_free(addrs[i]);
}

/* A block every 10 ms, on a device that is done at once. */
static void idle(int ms)
{
	for (int i = 0; i < ms; i += 10) {
		gcp_addr addr = must_alloc(pool, 64 << 10);

		fake.done = fake_submit();
		must_free(addr);
		fake_pass(10 * MS);
	}
}

TEST(nothing_goes_back_while_a_stream_captures)
{
	spike(16, 20 * MIB);
	idle(100);
	gcp_pools_fences_hold(pools);
	uint64_t used = fake.memory_used;
	idle(5000);
	assert_int_equal(fake.memory_used, used); /* real frees that only wait aside */
	gcp_pools_fences_release(pools);
}

/* An error of the device is found by the call that asks first, and the program hears of
 * it, as it would from the cudaFree that it called. */
TEST(what_decay_finds_broken_is_reported)
{
	gcp_addr addrs[10];
	int result = 0;

	spike(16, 20 * MIB);
	idle(500);
	for (int i = 0; i < 10; i++)
		addrs[i] = must_alloc(pool, 64 << 10);
	fake.fence_result = 700;
	fake_pass(2000 * MS);
	for (int i = 0; i < 10 && result == 0; i++) {
		fake_pass(300 * MS);
		result = gcp_pools_free(pools, addrs[i]);
	}
	assert_int_equal(result, 700);
	fake.fence_result = 0;
}

/* --- mapped memory ---------------------------------------------------------------- */

static int setup_mapped(void **state)
{
	struct gcp_config config;

	fake_setup(state);
	gcp_config_default(&config);
	config.backend = GCP_BACKEND_MAPPED;
	fake_open(&config);
	return 0;
}

#define MAPPED(name) CASE(name, setup_mapped, fake_close)

static bool is_cached(gcp_addr addr)
{
	struct gcp_block *block = gcp_map_find(pools->map, addr);

	return block && atomic_load(&block->state) == GCP_BLOCK_CACHED;
}

TEST(small_blocks_count_in_the_cache_limit)
{
	pool->cache_limit = 2 * MIB;
	spike(16 << 10, 4096);
	assert_true(fake.memory_used <= 8 * MIB);
}

/* Each turn of a loop on one stream would close an epoch. */
MAPPED(a_loop_over_a_large_size_gets_a_wider_window)
{
	for (int i = 0; i < 64; i++, fake.done = fake_submit()) {
		gcp_pools_stream_used(pools, 0x5000);
		must_free(must_alloc(pool, 4 * MIB));
	}
	assert_true(atomic_load(&pool->limits.scale) > 0);
}

/* They would take from each other at each miss what each of them needs next. */
MAPPED(a_miss_of_many_threads_empties_no_caches)
{
	gcp_addr small = must_alloc(pool, 64 << 10);

	must_alloc(pool, 32 * MIB); /* a smaller pool grows rather */
	must_free(small);
	atomic_store(&pool->cache_count, 3);
	assert_true(must_alloc(pool, 8 * MIB) && is_cached(small));
	atomic_store(&pool->cache_count, 1);
	must_alloc(pool, 16 * MIB);
	assert_false(is_cached(small));
}
