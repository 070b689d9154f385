/* SPDX-License-Identifier: MIT */
/*
 * test_window.c - how much memory is in circulation between a program that launches
 * kernels on blocks, which it frees at once, and a device that is behind.
 */
#include "fake.h"

#include "../../pool/pool_types.h"
#include "cases.h"

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)

/* malloc, kernel, free, over the streams in turn; the device is some kernels behind. */
static void launch(struct gcp_pools *pools, int streams, uint64_t behind, uint64_t ns)
{
	for (int i = 0; i < 5000; i++, fake_pass(ns)) {
		gcp_addr addr = must_alloc(fake_pool(pools), 1 * MIB);
		uint64_t work = fake_submit();

		gcp_pools_stream_used(pools, 0x5000 + 0x100 * (uint64_t)(i % streams));
		must_free(pools, addr);
		if (work > behind)
			fake.done = work - behind;
	}
}

/* On one stream the host is far ahead of the kernels, on 16 it launches no faster than
 * they are done. Calls for fences may be as expensive as they like. */
TEST(launches_from_one_thread_need_no_more_than_the_window)
{
	static const struct {
		int streams;
		uint64_t behind, ns;
	} programs[] = {{1, 1000, 20000}, {4, 1000, 5000}, {16, 10, 2500}};

	for (int i = 0; i < 3; i++)
		for (uint64_t fence_ns = 200; fence_ns < 100000; fence_ns *= 10) {
			fake_reset();
			fake.fence_ns = fence_ns;
			struct gcp_pools *pools = fake_pools(NULL);

			launch(pools, programs[i].streams, programs[i].behind,
			       programs[i].ns);
			assert_true(fake.memory_used <= (1 + 64) * MIB);
			assert_int_equal(fake.frees, 0);
			fake_finish(pools);
		}
}

static struct gcp_pools *mapped_pools(void)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	return fake_pools(&config);
}

/* malloc and free on one stream, of two sizes in turns; a block is found in a cache
 * after that? */
static bool mapped_loop_ends_cached(struct gcp_pools *pools, uint64_t bytes,
				    uint64_t other, uint64_t ns)
{
	gcp_addr addr = 0;

	for (int i = 0; i < 4000; i++, fake_pass(ns)) {
		addr = must_alloc(fake_pool(pools), i % 2 ? bytes : other);
		gcp_pools_stream_used(pools, 0x5000);
		fake.done = fake_submit();
		must_free(pools, addr);
	}
	return atomic_load(&gcp_map_find(pools->map, addr)->state) == GCP_BLOCK_CACHED;
}

/* Where fences cost a thread alone more than a little of its time mapped memory goes
 * round as segments do, if in smaller epochs; between kernels it need not. */
TEST(mapped_memory_circulates_where_fences_cost_too_much)
{
	struct gcp_pools *pools = mapped_pools();

	assert_true(mapped_loop_ends_cached(pools, MIB, MIB / 2, 0));
	assert_true(fake.records < 4000 / 3);
	assert_true(fake.memory_used <= (2 + 32) * MIB); /* 16 for each size */
	fake_finish(pools);
	fake_reset();
	pools = mapped_pools();
	assert_true(mapped_loop_ends_cached(pools, MIB, MIB, 0));
	assert_true(fake.memory_used <= (1 + 16) * MIB);
	fake_finish(pools);
	fake_reset();
	pools = mapped_pools();
	assert_false(mapped_loop_ends_cached(pools, MIB, MIB / 2, 200000));
	assert_true(fake.memory_used <= (1 + 4) * MIB);
	fake_finish(pools);
}

/* Of 640 allocations that find mapped memory ready, on one stream: what was closed is
 * asked for in every eighth, since what waits may be better used; and in every 64th for
 * the fences' own sake. `before`: how many there were before these. */
static uint64_t questions(int before)
{
	enum { COUNT = 640 };
	struct gcp_pools *pools = mapped_pools();
	struct gcp_pool *pool = fake_pool(pools);

	gcp_pools_stream_used(pools, 0x5000);
	gcp_addr small[COUNT + 50];
	for (int i = 0; i < COUNT + 50; i++)
		small[i] = must_alloc(pool, 2 * MIB);
	for (int i = 0; i < COUNT + 50; i++)
		must_free(pools, small[i]);
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	fake.done = fake.submitted;
	assert_int_equal(gcp_timeline_poll_all(pool), 0);
	gcp_addr addr = must_alloc(pool, MIB);
	fake_submit();
	fake.stuck = true;
	must_free(pools, addr);
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	for (int i = 0; i < before; i++)
		(void)must_alloc(pool, 2 * MIB);
	uint64_t queries = fake.queries;
	for (int i = 0; i < COUNT; i++)
		(void)must_alloc(pool, 2 * MIB);
	queries = fake.queries - queries;
	assert_int_equal(fake.done, 0);
	fake_finish(pools);
	return queries;
}

