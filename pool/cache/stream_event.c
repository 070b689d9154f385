/* SPDX-License-Identifier: MIT */
/*
 * stream_event.c - blocks that are freed in the order of a stream where no fence covers
 * their context: drivers before CUDA 12.5, and contexts in which fences have failed.
 *
 * There an epoch is closed by waiting for the context, which a free in a stream must
 * not do (fence.c, NO NEW WAITS), nor an allocation. But such a free names its stream,
 * and all that uses the block comes before it there (stream_alloc.c). So an event in
 * that stream is enough, and the block waits for it apart from all epochs:
 *
 *      free in s -> event in s -> the block is in pool->stream_events
 *      the event is done -> the block is in the heap, as one that all work is done on
 *
 * Frees of one stream share an event until so much waits for it as fills an epoch:
 * recorded once more it stands behind all of them. What waits serves an allocation in
 * the same stream at once.
 *
 * The latest event of a stream alone is recorded once more, so those of one stream are
 * done in the order of the list, and while one is not the later ones are not asked for.
 * An allocation gives up after so many streams that are not done: half of them the
 * oldest, the others in turn.
 *
 * A free that cannot have an event goes the way of all others, into the open epoch.
 *
 * Called by frees, by allocations that find nothing and where memory is given back,
 * without a lock of the room but vmm_lock. The pool is pinned where blocks leave an
 * event: until they are in the heap, or USED, its context does not end.
 * Nothing here waits. Events are recorded and asked for under a lock of the pool's own:
 * fence_lock is held where the host waits for the context.
 */
#include "cache.h"

enum {
	BLOCKS_TO_PASS = 64,
	EVENTS_TO_PASS = 64,
	BUSY_MOST = 16, /* streams that one look finds not done */
	BUSY_OLDEST = BUSY_MOST / 2,
};

/* --- an event: event_lock is held ----------------------------------------------- */

static struct gcp_stream_event *event_create(struct gcp_pool *pool)
{
	struct gcp_descriptor_pool *descriptors = &pool->pools->event_descriptors;
	struct gcp_stream_event *event = gcp_descriptor_alloc(descriptors);

	if (!event)
		return NULL;
	*event = (struct gcp_stream_event){0};
	if (GCP_CALL(pool, fence_create, pool->ctx, &event->fence) == 0)
		return event;
	gcp_descriptor_free(descriptors, event);
	return NULL;
}

static struct gcp_stream_event *event_take(struct gcp_pool *pool)
{
	struct gcp_stream_event *event = TAILQ_FIRST(&pool->stream_events_spare);

	if (!event)
		return event_create(pool);
	TAILQ_REMOVE(&pool->stream_events_spare, event, link);
	return event;
}

/* The latest of this stream, if it may be recorded once more. */
static struct gcp_stream_event *event_shared(struct gcp_pool *pool, uint64_t stream)
{
	uint64_t most = gcp_window(pool).epoch_bytes;
	struct gcp_stream_event *event;
	int passed = 0;

	TAILQ_FOREACH_REVERSE(event, &pool->stream_events, gcp_stream_events, link)
	{
		if (event->stream == stream)
			return event->bytes < most ? event : NULL;
		if (++passed == EVENTS_TO_PASS)
			break;
	}
	return NULL;
}

/* False: the block waits for none. */
static bool event_record(struct gcp_pool *pool, struct gcp_block *block,
			 const struct gcp_free_order *call)
{
	struct gcp_stream_event *event = event_shared(pool, call->stream);
	bool fresh = !event;

	gcp_assert_held(GCP_RANK_EVENTS);
	if (fresh)
		event = event_take(pool);
	if (!event)
		return false;
	if (pool->pools->driver.fence_record_in(event->fence, call->handle) != 0) {
		if (fresh)
			TAILQ_INSERT_HEAD(&pool->stream_events_spare, event, link);
		return false;
	}
	if (fresh) {
		event->stream = call->stream;
		event->number = ++pool->stream_event_last;
		TAILQ_INSERT_TAIL(&pool->stream_events, event, link);
	}
	block->async = false;
	block->next = event->first;
	event->first = block;
	event->bytes += block->size;
	atomic_fetch_add_explicit(&pool->stream_event_bytes, block->size,
				  memory_order_relaxed);
	return true;
}

/* No block waits for it. */
static void event_spare(struct gcp_pool *pool, struct gcp_stream_event *event)
{
	TAILQ_REMOVE(&pool->stream_events, event, link);
	TAILQ_INSERT_HEAD(&pool->stream_events_spare, event, link);
}

static void event_subtract(struct gcp_pool *pool, struct gcp_stream_event *event,
			   uint64_t bytes)
{
	event->bytes -= bytes;
	atomic_fetch_sub_explicit(&pool->stream_event_bytes, bytes,
				  memory_order_relaxed);
}

/* Its blocks may be used by anything: as those of a completed epoch. */
static void event_done(struct gcp_pool *pool, struct gcp_stream_event *event,
		       struct gcp_chain *done)
{
	uint64_t completed = atomic_load(&pool->timeline.completed);
	struct gcp_block *block;

	while ((block = event->first)) {
		event->first = block->next;
		block->epoch = completed;
		block->next = NULL;
		gcp_chain_append(done, block, &block->next, 1);
	}
	event_subtract(pool, event, event->bytes);
	event_spare(pool, event);
}

/* --- free ------------------------------------------------------------------------- */

static void count_freed(struct gcp_pool *pool, uint64_t requested, uint64_t size,
			bool async)
{
	struct gcp_stats_delta counted;

	gcp_cache_take_stats(pool, &counted);
	if (async)
		gcp_stats_delta_async(&counted, -(int64_t)requested);
	gcp_stats_delta_free(&counted, requested, size);
	gcp_mutex_lock(&pool->lock);
	gcp_stats_merge(pool, &counted);
	gcp_mutex_unlock(&pool->lock);
}

