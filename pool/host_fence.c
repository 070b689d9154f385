/*
 * host_fence.c - pages of frees of pinned host memory, and the fences that
 * complete them.
 *
 * THE SAFETY RULE OF PINNED MEMORY LIVES HERE. It is fence.c's, with three
 * differences:
 *
 *   - The CPU writes into a block the moment it gets it, and stands in no context's
 *     queue: a page is ready when its fence is COMPLETED, never before. There are no
 *     barriers.
 *   - With unified addressing every context can use all pinned memory, whatever
 *     its flags say (CUDA Driver API, "Unified Addressing": host memory allocated by
 *     cuMemHostAlloc is accessible from all contexts). So there is one sequence of
 *     pages for the process, and a fence is an event in EVERY context that lives when
 *     it is recorded. A context that is made later has had no work yet.
 *   - An allocation may close a page as well, because it only looks whether the
 *     fence is done, and holds nothing back.
 *
 * NO NEW WAITS. The host waits inside frees only, and there only for work of the
 * freed block's own context that was submitted before: cudaFreeHost of plain CUDA
 * waits for all of that. It never waits for other contexts, whose work may be
 * waiting for what this thread does next. (When memory is out an allocation waits
 * for whatever there is.)
 *
 * Who frees reads `open` behind a full fence; who closes moves `open` on and records
 * then: the argument of fence.c, word for word.
 *
 * Called by host.c and host_reclaim.c without locks. Takes fence_lock, because a
 * capture and a fence exclude each other.
 */
#include "host_types.h"

enum { /* CUresults of calls that a capture forbids: cuda.h, 900 to 908 */
       CUDA_CAPTURE_FIRST = 900,
       CUDA_CAPTURE_LAST = 908,
       LOAD_SHIFT = 40, /* load: blocks above, units of 512 bytes below */
};

uint64_t gcp_host_pages_tag(struct gcp_host *host)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&host->pages.open, memory_order_seq_cst);
}

/* --- counting: decides speed and memory, never safety -------------------------------
 */

static uint64_t load_bytes(uint64_t load)
{
	return (load & ((1ull << LOAD_SHIFT) - 1)) * GCP_UNIT;
}

uint64_t gcp_host_pages_pending(const struct gcp_host *host)
{
	return atomic_load_explicit(&host->pages.pending_bytes, memory_order_relaxed) +
	       load_bytes(
		   atomic_load_explicit(&host->pages.load, memory_order_relaxed));
}

bool gcp_host_pages_count(struct gcp_host *host, uint64_t bytes)
{
	struct gcp_host_pages *pages = &host->pages;
	const struct gcp_config *config = &host->pools->config;
	uint64_t more = (1ull << LOAD_SHIFT) + (bytes + GCP_UNIT - 1) / GCP_UNIT;
	uint64_t load =
	    atomic_fetch_add_explicit(&pages->load, more, memory_order_relaxed) + more;

	/* Programs that free now and then get each free its fence at once, so that
	 * the block is ready when they come back for it. */
	return load >> LOAD_SHIFT >= config->host_page_blocks ||
	       gcp_host_pages_pending(host) > config->host_window ||
	       host->pools->driver.clock_ns() -
		       atomic_load_explicit(&pages->closed_ns, memory_order_relaxed) >
		   GCP_HOST_AGE_NS;
}

/* --- the queue: fence_lock is held ---------------------------------------------------
 */

static struct gcp_host_closed *queue_at(struct gcp_host_pages *pages, uint32_t i)
{
	assert(i < pages->count);
	return &pages->queue[(pages->head + i) % GCP_HOST_QUEUE];
}

static void fence_spare(struct gcp_host_pages *pages, struct gcp_host_fence *fence)
{
	fence->done = true;
	if (fence->waiters > 0)
		return; /* the last who waits for it does this */
	fence->next = pages->spare;
	pages->spare = fence;
}

static struct gcp_host_fence *fence_take(struct gcp_host *host)
{
	struct gcp_host_fence *fence = host->pages.spare;

	if (fence) {
		host->pages.spare = fence->next;
	} else {
		fence = gcp_meta_take(&host->fence_meta);
		if (!fence)
			return NULL;
		*fence = (struct gcp_host_fence){0};
		if (host->pools->driver.world_create(&fence->world) != 0) {
			gcp_meta_give(&host->fence_meta, fence);
			return NULL;
		}
	}
	fence->done = false;
	return fence;
}

