/*
 * depot.c - batches of freed blocks on their way from threads that free more than
 * they allocate to threads that allocate more, past the heap and its lock.
 *
 * Called by cache.c with no lock held. A batch is a chain of CACHED blocks of one
 * class, and its first block says how long it is: handing one over costs a few
 * instructions, whatever it holds. Blocks keep their pages, so one that was taken
 * is no more ready than it was.
 *
 * A depot keeps memory from being merged and used for other sizes: all of a pool's
 * together hold no more than a part of the window, and nothing while one thread
 * alone uses the pool.
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

static bool depot_has_room(struct gcp_pool *pool, uint64_t bytes)
{
	struct gcp_window window = gcp_window(pool);

	return atomic_load_explicit(&pool->cache_count, memory_order_relaxed) > 1 &&
	       atomic_load_explicit(&pool->depot_bytes, memory_order_relaxed) +
		       (int64_t)bytes <=
		   (int64_t)window.bytes / 4;
}

bool gcp_depot_put(struct gcp_pool *pool, const struct gcp_chain *chain)
{
	struct gcp_block *first = chain->first;
	struct gcp_depot *depot = &pool->depots[first->size_class];
	uint64_t bytes = chain->count * first->size;

	if (!depot_has_room(pool, bytes))
		return false;
	atomic_fetch_add_explicit(&pool->depot_bytes, (int64_t)bytes,
				  memory_order_relaxed);
	first->batch.next = NULL;
	first->batch.last = chain->last;
	first->batch.count = chain->count;
	gcp_spin_lock(&depot->lock);
	if (depot->first)
		depot->last->batch.next = first;
	else
		depot->first = first;
	depot->last = first;
	gcp_spin_unlock(&depot->lock);
	return true;
}

static struct gcp_block *depot_pop(struct gcp_depot *depot)
{
	struct gcp_block *first;

	gcp_spin_lock(&depot->lock);
	first = depot->first;
	if (first)
		depot->first = first->batch.next;
	gcp_spin_unlock(&depot->lock);
	return first;
}

bool gcp_depot_take(struct gcp_pool *pool, uint32_t size_class,
		    struct gcp_chain *ret_chain)
{
	struct gcp_block *first;

	/* Nobody has left anything: the usual case. */
	if (atomic_load_explicit(&pool->depot_bytes, memory_order_relaxed) == 0)
		return false;
	first = depot_pop(&pool->depots[size_class]);
	if (!first)
		return false;
	atomic_fetch_sub_explicit(&pool->depot_bytes,
				  (int64_t)(first->batch.count * first->size),
				  memory_order_relaxed);
	*ret_chain = (struct gcp_chain){first, first->batch.last, first->batch.count};
	return true;
}

void gcp_depot_drain(struct gcp_pool *pool, struct gcp_chain *chain)
{
	struct gcp_chain batch;

	for (uint32_t i = 0; i < pool->pools->classes.count; i++)
		while (gcp_depot_take(pool, i, &batch))
			gcp_chain_append(chain, batch.first, batch.last, batch.count);
}
