/* SPDX-License-Identifier: MIT */
/*
 * test_steps.c - what a call costs among many blocks, and among sixteen times as many,
 * counted in steps of the pool (steps.h): queries, misses, and handles that are
 * gathered. What grows with the logarithm takes a third more at most.
 */
#include <stdlib.h>

#include "fake.h"
#include "steps.h"
#include "cases.h"

#define TEST(name) CASE(name, NULL, NULL)

#define MIB (1ull << 20)

enum {
	MANY = 1000000,
	MANY_HANDLES = 70000,
	FEWER = 16,
	TURNS = 64,
	GROWTH_MOST = 2, /* times as many steps; 16 where each block is looked at */
};

static struct gcp_pools *pools;
static gcp_addr *blocks;
static int count;

static bool large_device(int device, uint64_t *ret_granularity, uint64_t *ret_memory)
{
	(void)device;
	*ret_granularity = 2 * MIB;
	*ret_memory = 200ull << 30;
	return true;
}

/* Blocks of one size. */
struct scene {
	bool mapped;
	int count;
	uint64_t bytes;
};

static void blocks_make(const struct scene *scene)
{
	struct gcp_config config = fake_mapped_config();
	struct gcp_driver driver;

	if (!scene->mapped)
		gcp_config_default(&config);
	fake_reset();
	driver = fake_driver();
	driver.vm_device = large_device;
	assert_int_equal(gcp_pools_create(&config, &driver, &pools), 0);
	count = scene->count;
	blocks = calloc((size_t)count, sizeof(*blocks));
	assert_non_null(blocks);
	for (int i = 0; i < count; i++)
		blocks[i] = must_alloc(fake_pool(pools), scene->bytes);
}

/* And its work is done. */
static void every_other_goes(void)
{
	for (int i = 0; i < count; i += 2)
		must_free(pools, blocks[i]);
	fake.done = fake.submitted;
}

static void blocks_end(void)
{
	gcp_pools_destroy(pools);
	free(blocks);
}

/* Of one query, for blocks from the first to the last. */
static uint64_t steps_of_a_query(const struct scene *scene)
{
	struct gcp_block_info info;
	uint64_t steps;

	blocks_make(scene);
	steps = steps_done();
	for (int64_t i = 0; i < TURNS; i++) {
		gcp_addr addr = blocks[i * (count - 1) / (TURNS - 1)];

		assert_int_equal(gcp_pools_find(pools, addr + 511, &info), 0);
		assert_int_equal(info.addr, addr);
	}
	steps = steps_done() - steps;
	blocks_end();
	return steps / TURNS;
}

/* Of one free: with what the next miss does for it, when its work is done. */
static uint64_t steps_of_a_free(const struct scene *scene)
{
	uint64_t steps;

	blocks_make(scene);
	steps = steps_done();
	every_other_goes();
	for (int i = 0; i < TURNS; i++)
		must_alloc(fake_pool(pools), 5 * MIB);
	steps = steps_done() - steps;
	blocks_end();
	return steps / ((uint64_t)count / 2);
}

/* Of an allocation that fits no hole, each of another size. */
static uint64_t steps_of_a_miss(const struct scene *scene)
{
	uint64_t steps;

	blocks_make(scene);
	every_other_goes();
	for (int i = 0; i < TURNS; i++)
		must_alloc(fake_pool(pools), 5 * MIB);
	steps = steps_done();
	for (unsigned i = 0; i < TURNS; i++)
		must_alloc(fake_pool(pools), 5 * MIB + i * 4096);
	steps = steps_done() - steps;
	blocks_end();
	return steps / TURNS;
}

/* Of one handle, where an allocation needs nearly all that are unused. */
static uint64_t steps_of_a_gathered_handle(const struct scene *scene)
{
	uint64_t steps, maps, handles = (uint64_t)scene->count / 2 - 8;

	blocks_make(scene);
	every_other_goes();
	maps = fake.maps;
	steps = steps_done();
	must_alloc(fake_pool(pools), handles * scene->bytes);
	steps = steps_done() - steps;
	maps = fake.maps - maps;
	assert_in_range(maps, handles / 10 * 9, handles);
	blocks_end();
	return steps / maps;
}

static void grows_little(const char *what, uint64_t (*steps)(const struct scene *scene),
			 struct scene scene)
{
	uint64_t few, many;

	scene.count /= FEWER;
	few = steps(&scene);
	scene.count *= FEWER;
	many = steps(&scene);
	print_message("# %s, %s, %lu bytes: %lu steps among %d, %lu among %d\n", what,
		      scene.mapped ? "mapped" : "segments", scene.bytes, few,
		      scene.count / FEWER, many, scene.count);
	assert_in_range(few, 1, UINT64_MAX);
	assert_true(many <= GROWTH_MOST * few);
}

static const struct scene small_blocks[] = {{false, MANY, 512}, {true, MANY, 512}};
static const struct scene large_blocks[] = {{false, MANY_HANDLES, 2 * MIB},
					    {true, MANY_HANDLES, 2 * MIB}};

static void each_grows_little(const char *what,
			      uint64_t (*steps)(const struct scene *scene))
{
	for (int i = 0; i < 2; i++) {
		grows_little(what, steps, small_blocks[i]);
		grows_little(what, steps, large_blocks[i]);
	}
}

TEST(a_query_walks_over_no_other_blocks)
{
	each_grows_little("a query", steps_of_a_query);
}

TEST(a_free_walks_over_no_other_blocks)
{
	each_grows_little("a free", steps_of_a_free);
}

TEST(a_miss_walks_over_no_blocks_and_holes)
{
	each_grows_little("a miss", steps_of_a_miss);
}

TEST(a_handle_is_gathered_without_a_walk_over_others)
{
	/* As many as the driver of fake_vmm.c has addresses for, twice. */
	const struct scene scene = {true, 64000, 2 * MIB};

	grows_little("a gathered handle", steps_of_a_gathered_handle, scene);
}