static void pages_completed(struct gcp_host_pages *pages, uint64_t page)
{
	while (pages->count > 0 && queue_at(pages, 0)->page <= page) {
		fence_spare(pages, queue_at(pages, 0)->fence);
		atomic_fetch_sub(&pages->pending_bytes, queue_at(pages, 0)->bytes);
		pages->head = (pages->head + 1) % GCP_HOST_QUEUE;
		pages->count--;
	}
	if (atomic_load_explicit(&pages->completed, memory_order_relaxed) < page)
		atomic_store_explicit(&pages->completed, page, memory_order_release);
}

/* Where the oldest closed page that covers `page` is; `count`: it is still open. */
static uint32_t queue_find(struct gcp_host_pages *pages, uint64_t page)
{
	uint32_t i = 0;

	while (i < pages->count && queue_at(pages, i)->page < page)
		i++;
	return i;
}

/* Fences do not work here: nothing is pooled from now on, and what was is freed
 * by the driver. Until a context ends, which may be the one that cannot be asked. */
static int close_failed(struct gcp_host *host, int result)
{
	if (result < 0 || result == GCP_CUDA_OUT_OF_MEMORY ||
	    (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST))
		return -EBUSY; /* a capture that nobody told us of; or for now */
	atomic_store(&host->off, true);
	return result;
}

static int query_locked(struct gcp_host *host, uint32_t i, bool *ret_advanced);

/* Makes room in a full queue: what is completed leaves it; else every other fence is
 * forgotten, and its page is known to be completed when the next one is. */
static void queue_thin(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;
	uint64_t bytes = 0;
	uint32_t kept = 0;
	bool advanced;

	(void)query_locked(host, 0, &advanced);
	if (pages->count < GCP_HOST_QUEUE)
		return;
	for (uint32_t i = 0; i < pages->count; i++) {
		struct gcp_host_closed closed = *queue_at(pages, i);

		closed.bytes += bytes;
		bytes = 0;
		if (i % 2 == 0 && i + 1 < pages->count) {
			fence_spare(pages, closed.fence);
			bytes = closed.bytes;
		} else {
			*queue_at(pages, kept++) = closed;
		}
	}
	pages->count = kept;
}

static int close_locked(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;
	struct gcp_host_fence *fence;

	if (atomic_load_explicit(&host->pools->holds, memory_order_relaxed) > 0)
		return -EBUSY;
	if (pages->count == GCP_HOST_QUEUE)
		queue_thin(host);
	fence = fence_take(host);
	if (!fence)
		return -EBUSY;
	uint64_t page =
	    atomic_fetch_add_explicit(&pages->open, 1, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst); /* as gcp_pages_turn */
	uint64_t bytes = load_bytes(atomic_exchange(&pages->load, 0));
	int result = GCP_HOST_CALL(host, host_fence_record, world_record, fence->world);

	atomic_fetch_add(&pages->pending_bytes, bytes);
	if (result != 0) {
		/* `page` has no fence of its own; the next one covers it. */
		atomic_fetch_sub(&pages->pending_bytes, bytes);
		fence_spare(pages, fence);
		return close_failed(host, result);
	}
	pages->count++;
	*queue_at(pages, pages->count - 1) =
	    (struct gcp_host_closed){.page = page, .bytes = bytes, .fence = fence};
	atomic_store_explicit(&pages->closed_ns, host->pools->driver.clock_ns(),
			      memory_order_relaxed);
	atomic_fetch_add_explicit(&host->closed, 1, memory_order_relaxed);
	return 0;
}

/* *ret_advanced: the i-th page of the queue is completed, and all before it. */
static int query_locked(struct gcp_host *host, uint32_t i, bool *ret_advanced)
{
	struct gcp_host_pages *pages = &host->pages;
	struct gcp_host_closed closed = *queue_at(pages, i);
	int result =
	    GCP_HOST_CALL(host, host_fence_query, world_query, closed.fence->world);

	*ret_advanced = result == 0;
	if (result == 0)
		pages_completed(pages, closed.page);
	return result == GCP_CUDA_NOT_READY ? 0 : result;
}

/* Lets go of fence_lock while the host waits. */
static int wait_locked(struct gcp_host *host, struct gcp_host_fence *fence, void *ctx)
{
	struct gcp_pools *pools = host->pools;
	int result;

	fence->waiters++;
	pthread_mutex_unlock(&pools->fence_lock);
	result = GCP_HOST_CALL(host, host_fence_wait, world_wait, fence->world, ctx);
	pthread_mutex_lock(&pools->fence_lock);
	if (--fence->waiters == 0 && fence->done)
		fence_spare(&host->pages, fence);
	return result;
}

