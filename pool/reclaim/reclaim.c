/* SPDX-License-Identifier: MIT */
/*
 * reclaim.c - what happens when memory is out: the pools give theirs back, stage by
 * stage, and the call that failed is tried again.
 *
 *      COMPLETED  unused memory whose epochs are done; waits for nothing
 *      DRIVER     the driver's own caches; waits for nothing
 *      FREED      what epochs held that frees closed, the oldest first, one at a time;
 *                 waits for work that plain cudaFree waited for
 *      CLOSED     what early epochs held, and the open one, closed early, if completed
 *      OPEN       the same, after more queries: two seconds or so in a call, for all
 *                 pools. During a capture, and where fences are refused, it waits
 *                 for all work. And what a barrier holds back (purge.c)
 *
 * NO NEW WAITS (fence.c): work that was submitted after a free may wait for what the
 * program does after this allocation. So it is not waited for, but for a moment: what
 * is in an open epoch then is little, for where memory is tight each free closes its
 * epoch (tight.c). Memory goes back to the driver without a wait (mem_release).
 * An allocation that cannot succeed whatever is given back does not wait at all.
 *
 * OTHER THREADS. What a call misses another thread may have taken off the lists a
 * moment ago, to give it back. The call waits until the driver has it (others_give),
 * and is tried again where others gave any, but not for ever: they may go on.
 *
 * The stages are climbed by
 *
 *      gcp_reclaim_and_retry       an allocation of a pool; it is tried after each step
 *      gcp_pools_relieve           a driver call for memory of another kind: on its
 *                                  device, on each, and then pinned memory of contexts
 *                                  that are idle; the stage OPEN once in a call
 *      gcp_pools_relieve_host      one for pinned memory, without CLOSED and OPEN
 *      gcp_pools_trim              the program, as far as it says; waits for all work,
 *                                  or of what is completed and for nothing
 *      gcp_pool_complete_by_free   a wait during a capture, on a full device
 *
 * Memory of live graphs stays, but for idle lanes (gcp_share_trim). No lock is held.
 *
 * Rules of waiting (NO NEW WAITS); private.c has the barrier at a capture's end:
 *  W1 a barrier for reuse is set only on an epoch that a free has closed
 *  W2 no barrier for reuse makes a context wait for work of another one
 *  W3 an allocation waits only for epochs that a free had closed when it began
 *  W4 an allocation does not wait for a context that is at work to get its memory
 *  W5 what is freed during a capture waits up to a bound; beyond it a free waits
 *  W6 with GCPOOL_BLOCKING_FREE a free waits for the context
 *  W7 memory is not out before what frees have closed was waited for
 *  W8 memory is not out before the driver has refused as much
 */
#include "reclaim.h"

/* --- what there is to wait for ------------------------------------------------ */

static bool is_giving(struct gcp_pool *pool)
{
	GCP_LOCKED(&pool->lock);
	return pool->giving > 0;
}

/* The list stands in the order of epochs. */
static uint64_t youngest_epoch(const struct gcp_block_list *list, uint64_t epoch)
{
	const struct gcp_block *last = TAILQ_LAST(list, gcp_block_list);

	return last && last->epoch > epoch ? last->epoch : epoch;
}

/* The youngest epoch that any free block still waits for, but for those that stay with
 * their graphs; 0: nothing waits. */
static uint64_t awaited_epoch(struct gcp_pool *pool, const struct gcp_heap *own)
{
	GCP_LOCKED(&pool->lock);
	uint64_t epoch = atomic_load(&pool->timeline.ready); /* free, and held back */

	/* What was freed in a graph's heap serves its own capture alone. */
	if (own)
		epoch = youngest_epoch(&own->pending, epoch);
	epoch = youngest_epoch(&pool->common.unmapping, epoch);
	epoch = youngest_epoch(&pool->common.pending, epoch);
	return epoch > atomic_load(&pool->timeline.completed) ? epoch : 0;
}

static void count(struct gcp_pool *pool, uint64_t *counter)
{
	GCP_LOCKED(&pool->lock);
	++*counter;
}

/* Another thread has taken segments off the lists, and frees them just now. */
static void wait_for_givers(struct gcp_pool *pool)
{
	if (!is_giving(pool))
		return;
	count(pool, &pool->stats.waits);
	for (int i = 0; i < GCP_WAIT_LIMIT && is_giving(pool); i++)
		gcp_backoff();
}

