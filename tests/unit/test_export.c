/* SPDX-License-Identifier: MIT */
/*
 * test_export.c - blocks that other processes may have open: nothing frees, gives out
 * or moves them, and their handles can be told. The same of those that the program has
 * freed, which are the program's no more.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#include <errno.h>
#include <stdlib.h>

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
	fake.done = fake.submitted;
	fake_finish(pools);
}

static struct gcp_pools *mapped_pools(void)
{
	struct gcp_config config;

	gcp_config_default_mapped(&config);
	config.window_bytes = 0;
	config.epoch_blocks = 1;
	config.thread_cache_bytes = 0;
	return fake_pools(&config);
}

static struct gcp_pools *plain_pools(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	return fake_pools(&config);
}

TEST(an_exported_block_is_not_freed)
{
	struct gcp_pools *pools = plain_pools();
	struct gcp_block_info info;
	void *owner;

	for (uint64_t bytes = 1000; bytes < 40 * MIB; bytes *= 100) {
		gcp_addr addr = must_alloc(fake_pool(pools), bytes);

		assert_false(gcp_pools_is_exported(pools, addr));
		assert_int_equal(gcp_pools_export(pools, addr), 0);
		assert_int_equal(gcp_pools_export(pools, addr), -EALREADY);
		assert_true(gcp_pools_is_exported(pools, addr));
		assert_int_equal(gcp_pools_free(pools, addr), -EREMOTE);
		assert_int_equal(gcp_pools_free_async(pools, addr, 0), -EREMOTE);
		must_be_sound(pools);
		assert_int_equal(gcp_pools_find(pools, addr + 1, &info), 0);
		assert_int_equal(gcp_pools_owner(pools, addr, &owner), 0);
		assert_int_equal(gcp_pools_unexport(pools, addr), 0);
		assert_int_equal(gcp_pools_unexport(pools, addr), -ENOENT);
		must_free(pools, addr);
	}
	finish(pools);
}

TEST(what_is_not_a_block_is_not_exported)
{
	struct gcp_pools *pools = plain_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5000);

	assert_int_equal(gcp_pools_export(pools, 0xdead0000), -ENOENT);
	assert_int_equal(gcp_pools_export(pools, addr + 512), -ENOENT);
	assert_int_equal(gcp_pools_finish(pools, addr), -ENOENT);
	must_free(pools, addr);
	assert_int_equal(gcp_pools_export(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_unexport(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_free(pools, addr), -EINVAL);
	finish(pools);
}

/* Of the block's owner, however the block became ready. */
TEST(work_is_waited_for)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 3 * MIB);
	uint64_t work;

	assert_int_equal(gcp_pools_export(pools, addr), 0);
	work = fake_submit();
	assert_true(fake.done < work);
	assert_int_equal(gcp_pools_finish(pools, addr), 0);
	assert_true(fake.done >= work);
	assert_int_equal(gcp_pools_unexport(pools, addr), 0);
	must_free(pools, addr);
	finish(pools);
}

/* What surrounds it moves, and all that is unused is given back. */
TEST(an_exported_block_stays_where_it_is)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr blocks[8];

	for (int i = 0; i < 8; i++)
		blocks[i] = must_alloc(fake_pool(pools), 4 * MIB);
	uint64_t bytes = fake_physical(blocks[3]);
	assert_int_equal(gcp_pools_export(pools, blocks[3]), 0);
	assert_int_equal(gcp_pools_free(pools, blocks[3]), -EREMOTE);
	for (int i = 0; i < 8; i++)
		if (i != 3)
			must_free(pools, blocks[i]);
	fake.done = fake.submitted;
	must_free(pools, must_alloc(fake_pool(pools), 20 * MIB));
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0);
	must_be_sound(pools);
	assert_int_equal(fake_physical(blocks[3]), bytes);
	assert_int_equal(gcp_pools_unexport(pools, blocks[3]), 0);
	must_free(pools, blocks[3]);
	finish(pools);
}

struct handles {
	gcp_addr first, end;
	unsigned count, stop;
};

static int handle_note(void *arg, uint64_t handle, gcp_addr addr, uint64_t bytes)
{
	struct handles *handles = arg;

	assert_true(handle != 0 && bytes % GCP_CHUNK == 0);
	if (handles->count++ == 0)
		handles->first = addr;
	else
		assert_int_equal(addr, handles->end);
	handles->end = addr + bytes;
	return handles->count == handles->stop ? 77 : 0;
}