/* --- for the rest of the room
 * ---------------------------------------------------------- */

int gcp_host_pages_close(struct gcp_host *host)
{
	struct gcp_pools *pools = host->pools;
	int result = 0;

	/* Somebody else closes a page just now, and his fence or the next one covers
	 * ours. */
	if (atomic_load_explicit(&pools->holds, memory_order_relaxed) > 0 ||
	    atomic_exchange(&host->pages.closing, true))
		return 0;
	pthread_mutex_lock(&pools->fence_lock);
	result = close_locked(host);
	pthread_mutex_unlock(&pools->fence_lock);
	atomic_store(&host->pages.closing, false);
	return result == -EBUSY ? 0 : result;
}

int gcp_host_pages_close_for(struct gcp_host *host, uint64_t page)
{
	int result = 0;

	pthread_mutex_lock(&host->pools->fence_lock);
	if (queue_find(&host->pages, page) == host->pages.count &&
	    !gcp_host_page_ready(host, page))
		result = close_locked(host);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result == -EBUSY ? 0 : result;
}

int gcp_host_pages_poll(struct gcp_host *host, uint64_t page)
{
	bool advanced;
	int result = 0;

	pthread_mutex_lock(&host->pools->fence_lock);
	uint32_t i = queue_find(&host->pages, page);
	if (i < host->pages.count && !gcp_host_page_ready(host, page))
		result = query_locked(host, i, &advanced);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result;
}

int gcp_host_pages_poll_all(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;
	bool advanced = true;
	int result = 0;

	pthread_mutex_lock(&host->pools->fence_lock);
	for (uint32_t i = 0; result == 0 && advanced && pages->count > 0; i = 2 * i + 1)
		result = query_locked(host, i < pages->count ? i : pages->count - 1,
				      &advanced);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result;
}

/* The errors of other contexts are not the caller's; that of `ctx` is. */
static int wait_in(struct gcp_host *host, uint64_t page, void *ctx, bool *ret_advanced)
{
	struct gcp_host_pages *pages = &host->pages;
	uint32_t i = queue_find(pages, page);
	int result = 0;

	*ret_advanced = false;
	if (i < pages->count)
		(void)query_locked(host, i, ret_advanced);
	if (i >= pages->count || *ret_advanced)
		return 0;
	result = wait_locked(host, queue_at(pages, i)->fence, ctx);
	atomic_fetch_add_explicit(&host->waits, 1, memory_order_relaxed);
	i = queue_find(pages, page);
	if (result == 0 && i < pages->count)
		(void)query_locked(host, i, ret_advanced);
	return result;
}

int gcp_host_pages_wait_oldest(struct gcp_host *host, void *ctx, bool *ret_advanced)
{
	int result;

	pthread_mutex_lock(&host->pools->fence_lock);
	result = wait_in(host, 0, ctx, ret_advanced);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result;
}

int gcp_host_pages_wait_for(struct gcp_host *host, uint64_t page, void *ctx)
{
	bool advanced;
	int result = 0;

	pthread_mutex_lock(&host->pools->fence_lock);
	if (!gcp_host_page_ready(host, page))
		result = wait_in(host, page, ctx, &advanced);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result;
}

static int complete_locked(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;
	uint64_t page = gcp_host_pages_tag(host);
	int result = close_locked(host);

	while (result == 0 && !gcp_host_page_ready(host, page) && pages->count > 0) {
		struct gcp_host_closed closed = *queue_at(pages, pages->count - 1);

		result = wait_locked(host, closed.fence, NULL);
		if (result == 0)
			pages_completed(pages, closed.page);
	}
	return result;
}

int gcp_host_pages_complete(struct gcp_host *host)
{
	int result;

	pthread_mutex_lock(&host->pools->fence_lock);
	result = complete_locked(host);
	pthread_mutex_unlock(&host->pools->fence_lock);
	return result;
}

/* For tests. */
void gcp_host_pages_finish(struct gcp_host *host)
{
	struct gcp_host_pages *pages = &host->pages;

	while (pages->count > 0)
		pages_completed(pages, queue_at(pages, pages->count - 1)->page);
	while (pages->spare) {
		host->pools->driver.world_destroy(pages->spare->world);
		pages->spare = pages->spare->next;
	}
}
