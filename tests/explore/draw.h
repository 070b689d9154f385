/* SPDX-License-Identifier: MIT */
/*
 * draw.h - where a history's choices come from: random numbers of a seed. The setting,
 * the environment and the history are drawn apart.
 */
#ifndef EXPLORE_DRAW_H
#define EXPLORE_DRAW_H

#include <stdint.h>

enum draw_part {
	DRAW_SETTING,
	DRAW_ENVIRONMENT,
	DRAW_MORE_SETTING,
	DRAW_MORE_ENVIRONMENT,
	DRAW_DRIVER,
	DRAW_HISTORY,
	DRAW_PARTS
};

/* --- seeds ---
 *
 * The top four bits of a seed say which generation of the generator its history was
 * drawn by. A change of what is drawn counts it up, and older seeds are refused: a
 * history that is to stay is frozen before (frozen.c). */
enum { GENERATION_SHIFT = 60, GENERATION = 12 };
/* Planted bugs are tried on the first seeds: what those play stays as it is. */
enum { SEEDS_OF_BUGS = 1 << 16 };

/* The generation whose numbers the choices come from: what was added since is drawn
 * after all that it drew, so that a seed gives the rest of its history as before. */
enum { GENERATION_DRAWN = 5 };

static inline uint64_t seed_drawn(uint64_t seed)
{
	return (seed & ((1ull << GENERATION_SHIFT) - 1)) | (uint64_t)GENERATION_DRAWN
							       << GENERATION_SHIFT;
}

static inline unsigned seed_generation(uint64_t seed)
{
	return (unsigned)(seed >> GENERATION_SHIFT);
}

struct source {
	uint64_t seed;
	const char *path;            /* that `frozen` was read from, or NULL */
	const struct frozen *frozen; /* or NULL: the history as it was drawn once */
};

struct draw {
	uint64_t state;
};

/* The random numbers alone, for a caller that draws much from one choice. */
static inline uint64_t draw_next(struct draw *draw)
{
	uint64_t z = draw->state += 0x9E3779B97F4A7C15ull; /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

/* One of 0 to below - 1. */
uint64_t draw_below(struct draw *draw, uint64_t below);

struct draw draw_open(const struct source *source, enum draw_part part);

static inline struct source source_of_seed(uint64_t seed)
{
	return (struct source){.seed = seed};
}

/* "--seed 0x1" or "--frozen FILE", as the command line has it. */
const char *source_name(const struct source *source);

#endif
