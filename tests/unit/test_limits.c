/* SPDX-License-Identifier: MIT */
/*
 * test_limits.c - limits of 0 and in percent, what refused, what is said and when, and
 * how blocks are shown.
 */
#include "fake.h"
#include "cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)

TEST(a_cache_limit_of_0_keeps_nothing)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.cache_limit = 0;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr small = must_alloc(pool, 1000);
	uint64_t held = fake.memory_used;

	must_free(pools, must_alloc(pool, 20 * MIB));
	assert_int_equal(fake.memory_used, held);
	fake_submit(); /* a free waits for it */
	must_free(pools, small);
	assert_int_equal(fake.memory_used, 0);
	must_be_sound(pools);
	fake_finish(pools);
}

/* A program that allocates and frees in the order of a stream alone, and whose device
 * has done all its work. */
static uint64_t held_by_a_stream(uint64_t limit, uint64_t bytes, bool vmm)
{
	enum { BLOCKS = 40, TURNS = 100 };
	struct gcp_config config;
	gcp_addr addrs[BLOCKS];

	fake_reset();
	gcp_config_default(&config);
	if (vmm)
		gcp_config_default_mapped(&config);
	config.cache_limit = limit;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	for (int turn = 0; turn < TURNS; turn++) {
		int count = turn == 0 ? BLOCKS : 4;

		for (int i = 0; i < count; i++)
			assert_int_equal(
			    gcp_pool_alloc_stream(pool, bytes, 1, &addrs[i]), 0);
		fake_submit();
		for (int i = 0; i < count; i++)
			assert_int_equal(gcp_pools_free_async(pools, addrs[i], 1), 0);
		fake.done = fake.submitted;
	}
	assert_int_equal(gcp_pool_alloc_stream(pool, 512, 1, &addrs[0]), 0);
	assert_int_equal(gcp_pools_free_async(pools, addrs[0], 1), 0);
	uint64_t held = fake.memory_used;
	assert_int_equal(fake.waits, 0);
	must_be_sound(pools);
	fake_finish(pools);
	return held;
}

TEST(a_cache_limit_holds_for_streams)
{
	for (int vmm = 0; vmm < 2; vmm++) {
		uint64_t none = held_by_a_stream(GCP_LIMIT_NONE, 10 * MIB, vmm);

		assert_true(none >= 400 * MIB);
		assert_true(held_by_a_stream(100 * MIB, 10 * MIB, vmm) <= 180 * MIB);
		assert_int_equal(held_by_a_stream(0, 10 * MIB, vmm), 0);
		assert_int_equal(held_by_a_stream(0, MIB, vmm), 0);
	}
}

static uint64_t memory_of_device(int device)
{
	return device == 0 ? 100 * (uint64_t)MIB : 0;
}

TEST(a_quota_may_be_a_share_of_the_device)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool, *other;
	gcp_addr addr;

	gcp_config_default(&config);
	config.quota = GCP_LIMIT_SHARES + 5000;
	driver.device_memory = memory_of_device;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	assert_int_equal(gcp_pool_get(pools, (void *)1, 0, &pool), 0);
	assert_int_equal(gcp_pool_get(pools, (void *)2, 1, &other), 0);
	assert_int_equal(gcp_pools_quota(pools, 0), 100ull * MIB / 10000 * 5000);
	assert_int_equal(gcp_pool_alloc(pool, 60 * MIB, &addr), GCP_CUDA_OUT_OF_MEMORY);
	assert_int_equal(gcp_pools_refusal(), GCP_REFUSED_BY_QUOTA);
	assert_int_equal(gcp_pool_alloc(pool, 40 * MIB, &addr), 0);
	/* How much memory that one has is not known. */
	assert_true(gcp_pools_quota(pools, 1) == GCP_LIMIT_NONE);
	assert_int_equal(gcp_pool_alloc(other, 60 * MIB, &addr), 0);
	gcp_pools_destroy(pools);
}

static void count_block(void *arg, const struct gcp_block_view *block)
{
	uint64_t *counts = arg; /* used, bytes of them, bytes in all */

	counts[0] += block->used;
	counts[1] += block->used ? block->requested : 0;
	counts[2] += block->size;
	assert_true(block->size >= 512);
}