TEST(its_handles_are_told)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr below = must_alloc(fake_pool(pools), 3 * MIB);
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);
	struct handles all = {.stop = 1000}, some = {.stop = 1}, rest = all;

	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &all),
			 -ENOENT);
	assert_int_equal(gcp_pools_export(pools, addr), 0);
	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &all),
			 0);
	assert_true(all.first <= addr && all.end >= addr + 5 * MIB);
	assert_true(addr - all.first < GCP_CHUNK && all.end - addr < 9 * MIB);
	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &some),
			 77);
	assert_int_equal(
	    gcp_pools_for_each_handle(pools, addr, some.end, handle_note, &rest), 0);
	assert_int_equal(rest.first, some.end);
	assert_int_equal(rest.end, all.end);
	assert_int_equal(rest.count + some.count, all.count);
	assert_int_equal(gcp_pools_unexport(pools, addr), 0);
	must_free(pools, addr);
	must_free(pools, below);
	finish(pools);
}

TEST(a_block_of_the_driver_has_no_handles)
{
	struct gcp_pools *pools = plain_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);
	struct handles all = {.stop = 1000};

	assert_int_equal(gcp_pools_export(pools, addr), 0);
	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &all),
			 -ENOENT);
	assert_int_equal(gcp_pools_unexport(pools, addr), 0);
	must_free(pools, addr);
	finish(pools);
}

/* --- lent ------------------------------------------------------------------------ */

static void must_be_unknown(struct gcp_pools *pools, gcp_addr addr)
{
	struct gcp_block_info info;
	void *owner;

	assert_true(gcp_pools_is_lent(pools, addr));
	assert_false(gcp_pools_is_exported(pools, addr));
	assert_int_equal(gcp_pools_find(pools, addr, &info), -EINVAL);
	assert_int_equal(gcp_pools_find(pools, addr + 512, &info), -EINVAL);
	assert_int_equal(gcp_pools_held(pools, addr, &info), -EINVAL);
	assert_int_equal(gcp_pools_owner(pools, addr, &owner), -EINVAL);
	assert_int_equal(gcp_pools_free(pools, addr), -EINVAL);
	assert_int_equal(gcp_pools_free_async(pools, addr, 0), -EINVAL);
	assert_int_equal(gcp_pools_export(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_unexport(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_lend(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_finish(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_complete(pools, addr), -ENOENT);
}

static struct gcp_stats counted(struct gcp_pools *pools)
{
	struct gcp_stats stats;

	gcp_pools_stats(pools, 0, &stats);
	return stats;
}

static void used_count(void *arg, const struct gcp_block_view *block)
{
	*(uint64_t *)arg += block->used;
}

static void must_count(struct gcp_pools *pools, struct gcp_gauge blocks,
		       struct gcp_gauge requested)
{
	struct gcp_stats stats = counted(pools);
	uint64_t used = 0;

	gcp_pools_blocks(pools, 0, used_count, &used);
	assert_int_equal(used, blocks.current);
	assert_memory_equal(&stats.allocation, &blocks, sizeof(blocks));
	assert_memory_equal(&stats.requested_bytes, &requested, sizeof(requested));
	must_be_sound(pools);
}

/* From the free on, as a free counts; nothing counts when it is taken back. */
TEST(a_lent_block_is_the_programs_no_more)
{
	for (int async = 0; async < 2; async++)
		for (uint64_t bytes = 1000; bytes < 40 * MIB; bytes *= 100) {
			struct gcp_pools *pools =
			    async ? mapped_pools() : plain_pools();
			struct gcp_pool *pool = fake_pool(pools);
			struct gcp_gauge one = {0, 1, 1, 1};
			struct gcp_gauge all = {0, bytes, bytes, bytes};
			gcp_addr addr;

			if (async)
				assert_int_equal(
				    gcp_pool_alloc_stream(pool, bytes, 7, &addr), 0);
			else
				addr = must_alloc(pool, bytes);
			assert_int_equal(gcp_pools_lend(pools, addr), -ENOENT);
			assert_int_equal(gcp_pools_export(pools, addr), 0);
			assert_int_equal(gcp_pools_lend(pools, addr), 0);
			must_be_unknown(pools, addr);
			must_count(pools, one, all);
			assert_int_equal(counted(pools).async_bytes.current, 0);
			assert_int_equal(gcp_pools_take_back(pools, addr), 0);
			assert_int_equal(gcp_pools_take_back(pools, addr), -ENOENT);
			must_count(pools, one, all);
			assert_int_equal(counted(pools).async_bytes.current, 0);
			finish(pools);
		}
}

/* Nothing waits for it where memory is short. */
static void must_not_be_expected(struct gcp_pools *pools, uint64_t bytes)
{
	assert_int_equal(gcp_pools_unheld(pools, 0),
			 counted(pools).reserved_bytes.current - bytes);
}

/* What surrounds it goes back and is given out, and it is not. */
TEST(a_lent_block_stays_where_it_is)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr blocks[8], addr;

	for (int i = 0; i < 8; i++)
		blocks[i] = must_alloc(fake_pool(pools), 4 * MIB);
	uint64_t bytes = fake_physical(blocks[3]);
	assert_int_equal(gcp_pools_export(pools, blocks[3]), 0);
	assert_int_equal(gcp_pools_lend(pools, blocks[3]), 0);
	for (int i = 0; i < 8; i++)
		if (i != 3)
			must_free(pools, blocks[i]);
	fake.done = fake.submitted;
	must_free(pools, must_alloc(fake_pool(pools), 20 * MIB));
	for (int i = 0; i < 8; i++) {
		blocks[i] = i == 3 ? blocks[3] : must_alloc(fake_pool(pools), 4 * MIB);
		assert_true(i == 3 || blocks[i] >= blocks[3] + 4 * MIB ||
			    blocks[i] + 4 * MIB <= blocks[3]);
	}
	for (int i = 0; i < 8; i++)
		if (i != 3)
			must_free(pools, blocks[i]);
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0);
	must_be_sound(pools);
	assert_int_equal(fake_physical(blocks[3]), bytes);
	must_not_be_expected(pools, 4 * MIB);
	assert_ptr_equal(gcp_pools_pin_lent(pools, blocks[3]), fake_pool(pools));
	assert_int_equal(gcp_pools_take_back(pools, blocks[3]), 0);
	gcp_pool_unpin(fake_pool(pools));
	assert_null(gcp_pools_pin_lent(pools, blocks[3]));
	fake.done = fake.submitted;
	addr = must_alloc(fake_pool(pools), 4 * MIB);
	assert_int_equal(addr, blocks[3]);
	must_free(pools, addr);
	finish(pools);
}

/* Another process asks for the rest of its parts. */
TEST(handles_of_a_lent_block_are_told)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);
	struct handles all = {.stop = 1000};

	assert_int_equal(gcp_pools_export(pools, addr), 0);
	assert_int_equal(gcp_pools_lend(pools, addr), 0);
	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &all),
			 0);
	assert_true(all.first <= addr && all.end >= addr + 5 * MIB);
	assert_int_equal(gcp_pools_take_back(pools, addr), 0);
	finish(pools);
}

