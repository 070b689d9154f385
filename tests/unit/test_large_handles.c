/* SPDX-License-Identifier: MIT */
/*
 * test_large_handles.c - mapped segments: a program that only takes memory gets one
 * handle for each large block; what others are to share is in smaller ones.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#define TEST(name) CASE(name, reset, NULL)

#define MIB (1ull << 20)

static int reset(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

static void finish(struct gcp_pools *pools)
{
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

TEST(a_large_block_has_one_handle)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);

	for (uint64_t i = 1; i <= 8; i++) {
		must_alloc(fake_pool(pools), i * 40 * MIB);
		assert_int_equal(fake.creates, i);
		assert_int_equal(fake.maps, i);
	}
	finish(pools);
}

/* More than a GiB is not given back as one. */
TEST(a_handle_is_not_larger_than_a_gib)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);

	must_alloc(fake_pool(pools), 2560 * MIB);
	assert_int_equal(fake.creates, 3);
	finish(pools);
}

/* A small block that lies in the last chunk of a large one keeps that chunk only. */
TEST(what_a_block_shares_is_in_another_handle)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large, next;

	large = must_alloc(fake_pool(pools), 65 * MIB);
	assert_int_equal(fake.creates, 2);
	must_alloc(fake_pool(pools), MIB);
	assert_int_equal(fake.memory_used, 66 * MIB);
	next = must_alloc(fake_pool(pools), 67 * MIB);
	must_alloc(fake_pool(pools), MIB);
	must_free(pools, next);
	must_free(pools, large);
	fake.done = fake.submitted;
	assert_int_equal(gcp_pools_trim(pools, 0, 0), (64 + 66) * MIB);
	finish(pools);
}

/* It comes to the same addresses, and what is left of it can be given back. */
TEST(a_large_handle_is_replaced_before_it_is_divided)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large, small;

	large = must_alloc(fake_pool(pools), 256 * MIB);
	fake_submit();
	must_free(pools, large);
	fake.done = fake.submitted;
	small = must_alloc(fake_pool(pools), 3 * MIB);
	assert_int_equal(small, large);
	assert_int_equal(fake.creates, 1 + 32);
	assert_int_equal(fake.memory_used, 256 * MIB);
	assert_int_equal(must_stats(pools).waits, 0);
	must_alloc(fake_pool(pools), 3 * MIB);
	assert_int_equal(fake.creates, 1 + 32);
	assert_int_equal(gcp_pools_trim(pools, 0, 0), 248 * MIB);
	finish(pools);
}

/* What the device works on cannot be replaced: nothing waits for that. */
TEST(what_is_not_completed_is_divided)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large;

	large = must_alloc(fake_pool(pools), 256 * MIB);
	fake_submit();
	must_free(pools, large);
	fake.stuck = true;
	assert_int_equal(must_alloc(fake_pool(pools), 3 * MIB), large);
	assert_int_equal(fake.creates, 1);
	assert_int_equal(fake.done, 0);
	assert_int_equal(must_stats(pools).waits, 0);
	fake.stuck = false;
	finish(pools);
}

/* The same size again needs all of it. */
TEST(a_large_handle_serves_its_size_again)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large;

	for (int turn = 0; turn < 4; turn++) {
		large = must_alloc(fake_pool(pools), 256 * MIB);
		must_free(pools, large);
		fake.done = fake.submitted;
	}
	assert_int_equal(fake.creates, 1);
	finish(pools);
}

/* New memory is not taken beside a large handle that lies unused. */
TEST(a_large_handle_is_replaced_before_memory_grows)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large;

	large = must_alloc(fake_pool(pools), 256 * MIB);
	must_free(pools, large);
	fake.done = fake.submitted;
	must_alloc(fake_pool(pools), 512); /* in a range of its own */
	assert_int_equal(fake.memory_used, 256 * MIB);
	assert_int_equal(gcp_pools_trim(pools, 0, 0), 248 * MIB);
	finish(pools);
}

/* Graphs share handles of any size among them, but not so large ones. */
TEST(graphs_get_no_large_handle)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	struct gcp_heap *heap;
	gcp_addr large, a;

	assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
	assert_int_equal(gcp_heap_alloc(heap, 512 * MIB, GCP_USE_CAPTURED, &a), 0);
	assert_true(fake.creates >= 16);
	large = must_alloc(fake_pool(pools), 256 * MIB);
	must_free(pools, large);
	fake.done = fake.submitted;
	uint64_t creates = fake.creates;
	assert_int_equal(gcp_heap_alloc(heap, 512 * MIB, GCP_USE_CAPTURED, &a), 0);
	assert_int_equal(fake.memory_used, 1024 * MIB);
	assert_true(fake.creates >= creates + 48);
	gcp_heap_release(heap);
	finish(pools);
}

/* What is given out again and again will have other sizes. */
TEST(a_program_that_frees_gets_handles_to_share)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);

	must_alloc(fake_pool(pools), 256 * MIB);
	for (int turn = 0; turn < 2; turn++) {
		must_free(pools, must_alloc(fake_pool(pools), 64 * MIB));
		fake.done = fake.submitted;
	}
	uint64_t creates = fake.creates;
	must_alloc(fake_pool(pools), 128 * MIB);
	assert_true(fake.creates >= creates + 16);
	finish(pools);
}

static uint64_t device_memory(int device)
{
	(void)device;
	return fake.memory_limit;
}

