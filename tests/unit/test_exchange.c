/* SPDX-License-Identifier: MIT */
/*
 * test_exchange.c - a thread that gives a batch to a depot is stopped just behind the
 * depot's lock, and another one takes the batch apart meanwhile. And counts of threads
 * that are handed over in another order than they came about.
 */
#include "../../pool/cache/cache.h"
#include "fake.h"

#include <pthread.h>

static void depot_left(void);

static void stopped_unlock(struct gcp_spin *lock)
{
	gcp_spin_unlock(lock);
	depot_left();
}

/* This program has depots of its own. */
#define gcp_spin_unlock stopped_unlock
#include "../../pool/cache/depot.c"
#include "cases.h"

#define TEST(name) CASE(name, NULL, NULL)
#undef gcp_spin_unlock

enum { BLOCKS = 4, BYTES = 64 << 10 };

static struct gcp_pools *pools;
static struct gcp_pool *pool;
static bool armed;

static void *take_it_all(void *arg)
{
	gcp_addr addrs[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		addrs[i] = must_alloc(pool, BYTES);
	for (int i = 0; i < BLOCKS; i++)
		must_free(pools, addrs[i]);
	assert_int_equal(gcp_timeline_complete(pool, gcp_timeline_stamp(pool)), 0);
	gcp_pools_thread_exit(pools);
	return arg;
}

static void depot_left(void)
{
	pthread_t thread;

	if (!armed)
		return;
	armed = false;
	assert_int_equal(pthread_create(&thread, NULL, take_it_all, NULL), 0);
	pthread_join(thread, NULL);
}

/* Blocks of the program, as if they were freed just now. */
static struct gcp_chain chain_of(const gcp_addr *addrs)
{
	struct gcp_chain chain;

	gcp_chain_init(&chain);
	for (int i = 0; i < BLOCKS; i++) {
		struct gcp_block *block = gcp_map_find(pools->map, addrs[i]);

		block->epoch = gcp_timeline_stamp(pool);
		block->next = NULL;
		gcp_block_set_state(block, GCP_BLOCK_CACHED);
		gcp_chain_append(&chain, block, &block->next, 1);
	}
	assert_int_equal(gcp_timeline_complete(pool, gcp_timeline_stamp(pool)), 0);
	return chain;
}

TEST(a_batch_given_to_a_depot_is_looked_at_no_more)
{
	gcp_addr addrs[2 * BLOCKS];

	fake_reset();
	pools = fake_pools(NULL);
	pool = fake_pool(pools);
	for (int i = 0; i < 2 * BLOCKS; i++)
		addrs[i] = must_alloc(pool, BYTES);
	atomic_store(&pool->limits.scale, 1);
	struct gcp_chain older = chain_of(addrs);
	gcp_depot_put(pool, &older);
	assert_null(older.first);
	struct gcp_chain chain = chain_of(addrs + BLOCKS);
	armed = true;
	assert_true(
	    gcp_depot_exchange(pool, gcp_class_of(&pools->classes, BYTES), &chain));
	assert_false(armed);
	assert_int_equal(pool->depot_bytes, 0);
}

/* One thread allocates, another frees; only the latter has handed its counts over. */
TEST(a_free_counted_before_its_allocation_shows_no_huge_number)
{
	struct gcp_stats_delta delta = {0};

	fake_reset();
	pools = fake_pools(NULL);
	pool = fake_pool(pools);
	must_free(pools, must_alloc(pool, BYTES));
	for (int i = 0; i < 2; i++) {
		gcp_stats_delta_count(&delta, i == 0 ? -1 : 1, BYTES, BYTES);
		gcp_mutex_lock(&pool->lock);
		gcp_stats_merge(pool, &delta);
		gcp_mutex_unlock(&pool->lock);
		assert_int_equal(must_stats(pools).allocation.current, 0);
		assert_int_equal(must_stats(pools).allocated_bytes.current, 0);
		assert_int_equal(gcp_pools_unheld(pools, 0),
				 must_stats(pools).reserved_bytes.current);
	}
	fake_finish(pools);
}
