/* SPDX-License-Identifier: MIT */
/*
 * test_map.c - which block starts at an address, or below it: against a table that is
 * walked from the address down.
 */
#include "fake.h"
#include "../../pool/pool_types.h"
#include "cases.h"

#include <stdlib.h>

#define TEST(name) CASE(name, NULL, NULL)

enum { UNITS = 1 << 18, STEPS = 20000 }; /* four leaves of the map */

static const gcp_addr base = 5ull << 40;
static struct gcp_block blocks[UNITS];
static bool there[UNITS];
static uint64_t random_state = 7;

static uint64_t draw(uint64_t below)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (random_state >> 33) % below;
}

static gcp_addr addr_of(uint64_t unit)
{
	return base + unit * GCP_UNIT;
}

static struct gcp_block *wanted_below(uint64_t unit, uint64_t low)
{
	for (uint64_t i = unit + 1; i-- > low;)
		if (there[i])
			return &blocks[i];
	return NULL;
}

TEST(the_next_block_below_is_found)
{
	struct gcp_map *map = gcp_map_create();

	assert_non_null(map);
	for (int step = 0; step < STEPS; step++) {
		/* Crowded in places, empty in others. */
		uint64_t at = draw(4) ? draw(UNITS) : draw(500) + UNITS / 2;
		uint64_t low = draw(2) ? 0 : draw(at + 1);

		if (draw(2)) {
			assert_int_equal(gcp_map_set(map, addr_of(at), &blocks[at]), 0);
			there[at] = true;
		} else if (draw(20) == 0) { /* by and by all of them */
			for (uint64_t i = at; i < at + 5000 && i < UNITS; i++) {
				gcp_map_clear(map, addr_of(i), &blocks[i]);
				there[i] = false;
			}
		}
		at = draw(UNITS);
		low = low < at ? low : at;
		assert_ptr_equal(
		    gcp_map_find_below(map, addr_of(at) + draw(GCP_UNIT), addr_of(low)),
		    wanted_below(at, low));
		assert_ptr_equal(gcp_map_find(map, addr_of(at)),
				 there[at] ? &blocks[at] : NULL);
	}
	gcp_map_destroy(map);
}

/* An address that has passed to another pool meanwhile is found. */
TEST(what_is_another_pools_stays)
{
	struct gcp_map *map = gcp_map_create();

	assert_int_equal(gcp_map_set(map, base, &blocks[1]), 0);
	gcp_map_clear(map, base, &blocks[0]);
	assert_ptr_equal(gcp_map_find_below(map, base + 5000, base), &blocks[1]);
	gcp_map_replace(map, base, &blocks[0], &blocks[2]);
	gcp_map_replace(map, base, NULL, &blocks[2]);
	assert_ptr_equal(gcp_map_find(map, base), &blocks[1]);
	gcp_map_replace(map, base, &blocks[1], &blocks[2]);
	assert_ptr_equal(gcp_map_find_below(map, base + 5000, base), &blocks[2]);
	gcp_map_replace(map, base, &blocks[2], &blocks[1]);
	gcp_map_clear(map, base, &blocks[1]);
	assert_null(gcp_map_find_below(map, base + 5000, base));
	gcp_map_destroy(map);
}
