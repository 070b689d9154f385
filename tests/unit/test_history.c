/* SPDX-License-Identifier: MIT */
/*
 * test_history.c - random histories of one thread against a small model.
 *
 * From one seed: the pool's options, the memory of the device, and a history
 * of allocations, frees, work, completion, captures, trims. The model knows
 * which block is whose and which work touched it last, and judges every block
 * that is handed out. A failure prints its seed: `test_history SEED` runs it.
 *
 * With mapped segments (`vmm`) memory has two names: work touched addresses, which
 * must stay mapped until it is done, and the physical memory behind them, which
 * must not be given out before later work is ordered behind it.
 */
#include "fake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE_MAX = 200, FREED_MAX = 1 << 16, STEPS = 400, CHUNK = 2 << 20 };

struct range {
	gcp_addr addr, physical;
	uint64_t size, work;
};

static struct {
	uint64_t seed, random;
	struct gcp_pools *pools;
	struct gcp_pool *pool;
	struct range live[LIVE_MAX], freed[FREED_MAX]; /* freed: within chunks */
	int live_count, freed_count, holds;
	bool hazard;
	bool completed_only;
	bool done; /* the history was played to its end */
} model;

static uint64_t moved; /* allocations served by mapping memory elsewhere */

#ifdef GCP_HISTORY_FROM_BYTES /* tests/explore/fuzz/fuzz_history.c */
static const uint8_t *history_bytes;
static size_t history_bytes_left;

static uint64_t draw(uint64_t below)
{
	uint64_t number = 0;

	for (uint64_t most = 1; most < below && history_bytes_left > 0; most <<= 8) {
		number = number << 8 | *history_bytes++;
		history_bytes_left--;
	}
	return number % below;
}

static bool history_goes_on(int step)
{
	(void)step;
	return history_bytes_left > 0;
}
#else
static bool history_goes_on(int step)
{
	return step < STEPS;
}

static uint64_t draw(uint64_t below)
{
	model.random ^= model.random << 13;
	model.random ^= model.random >> 7;
	model.random ^= model.random << 17;
	return (model.random * 0x2545f4914f6cdd1dull >> 11) % below;
}
#endif

static bool overlap(const struct range *a, const struct range *b)
{
	return a->addr < b->addr + b->size && b->addr < a->addr + a->size;
}

static bool overlap_physical(const struct range *a, const struct range *b)
{
	return a->physical < b->physical + b->size &&
	       b->physical < a->physical + a->size;
}

/* The part of `whole` from `offset` on that lies in one chunk. */
static struct range piece_at(const struct range *whole, uint64_t offset)
{
	struct range piece = {.addr = whole->addr + offset, .work = whole->work};
	uint64_t room = CHUNK - piece.addr % CHUNK, left = whole->size - offset;

	piece.size = room < left ? room : left;
	piece.physical = fake_physical(piece.addr);
	return piece;
}

static bool is_safe(uint64_t work)
{
	return model.completed_only ? work <= fake.done : fake_is_ordered(work);
}

static bool is_done(uint64_t work)
{
	return work <= fake.done;
}

/* Whether work that touched the memory of `given` is not as `enough` wants it. */
static bool touches(const struct range *given, bool (*enough)(uint64_t work))
{
	for (uint64_t at = 0; at < given->size;) {
		struct range piece = piece_at(given, at);

		for (int i = 0; i < model.freed_count; i++)
			if (!enough(model.freed[i].work) &&
			    overlap_physical(&piece, &model.freed[i]))
				return true;
		at += piece.size;
	}
	return false;
}

/* Judges a block that was just handed out; `complete`: also after all work on it
 * has been waited for. */
static void judge(const struct range *given)
{
	bool complete = model.holds == 0 && draw(8) == 0;
	int kept = 0;

	for (int i = 0; i < model.live_count; i++)
		if (overlap(given, &model.live[i]))
			model.hazard = true;
	for (int i = 0; i < model.freed_count; i++)
		if (model.freed[i].work > fake.done)
			model.freed[kept++] = model.freed[i];
	model.freed_count = kept;
	if (touches(given, is_safe))
		model.hazard = true;
	if (!complete)
		return;
	assert_int_equal(gcp_pools_complete(model.pools, given->addr), 0);
	if (touches(given, is_done))
		model.hazard = true;
}

static void remember_freed(const struct range *range)
{
	for (uint64_t at = 0; at < range->size && model.freed_count < FREED_MAX;) {
		model.freed[model.freed_count] = piece_at(range, at);
		at += model.freed[model.freed_count++].size;
	}
}

/* Unmapping waits for nothing: all work on the addresses must be done. */
static void judge_unmapping(gcp_addr addr, uint64_t bytes)
{
	struct range gone = {.addr = addr, .size = bytes};

	for (int i = 0; i < model.live_count; i++)
		if (overlap(&gone, &model.live[i]))
			model.hazard = true;
	for (int i = 0; i < model.freed_count; i++)
		if (overlap(&gone, &model.freed[i]) && model.freed[i].work > fake.done)
			model.hazard = true;
}

