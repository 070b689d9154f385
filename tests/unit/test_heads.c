/* SPDX-License-Identifier: MIT */
/*
 * test_heads.c - an ordinary segment that blocks share begins with a page that none of
 * them has: code that the library does not see frees the whole segment by that address.
 */
#include "fake.h"

#include "../../pool/cache/cache.h"
#include "cases.h"

#define TEST(name) CASE(name, fake_setup, NULL)

#define KIB (1ull << 10)
#define MIB (1ull << 20)

enum { BLOCKS = 96, STREAM = 0x5000 };

/* Segments of the simulated driver lie so far apart. */
static uint64_t segment_of(gcp_addr addr)
{
	return addr >> 32;
}

static void must_share_no_beginning(const gcp_addr *addrs, int count)
{
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			assert_false(i != j && addrs[i] &&
				     segment_of(addrs[i]) == segment_of(addrs[j]) &&
				     addrs[i] % (UINT64_C(1) << 32) == 0);
}

/* Whose threads keep no blocks. */
static struct gcp_pools *pools_without_caches(void)
{
	struct gcp_config config;

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	return fake_pools(&config);
}

/* 64 MiB in a segment of their own, freed in the stream behind work. */
static gcp_addr freed_in_stream(struct gcp_pools *pools)
{
	gcp_addr addr;

	assert_int_equal(
	    gcp_pool_alloc_stream(fake_pool(pools), 64 * MIB, STREAM, &addr), 0);
	fake_submit();
	assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
	return addr;
}

TEST(no_block_begins_a_segment_that_others_share)
{
	static const uint64_t sizes[] = {512,           4 * KIB, 100 * KIB, 128 * KIB,
					 256 * KIB,     MIB,     2 * MIB,   3 * MIB,
					 4 * MIB + 512, 8 * MIB, 24 * MIB};
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

	for (int only = -1; only < SIZES; only++) {
		struct gcp_pools *pools = fake_pools(NULL);
		gcp_addr addrs[BLOCKS];

		for (int i = 0; i < BLOCKS; i++)
			addrs[i] = must_alloc(fake_pool(pools),
					      sizes[only < 0 ? i % SIZES : only]);
		must_be_sound(pools);
		must_share_no_beginning(addrs, BLOCKS);
		must_go_back(pools, addrs, BLOCKS);
	}
}

/* A block of its own begins its segment; parts of the segment do not. */
TEST(a_segment_is_cut_behind_its_first_page)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr whole = must_alloc(pool, 64 * MIB), parts[3] = {0};

	assert_int_equal(whole % (UINT64_C(1) << 32), 0);
	must_free(pools, whole);
	parts[0] = must_alloc(pool, 31 * MIB);
	parts[1] = must_alloc(pool, 33 * MIB - GCP_PAGE);
	assert_int_equal(segment_of(parts[0]), segment_of(whole));
	assert_int_equal(segment_of(parts[1]), segment_of(whole));
	must_share_no_beginning(parts, 2);
	must_be_sound(pools);
	for (int i = 0; i < 2; i++)
		must_free(pools, parts[i]);
	fake.done = fake.submitted;
	/* Free again it is whole, also for one that fills it. */
	assert_int_equal(must_alloc(pool, 64 * MIB), whole);
	must_go_back(pools, &whole, 1);
}

/* A class whose blocks leave less than the head has all of a segment. */
TEST(what_nearly_fills_a_segment_begins_it)
{
	struct gcp_config config;
	struct gcp_block_info info;
	struct gcp_pools *pools;
	struct gcp_heap *heap;
	gcp_addr addr;

	gcp_config_default(&config);
	config.class_list_count = 2;
	config.class_list[0] = 64 * KIB;
	config.class_list[1] = 2 * MIB - 512;
	pools = fake_pools(&config);
	assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
	gcp_heap_set_reuse(heap, GCP_REUSE_FENCED, GCP_GROUP_FIRST);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
		    gcp_heap_alloc(heap, 2 * MIB - 512, GCP_USE_CAPTURED, &addr), 0);
		assert_int_equal(gcp_pools_find(pools, addr, &info), 0);
		assert_int_equal(info.size, 2 * MIB);
		assert_int_equal(addr % (UINT64_C(1) << 32), 0);
	}
}

/* A handle of CUDA's for other processes names the whole allocation. */
TEST(large_blocks_begin_their_segments)
{
	static const uint64_t sizes[] = {8 * MIB + 512, 9 * MIB, 25 * MIB, 101 * MIB};
	struct gcp_pools *pools = fake_pools(NULL);
	gcp_addr addrs[4];

	for (int i = 0; i < 4; i++) {
		addrs[i] = must_alloc(fake_pool(pools), sizes[i]);
		assert_int_equal(addrs[i] % (UINT64_C(1) << 32), 0);
	}
	must_share_no_beginning(addrs, 4);
	must_go_back(pools, addrs, 4);
}

