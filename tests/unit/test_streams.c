/* SPDX-License-Identifier: MIT */
/*
 * test_streams.c - memory that is allocated and freed in the order of a stream
 * (pool/device/stream_alloc.c).
 */
#include "waits.h"

#include "../../pool/cache/cache.h"

#include <pthread.h>

enum { STREAM = 7, TURNS = 1000 };

/* The work of no turn is done before the next one. */
TEST(a_block_that_its_stream_takes_again_needs_no_fence)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr, first = 0;

	for (int i = 0; i < TURNS; i++) {
		assert_int_equal(gcp_pool_alloc_stream(pool, MIB, STREAM, &addr), 0);
		first = first ? first : addr;
		assert_int_equal(addr, first);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(gcp_timeline_filled(&pool->timeline), 0);
	}
	assert_int_equal(fake.records, 0);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* No thread keeps any; and its work is not done. */
TEST(what_lies_in_the_heap_serves_its_stream_alone)
{
	static const struct {
		uint64_t bytes;
		int count; /* as many as fill what the driver gave for them */
	} blocks[] = {{MIB, 20}, {40 * MIB, 1}};
	gcp_addr addrs[20];
	struct gcp_config config;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_pool *pool = fake_pool(pools);

		for (uint64_t turn = 0; turn < 3; turn++) {
			uint64_t used = fake.memory_used;

			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pool_alloc_stream(pool, blocks[i].bytes,
							  STREAM + turn / 2, &addrs[j]),
				    0);
			/* The third is another stream's. */
			assert_int_equal(fake.memory_used > used, turn != 1);
			fake_submit();
			for (int j = 0; j < blocks[i].count; j++)
				assert_int_equal(
				    gcp_pools_free_async(pools, addrs[j],
							 STREAM + turn / 2),
				    0);
			must_be_sound(pools);
		}
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* --- ids -------------------------------------------------------------------------- */

static uint64_t id_of_one(struct gcp_pool *pool, bool async)
{
	struct gcp_block_info info;
	gcp_addr addr;

	if (async)
		assert_int_equal(gcp_pool_alloc_stream(pool, MIB, STREAM, &addr), 0);
	else
		addr = must_alloc(pool, MIB);
	assert_int_equal(gcp_pools_find(pool->pools, addr, &info), 0);
	assert_int_equal(gcp_pools_free_async(pool->pools, addr, STREAM), 0);
	return info.id;
}

static void *ids_of_some(void *arg)
{
	static uint64_t ids[TURNS];

	for (int i = 0; i < TURNS; i++)
		ids[i] = id_of_one(arg, true);
	return ids;
}

/* Though it gets the same addresses in the same epoch. */
TEST(each_allocation_has_an_id_of_its_own)
{
	struct gcp_config config;

	gcp_config_default(&config);
	for (int kept = 0; kept < 2; kept++) {
		config.thread_cache_bytes *= (uint64_t)kept;
		struct gcp_pools *pools = fake_pools(&config);
		struct gcp_pool *pool = fake_pool(pools);
		uint64_t first = id_of_one(pool, true), last = first, *others;
		pthread_t thread;
		void *ids;

		for (int i = 0; i < GCP_SERIALS + TURNS; i++) {
			uint64_t id = id_of_one(pool, true);

			assert_true(id > last);
			last = id;
		}
		assert_true(id_of_one(pool, false) < first);
		pthread_create(&thread, NULL, ids_of_some, pool);
		pthread_join(thread, &ids);
		others = ids;
		for (int i = 0; i < TURNS; i++)
			assert_false(others[i] >= first && others[i] <= last);
		fake_finish(pools);
		fake_reset();
		gcp_config_default(&config);
	}
}
