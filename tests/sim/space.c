/* SPDX-License-Identifier: MIT */
/*
 * space.c - where the allocations of a device lie, and how much of it they take.
 *
 * Memory is made of 2 MiB chunks: an allocation above 1 MiB takes whole ones, smaller
 * ones share a chunk in granules of 512 bytes (facts: 5 MiB cost 6 MiB).
 *
 * Called by memory.c, and by plain.c for the devices as plain CUDA would have them,
 * under the big lock. Knows nothing of bytes: addresses and amounts only.
 */
#include "sim.h"

enum {
	GRANULE = 512,
	GRANULES = SIM_CHUNK / GRANULE,
	SHARED_MAX = 1 << 20, /* larger ones have chunks of their own */
};

/* A chunk that small allocations share. */
struct sim_shared {
	struct sim_alloc *at[GRANULES]; /* owner of each granule; NULL: free */
	uint32_t used;                  /* granules */
};

void sim_space_init(struct sim_space *space, uint64_t limit, uint64_t span)
{
	space->limit = limit;
	space->span = span;
	space->chunk_count = (uint32_t)(space->span / SIM_CHUNK);
	space->chunks = sim_calloc(space->chunk_count * sizeof(*space->chunks));
}

/* --- amounts ---------------------------------------------------------------- */

static void use(struct sim_space *space, uint64_t bytes)
{
	space->used += bytes;
	if (space->all)
		*space->all += bytes;
	if (space->peak < space->used)
		space->peak = space->used;
}

uint64_t sim_space_used(const struct sim_space *space)
{
	return space->all ? *space->all : space->used;
}

bool sim_space_account(struct sim_space *space, int64_t bytes)
{
	if (bytes > 0 && (uint64_t)bytes + sim_space_used(space) > space->limit)
		return false;
	use(space, (uint64_t)bytes);
	return true;
}

/* --- chunks of addresses -------------------------------------------------- */

static bool chunk_is_free(const struct sim_chunk *chunk)
{
	return !chunk->alloc && !chunk->shared;
}

/* First run of `count` free chunks; UINT32_MAX if there is none. */
static uint32_t chunks_find(struct sim_space *space, uint32_t count)
{
	uint32_t run = 0;

	while (space->low < space->chunk_count &&
	       !chunk_is_free(&space->chunks[space->low]))
		space->low++;
	for (uint32_t i = space->low; i < space->chunk_count; i++) {
		run = chunk_is_free(&space->chunks[i]) ? run + 1 : 0;
		if (run == count)
			return i + 1 - count;
	}
	return UINT32_MAX;
}

static void chunks_set(struct sim_space *space, const struct sim_alloc *alloc,
		       struct sim_alloc *owner)
{
	uint32_t first = (uint32_t)((alloc->addr - space->base) / SIM_CHUNK);

	for (uint32_t i = 0; i < alloc->span / SIM_CHUNK; i++)
		space->chunks[first + i].alloc = owner;
	if (!owner && first < space->low)
		space->low = first;
}

bool sim_space_reserve(struct sim_space *space, struct sim_alloc *alloc)
{
	uint32_t first;

	alloc->span = (alloc->bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	first = chunks_find(space, (uint32_t)(alloc->span / SIM_CHUNK));
	if (first == UINT32_MAX)
		return false;
	alloc->addr = space->base + (uint64_t)first * SIM_CHUNK;
	chunks_set(space, alloc, alloc);
	return true;
}

/* --- granules of shared chunks -------------------------------------------- */

static uint32_t granules_find(const struct sim_shared *shared, uint32_t count)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < GRANULES; i++) {
		run = shared->at[i] ? 0 : run + 1;
		if (run == count)
			return i + 1 - count;
	}
	return UINT32_MAX;
}

static void granules_take(struct sim_space *space, struct sim_alloc *alloc,
			  uint32_t chunk, uint32_t first, uint32_t count)
{
	struct sim_shared *shared = space->chunks[chunk].shared;

	for (uint32_t i = 0; i < count; i++)
		shared->at[first + i] = alloc;
	shared->used += count;
	alloc->addr =
	    space->base + (uint64_t)chunk * SIM_CHUNK + (uint64_t)first * GRANULE;
	alloc->span = (uint64_t)count * GRANULE;
}

static bool place_granules(struct sim_space *space, struct sim_alloc *alloc)
{
	uint32_t count = (uint32_t)((alloc->bytes + GRANULE - 1) / GRANULE);
	uint32_t chunk, first;

	for (chunk = 0; chunk < space->chunk_count; chunk++) {
		const struct sim_shared *shared = space->chunks[chunk].shared;

		if (!shared && chunk >= space->low &&
		    chunk_is_free(&space->chunks[chunk]))
			break;
		if (!shared || GRANULES - shared->used < count)
			continue;
		first = granules_find(shared, count);
		if (first == UINT32_MAX)
			continue;
		granules_take(space, alloc, chunk, first, count);
		return true;
	}
	chunk = chunks_find(space, 1);
	if (chunk == UINT32_MAX || sim_space_used(space) + SIM_CHUNK > space->limit)
		return false;
	space->chunks[chunk].shared = sim_calloc(sizeof(struct sim_shared));
	use(space, SIM_CHUNK);
	granules_take(space, alloc, chunk, 0, count);
	return true;
}

static void granules_give(struct sim_space *space, const struct sim_alloc *alloc)
{
	uint64_t offset = alloc->addr - space->base;
	uint32_t chunk = (uint32_t)(offset / SIM_CHUNK);
	uint32_t first = (uint32_t)(offset % SIM_CHUNK / GRANULE);
	uint32_t count = (uint32_t)(alloc->span / GRANULE);
	struct sim_shared *shared = space->chunks[chunk].shared;

	memset(shared->at + first, 0, count * sizeof(shared->at[0]));
	shared->used -= count;
	if (shared->used > 0)
		return;
	free(shared);
	space->chunks[chunk].shared = NULL;
	use(space, -(uint64_t)SIM_CHUNK);
	if (chunk < space->low)
		space->low = chunk;
}

/* --- allocations ---------------------------------------------------------- */

bool sim_space_place(struct sim_space *space, struct sim_alloc *alloc)
{
	if (alloc->bytes <= SHARED_MAX && alloc->kind != SIM_MEMORY_IPC)
		return place_granules(space, alloc);
	if (alloc->kind != SIM_MEMORY_IPC && alloc->kind != SIM_MEMORY_RESERVED)
		alloc->physical =
		    (alloc->bytes + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	/* What another process owns takes nothing, even of a full device. */
	if ((alloc->physical > 0 &&
	     sim_space_used(space) + alloc->physical > space->limit) ||
	    !sim_space_reserve(space, alloc))
		return false;
	use(space, alloc->physical);
	return true;
}

void sim_space_remove(struct sim_space *space, struct sim_alloc *alloc)
{
	use(space, -alloc->physical);
	if (space->chunks[(alloc->addr - space->base) / SIM_CHUNK].shared)
		granules_give(space, alloc);
	else
		chunks_set(space, alloc, NULL);
}

struct sim_alloc *sim_space_find(const struct sim_space *space, uint64_t addr)
{
	uint64_t offset = addr - space->base;
	const struct sim_chunk *chunk = &space->chunks[offset / SIM_CHUNK];

	if (chunk->shared)
		return chunk->shared->at[offset % SIM_CHUNK / GRANULE];
	return chunk->alloc;
}