/* --- the stages --------------------------------------------------------------- */

/* How a stage went in one pool. */
struct step {
	const struct gcp_heap *own; /* of a capture, for which it is done, or NULL */
	struct gcp_search *search;
	uint64_t given; /* bytes */
	bool behind_barriers;
	bool more; /* the same may help again */
};

static void give_completed(struct gcp_pool *pool, struct step *step)
{
	const struct gcp_purge purge = {
	    .bytes = UINT64_MAX,
	    .gently = pool->pools->driver.mem_release != NULL,
	    .behind_barriers = step->behind_barriers,
	};

	(void)gcp_timeline_poll_all(pool); /* an error shows again */
	step->given += gcp_pool_purge(pool, &purge);
	wait_for_givers(pool);
}

static void trim_driver(struct gcp_pool *pool, struct step *step)
{
	uint64_t start = pool->pools->driver.clock_ns();

	(void)step;
	pool->pools->driver.mem_trim(pool->ctx);
	gcp_cost_add(pool->pools, pool->calls[GCP_CALL_mem_trim], start);
}

/* Waits for one epoch. */
static void give_freed(struct gcp_pool *pool, struct step *step)
{
	if (awaited_epoch(pool, step->own) == 0 ||
	    !gcp_timeline_wait_oldest(pool, step->search, 0))
		return;
	count(pool, &pool->stats.waits);
	step->more = true;
	give_completed(pool, step);
}

enum { LOOKS_MOST = 20000 }; /* of a call in all pools: two seconds or so */

/* Whether another look may follow, after a pause. Without a search: none. */
static bool may_look(struct gcp_search *search)
{
	if (!search || search->looks >= LOOKS_MOST)
		return false;
	search->looks++;
	gcp_backoff();
	return true;
}

/* Looks whether the epoch is done, until it is or no look is left. Each time it tries
 * to close it if it is open: memory for a fence may be out for now. -EBUSY: no fence
 * may be set. */
static int complete_soon(struct gcp_pool *pool, uint64_t epoch,
			 struct gcp_search *search)
{
	int result;

	do {
		result = gcp_timeline_close_to_look(pool, epoch);
		if (result == 0)
			result = gcp_timeline_poll_all(pool);
	} while (result == 0 && !gcp_timeline_is_completed(&pool->timeline, epoch) &&
		 may_look(search));
	return result;
}

int gcp_pool_complete(struct gcp_pool *pool, uint64_t epoch)
{
	int result = gcp_timeline_complete(pool, epoch, false);

	return result == -EBUSY ? gcp_pool_complete_by_free(pool, false) : result;
}

/* In each pool before any of them is waited for. */
static void give_closed(struct gcp_pool *pool, struct step *step)
{
	uint64_t epoch = awaited_epoch(pool, step->own);

	if (epoch == 0)
		return;
	(void)complete_soon(pool, epoch, NULL);
	give_completed(pool, step);
}

/* Where nothing is pending there is nothing to wait for. */
static void give_open(struct gcp_pool *pool, struct step *step)
{
	uint64_t epoch = awaited_epoch(pool, step->own);

	if (epoch != 0) {
		count(pool, &pool->stats.waits);
		if (complete_soon(pool, epoch, step->search) == -EBUSY)
			(void)gcp_pool_complete(pool, epoch);
	}
	(void)complete_soon(pool, atomic_load(&pool->held_back), step->search);
	step->behind_barriers = true; /* also of another pool */
	give_completed(pool, step);
}

static const struct stage {
	void (*give)(struct gcp_pool *pool, struct step *step);
	bool waits; /* for the device */
	bool later; /* for work of after a free */
} stages[] = {
    {give_completed, false, false}, {trim_driver, false, false},
    {give_freed, true, false},      {give_closed, true, true},
    {give_open, true, true},        {NULL, false, false},
};

/* In all pools of the device; below 0: of each. A pool whose context may be ending is
 * waited for: it may have what is missing. */
static struct step stage_run(const struct stage *stage, struct gcp_pools *pools,
			     int device, const struct gcp_heap *own,
			     struct gcp_search *search)
{
	struct step step = {
	    .own = own,
	    .search = search,
	};

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin_wait(pool))
			continue;
		stage->give(pool, &step);
		gcp_pool_unpin(pool);
	}
	return step;
}

