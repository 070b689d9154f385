/* SPDX-License-Identifier: MIT */
/*
 * test_pool.c - blocks, segments, limits: the pool on one thread.
 */
#include "fake.h"
#include "cases.h"

#define TEST(name) CASE(name, fake_setup_open, fake_close)

#define KIB (1ull << 10)

/* --- sizes ------------------------------------------------------------------------ */

TEST(sizes_round_up_to_their_class)
{
	static const struct {
		uint64_t bytes, size;
	} cases[] = {
	    {1, 512},
	    {512, 512},
	    {513, 1024},
	    {4097, 4608},
	    {9 * KIB, 9 * KIB},
	    {1 * MIB, 1 * MIB},
	    {1 * MIB + 1, 1 * MIB + 4096},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gcp_block_info info;
		gcp_addr addr = must_alloc(pool, cases[i].bytes);

		OK(gcp_pools_find(pools, addr, &info));
		assert_int_equal(info.size, cases[i].size);
		assert_int_equal(info.requested, cases[i].bytes);
		must_free(addr);
	}
}

/* --- misuse ------------------------------------------------------------------- */

static uint64_t driver_calls(void)
{
	return fake.calls + fake.frees + fake.trims + fake.queries;
}

/* While a context is being destroyed its handles may be gone at any moment. */
TEST(a_context_about_to_go_is_left_alone)
{
	struct gcp_block_info info;
	struct gcp_pool *next;
	gcp_addr addr = must_alloc(pool, 5 * MIB), held = must_alloc(pool, 512);
	uint64_t calls;

	fake_submit();
	must_free(addr);
	gcp_pool_detach(pools, FAKE_CTX);
	calls = driver_calls();
	assert_int_equal(gcp_pools_trim(pools, -1, 0, true), 0);
	assert_false(gcp_pools_relieve(pools, 0, &(struct gcp_search){0}));
	assert_int_equal(driver_calls(), calls);
	gcp_pool_reattach(pools, FAKE_CTX); /* it was refused */
	assert_true(gcp_pools_trim(pools, -1, 0, true) > 0);

	gcp_pool_detach(pools, FAKE_CTX);
	gcp_pool_reset(pools, FAKE_CTX);
	assert_int_equal(gcp_pools_held(pools, held, &info), -ENOENT);
	/* The next context of the same handle. */
	OK(gcp_pool_get(pools, FAKE_CTX, 0, &next));
	must_free(must_alloc(next, 512));
	fake.memory_used -= 2 * MIB; /* of the first, gone with it */
}

/* --- statistics --------------------------------------------------------------- */

TEST(gauges_and_counters_are_exact)
{
	gcp_addr a = must_alloc(pool, 1000), b = must_alloc(pool, 3 * MIB + 5);
	struct gcp_stats stats = must_stats();

	assert_int_equal(stats.allocation.current, 2);
	assert_int_equal(stats.requested_bytes.current, 1000 + 3 * MIB + 5);
	assert_int_equal(stats.allocated_bytes.current, 1024 + 3 * MIB + 4096);
	assert_int_equal(stats.reserved_bytes.current, fake.memory_used);
	assert_int_equal(stats.misses, 2);
	must_free(a);
	must_free(b);
	stats = must_stats();
	assert_int_equal(stats.allocation.current, 0);
	assert_int_equal(stats.allocation.peak, 2);
	assert_int_equal(stats.requested_bytes.freed, 1000 + 3 * MIB + 5);
	assert_int_equal(stats.allocated_bytes.peak, 1024 + 3 * MIB + 4096);
	gcp_pools_reset_peaks(pools, 0, false);
	assert_int_equal(must_stats().allocated_bytes.peak, 0);
	assert_int_equal(gcp_pools_stats(pools, 7, &stats), -ENOENT);
}

/* What a thread has counted for itself and given back counts for the peak too. */
CASE(a_peak_between_two_looks_is_seen, fake_setup, fake_close)
{
	struct gcp_config config;
	gcp_addr addrs[8];

	gcp_config_default(&config);
	config.epoch_blocks = 1;
	config.cache_limit = 1ull << 40; /* each epoch that is closed asks for all */
	fake_open(&config);
	for (int i = 0; i < 8; i++)
		addrs[i] = must_alloc(pool, 4096);
	for (int i = 0; i < 8; i++)
		must_free(addrs[i]);
	gcp_pools_reset_peaks(pools, 0, false);
	for (int i = 0; i < 4; i++) /* out of the thread's cache */
		addrs[i] = must_alloc(pool, 4096);
	for (int i = 0; i < 4; i++)
		must_free(addrs[i]);
	assert_int_equal(must_stats().allocation.peak, 4);
	assert_int_equal(must_stats().allocated_bytes.peak, 4 * 4096);
}

