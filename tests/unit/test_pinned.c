/* SPDX-License-Identifier: MIT */
/*
 * test_pinned.c - pinned host memory: frees that block, and blocks of another node.
 */
#include "pinned_scene.h"
#include "cases.h"

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
	assert_int_equal(gcp_pinned_set_create(pools, &set), 0);
	assert_int_equal(gcp_pinned_alloc(pool, 4 * KIB, 0, set, &p), 0);
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
