/* SPDX-License-Identifier: MIT */
/*
 * spare.c - new memory is taken though some lies unused, where remaps take too much of
 * the time.
 *
 * To map unused handles elsewhere takes about as long as to make new ones. It pays
 * where it happens once. A program that repeats itself may need it in each step: a
 * block is cut where the next one will not fit, and the handles go to and fro. What
 * remaps take beyond a small part of the time is summed up; when the sum is worth the
 * memory, new memory is taken instead, and the sum begins at 0 again. The pool then
 * has more than it must have: no more than SPARE_LEAST or a part of what is mapped,
 * which is larger where threads wait for each other's remaps, beyond what it had when
 * nothing was left to remap; and nothing where the device is nearly full.
 *
 * Called by vmm.c with vmm_lock held. Decides speed and memory, never safety.
 */
#include "vmm.h"

enum {
	TIME_PART = 16,         /* remaps may take that part of the time */
	OWED_MOST_NS = 500000,  /* some ten remaps */
	SPARE_PART = 64,        /* of what is mapped: that part */
	SPARE_PART_THREADS = 8, /* where each of many threads waits for a remap */
	SPARE_LEAST = 4 << 20,  /* bytes */
	UNUSED_PART = 8,        /* of the device, or its quota, is left at least */
};

/* The sum at `now`. */
static uint64_t owed(struct gcp_spare *spare, uint64_t now)
{
	uint64_t paid = (now - spare->at_ns) / TIME_PART;

	spare->owed_ns -= paid < spare->owed_ns ? paid : spare->owed_ns;
	spare->at_ns = now;
	return spare->owed_ns;
}

static uint64_t spare_most(const struct gcp_pool *pool, uint64_t mapped)
{
	uint64_t part =
	    mapped /
	    (gcp_window_has_few_threads(pool) ? SPARE_PART : SPARE_PART_THREADS);

	return part > SPARE_LEAST ? part : SPARE_LEAST;
}

uint64_t gcp_spare_bytes(struct gcp_pool *pool)
{
	struct gcp_spare *spare = &pool->spare;
	uint64_t mapped = atomic_load(&pool->vmm_mapped), most;
	uint64_t all = pool->quota < pool->memory ? pool->quota : pool->memory;

	gcp_assert_held(GCP_RANK_VMM);
	if (spare->needed > mapped) /* some was given back */
		spare->needed = mapped;
	most = spare->needed + spare_most(pool, mapped);
	if (gcp_pool_is_tight(pool) || most > all - all / UNUSED_PART ||
	    mapped >= most ||
	    owed(spare, pool->pools->driver.clock_ns()) < OWED_MOST_NS)
		return 0;
	return most - mapped;
}

void gcp_spare_remapped(struct gcp_pool *pool, uint64_t begin)
{
	struct gcp_spare *spare = &pool->spare;
	uint64_t end = pool->pools->driver.clock_ns();

	gcp_assert_held(GCP_RANK_VMM);
	(void)owed(spare, begin);
	spare->owed_ns += end - begin;
	spare->at_ns = end;
}

/* Or it was refused, and is not asked for each time. */
void gcp_spare_taken(struct gcp_pool *pool)
{
	gcp_assert_held(GCP_RANK_VMM);
	pool->spare.owed_ns = 0;
}

void gcp_spare_needed(struct gcp_pool *pool)
{
	gcp_assert_held(GCP_RANK_VMM);
	pool->spare.needed = atomic_load(&pool->vmm_mapped);
}
