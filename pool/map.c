/*
 * map.c - from a device address to the block that starts there, in constant
 * time and without a lock.
 *
 * A tree of three levels over the address: root (32 GiB each), middle (2 MiB
 * each), leaf (one entry for each unit of 512 bytes). Tables come from mmap,
 * so a table costs memory only where blocks start, and are never unmapped, so
 * readers need no lock. Writers hold the pool->lock of the block's pool.
 */
#include "types.h"

#include <sys/mman.h>

enum {
	UNIT_BITS = 9,
	LEAF_BITS = 12,
	MIDDLE_BITS = 14,
	ROOT_BITS = 14, /* 49 bits of address: what GPUs since Pascal have */
};
static_assert(1 << UNIT_BITS == GCP_UNIT, "an entry for each unit");

struct leaf {
	struct gcp_block *_Atomic blocks[1 << LEAF_BITS];
};
struct middle {
	struct leaf *_Atomic leaves[1 << MIDDLE_BITS];
};
struct gcp_map {
	struct middle *_Atomic middles[1 << ROOT_BITS];
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
	for (size_t i = 0; i < 1 << ROOT_BITS; i++) {
		struct middle *middle = atomic_load(&map->middles[i]);

		for (size_t j = 0; middle && j < 1 << MIDDLE_BITS; j++) {
			struct leaf *leaf = atomic_load(&middle->leaves[j]);
			if (leaf)
				munmap(leaf, sizeof(*leaf));
		}
		if (middle)
			munmap(middle, sizeof(*middle));
	}
	munmap(map, sizeof(*map));
}

static size_t root_index(gcp_addr addr)
{
	return addr >> (UNIT_BITS + LEAF_BITS + MIDDLE_BITS);
}

static size_t middle_index(gcp_addr addr)
{
	return addr >> (UNIT_BITS + LEAF_BITS) & ((1 << MIDDLE_BITS) - 1);
}

static size_t leaf_index(gcp_addr addr)
{
	return addr >> UNIT_BITS & ((1 << LEAF_BITS) - 1);
}

/* The table that *slot points to, made if it is not there; two writers of
 * different pools may meet here. */
static void *table_at(void *_Atomic *slot, size_t bytes)
{
	void *table = atomic_load_explicit(slot, memory_order_acquire);

	if (table)
		return table;
	void *fresh = table_create(bytes);
	if (!fresh)
		return NULL;
	if (atomic_compare_exchange_strong(slot, &table, fresh))
		return fresh;
	munmap(fresh, bytes);
	return table;
}

int gcp_map_set(struct gcp_map *map, gcp_addr addr, struct gcp_block *block)
{
	if (root_index(addr) >= 1 << ROOT_BITS)
		return -ERANGE;
	struct middle *middle = table_at(
	    (void *_Atomic *)&map->middles[root_index(addr)], sizeof(struct middle));
	if (!middle)
		return -ENOMEM;
	struct leaf *leaf = table_at(
	    (void *_Atomic *)&middle->leaves[middle_index(addr)], sizeof(struct leaf));
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
	struct middle *middle =
	    atomic_load_explicit(&map->middles[root_index(addr)], memory_order_acquire);
	if (!middle)
		return NULL;
	struct leaf *leaf = atomic_load_explicit(&middle->leaves[middle_index(addr)],
						 memory_order_acquire);
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