TEST(a_hit_calls_no_driver_function)
{
	for (int i = 0; i < 200; i++) /* warm up: the window fills */
		must_free(must_alloc(pool, 4096));
	uint64_t before = fake.allocs + fake.frees;
	uint64_t fences = fake.records + fake.queries + fake.orders;
	for (int i = 0; i < 3200; i++)
		must_free(must_alloc(pool, 4096));
	assert_int_equal(fake.allocs + fake.frees, before);
	/* 32 frees to an epoch; for each epoch one record and at most two queries */
	assert_true(fake.records + fake.queries + fake.orders - fences <=
		    3 * 3200 / 32 + 3);
}

/* However much other streams have freed since. */
CASE(a_stream_finds_what_it_has_freed_among_thousands_of_others, fake_setup, fake_close)
{
	enum { STREAMS = 4096 };
	static gcp_addr addrs[STREAMS];
	struct gcp_config config;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	fake_open(&config);
	for (uint64_t turn = 0; turn < 3; turn++) {
		uint64_t used = fake.memory_used;

		for (uint64_t i = 1; i <= STREAMS; i++) {
			struct gcp_stream_order order = {.also = i};

			order.stream = i << turn / 2 * 20;
			OK(gcp_pool_alloc_stream(pool, MIB, 0, &order, &addrs[i - 1]));
			assert_int_equal(order.crossed, turn == 2);
		}
		assert_int_equal(fake.memory_used > used, turn == 0);
		fake_submit();
		for (uint64_t i = 0; i < STREAMS; i++)
			OK(gcp_pools_free_async(pools, addrs[i], 1 + i));
	}
}

/* Its program has waited for what used the block. */
TEST(cudaFree_gives_a_block_to_the_stream_that_it_was_allocated_in)
{
	struct gcp_stream_order order = {.stream = 7};

	for (gcp_addr turn = 0, addr; turn < 64; turn++, fake_submit()) {
		OK(gcp_pool_alloc_stream(pool, 8 * MIB, 0, &order, &addr));
		must_free(addr);
	}
	assert_int_equal(fake.memory_used, 8 * MIB);
}

/* One thread allocates, another frees; only the latter has handed its counts over. */
TEST(a_free_counted_before_its_allocation_shows_no_huge_number)
{
	struct gcp_stats_delta delta = {0};

	must_free(must_alloc(pool, MIB));
	for (int i = 0; i < 2; i++) {
		(i == 0 ? gcp_stats_delta_free : gcp_stats_delta_count)(&delta, MIB,
									MIB);
		gcp_mutex_lock(&pool->lock);
		gcp_stats_merge(pool, &delta);
		gcp_mutex_unlock(&pool->lock);
		assert_int_equal(must_stats().allocation.current, 0);
		assert_int_equal(must_stats().allocated_bytes.current, 0);
		assert_int_equal(gcp_pools_unheld(pools, 0),
				 must_stats().reserved_bytes.current);
	}
}

/* --- a quota -------------------------------------------------------------------- */

static int refused(uint64_t bytes)
{
	gcp_addr addr;

	return gcp_pool_alloc(pool, bytes, &addr) == GCP_CUDA_OUT_OF_MEMORY &&
	       gcp_pools_refusal() == GCP_REFUSED_BY_QUOTA;
}

/* Nothing that the program holds is taken away. */
TEST(a_smaller_quota_gives_back_what_is_unused_and_then_refuses)
{
	gcp_addr held = must_alloc(pool, 40 * MIB), other = must_alloc(pool, 40 * MIB);

	must_free(must_alloc(pool, 40 * MIB));
	fake.done = fake.submitted;
	gcp_pools_set_quota(pools, 50 * MIB);
	assert_int_equal(fake.memory_used, 80 * MIB);
	assert_true(refused(2 * MIB));
	/* And what is freed goes back until no more than that is taken. */
	must_free(other);
	assert_int_equal(fake.memory_used, 40 * MIB);
	must_free(held);
	must_free(must_alloc(pool, 50 * MIB));
	gcp_pools_set_quota(pools, GCP_LIMIT_NONE);
	must_free(must_alloc(pool, 100 * MIB));
}
