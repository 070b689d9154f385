/* SPDX-License-Identifier: MIT */
/*
 * test_mixed.c - the first chunk of a graph's heap serves blocks of all sizes
 * (gcp_heap_mix, pool/heap/fit.c); with more memory small ones have chunks of their
 * own.
 */
#include "fake.h"
#include "cases.h"

#define TEST(name) CASE(name, NULL, NULL)

enum { SMALL = 8 << 10, OTHER = 24 << 10, FEW = 10, MIB = 1 << 20 };

static struct gcp_pools *pools;
static struct gcp_heap *heap;

static void begin(bool mapped, bool mixes)
{
	struct gcp_config config = fake_mapped_config();

	fake_reset();
	pools = fake_pools(mapped ? &config : NULL);
	assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
	gcp_heap_set_reuse(heap, GCP_REUSE_FENCED, GCP_GROUP_FIRST);
	if (mixes)
		gcp_heap_mix(heap);
}

static void end(void)
{
	gcp_heap_release(heap);
	fake_finish(pools);
}

static gcp_addr taken(uint64_t bytes)
{
	gcp_addr addr;

	assert_int_equal(gcp_heap_alloc(heap, bytes, GCP_USE_CAPTURED, &addr), 0);
	return addr;
}

static void take_few(uint64_t bytes)
{
	for (int i = 0; i < FEW; i++)
		taken(bytes);
}

TEST(the_first_chunk_serves_all_sizes)
{
	for (int mapped = 0; mapped < 2; mapped++) {
		begin(mapped, true);
		take_few(SMALL);
		take_few(OTHER);
		assert_int_equal(fake.memory_used, 2 * MIB);
		end();
		begin(mapped, true);
		take_few(OTHER);
		take_few(SMALL);
		assert_int_equal(fake.memory_used, 2 * MIB);
		end();
	}
}

/* Small blocks would pin large memory, of which graphs share whole handles. */
TEST(with_more_memory_sizes_are_apart)
{
	for (int mapped = 0; mapped < 2; mapped++) {
		begin(mapped, true);
		taken(3 * MIB);
		take_few(SMALL);
		assert_int_equal(fake.memory_used, 6 * MIB);
		end();
	}
}

/* A checkpoint may say that a block is live again: its place is cut for no small
 * ones. */
TEST(heaps_with_checkpoints_keep_sizes_apart)
{
	struct gcp_checkpoint *checkpoint;
	gcp_addr block;

	for (int mapped = 0; mapped < 2; mapped++) {
		begin(mapped, false);
		block = taken(MIB);
		assert_int_equal(gcp_heap_checkpoint(heap, &checkpoint), 0);
		must_free(pools, block);
		take_few(SMALL);
		gcp_heap_restore(heap, checkpoint);
		assert_int_equal(fake.memory_used, 4 * MIB);
		assert_int_equal(gcp_pools_free(pools, block), 0);
		gcp_checkpoint_destroy(checkpoint);
		end();
	}
}
