/* SPDX-License-Identifier: MIT */
/*
 * test_fence.c - when may a freed block be used again? One test for each rule
 * of pool/timeline/fence.c; each fails when its rule is removed.
 */
#include "fake.h"

#include "../../pool/pool_types.h"
#include "cases.h"

#include <errno.h>

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)

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

TEST(completed_epochs_need_no_barrier)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	for (int i = 0; i < 100; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);

		fake_submit();
		must_free(pools, addr);
		fake.done = fake.submitted;
	}
	assert_int_equal(fake.orders, 0);
	assert_int_equal(fake.waits, 0);
	fake_finish(pools);
}

/* Blocks of 1 MiB in turn, on streams in turn, on a device that gets nothing done
 * by itself. A turn takes 20 us. */
static void keep_streams_busy(struct gcp_pools *pools, int streams, int turns)
{
	for (int i = 0; i < turns; i++) {
		gcp_addr addr = must_alloc(fake_pool(pools), 1 * MIB);

		fake_submit();
		gcp_pools_stream_used(pools, 0x5000 + 0x100 * (uint64_t)(i % streams));
		must_free(pools, addr);
		fake_pass(20 * 1000);
	}
}

/* A loop so quick that barriers would cost it much has a wider window, until it is
 * slower again. */
TEST(barriers_in_quick_succession_widen_the_window)
{
	struct gcp_pools *pools = fake_pools(NULL);

	for (int i = 0; i < 1000; i++) {
		gcp_addr addr = must_alloc(fake_pool(pools), 4 * MIB);

		fake_submit();
		gcp_pools_stream_used(pools, 0x5000);
		must_free(pools, addr);
		fake_pass(3 * 1000);
	}
	assert_true(fake.memory_used > 16 * MIB);
	assert_true(fake.memory_used <= 48 * MIB);
	assert_true(fake.orders <= 1000 / 3);
	keep_streams_busy(pools, 1, 1000);
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0);
	keep_streams_busy(pools, 1, 1000);
	assert_true(fake.memory_used <= 32 * MIB);
	fake_finish(pools);
}

TEST(streams_of_two_contexts_are_never_one)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *other;

	assert_int_equal(gcp_pool_get(pools, (void *)0x2000, 1, &other), 0);
	keep_streams_busy(pools, 1, 1000);
	assert_true(fake.memory_used > 32 * MIB);
	fake_finish(pools);
}

TEST(an_allocation_never_closes_an_epoch)
{
	struct gcp_config config = tight();
	gcp_addr addrs[16]; /* all of a segment */

	config.epoch_blocks = 1000;
	config.window_bytes = 1 << 30;
	config.window_blocks = 4;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	for (int i = 0; i < 16; i++)
		addrs[i] = must_alloc(pool, 1 * MIB);
	for (int i = 0; i < 8; i++)
		must_free(pools, addrs[i]); /* over the window, in an open epoch */
	/* A kernel that may spin until another one, launched after the next
	 * allocation, has run: it must not be put before that one. */
	uint64_t spinning = fake_submit();
	for (int i = 0; i < 30; i++)
		must_alloc(pool, 1 * MIB);
	assert_int_equal(fake.records, 0);
	assert_false(fake_is_ordered(spinning));
	fake_finish(pools);
}

TEST(no_fence_is_set_while_held)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	must_free(pools, must_alloc(pool, 3 * MIB));
	gcp_pools_fences_hold(pools);
	fake.capturing = 1;
	for (int i = 0; i < 50; i++) {
		fake_submit();
		must_free(pools, must_alloc(pool, i % 2 ? 3 * MIB : 4096));
	}
	assert_int_equal(fake.violations, 0);
	assert_true(must_stats(pools).deferred_frees >= 50);
	fake.capturing = 0;
	gcp_pools_fences_release(pools);
	uint64_t used = fake.memory_used;
	for (int i = 0; i < 50; i++)
		must_free(pools, must_alloc(pool, i % 2 ? 3 * MIB : 4096));
	assert_true(fake.memory_used <= used + 4 * MIB); /* what waited is used again */
	fake_finish(pools);
}

TEST(memory_is_found_while_held_by_a_real_free)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 30 * MIB);

	fake.memory_limit = 32 * MIB;
	gcp_pools_fences_hold(pools);
	fake.capturing = 1;
	uint64_t work = fake_submit();
	must_free(pools, addr);
	must_alloc(pool, 31 * MIB); /* fits only if the first is given back */
	assert_true(fake_is_ordered(work));
	fake.capturing = 0;
	gcp_pools_fences_release(pools);
	fake_finish(pools);
}

TEST(third_party_writers_get_only_completed_epochs)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	/* One block is ordered, not completed, when the library appears. */
	gcp_addr ordered = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(pools, ordered);
	for (int i = 0; i < 100 && fake.orders == 0; i++)
		must_free(pools, must_alloc(pool, 3 * MIB));
	assert_true(fake_is_ordered(work));
	fake.third_party = true;
	for (int i = 0; i < 20; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);

		work = fake_submit();
		must_free(pools, addr);
		if (must_alloc(pool, 3 * MIB) == addr)
			assert_true(work <= fake.done);
	}
	assert_true(fake.waits > 0);
	fake_finish(pools);
}

