/*
 * fence.c - pages of frees, and the fences that make them ready for reuse.
 *
 * THE SAFETY RULE OF THE LIBRARY LIVES HERE.
 *
 * Each free writes the number of the open page into its block (gcp_pages_tag).
 * A page is closed by moving on to the next number and THEN recording a fence:
 *
 *      thread that frees                 thread that closes page 7
 *      -----------------                 -------------------------
 *      submits its last work
 *      full memory fence
 *      reads open == 7, tags block       open = 8
 *                                        records fence behind all submitted work
 *
 * Who read 7 did so before the move to 8, so his work was submitted before the
 * fence was recorded, and the fence covers it. Who reads 8 belongs to the next
 * page. No lock is needed for that, and no list of blocks.
 *
 * Fences of one context complete in order, so two numbers say everything: all
 * pages <= completed are done; all pages <= ready are done or held back behind
 * a barrier that every live context of the process waits at.
 *
 * While a stream captures, `holds` is not zero: no fence is recorded and no
 * barrier set. Both are done under fence_lock, which gcp_pools_fences_hold
 * takes too: a capture and a fence exclude each other. Queries and host waits
 * on fences that exist already are legal during a capture and go on.
 *
 * NO NEW WAITS. Pages are closed inside calls that free, because plain CUDA
 * would have waited there for all work submitted so far: what later work then
 * waits for is work that plain CUDA had finished by that time. If an allocation
 * closed the page instead, a barrier could hold a kernel back behind another
 * one that spins until the first has run (as collectives do), and a program
 * that is correct on plain CUDA would hang. Allocations only set barriers on
 * pages that are closed already; when memory is out they may close and wait.
 * A page that an allocation closes to see whether it is done (`early`) is only
 * asked: later work is not held back behind it before a free has closed another.
 * And plain cudaFree waits for its own context only: meanwhile work of another can
 * begin (of the same it cannot: measured), and may be what the kernel waits for, as
 * in collectives over several devices. So with several contexts no barrier is set
 * for reuse: blocks wait until their page is completed, the pool grows, and when
 * very much waits a free waits, too, for pages of long ago.
 *
 * On drivers without context fences a page is closed by waiting for the
 * context (`synchronous`).
 */
#include "types.h"

enum { /* CUresults of calls that a capture forbids: cuda.h, 900 to 908 */
       CUDA_CAPTURE_FIRST = 900,
       CUDA_CAPTURE_LAST = 908,
};

uint64_t gcp_pages_tag(struct gcp_pool *pool)
{
	/* The caller's submissions, and whatever he saw of others', must be
	 * visible to the driver before `open` is read. */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&pool->pages.open, memory_order_seq_cst);
}

uint64_t gcp_pages_turn(struct gcp_pool *pool)
{
	atomic_store_explicit(&pool->pages.filled, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->pages.early, 0, memory_order_relaxed);
	uint64_t page = atomic_fetch_add(&pool->pages.open, 1);
	atomic_thread_fence(memory_order_seq_cst); /* ARM: before the driver looks */
	return page;
}

/* --- the queue of closed pages: fence_lock is held --------------------------- */

static struct gcp_closed_page *queue_at(struct gcp_pages *pages, uint32_t i)
{
	assert(i < pages->count);
	return &pages->queue[(pages->head + i) % GCP_FENCE_QUEUE];
}

static void raise_to(_Atomic uint64_t *mark, uint64_t page)
{
	if (atomic_load_explicit(mark, memory_order_relaxed) < page)
		atomic_store_explicit(mark, page, memory_order_release);
}

static void pages_completed(struct gcp_pages *pages, uint64_t page)
{
	while (pages->count > 0 && queue_at(pages, 0)->page <= page) {
		pages->spare[pages->spare_count++] = queue_at(pages, 0)->fence;
		pages->head = (pages->head + 1) % GCP_FENCE_QUEUE;
		pages->count--;
	}
	raise_to(&pages->completed, page);
	raise_to(&pages->ready, page);
}

/* A spare fence that nobody waits for any more: recorded again, it would make
 * him wait for later work. -1: none. */
static int spare_find(const struct gcp_pages *pages)
{
	for (int i = (int)pages->spare_count - 1; i >= 0 && pages->crowd == 0; i--) {
		uint32_t slot = 0;

		while (slot < GCP_WAITERS_MAX &&
		       pages->awaited[slot] != pages->spare[i])
			slot++;
		if (slot == GCP_WAITERS_MAX)
			return i;
	}
	return -1;
}