/* They are larger than what is asked for: their streams find them all the same. */
TEST(large_blocks_serve_their_streams_again)
{
	enum { TURNS = 100 };
	struct gcp_pools *pools = fake_pools(NULL);
	gcp_addr addr;

	for (int i = 0; i < TURNS; i++) {
		fake_submit();
		assert_int_equal(
		    gcp_pool_alloc_stream(fake_pool(pools), 9 * MIB, STREAM, &addr), 0);
		fake_submit();
		assert_int_equal(gcp_pools_free_async(pools, addr, STREAM), 0);
	}
	assert_int_equal(fake.memory_used, 10 * MIB);
	must_be_sound(pools);
}

/* Blocks of a size class that has segments to itself, and what is never cut. */
TEST(runs_and_huge_blocks)
{
	struct gcp_config config;
	struct gcp_pools *pools;
	gcp_addr addrs[BLOCKS];

	gcp_config_default(&config);
	config.slab_max = 256 * KIB; /* a run fills a segment */
	config.segment_bytes = config.split_limit = 2 * MIB;
	pools = fake_pools(&config);
	for (int i = 0; i < BLOCKS; i++)
		addrs[i] = must_alloc(fake_pool(pools), 256 * KIB);
	must_share_no_beginning(addrs, BLOCKS);
	/* Seven in each segment. */
	assert_int_equal(fake.memory_used, (BLOCKS + 6) / 7 * 2 * MIB);
	must_be_sound(pools);
	gcp_addr huge = must_alloc(fake_pool(pools), 9 * MIB);
	assert_int_equal(huge % (UINT64_C(1) << 32), 0);
	must_free(pools, huge);
	must_go_back(pools, addrs, BLOCKS);
}

/* What lies between a head and the next run serves another size class as a run. */
TEST(a_run_behind_a_head_is_a_run_again)
{
	enum { COUNT = 7 + 31 * 8 };
	struct gcp_config config;
	struct gcp_pools *pools;
	gcp_addr addrs[COUNT];

	gcp_config_default(&config);
	config.thread_cache_bytes = 0;
	config.blocking_free = true; /* what is freed is ready */
	pools = fake_pools(&config);
	for (int i = 0; i < COUNT; i++)
		addrs[i] = must_alloc(fake_pool(pools), 8 * KIB);
	assert_int_equal(fake.memory_used, 2 * MIB);
	for (int i = 0; i < COUNT; i++) {
		if (addrs[i] % (UINT64_C(1) << 32) >= 64 * KIB)
			continue;
		must_free(pools, addrs[i]);
		addrs[i] = 0;
	}
	(void)gcp_pools_reclaimable(pools, 0); /* slabs become runs */
	addrs[0] = must_alloc(fake_pool(pools), 6 * KIB);
	assert_int_equal(fake.memory_used, 2 * MIB);
	must_go_back(pools, addrs, COUNT);
}

/* Graphs, most of which have little: what does not fill a segment shares one. */
TEST(blocks_of_graphs_lie_behind_heads)
{
	enum { COUNT = 64 };
	gcp_addr addrs[COUNT];

	for (int mapped = 0; mapped < 2; mapped++) {
		struct gcp_config config = fake_mapped_config();
		struct gcp_pools *pools;
		struct gcp_heap *heap;

		fake_reset();
		pools = fake_pools(mapped ? &config : NULL);
		assert_int_equal(gcp_heap_create(fake_pool(pools), &heap), 0);
		gcp_heap_set_reuse(heap, GCP_REUSE_FENCED, GCP_GROUP_FIRST);
		for (int i = 0; i < COUNT; i++)
			assert_int_equal(
			    gcp_heap_alloc(heap, MIB, GCP_USE_ANY, &addrs[i]), 0);
		must_share_no_beginning(addrs, COUNT);
		must_be_sound(pools);
		assert_true(fake.memory_used <= COUNT * 5 / 4 * MIB);
	}
}

/* What waits for its epoch serves its stream in parts. */
TEST(parts_in_a_stream_lie_behind_the_head)
{
	struct gcp_pools *pools = pools_without_caches();
	gcp_addr whole = freed_in_stream(pools), parts[2];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(gcp_pool_alloc_stream(fake_pool(pools), 16 * MIB,
						       STREAM, &parts[i]),
				 0);
		assert_int_equal(segment_of(parts[i]), segment_of(whole));
		must_be_sound(pools);
	}
	must_share_no_beginning(parts, 2);
	must_go_back(pools, parts, 2);
}

/* An allocation waits for parts that fill a segment only with its head. */
TEST(what_waits_fills_a_segment_with_its_head)
{
	struct gcp_pools *pools = pools_without_caches();
	struct gcp_pool *pool = fake_pool(pools);
	gcp_addr whole, parts[2];
	uint64_t epoch;

	whole = must_alloc(pool, 64 * MIB);
	must_free(pools, whole);
	fake.done = fake.submitted;
	parts[0] = must_alloc(pool, 31 * MIB);
	parts[1] = must_alloc(pool, 33 * MIB - GCP_PAGE);
	fake_submit();
	for (int i = 0; i < 2; i++)
		must_free(pools, parts[i]);
	gcp_mutex_lock(&pool->lock);
	epoch = gcp_heap_fitting_epoch(&pool->common, 64 * MIB, GCP_CLASS_NONE);
	gcp_mutex_unlock(&pool->lock);
	assert_int_not_equal(epoch, 0);
	must_go_back(pools, NULL, 0);
}

