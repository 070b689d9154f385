/* SPDX-License-Identifier: MIT */
/*
 * test_pinned.c - pinned host memory: frees that block, blocks of another node, fences
 * that fail, and whose error it is.
 */
#include "fake_pinned.h"

#include "cases.h"

#define KIB (1ull << 10)

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

/* A configuration for one test, which opens the pools anew. */
static struct gcp_config configured(void)
{
	struct gcp_config config;

	gcp_pools_destroy(pools);
	fake_reset();
	gcp_config_default(&config);
	return config;
}

#define TEST(name) CASE(name, fake_setup_open, teardown)

/* As plain CUDA does: for the block's own context and no other, whose work may keep
 * older epochs open. */
TEST(a_free_that_blocks_waits_for_its_own_epoch)
{
	struct gcp_config config = configured();
	void *p, *q;

	config.blocking_free = true;
	fake_open(&config);
	p = take(4 * KIB);
	q = take(4 * KIB);
	fake_pinned.other_submitted++;
	fake_submit();
	give(p);
	assert_int_equal(fake.done, fake.submitted);
	fake_submit();
	give(q);
	assert_int_equal(fake.done, fake.submitted);
	assert_int_equal(fake_pinned.other_done, 0);
}

/* Also of a block that a graph may address, and that stays with it. */
TEST(a_free_that_blocks_waits_beside_graphs)
{
	struct gcp_config config = configured();
	struct gcp_pinned_set *set;
	void *p;

	config.blocking_free = true;
	fake_open(&config);
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

/* They were thought to work, and do not: the driver frees, and waits as it does. */
TEST(where_fences_fail_the_driver_frees)
{
	void *p = take(MIB), *q = take(MIB), *none;

	fake_pinned.record_result = 801;
	/* One of these finds out, which is no error of the program's. */
	give(p);
	if (gcp_pinned_alloc(pool, MIB, 0, NULL, &none) == 0)
		give(none);
	assert_int_equal(gcp_pinned_alloc(pool, MIB, 0, NULL, &none), -ENOSYS);
	give(q);
	assert_int_equal(fake_pinned.used, 0);
	must_be_sound();
}

TEST(a_capture_that_was_not_told_of_is_no_failure)
{
	void *p = take(MIB), *q;

	fake_pinned.record_result = 900;
	give(p);
	q = take(MIB);
	assert_ptr_not_equal(q, p);
	fake_pinned.record_result = 0;
	assert_ptr_equal(take(MIB), p);
	give(p);
	give(q);
}

static void open_with_a_fence_for_each_free(uint64_t window)
{
	struct gcp_config config = configured();

	config.pinned_epoch_blocks = 1;
	config.pinned_window = window;
	fake_open(&config);
}

/* But what the block's own context reports belongs to the program's call. */
TEST(a_sticky_error_is_handed_on)
{
	void *p, *q, *none;

	open_with_a_fence_for_each_free(MIB);
	p = take(MIB);
	q = take(MIB);
	fake_pinned.record_result = 719;
	fake_pinned.free_result = 719;
	assert_int_equal(gcp_pinned_free(pools, p), 719);
	assert_int_equal(gcp_pinned_alloc(pool, MIB, 0, NULL, &none), -ENOSYS);
	assert_int_equal(gcp_pinned_free(pools, q), 719);
	assert_int_equal(fake_pinned.used, 0);
}

/* A fence is in every context. Which one the error is of only the driver knows. */
TEST(the_error_of_another_context_is_not_the_frees)
{
	void *p, *q;

	open_with_a_fence_for_each_free(MIB);
	p = take(MIB);
	q = take(MIB);
	fake_pinned.record_result = 719;
	give(p);
	give(q);
	assert_int_equal(fake_pinned.used, 0);
	must_be_sound();
}

TEST(the_error_of_another_context_is_not_the_allocations)
{
	void *p = take(MIB), *q = NULL;

	fake_submit();
	give(p);
	fake_pinned.record_result = 719;
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &q));
	assert_ptr_not_equal(q, p);
	give(q);
}

/* Where a free waits for what is pending. */
TEST(the_error_of_another_context_is_no_wait_s)
{
	void *blocks[4];

	open_with_a_fence_for_each_free(2 * MIB);
	for (int i = 0; i < 4; i++)
		blocks[i] = take(MIB);
	fake_pinned.query_result = 719;
	for (int i = 0; i < 4; i++)
		give(blocks[i]);
	assert_true(fake_pinned.waits > 0);
	fake_pinned.query_result = 0;
}

/* It may have been the one that could not be asked. */
TEST(fences_are_tried_again_when_a_context_has_ended)
{
	struct gcp_pool *other;
	void *p, *q;

	open_with_a_fence_for_each_free(MIB);
	OK(gcp_pool_get(pools, (void *)0x2000, 1, &other));
	p = take(MIB);
	fake_pinned.record_result = 719;
	give(p);
	assert_int_equal(gcp_pinned_alloc(pool, MIB, 0, NULL, &q), -ENOSYS);
	fake_pinned.record_result = 0;
	gcp_pool_reset(pools, (void *)0x2000);
	p = take(MIB);
	give(p);
	assert_ptr_equal(take(MIB), p);
	give(p);
}

/* It may be another context's. What the driver says of new memory counts. */
TEST(the_error_of_a_fence_that_is_asked_is_not_the_calls)
{
	struct gcp_config config = configured();
	void *p, *q = NULL;

	config.pinned_epoch_blocks = 1;
	fake_open(&config);
	p = take(MIB);
	fake_submit();
	give(p);
	fake.calls = 0;
	fake.fail_at = 1;
	fake.fail_code = 700;
	OK(gcp_pinned_alloc(pool, MIB, 0, NULL, &q));
	assert_ptr_not_equal(q, p);
	fake.fail_at = 0;
	give(q);
}