TEST(each_question_has_its_own_turn)
{
	for (int before = 0; before < 3; before++) {
		fake_reset();
		fake.memory_limit = 2048 * MIB;
		assert_in_range(questions(before), 80, 92);
	}
}

/* A real free waits for the context then, as plain CUDA's would, and for no more. */
TEST(no_more_than_a_few_windows_wait_while_held)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.window_bytes = MIB;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	gcp_pools_fences_hold(pools);
	fake.capturing = 1;
	for (int i = 0; i < 100; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);

		fake_submit();
		must_free(pools, addr);
	}
	assert_true(fake.memory_used <= 32 * MIB);
	assert_true(fake.frees >= 20 && fake.frees <= 60);
	assert_int_equal(fake.violations, 0);
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(pools, addr);
	if (must_alloc(pool, 3 * MIB) == addr)
		assert_true(fake.done >= work);
	fake.capturing = 0;
	gcp_pools_fences_release(pools);
	fake_finish(pools);
}

/* Small epochs fill the queue of fences behind work that goes on; then large blocks
 * come and go. */
TEST(no_more_than_may_be_pending_waits_behind_a_full_queue)
{
	struct gcp_config config;
	gcp_addr small[2 * GCP_FENCE_QUEUE];

	gcp_config_default(&config);
	config.window_bytes = 4096;
	config.thread_cache_bytes = 0;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	fake.several = true; /* no barriers */
	(void)must_alloc(pool, 16 * MIB);
	for (int i = 0; i < 2 * GCP_FENCE_QUEUE; i++)
		small[i] = must_alloc(pool, 2048);
	for (int i = 0; i < 2 * GCP_FENCE_QUEUE; i++) {
		fake_submit();
		must_free(pools, small[i]);
	}
	uint64_t before = fake.memory_used;
	for (int i = 0; i < 100; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);

		fake_submit();
		must_free(pools, addr);
	}
	assert_true(fake.memory_used <= before + 32 * MIB);
	fake_finish(pools);
}

/* One block at a time, while nothing completes and no barrier may be set: each takes
 * its own size, and not the run of its slab. */
TEST(small_blocks_that_wait_take_no_more_than_they_are)
{
	enum { BYTES = 64 << 10, COUNT = 500 };
	struct gcp_config config;

	gcp_config_default(&config);
	config.slab_max = BYTES;
	config.window_bytes = 1024 * MIB;
	config.window_blocks = 1 << 20;
	config.thread_cache_bytes = 0;
	config.epoch_blocks = 1;
	struct gcp_pools *pools = fake_pools(&config);

	for (int i = 0; i < COUNT; i++) {
		gcp_addr addr = must_alloc(fake_pool(pools), BYTES);

		fake_submit();
		must_free(pools, addr);
	}
	assert_true(fake.memory_used <= COUNT * BYTES + 4 * MIB);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* More blocks wait than are looked at for one that fits: the request is served by what
 * waits, and memory does not grow. */
TEST(what_waits_in_thousands_of_blocks_is_used)
{
	enum { BYTES = 64 << 10, COUNT = 8192 };
	static gcp_addr addrs[COUNT];
	struct gcp_pools *pools = mapped_pools();
	struct gcp_pool *pool = fake_pool(pools);

	fake.memory_limit = UINT64_MAX;
	for (int i = 0; i < COUNT; i++)
		addrs[i] = must_alloc(pool, BYTES);
	uint64_t before = fake.memory_used;
	for (uint64_t stream = 1; stream < 5; stream++)
		gcp_pools_stream_used(pools, 0x5000 * stream);
	fake.stuck = true;
	for (int i = 0; i < COUNT; i++) {
		if (i % 50 == 0)
			fake_submit();
		must_free(pools, addrs[i]);
	}
	(void)must_alloc(pool, (uint64_t)BYTES * COUNT / 4 * 3);
	assert_int_equal(fake.memory_used, before);
	assert_int_equal(fake.done, 0);
	fake.stuck = false;
	fake_finish(pools);
}