TEST(blocks_are_shown_as_they_are)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t counts[3] = {0};
	gcp_addr freed;

	(void)must_alloc(pool, 700);
	(void)must_alloc(pool, 3 * MIB);
	freed = must_alloc(pool, 800);
	must_free(pools, freed);
	gcp_pools_blocks(pools, 0, count_block, counts);
	assert_int_equal(counts[0], 2);
	assert_int_equal(counts[1], 3 * MIB + 700);
	assert_int_equal(counts[2], fake.memory_used);
	gcp_pools_blocks(pools, 1, count_block, counts);
	assert_int_equal(counts[0], 2);
	fake_finish(pools);
}

/* --- what is said, and when --------------------------------------------------- */

static struct {
	char lines[8192];
	int ticks;
} heard;

static void __attribute__((format(printf, 1, 2))) hear(const char *format, ...)
{
	size_t length = strlen(heard.lines);
	va_list list;

	va_start(list, format);
	vsnprintf(heard.lines + length, sizeof(heard.lines) - length, format, list);
	va_end(list);
	strncat(heard.lines, "\n", sizeof(heard.lines) - strlen(heard.lines) - 1);
}

static struct gcp_pools *ticking_pools;

/* Nothing is held: the figures can be read. */
static void tick(void)
{
	struct gcp_stats stats;
	uint64_t counts[3] = {0};

	heard.ticks++;
	assert_int_equal(gcp_pools_stats(ticking_pools, 0, &stats), 0);
	gcp_pools_blocks(ticking_pools, 0, count_block, counts);
}

static struct gcp_pool *open_heard(void)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_config config;
	struct gcp_pool *pool;

	memset(&heard, 0, sizeof(heard));
	driver.log = hear;
	driver.tick = tick;
	gcp_config_default(&config);
	config.quota = 64 * MIB;
	assert_int_equal(gcp_pools_create(&config, &driver, &ticking_pools), 0);
	assert_int_equal(gcp_pool_get(ticking_pools, (void *)1, 0, &pool), 0);
	return pool;
}

TEST(segments_come_and_go_with_words)
{
	struct gcp_pool *pool = open_heard();
	gcp_addr addr;

	assert_int_equal(gcp_pool_alloc(pool, 40 * MIB, &addr), 0);
	assert_non_null(
	    strstr(heard.lines, "device 0: took a segment of 40960 KiB at 0x"));
	assert_int_equal(gcp_pools_free(ticking_pools, addr), 0);
	assert_null(strstr(heard.lines, "gave back a segment"));
	gcp_pools_trim(ticking_pools, 0, 0);
	assert_non_null(strstr(heard.lines, "gave back a segment of 40960 KiB at 0x"));
	assert_null(strstr(heard.lines, "beyond the quota"));
	assert_int_equal(gcp_pool_alloc(pool, 80 * MIB, &addr), GCP_CUDA_OUT_OF_MEMORY);
	assert_non_null(strstr(heard.lines, "81920 KiB more are beyond the quota"));
	assert_non_null(strstr(heard.lines, "memory is short: gave back"));
	gcp_pools_destroy(ticking_pools);
}

TEST(misses_and_closed_epochs_are_occasions)
{
	struct gcp_pool *pool = open_heard();
	gcp_addr addr, addrs[600];
	int before;

	assert_int_equal(gcp_pool_alloc(pool, 1000, &addr), 0);
	assert_int_equal(heard.ticks, 1);
	for (int i = 0; i < 600; i++)
		assert_int_equal(gcp_pool_alloc(pool, 1000, &addrs[i]), 0);
	before = heard.ticks;
	for (int i = 0; i < 600; i++)
		assert_int_equal(gcp_pools_free(ticking_pools, addrs[i]), 0);
	assert_true(heard.ticks > before);
	assert_true(heard.ticks < before + 10);
	/* Once enough blocks circulate, most allocations hit; an epoch holds no more
	 * than 256 frees. */
	for (int i = 0; i < 20000; i++) {
		if (i == 10000)
			before = heard.ticks;
		assert_int_equal(gcp_pools_free(ticking_pools, addr), 0);
		assert_int_equal(gcp_pool_alloc(pool, 1000, &addr), 0);
	}
	assert_true(heard.ticks - before >= 10000 / 256);
	assert_true(heard.ticks - before < 1000);
	gcp_pools_destroy(ticking_pools);
}
