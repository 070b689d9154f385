/* SPDX-License-Identifier: MIT */
/*
 * test_waits.c - an allocation that finds the device full waits for nothing but what
 * plain cudaFree has waited for: the work that was there when its memory was freed.
 */
#include "../../pool/cache/cache.h"
#include "waits.h"
#include "cases.h"

#include <errno.h>
#include <pthread.h>

TEST_BOTH(what_is_completed_goes_back_beside_later_work)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(addr);
	fake.done = before;
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
	assert_true(fake_is_ordered(before));
	assert_false(fake_is_ordered(later));
}

static void must_be_out(uint64_t bytes)
{
	gcp_addr addr;

	assert_int_equal(gcp_pool_alloc(pool, bytes, &addr), GCP_CUDA_OUT_OF_MEMORY);
}

/* The driver has no memory for the stream in which segments go back. */
TEST(what_cannot_go_back_without_a_wait_stays)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	must_free(addr);
	fake.done = fake.submitted;
	fake.unprepared = true;
	uint64_t later = stand();
	must_be_out(70 * MIB);
	assert_int_equal(gcp_pools_trim_completed(pools, 0, 0), 0);
	assert_true(fake.done < later);
	assert_int_equal(fake.frees + fake.releases, 0);
	fake.unprepared = false;
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
}

/* An allocation waits for the first of the two pieces of work alone. */
static void must_wait_for(uint64_t bytes, uint64_t before, uint64_t later)
{
	(void)must_alloc(pool, bytes);
	assert_true(fake_is_ordered(before) && !fake_is_ordered(later));
	fake.done = later;
}

TEST_BOTH(work_of_the_free_alone_is_waited_for)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	uint64_t before = fake_submit();
	must_free(addr);
	uint64_t later = stand();
	must_wait_for(70 * MIB, before, later);
}

/* Otherwise it would wait for a thread that is in its own free. */
TEST(the_oldest_epoch_is_waited_for_first)
{
	open_of(100 * MIB);
	gcp_addr first = must_alloc(pool, 40 * MIB),
		 second = must_alloc(pool, 40 * MIB);

	uint64_t before = fake_submit();
	must_free(first);
	uint64_t later = stand();
	must_free(second);
	must_wait_for(50 * MIB, before, later);
}

/* The pool knows by then that memory is tight. */
TEST_BOTH(each_free_on_a_full_device_closes_its_epoch)
{
	open_of(64 * MIB);
	gcp_addr addrs[64], addr;
	int count = 0;

	while (gcp_pool_alloc(pool, 4 * MIB, &addrs[count]) == 0)
		count++;
	for (int i = 0; i < 3; i++) {
		uint64_t before = fake_submit();
		must_free(addrs[i]);
		uint64_t later = stand();
		addr = must_alloc(pool, 4 * MIB);
		assert_int_equal(addr, addrs[i]);
		assert_false(fake_is_ordered(later));
		assert_true(fake_is_ordered(before));
		fake.done = later;
	}
}

/* Memory was not tight when it was freed: its epoch is open. */
TEST(later_work_is_not_waited_for_without_end)
{
	open_of(1024 * MIB);
	gcp_addr addr = must_alloc(pool, 1 * MIB);

	must_free(addr);
	uint64_t later = stand();
	must_be_out(1023 * MIB);
	assert_true(fake.done < later);
	fake.stuck = false;
	(void)must_alloc(pool, 1023 * MIB);
}

TEST(what_cannot_succeed_waits_for_nothing)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	(void)must_alloc(pool, 30 * MIB);
	uint64_t before = fake_submit();
	must_free(addr);
	must_be_out(90 * MIB);
	assert_true(fake.done < before);
}

/* A graph has had 40 MiB; 20 MiB wait for work that was submitted before they were
 * freed, and for it the host. */
