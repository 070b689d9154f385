/* SPDX-License-Identifier: MIT */
/*
 * test_consolidate.c - idle segments that go back to the driver, to come again as one;
 * and where blocks are taken from, so that segments fall idle.
 */
#include "fake.h"

#include "../../pool/cache/cache.h"
#include "cases.h"

#define TEST(name) CASE(name, setup, NULL)

#define MIB (1ull << 20)

static int setup(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

/* A step of a program: `count` blocks that live at once, one size after another. */
static void step(struct gcp_pools *pools, int count, uint64_t bytes)
{
	gcp_addr addrs[64];

	for (int i = 0; i < count; i++)
		addrs[i] = must_alloc(fake_pool(pools), bytes);
	fake.done = fake_submit();
	for (int i = 0; i < count; i++)
		must_free(pools, addrs[i]);
	fake.done = fake.submitted;
}

TEST(what_is_idle_comes_again_as_one_segment)
{
	struct gcp_pools *pools = fake_pools(NULL);

	step(pools, 16, 20 * MIB);
	assert_true(must_stats(pools).consolidations > 0);
	assert_true(fake.memory_used < 16 * 20 * MIB);
	/* No idle segment was as large. */
	uint64_t before = fake.allocs;
	gcp_addr first = must_alloc(fake_pool(pools), 100 * MIB);
	gcp_addr second = must_alloc(fake_pool(pools), 100 * MIB);
	assert_true(fake.allocs <= before + 2);
	assert_true(fake.memory_used <= (16 * 20 + 20) * MIB);
	assert_int_equal(first >> 32, second >> 32); /* beside its head */
	must_be_sound(pools);
	must_free(pools, first);
	must_free(pools, second);
	fake_finish(pools);
}

TEST(a_steady_program_pays_nothing)
{
	struct gcp_pools *pools = fake_pools(NULL);

	for (int i = 0; i < 20; i++)
		step(pools, 16, 20 * MIB);
	struct gcp_stats before = must_stats(pools);
	uint64_t frees = fake.frees;

	for (int i = 0; i < 100; i++)
		step(pools, 16, 20 * MIB);
	struct gcp_stats after = must_stats(pools);
	assert_int_equal(after.consolidations, before.consolidations);
	assert_int_equal(after.misses, before.misses);
	assert_int_equal(fake.frees, frees);
	assert_false(atomic_load(&fake_pool(pools)->maintenance.scattered));
	fake_finish(pools);
}

/* A driver whose frees take long, under a program whose working set changes each time.
 */
TEST(consolidation_takes_a_small_part_of_the_time)
{
	struct gcp_pools *pools = fake_pools(NULL);

	fake.free_ns = 100 * 1000 * 1000;
	for (int round = 0; round < 100; round++)
		step(pools, 8, (uint64_t)(9 + round * 7 % 40) * MIB);
	/* A burst, and a thirty-second part of it after that. */
	assert_true(must_stats(pools).consolidations > 0);
	assert_true(fake.frees * fake.free_ns < 1000 * 1000 * 1000);
	fake_finish(pools);
}

TEST(nothing_goes_back_inside_an_allocation)
{
	struct gcp_pools *pools = fake_pools(NULL);
	gcp_addr addrs[16];

	for (int round = 0; round < 10; round++) {
		uint64_t frees = fake.frees, waits = fake.waits;

		for (int i = 0; i < 16; i++)
			addrs[i] = must_alloc(fake_pool(pools),
					      (uint64_t)(9 + 3 * round + i) * MIB);
		assert_int_equal(fake.frees, frees);
		assert_int_equal(fake.waits, waits);
		fake_submit();
		for (int i = 0; i < 16; i++)
			must_free(pools, addrs[i]);
	}
	assert_true(must_stats(pools).consolidations > 0);
	fake_finish(pools);
}

TEST(nothing_goes_back_while_a_stream_captures)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.window_bytes = 1024 * MIB; /* no real free that only waits */
	struct gcp_pools *pools = fake_pools(&config);

	gcp_pools_fences_hold(pools);
	step(pools, 16, 20 * MIB);
	assert_int_equal(must_stats(pools).consolidations, 0);
	assert_int_equal(fake.frees, 0);
	gcp_pools_fences_release(pools);
	fake_finish(pools);
}

TEST(no_segment_grows_beyond_the_split_limit)
{
	static const uint64_t sizes[] = {30 * MIB, 32 * MIB, 16 * MIB};
	struct gcp_config config;

	gcp_config_default(&config);
	config.split_limit = 64 * MIB;
	for (int i = 0; i < 3; i++) {
		fake_reset();

		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_block_info info;

		step(pools, 16, 20 * MIB);
		gcp_addr addr = must_alloc(fake_pool(pools), sizes[i]);
		assert_int_equal(gcp_pools_find(pools, addr, &info), 0);
		assert_true(info.segment_size <= 64 * MIB);
		must_free(pools, addr);
		fake_finish(pools);
	}
}

TEST(blocks_are_taken_where_they_lie_lowest)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.blocking_free = true; /* what is freed is ready */
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr low = must_alloc(pool, 6 * MIB);

	must_alloc(pool, 2 * MIB);
	gcp_addr high = must_alloc(pool, 5 * MIB);
	must_alloc(pool, 2 * MIB);
	must_free(pools, low);
	must_free(pools, high);
	/* The other one would fit better. */
	assert_int_equal(must_alloc(pool, 5 * MIB), low);

	gcp_addr blocks[8]; /* and within a segment */
	for (int i = 0; i < 8; i++)
		blocks[i] = must_alloc(pool, 3 * MIB);
	int first = 0;
	while (blocks[first] >> 32 != blocks[first + 2] >> 32)
		assert_true(++first < 6);
	must_free(pools, blocks[first + 2]);
	must_free(pools, blocks[first]);
	assert_int_equal(must_alloc(pool, 3 * MIB), blocks[first]);
	fake_finish(pools);
}

