/* SPDX-License-Identifier: MIT */
/*
 * test_handles.c - mapped segments: how large handles are, and which blocks lie in
 * them, so that no block keeps much more than itself.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#define TEST(name) CASE(name, fake_setup, NULL)

#define MIB (1ull << 20)

static void finish(struct gcp_pools *pools)
{
	must_be_sound(pools);
	fake.done = fake.submitted;
	fake_finish(pools);
}

/* D5. A block of `first` MiB is freed; what does one of `then` MiB get? Its own
 * handles, or a part of its place. */
static bool is_divided(uint64_t first, uint64_t then)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr block = must_alloc(fake_pool(pools), first * MIB);

	must_free(pools, block);
	fake.done = fake.submitted;
	bool divided = must_alloc(fake_pool(pools), then * MIB) == block;
	/* What is too large has gone back. */
	assert_true(divided || fake.memory_used < first * MIB);
	finish(pools);
	fake_reset();
	return divided;
}

TEST(a_block_has_whole_handles_or_shares_chunks)
{
	assert_true(is_divided(1024, 32)); /* handles of 32 MiB */
	assert_true(is_divided(1024, 64));
	assert_false(is_divided(1024, 40));
	assert_false(is_divided(1024, 8));
	assert_true(is_divided(64, 16));
	assert_true(is_divided(64, 15)); /* and less than a chunk of it */
	assert_false(is_divided(64, 14));
	assert_true(is_divided(12, 1)); /* handles of 2 MiB */
	assert_true(is_divided(12, 5));
}

/* Rows of blocks with every other one freed: all that is free makes one block. */
TEST(what_is_free_between_blocks_serves_one_as_large_as_all_of_it)
{
	enum { BLOCKS = 32 };
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large = must_alloc(fake_pool(pools), 512 * MIB), blocks[BLOCKS];

	must_free(pools, large); /* handles of 32 MiB */
	fake.done = fake.submitted;
	fake.memory_limit = 512 * MIB;
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = must_alloc(fake_pool(pools), 16 * MIB);
	for (int i = 0; i < BLOCKS; i += 2)
		must_free(pools, blocks[i]);
	fake.done = fake.submitted;
	must_alloc(fake_pool(pools), 256 * MIB);
	finish(pools);
}

/* Slabs with one block in use each hold all of a device; what is free of them serves
 * blocks of another class, and is one with the rest when all have come back. */
TEST(what_is_free_of_slabs_serves_other_classes_before_memory_is_out)
{
	static gcp_addr blocks[16 * MIB / 512];
	enum { COUNT = 16 * MIB / 512, KEPT = 128 };

	for (int mapped = 0; mapped < 2; mapped++) {
		struct gcp_config config = fake_mapped_config();

		if (!mapped)
			gcp_config_default(&config);
		struct gcp_pools *pools = fake_pools(&config);

		for (int i = 0; i < COUNT; i++)
			blocks[i] = must_alloc(fake_pool(pools), 512);
		for (int i = 0; i < COUNT; i++)
			if (i % KEPT)
				must_free(pools, blocks[i]);
		fake.done = fake.submitted;
		fake.memory_limit = fake.memory_used;
		for (int i = 1; i <= 1500; i++)
			blocks[i] = must_alloc(fake_pool(pools), 7 << 10);
		must_be_sound(pools);
		for (int i = 1; i <= 1500; i++)
			must_free(pools, blocks[i]);
		must_be_sound(pools);
		finish(pools);
		fake_reset();
	}
}

/* What is not completed stays, and nothing waits for it. */
TEST(a_handle_in_use_by_the_device_stays)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_pools *pools = fake_pools(&config);
	gcp_addr large = must_alloc(fake_pool(pools), 256 * MIB);

	fake_submit();
	must_free(pools, large);
	fake.stuck = true;
	must_alloc(fake_pool(pools), 3 * MIB);
	assert_int_equal(fake.memory_used, 260 * MIB);
	assert_int_equal(must_stats(pools).waits, 0);
	fake.stuck = false;
	finish(pools);
}
