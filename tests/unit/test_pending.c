/* SPDX-License-Identifier: MIT */
/*
 * test_pending.c - freed blocks that wait for their epochs (pool/heap/pending.c): their
 * order, and how many are looked at to find a block's place. Each lies in a page of its
 * own that cannot be read, so that a look at it is a fault, which is counted.
 */
#include "../../pool/pool_types.h"
#include "fake.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EPOCHS = 8, EACH = 200, MANY = EPOCHS * EACH, LOOKS = EPOCHS + 6, SIZE = 4096 };

static struct {
	struct gcp_block *blocks[MANY + 1];
	size_t bytes; /* of one page */
	size_t looks;
	struct sigaction before;
} watched;

static struct gcp_pools *pools;
static struct gcp_heap *heap;

static int setup(void **state)
{
	(void)state;
	fake_reset();
	pools = fake_pools(NULL);
	heap = &fake_pool(pools)->common;
	watched.bytes = (size_t)sysconf(_SC_PAGESIZE);
	for (int i = 0; i <= MANY; i++) {
		void *p = NULL;

		assert_int_equal(posix_memalign(&p, watched.bytes, watched.bytes), 0);
		watched.blocks[i] = memset(p, 0, watched.bytes);
		watched.blocks[i]->size = SIZE;
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
		free(watched.blocks[i]);
	fake_finish(pools);
	return 0;
}

static void protect_all(int protection)
{
	for (int i = 0; i < MANY; i++)
		mprotect(watched.blocks[i], watched.bytes, protection);
}

static void looked_at(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;

	(void)context;
	if (++watched.looks > MANY) /* another fault, again and again */
		signal(number, SIG_DFL);
	mprotect((void *)(at - at % watched.bytes), watched.bytes,
		 PROT_READ | PROT_WRITE);
}

static void watch_begin(void)
{
	struct sigaction action = {.sa_sigaction = looked_at, .sa_flags = SA_SIGINFO};

	watched.looks = 0;
	sigaction(SIGSEGV, &action, &watched.before);
	protect_all(PROT_NONE);
}

static void watch_end(void)
{
	sigaction(SIGSEGV, &watched.before, NULL);
	protect_all(PROT_READ | PROT_WRITE);
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

static void a_place_is_found_by_passing_epochs(void **state)
{
	(void)state;
	for (int i = 0; i < MANY; i++)
		add(watched.blocks[i], 100 + 2 * (uint64_t)(i / EACH));
	for (uint64_t epoch = 99; epoch <= 100 + 2 * EPOCHS; epoch++) {
		watch_begin();
		add(watched.blocks[MANY], epoch);
		watch_end();
		assert_in_range(watched.looks, 0, LOOKS);
		must_be_ordered(MANY + 1);
		watch_begin();
		gcp_pending_remove(heap, watched.blocks[MANY]);
		watch_end();
		assert_in_range(watched.looks, 0, LOOKS);
		must_be_ordered(MANY);
	}
}

static void the_order_holds_whatever_comes_and_goes(void **state)
{
	(void)state;
	for (int i = 0; i < EACH; i++) {
		add(watched.blocks[i], 100 + (uint64_t)(i * 7 % 31));
		must_be_ordered(i + 1);
	}
	for (int i = 0; i < EACH; i++) {
		gcp_pending_remove(heap, watched.blocks[i * 11 % EACH]);
		must_be_ordered(EACH - 1 - i);
	}
	assert_int_equal(heap->pending_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_place_is_found_by_passing_epochs, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(the_order_holds_whatever_comes_and_goes,
					    setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
