/* SPDX-License-Identifier: MIT */
/*
 * test_pinned.c - pinned host memory: frees that block, blocks of another node, fences
 * that fail.
 */
#include "fake_pinned.h"

#include "cases.h"

#define KIB (1ull << 10)
#define GIB (1ull << 30)

static void *take(uint64_t bytes)
{
	void *p = NULL;

	OK(gcp_pinned_alloc(pool, bytes, 0, NULL, &p));
	assert_non_null(p);
	return p;
}

static void give(void *p)
{
	OK(gcp_pinned_free(pools, p));
}

static int teardown(void **state)
{
	fake_close(state);
	assert_int_equal(fake_pinned.blocks, 0);
	return 0;
}

/* Opens the pools anew for one test: so much may wait; what is idle for a second goes
 * back. */
static void open_with(uint64_t window, bool blocking)
{
	struct gcp_config config;

	gcp_pools_destroy(pools);
	fake_reset();
	gcp_config_default(&config);
	config.pinned_window = window;
	config.blocking_free = blocking;
	config.decay_ms = 1000;
	fake_open(&config);
}

#define TEST(name) CASE(name, fake_setup_open, teardown)

/* As plain CUDA does. */
TEST(a_free_that_blocks_waits_for_its_own_epoch)
{
	void *p, *q;

	open_with(GIB, true);
	p = take(4 * KIB);
	q = take(4 * KIB);
	fake_submit();
	give(p);
	assert_int_equal(fake.done, fake.submitted);
	fake_submit();
	give(q);
	assert_int_equal(fake.done, fake.submitted);
}

/* Also of a block that a graph may address, and that stays with it. */
TEST(a_free_that_blocks_waits_beside_graphs)
{
	struct gcp_pinned_set *set;
	void *p;

	open_with(GIB, true);
	OK(gcp_pinned_set_create(pools, &set));
	OK(gcp_pinned_alloc(pool, 4 * KIB, 0, set, &p));
	fake_submit();
	give(p);
	assert_int_equal(fake.done, fake.submitted);
	gcp_pinned_set_release(set);
}

TEST(a_block_stays_on_its_node)
{
	void *p = take(4 * KIB), *q;

	give(p);
	fake_pinned.place = 2;
	q = take(4 * KIB);
	assert_ptr_not_equal(q, p);
	give(q);
	fake_pinned.place = 0;
	assert_ptr_equal(take(4 * KIB), p);
	give(p);
}

/* --- errors ----------------------------------------------------------------------- */

TEST(a_capture_that_was_not_told_of_is_no_failure)
{
	void *p = take(MIB), *q;

	fake.record_result = 900;
	give(p);
	q = take(MIB);
	assert_ptr_not_equal(q, p);
	fake.record_result = 0;
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
}

/* No fence can be set: the driver frees, waits as it does, and gives `result`. */
static void free_without_fences(int result)
{
	void *p, *q;

	open_with(MIB, false);
	p = take(MIB);
	q = take(MIB);
	fake.record_result = 719;
	fake_pinned.free_result = result;
	assert_int_equal(gcp_pinned_free(pools, p), result);
	assert_int_equal(gcp_pinned_free(pools, q), result);
	assert_int_equal(fake_pinned.used, 0);
	must_be_sound();
}

/* But what the block's own context reports belongs to the program's call. */
TEST(a_sticky_error_is_handed_on)
{
	free_without_fences(719);
}

TEST(where_no_fence_can_be_set_the_driver_frees)
{
	free_without_fences(0);
}

TEST(the_error_of_a_fence_is_not_the_allocations)
{
	void *p = take(MIB), *q = NULL;

	fake_submit();
	give(p);
	fake.record_result = 719;
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &q));
	assert_ptr_not_equal(q, p);
	give(q);
}

/* What the driver says of new memory counts. */
TEST(the_error_of_a_fence_that_is_asked_is_not_the_calls)
{
	void *p, *q = NULL;

	open_with(GIB, false);
	p = take(MIB);
	fake_submit();
	give(p);
	fake.fence_result = 700;
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &q));
	assert_ptr_not_equal(q, p);
	fake.fence_result = 0;
	give(q);
}

/* --- what goes back --------------------------------------------------------------- */

/* What is held is bounded by what was ever in use, whatever a program counts anew. */
TEST(a_peak_that_is_reset_gives_nothing_back)
{
	open_with(MIB, false);
	void *p = take(2 * MIB), *q = take(MIB / 2);

	give(p);
	gcp_pinned_reset_peaks(pools);
	give(q);
	assert_int_equal(fake_pinned.blocks, 2);
	gcp_pinned_trim(pools, 0, false);
}

/* --- decay ------------------------------------------------------------------------ */

/* What nothing has used for a second goes back in a later free, and what is used again
 * within it stays. Frees of device memory count, too. */
TEST(what_is_idle_goes_back)
{
	open_with(GIB, false);
	void *idle = take(2 * MIB), *used = take(MIB);

	give(idle);
	for (int i = 0; i < 30; i++) {
		give(used);
		fake.done = fake_submit();
		fake_pass(100 * 1000 * 1000);
		assert_ptr_equal(take(MIB), used);
		if (i == 7)
			assert_int_equal(fake_pinned.used, 3 * MIB);
	}
	assert_int_equal(fake_pinned.used, MIB);
	give(used);
	for (int i = 0; i < 30; i++) {
		must_free(must_alloc(pool, 20 * MIB));
		fake_pass(100 * 1000 * 1000);
	}
	assert_int_equal(fake_pinned.used, 0);
}

/* Epochs that frees of pinned memory close do not keep device memory from going back,
 * which frees of device memory do when they close one. */
TEST(idle_device_memory_goes_back_beside_pinned_frees)
{
	open_with(GIB, false);
	gcp_addr addr = must_alloc(pool, 64 * MIB);

	must_free(must_alloc(pool, 64 * MIB));
	must_free(addr);
	for (int i = 0; i < 60; i++) {
		must_free(must_alloc(pool, 4 * MIB));
		give(take(MIB));
		fake.done = fake_submit();
		fake_pass(100 * 1000 * 1000);
	}
	assert_true(fake.memory_used < 128 * MIB);
}