/* What is ordered in one context is waited for when the need shows in another. */
TEST(third_party_writers_end_the_order_of_all_contexts)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *one = fake_pool(pools), *two;

	assert_int_equal(gcp_pool_get(pools, (void *)0x2000, 0, &two), 0);
	gcp_addr waits = must_alloc(two, 3 * MIB);
	fake_submit();
	must_free(pools, waits);
	gcp_addr first = must_alloc(one, 3 * MIB), second = must_alloc(one, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(pools, first);
	must_free(pools, second);
	for (int i = 0; i < 100 && fake.orders == 0; i++)
		must_alloc(one, 3 * MIB);
	assert_true(work > fake.done);
	fake.third_party = true;
	for (int i = 0; i < 8; i++)
		must_alloc(two, 3 * MIB);
	assert_true(work <= fake.done);
	fake_finish(pools);
}

TEST(complete_waits_for_an_ordered_block)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr first = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();

	must_free(pools, first);
	gcp_addr again = must_alloc(pool, 3 * MIB);
	for (int i = 0; i < 8 && again != first; i++)
		again = must_alloc(pool, 3 * MIB);
	if (again == first) {
		assert_true(work > fake.done);
		assert_int_equal(gcp_pools_complete(pools, again), 0);
		assert_true(work <= fake.done);
	}
	assert_int_equal(again, first);
	assert_int_equal(gcp_pools_complete(pools, 0xdead0000), -ENOENT);
	fake_finish(pools);
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
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	joined_with = 0;
	gcp_pools_context_joined(pools, (void *)0x2000, order_joined);
	assert_int_equal(joined_with, 0); /* no barrier yet */
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();
	must_free(pools, addr);
	for (int i = 0; i < 100 && fake.orders == 0; i++)
		must_alloc(pool, 3 * MIB);
	gcp_pools_context_joined(pools, (void *)0x2000, order_joined);
	assert_int_equal(joined_with, 1);
	assert_true(joined_covers >= work);
	fake_finish(pools);
}

/* It takes nothing more, and what is freed there waits, as on plain CUDA. */
TEST(a_context_where_fences_fail_passes_through)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addrs[8], none;

	fake.record_result = 801; /* not supported */
	for (int i = 0; i < 8; i++)
		addrs[i] = must_alloc(pool, 3 * MIB);
	for (int i = 0; i < 8; i++) {
		uint64_t work = fake_submit();

		must_free(pools, addrs[i]);
		assert_true(work <= fake.done);
	}
	assert_int_equal(gcp_pool_alloc(pool, 3 * MIB, &none), -ENOTSUP);
	assert_int_equal(fake.records, 1);
	assert_true(fake.syncs > 0);
	assert_int_equal(fake.memory_used, 32 * MIB);
	assert_int_equal(gcp_pools_trim_completed(pools, -1, 0), 32 * MIB);
	fake_finish(pools);
}

/* By a capture that the library was not told of. What no fence covers counts as before:
 * also where an allocation asked for the fence. */
TEST(what_a_refused_fence_leaves_open_goes_on_counting)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 64 << 20);
	int64_t filled;

	fake_submit();
	fake.record_result = 900;
	must_free(pools, addr);
	filled = gcp_timeline_filled(&pool->timeline);
	assert_int_equal(filled, 64 << 20);
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	assert_int_equal(gcp_timeline_filled(&pool->timeline), filled);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(gcp_timeline_close_early(pool, false), 0);
		assert_int_equal(gcp_timeline_filled(&pool->timeline), filled);
	}
	fake.record_result = 0;
	assert_int_equal(gcp_timeline_close(pool, gcp_timeline_stamp(pool)), 0);
	assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);
	assert_int_equal(atomic_load(&pool->timeline.pending_bytes), filled);
	fake.done = fake.submitted;
	fake_finish(pools);
}

TEST(a_sticky_error_reaches_the_program)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 3 * MIB);

	fake_submit();
	must_free(pools, addr);
	fake.fence_result = 700;
	assert_int_equal(gcp_pool_alloc(pool, 30 * MIB, &addr), 700);
	fake.fence_result = 0;
	fake_finish(pools);
}

TEST(a_barrier_makes_nothing_ready_where_only_completion_counts)
{
	struct gcp_config config = tight();

	config.completed_only = true;
	config.window_bytes = 64 * MIB;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 3 * MIB);
	uint64_t work = fake_submit();

	must_free(pools, addr);
	assert_int_equal(gcp_pool_barrier(pool), 0); /* as at the end of a capture */
	assert_true(fake_is_ordered(work));
	for (int i = 0; i < 8; i++)
		assert_true(must_alloc(pool, 3 * MIB) != addr || work <= fake.done);
	fake_finish(pools);
}

TEST(where_a_context_cannot_wait_the_heap_grows)
{
	struct gcp_config config = tight();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);

	fake.order_result = 700; /* some other device is lost */
	for (int i = 0; i < 20; i++) {
		gcp_addr addr = must_alloc(pool, 3 * MIB);
		uint64_t work = fake_submit();

		must_free(pools, addr);
		assert_true(must_alloc(pool, 3 * MIB) != addr || work <= fake.done);
	}
	fake_finish(pools);
}

/* More epochs than the queue holds, none of them ever done by itself. */
TEST(a_full_queue_of_fences_is_waited_for)
{
	struct gcp_config config = tight();
	gcp_addr addrs[1500];

	config.window_bytes = 1ull << 40;
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_pool *pool = fake_pool(pools);
	fake.memory_limit = 1500 * 16 * MIB;
	for (int i = 0; i < 1500; i++)
		addrs[i] = must_alloc(pool, 16 * MIB);
	for (int i = 0; i < 1500; i++) {
		fake_submit();
		must_free(pools, addrs[i]);
	}
	must_alloc(pool, 1500ull * 16 * MIB);
	assert_true(fake.waits > 0);
	fake_finish(pools);
}
