/* SPDX-License-Identifier: MIT */
/*
 * bench_many.c - what a call costs among many blocks: a pointer query, an allocation
 * that no freed block fits, and each handle that is gathered for a large one. Over a
 * driver whose calls cost next to nothing and a device that is always done.
 *
 *   meson test -C build --benchmark --verbose
 *   bench_many [BLOCKS HANDLES]
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../pool/check/check.h"
#include "bench_jobs.h"
#include "replay_space.h"

#define MIB (1ull << 20)

enum { REPEATS = 5, QUERIES = 1000000, FEW = 8, MISSES = 200, LEAST = 4000 };

/* --- mapped memory that costs nothing ----------------------------------------- */

static uint64_t handles; /* there are */

static void handles_change(int64_t bytes)
{
	handles += bytes > 0 ? 1 : UINT64_MAX;
}

static void spend(uint64_t ns)
{
	(void)ns;
}

static uint64_t memory; /* the device has */

static bool large_device(int device, uint64_t *ret_granularity, uint64_t *ret_memory)
{
	(void)device;
	*ret_granularity = 2 * MIB;
	*ret_memory = memory;
	return true;
}

/* --- blocks --------------------------------------------------------------------- */

struct scene {
	bool mapped;
	long count; /* blocks */
	uint64_t bytes;
};

static struct gcp_pool *pool;
static gcp_addr *blocks;

static void scene_begin(const struct scene *scene)
{
	struct gcp_driver driver = bench_free_driver;

	if (scene->mapped) {
		space_fill(&driver, handles_change, spend);
		driver.vm_device = large_device;
	}
	handles = 0;
	memory = 2 * (uint64_t)scene->count * scene->bytes + (64ull << 30);
	bench_pools_make(&driver);
	bench_must(gcp_pool_get(bench_pools, (void *)0x1000, 0, &pool));
	blocks = calloc((size_t)scene->count, sizeof(*blocks));
	if (!blocks)
		exit(1);
	for (long i = 0; i < scene->count; i++)
		bench_must(gcp_pool_alloc(pool, scene->bytes, &blocks[i]));
}

static void scene_end(void)
{
	gcp_pools_destroy(bench_pools);
	free(blocks);
}

/* And nothing that an allocation finds is pending any more. */
static void every_other_goes(const struct scene *scene)
{
	gcp_addr addr;

	for (long i = 0; i < scene->count; i += 2)
		bench_must(gcp_pools_free(bench_pools, blocks[i]));
	for (int i = 0; i < 16; i++)
		bench_must(gcp_pool_alloc(pool, 7 * MIB, &addr));
}

/* --- what is measured: ns of a call ---------------------------------------------- */

static double best_of(double best, uint64_t since, long calls)
{
	double ns = (double)(bench_clock_ns() - since) / (double)calls;

	return best == 0 || ns < best ? ns : best;
}

/* Of `among` blocks from all over: of a few, or of all, most of which are in no cache
 * of the processor. */
static double query_ns(const struct scene *scene, long among)
{
	long apart = scene->count / among;
	struct gcp_block_info info;
	uint64_t random = 1;
	double best = 0;

	for (int repeat = 0; repeat < REPEATS; repeat++) {
		uint64_t since = bench_clock_ns();

		for (int i = 0; i < QUERIES; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			bench_must(gcp_pools_find(
			    bench_pools, blocks[(long)(random >> 33) % among * apart],
			    &info));
		}
		best = best_of(best, since, QUERIES);
	}
	return best;
}

/* Each of a size that was not asked for before, and does not fit what is between. */
static double miss_ns(const struct scene *scene)
{
	uint64_t bytes = 5 * MIB;
	gcp_addr addr;
	double best = 0;

	(void)scene;
	for (int repeat = 0; repeat < REPEATS; repeat++) {
		uint64_t since = bench_clock_ns();

		for (int i = 0; i < MISSES; i++)
			bench_must(gcp_pool_alloc(pool, bytes += 4096, &addr));
		best = best_of(best, since, MISSES);
	}
	return best;
}

/* For each handle of one allocation that takes nearly all that lie unused. */
static double gather_ns(const struct scene *scene)
{
	long gathered = scene->count / 2 - 64;
	uint64_t since = bench_clock_ns();
	gcp_addr addr;

	bench_must(gcp_pool_alloc(pool, (uint64_t)gathered * scene->bytes, &addr));
	return best_of(0, since, gathered);
}

/* --- the table -------------------------------------------------------------------- */

static void row(const char *name, struct scene scene)
{
	double few, query, miss, gather = 0;

	scene_begin(&scene);
	printf("%-38s %8lu", name, handles);
	few = query_ns(&scene, FEW);
	query = query_ns(&scene, scene.count);
	every_other_goes(&scene);
	miss = miss_ns(&scene);
	printf(" %8.0f %8.0f %8.0f", few, query, miss);
	scene_end();
	for (int repeat = 0; scene.mapped && scene.bytes >= 2 * MIB && repeat < REPEATS;
	     repeat++) {
		double ns;

		scene_begin(&scene);
		every_other_goes(&scene);
		ns = gather_ns(&scene);
		gather = gather == 0 || ns < gather ? ns : gather;
		scene_end();
	}
	if (gather != 0)
		printf(" %8.0f", gather);
	printf("\n");
}

int main(int argc, char **argv)
{
	long many = argc > 2 ? atol(argv[1]) : 1000000;
	long many_handles = argc > 2 ? atol(argv[2]) : 70000;
	char name[64];

	if (many < LEAST || many_handles < LEAST) {
		fprintf(stderr, "bench_many: [BLOCKS HANDLES], %d or more\n", LEAST);
		return 2;
	}
	printf(
	    "among many blocks, every other one free but for queries; ns of the pool "
	    "itself, the\nbest of %d: a query of %d blocks in turn, and of all; an "
	    "allocation that no freed block\nfits; each handle gathered\n%-38s %8s %8s "
	    "%8s %8s %8s\n",
	    REPEATS, FEW, "", "handles", "query", "of all", "miss", "gathered");
	for (int mapped = 0; mapped < 2; mapped++)
		for (int part = 16; part > 0; part -= 15) {
			const char *kind = mapped ? "mapped" : "segments";

			snprintf(name, sizeof(name), "%ld blocks of 512 bytes, %s",
				 many / part, kind);
			row(name, (struct scene){mapped, many / part, 512});
			snprintf(name, sizeof(name), "%ld of 4 MiB, %s",
				 many_handles / part, kind);
			row(name, (struct scene){mapped, many_handles / part, 4 * MIB});
		}
	return 0;
}
