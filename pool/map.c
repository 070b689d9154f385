/* SPDX-License-Identifier: MIT */
/*
 * map.c - from a device address to the block that starts there, in constant
 * time and without a lock; and to the block that starts there or below.
 *
 * A table of leaves, one for each 32 MiB of address; a leaf has one entry for each
 * unit of 512 bytes. Both come from mmap, so they cost memory only where blocks
 * start, and are never unmapped, so readers need no lock. Writers hold the
 * pool->lock of the block's pool.
 *
 * A leaf also has a bit for each entry, and one for each 64 of these bits, so that the
 * next block below is found without a look at each entry. Writers of two pools may
 * meet in a leaf; a bit may be set where there is no entry any more, but is never
 * missing where there is one.
 */
#include "pool_types.h"

#include <sys/mman.h>

enum {
	UNIT_BITS = 9,
	LEAF_BITS = 16,
	ROOT_BITS = 24, /* 49 bits of address: what GPUs since Pascal have */
};
static_assert(1 << UNIT_BITS == GCP_UNIT, "an entry for each unit");

enum { WORDS = (1 << LEAF_BITS) / 64 };

struct leaf {
	struct gcp_block *_Atomic blocks[1 << LEAF_BITS];
	_Atomic uint64_t starts[WORDS];    /* a bit for each entry that is not empty */
	_Atomic uint64_t some[WORDS / 64]; /* and for each of `starts` that is not 0 */
	struct leaf *next;                 /* map->all; constant once found there */
};
struct gcp_map {
	struct leaf *_Atomic leaves[1 << ROOT_BITS];
	struct leaf *_Atomic all;
};

struct gcp_map *gcp_map_create(void)
{
	return gcp_zeroed_map(sizeof(struct gcp_map));
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
	struct leaf *fresh = gcp_zeroed_map(sizeof(*fresh));
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

static void start_set(struct leaf *leaf, size_t index)
{
	atomic_fetch_or(&leaf->starts[index / 64], UINT64_C(1) << index % 64);
	atomic_fetch_or(&leaf->some[index / 64 / 64], UINT64_C(1) << index / 64 % 64);
}

/* Another writer may set a bit meanwhile: what is cleared is looked at again. */
static void start_clear(struct leaf *leaf, size_t index)
{
	uint64_t bit = UINT64_C(1) << index % 64, group = UINT64_C(1)
							  << index / 64 % 64;

	if (atomic_fetch_and(&leaf->starts[index / 64], ~bit) != bit)
		return;
	atomic_fetch_and(&leaf->some[index / 64 / 64], ~group);
	if (atomic_load(&leaf->starts[index / 64]))
		atomic_fetch_or(&leaf->some[index / 64 / 64], group);
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
	start_set(leaf, leaf_index(addr));
	return 0;
}

static struct leaf *leaf_find(const struct gcp_map *map, gcp_addr addr)
{
	if (root_index(addr) >= 1 << ROOT_BITS)
		return NULL;
	return atomic_load_explicit(&map->leaves[root_index(addr)],
				    memory_order_acquire);
}

/* An address that the driver has given to another pool meanwhile is that pool's. */
void gcp_map_clear(struct gcp_map *map, gcp_addr addr, struct gcp_block *block)
{
	struct leaf *leaf = leaf_find(map, addr);
	size_t index = leaf_index(addr);

	if (!leaf || atomic_load(&leaf->blocks[index]) != block)
		return;
	start_clear(leaf, index);
	if (!atomic_compare_exchange_strong(&leaf->blocks[index], &block, NULL))
		start_set(leaf, index);
}

void gcp_map_replace(struct gcp_map *map, gcp_addr addr, struct gcp_block *old,
		     struct gcp_block *block)
{
	struct leaf *leaf = leaf_find(map, addr);
	size_t index = leaf_index(addr);

	if (leaf && atomic_compare_exchange_strong(&leaf->blocks[index], &old, block))
		start_set(leaf, index);
}

struct gcp_block *gcp_map_find(const struct gcp_map *map, gcp_addr addr)
{
	struct leaf *leaf = leaf_find(map, addr);

	if (!leaf || addr % GCP_UNIT != 0)
		return NULL;
	return atomic_load_explicit(&leaf->blocks[leaf_index(addr)],
				    memory_order_acquire);
}

/* The bits of `word` up to `top`. */
static uint64_t bits_up_to(uint64_t word, size_t top)
{
	return word & (~UINT64_C(0) >> (63 - top));
}

/* The highest of the first `*index` + 1 entries that is not empty; *index: which. */
static struct gcp_block *leaf_below(const struct leaf *leaf, size_t *index)
{
	size_t i = *index;

	for (;;) {
		uint64_t bits = bits_up_to(atomic_load(&leaf->starts[i / 64]), i % 64);

		while (bits) {
			size_t top = 63 - (size_t)__builtin_clzll(bits);
			struct gcp_block *block = atomic_load_explicit(
			    &leaf->blocks[i / 64 * 64 + top], memory_order_acquire);

			*index = i / 64 * 64 + top;
			if (block)
				return block;
			bits &= ~(UINT64_C(1) << top);
		}
		if (i < 64)
			return NULL;
		size_t word = i / 64 - 1; /* the highest that may have a bit */
		uint64_t some =
		    bits_up_to(atomic_load(&leaf->some[word / 64]), word % 64);
		while (!some && word >= 64) {
			word = word / 64 * 64 - 1;
			some = atomic_load(&leaf->some[word / 64]);
		}
		if (!some)
			return NULL;
		i = (word / 64 * 64 + 63 - (size_t)__builtin_clzll(some)) * 64 + 63;
	}
}

struct gcp_block *gcp_map_find_below(const struct gcp_map *map, gcp_addr addr,
				     gcp_addr low)
{
	const gcp_addr leaf_bytes = UINT64_C(1) << (UNIT_BITS + LEAF_BITS);

	for (;;) {
		const struct leaf *leaf = leaf_find(map, addr);
		gcp_addr start = addr / leaf_bytes * leaf_bytes;
		size_t index = leaf_index(addr);
		struct gcp_block *block = leaf ? leaf_below(leaf, &index) : NULL;

		if (block)
			return start + ((gcp_addr)index << UNIT_BITS) >= low ? block
									     : NULL;
		if (start <= low)
			return NULL;
		addr = start - 1;
	}
}
