/* SPDX-License-Identifier: MIT */
/*
 * test_pending.c - freed blocks that wait for their epochs (pool/heap/pending.c): their
 * order, and how many are looked at to find a block's place.
 */
#include "../../pool/pool_types.h"
#include "fake.h"
#include "watched_pages.h"
#include "cases.h"

#define TEST(name) CASE(name, setup, teardown)

enum { EPOCHS = 8, EACH = 200, MANY = EPOCHS * EACH, LOOKS = EPOCHS + 6, SIZE = 4096 };

static struct gcp_block *blocks[MANY + 1];
static struct gcp_pools *pools;
static struct gcp_heap *heap;

static int setup(void **state)
{
	(void)state;
	fake_reset();
	pools = fake_pools(NULL);
	heap = &fake_pool(pools)->common;
	watched.count = 0;
	for (int i = 0; i <= MANY; i++) {
		blocks[i] = watched_page();
		blocks[i]->size = SIZE;
	}
	gcp_mutex_lock(&heap->pool->lock);
	return 0;
}

static int teardown(void **state)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);

	(void)state;
	gcp_pending_take_all(heap, &list);
	gcp_mutex_unlock(&heap->pool->lock);
	for (int i = 0; i <= MANY; i++)
		free(blocks[i]);
	fake_finish(pools);
	return 0;
}

static void add(struct gcp_block *block, uint64_t epoch)
{
	block->epoch = epoch;
	gcp_pending_add(heap, block);
}

/* All that wait, by their epochs, and the last of each epoch. */
static void must_be_ordered(int count)
{
	const struct gcp_block *block, *end = TAILQ_FIRST(&heap->pending_ends);

	TAILQ_FOREACH (block, &heap->pending, link) {
		const struct gcp_block *next = TAILQ_NEXT(block, link);

		count--;
		assert_true(!next || next->epoch >= block->epoch);
		if (next && next->epoch == block->epoch)
			continue;
		assert_ptr_equal(end, block);
		end = TAILQ_NEXT(end, end);
	}
	assert_null(end);
	assert_int_equal(count, 0);
}

TEST(a_place_is_found_by_passing_epochs)
{
	for (int i = 0; i < MANY; i++)
		add(blocks[i], 100 + 2 * (uint64_t)(i / EACH));
	for (uint64_t epoch = 99; epoch <= 100 + 2 * EPOCHS; epoch++) {
		watch_begin();
		add(blocks[MANY], epoch);
		watch_end();
		assert_in_range(watched.looks, 0, LOOKS);
		must_be_ordered(MANY + 1);
		watch_begin();
		gcp_pending_remove(heap, blocks[MANY]);
		watch_end();
		assert_in_range(watched.looks, 0, LOOKS);
		must_be_ordered(MANY);
	}
}

TEST(the_order_holds_whatever_comes_and_goes)
{
	for (int i = 0; i < EACH; i++) {
		add(blocks[i], 100 + (uint64_t)(i * 7 % 31));
		must_be_ordered(i + 1);
	}
	for (int i = 0; i < EACH; i++) {
		gcp_pending_remove(heap, blocks[i * 11 % EACH]);
		must_be_ordered(EACH - 1 - i);
	}
	assert_int_equal(heap->pending_bytes, 0);
}
