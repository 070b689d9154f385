/* SPDX-License-Identifier: MIT */
/*
 * test_reclaimable.c - what cuMemGetInfo adds to the driver's free memory: one
 * allocation of just that size succeeds, and nothing that it could have is missing.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#include <stdlib.h>

#define TEST(name) CASE(name, reset, NULL)

#define KIB (1ull << 10)
#define MIB (1ull << 20)

enum { BLOCKS = 400, HISTORIES = 40 };

static const uint64_t device_bytes = 1024 * MIB;

static struct gcp_config configs[2];

static uint64_t device_memory(int device)
{
	(void)device;
	return fake.memory_limit;
}

static int reset(void **state)
{
	(void)state;
	fake_reset();
	gcp_config_default(&configs[0]);
	gcp_config_default_mapped(&configs[1]);
	return 0;
}

static struct gcp_pools *pools_on_device(const struct gcp_config *config)
{
	struct gcp_driver driver = fake_driver();
	struct gcp_pools *pools;

	fake_reset();
	fake.memory_limit = device_bytes;
	driver.device_memory = device_memory;
	assert_int_equal(gcp_pools_create(config, &driver, &pools), 0);
	return pools;
}

static uint64_t said_free(struct gcp_pools *pools)
{
	return gcp_pools_reclaimable(pools, 0) + fake.memory_limit - fake.memory_used;
}

static uint64_t random_bytes(void)
{
	uint64_t most = 4 * KIB << (rand() % 13);

	return 1 + (uint64_t)rand() % most;
}

/* Blocks of all sizes, of which `kept` in eight stay. Some work is done. */
static void fragment(struct gcp_pools *pools, int kept)
{
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr blocks[BLOCKS];
	int count = 0;

	for (uint64_t bytes = random_bytes();
	     count < BLOCKS && fake.memory_used + bytes < device_bytes * 3 / 4;
	     bytes = random_bytes())
		blocks[count++] = must_alloc(pool, bytes);
	for (int i = 0; i < count; i++) {
		uint64_t work = fake_submit();

		if (rand() % 8 < kept)
			continue;
		must_free(pools, blocks[i]);
		if (rand() % 4 == 0)
			fake.done = work;
	}
}

TEST(what_is_said_to_be_free_can_be_had)
{
	for (int i = 0; i < HISTORIES; i++) {
		struct gcp_pools *pools = pools_on_device(&configs[i % 2]);

		srand((unsigned)i);
		fragment(pools, i / 2 % 8);
		must_be_sound(pools);
		/* The driver gives whole pages of 2 MiB. */
		must_alloc(fake_pool(pools), said_free(pools) / (2 * MIB) * (2 * MIB));
		must_be_sound(pools);
		fake.done = fake.submitted;
		fake_finish(pools);
	}
}

TEST(all_is_free_when_nothing_is_held)
{
	for (int i = 0; i < HISTORIES; i++) {
		struct gcp_pools *pools = pools_on_device(&configs[i % 2]);

		srand((unsigned)i);
		fragment(pools, 0);
		assert_int_equal(said_free(pools), device_bytes);
		fake.done = fake.submitted;
		assert_int_equal(said_free(pools), device_bytes);
		fake_finish(pools);
	}
}

/* Three blocks side by side in mapped memory, which waits for its work or does not. */
TEST(a_block_between_two_counts_as_far_as_it_can_move)
{
	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools = pools_on_device(&configs[1]);
		struct gcp_pool *pool = fake_pool(pools);
		gcp_addr blocks[3];

		for (int j = 0; j < 3; j++)
			blocks[j] = must_alloc(pool, 5 * MIB);
		uint64_t work = fake_submit(), before = said_free(pools);
		must_free(pools, blocks[1]); /* 5 to 10 MiB: 6 to 10 */
		if (i == 0)
			fake.done = work;
		assert_int_equal(said_free(pools), before + 4 * MIB);
		must_free(pools, blocks[0]); /* 0 to 10 */
		assert_int_equal(said_free(pools), before + 10 * MIB);
		must_free(pools, blocks[2]);
		assert_int_equal(said_free(pools), device_bytes);
		fake.done = fake.submitted;
		fake_finish(pools);
	}
}

/* Of three blocks side by side an outer one is free as a whole when the middle one,
 * beside it, is freed and waits. */
TEST(what_lies_free_beside_a_block_that_waits_counts_once)
{
	for (int outer = 0; outer < 3; outer += 2) {
		struct gcp_pools *pools = pools_on_device(&configs[1]);
		struct gcp_pool *pool = fake_pool(pools);
		gcp_addr blocks[3];

		for (int i = 0; i < 3; i++)
			blocks[i] = must_alloc(pool, 6 * MIB);
		uint64_t before = said_free(pools);
		must_free(pools, blocks[outer]);
		assert_int_equal(gcp_timeline_complete(pool, gcp_timeline_stamp(pool)),
				 0);
		assert_int_equal(said_free(pools), before + 6 * MIB);
		fake_submit();
		must_free(pools, blocks[1]);
		assert_int_equal(said_free(pools), before + 12 * MIB);
		must_free(pools, blocks[2 - outer]);
		fake.done = fake.submitted;
		fake_finish(pools);
	}
}
