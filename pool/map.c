/* SPDX-License-Identifier: MIT */
/*
 * map.c - from a device address to the block that starts there, in constant
 * time and without a lock.
 *
 * A table of leaves, one for each 32 MiB of address; a leaf has one entry for each
 * unit of 512 bytes. Both come from mmap, so they cost memory only where blocks
 * start, and are never unmapped, so readers need no lock. Writers hold the
 * pool->lock of the block's pool.
 */
#include "pool_types.h"

#include <sys/mman.h>

enum {
	UNIT_BITS = 9,
	LEAF_BITS = 16,
	ROOT_BITS = 24, /* 49 bits of address: what GPUs since Pascal have */
};
static_assert(1 << UNIT_BITS == GCP_UNIT, "an entry for each unit");

struct leaf {
	struct gcp_block *_Atomic blocks[1 << LEAF_BITS];
	struct leaf *next; /* map->all; constant once found there */
};
struct gcp_map {
	struct leaf *_Atomic leaves[1 << ROOT_BITS];
	struct leaf *_Atomic all;
};

static void *table_create(size_t bytes)
{
	int saved = errno;
	void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	errno = saved;
	return table == MAP_FAILED ? NULL : table;
}

struct gcp_map *gcp_map_create(void)
{
	return table_create(sizeof(struct gcp_map));
}

void gcp_map_destroy(struct gcp_map *map)
{
	struct leaf *leaf = atomic_load(&map->all), *next;

	for (; leaf; leaf = next) {
		next = leaf->next;
		munmap(leaf, sizeof(*leaf));
	}
	munmap(map, sizeof(*map));
}

static size_t root_index(gcp_addr addr)
{
	return addr >> (UNIT_BITS + LEAF_BITS);
}

static size_t leaf_index(gcp_addr addr)
{
	return addr >> UNIT_BITS & ((1 << LEAF_BITS) - 1);
}

/* The leaf of *slot, made if it is not there; two writers of different pools may
 * meet here. */
static struct leaf *leaf_at(struct gcp_map *map, struct leaf *_Atomic *slot)
{
	struct leaf *leaf = atomic_load_explicit(slot, memory_order_acquire);

	if (leaf)
		return leaf;
	struct leaf *fresh = table_create(sizeof(*fresh));
	if (!fresh)
		return NULL;
	if (!atomic_compare_exchange_strong(slot, &leaf, fresh)) {
		munmap(fresh, sizeof(*fresh));
		return leaf;
	}
	fresh->next = atomic_load(&map->all);
	while (!atomic_compare_exchange_weak(&map->all, &fresh->next, fresh))
		;
	return fresh;
}

int gcp_map_set(struct gcp_map *map, gcp_addr addr, struct gcp_block *block)
{
	if (root_index(addr) >= 1 << ROOT_BITS)
		return -ERANGE;
	struct leaf *leaf = leaf_at(map, &map->leaves[root_index(addr)]);
	if (!leaf)
		return -ENOMEM;
	atomic_store_explicit(&leaf->blocks[leaf_index(addr)], block,
			      memory_order_release);
	return 0;
}

static struct gcp_block *_Atomic *map_entry(const struct gcp_map *map, gcp_addr addr)
{
	if (root_index(addr) >= 1 << ROOT_BITS)
		return NULL;
	struct leaf *leaf =
	    atomic_load_explicit(&map->leaves[root_index(addr)], memory_order_acquire);
	return leaf ? &leaf->blocks[leaf_index(addr)] : NULL;
}

void gcp_map_clear(struct gcp_map *map, gcp_addr addr, struct gcp_block *block)
{
	struct gcp_block *_Atomic *entry = map_entry(map, addr);

	if (entry)
		atomic_compare_exchange_strong(entry, &block, NULL);
}

struct gcp_block *gcp_map_find(const struct gcp_map *map, gcp_addr addr)
{
	struct gcp_block *_Atomic *entry = map_entry(map, addr);

	if (!entry)
		return NULL;
	return addr % GCP_UNIT == 0 ? atomic_load_explicit(entry, memory_order_acquire)
				    : NULL;
}
