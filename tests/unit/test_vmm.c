/* SPDX-License-Identifier: MIT */
/*
 * test_vmm.c - mapped segments: what moves, what must not, and what is given back; how
 * large handles are, and which blocks lie in them, so that no block keeps much more
 * than itself. The fake driver asserts that nothing is mapped twice or unmapped in
 * part.
 */
#include "fake.h"
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
/* The pools are opened by the test. */
#define TEST_OF_DRIVER(name) CASE(name, fake_setup, fake_close)

enum { BLOCKS = 8 };

/* Addresses that work is still touching, by the test's word. */
static struct {
	gcp_addr addr;
	uint64_t bytes, work;
} touched[BLOCKS];
static int touched_count;

static void unmapping_must_be_done(gcp_addr addr, uint64_t bytes)
{
	for (int i = 0; i < touched_count; i++)
		if (addr < touched[i].addr + touched[i].bytes &&
		    touched[i].addr < addr + bytes)
			assert_true(touched[i].work <= fake.done);
}

/* BLOCKS blocks of 4 MiB side by side, of which every other is free, its work
 * pending. */
static void checkerboard(gcp_addr *blocks)
{
	touched_count = 0;
	fake.unmapping = unmapping_must_be_done;
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = must_alloc(pool, 4 * MIB);
	for (int i = 0; i < BLOCKS; i += 2) {
		touched[touched_count].addr = blocks[i];
		touched[touched_count].bytes = 4 * MIB;
		touched[touched_count++].work = fake_submit();
		must_free(blocks[i]);
	}
	must_be_sound();
}

/* A fence for every other turn costs more than the turn. */
TEST_OF_DRIVER(a_loop_of_one_block_grows_rather_than_to_close_epochs)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.backend = GCP_BACKEND_MAPPED;
	fake_open(&config);
	uint64_t records = fake.records;
	for (int i = 0; i < 1000; i++)
		must_free(must_alloc(pool, MIB));
	assert_true(fake.records - records < 1000 / 10);
	assert_true(fake.memory_used <= 32 * MIB);
	must_be_sound();
}

/* Work is pending on every other block, as if there were none: plain cudaFree has
 * waited. */
TEST(what_waits_counts_as_free_with_what_is_around_it)
{
	gcp_addr blocks[BLOCKS];

	checkerboard(blocks);
	fake.done = fake.submitted;
	gcp_pools_close_full(pools); /* looks */
	for (int i = 1; i < BLOCKS; i += 2, fake_submit())
		must_free(blocks[i]);
	assert_int_equal(gcp_pools_reclaimable(pools, 0), fake.memory_used);
}

TEST(ordered_memory_moves_but_stays_mapped_until_it_is_done)
{
	gcp_addr blocks[BLOCKS], large;

	checkerboard(blocks);
	uint64_t used = fake.memory_used;
	gcp_pools_stream_used(pools, 0x5000);
	large = must_alloc(pool, 16 * MIB);
	assert_int_equal(fake.memory_used, used);
	assert_int_equal(must_stats().mapped_bytes, used);
	assert_int_equal(fake.unmaps, 0);
	assert_true(fake.orders > 0);
	for (uint64_t at = 0; at < 16 * MIB; at += 4 * MIB) /* behind the barrier */
		assert_true(fake_is_ordered(touched[at / (4 * MIB)].work));
	must_be_sound();
	/* A use that stands in no queue waits for the work of the block's former
	 * owners. */
	OK(gcp_pools_complete(pools, large));
	assert_true(fake.done >= touched[touched_count - 1].work);
	must_free(blocks[1]);
	gcp_pools_trim(pools, 0, 0, true);
	assert_true(fake.unmaps > 1);
	assert_int_equal(fake.memory_used, used - 4 * MIB);
}

TEST_OF_DRIVER(pending_memory_does_not_move)
{
	struct gcp_config config = fake_mapped_config();
	gcp_addr blocks[BLOCKS];

	config.window_bytes = 1ull << 40; /* no barrier before so much is pending */
	fake_open(&config);
	gcp_addr keep = must_alloc(pool, 4096 * MIB); /* 1/64 of it may wait */
	checkerboard(blocks);
	uint64_t used = fake.memory_used;
	must_alloc(pool, 16 * MIB);
	assert_int_equal(fake.memory_used, used + 16 * MIB);
	assert_int_equal(fake.orders, 0);
	must_free(keep);
}

