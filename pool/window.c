/* SPDX-License-Identifier: MIT */
/*
 * window.c - how much freed memory may wait for the device before a barrier is
 * set, and how much of it shares one fence.
 *
 * Asked by cache.c, alloc.c and grow.c with any lock held; takes none, and calls no
 * driver function but the clock. The answers decide speed and memory, never safety.
 *
 * A barrier holds all streams back until the work of its epoch is done. With
 * several streams in use that costs the faster ones time, unless the epoch is so
 * old that all are past it: the window is wide. With one stream later work waits
 * for earlier work anyway: a barrier costs next to nothing, and there is no
 * reason to let memory grow. Streams are counted as the hooks report them
 * (gcp_pools_stream_used); what nobody reports counts as many.
 *
 * An epoch costs its fence and its barrier, half a microsecond of calls that the driver
 * takes one at a time, and many where threads stand in line for it. Threads that use up
 * epochs as fast as the driver closes them would spend all their time there: their
 * epochs are made larger. One thread that launches a kernel for each block pays one
 * part in a hundred.
 */
#include "pool_types.h"

enum {
	/* An epoch takes this part of the window: fewer fences against barriers
	 * that wait for younger work. */
	EPOCHS_PER_WINDOW = 2,
	/* One stream needs this part of the window that several do: as much as
	 * makes barriers rare beside the kernels between them. */
	WINDOWS_OF_ONE_STREAM = 4,
	/* A pool of mapped segments lets this part of its memory wait. */
	WINDOWS_OF_A_MAPPED_POOL = 64,
	/* And no more than this part of what the pool has reserved, but for so
	 * many bytes: what waits is memory that cannot be used. */
	ONE_STREAM_PART = 128,
	ONE_STREAM_LEAST = 8 << 20,
	/* With one stream the window is doubled when barriers come closer than
	 * the first of these, and halved when further apart than the second. */
	BARRIERS_CLOSE_NS = 40 * 1000,
	BARRIERS_FAR_NS = 200 * 1000,
	BARRIER_SCALE_MOST = 3,
	/* With several streams the window is doubled when epochs that were waited
	 * for cost, time and again, more than this part of the time in calls of the
	 * driver, and halved when they cost less than that part. */
	OVERHEAD_HIGH_PART = 16,
	OVERHEAD_LOW_PART = 48,
	OVERHEAD_HIGH_RUN = 4,
	/* Or when they follow each other faster than kernels could be launched in
	 * between, which takes 2 us for each: 28 blocks are the fewest of an epoch.
	 * For an epoch of the ordinary size. */
	EPOCHS_QUICK_NS = 24 * 1000,
	EPOCHS_SLOW_NS = 40 * 1000,
	CHURN_SCALE_MOST = 2,
	/* Where no barrier may be set this part of what is reserved may wait, then
	 * a free does. */
	MULTI_CONTEXT_PART = 4,
	/* Streams that no work went to while so many epochs were closed are not
	 * in use any more. */
	EPOCHS_OF_A_STREAM = 32,
};

/* --- streams -------------------------------------------------------------------- */

void gcp_pools_stream_used(struct gcp_pools *pools, uint64_t stream)
{
	uint64_t bit = 1ull << (stream * 0x9e3779b97f4a7c15ull >> 58);

	/* Written only when there is something new: many threads launch. */
	if (!(atomic_load_explicit(&pools->streams.now, memory_order_relaxed) & bit))
		atomic_fetch_or_explicit(&pools->streams.now, bit,
					 memory_order_relaxed);
}

void gcp_streams_epoch_closed(struct gcp_pools *pools)
{
	struct gcp_streams *streams = &pools->streams;

	if (++streams->epochs % EPOCHS_OF_A_STREAM != 0)
		return;
	uint64_t now = atomic_exchange_explicit(&streams->now, 0, memory_order_relaxed);
	atomic_store_explicit(&streams->before, now, memory_order_relaxed);
}

/* How many streams work went to of late, in the only context there is; 0: that is
 * not known, or there are several contexts. */
static uint32_t streams_count(struct gcp_pools *pools)
{
	uint64_t seen =
	    atomic_load_explicit(&pools->streams.now, memory_order_relaxed) |
	    atomic_load_explicit(&pools->streams.before, memory_order_relaxed);
	int live = 0;

	/* The streams of two contexts may have the same name. */
	for (struct gcp_pool *pool =
		 atomic_load_explicit(&pools->first, memory_order_acquire);
	     pool; pool = atomic_load_explicit(&pool->next, memory_order_acquire))
		live += atomic_load_explicit(&pool->live, memory_order_relaxed);
	return live == 1 ? (uint32_t)__builtin_popcountll(seen) : 0;
}

