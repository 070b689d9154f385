/* SPDX-License-Identifier: MIT */
/*
 * descriptor.c - storage for descriptors (blocks, segments, slabs).
 *
 * Not malloc: a descriptor that was given back must stay readable as one of
 * its own type, because another thread may still look at it (a racing double
 * free of the program). Chunks come from mmap and are never unmapped, and the
 * link of the free list stands behind the item, not in it.
 */
#include "pool_types.h"

#include <sys/mman.h>

enum { DESCRIPTOR_CHUNK = 256 << 10, DESCRIPTOR_LINE = 64 };

void gcp_descriptor_pool_init(struct gcp_descriptor_pool *descriptors,
			      size_t item_bytes)
{
	size_t link_at = (item_bytes + 7) & ~(size_t)7;
	size_t step = link_at + sizeof(void *);

	/* Larger ones begin at a cache line: a block's first is the hot one. */
	if (step > DESCRIPTOR_LINE)
		step = (step + DESCRIPTOR_LINE - 1) / DESCRIPTOR_LINE * DESCRIPTOR_LINE;
	*descriptors = (struct gcp_descriptor_pool){.link_at = link_at, .step = step};
	pthread_mutex_init(&descriptors->lock, NULL);
}

static void **link_of(const struct gcp_descriptor_pool *descriptors, void *item)
{
	return (void **)((char *)item + descriptors->link_at);
}

static bool descriptors_grow(struct gcp_descriptor_pool *descriptors)
{
	int saved = errno;
	char *chunk = mmap(NULL, DESCRIPTOR_CHUNK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	errno = saved;
	if (chunk == MAP_FAILED)
		return false;
	descriptors->chunk = chunk;
	descriptors->end = chunk + DESCRIPTOR_CHUNK;
	return true;
}

void *gcp_descriptor_alloc(struct gcp_descriptor_pool *descriptors)
{
	void *item = NULL;

	pthread_mutex_lock(&descriptors->lock);
	if (descriptors->free_list) {
		item = descriptors->free_list;
		descriptors->free_list = *link_of(descriptors, item);
	} else if ((size_t)(descriptors->end - descriptors->chunk) >=
		       descriptors->step ||
		   descriptors_grow(descriptors)) {
		item = descriptors->chunk;
		descriptors->chunk += descriptors->step;
	}
	pthread_mutex_unlock(&descriptors->lock);
	return item;
}

void gcp_descriptor_free(struct gcp_descriptor_pool *descriptors, void *item)
{
	if (!item)
		return;
	pthread_mutex_lock(&descriptors->lock);
	*link_of(descriptors, item) = descriptors->free_list;
	descriptors->free_list = item;
	pthread_mutex_unlock(&descriptors->lock);
}