/* Bytes that are reserved, but for what blocks of the program hold, what only other
 * processes have, and what stays with live graphs, shared or not. own: of a request,
 * which may also have what is the driver's as soon as it is mapped nowhere. */
static uint64_t pool_unused(struct gcp_pool *pool, const struct gcp_heap *own)
{
	uint64_t held, reserved;
	const struct gcp_heap *heap;
	const struct gcp_block *block;

	gcp_pool_gather(pool);
	GCP_LOCKED(&pool->lock);
	reserved = pool->stats.reserved_bytes.current;
	held = (int64_t)pool->stats.allocated_bytes.current > 0
		   ? pool->stats.allocated_bytes.current
		   : 0;
	held += pool->common.lent_bytes;
	TAILQ_FOREACH (heap, &pool->private_heaps, link)
		held += heap == own ? heap->lent_bytes
				    : heap->reserved_bytes - heap->used_bytes;
	held += pool->stats.lane_bytes.current;
	TAILQ_FOREACH (block, &pool->common.unmapping, link)
		reserved += own ? block->size : 0;
	return reserved > held ? reserved - held : 0;
}

/* --- an allocation of a pool -------------------------------------------------- */

/* Whether the request may be served when all has come back that may: not what live
 * graphs keep, except for the request's own capture. */
static bool may_succeed(const struct gcp_request *request)
{
	struct gcp_pool *own = request->heap->pool, *pool = own->pools->first;
	uint64_t bytes = gcp_pool_left(own);

	for (; pool && bytes < request->size; pool = pool->next)
		if (pool->live && pool->device == own->device)
			bytes += pool_unused(pool, request->heap);
	return bytes >= request->size;
}

/* What other threads have taken off the lists is the driver's after this. Whether
 * they gave any. */
static bool others_give(struct gcp_pools *pools, int device, struct gcp_search *search)
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (device < 0 || pool->device == device)
			wait_for_givers(pool);
	/* Mapped memory goes back under it, that of a context that ends, too. */
	gcp_mutex_lock(&pools->vmm_lock);
	gcp_mutex_unlock(&pools->vmm_lock);
	return gcp_search_others(pools, search);
}

static int retry(struct gcp_request *request)
{
	return gcp_take_anywhere(request) ? 0 : gcp_grow(request);
}

int gcp_reclaim_and_retry(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	struct gcp_search search = {0};
	int result = GCP_CUDA_OUT_OF_MEMORY;
	struct step step;

	(void)gcp_search_others(pool->pools, &search); /* it is tried once more */
	gcp_tight_out(pool);
	for (const struct stage *stage = stages; stage->give; stage++) {
		do {
			if (stage->waits && !may_succeed(request))
				break;
			count(pool, &pool->stats.alloc_retries);
			step = stage_run(stage, pool->pools, pool->device,
					 request->heap, &search);
			result = retry(request);
			if (result != GCP_CUDA_OUT_OF_MEMORY)
				return result;
		} while (step.more);
	}
	for (int i = 0; i < GCP_TRIES_OTHERS && result == GCP_CUDA_OUT_OF_MEMORY &&
			others_give(pool->pools, pool->device, &search);
	     i++)
		result = retry(request);
	/* It may make room that it does not count as left, out of managed memory. */
	if (result == GCP_CUDA_OUT_OF_MEMORY && pool->vmm)
		result = gcp_grow_plain(request);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		count(pool, &pool->stats.ooms);
	return result;
}

int gcp_refuse(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;
	int result = gcp_grow_plain(request);

	if (result == GCP_CUDA_OUT_OF_MEMORY)
		count(pool, &pool->stats.ooms);
	return result;
}

/* --- memory of other kinds ---------------------------------------------------- */

static uint64_t reclaim(struct gcp_pools *pools, int device, bool later,
			struct gcp_search *search)
{
	uint64_t given = 0;
	struct step step;

	for (const struct stage *stage = stages; stage->give; stage++) {
		do {
			if ((stage->waits && given > 0) || (stage->later && !later))
				return given;
			step = stage_run(stage, pools, device, NULL, search);
			given += step.given;
		} while (step.more);
	}
	return given;
}

/* The driver's free waits for all work of the context: so for that to end first, as in
 * the stage OPEN. */