/* A graph's memory: it stays lent when that becomes common. */
TEST(a_lent_block_of_a_graph_outlives_it)
{
	struct gcp_pools *pools = mapped_pools();
	struct gcp_heap_usage usage;
	struct gcp_heap *heap;
	gcp_addr addr;

	for (int released = 0; released < 2; released++) {
		assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
		assert_int_equal(gcp_heap_alloc(heap, 4 * MIB, GCP_USE_ANY, &addr), 0);
		assert_int_equal(gcp_pools_export(pools, addr), 0);
		assert_int_equal(gcp_pools_lend(pools, addr), 0);
		must_be_unknown(pools, addr);
		gcp_heap_usage(heap, &usage);
		assert_int_equal(usage.blocks, 0);
		assert_int_equal(usage.allocated_bytes, 0);
		must_be_sound(pools);
		assert_int_equal(gcp_pools_unheld(pools, 0), 0);
		gcp_heap_ends(heap, true);
		must_not_be_expected(pools, 4 * MIB);
		if (released) {
			gcp_heap_release(heap);
			must_not_be_expected(pools, 4 * MIB);
		}
		must_be_sound(pools);
		assert_int_equal(gcp_pools_take_back(pools, addr), 0);
		must_be_sound(pools);
		if (!released)
			gcp_heap_release(heap);
		must_be_sound(pools);
	}
	finish(pools);
}

/* --- a graph pool is set back ----------------------------------------------------- */

static gcp_addr heap_block(struct gcp_heap *heap, uint64_t bytes, bool exported)
{
	gcp_addr addr;

	assert_int_equal(gcp_heap_alloc(heap, bytes, GCP_USE_CAPTURED, &addr), 0);
	if (exported)
		assert_int_equal(gcp_pools_export(heap->pool->pools, addr), 0);
	return addr;
}

static void heap_end(struct gcp_pools *pools, struct gcp_heap *heap,
		     struct gcp_checkpoint *checkpoint)
{
	must_be_sound(pools);
	gcp_checkpoint_destroy(checkpoint);
	gcp_heap_release(heap);
	must_be_sound(pools);
	finish(pools);
}

/* Blocks of that size: live and exported, exported later, freed while it is open, not
 * live any more, and not live though lent. */
