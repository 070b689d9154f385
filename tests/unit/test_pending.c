/* SPDX-License-Identifier: MIT */
/*
 * test_pending.c - the order of freed blocks that wait for their epochs
 * (pool/heap/pending.c).
 */
#include "../../pool/pool_types.h"
#include "fake.h"
#include "cases.h"

#define TEST(name) CASE(name, setup, teardown)

enum { EACH = 200, SIZE = 4096 };

static struct gcp_block blocks[EACH];
static struct gcp_heap *heap;

static int setup(void **state)
{
	fake_setup_open(state);
	heap = &pool->common;
	for (int i = 0; i < EACH; i++)
		blocks[i] = (struct gcp_block){.size = SIZE};
	gcp_mutex_lock(&heap->pool->lock);
	return 0;
}

static int teardown(void **state)
{
	struct gcp_block_list list = TAILQ_HEAD_INITIALIZER(list);

	gcp_pending_take_all(heap, &list);
	gcp_mutex_unlock(&heap->pool->lock);
	return fake_close(state);
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

TEST(the_order_holds_whatever_comes_and_goes)
{
	for (int i = 0; i < EACH; i++) {
		add(&blocks[i], 100 + (uint64_t)(i * 7 % 31));
		must_be_ordered(i + 1);
	}
	for (int i = 0; i < EACH; i++) {
		gcp_pending_remove(heap, &blocks[i * 11 % EACH]);
		must_be_ordered(EACH - 1 - i);
	}
	assert_int_equal(heap->pending_bytes, 0);
}
