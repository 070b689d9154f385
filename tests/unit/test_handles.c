/* SPDX-License-Identifier: MIT */
/*
 * test_handles.c - mapped segments: how large handles are, and which blocks lie in
 * them, so that no block keeps much more than itself.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

/* Mapped memory. */
static int setup(void **state)
{
	struct gcp_config config = fake_mapped_config();

	fake_setup(state);
	fake_open(&config);
	return 0;
}

#define TEST(name) CASE(name, setup, fake_close)

/* D5. A block of `first` MiB is freed; what does one of `then` MiB get? Its own
 * handles, or a part of its place. */
static bool is_divided(uint64_t first, uint64_t then)
{
	gcp_addr block = must_alloc(pool, first * MIB);

	must_free(block);
	fake.done = fake.submitted;
	bool divided = must_alloc(pool, then * MIB) == block;
	/* What is too large has gone back. */
	assert_true(divided || fake.memory_used < first * MIB);
	fake_close(NULL);
	setup(NULL);
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
	gcp_addr large = must_alloc(pool, 512 * MIB), blocks[BLOCKS];

	must_free(large); /* handles of 32 MiB */
	fake.done = fake.submitted;
	fake.memory_limit = 512 * MIB;
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = must_alloc(pool, 16 * MIB);
	for (int i = 0; i < BLOCKS; i += 2)
		must_free(blocks[i]);
	fake.done = fake.submitted;
	must_alloc(pool, 256 * MIB);
}

/* Slabs with one block in use each hold all of a device; what is free of them serves
 * blocks of another class, and is one with the rest when all have come back. */
CASE(what_is_free_of_slabs_serves_other_classes_before_memory_is_out, fake_setup_open,
     fake_close)
{
	static gcp_addr blocks[16 * MIB / 512];
	enum { COUNT = 16 * MIB / 512, KEPT = 128 };

	for (int mapped = 0; mapped < 2; mapped++) {
		if (mapped) {
			fake_close(state);
			setup(state);
		}
		for (int i = 0; i < COUNT; i++)
			blocks[i] = must_alloc(pool, 512);
		for (int i = 0; i < COUNT; i++)
			if (i % KEPT)
				must_free(blocks[i]);
		fake.done = fake.submitted;
		fake.memory_limit = fake.memory_used;
		for (int i = 1; i <= 1500; i++)
			blocks[i] = must_alloc(pool, 7 << 10);
		must_be_sound();
		for (int i = 1; i <= 1500; i++)
			must_free(blocks[i]);
		must_be_sound();
	}
}

/* What is not completed stays, and nothing waits for it. */
TEST(a_handle_in_use_by_the_device_stays)
{
	gcp_addr large = must_alloc(pool, 256 * MIB);

	fake_submit();
	must_free(large);
	fake.stuck = true;
	must_alloc(pool, 3 * MIB);
	assert_int_equal(fake.memory_used, 260 * MIB);
	assert_int_equal(must_stats().waits, 0);
	fake.stuck = false;
}