static bool pinned_give(struct gcp_pools *pools, struct gcp_search *search)
{
	uint64_t given = gcp_pinned_trim(pools, 0, true);

	for (; given == 0 && search->looks < LOOKS_MOST && gcp_pinned_has_unused(pools);
	     search->looks++) {
		gcp_backoff();
		given = gcp_pinned_trim(pools, 0, true);
	}
	return given > 0;
}

/* cuMemCreate names its own device: so all of them. Managed memory may be short of
 * pinned memory. */
enum gcp_relief gcp_pools_relieve(struct gcp_pools *pools, int device,
				  struct gcp_search *search)
{
	bool later = search->looks < LOOKS_MOST;

	if ((device >= 0 && reclaim(pools, device, later, search) > 0) ||
	    reclaim(pools, -1, later, search) > 0 || pinned_give(pools, search))
		return GCP_RELIEF_POOLS;
	search->looks = LOOKS_MOST; /* those in vain are enough */
	return others_give(pools, -1, search) ? GCP_RELIEF_OTHERS : GCP_RELIEF_NONE;
}

/* Nearly all that is missing is the host's. What cannot go back without a wait stays.
 */
enum gcp_relief gcp_pools_relieve_host(struct gcp_pools *pools,
				       struct gcp_search *search)
{
	if (gcp_pinned_trim(pools, 0, true) > 0 ||
	    gcp_pools_trim(pools, -1, 0, false) > 0 ||
	    (pools->driver.mem_release && reclaim(pools, -1, false, search) > 0))
		return GCP_RELIEF_POOLS;
	gcp_pinned_givers_wait(pools);
	return others_give(pools, -1, search) ? GCP_RELIEF_OTHERS : GCP_RELIEF_NONE;
}

/* --- the program trims -------------------------------------------------------- */

/* Where the program has waited for its work the latest frees are completed. */
static uint64_t pool_trim(struct gcp_pool *pool, uint64_t keep_bytes, bool may_wait)
{
	struct gcp_purge purge = {.gently = !may_wait};
	uint64_t epoch, unheld, given = 0;

	gcp_caches_flush(pool);
	unheld = pool_unused(pool, NULL);
	epoch = awaited_epoch(pool, NULL);
	if (may_wait && epoch != 0) {
		count(pool, &pool->stats.waits);
		(void)gcp_pool_complete(pool, epoch); /* an error shows again */
	} else if (unheld > keep_bytes) {
		(void)complete_soon(pool, epoch, NULL);
	}
	if (unheld > keep_bytes) {
		purge.bytes = unheld - keep_bytes;
		given = gcp_pool_purge(pool, &purge);
	}
	(void)gcp_vmm_release(pool, 0, false); /* what handles have left */
	return given;
}

uint64_t gcp_pools_trim(struct gcp_pools *pools, int device, uint64_t keep, bool wait)
{
	uint64_t given = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		if ((device >= 0 && pool->device != device) || !gcp_pool_pin(pool))
			continue;
		given += pool_trim(pool, keep, wait);
		gcp_pool_unpin(pool);
	}
	return given;
}

uint64_t gcp_pools_unheld(struct gcp_pools *pools, int device)
{
	uint64_t bytes = 0;

	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		if (pool->live && (device < 0 || pool->device == device))
			bytes += pool_unused(pool, NULL);
	return bytes;
}

/* --- waiting where no fence may be set ---------------------------------------- */

/* A capture forbids fences, but a real free is legal then and waits for the context as
 * well: allocates and frees the least there is. On a device that is full to the last
 * unit that is pinned memory. Both wait for all but what other devices do: that
 * submitted before is waited for, too. */
int gcp_pool_complete_by_free(struct gcp_pool *pool, bool own)
{
	const struct gcp_driver *driver = &pool->pools->driver;
	void *pinned = NULL;
	gcp_addr addr;
	int result = GCP_CALL(pool, mem_alloc, pool->ctx, GCP_UNIT, &addr);

	if (result == GCP_CUDA_OUT_OF_MEMORY && driver->host_alloc)
		result = driver->host_alloc(pool->ctx, GCP_UNIT, 0, &pinned);
	if (result != 0)
		return result;
	struct gcp_real_free begun = gcp_real_free_begin(pool);
	result = pinned ? driver->host_free(pool->ctx, pinned)
			: GCP_CALL(pool, mem_free, pool->ctx, addr);
	return result == 0 ? gcp_real_free_end(pool, &begun, own) : result;
}