TEST_BOTH(what_a_graph_that_is_gone_had_is_waited_for)
{
	open_of(100 * MIB);
	struct gcp_heap *heap;
	gcp_addr kept, addr;
	uint64_t before;

	assert_int_equal(gcp_heap_create(pool, &heap), 0);
	assert_int_equal(gcp_heap_alloc(heap, 40 * MIB, GCP_USE_CAPTURED, &kept), 0);
	must_free(kept);
	addr = must_alloc(pool, 20 * MIB);
	before = fake_submit();
	must_free(addr);
	gcp_heap_release(heap);
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done >= before);
	assert_int_not_equal(must_stats().waits, 0);
}

/* All that is free is completed: later work has nothing to do with it. */
static struct {
	int (*wait)(void *fence);
	int waits;
} neighbour;

static void *take_and_free(void *arg)
{
	gcp_addr addr;

	if (gcp_pool_alloc(pool, 2 * MIB, &addr) == 0) {
		fake_submit();
		must_free(addr);
	}
	return NULL;
}

/* Meanwhile another thread takes memory, works and frees it. */
static int wait_beside_it(void *fence)
{
	pthread_t thread;

	assert_true(++neighbour.waits < 100);
	pthread_create(&thread, NULL, take_and_free, NULL);
	pthread_join(thread, NULL);
	return neighbour.wait(fence);
}

/* Enough is free, in pieces. Plain CUDA refuses at once, whatever neighbour threads do.
 */
TEST_BOTH(what_others_free_later_is_not_waited_for)
{
	enum { SMALL = 4096, COUNT = 8192, KEPT = 256 };
	static gcp_addr small[COUNT];

	open_of(64 * MIB);
	for (int i = 0; i < COUNT; i++)
		small[i] = must_alloc(pool, SMALL);
	(void)must_alloc(pool, 26 * MIB);
	for (int i = 0; i < COUNT; i++)
		if (i % KEPT != 0)
			must_free(small[i]);
	neighbour.wait = pools->driver.fence_wait_own;
	pools->driver.fence_wait_own = pools->driver.fence_wait = wait_beside_it;
	neighbour.wait = neighbour.wait ? neighbour.wait : fake_driver().fence_wait;
	for (int i = 0; i < 2; i++) {
		neighbour.waits = 0;
		(void)take_and_free(NULL);
		must_be_out(16 * MIB);
		assert_true(neighbour.waits < 20);
	}
	(void)take_and_free(NULL);
	neighbour.waits = 0;
	(void)gcp_pools_relieve(pools, 0, &(struct gcp_search){0});
	assert_true(neighbour.waits < 20);
}

/* Between a free's stamp and its own close another thread's allocation closes the
 * epoch: for all that waits the free has closed it. */
TEST_BOTH(a_free_whose_epoch_an_allocation_closed_meanwhile)
{
	open_of(100 * MIB);
	gcp_addr addr = must_alloc(pool, 60 * MIB);

	(void)fake_submit();
	/* The three steps of gcp_pools_free, with one of another thread in between. */
	uint64_t epoch = gcp_timeline_stamp(pool);
	struct gcp_block *block = gcp_map_find(pools->map, addr);
	uint8_t used = GCP_BLOCK_USED;
	assert_true(
	    atomic_compare_exchange_strong(&block->state, &used, GCP_BLOCK_CACHED));
	block->epoch = epoch;
	gcp_mutex_lock(&pool->lock);
	gcp_stats_delta_free(&pool->delta, block->requested, block->size);
	gcp_stats_merge(pool, &pool->delta);
	gcp_heap_put(&pool->common, block);
	gcp_mutex_unlock(&pool->lock);
	assert_int_equal(gcp_timeline_close_early(pool, false), 0); /* the other */
	assert_int_equal(gcp_timeline_close(pool, epoch), 0);
	uint64_t later = stand();
	(void)must_alloc(pool, 70 * MIB);
	assert_true(fake.done < later);
}