/* So many blocks of that size, of a program that frees nothing, in how many handles.
 * The pool takes no 16 MiB more than is asked for, or 1/32 more. */
static uint64_t handles_of(uint64_t count, uint64_t bytes, uint64_t device,
			   uint64_t quota)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_driver driver = fake_driver();
	struct gcp_pools *pools;
	uint64_t creates;

	fake_reset();
	config.quota = quota;
	fake.memory_limit = device;
	driver.device_memory = device_memory;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	for (uint64_t i = 0; i < count; i++)
		must_alloc(fake_pool(pools), bytes);
	uint64_t asked = count * bytes, more = asked / 32;
	if (more < 16 * MIB)
		more = 16 * MIB;
	assert_in_range(fake.memory_used, asked, asked + more);
	creates = fake.creates;
	finish(pools);
	return creates;
}

TEST(what_small_blocks_share_is_bounded)
{
	for (uint64_t count = 16; count <= 512; count += 7)
		(void)handles_of(count, 2 * MIB, 65536 * MIB, GCP_LIMIT_NONE);
}

/* The first part of a device: 1/64 of it. */
TEST(the_first_small_blocks_share_handles)
{
	assert_in_range(handles_of(512, 2 * MIB, 65536 * MIB, GCP_LIMIT_NONE), 90, 105);
	assert_in_range(handles_of(1024, MIB, 65536 * MIB, GCP_LIMIT_NONE), 90, 105);
	assert_in_range(handles_of(256, 4 * MIB, 65536 * MIB, GCP_LIMIT_NONE), 80, 95);
}

/* Where there is no room for whole handles a small block must not keep a large one. */
TEST(later_small_blocks_have_handles_of_their_own)
{
	assert_in_range(handles_of(512, 2 * MIB, 4096 * MIB, GCP_LIMIT_NONE), 480, 512);
	assert_in_range(handles_of(512, 2 * MIB, 65536 * MIB, 4096 * MIB), 480, 512);
}

/* A pool of 256 MiB of a program that frees, then 256 MiB more in blocks of 2 MiB. */
static uint64_t handles_beyond(uint32_t threads, uint64_t device)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_driver driver = fake_driver();
	struct gcp_pools *pools;

	fake_reset();
	fake.memory_limit = device;
	driver.device_memory = device_memory;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	struct gcp_pool *pool = fake_pool(pools);
	for (int turn = 0; turn < 4; turn++) {
		must_free(pools, must_alloc(pool, 256 * MIB));
		fake.done = fake.submitted;
	}
	must_alloc(pool, 256 * MIB);
	atomic_fetch_add(&pool->cache_count, threads);
	uint64_t creates = fake.creates;
	for (int i = 0; i < 128; i++)
		must_alloc(pool, 2 * MIB);
	creates = fake.creates - creates;
	atomic_fetch_sub(&pool->cache_count, threads);
	finish(pools);
	return creates;
}

TEST(threads_share_handles_in_a_small_pool)
{
	assert_int_equal(handles_beyond(0, 65536 * MIB), 128);
	assert_in_range(handles_beyond(4, 65536 * MIB), 16, 64);
	assert_in_range(handles_beyond(4, 4096 * MIB), 112, 128);
}

/* Where a small block comes to lie above so many large handles that lie unused. */
static bool all_are_passed_by(int count)
{
	enum { MOST = 40 };
	struct gcp_config config = fake_mapped_config();
	gcp_addr large[MOST], top;
	struct gcp_pools *pools;

	fake_reset();
	config.handle_shared = 1;
	pools = fake_pools(&config);
	for (int i = 0; i < count; i++) {
		large[i] = must_alloc(fake_pool(pools), 6 * MIB);
		must_alloc(fake_pool(pools), 6 * MIB);
	}
	top = must_alloc(fake_pool(pools), 2 * MIB);
	must_free(pools, top);
	for (int i = 0; i < count; i++)
		must_free(pools, large[i]);
	fake.done = fake.submitted;
	gcp_addr addr = must_alloc(fake_pool(pools), MIB);
	assert_true(addr == top || addr == large[0]);
	finish(pools);
	return addr == top;
}

TEST(of_many_large_handles_the_lowest_is_replaced)
{
	assert_true(all_are_passed_by(8));
	assert_false(all_are_passed_by(40));
}

/* A call fails while a handle is replaced. */
static bool survives_failure(uint64_t number, bool for_good)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large = must_alloc(fake_pool(pools), 128 * MIB), a;

	must_free(pools, large);
	fake.done = fake.submitted;
	fake.calls = 0;
	fake.fail_at = number;
	fake.fail_code = for_good ? 700 : GCP_CUDA_OUT_OF_MEMORY;
	fake.fail_on = for_good;
	int result = gcp_pool_alloc(fake_pool(pools), 3 * MIB, &a);
	bool failed = fake.calls >= number;
	must_be_sound(pools);
	if (!for_good && fake.creates > 1) /* not a fence */
		assert_int_equal(result, 0);
	fake.fail_at = 0;
	must_alloc(fake_pool(pools), 128 * MIB);
	assert_true(fake.memory_used <= 256 * MIB);
	finish(pools);
	return failed;
}

TEST(a_failing_call_leaves_the_books_sound)
{
	for (int for_good = 0; for_good < 2; for_good++) {
		for (uint64_t number = 1; survives_failure(number, for_good); number++)
			fake_reset();
		fake_reset();
	}
}
