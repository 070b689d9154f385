/* SPDX-License-Identifier: MIT */
/*
 * test_export.c - blocks that other processes may have open: nothing frees, gives out
 * or moves them, and their handles can be told.
 */
#include "fake.h"
#include "../../pool/pool_types.h"

#include <errno.h>

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

static void an_exported_block_is_not_freed(void **state)
{
	struct gcp_pools *pools = plain_pools();
	struct gcp_block_info info;
	void *owner;

	(void)state;
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

static void what_is_not_a_block_is_not_exported(void **state)
{
	struct gcp_pools *pools = plain_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5000);

	(void)state;
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
static void work_is_waited_for(void **state)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 3 * MIB);
	uint64_t work;

	(void)state;
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
static void an_exported_block_stays_where_it_is(void **state)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr blocks[8];

	(void)state;
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

static void its_handles_are_told(void **state)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr below = must_alloc(fake_pool(pools), 3 * MIB);
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);
	struct handles all = {.stop = 1000}, some = {.stop = 1}, rest = all;

	(void)state;
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

static void a_block_of_the_driver_has_no_handles(void **state)
{
	struct gcp_pools *pools = plain_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);
	struct handles all = {.stop = 1000};

	(void)state;
	assert_int_equal(gcp_pools_export(pools, addr), 0);
	assert_int_equal(gcp_pools_for_each_handle(pools, addr, 0, handle_note, &all),
			 -ENOENT);
	assert_int_equal(gcp_pools_unexport(pools, addr), 0);
	must_free(pools, addr);
	finish(pools);
}

/* The context ends: the block is gone, and its memory is released. */
static void an_exported_block_goes_with_its_context(void **state)
{
	struct gcp_pools *pools = mapped_pools();
	gcp_addr addr = must_alloc(fake_pool(pools), 5 * MIB);

	(void)state;
	assert_int_equal(gcp_pools_export(pools, addr), 0);
	gcp_pool_reset(pools, FAKE_CTX);
	assert_false(gcp_pools_is_exported(pools, addr));
	assert_int_equal(gcp_pools_unexport(pools, addr), -ENOENT);
	assert_int_equal(gcp_pools_free(pools, addr), -ENOENT);
	assert_int_equal(fake.memory_used, 0);
	finish(pools);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(an_exported_block_is_not_freed, reset),
	    cmocka_unit_test_setup(what_is_not_a_block_is_not_exported, reset),
	    cmocka_unit_test_setup(work_is_waited_for, reset),
	    cmocka_unit_test_setup(an_exported_block_stays_where_it_is, reset),
	    cmocka_unit_test_setup(its_handles_are_told, reset),
	    cmocka_unit_test_setup(a_block_of_the_driver_has_no_handles, reset),
	    cmocka_unit_test_setup(an_exported_block_goes_with_its_context, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