TEST(memory_of_graphs_does_not_move)
{
	struct gcp_heap *heap;
	gcp_addr a, b;

	OK(gcp_heap_create(pool, &heap));
	OK(gcp_heap_alloc(heap, 8 * MIB, GCP_USE_CAPTURED, &a));
	OK(gcp_pools_free(pools, a));
	fake.done = fake.submitted;
	b = must_alloc(pool, 8 * MIB);
	assert_int_equal(fake.memory_used, 16 * MIB);
	assert_int_equal(fake.unmaps, 0);
	gcp_pools_trim(pools, 0, 0, true);
	assert_int_equal(fake.memory_used, 16 * MIB);
	/* Once it belongs to no graph, it does. */
	gcp_heap_release(heap);
	must_free(b);
	fake.done = fake.submitted;
	must_free(must_alloc(pool, 16 * MIB));
	assert_int_equal(fake.memory_used, 16 * MIB);
	/* What a graph keeps is not mapped: what is free of mapped memory goes. */
	gcp_pools_fences_hold(pools);
	OK(gcp_heap_create(pool, &heap));
	OK(gcp_heap_alloc(heap, 16 * MIB, GCP_USE_ANY, &a));
	assert_true(fake.memory_used <= 18 * MIB);
	gcp_pools_fences_release(pools);
}

TEST(a_segment_in_use_gives_its_unused_chunks_back)
{
	gcp_addr blocks[BLOCKS];

	checkerboard(blocks);
	fake.done = fake.submitted;
	assert_int_equal(gcp_pools_trim(pools, 0, 0, true), 16 * MIB);
	assert_int_equal(fake.memory_used, 16 * MIB);
	assert_int_equal(must_stats().reserved_bytes.current, 16 * MIB);
}

static int refused(void)
{
	return 801;
}

static int (*map_really)(gcp_addr addr, uint64_t bytes, uint64_t handle);
static int maps_left;

static int refused_for_memory(void)
{
	return GCP_CUDA_OUT_OF_MEMORY;
}

static int map_at_first(gcp_addr addr, uint64_t bytes, uint64_t handle)
{
	return maps_left-- > 0 ? map_really(addr, bytes, handle) : 801;
}

/* Whichever call it is, and whether the first or a later one: as on plain CUDA the
 * program gets its memory. */
TEST_OF_DRIVER(memory_that_cannot_be_mapped_is_ordinary)
{
	struct gcp_config config = fake_mapped_config();

	for (int call = 0; call < 6; call++) {
		struct gcp_driver driver = fake_driver();

		if (call > 0)
			fake_close(state);
		fake_setup(state);
		map_really = driver.vm_map;
		maps_left = 3;
		void **calls[] = {
		    (void **)&driver.vm_reserve, (void **)&driver.vm_create,
		    (void **)&driver.vm_open,    (void **)&driver.vm_map,
		    (void **)&driver.vm_map,     (void **)&driver.vm_map};
		void *ways[] = {(void *)refused, (void *)map_at_first,
				(void *)refused_for_memory}; /* plain CUDA has it */
		*calls[call] = ways[call < 4 ? 0 : call - 3];
		fake_open_over(&config, &driver);
		for (uint64_t i = 1; i < 20; i++)
			must_alloc(pool, i * 3 * MIB);
		assert_true(fake.allocs > 0);
	}
}

