/* SPDX-License-Identifier: MIT */
/*
 * draw.c - see draw.h. Everything that is drawn goes through here.
 */
#include "explore.h"

enum { MORE = 0x5eed };

uint64_t draw_below(struct draw *draw, uint64_t below)
{
	return draw_next(draw) % below;
}

static uint64_t state_of(uint64_t seed, enum draw_part part)
{
	seed = seed_drawn(seed);
	if (part == DRAW_HISTORY)
		return seed;
	if (part == DRAW_ENVIRONMENT || part == DRAW_MORE_ENVIRONMENT)
		seed = ~seed;
	if (part >= DRAW_MORE_SETTING)
		seed ^= MORE;
	if (part == DRAW_DRIVER)
		seed += MORE;
	return seed * 0xD1342543DE82EF95ull + 17;
}

struct draw draw_open(const struct source *source, enum draw_part part)
{
	struct draw draw = {.state = state_of(source->seed, part)};

	draw_next(&draw);
	return draw;
}

const char *source_name(const struct source *source)
{
	static char name[512];

	if (source->frozen)
		snprintf(name, sizeof(name), "--frozen %s", source->path);
	else
		snprintf(name, sizeof(name), "--seed 0x%lx", source->seed);
	return name;
}
