/* SPDX-License-Identifier: MIT */
/*
 * depot.c - batches of freed blocks on their way from threads that free more than
 * they allocate to threads that allocate more, and from one that waits for an epoch to
 * one that can use it, past the heap and its lock.
 *
 * Called by cache.c, which may hold the lock of the thread's own cache. A batch is a
 * chain of CACHED blocks of one class, and its first block says how long it is: handing
 * one over costs a few instructions, whatever it holds. Blocks keep their epochs, so
 * one that was taken is no more ready than it was.
 *
 * A depot keeps memory from being merged and used for other sizes: what all of a pool's
 * together may hold is a window's worth, and nothing while one thread alone uses the
 * pool, unless the limits were scaled up.
 */
#include "cache.h"

void gcp_chain_init(struct gcp_chain *chain)
{
	*chain = (struct gcp_chain){.last = &chain->first};
}

void gcp_chain_append(struct gcp_chain *chain, struct gcp_block *first,
		      struct gcp_block **last, uint32_t count)
{
	if (count == 0)
		return;
	*chain->last = first;
	chain->last = last;
	chain->count += count;
}

bool gcp_depot_is_open(const struct gcp_pool *pool)
{
	return GCP_LOAD(pool->cache_count) > 1 || GCP_LIMIT(pool, scale) > 0;
}

/* depot->lock is held. */
static void first_set(struct gcp_depot *depot, struct gcp_block *first)
{
	depot->first = first;
	GCP_STORE(depot->oldest, first ? first->epoch : 0);
}

/* The oldest stands first, but for some that were exchanged for an older one and went
 * to the end. depot->lock is held. */
static void depot_insert(struct gcp_depot *depot, const struct gcp_chain *chain)
{
	struct gcp_block *first = chain->first;

	assert(chain->count > 0 && first->size_class != GCP_CLASS_NONE);
	first->batch.last = chain->last;
	first->batch.count = chain->count;
	if (!depot->first || first->epoch < depot->first->epoch) {
		first->batch.next = depot->first;
		if (!depot->first)
			depot->last = first;
		first_set(depot, first);
	} else {
		first->batch.next = NULL;
		depot->last->batch.next = first;
		depot->last = first;
	}
}

int64_t gcp_chain_bytes(const struct gcp_chain *chain)
{
	return chain->first ? (int64_t)(chain->count * chain->first->size) : 0;
}

/* One that was left before the epoch, for `instead` if that has any; NULL: there is
 * none. */
static struct gcp_block *older_take(struct gcp_depot *depot, uint64_t epoch,
				    const struct gcp_chain *instead)
{
	struct gcp_block *first;

	gcp_spin_lock(&depot->lock);
	first = depot->first;
	if (first && first->epoch >= epoch)
		first = NULL;
	if (first)
		first_set(depot, first->batch.next);
	if (first && instead && instead->first)
		depot_insert(depot, instead);
	gcp_spin_unlock(&depot->lock);
	return first;
}

void gcp_depot_put(struct gcp_pool *pool, struct gcp_chain *chain)
{
	struct gcp_depot *depot = &pool->depots[chain->first->size_class];
	int64_t bytes = gcp_chain_bytes(chain);

	if (!gcp_depot_is_open(pool) ||
	    GCP_LOAD(pool->depot_bytes) + bytes > (int64_t)GCP_LIMIT(pool, bytes))
		return;
	atomic_fetch_add_explicit(&pool->depot_bytes, bytes, memory_order_relaxed);
	gcp_spin_lock(&depot->lock);
	depot_insert(depot, chain);
	gcp_spin_unlock(&depot->lock);
	gcp_chain_init(chain);
}

bool gcp_depot_exchange(struct gcp_pool *pool, uint32_t size_class,
			struct gcp_chain *chain)
{
	struct gcp_depot *depot = &pool->depots[size_class];
	uint64_t oldest = GCP_LOAD(depot->oldest);
	uint64_t before = chain->first ? chain->first->epoch : UINT64_MAX;
	int64_t given = gcp_chain_bytes(chain);
	struct gcp_block *first;

	/* No thread has left a batch that helps: the usual case. */
	if (oldest == 0 || oldest >= before ||
	    !(first = older_take(depot, before, chain)))
		return false;
	assert(first->size_class == size_class && first->epoch < before);
	*chain = (struct gcp_chain){first, first->batch.last, first->batch.count};
	atomic_fetch_add_explicit(&pool->depot_bytes, given - gcp_chain_bytes(chain),
				  memory_order_relaxed);
	return true;
}

void gcp_depot_drain(struct gcp_pool *pool, struct gcp_chain *chain)
{
	struct gcp_block *first;

	if (GCP_LOAD(pool->depot_bytes) == 0)
		return;
	for (uint32_t i = 0; i < pool->pools->classes.count; i++)
		while ((first = older_take(&pool->depots[i], UINT64_MAX, NULL))) {
			int64_t bytes = (int64_t)(first->batch.count * first->size);

			gcp_chain_append(chain, first, first->batch.last,
					 first->batch.count);
			atomic_fetch_sub_explicit(&pool->depot_bytes, bytes,
						  memory_order_relaxed);
		}
}
