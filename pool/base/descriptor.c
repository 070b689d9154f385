/* SPDX-License-Identifier: MIT */
/*
 * descriptor.c - storage for descriptors (blocks, segments).
 *
 * Not malloc: a descriptor that was given back must stay readable as one of
 * its own type, because another thread may still look at it (a racing double
 * free of the program). Chunks come from mmap and are never unmapped, and the
 * link of the free list stands behind the item, not in it.
 */
#include "../pool_types.h"

#include <sys/mman.h>
#include <unistd.h>

enum { DESCRIPTOR_CHUNK = 256 << 10, DESCRIPTOR_LINE = 64 };

static void *private_map(size_t bytes, int access)
{
	GCP_KEEP_ERRNO;
	void *memory = mmap(NULL, bytes, access,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Costs memory only where it is written. */
void *gcp_zeroed_map(size_t bytes)
{
	return private_map(bytes, PROT_READ | PROT_WRITE);
}

void *gcp_sparse_map(size_t bytes)
{
	return private_map(bytes, PROT_READ);
}

bool gcp_sparse_open(void *at, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)at / page * page;
	GCP_KEEP_ERRNO;
	return mprotect((void *)first, (uintptr_t)at + bytes - first,
			PROT_READ | PROT_WRITE) == 0;
}

void gcp_descriptor_pool_init(struct gcp_descriptor_pool *descriptors,
			      size_t item_bytes)
{
	size_t link_at = (item_bytes + 7) & ~(size_t)7;
	size_t step = link_at + sizeof(void *);

	/* Larger ones begin at a cache line: a block's first is the hot one. */
	if (step > DESCRIPTOR_LINE)
		step = (step + DESCRIPTOR_LINE - 1) / DESCRIPTOR_LINE * DESCRIPTOR_LINE;
	*descriptors = (struct gcp_descriptor_pool){.link_at = link_at, .step = step};
}

static void **link_of(const struct gcp_descriptor_pool *descriptors, void *item)
{
	return (void **)((char *)item + descriptors->link_at);
}

void *gcp_descriptor_alloc(struct gcp_descriptor_pool *descriptors)
{
	void *item = descriptors->free_list;

	if (item) {
		descriptors->free_list = *link_of(descriptors, item);
		return item;
	}
	if ((size_t)(descriptors->end - descriptors->chunk) < descriptors->step) {
		descriptors->chunk = gcp_zeroed_map(DESCRIPTOR_CHUNK);
		descriptors->end = descriptors->chunk;
		descriptors->end += descriptors->chunk ? DESCRIPTOR_CHUNK : 0;
	}
	item = descriptors->chunk;
	descriptors->chunk += item ? descriptors->step : 0;
	return item;
}

void gcp_descriptor_free(struct gcp_descriptor_pool *descriptors, void *item)
{
	*link_of(descriptors, item) = descriptors->free_list;
	descriptors->free_list = item;
}
