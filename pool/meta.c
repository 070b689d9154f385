/*
 * meta.c - storage for descriptors (blocks, segments, slabs).
 *
 * Not malloc: a descriptor that was given back must stay readable as one of
 * its own type, because another thread may still look at it (a racing double
 * free of the program). Chunks come from mmap and are never unmapped, and the
 * link of the free list stands behind the item, not in it.
 */
#include "types.h"

#include <sys/mman.h>

enum { META_CHUNK = 256 << 10, META_LINE = 64 };

void gcp_meta_init(struct gcp_meta *meta, size_t item_bytes)
{
	size_t link_at = (item_bytes + 7) & ~(size_t)7;
	size_t step = link_at + sizeof(void *);

	/* Larger ones begin at a cache line: a block's first is the hot one. */
	if (step > META_LINE)
		step = (step + META_LINE - 1) / META_LINE * META_LINE;
	*meta = (struct gcp_meta){.link_at = link_at, .step = step};
	pthread_mutex_init(&meta->lock, NULL);
}

static void **link_of(const struct gcp_meta *meta, void *item)
{
	return (void **)((char *)item + meta->link_at);
}

static bool meta_grow(struct gcp_meta *meta)
{
	int saved = errno;
	char *chunk = mmap(NULL, META_CHUNK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	errno = saved;
	if (chunk == MAP_FAILED)
		return false;
	meta->chunk = chunk;
	meta->end = chunk + META_CHUNK;
	return true;
}

void *gcp_meta_take(struct gcp_meta *meta)
{
	void *item = NULL;

	pthread_mutex_lock(&meta->lock);
	if (meta->free_list) {
		item = meta->free_list;
		meta->free_list = *link_of(meta, item);
	} else if ((size_t)(meta->end - meta->chunk) >= meta->step || meta_grow(meta)) {
		item = meta->chunk;
		meta->chunk += meta->step;
	}
	pthread_mutex_unlock(&meta->lock);
	return item;
}

void gcp_meta_give(struct gcp_meta *meta, void *item)
{
	if (!item)
		return;
	pthread_mutex_lock(&meta->lock);
	*link_of(meta, item) = meta->free_list;
	meta->free_list = item;
	pthread_mutex_unlock(&meta->lock);
}
