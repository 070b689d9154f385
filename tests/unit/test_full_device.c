/* SPDX-License-Identifier: MIT */
/*
 * test_full_device.c - mapped memory on a nearly full device: what plain CUDA would
 * serve is served, however large the handles are that other blocks have left.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#include <errno.h>

#define TEST(name) CASE(name, reset, NULL)

#define MIB (1ull << 20)

enum { BLOCKS = 8, BLOCK_MIB = 32 };

static uint64_t device_memory(int device)
{
	(void)device;
	return fake.memory_limit;
}

static struct gcp_pools *pools_of_device(const struct gcp_config *config,
					 uint64_t bytes)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_pools *pools;

	fake.memory_limit = bytes;
	driver.device_memory = device_memory;
	assert_int_equal(gcp_pools_create(config, &driver, &pools), 0);
	return pools;
}

/* A device that is full of blocks that have a handle each. */
static struct gcp_pools *full_device(gcp_addr *blocks)
{
	struct gcp_config config;
	struct gcp_pools *pools;

	gcp_config_default_mapped(&config);
	config.window_bytes = 0;
	config.epoch_blocks = 1;
	config.thread_cache_bytes = 0;
	config.handle_parts = 1;
	pools = pools_of_device(&config, BLOCKS * BLOCK_MIB * MIB);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = must_alloc(fake_pool(pools), BLOCK_MIB * MIB);
	assert_int_equal(fake.creates, BLOCKS);
	return pools;
}

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

/* Of two blocks that lie apart three are made. */
TEST(no_unused_handle_is_divided)
{
	gcp_addr blocks[BLOCKS];
	struct gcp_pools *pools = full_device(blocks);

	must_free(pools, blocks[1]);
	must_free(pools, blocks[5]);
	must_alloc(fake_pool(pools), 20 * MIB);
	must_alloc(fake_pool(pools), 20 * MIB);
	must_alloc(fake_pool(pools), 24 * MIB);
	assert_int_equal(fake.memory_used, fake.memory_limit);
	finish(pools);
}

/* What lies beside a block that has divided its handle is used first. */
TEST(what_is_left_of_a_handle_is_used)
{
	gcp_addr blocks[BLOCKS], small;
	struct gcp_pools *pools = full_device(blocks);

	must_free(pools, blocks[1]);
	small = must_alloc(fake_pool(pools), 3 * MIB); /* too small to be kept apart */
	assert_int_equal(small, blocks[1]);
	must_alloc(fake_pool(pools), 28 * MIB);
	assert_int_equal(fake.memory_used, fake.memory_limit);
	finish(pools);
}

/* Where whole handles would have to be waited for one is divided. */
TEST(a_handle_is_divided_before_a_wait)
{
	gcp_addr blocks[BLOCKS];
	struct gcp_pools *pools = full_device(blocks);

	fake_submit();
	must_free(pools, blocks[1]);
	fake.stuck = true;
	must_alloc(fake_pool(pools), 20 * MIB);
	assert_int_equal(fake.done, 0);
	assert_int_equal(must_stats(pools).waits, 0);
	fake.stuck = false;
	finish(pools);
}

/* Allocations and frees as they come: what fits is served, but for what few blocks have
 * left of handles that were divided while there was room. */
TEST(what_fits_is_served)
{
	enum { SLOTS = 96, TURNS = 2000, SLACK_MIB = 128, DEVICE_MIB = 32768 };
	struct gcp_config config;
	struct gcp_pools *pools;
	gcp_addr held[SLOTS] = {0};
	uint64_t bytes[SLOTS] = {0}, live = 0;
	uint32_t drawn = 1;

	gcp_config_default_mapped(&config);
	pools = pools_of_device(&config, DEVICE_MIB * MIB);
	for (int turn = 0; turn < TURNS; turn++) {
		drawn = drawn * 1103515245 + 12345;
		uint32_t i = (drawn >> 16) % SLOTS;

		if (held[i]) {
			fake_submit();
			must_free(pools, held[i]);
			live -= bytes[i];
			held[i] = 0;
		}
		fake.done = fake.submitted;
		drawn = drawn * 1103515245 + 12345;
		bytes[i] = (100 + (drawn >> 16) % 801) / 2 * 2 * MIB;
		if (live + bytes[i] + SLACK_MIB * MIB > fake.memory_limit)
			continue;
		held[i] = must_alloc(fake_pool(pools), bytes[i]);
		live += bytes[i];
	}
	finish(pools);
}
