/* SPDX-License-Identifier: MIT */
/*
 * test_streams.c - memory that is allocated and freed in the order of a stream
 * (pool/device/stream_alloc.c).
 */
#include "waits.h"

#include "../../pool/cache/cache.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

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

/* Of a segment that is never split; up to an eighth may stay unused. */
TEST(a_huge_block_serves_what_nearly_fills_it)
{
	const uint64_t sizes[] = {3600 * MIB, 3200 * MIB, 3180 * MIB};
	struct gcp_config config;

	gcp_config_default(&config);
	assert_true(sizes[2] > config.split_limit);
	for (int i = 0; i < 3; i++) {
		struct gcp_pools *pools = fake_pools(NULL);
		gcp_addr addr, again;

		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[0], STREAM, &addr),
		    0);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), sizes[i], STREAM, &again),
		    0);
		assert_int_equal(again == addr, i < 2);
		must_be_sound(pools);
		fake.done = fake.submitted;
		fake_finish(pools);
		fake_reset();
	}
}

/* What is free already is that for every context. */
TEST(a_stream_frees_blocks_of_its_own_context)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools), *other;
	gcp_addr addr = must_alloc(pool, MIB);

	assert_int_equal(gcp_pool_get(pools, FAKE_OTHER_CTX, 0, &other), 0);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EXDEV);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), 0);
	assert_int_equal(gcp_pool_free_stream(pool, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(other, addr, STREAM), -EINVAL);
	assert_int_equal(gcp_pool_free_stream(pool, 0xdead0000, STREAM), -ENOENT);
	must_be_sound(pools);
	fake_finish(pools);
}

/* --- where fences fail ------------------------------------------------------------ */

/* A free in a stream finds that out, and does not wait. From then on CUDA allocates. */
TEST(fences_that_fail_make_no_free_wait)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr = must_alloc(pool, 64 * MIB), other = must_alloc(pool, 64 * MIB);

	fake.record_result = 801; /* not supported */
	fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr, 0), 0);
	assert_int_equal(gcp_pools_free_async(pools, other, 0), 0);
	assert_false(gcp_pool_is_fenced(pool));
	assert_int_equal(fake.syncs, 0);
	assert_int_equal(fake.done, 0);
	assert_int_equal(gcp_pool_alloc_stream(pool, 64 * MIB, STREAM, &addr),
			 -ENOTSUP);
	assert_int_equal(gcp_pool_alloc(pool, 64 * MIB, &addr), -ENOTSUP);
	assert_int_equal(fake.syncs, 0);
	must_be_sound(pools);
	fake_finish(pools);
}

/* --- blocks that serve as one --------------------------------------------------- */

enum { PARTS = 6000, PART = 64 << 10 };
static gcp_addr parts[PARTS];

/* Blocks side by side behind a head, and no free memory beside them. */
static struct gcp_pools *pools_of_parts(void)
{
	const uint64_t all = 512 * MIB;
	struct gcp_config config;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	gcp_addr addr;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	pools = fake_pools(&config);
	pool = fake_pool(pools);
	addr = must_alloc(pool, all);
	must_free(pools, addr);
	for (int i = 0; i < PARTS; i++) {
		assert_int_equal(gcp_pool_alloc_stream(pool, PART, STREAM, &parts[i]),
				 0);
		assert_int_equal(parts[i], addr + GCP_PAGE + (uint64_t)i * PART);
	}
	assert_int_equal(must_alloc(pool, all - GCP_PAGE - (uint64_t)PARTS * PART),
			 addr + GCP_PAGE + (uint64_t)PARTS * PART);
	fake.stuck = true;
	fake_submit();
	return pools;
}

static void parts_free(struct gcp_pools *pools, int from, int to)
{
	for (int i = from; i < to; i++)
		assert_int_equal(gcp_pools_free_async(pools, parts[i], STREAM), 0);
}

/* While there is other memory. */
TEST(an_allocation_joins_so_many_blocks)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used = fake.memory_used;
	gcp_addr addr;

	parts_free(pools, 0, PARTS);
	assert_int_equal(gcp_pool_alloc_stream(pool, 5000ull * PART, STREAM, &addr), 0);
	assert_true(fake.memory_used > used);
	fake.memory_limit = fake.memory_used;
	assert_int_equal(gcp_pool_alloc_stream(pool, 5000ull * PART, STREAM, &addr), 0);
	assert_int_equal(addr, parts[PARTS - 5000]);
	assert_int_equal(fake.waits + fake.syncs + fake.done, 0);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* Those freed last lie in one that is too small, which is looked at once. */