/* Makes room in a full queue: of the pages that are ordered every other fence is
 * forgotten. They are known to be completed when the next one is. */
static void queue_thin(struct gcp_pages *pages)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < pages->count; i++) {
		struct gcp_closed_page closed = *queue_at(pages, i);
		bool next_ordered = i + 1 < pages->count &&
				    queue_at(pages, i + 1)->page <= pages->ordered;

		if (i % 2 == 0 && next_ordered)
			pages->spare[pages->spare_count++] = closed.fence;
		else
			*queue_at(pages, kept++) = closed;
		if (i % 2 == 0 && next_ordered)
			queue_at(pages, i + 1)->bytes += closed.bytes;
	}
	pages->count = kept;
}

static int fence_take(struct gcp_pool *pool, void **ret_fence)
{
	struct gcp_pages *pages = &pool->pages;
	int spare = spare_find(pages);

	if (spare < 0)
		return GCP_CALL(pool, fence_create, pool->ctx, ret_fence);
	*ret_fence = pages->spare[spare];
	pages->spare[spare] = pages->spare[--pages->spare_count];
	return 0;
}

static bool is_held(struct gcp_pools *pools)
{
	return atomic_load_explicit(&pools->holds, memory_order_relaxed) > 0;
}

/* Closes the open page by waiting for the whole context. */
static int close_synchronous(struct gcp_pool *pool)
{
	uint64_t page = gcp_pages_turn(pool);
	int result = GCP_CALL(pool, ctx_sync, pool->ctx);

	if (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST)
		return -EBUSY;
	if (result != 0)
		return result;
	pages_completed(&pool->pages, page);
	return 0;
}

/* The fence could not be recorded. If waiting for the context works, context
 * fences do not work here, and waiting is what we do from now on. */
static int close_after_failure(struct gcp_pool *pool, int failure)
{
	if (failure >= CUDA_CAPTURE_FIRST && failure <= CUDA_CAPTURE_LAST)
		return -EBUSY; /* a capture that nobody told us of */
	int result = close_synchronous(pool);
	if (result == 0)
		pool->pages.synchronous = true;
	return result;
}

/* Bytes freed into the open page itself. */
static int64_t filled_now(const struct gcp_pages *pages)
{
	return atomic_load_explicit(&pages->filled, memory_order_relaxed) -
	       atomic_load_explicit(&pages->early, memory_order_relaxed);
}

static int close_locked(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;
	void *fence;
	int result;

	if (is_held(pool->pools))
		return -EBUSY;
	if (pages->synchronous)
		return close_synchronous(pool);
	if (pages->count == GCP_FENCE_QUEUE)
		queue_thin(pages);
	bool no_fence = pages->count + pages->spare_count == GCP_FENCES_MAX &&
			spare_find(pages) < 0;
	if (pages->count == GCP_FENCE_QUEUE || no_fence)
		return 0; /* the page stays open; a later fence covers it too */
	result = fence_take(pool, &fence);
	if (result == GCP_CUDA_OUT_OF_MEMORY)
		return -EBUSY; /* for now */
	if (result != 0)
		return close_after_failure(pool, result);

	int64_t filled = filled_now(pages);
	uint64_t page = gcp_pages_turn(pool);
	gcp_streams_page_closed(pool->pools);
	gcp_window_page_closed(pool);
	result = GCP_CALL(pool, fence_record, pool->ctx, fence);
	if (result != 0) {
		/* `page` has no fence of its own; the next one covers it. */
		pages->spare[pages->spare_count++] = fence;
		return close_after_failure(pool, result);
	}
	pages->count++;
	*queue_at(pages, pages->count - 1) = (struct gcp_closed_page){
	    .page = page, .fence = fence, .bytes = filled > 0 ? (uint64_t)filled : 0};
	pages->freed = page;
	return 0;
}

/* Asks for one fence only, `depth` places behind the oldest: a query costs up
 * to a microsecond, and if this page is done all older ones are. */
