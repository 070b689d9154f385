/* SPDX-License-Identifier: MIT */
/*
 * test_streams.c - memory that is allocated and freed in the order of a stream
 * (pool/device/stream_alloc.c).
 */
#include "waits.h"

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