static uint64_t draw_size(void)
{
	switch (draw(7)) {
	case 0:
		return 1 + draw(4096);
	case 1:
		return 1 + draw(64 << 10);
	case 2:
		return 1 + draw(1 << 20);
	case 3:
		return 1 + draw(16 << 20);
	case 4:
		return 1ull << (9 + draw(15));
	case 5: /* few to a slab, and often: it runs dry */
		return (24 + 8 * draw(2)) << 10;
	default:
		return 1 + draw(draw(20) ? 1 << 20 : 400 << 20);
	}
}

static void step_alloc(void)
{
	struct range given = {.size = draw_size()};
	int result;

	if (model.live_count == LIVE_MAX)
		return;
	result = gcp_pool_alloc(model.pool, given.size, &given.addr);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		return;
	assert_int_equal(result, 0);
	judge(&given);
	if (draw(4) != 0)
		given.work = fake_submit();
	model.live[model.live_count++] = given;
}

static void step_free(void)
{
	int i;

	if (model.live_count == 0)
		return;
	i = (int)draw((uint64_t)model.live_count);
	if (draw(2))
		model.live[i].work = fake_submit();
	struct range range = model.live[i];
	model.live[i] = model.live[--model.live_count];
	if (range.work)
		remember_freed(&range);
	must_free(model.pools, range.addr);
}

static void step_hold(void)
{
	if (model.holds > 0 && draw(2)) {
		model.holds--;
		fake.capturing--;
		gcp_pools_fences_release(model.pools);
	} else if (draw(8) == 0) {
		gcp_pools_fences_hold(model.pools);
		model.holds++;
		fake.capturing++;
	}
}

static void step(void)
{
	switch (draw(16)) {
	case 0 ... 5:
		step_alloc();
		break;
	case 6 ... 10:
		step_free();
		break;
	case 11:
		if (model.live_count > 0)
			model.live[draw((uint64_t)model.live_count)].work =
			    fake_submit();
		break;
	case 12:
		fake.done += draw(fake.submitted - fake.done + 1);
		break;
	case 13:
		step_hold();
		break;
	case 14:
		if (draw(20) == 0)
			gcp_pools_trim(model.pools, 0, draw(64 << 20));
		else if (draw(20) == 0)
			gcp_pools_relieve(model.pools, -1, &(struct gcp_search){0});
		break;
	default:
		must_be_sound(model.pools);
	}
}

static struct gcp_config draw_config(void)
{
	static const uint64_t windows[] = {0, 1 << 20, 16 << 20, 64 << 20};
	struct gcp_config config;

	gcp_config_default(&config);
	config.class_steps = 1u << draw(5);
	config.window_bytes = windows[draw(4)];
	config.window_blocks = 1 + (uint32_t)draw(64);
	config.epoch_blocks = 1 + (uint32_t)draw(32);
	if (draw(2) == 0)
		config.thread_cache_bytes = draw(3) ? draw(4 << 20) : 0;
	if (draw(4) == 0)
		config.cache_limit = 1 + draw(64 << 20);
	config.completed_only = draw(8) == 0;
	config.blocking_free = draw(16) == 0;
	return config;
}

static bool history_has_hazard(uint64_t seed, bool mapped)
{
	struct gcp_config config;

	memset(&model, 0, sizeof(model));
	fake_reset();
	model.seed = seed;
	model.random = seed * 0x9e3779b97f4a7c15ull + 1;
	config = draw_config();
	if (mapped && draw(2)) /* with the sizes that suit it */
		config.class_max = config.slab_max = 16 << 10;
	config.backend = mapped ? GCP_BACKEND_MAPPED : GCP_BACKEND_SEGMENTS;
	if (mapped) {
	}
	fake.unmapping = judge_unmapping;
	model.completed_only = config.completed_only;
	fake.memory_limit = draw(2) ? 1ull << 40 : (64 + draw(1000)) << 20;
	model.pools = fake_pools(&config);
	model.pool = fake_pool(model.pools);
	for (int i = 0; history_goes_on(i) && !model.hazard; i++)
		step();
	while (model.holds-- > 0) {
		fake.capturing--;
		gcp_pools_fences_release(model.pools);
	}
	while (model.live_count > 0)
		step_free();
	/* Nothing leaks: all that was taken can be given back. */
	moved += must_stats(model.pools).remaps;
	gcp_pools_trim(model.pools, 0, 0);
	assert_int_equal(fake.memory_used, 0);
	fake_finish(model.pools);
	model.done = !model.hazard;
	return model.hazard;
}

#ifndef GCP_HISTORY_FROM_BYTES
static uint64_t first_seed = 1, seeds = 2000;

static void random_histories_have_no_hazard(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
		if (history_has_hazard(seed, false))
			fail_msg(
			    "hazard: a block was given out too early; seed %" PRIu64,
			    seed);
}

static void random_histories_of_mapped_segments_have_none(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
		if (history_has_hazard(seed, true))
			fail_msg("hazard: mapped memory was given out or unmapped too "
				 "early; seed %" PRIu64,
				 seed);
	assert_true(seeds < 1000 || moved > 0);
}

/* Whatever the failure was. */
static int say_seed(void **state)
{
	(void)state;
	if (!model.done)
		printf("# failed at seed %" PRIu64 "\n", model.seed);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(random_histories_have_no_hazard, say_seed),
	    cmocka_unit_test_teardown(random_histories_of_mapped_segments_have_none,
				      say_seed),
	};

	if (argc > 1) {
		first_seed = strtoull(argv[1], NULL, 0);
		seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