static int poll_locked(struct gcp_pool *pool, uint32_t depth, bool *ret_advanced)
{
	struct gcp_pages *pages = &pool->pages;

	*ret_advanced = false;
	if (pages->count == 0)
		return 0;
	if (depth == GCP_POLL_HALF)
		depth = pages->count / 2;
	if (depth >= pages->count)
		depth = pages->count - 1;
	struct gcp_closed_page closed = *queue_at(pages, depth);
	int result = GCP_CALL(pool, fence_query, closed.fence);

	if (result == GCP_CUDA_NOT_READY)
		return 0;
	if (result != 0)
		return result;
	pages_completed(pages, closed.page);
	*ret_advanced = true;
	return 0;
}

/* The oldest closed page that covers `page`, or NULL: it is still open. */
static struct gcp_closed_page *closed_page_covering(struct gcp_pages *pages,
						    uint64_t page)
{
	for (uint32_t i = 0; i < pages->count; i++)
		if (queue_at(pages, i)->page >= page)
			return queue_at(pages, i);
	return NULL;
}

static bool is_completed(const struct gcp_pages *pages, uint64_t page)
{
	return page <= atomic_load_explicit(&pages->completed, memory_order_relaxed);
}

/* Lets go of fence_lock while the host waits: a kernel may be waiting for what
 * another thread does after its next allocation. */
static int wait_locked(struct gcp_pool *pool, struct gcp_closed_page closed)
{
	struct gcp_pages *pages = &pool->pages;
	uint32_t slot = 0;
	int result;

	while (slot < GCP_WAITERS_MAX && pages->awaited[slot])
		slot++;
	if (slot < GCP_WAITERS_MAX)
		pages->awaited[slot] = closed.fence;
	else
		pages->crowd++;
	pthread_mutex_unlock(&pool->pools->fence_lock);
	result = GCP_CALL(pool, fence_wait, closed.fence);
	pthread_mutex_lock(&pool->pools->fence_lock);
	if (slot < GCP_WAITERS_MAX)
		pages->awaited[slot] = NULL;
	else
		pages->crowd--;
	if (result == 0)
		pages_completed(pages, closed.page);
	return result;
}

/* Closes the page that is open, whatever it takes: a full queue is waited for. */
static int close_for_completion(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;
	int result = 0;

	if (pages->count == GCP_FENCE_QUEUE)
		result = wait_locked(pool, *queue_at(pages, pages->count - 1));
	uint64_t freed = pages->freed;
	if (result == 0)
		result = close_locked(pool);
	pages->freed = freed; /* only he who closes it waits for it */
	return result;
}

static int complete_locked(struct gcp_pool *pool, uint64_t page)
{
	struct gcp_pages *pages = &pool->pages;
	struct gcp_closed_page *closed = closed_page_covering(pages, page);
	int result = 0;

	if (is_completed(pages, page))
		return 0;
	if (!closed)
		result = close_for_completion(pool);
	if (result != 0 || is_completed(pages, page))
		return result;
	closed = closed_page_covering(pages, page);
	return closed ? wait_locked(pool, *closed) : -EBUSY;
}

static int fence_order(struct gcp_pool *pool, void *fence, bool alone)
{
	uint64_t start = pool->pools->driver.clock_ns();
	int result = pool->pools->driver.fence_order(fence, alone);

	if (result != -EXDEV)
		gcp_call_count(pool, GCP_CALL_fence_order, start);
	return result;
}

/* Where only completion counts, waits. alone: -EXDEV where a context would wait for
 * another's work. */
static int order_locked(struct gcp_pool *pool, uint64_t page, bool alone)
{
	struct gcp_pages *pages = &pool->pages;
	struct gcp_closed_page *closed = closed_page_covering(pages, page);

	if (atomic_load(&pool->pools->completed_only))
		return complete_locked(pool, page);
	if (!closed || closed->page > pages->freed || is_held(pool->pools))
		return -EBUSY;
	uint64_t covered = closed->page;
	int result = fence_order(pool, closed->fence, alone);
	if (alone)
		pages->apart = result == -EXDEV;
	/* Where some context cannot be made to wait, nothing is ordered and the
	 * heap grows; an error of this context shows when a fence is queried. */
	if (result != 0)
		return result == -EXDEV ? result : -EBUSY;
	gcp_window_barrier_set(pool);
	if (pages->ordered < covered)
		pages->ordered = covered;
	raise_to(&pages->ready, covered);
	return 0;
}

