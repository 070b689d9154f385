/* SPDX-License-Identifier: MIT */
/*
 * map.c - see map.h. Both tables come from mmap, so they cost memory only where blocks
 * start, and are never unmapped, so readers need no lock. The table of leaves, 128 MiB
 * of addresses, may be written only around the leaves that there are: else a process
 * that locks its memory (mlockall) would have all of it in memory.
 */
#include "../pool_types.h"

#include <sys/mman.h>

struct gcp_map *gcp_map_create(void)
{
	return gcp_sparse_map(sizeof(struct gcp_map));
}

/* The leaf of *slot, made if it is not there; two writers of different pools may
 * meet here. */
static struct gcp_map_leaf *leaf_at(struct gcp_map_leaf *_Atomic *slot)
{
	struct gcp_map_leaf *leaf = atomic_load_explicit(slot, memory_order_acquire);

	if (leaf)
		return leaf;
	struct gcp_map_leaf *fresh = gcp_zeroed_map(sizeof(*fresh));
	if (!fresh)
		return NULL;
	if (!gcp_sparse_open(slot, sizeof(*slot)) ||
	    !atomic_compare_exchange_strong(slot, &leaf, fresh)) {
		munmap(fresh, sizeof(*fresh));
		return leaf;
	}
	return fresh;
}

static void start_set(struct gcp_map_leaf *leaf, size_t index)
{
	uint64_t bit = UINT64_C(1) << index % 64;

	if (!(atomic_load(&leaf->starts[index / 64]) & bit) &&
	    !(atomic_fetch_or(&leaf->starts[index / 64], bit) & bit))
		atomic_fetch_add(&leaf->count, 1);
}

int gcp_map_set(struct gcp_map *map, gcp_addr addr, void *block)
{
	if (!gcp_map_reaches(addr) || addr % GCP_UNIT != 0)
		return -ERANGE;
	struct gcp_map_leaf *leaf = leaf_at(&map->leaves[gcp_map_root_index(addr)]);
	if (!leaf)
		return -ENOMEM;
	/* Sequentially consistent: start_set looks whether gcp_map_clear has come by.
	 */
	atomic_store(&leaf->blocks[gcp_map_leaf_index(addr)], block);
	start_set(leaf, gcp_map_leaf_index(addr));
	return 0;
}

/* An address that the driver has given to another pool meanwhile is that pool's. */
void gcp_map_clear(struct gcp_map *map, gcp_addr addr, void *block)
{
	struct gcp_map_leaf *leaf = gcp_map_leaf(map, addr);
	size_t index = gcp_map_leaf_index(addr);
	uint64_t bit = UINT64_C(1) << index % 64;

	if (!leaf || atomic_load(&leaf->blocks[index]) != block)
		return;
	if (atomic_fetch_and(&leaf->starts[index / 64], ~bit) & bit)
		atomic_fetch_sub(&leaf->count, 1);
	if (!atomic_compare_exchange_strong(&leaf->blocks[index], &block, NULL))
		start_set(leaf, index);
}

/* The highest of the first `*index` + 1 entries that is not empty; *index: which. */
static void *leaf_below(const struct gcp_map_leaf *leaf, size_t *index)
{
	uint64_t mask = ~UINT64_C(0) >> (63 - *index % 64);
	size_t word = leaf && atomic_load(&leaf->count) > 0 ? *index / 64 + 1 : 0;

	for (; word-- > 0; mask = ~UINT64_C(0)) {
		uint64_t bits = atomic_load(&leaf->starts[word]) & mask;

		for (; bits; bits &= ~(UINT64_C(1) << *index % 64)) {
			*index = word * 64 + 63 - (size_t)__builtin_clzll(bits);
			void *block = atomic_load(&leaf->blocks[*index]);
			if (block)
				return block;
		}
	}
	return NULL;
}

void *gcp_map_find_below(const struct gcp_map *map, gcp_addr addr, gcp_addr low)
{
	const gcp_addr leaf_bytes = (gcp_addr)GCP_UNIT << GCP_MAP_LEAF_BITS;

	for (;;) {
		const struct gcp_map_leaf *leaf = gcp_map_leaf(map, addr);
		gcp_addr start = addr / leaf_bytes * leaf_bytes;
		size_t index = gcp_map_leaf_index(addr);
		void *block = leaf_below(leaf, &index);

		if (block)
			return start + index * GCP_UNIT >= low ? block : NULL;
		if (start <= low)
			return NULL;
		addr = start - 1;
	}
}