/* Each graph's memory lies at addresses of its own. */
TEST(addresses_of_graphs_that_are_gone_are_given_back)
{
	struct gcp_heap *heap;
	gcp_addr addr;
	uint64_t addresses = 0, unmapped = fake_unmapped();

	pool->cache_limit = 1024 * MIB; /* without a limit it may grow a little */
	must_alloc(pool, 32 * MIB);
	for (int i = 0; i < 40; i++) {
		OK(gcp_heap_create(pool, &heap));
		OK(gcp_heap_alloc(heap, 8 * MIB, GCP_USE_CAPTURED, &addr));
		must_free(addr);
		gcp_heap_release(heap);
		fake.done = fake.submitted;
		/* Takes the graph's memory elsewhere. */
		must_free(must_alloc(pool, 16 * MIB));
		fake.done = fake.submitted;
		if (i == 3)
			addresses = fake.addresses;
	}
	assert_true(fake.addresses <= addresses);
	/* What the host knew of their chunks goes with them. */
	assert_true(fake_unmapped() - unmapped >= 30 * 4 * sizeof(struct gcp_chunk));
}

static uint64_t opened;

static int count_opened(int device, gcp_addr addr, uint64_t bytes)
{
	opened += bytes;
	return 0;
}

static int (*open_all)(int device, gcp_addr addr, uint64_t bytes);

/* A peer is refused; the device itself is not. */
static int refuse_peers(int device, gcp_addr addr, uint64_t bytes)
{
	OK(open_all(device, addr, bytes));
	opened += bytes;
	return -EACCES;
}

/* Memory that a peer of the device would meet an error on is not given out. */
TEST_OF_DRIVER(what_a_peer_cannot_reach_is_ordinary_memory)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_driver driver = fake_driver();
	struct gcp_block_info info;
	gcp_addr blocks[3];

	open_all = driver.vm_open;
	driver.vm_open = refuse_peers;
	opened = 0;
	fake_open_over(&config, &driver);
	for (int i = 0; i < 3; i++) {
		blocks[i] = must_alloc(pool, i ? 4 * MIB : 512);
		OK(gcp_pools_find(pools, blocks[i], &info));
		assert_false(info.mapped);
		must_be_sound();
	}
	assert_int_equal(opened, 10 * MIB);
	assert_int_equal(fake.memory_used, 10 * MIB);
	for (int i = 0; i < 3; i++)
		must_free(blocks[i]);
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0, true);
	assert_int_equal(fake.memory_used, 0);
}

TEST_OF_DRIVER(a_new_peer_reaches_all_that_is_mapped)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_driver driver = fake_driver();
	gcp_addr blocks[BLOCKS];

	driver.vm_open = count_opened;
	fake_open_over(&config, &driver);
	checkerboard(blocks);
	fake.done = fake.submitted;
	must_alloc(pool, 512);
	opened = 0;
	OK(gcp_pools_reopen(pools, 0));
	assert_int_equal(opened, fake.memory_used);
	opened = 0;
	OK(gcp_pools_reopen(pools, 1));
	assert_int_equal(opened, 0);
}

/* One history whose driver calls fail one by one, once or for good. */
static bool survives_failure(uint64_t number, bool for_good)
{
	gcp_addr blocks[BLOCKS] = {0}, large = 0;

	setup(NULL);
	fake.fail_at = number;
	fake.fail_code = for_good ? 700 : GCP_CUDA_OUT_OF_MEMORY;
	fake.fail_on = for_good;
	for (int i = 0; i < BLOCKS; i++)
		(void)gcp_pool_alloc(pool, 4 * MIB, &blocks[i]);
	for (int i = 0; i < BLOCKS; i += 2)
		if (blocks[i])
			(void)gcp_pools_free(pools, blocks[i]);
	(void)gcp_pool_alloc(pool, 24 * MIB, &large);
	must_be_sound();
	(void)gcp_pools_trim(pools, 0, 0, true);
	must_be_sound();
	bool failed = fake.calls >= number;
	fake.fail_at = 0;
	return failed;
}

TEST_OF_DRIVER(each_failing_call_leaves_the_books_sound)
{
	for (int for_good = 0; for_good < 2; for_good++)
		for (uint64_t number = 1; survives_failure(number, for_good); number++)
			fake_close(state);
}

/* --- handles ---------------------------------------------------------------------- */

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

/* Of a pool that only grows: a handle and an opening for each block. */
TEST(new_memory_takes_few_calls)
{
	for (int i = 0; i < 8; i++)
		must_alloc(pool, 16 * MIB);
	assert_int_equal(must_stats().vm_create.count, 8);
	assert_int_equal(must_stats().vm_open.count, 8);
}