/* Somebody who obeys no context's queue has appeared: from now on only
 * completed pages are ready. Those ordered so far are waited for, so that all
 * that is in the free lists is as strong. */
static int require_completion(struct gcp_pools *pools)
{
	if (atomic_load(&pools->completed_only) || !pools->driver.third_party_writers())
		return 0;
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next) {
		int result;

		if (!gcp_pool_visit(pool))
			continue;
		result = complete_locked(pool, pool->pages.ordered);
		gcp_pool_visit_end(pool);
		if (result != 0)
			return result;
	}
	atomic_store(&pools->completed_only, true);
	return 0;
}

/* --- for the rest of the room --------------------------------------------------- */

/* Somebody else closes a page just now: his fence covers ours as well, or the next
 * one will. (pthread_mutex_trylock would say the same, but is not in libc.so.6
 * before glibc 2.34.) But he may have been descheduled, and all that is freed
 * meanwhile is of no use: a page that is twice as full as it should be is worth
 * waiting for him. */
static bool close_begin(struct gcp_pool *pool)
{
	if (!atomic_exchange(&pool->pools->closing, true))
		return true;
	struct gcp_window window = gcp_window(pool);
	return atomic_load_explicit(&pool->pages.filled, memory_order_relaxed) >=
	       2 * (int64_t)window.page_bytes;
}

/* Where no barrier may be set: waits until no more is pending than may be. Plain CUDA
 * would have waited for all of it. Lets go of fence_lock meanwhile. */
static int catch_up_locked(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;
	uint64_t most = gcp_window_apart(pool), bytes = 0;
	uint32_t i = pages->count;

	if (!pages->apart)
		return 0;
	/* The youngest pages of so many bytes may wait; two of them in any case. */
	while (i > 0 && (pages->count - i < 2 || bytes < most))
		bytes += queue_at(pages, --i)->bytes;
	return i > 0 ? wait_locked(pool, *queue_at(pages, i - 1)) : 0;
}

