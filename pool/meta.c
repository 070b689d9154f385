/*
 * meta.c - storage for descriptors (blocks, segments, slabs), and the small lock.
 *
 * Not malloc: a descriptor that was given back must stay readable as one of
 * its own type, because another thread may still look at it (a racing double
 * free of the program). Chunks come from mmap and are never unmapped, and the
 * link of the free list stands behind the item, not in it.
 */
#include "types.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

enum { META_CHUNK = 256 << 10 };

void gcp_meta_init(struct gcp_meta *meta, size_t item_bytes)
{
	*meta = (struct gcp_meta){.link_at = (item_bytes + 7) & ~(size_t)7};
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
	size_t item_bytes = meta->link_at + sizeof(void *);
	void *item = NULL;

	pthread_mutex_lock(&meta->lock);
	if (meta->free_list) {
		item = meta->free_list;
		meta->free_list = *link_of(meta, item);
	} else if ((size_t)(meta->end - meta->chunk) >= item_bytes || meta_grow(meta)) {
		item = meta->chunk;
		meta->chunk += item_bytes;
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

/* The owner holds the lock for some ten instructions; if it is not free within
 * a moment, its owner was descheduled, and sleeping lets him run whatever the
 * priorities of the two threads are. */
void gcp_spin_wait(struct gcp_spin *spin)
{
	const struct timespec nap = {.tv_nsec = 50 * 1000};

	for (int i = 0;; i++) {
		if (atomic_load_explicit(&spin->taken, memory_order_relaxed) == 0 &&
		    atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) ==
			0)
			return;
		if (i < 100) {
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		} else if (i < 200) {
			sched_yield();
		} else {
			int saved = errno;
			nanosleep(&nap, NULL);
			errno = saved;
		}
	}
}