TEST(a_block_has_whole_handles_or_shares_chunks)
{
	assert_true(is_divided(1024, 32)); /* handles of 32 MiB */
	assert_true(is_divided(1024, 64));
	assert_false(is_divided(1024, 40));
	assert_false(is_divided(1024, 8));
	assert_true(is_divided(64, 31)); /* and less than a chunk of it */
	assert_false(is_divided(64, 30));
	assert_true(is_divided(12, 5)); /* handles of 6 MiB */
	assert_false(is_divided(12, 1));
	pool->stats.remaps = 1; /* it does not only grow */
	assert_true(is_divided(12, 1));
}

/* Nor does a graph take over a range of small ones for a large one. */
TEST(small_blocks_lie_side_by_side_and_large_ones_elsewhere)
{
	gcp_addr small[91], addr;
	struct gcp_heap *heap;

	for (int i = 0; i < 91; i++)
		small[i] = must_alloc(pool, 700 << 10);
	assert_int_equal(fake.memory_used, 64 * MIB); /* for 62.2 */
	assert_true(must_alloc(pool, 1 * MIB) >= small[0] + 64 * MIB);
	for (int i = 0; i < 91; i++)
		must_free(small[i]);
	fake.done = fake.submitted;
	OK(gcp_heap_create(pool, &heap));
	OK(gcp_heap_alloc(heap, 40 * MIB, GCP_USE_CAPTURED, &addr));
	assert_int_equal(fake.memory_used, 66 * MIB);
}

/* A block beside the room for a request, of which it could have the end alone. */
TEST(what_is_free_beside_the_room_moves_as_a_whole)
{
	gcp_addr large = must_alloc(pool, 256 * MIB), end = must_alloc(pool, 2 * MIB);

	assert_true(end == large + 256 * MIB);
	must_free(large); /* handles of 32 MiB */
	must_free(end);
	fake.done = fake.submitted;
	must_alloc(pool, 300 * MIB);
	assert_int_equal(fake.memory_used, 300 * MIB);
}

/* Rows of blocks with every other one freed: all that is free makes one block. */
TEST(what_is_free_between_blocks_serves_one_as_large_as_all_of_it)
{
	enum { ROW = 32 };
	gcp_addr large = must_alloc(pool, 512 * MIB), blocks[ROW];

	must_free(large); /* handles of 32 MiB */
	fake.done = fake.submitted;
	fake.memory_limit = 512 * MIB;
	for (int i = 0; i < ROW; i++)
		blocks[i] = must_alloc(pool, 16 * MIB);
	for (int i = 0; i < ROW; i += 2)
		must_free(blocks[i]);
	fake.done = fake.submitted;
	must_alloc(pool, 256 * MIB);
}

/* Small blocks lie all over a device; what is free between them serves others. */
CASE(what_is_free_between_small_blocks_serves_others, fake_setup_open, fake_close)
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

static void content_add(void *arg, const struct gcp_block_view *block)
{
	*(uint64_t *)arg += block->content ? block->size : 0;
	assert_non_null(block->ctx);
}

static uint64_t contents(void)
{
	uint64_t bytes = 0;

	gcp_pools_blocks(pools, 0, content_add, &bytes);
	return bytes;
}

