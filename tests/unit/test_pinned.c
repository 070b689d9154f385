/* SPDX-License-Identifier: MIT */
/*
 * test_pinned.c - pinned host memory: when a freed block may be given out again, and to
 * which thread.
 */
#include "pinned_scene.h"
#include "cases.h"

/* --- reuse --- */

TEST(an_allocation_never_waits)
{
	void *blocks[64];

	for (int i = 0; i < 64; i++) {
		blocks[i] = take(16 * MIB);
		fake_submit();
	}
	fake_pinned.waits = 0;
	for (int i = 0; i < 8; i++)
		give(blocks[i]);
	for (int i = 0; i < 8; i++)
		blocks[i] = take(16 * MIB);
	assert_int_equal(fake_pinned.waits, 0);
	fake.done = fake.submitted;
	for (int i = 0; i < 64; i++)
		give(blocks[i]);
}

/* The window bounds what is freed and not done, by waiting in the free; and only for
 * the block's own context, as plain CUDA does. */
TEST(a_free_beyond_the_window_waits_for_the_oldest)
{
	struct gcp_config config = configured();
	void *blocks[16];

	config.pinned_window = 4 * MIB;
	open_with(&config);
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	for (int i = 0; i < 16; i++) {
		uint64_t before = fake.done;

		fake_submit();
		give(blocks[i]);
		if (i < 4)
			assert_int_equal(fake.done, before);
	}
	assert_true(fake_pinned.waits > 0);
	assert_true(fake.done >= 11); /* the oldest ones */
	assert_true(fake.done < 16);  /* and no more than that */
	assert_true(stats().waits > 0);
}

TEST(a_free_does_not_wait_for_other_contexts)
{
	struct gcp_config config = configured();
	void *blocks[16];

	config.pinned_window = 4 * MIB;
	open_with(&config);
	for (int i = 0; i < 16; i++)
		blocks[i] = take(MIB);
	fake_pinned.other_submitted = 1;
	for (int i = 0; i < 16; i++)
		give(blocks[i]);
	assert_int_equal(fake_pinned.other_done, 0);
}

/* As plain CUDA does: for the block's own context and no other, whose work may keep
 * older epochs open. */
TEST(a_free_that_blocks_waits_for_its_own_epoch)
{
	struct gcp_config config = configured();
	void *p, *q;

	config.blocking_free = true;
	open_with(&config);
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
	open_with(&config);
	assert_int_equal(gcp_pinned_set_create(pools, &set), 0);
	assert_int_equal(gcp_pinned_alloc(pool, 4 * KIB, 0, set, &p), 0);
	fake_submit();
	give(p);
	assert_int_equal(fake.done, fake.submitted);
	gcp_pinned_set_release(set);
}

/* --- kinds --- */

TEST(a_block_keeps_its_flags)
{
	void *p = take_as(pool, 4 * KIB, 4), *q;

	give(p);
	q = take_as(pool, 4 * KIB, 0);
	assert_ptr_not_equal(q, p);
	assert_ptr_equal(take_as(pool, 4 * KIB, 4), p);
	give(p);
	give(q);
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

TEST(a_block_stays_in_its_context)
{
	struct gcp_pool *other;
	void *p = take(4 * KIB), *q;

	assert_int_equal(gcp_pool_get(pools, (void *)0x2000, 1, &other), 0);
	give(p);
	q = take_as(other, 4 * KIB, 0);
	assert_ptr_not_equal(q, p);
	give(q);
}

TEST(memory_goes_with_its_context)
{
	void *held = take(4 * KIB), *freed = take(4 * KIB), *fresh;
	uint64_t allocs;

	give(freed);
	gcp_pool_reset(pools, FAKE_CTX);
	must_be_sound(pools);
	assert_int_equal(fake_pinned.frees, 0); /* the context took it */
	assert_int_equal(gcp_pinned_free(pools, held), -ENOENT);
	assert_int_equal(gcp_pinned_free(pools, freed), -ENOENT);
	assert_int_equal(stats().active_requests.current, 0);
	assert_int_equal(stats().allocated_bytes.current, 0);
	pool = fake_pool(pools);
	allocs = fake_pinned.allocs;
	fresh = take(4 * KIB);
	assert_int_equal(fake_pinned.allocs, allocs + 1);
	give(fresh);
	fake_pinned.blocks -= 2; /* what the context took */
}

/* --- sizes --- */

static uint64_t size_for(uint64_t bytes)
{
	uint64_t before = fake_pinned.used, size;
	void *p = take(bytes);

	size = fake_pinned.used - before;
	give(p);
	gcp_pinned_trim(pools, 0);
	return size;
}

TEST(sizes_are_powers_of_two_and_then_finer)
{
	assert_int_equal(size_for(1), 512);
	assert_int_equal(size_for(512), 512);
	assert_int_equal(size_for(513), 1024);
	assert_int_equal(size_for(600 * KIB), MIB);
	assert_int_equal(size_for(MIB), MIB);
	assert_int_equal(size_for(MIB + 1), MIB + 128 * KIB);
	assert_int_equal(size_for(2 * MIB), 2 * MIB);
	assert_int_equal(size_for(2 * MIB + 1), 2 * MIB + 256 * KIB);
	assert_int_equal(size_for(1000 * MIB), 1024 * MIB - 0 * MIB);
	for (uint64_t bytes = 700; bytes < 100 * MIB; bytes += bytes / 7) {
		uint64_t size = size_for(bytes);

		assert_true(size >= bytes);
		if (bytes > MIB)
			assert_true(size - bytes <= bytes / 8 + 512);
		assert_int_equal(size_for(size), size);
	}
}

TEST(steps_and_threshold_are_the_options)
{
	struct gcp_config config = configured();

	config.pinned_pow2_max = 4 * KIB;
	config.pinned_steps = 3;
	open_with(&config);
	for (uint64_t bytes = 700; bytes < 3 * MIB; bytes += bytes / 9) {
		uint64_t size = size_for(bytes);

		assert_true(size >= bytes);
		if (bytes > 4 * KIB)
			assert_true(size - bytes <= bytes / 3 + 512);
	}
}
