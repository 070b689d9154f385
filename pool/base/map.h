/* SPDX-License-Identifier: MIT */
/*
 * map.h - from an address to the block that starts there (struct gcp_block; another map
 * has pinned ones), in constant time and without a lock, inline for alloc.c; and to the
 * block that starts there or below.
 *
 * A table of leaves, one for each 32 MiB of address; a leaf has one entry for each
 * unit of 512 bytes. Writers hold the pool->lock of the block's pool.
 *
 * A leaf also has a bit for each entry, and their number, so that the next block below
 * is found with a look at each leaf between, and at a thousand words of the last one.
 * Writers of two pools may meet in a leaf; a bit may be set where there is no entry any
 * more, but is never missing where there is one.
 */
#ifndef GCP_POOL_MAP_H
#define GCP_POOL_MAP_H

#include <stdatomic.h>
#include <stddef.h>

#include "../driver_table.h"

enum {
	GCP_UNIT = 512, /* bytes: block sizes and addresses are multiples */
	GCP_MAP_LEAF_BITS = 16,
	GCP_MAP_ROOT_BITS = 24, /* 49 bits of address: what GPUs since Pascal have */
};

struct gcp_map_leaf {
	void *_Atomic blocks[1 << GCP_MAP_LEAF_BITS];
	_Atomic uint64_t starts[(1 << GCP_MAP_LEAF_BITS) / 64]; /* a bit for each */
	_Atomic uint32_t count;                                 /* of those bits */
};

struct gcp_map {
	struct gcp_map_leaf *_Atomic leaves[1 << GCP_MAP_ROOT_BITS];
};

struct gcp_map *gcp_map_create(void);
/* -ENOMEM; -ERANGE: the map cannot hold the address. */
int gcp_map_set(struct gcp_map *map, gcp_addr addr, void *block);
/* Removes `addr` if it still belongs to `block`. */
void gcp_map_clear(struct gcp_map *map, gcp_addr addr, void *block);
/* The block that starts at `addr`, or else the next one below, down to `low`; NULL. The
 * pool->lock of all blocks between is held. */
void *gcp_map_find_below(const struct gcp_map *map, gcp_addr addr, gcp_addr low);

static inline size_t gcp_map_root_index(gcp_addr addr)
{
	return addr / GCP_UNIT >> GCP_MAP_LEAF_BITS;
}

static inline size_t gcp_map_leaf_index(gcp_addr addr)
{
	return addr / GCP_UNIT & ((1 << GCP_MAP_LEAF_BITS) - 1);
}

/* Returns true if the map can hold the address. */
static inline bool gcp_map_reaches(gcp_addr addr)
{
	return gcp_map_root_index(addr) < 1 << GCP_MAP_ROOT_BITS;
}

/* NULL: there is none for it. */
static inline struct gcp_map_leaf *gcp_map_leaf(const struct gcp_map *map,
						gcp_addr addr)
{
	if (__builtin_expect(!gcp_map_reaches(addr), 0))
		return NULL;
	return atomic_load_explicit(&map->leaves[gcp_map_root_index(addr)],
				    memory_order_acquire);
}

/* The block that starts at `addr`, or NULL. */
static inline void *gcp_map_find(const struct gcp_map *map, gcp_addr addr)
{
	const struct gcp_map_leaf *leaf = gcp_map_leaf(map, addr);

	if (__builtin_expect(!leaf || addr % GCP_UNIT != 0, 0))
		return NULL;
	return atomic_load_explicit(&leaf->blocks[gcp_map_leaf_index(addr)],
				    memory_order_acquire);
}

#endif