TEST(what_is_open_stays_when_a_graph_pool_is_set_back)
{
	for (uint64_t bytes = 3000; bytes < 40 * MIB; bytes *= 100) {
		struct gcp_pools *pools = mapped_pools();
		struct gcp_checkpoint *checkpoint;
		struct gcp_heap_usage usage;
		struct gcp_heap *heap;
		gcp_addr live, later, freed, gone, lent;

		assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
		live = heap_block(heap, bytes, true);
		later = heap_block(heap, bytes, false);
		freed = heap_block(heap, bytes, true);
		assert_int_equal(gcp_heap_checkpoint(heap, &checkpoint), 0);
		gone = heap_block(heap, bytes, true);
		lent = heap_block(heap, bytes, true);
		assert_int_equal(gcp_pools_export(pools, later), 0);
		assert_int_equal(gcp_pools_lend(pools, freed), 0);
		assert_int_equal(gcp_pools_lend(pools, lent), 0);
		for (int i = 0; i < 2; i++) {
			gcp_heap_restore(heap, checkpoint);
			must_be_sound(pools);
			assert_int_equal(gcp_pools_free(pools, live), -EREMOTE);
			assert_int_equal(gcp_pools_free(pools, later), -EREMOTE);
			assert_int_equal(gcp_pools_free(pools, freed), -EREMOTE);
			must_be_unknown(pools, gone);
			must_be_unknown(pools, lent);
			gcp_heap_usage(heap, &usage);
			assert_int_equal(usage.blocks, 3);
			assert_int_equal(counted(pools).allocation.current, 3);
			assert_int_equal(counted(pools).requested_bytes.current,
					 3 * bytes);
		}
		gcp_heap_restore(heap, NULL);
		must_be_sound(pools);
		must_be_unknown(pools, live);
		must_be_unknown(pools, lent);
		assert_int_equal(counted(pools).allocation.current, 0);
		assert_int_equal(gcp_pools_take_back(pools, live), 0);
		assert_int_equal(gcp_pools_take_back(pools, gone), 0);
		assert_int_equal(gcp_pools_take_back(pools, lent), 0);
		heap_end(pools, heap, checkpoint);
	}
}

/* What the program says to be live is. */
TEST(live_blocks_come_before_what_is_open)
{
	for (int lent = 0; lent < 2; lent++) {
		struct gcp_pools *pools = mapped_pools();
		struct gcp_checkpoint *checkpoint;
		struct gcp_heap *heap;
		gcp_addr live, open;

		assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
		live = heap_block(heap, 5 * MIB, false);
		assert_int_equal(gcp_heap_checkpoint(heap, &checkpoint), 0);
		gcp_heap_restore(heap, NULL);
		open = heap_block(heap, 3 * MIB, true);
		assert_int_equal(open, live);
		if (lent)
			assert_int_equal(gcp_pools_lend(pools, open), 0);
		gcp_heap_restore(heap, checkpoint);
		must_be_sound(pools);
		must_free(pools, live);
		heap_end(pools, heap, checkpoint);
	}
}

/* The driver has made its handle, and knows what is open. */
TEST(blocks_of_the_driver_are_free_when_a_graph_pool_is_set_back)
{
	struct gcp_pools *pools = plain_pools();
	struct gcp_checkpoint *checkpoint;
	struct gcp_heap *heap;
	gcp_addr live, gone;

	assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
	live = heap_block(heap, 4 * MIB, true);
	assert_int_equal(gcp_heap_checkpoint(heap, &checkpoint), 0);
	gone = heap_block(heap, 4 * MIB, true);
	gcp_heap_restore(heap, checkpoint);
	must_be_sound(pools);
	assert_int_equal(gcp_pools_free(pools, live), -EREMOTE);
	assert_int_equal(gcp_pools_free(pools, gone), -EINVAL);
	assert_false(gcp_pools_is_lent(pools, gone));
	heap_end(pools, heap, checkpoint);
}

/* The context ends: the block is gone, and its memory is released. */
TEST(an_exported_block_goes_with_its_context)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);

	gcp_addr lent = must_alloc(fake_pool(pools), 5 * MIB);

	assert_int_equal(gcp_pools_export(pools, addr), 0);
	assert_int_equal(gcp_pools_export(pools, lent), 0);
	assert_int_equal(gcp_pools_lend(pools, lent), 0);
	gcp_pool_reset(pools, FAKE_CTX);
	assert_false(gcp_pools_is_exported(pools, addr));
	assert_false(gcp_pools_is_lent(pools, lent));
	assert_int_equal(gcp_pools_take_back(pools, lent), -ENOENT);
	assert_int_equal(gcp_pools_unexport(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_free(pools, addr), -ENOENT);
	assert_int_equal(fake.memory_used, 0);
	finish(pools);
}