int gcp_pages_close(struct gcp_pool *pool, uint64_t page)
{
	struct gcp_pools *pools = pool->pools;
	int result = 0;

	if (is_held(pools) || !close_begin(pool))
		return 0;
	pthread_mutex_lock(&pools->fence_lock);
	if (atomic_load_explicit(&pool->pages.open, memory_order_relaxed) == page)
		result = close_locked(pool);
	atomic_store(&pools->closing, false);
	if (result == 0)
		result = catch_up_locked(pool);
	pthread_mutex_unlock(&pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

/* What was freed into it counts towards the page that a free closes next. Else, where
 * each allocation closes one, no free ever would, and no barrier be set. */
static int close_early_locked(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;
	uint64_t freed = pages->freed, open = atomic_load(&pages->open);
	int64_t filled = atomic_load_explicit(&pages->filled, memory_order_relaxed);
	int result = pages->synchronous ? 0 : close_locked(pool);

	pages->freed = freed;
	if (atomic_load(&pages->open) == open)
		return result;
	atomic_fetch_add_explicit(&pages->filled, filled, memory_order_relaxed);
	atomic_store_explicit(&pages->early, filled, memory_order_relaxed);
	return result;
}

int gcp_pages_close_early(struct gcp_pool *pool, bool full)
{
	int64_t least = full ? (int64_t)gcp_window(pool).page_bytes : INT64_MIN;
	int result = 0;

	pthread_mutex_lock(&pool->pools->fence_lock);
	if (filled_now(&pool->pages) >= least)
		result = close_early_locked(pool);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_pages_poll(struct gcp_pool *pool, uint32_t depth, bool *ret_advanced)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	int result = poll_locked(pool, depth, ret_advanced);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

int gcp_pages_poll_all(struct gcp_pool *pool)
{
	bool advanced = true;
	int result = 0;

	for (uint32_t depth = 0; result == 0 && advanced; depth = 2 * depth + 1)
		result = gcp_pages_poll(pool, depth, &advanced);
	return result;
}

int gcp_pages_make_ready(struct gcp_pool *pool, uint64_t page)
{
	struct gcp_pools *pools = pool->pools;
	int result;

	pthread_mutex_lock(&pools->fence_lock);
	result = require_completion(pools);
	if (result == 0 && !gcp_page_ready(pool, page)) {
		if (!closed_page_covering(&pool->pages, page) ||
		    page > pool->pages.freed)
			result = -EBUSY; /* see NO NEW WAITS above */
		else
			result = order_locked(pool, page, true);
	}
	pthread_mutex_unlock(&pools->fence_lock);
	return result == -EXDEV ? -EBUSY : result;
}

int gcp_pages_barrier(struct gcp_pool *pool, uint64_t page, bool alone)
{
	struct gcp_pages *pages = &pool->pages;
	int result;

	pthread_mutex_lock(&pool->pools->fence_lock);
	result = require_completion(pool->pools);
	struct gcp_closed_page *closed = closed_page_covering(pages, page);
	if (result == 0 && !atomic_load(&pool->pools->completed_only) &&
	    !is_completed(pages, page) && (!closed || closed->page > pages->freed))
		result = close_locked(pool);
	if (result == 0 && !is_completed(pages, page))
		result = order_locked(pool, page, alone);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

int gcp_pages_complete(struct gcp_pool *pool, uint64_t page)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	int result = complete_locked(pool, page);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

void gcp_pages_completed_by_free(struct gcp_pool *pool, uint64_t page)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	pages_completed(&pool->pages, page);
	pthread_mutex_unlock(&pool->pools->fence_lock);
}

/* The context is gone and its fences with it: they must not be used again. */
void gcp_pages_forget(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;

	pthread_mutex_lock(&pool->pools->fence_lock);
	uint64_t open = gcp_pages_turn(pool);
	pages->count = 0;
	pages->spare_count = 0;
	pages_completed(pages, open);
	pthread_mutex_unlock(&pool->pools->fence_lock);
}

/* The context whose pool was leaving does not end. What joined meanwhile did not
 * stand behind the pool's barriers, and who demanded completion passed it by. */
int gcp_pages_stay(struct gcp_pool *pool)
{
	struct gcp_pages *pages = &pool->pages;
	int result = 0;

	pthread_mutex_lock(&pool->pools->fence_lock);
	if (!is_completed(pages, pages->ordered) &&
	    (atomic_load(&pool->pools->completed_only) || is_held(pool->pools) ||
	     fence_order(pool, closed_page_covering(pages, pages->ordered)->fence,
			 false)))
		result = complete_locked(pool, pages->ordered);
	atomic_store(&pool->leaving, result != 0);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return result;
}

/* --- public ---------------------------------------------------------------------- */

/* The youngest closed page that is ordered and, as far as is known, not completed;
 * NULL: there is none. fence_lock is held. */
static struct gcp_closed_page *closed_page_ordered(struct gcp_pages *pages)
{
	uint32_t i = pages->count;

	while (i > 0 && queue_at(pages, i - 1)->page > pages->ordered)
		i--;
	return i > 0 ? queue_at(pages, i - 1) : NULL;
}

static bool is_any_ordered(struct gcp_pool *pool)
{
	pthread_mutex_lock(&pool->pools->fence_lock);
	bool any = closed_page_ordered(&pool->pages) != NULL;
	pthread_mutex_unlock(&pool->pools->fence_lock);
	return any;
}

/* Puts `ctx` behind the pool's barriers. Where it cannot be made to wait, or a capture
 * forbids that, the host waits. */
static void pool_joined(struct gcp_pool *pool, void *ctx,
			int (*order)(void *ctx, void *fence))
{
	/* Fences of a context that may be ending must not be touched. Most calls that
	 * leave it alive are over in a moment: worth some patience, but no more, for
	 * its work may wait for this context's. If it stays, gcp_pages_stay follows. */
	if (!is_any_ordered(pool) || !gcp_pool_visit_patiently(pool))
		return;
	pthread_mutex_lock(&pool->pools->fence_lock);
	struct gcp_closed_page *closed = closed_page_ordered(&pool->pages);
	int result = 0;
	if (closed && (is_held(pool->pools) || order(ctx, closed->fence) != 0))
		result = wait_locked(pool, *closed);
	pthread_mutex_unlock(&pool->pools->fence_lock);
	if (result != 0)
		(void)gcp_pool_complete_by_free(pool); /* an error shows again */
	gcp_pool_visit_end(pool);
}

void gcp_pools_context_joined(struct gcp_pools *pools, void *ctx,
			      int (*order)(void *ctx, void *fence))
{
	for (struct gcp_pool *pool = pools->first; pool; pool = pool->next)
		pool_joined(pool, ctx, order);
}
