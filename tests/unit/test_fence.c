/* SPDX-License-Identifier: MIT */
/*
 * test_fence.c - when may a freed block be used again? One test for each rule
 * of pool/timeline/fence.c; each fails when its rule is removed.
 */
#include "fake.h"

#include "cases.h"

/* No window, an epoch for each free: the strictest and the least memory. */
static struct gcp_config tight(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.window_bytes = 0;
	config.window_blocks = 1;
	config.epoch_blocks = 1;
	return config;
}

static int setup_tight(void **state)
{
	struct gcp_config config = tight();

	fake_setup(state);
	fake_open(&config);
	return 0;
}

#define TEST(name) CASE(name, setup_tight, fake_close)

/* Blocks of 1 MiB in turn, on streams in turn, on a device that gets nothing done
 * by itself. A turn takes 20 us. */
static void keep_streams_busy(int streams, int turns)
{
	for (int i = 0; i < turns; i++) {
		gcp_addr addr = must_alloc(pool, 1 * MIB);

		fake_submit();
		gcp_pools_stream_used(pools, 0x5000 + 0x100 * (uint64_t)(i % streams));
		must_free(addr);
		fake_pass(20 * 1000);
	}
}

/* A loop so quick that barriers would cost it much has a wider window, until it is
 * slower again. */
CASE(barriers_in_quick_succession_widen_the_window, fake_setup_open, fake_close)
{
	for (int i = 0; i < 1000; i++) {
		gcp_addr addr = must_alloc(pool, 4 * MIB);

		fake_submit();
		gcp_pools_stream_used(pools, 0x5000);
		must_free(addr);
		fake_pass(3 * 1000);
	}
	assert_true(fake.memory_used > 8 * MIB);
	assert_true(fake.memory_used <= 48 * MIB);
	assert_true(fake.orders <= 1000 / 3);
	keep_streams_busy(1, 1000);
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0, true);
	keep_streams_busy(1, 1000);
	assert_true(fake.memory_used <= 32 * MIB);
}

CASE(an_allocation_never_closes_an_epoch, fake_setup, fake_close)
{
	struct gcp_config config = tight();
	gcp_addr addrs[16]; /* all of a segment */

	config.epoch_blocks = 1000;
	config.window_bytes = 1 << 30;
	config.window_blocks = 4;
	fake_open(&config);
	for (int i = 0; i < 16; i++)
		addrs[i] = must_alloc(pool, 1 * MIB);
	for (int i = 0; i < 8; i++)
		must_free(addrs[i]); /* over the window, in an open epoch */
	/* A kernel that may spin until another one, launched after the next
	 * allocation, has run: it must not be put before that one. */
	uint64_t spinning = fake_submit();
	for (int i = 0; i < 30; i++)
		must_alloc(pool, 1 * MIB);
	assert_int_equal(fake.records, 0);
	assert_false(fake_is_ordered(spinning));
}

TEST(third_party_writers_get_only_completed_epochs)
{
	/* One block is ordered, not completed, when the library appears. */
	gcp_addr ordered = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(ordered);
	for (int i = 0; i < 100 && fake.orders == 0; i++)
		must_free(must_alloc(pool, 3 * MIB));
	assert_true(fake_is_ordered(work));
	fake.third_party = true;
	for (int i = 0; i < 20; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);

		work = fake_submit();
		must_free(addr);
		if (must_alloc(pool, 3 * MIB) == addr)
			assert_true(work <= fake.done);
	}
	assert_true(fake.waits > 0);
}

static int joined_with;
static uint64_t joined_covers;
static int order_joined(void *ctx, void *fence)
{
	joined_with = ctx == (void *)0x2000;
	joined_covers = *(uint64_t *)fence;
	return 0;
}

TEST(a_new_context_stands_behind_barriers_that_are_set)
{
	joined_with = 0;
	gcp_pools_context_joined(pools, (void *)0x2000, order_joined);
	assert_int_equal(joined_with, 0); /* no barrier yet */
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(addr);
	for (int i = 0; i < 100 && fake.orders == 0; i++)
		must_alloc(pool, 3 * MIB);
	gcp_pools_context_joined(pools, (void *)0x2000, order_joined);
	assert_int_equal(joined_with, 1);
	assert_true(joined_covers >= work);
}

/* It takes nothing more, and what is freed there waits, as on plain CUDA. */
TEST(a_context_where_fences_fail_passes_through)
{
	gcp_addr addrs[8], none;

	fake.record_result = 801; /* not supported */
	for (int i = 0; i < 8; i++)
		addrs[i] = must_alloc(pool, 3 * MIB);
	for (int i = 0; i < 8; i++) {
		uint64_t work = fake_submit();

		must_free(addrs[i]);
		assert_true(work <= fake.done);
	}
	assert_int_equal(gcp_pool_alloc(pool, 3 * MIB, &none), -ENOTSUP);
	assert_int_equal(fake.records, 1);
	assert_int_equal(fake.memory_used, 32 * MIB);
	assert_int_equal(gcp_pools_trim(pools, -1, 0, false), 32 * MIB);
}

TEST(a_sticky_error_reaches_the_program)
{
	gcp_addr addr = must_alloc(pool, 3 * MIB);

	fake_submit();
	must_free(addr);
	fake.fence_result = 700;
	assert_int_equal(gcp_pool_alloc(pool, 30 * MIB, &addr), 700);
	fake.fence_result = 0;
}

TEST(where_a_context_cannot_wait_the_heap_grows)
{
	fake.order_result = 700; /* some other device is lost */
	for (int i = 0; i < 20; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);
		uint64_t work = fake_submit();

		must_free(addr);
		assert_true(must_alloc(pool, 3 * MIB) != addr || work <= fake.done);
	}
}
