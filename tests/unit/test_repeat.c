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
		atomic_store(&fake_pool(pools)->limits.scale, 3);
		gcp_pools_stream_used(pools, 0x5000);
		gcp_windows_update(pools);
		addr = must_alloc(fake_pool(pools), bytes);
		fake.done = fake_submit() - 1;
		must_free(pools, addr);
	}
	return addr;
}

static struct gcp_block *block_at(struct gcp_pools *pools, gcp_addr addr)
{
	return gcp_map_find(pools->map, addr);
}

static bool is_cached(struct gcp_pools *pools, gcp_addr addr)
{
	return atomic_load(&block_at(pools, addr)->state) == GCP_BLOCK_CACHED;
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

/* What the thread kept can be merged as soon as the next size comes. */
TEST(another_size_ends_that)
{
	struct gcp_pools *pools = mapped_pools();

	/* Room for the other size: no cache is emptied to find some. */
	must_free(pools, must_alloc(fake_pool(pools), 28 * MIB));
	fake.done = fake.submitted;
	gcp_addr kept = turns(pools, 40, 3 * MIB);
	assert_true(is_cached(pools, kept));
	gcp_addr other = must_alloc(fake_pool(pools), 5 * MIB);
	struct gcp_block *block = block_at(pools, kept);
	assert_true(!block || !is_cached(pools, kept));
	assert_int_equal(block_at(pools, other)->size, 5 * MIB);
	must_free(pools, other);
	fake_finish(pools);
}

/* Each block is as large as was asked for, whatever size was kept before. */
TEST(sizes_that_take_turns_are_told_apart)
{
	const uint64_t sizes[] = {3 * MIB, 5 * MIB, 2 * MIB, 7 * MIB};
	struct gcp_pools *pools = mapped_pools();

	for (int i = 0; i < 12; i++) {
		turns(pools, i % 3 ? 40 : 1, sizes[i % 4]);
		assert_null(gcp_pools_check(pools));
		gcp_addr addr = must_alloc(fake_pool(pools), sizes[(i + 1) % 4]);
		assert_int_equal(block_at(pools, addr)->size, sizes[(i + 1) % 4]);
		must_free(pools, addr);
	}
	fake_finish(pools);
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

TEST(sizes_that_vary_stay_in_no_cache)
{
	struct gcp_pools *pools = mapped_pools();

	for (int i = 0; i < 100; i++)
		assert_false(is_cached(pools, turns(pools, 1, (i % 2 ? 2 : 3) * MIB)));
	fake_finish(pools);
}

/* A thread that only allocates has nothing that goes round: it looks into the heap, and
 * what fences cost can be known. */
TEST(a_size_that_never_comes_back_is_looked_for)
{
	struct gcp_pools *pools = mapped_pools();
	struct gcp_pool *pool = fake_pool(pools);

	for (int i = 0; i < 40; i++)
		(void)must_alloc(pool, MIB);
	atomic_store(&pool->pressure.starved, false);
	(void)must_alloc(pool, MIB);
	assert_true(atomic_load(&pool->pressure.starved));
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

/* The same for a block too large to be kept, which needs a fence at each turn. */
TEST(a_loop_over_one_large_block_asks_for_few_fences)
{
	struct gcp_pools *pools = mapped_pools();

	turns(pools, 40, 256 * MIB);
	fake.records = fake.orders = fake.queries = 0;
	assert_false(is_cached(pools, turns(pools, 400, 256 * MIB)));
	assert_true(fake.records <= 400 && fake.orders <= 400);
	assert_true(fake.queries <= 100);
	assert_int_equal(fake.memory_used, 256 * MIB);
	fake_finish(pools);
}

/* Where an epoch is so large that a cache cannot hold two the heap has the blocks. */
TEST(what_the_cache_has_no_room_for_goes_to_the_heap)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = 0;

	assert_true(is_cached(pools, turns(pools, 40, 4 * MIB)));
	atomic_fetch_add(&fake_pool(pools)->cache_count, 2);
	gcp_windows_update(pools); /* as with segments: 28 MiB in an epoch */
	for (int i = 0; i < 40; i++) {
		gcp_pools_stream_used(pools, 0x5000 + 0x100 * (uint64_t)(i % 4));
		addr = must_alloc(fake_pool(pools), 4 * MIB);
		fake.done = fake_submit();
		must_free(pools, addr);
	}
	assert_false(is_cached(pools, addr));
	atomic_fetch_sub(&fake_pool(pools)->cache_count, 2);
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

/* When memory is out it is there for others. */
TEST(what_is_kept_serves_when_memory_is_out)
{
	struct gcp_pools *pools = mapped_pools();

	fake.memory_limit = 24 * MIB;
	turns(pools, 40, 4 * MIB);
	fake.done = fake.submitted;
	must_free(pools, must_alloc(fake_pool(pools), 24 * MIB));
	fake_finish(pools);
}

static gcp_addr to_free;

static uint32_t caches_then;

static void *frees(void *pools)
{
	must_free(pools, to_free);
	caches_then = atomic_load(&fake_pool(pools)->cache_count);
	gcp_pools_thread_exit(pools);
	return NULL;
}

/* How much may circulate depends on how many threads allocate. */
TEST(a_thread_that_only_frees_gets_no_cache)
{
	struct gcp_pools *pools = mapped_pools();
	struct gcp_pool *pool = fake_pool(pools);
	pthread_t thread;

	gcp_pools_stream_used(pools, 0x5000);
	gcp_windows_update(pools);
	to_free = must_alloc(pool, 256 * MIB);
	uint32_t caches = atomic_load(&pool->cache_count);
	pthread_create(&thread, NULL, frees, pools);
	pthread_join(thread, NULL);
	assert_int_equal(caches_then, caches);
	fake_finish(pools);
}

/* A large handle goes back whole once its work is done, though the fence was asked for
 * before that. */
TEST(what_a_large_handle_waits_for_is_asked_before_it_is_divided)
{
	struct gcp_pools *pools = mapped_pools();
	struct gcp_pool *pool = fake_pool(pools);

	gcp_pools_stream_used(pools, 0x5000);
	gcp_windows_update(pools);
	gcp_addr large = must_alloc(pool, 1024 * MIB);
	(void)fake_submit();
	must_free(pools, large);
	gcp_addr small = must_alloc(pool, 8 << 10);
	fake.done = fake.submitted;
	gcp_addr keep = must_alloc(pool, 64 * MIB);
	gcp_pools_trim(pools, 0, 0);
	assert_in_range(fake.memory_used, 0, 72 * MIB);
	must_free(pools, keep);
	must_free(pools, small);
	fake.done = fake.submitted;
	fake_finish(pools);
}