TEST(blocks_that_are_too_small_together_are_looked_at_once)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used = fake.memory_used;
	gcp_addr addr;

	parts_free(pools, 0, 150);
	parts_free(pools, 1000, 1300);
	parts_free(pools, 150, 200);
	assert_int_equal(gcp_pool_alloc_stream(pool, 300ull * PART, STREAM, &addr), 0);
	assert_int_equal(addr, parts[1000]);
	assert_int_equal(fake.memory_used, used);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
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

/* The first place that is looked at takes all the looks at neighbours. */
TEST(a_whole_block_is_found_behind_small_ones)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	uint64_t used;
	gcp_addr big, addr;

	assert_int_equal(gcp_pool_alloc_stream(pool, 400 * MIB, STREAM, &big), 0);
	used = fake.memory_used;
	parts_free(pools, 0, PARTS - 5);
	assert_int_equal(gcp_pools_free_async(pools, big, STREAM), 0);
	parts_free(pools, PARTS - 5, PARTS);
	assert_int_equal(gcp_pool_alloc_stream(pool, 400 * MIB, STREAM, &addr), 0);
	assert_int_equal(addr, big);
	assert_int_equal(fake.memory_used, used);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* --- memory is out ------------------------------------------------------------ */

enum { OTHER = 8, OTHERS_MAX = 4096 };

static struct gcp_pools *pools_of_little(uint64_t memory)
{
	struct gcp_config config = config_of_backend();

	config.thread_cache_bytes = 0;
	fake.memory_limit = memory;
	return fake_pools(&config);
}

/* A stream frees a block; then another one frees many; then the first takes it again.
 */
static void own_block_behind_others(struct gcp_pools *pools, uint64_t bytes,
				    uint64_t other_bytes, int most)
{
	static gcp_addr others[OTHERS_MAX];
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr addr;
	int count = 0;

	assert_int_equal(gcp_pool_alloc_stream(pool, bytes, STREAM, &addr), 0);
	while (count < most &&
	       gcp_pool_alloc_stream(pool, other_bytes, OTHER, &others[count]) == 0)
		count++;
	assert_true(count > 64);
	fake.stuck = true;
	uint64_t work = fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
	for (int i = 0; i < 100 && i < count; i++)
		assert_int_equal(gcp_pools_free_async(pools, others[i], OTHER), 0);
	assert_int_equal(gcp_pool_alloc_stream(pool, bytes, STREAM, &addr), 0);
	assert_true(fake.done < work);
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

TEST_BOTH(its_own_block_is_found_behind_those_of_another_stream)
{
	own_block_behind_others(pools_of_little(200 * MIB), 100 * MIB, MIB / 2, 100);
}

TEST(its_own_small_block_is_found_behind_those_of_another_stream)
{
	own_block_behind_others(pools_of_little(2 * MIB), 4096, 4096, OTHERS_MAX);
}

/* So many looks in all, however often it looks. */
TEST(looks_for_its_own_block_come_to_an_end)
{
	struct gcp_pools *pools = pools_of_parts();
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_request request;
	gcp_addr small[8];

	parts_free(pools, 0, PARTS);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gcp_pool_alloc_stream(pool, 4096, STREAM, &small[i]),
				 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(gcp_pools_free_async(pools, small[i], STREAM), 0);
	assert_int_equal(gcp_request_init(&request, &pool->common, MIB), 0);
	request.stream = OTHER;
	request.more_looks = 2 * PARTS + 100;
	gcp_mutex_lock(&pool->lock);
	for (int left = PARTS + 100; left >= 0; left -= PARTS) {
		assert_null(gcp_heap_take_streamed(&pool->common, &request));
		assert_int_equal(request.more_looks, left);
	}
	assert_null(gcp_heap_take_streamed(&pool->common, &request));
	assert_int_equal(request.more_looks, 0);
	assert_int_equal(gcp_request_init(&request, &pool->common, 4096), 0);
	request.stream = OTHER;
	request.more_looks = 10;
	assert_null(gcp_heap_take_streamed(&pool->common, &request));
	assert_int_equal(request.more_looks, 0);
	gcp_mutex_unlock(&pool->lock);
	fake.done = fake.submitted;
	fake_finish(pools);
}