/* --- windows -------------------------------------------------------------------- */

struct gcp_window gcp_window(const struct gcp_pool *pool)
{
	const struct gcp_config *config = &pool->pools->config;
	struct gcp_window window = {
	    .bytes = config->window_bytes,
	    .blocks = config->window_blocks,
	    .epoch_bytes = config->window_bytes / EPOCHS_PER_WINDOW,
	    .epoch_blocks = config->epoch_blocks,
	};

	/* Who maps memory by hand wants little of it: a part of what he has. */
	uint64_t most = atomic_load_explicit(&pool->vmm_mapped, memory_order_relaxed) /
			WINDOWS_OF_A_MAPPED_POOL;
	if (most < GCP_CHUNK)
		most = GCP_CHUNK;
	if (pool->vmm && window.bytes > most) {
		window.bytes = most;
		window.epoch_bytes = most / EPOCHS_PER_WINDOW;
	}
	window.streams = streams_count(pool->pools);
	if (window.streams == 1) {
		uint64_t part =
		    atomic_load_explicit(&pool->reserved_hint, memory_order_relaxed) /
		    ONE_STREAM_PART;

		if (part < ONE_STREAM_LEAST)
			part = ONE_STREAM_LEAST;
		if (part > window.bytes / WINDOWS_OF_ONE_STREAM)
			part = window.bytes / WINDOWS_OF_ONE_STREAM;
		part <<=
		    atomic_load_explicit(&pool->barrier_scale, memory_order_relaxed);
		if (window.bytes > part)
			window.bytes = part;
		window.blocks = (window.blocks - 1) / WINDOWS_OF_ONE_STREAM + 1;
		window.epoch_bytes = window.bytes;
	} else if (!pool->vmm) {
		uint32_t churn_scale =
		    atomic_load_explicit(&pool->churn_scale, memory_order_relaxed);

		window.bytes <<= churn_scale;
		window.epoch_bytes <<= churn_scale;
	}
	return window;
}

void gcp_window_starved(struct gcp_pool *pool)
{
	if (!atomic_load_explicit(&pool->starved, memory_order_relaxed))
		atomic_store_explicit(&pool->starved, true, memory_order_relaxed);
}

/* The more threads, the more the driver's calls stand in their way. But an epoch of
 * which the caches cannot hold their shares would send blocks from thread to
 * thread, with cold cache lines; a thread alone leaves them for itself. */
static uint32_t churn_scale_most(const struct gcp_pool *pool)
{
	const struct gcp_config *config = &pool->pools->config;
	uint32_t threads =
	    atomic_load_explicit(&pool->cache_count, memory_order_relaxed);
	uint64_t share =
	    config->window_bytes / EPOCHS_PER_WINDOW / (threads + !threads);
	uint32_t most = 0;

	if (threads < 2)
		most = CHURN_SCALE_MOST;
	while (most < CHURN_SCALE_MOST && threads > 1 &&
	       share << (most + 1) <= config->thread_cache_bytes)
		most++;
	return config->window_bytes <= UINT64_MAX >> most ? most : 0;
}

/* What the driver's calls for fences have cost so far. */
static uint64_t overhead_ns(const struct gcp_pool *pool)
{
	static const enum gcp_driver_call calls[] = {
	    GCP_CALL_fence_record, GCP_CALL_fence_query, GCP_CALL_fence_order};
	uint64_t ns = 0;

	for (int i = 0; i < 3; i++)
		ns += atomic_load_explicit(&pool->calls[calls[i]][1],
					   memory_order_relaxed);
	return ns;
}