/* Blocks of 4 KiB and 200 KiB that stay, made between large ones that do not. */
TEST(small_blocks_do_not_pin_large_segments)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr large[32];

	for (int i = 0; i < 32; i++) {
		large[i] = must_alloc(pool, 20 * MIB);
		must_alloc(pool, 4 << 10);
		must_alloc(pool, 200 << 10);
	}
	assert_true(fake.memory_used >= 32 * 20 * MIB);
	for (int i = 0; i < 32; i++)
		must_free(pools, large[i]);
	gcp_pools_trim(pools, 0, 0);
	assert_true(fake.memory_used <= 32 * MIB);
	must_be_sound(pools);
	fake_finish(pools);
}

/* What was made for blocks of the classes serves larger ones too, but not if that
 * would waste it: new memory can be had, and it can be given back for that. */
TEST(idle_segments_of_the_classes_stay_whole)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.blocking_free = true;
	config.thread_cache_bytes = 0;
	fake.memory_limit = 40 * MIB;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addrs[32];

	fake.memory_ns = 20 * 1000 * 1000; /* too expensive to be given back twice */
	for (int round = 0; round < 2; round++) {
		(void)gcp_pools_relieve(pools, 0, &(struct gcp_search){0});
		for (int i = 0; i < 32; i++)
			addrs[i] = must_alloc(pool, 1 * MIB);
		for (int i = 0; i < 32; i++)
			must_free(pools, addrs[i]);
	}
	assert_true(fake.memory_used >= 32 * MIB);
	/* Two would fit into the two segments that there are. */
	for (int i = 0; i < 4; i++)
		must_alloc(pool, 10 * MIB);
	fake_finish(pools);
}

TEST(a_program_whose_sizes_never_repeat_pays_little)
{
	struct gcp_pools *pools = fake_pools(NULL);
	gcp_addr live[64] = {0};
	unsigned random = 1;

	fake.memory_ns = 60 * 1000;
	for (int i = 0; i < 50000; i++) {
		gcp_addr *slot =
		    &live[(random = random * 1664525u + 1013904223u) >> 8 & 63];
		uint64_t size =
		    512ull << ((random = random * 1664525u + 1013904223u) >> 8) % 14;

		if (*slot)
			must_free(pools, *slot);
		random = random * 1664525u + 1013904223u;
		*slot = must_alloc(fake_pool(pools), size + (random >> 8) % size);
		fake.done = fake_submit();
		fake_pass(500);
	}
	/* That was 25 ms of work; frees took less than 4 ms. */
	assert_true(fake.frees < 60);
	must_be_sound(pools);
	fake_finish(pools);
}

/* malloc, kernel, free: what waits for the device falls idle all the time. */
TEST(a_loop_over_one_size_gives_nothing_back)
{
	static const uint64_t sizes[] = {1 * MIB, 4 * MIB, 5 * MIB, 20 * MIB};

	for (int i = 0; i < 4; i++) {
		fake_reset();
		struct gcp_pools *pools = fake_pools(NULL);

		for (int turn = 0; turn < 2000; turn++) {
			gcp_addr addr = must_alloc(fake_pool(pools), sizes[i]);
			uint64_t work = fake_submit();

			gcp_pools_stream_used(pools, 0x5000);
			must_free(pools, addr);
			fake.done = work - 1;
			fake_pass(3 * 1000);
		}
		assert_int_equal(fake.frees, 0);
		assert_true(fake.allocs <= 8);
		assert_true(fake.memory_used <= 80 * MIB);
		fake_finish(pools);
	}
}

/* cuMemFreeAsync does not look at what is idle; the next free that does counts what it
 * freed. */
TEST(asynchronous_frees_count_for_the_next_look)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addrs[16], little = must_alloc(pool, 1 * MIB);

	for (int i = 0; i < 16; i++)
		addrs[i] = must_alloc(pool, 20 * MIB);
	fake.done = fake_submit();
	for (int i = 0; i < 16; i++)
		assert_int_equal(gcp_pools_free_async(pools, addrs[i], 0), 0);
	assert_int_equal(pool->maintenance.freed_bytes, 16 * 20 * MIB);
	assert_int_equal(must_stats(pools).consolidations, 0);
	must_free(pools, little);
	assert_int_equal(must_stats(pools).consolidations, 1);
	fake_finish(pools);
}

/* When caches were emptied last, and what lay idle, says nothing of a new context. */
TEST(a_new_context_starts_afresh)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);

	step(pools, 16, 20 * MIB);
	gcp_pools_trim(pools, 0, 0);
	assert_true(pool->flush_at > 0);
	pool->common.unused_low = pool->maintenance.lows[0] = 1;
	gcp_pool_reset(pools, FAKE_CTX);
	assert_ptr_equal(fake_pool(pools), pool);
	assert_int_equal(pool->flush_at, 0);
	assert_int_equal(pool->common.unused_low, 0);
	for (int i = 0; i < GCP_DECAY_TURNS; i++)
		assert_int_equal(pool->maintenance.lows[i], 0);
	fake_finish(pools);
}