TEST_OF_DRIVER(memory_sleeps_and_comes_back_where_it_was)
{
	struct gcp_config config = fake_mapped_config();
	gcp_addr held, freed, output, scratch;
	struct gcp_heap *heap;

	fake_open(&config);
	held = must_alloc(pool, 5 * MIB);
	freed = must_alloc(pool, 6 * MIB);
	OK(gcp_heap_create(pool, &heap));
	OK(gcp_heap_alloc(heap, 4 * MIB, GCP_USE_ANY, &output));
	OK(gcp_heap_alloc(heap, 2 * MIB, GCP_USE_CAPTURED, &scratch));
	OK(gcp_pools_free(pools, scratch));
	must_free(freed);
	uint64_t used = fake.memory_used;
	/* What a graph has freed may have content as long as it is not sealed. */
	assert_int_equal(contents(), 11 * MIB);
	gcp_pools_sleep(pools);
	assert_int_equal(fake.memory_used, 0);
	fake.memory_limit = used / 2;
	assert_int_equal(gcp_pools_reopen(pools, -1), GCP_CUDA_OUT_OF_MEMORY);
	gcp_pools_sleep(pools);
	assert_int_equal(fake.memory_used, 0);
	fake.memory_limit = 1ull << 40;
	OK(gcp_pools_reopen(pools, -1));
	assert_int_equal(fake.memory_used, used);
	must_be_sound();
	must_free(held);
	OK(gcp_pools_free(pools, output));
	gcp_heap_release(heap);
}

/* With a barrier behind them, as with one behind the large block, memory serves again.
 */
TEST_OF_DRIVER(small_blocks_that_wait_keep_no_large_one_from_serving)
{
	struct gcp_config config = fake_mapped_config();
	gcp_addr small[200];

	config.window_bytes = 240 * MIB;
	fake_open(&config);
	fake.stuck = true;
	(void)fake_submit();
	for (int i = 0; i < 200; i++)
		small[i] = must_alloc(pool, MIB);
	for (int i = 0; i < 200; i++)
		must_free(small[i]);
	for (uint64_t bytes = 300 * MIB; bytes > 290 * MIB; bytes -= MIB)
		must_free(must_alloc(pool, bytes));
	assert_true(must_stats().reserved_bytes.peak < 400 * MIB);
}

/* Each of a size of its own, freed in its stream while the device stands still. */
TEST(sizes_of_a_stream_ahead_of_the_device_share_handles)
{
	struct gcp_stream_order order = {.stream = 1};
	gcp_addr addr;

	fake.stuck = true;
	for (uint64_t i = 0; i < 200; i++) {
		uint64_t bytes = (i * 37 % 100 + 1) * 3 * MIB;

		OK(gcp_pool_alloc_stream(pool, bytes, 0, &order, &addr));
		(void)fake_submit();
		OK(gcp_pools_free_async(pools, addr, 1));
	}
	assert_true(must_stats().reserved_bytes.peak < 2 * 300 * MIB);
	must_be_sound();
}

/* BLOCKS of 4 to 64 MiB at a time, ahead of the device. */
TEST(a_stream_takes_the_smallest_of_its_blocks_that_fits)
{
	struct gcp_stream_order order = {.stream = 1};
	gcp_addr blocks[BLOCKS] = {0};
	uint32_t random = 1;

	fake.stuck = true;
	for (int i = 0; i < 600; i++) {
		random = random * 1103515245 + 12345;
		gcp_addr *block = &blocks[(random >> 16) % BLOCKS];
		uint64_t bytes = (4 + (random >> 20) % 61) * MIB;

		if (*block)
			OK(gcp_pools_free_async(pools, *block, 1));
		OK(gcp_pool_alloc_stream(pool, bytes, 0, &order, block));
		(void)fake_submit();
	}
	assert_true(must_stats().reserved_bytes.peak <
		    3 * must_stats().requested_bytes.peak);
	must_be_sound();
}

/* No block is as large as the next, and none lies beside another of its stream: what
 * the stream has freed is mapped elsewhere, and stays mapped where it was until the
 * device is done. */
TEST(what_a_stream_frees_serves_larger_blocks_of_it)
{
	gcp_addr addr = 0, first = 0;

	fake.stuck = true;
	for (uint64_t i = 0; i < 200; i++) {
		struct gcp_stream_order order = {.stream = 1 + i % 4};

		OK(gcp_pool_alloc_stream(pool, (40 + i) * MIB, 0, &order, &addr));
		first = first ? first : addr;
		(void)fake_submit();
		OK(gcp_pools_free_async(pools, addr, order.stream));
	}
	assert_true(must_stats().reserved_bytes.peak < 5 * 240 * MIB);
	assert_int_equal(fake.unmaps, 0);
	(void)fake_physical(first); /* asserts that it is mapped */
	must_be_sound();
}