void gcp_window_epoch_closed(struct gcp_pool *pool)
{
	uint32_t churn_scale =
	    atomic_load_explicit(&pool->churn_scale, memory_order_relaxed);
	uint64_t now = pool->pools->driver.clock_ns(), cost = overhead_ns(pool);
	uint64_t since = now - pool->closed_ns, part = cost - pool->closed_overhead_ns;
	bool starved =
	    atomic_exchange_explicit(&pool->starved, false, memory_order_relaxed);

	pool->closed_ns = now;
	pool->closed_overhead_ns = cost;
	bool quick = since >> churn_scale < EPOCHS_QUICK_NS;
	/* Nobody stands in line with a thread alone. */
	bool costly =
	    part * OVERHEAD_HIGH_PART >= since &&
	    atomic_load_explicit(&pool->cache_count, memory_order_relaxed) > 1;
	if (!quick && !costly) {
		pool->costly_epochs = 0;
		if (part * OVERHEAD_LOW_PART < since && churn_scale > 0 &&
		    since >> churn_scale > EPOCHS_SLOW_NS)
			churn_scale--;
	} else if (starved && ++pool->costly_epochs >= OVERHEAD_HIGH_RUN) {
		uint64_t completed = atomic_load_explicit(&pool->timeline.completed,
							  memory_order_relaxed);

		/* A device that gets nothing done would only be waited for with
		 * more memory in hand. */
		pool->costly_epochs = 0;
		if (churn_scale < churn_scale_most(pool) &&
		    completed > pool->scaled_completed) {
			pool->scaled_completed = completed;
			churn_scale++;
		}
	}
	atomic_store_explicit(&pool->churn_scale, churn_scale, memory_order_relaxed);
}

/* With one stream, a loop that sets barriers in quick succession pays for them: its
 * window is widened, up to that of several streams, until they are far enough apart. */
void gcp_window_barrier_set(struct gcp_pool *pool)
{
	uint32_t barrier_scale =
	    atomic_load_explicit(&pool->barrier_scale, memory_order_relaxed);
	uint64_t now = pool->pools->driver.clock_ns();
	uint64_t since = now - pool->barrier_ns;

	pool->barrier_ns = now;
	if (since < BARRIERS_CLOSE_NS && barrier_scale < BARRIER_SCALE_MOST)
		barrier_scale++;
	else if (since > BARRIERS_FAR_NS && barrier_scale > 0)
		barrier_scale--;
	atomic_store_explicit(&pool->barrier_scale, barrier_scale,
			      memory_order_relaxed);
}

uint64_t gcp_window_multi_context(const struct gcp_pool *pool)
{
	uint64_t most = 2 * gcp_window(pool).bytes;
	uint64_t part =
	    atomic_load_explicit(&pool->reserved_hint, memory_order_relaxed) /
	    MULTI_CONTEXT_PART;

	return part > most ? part : most;
}

struct gcp_window gcp_window_of_thread(const struct gcp_pool *pool)
{
	struct gcp_window window = gcp_window(pool);
	uint32_t threads =
	    atomic_load_explicit(&pool->cache_count, memory_order_relaxed);

	if (threads > 1) {
		window.bytes /= threads;
		window.epoch_bytes /= threads;
	}
	return window;
}

uint32_t gcp_window_blocks(const struct gcp_window *window, uint64_t size)
{
	uint64_t blocks = window->bytes / size;

	if (blocks > window->blocks)
		return window->blocks;
	return blocks ? (uint32_t)blocks : 1;
}

/* --- when an epoch is full -----------------------------------------------------------
 */

int64_t gcp_timeline_room(struct gcp_pool *pool, int64_t bytes)
{
	struct gcp_window window = gcp_window(pool);
	int64_t room =
	    (int64_t)window.epoch_bytes -
	    atomic_load_explicit(&pool->timeline.filled, memory_order_relaxed);

	if (room < 0)
		room = 0;
	return bytes < room ? bytes : room;
}

bool gcp_timeline_fill(struct gcp_pool *pool, int64_t bytes)
{
	struct gcp_window window = gcp_window(pool);
	int64_t filled = atomic_fetch_add_explicit(&pool->timeline.filled, bytes,
						   memory_order_relaxed);

	return filled + bytes >= (int64_t)window.epoch_bytes;
}

/* With one stream in use a fence for each would keep one block in circulation, at the
 * price of a fence and a barrier at each turn: not too large ones take turns in twos,
 * for half of it. */
bool gcp_timeline_fill_large(struct gcp_pool *pool, uint64_t size)
{
	struct gcp_window window = gcp_window(pool);
	uint64_t full = window.epoch_bytes;
	uint64_t filled =
	    size + (uint64_t)atomic_fetch_add_explicit(
		       &pool->timeline.filled, (int64_t)size, memory_order_relaxed);

	if (window.streams == 1 && size <= 2 * window.bytes && full < 2 * size)
		full = 2 * size;
	return filled >= full;
}