/* Code that the library does not see frees blocks that fill their segments, as it may,
 * and the driver gives their addresses again, to larger ones. */
TEST(what_is_freed_elsewhere_leaves_the_books)
{
	enum { USED, ASYNC, FREE, PENDING, KINDS };

	for (int kind = 0; kind < 2 * KINDS; kind++) {
		fake_reset();

		struct gcp_pools *pools = pools_without_caches();
		struct gcp_pool *pool = fake_pool(pools);
		gcp_addr other = must_alloc(pool, 2048 * MIB), addr, again;
		struct gcp_stats before = must_stats(pools), after;

		if (kind % KINDS == ASYNC)
			assert_int_equal(
			    gcp_pool_alloc_stream(pool, 64 * MIB, STREAM, &addr), 0);
		else
			addr = must_alloc(pool, 64 * MIB);
		assert_int_equal(fake_driver().mem_free(pool->ctx, addr), 0);
		if (kind % KINDS == PENDING)
			(void)fake_submit();
		if (kind % KINDS >= FREE)
			must_free(pools, addr);
		if (kind % KINDS == FREE) {
			fake.done = fake.submitted;
			assert_int_equal(gcp_timeline_poll_all(pool), 0);
		}
		fake.next_addr = segment_of(addr);
		again = must_alloc(pool, kind < KINDS ? 72 * MIB : 80 * MIB);
		assert_int_equal(again, addr);
		fake.next_addr = segment_of(addr) + 1;
		must_be_sound(pools);
		must_free(pools, again);
		fake.done = fake.submitted;
		gcp_pools_trim(pools, 0, 0);
		after = must_stats(pools);
		assert_int_equal(after.allocation.current, before.allocation.current);
		assert_int_equal(after.async_bytes.current, 0);
		assert_int_equal(after.allocated_bytes.current,
				 before.allocated_bytes.current);
		assert_int_equal(after.active_bytes.current,
				 before.active_bytes.current);
		assert_int_equal(after.reserved_bytes.current, fake.memory_used);
		must_go_back(pools, &other, 1);
	}
}

/* What lies in addresses that the driver gives again as one. */
TEST(several_blocks_are_freed_elsewhere)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_segment *segment;
	gcp_addr low = must_alloc(pool, 64 * MIB), high = must_alloc(pool, 64 * MIB);

	for (int i = 0; i < 2; i++)
		assert_int_equal(fake_driver().mem_free(pool->ctx, i ? high : low), 0);
	gcp_mutex_lock(&pool->lock);
	assert_int_equal(gcp_heap_add_segment(&pool->common, low, high + 1 - low + MIB,
					      GCP_KIND_LARGE),
			 0);
	segment = gcp_segments_first(&pool->segments);
	assert_int_equal(segment->addr, low);
	assert_null(gcp_segments_next(segment));
	gcp_mutex_unlock(&pool->lock);
}

/* What a graph has stays in the books, beside what the driver gives instead. */
TEST(a_graphs_block_freed_elsewhere_stays)
{
	struct gcp_pools *pools = fake_pools(NULL);
	struct gcp_pool *pool = fake_pool(pools);
	struct gcp_segment *first, *second;
	struct gcp_heap *heap;
	gcp_addr addr, again;

	assert_int_equal(gcp_heap_create(pool, &heap), 0);
	gcp_heap_set_reuse(heap, GCP_REUSE_FENCED, GCP_GROUP_FIRST);
	assert_int_equal(gcp_heap_alloc(heap, 64 * MIB, GCP_USE_CAPTURED, &addr), 0);
	assert_int_equal(fake_driver().mem_free(pool->ctx, addr), 0);
	fake.next_addr = segment_of(addr);
	again = must_alloc(pool, 64 * MIB);
	assert_int_equal(again, addr);
	first = gcp_segments_first(&pool->segments);
	second = gcp_segments_next(first);
	assert_non_null(second);
	must_free(pools, again);
	fake.done = fake.submitted;
	gcp_pools_trim(pools, 0, 0);
	assert_ptr_equal(gcp_segments_first(&pool->segments), first);
	assert_null(gcp_segments_next(first));
}

/* Blocks of one size: how much of a device they fill. docs/limits.md says it. */
TEST(blocks_of_one_size_fill_a_device)
{
	static const struct {
		uint64_t bytes;
		int least; /* of 1,000 */
	} devices[] = {{1024 * MIB, 880}, {80 * 1024 * MIB, 993}};

	for (int i = 0; i < 2; i++) {
		struct gcp_pools *pools;
		uint64_t bytes = 0;
		gcp_addr addr;

		fake_reset();
		fake.memory_limit = devices[i].bytes;
		pools = fake_pools(NULL);
		while (gcp_pool_alloc(fake_pool(pools), 2 * MIB, &addr) == 0)
			bytes += 2 * MIB;
		assert_in_range(bytes * 1000 / devices[i].bytes, devices[i].least,
				1000);
	}
}
