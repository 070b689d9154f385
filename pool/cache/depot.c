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
 * together may hold is a limit of window.c, and nothing while one thread alone uses the
 * pool, unless the limits were scaled up. What was left of a class that no thread asks
 * for any more would keep that room for ever: each batch that finds no room looks at
 * one other class, in turn, and one that was not asked for since it was looked at last
 * gives all that it has to the heap.
 */
#include "cache.h"

enum { CHAINS_TO_PASS = 32 };

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
	return atomic_load_explicit(&pool->cache_count, memory_order_relaxed) > 1 ||
	       gcp_window_scale(pool) > 0;
}

static bool depot_has_room(const struct gcp_pool *pool, int64_t bytes)
{
	return gcp_depot_is_open(pool) &&
	       atomic_load_explicit(&pool->depot_bytes, memory_order_relaxed) + bytes <=
		   (int64_t)gcp_window_depot_bytes(pool);
}

/* Keeps the oldest first, as far as that costs little: a chain that was exchanged for
 * an older one may be younger than some that come later. depot->lock is held. */
static void depot_insert(struct gcp_depot *depot, const struct gcp_chain *chain)
{
	struct gcp_block *first = chain->first, *older = depot->last;

	first->batch.last = chain->last;
	first->batch.count = chain->count;
	if (!depot->first || first->epoch < depot->first->epoch)
		older = NULL;
	else if (first->epoch < older->epoch)
		older = depot->first;
	for (int i = 0; older && older != depot->last && i < CHAINS_TO_PASS; i++) {
		if (older->batch.next->epoch > first->epoch)
			break;
		older = older->batch.next;
	}
	first->batch.next = older ? older->batch.next : depot->first;
	if (!first->batch.next)
		depot->last = first;
	if (older)
		older->batch.next = first;
	else
		depot->first = first;
}

static int64_t chain_bytes(const struct gcp_chain *chain)
{
	return chain->first ? (int64_t)(chain->count * chain->first->size) : 0;
}

/* One that was left before the epoch; NULL: there is none. */
static struct gcp_block *older_take(struct gcp_depot *depot, uint64_t epoch)
{
	struct gcp_block *first;

	gcp_spin_lock(&depot->lock);
	first = depot->first;
	if (first && first->epoch >= epoch)
		first = NULL;
	if (first)
		depot->first = first->batch.next;
	gcp_spin_unlock(&depot->lock);
	return first;
}

static void depot_drain(struct gcp_pool *pool, struct gcp_depot *depot, uint64_t epoch,
			struct gcp_chain *chain)
{
	struct gcp_block *first;

	while ((first = older_take(depot, epoch))) {
		struct gcp_chain batch = {first, first->batch.last, first->batch.count};

		gcp_chain_append(chain, batch.first, batch.last, batch.count);
		atomic_fetch_sub_explicit(&pool->depot_bytes, chain_bytes(&batch),
					  memory_order_relaxed);
	}
}

/* The class that is next in turn loses its place, unless it is the one that wants room,
 * or was asked for. */
static void room_make(struct gcp_pool *pool, uint32_t wanting, struct gcp_chain *chain)
{
	uint32_t turn =
	    atomic_fetch_add_explicit(&pool->depot_turn, 1, memory_order_relaxed);
	uint32_t size_class = turn % pool->pools->classes.count;
	struct gcp_depot *depot = &pool->depots[size_class];

	if (size_class == wanting ||
	    atomic_exchange_explicit(&depot->asked, false, memory_order_relaxed))
		return;
	depot_drain(pool, depot, UINT64_MAX, chain);
}

void gcp_depot_put(struct gcp_pool *pool, struct gcp_chain *chain)
{
	struct gcp_chain left = *chain;
	struct gcp_depot *depot = &pool->depots[left.first->size_class];
	int64_t bytes = chain_bytes(&left);

	gcp_chain_init(chain);
	if (gcp_depot_is_open(pool) && !depot_has_room(pool, bytes))
		room_make(pool, left.first->size_class, chain);
	if (!depot_has_room(pool, bytes)) {
		gcp_chain_append(chain, left.first, left.last, left.count);
		return;
	}
	atomic_fetch_add_explicit(&pool->depot_bytes, bytes, memory_order_relaxed);
	gcp_spin_lock(&depot->lock);
	depot_insert(depot, &left);
	gcp_spin_unlock(&depot->lock);
}

bool gcp_depot_exchange(struct gcp_pool *pool, uint32_t size_class,
			struct gcp_chain *chain)
{
	struct gcp_depot *depot = &pool->depots[size_class];
	struct gcp_block *first;

	/* No thread has left a batch: the usual case. */
	if (atomic_load_explicit(&pool->depot_bytes, memory_order_relaxed) == 0)
		return false;
	if (!atomic_load_explicit(&depot->asked, memory_order_relaxed))
		atomic_store_explicit(&depot->asked, true, memory_order_relaxed);
	int64_t given = chain_bytes(chain); /* once it is there others may take it */
	gcp_spin_lock(&depot->lock);
	first = depot->first;
	if (!first || (chain->first && first->epoch >= chain->first->epoch)) {
		gcp_spin_unlock(&depot->lock);
		return false;
	}
	depot->first = first->batch.next;
	if (chain->first)
		depot_insert(depot, chain);
	gcp_spin_unlock(&depot->lock);
	*chain = (struct gcp_chain){first, first->batch.last, first->batch.count};
	atomic_fetch_add_explicit(&pool->depot_bytes, given - chain_bytes(chain),
				  memory_order_relaxed);
	return true;
}

void gcp_depot_drain(struct gcp_pool *pool, uint64_t epoch, struct gcp_chain *chain)
{
	if (atomic_load_explicit(&pool->depot_bytes, memory_order_relaxed) == 0)
		return;
	for (uint32_t i = 0; i < pool->pools->classes.count; i++)
		depot_drain(pool, &pool->depots[i], epoch, chain);
}