bool gcp_stream_event_put(struct gcp_pool *pool, struct gcp_block *block,
			  const struct gcp_free_order *call)
{
	uint64_t requested = block->requested, size = block->size;
	bool async = block->async, put;

	if (!call->marks || !call->stream || !pool->pools->driver.fence_record_in)
		return false;
	block->epoch = gcp_timeline_stamp_behind_rmw(pool);
	gcp_mutex_lock(&pool->event_lock);
	put = !atomic_load(&pool->detaching) && event_record(pool, block, call);
	gcp_mutex_unlock(&pool->event_lock);
	if (!put)
		return false;
	count_freed(pool, requested, size, async);
	return true;
}

/* --- allocate --------------------------------------------------------------------- */

/* *left: blocks that the request may still pass. event_lock is held. */
static struct gcp_block *event_give(struct gcp_pool *pool,
				    struct gcp_stream_event *event, uint64_t size,
				    int *left)
{
	struct gcp_block **link = &event->first;

	for (; *link && *left > 0; --*left, link = &(*link)->next) {
		struct gcp_block *block = *link;

		if (!gcp_block_suits(block, size))
			continue;
		*link = block->next;
		event_subtract(pool, event, block->size);
		if (!event->first)
			event_spare(pool, event);
		return block;
	}
	return NULL;
}

static struct gcp_block *events_give(struct gcp_pool *pool, uint64_t stream,
				     uint64_t size)
{
	struct gcp_stream_event *event;
	struct gcp_block *block = NULL;
	int left = BLOCKS_TO_PASS;

	gcp_mutex_lock(&pool->event_lock);
	TAILQ_FOREACH_REVERSE(event, &pool->stream_events, gcp_stream_events, link)
	if (left == 0 ||
	    (event->stream == stream && (block = event_give(pool, event, size, &left))))
		break;
	gcp_mutex_unlock(&pool->event_lock);
	return block;
}

bool gcp_stream_event_take(struct gcp_request *request)
{
	struct gcp_pool *pool = request->heap->pool;

	if (!request->stream || gcp_stream_event_bytes(pool) == 0 ||
	    !gcp_pool_pin(pool))
		return false;
	request->block = events_give(pool, request->stream, request->size);
	if (request->block) {
		gcp_mutex_lock(&pool->lock);
		gcp_request_count_taken(request, true);
		gcp_block_set_state(request->block, GCP_BLOCK_USED);
		gcp_mutex_unlock(&pool->lock);
	}
	gcp_pool_unpin(pool);
	return request->block != NULL;
}

/* --- look ------------------------------------------------------------------------- */

/* Streams that one look has found not done. */
struct busy {
	uint64_t streams[BUSY_MOST];
	int count;
};

static bool is_busy(const struct busy *busy, uint64_t stream)
{
	for (int i = 0; i < busy->count; i++)
		if (busy->streams[i] == stream)
			return true;
	return false;
}

/* event_lock is held. */
static void events_ask(struct gcp_pool *pool, bool all, struct gcp_chain *done)
{
	struct gcp_stream_event *event = TAILQ_FIRST(&pool->stream_events), *next;
	uint64_t asked = all ? 0 : pool->stream_event_asked;
	struct busy busy = {.count = 0};

	pool->stream_event_asked = 0;
	for (; event; event = next) {
		next = TAILQ_NEXT(event, link);
		if (is_busy(&busy, event->stream) ||
		    (busy.count >= BUSY_OLDEST && event->number <= asked))
			continue;
		if (GCP_CALL(pool, fence_query, event->fence) == 0) {
			event_done(pool, event, done);
			continue;
		}
		if (busy.count < BUSY_MOST)
			busy.streams[busy.count++] = event->stream;
		if (!all && busy.count == BUSY_MOST) {
			pool->stream_event_asked = event->number;
			return;
		}
	}
}

static void look(struct gcp_pool *pool, bool all)
{
	struct gcp_chain done;

	if (gcp_stream_event_bytes(pool) == 0 || !gcp_pool_pin(pool))
		return;
	gcp_chain_init(&done);
	gcp_mutex_lock(&pool->event_lock);
	events_ask(pool, all, &done);
	gcp_mutex_unlock(&pool->event_lock);
	if (done.first) {
		gcp_mutex_lock(&pool->lock);
		gcp_heap_put_chain(&pool->common, &done);
		gcp_mutex_unlock(&pool->lock);
	}
	gcp_pool_unpin(pool);
}

void gcp_stream_event_look(struct gcp_pool *pool)
{
	look(pool, false);
}

void gcp_stream_event_look_all(struct gcp_pool *pool)
{
	look(pool, true);
}

/* --- the end of a context --------------------------------------------------------- */

void gcp_stream_events_reset(struct gcp_pool *pool)
{
	struct gcp_descriptor_pool *descriptors = &pool->pools->event_descriptors;
	struct gcp_stream_event *event;

	gcp_mutex_lock(&pool->event_lock);
	TAILQ_CONCAT(&pool->stream_events, &pool->stream_events_spare, link);
	while ((event = TAILQ_FIRST(&pool->stream_events))) {
		TAILQ_REMOVE(&pool->stream_events, event, link);
		pool->pools->driver.fence_discard(event->fence);
		gcp_descriptor_free(descriptors, event);
	}
	pool->stream_event_asked = 0;
	atomic_store(&pool->stream_event_bytes, 0);
	gcp_mutex_unlock(&pool->event_lock);
}
