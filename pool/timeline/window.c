/* SPDX-License-Identifier: MIT */
/*
 * window.c - how much freed memory may wait for the device before a barrier is
 * set, and how much of it shares one fence.
 *
 * Asked by cache.c, alloc.c, miss.c and others with any lock held; takes none, and
 * calls no driver function but the clock. The answers decide speed and memory, never
 * safety.
 *
 * A barrier holds all streams back until the work of its epoch is done. With
 * several streams in use that costs the faster ones time, unless the epoch is so
 * old that all are past it: the window is wide. With one stream later work waits
 * for earlier work anyway: a barrier costs next to nothing, and a small part of the
 * pool is enough. Streams are counted as the hooks report them
 * (gcp_pools_stream_used); streams that are not reported, or of several contexts, count
 * as many.
 *
 * ONE CONTROLLER. When several epochs in a row are closed shortly after each other, and
 * threads wait for them, the limits double; when an epoch is closed long after the one
 * before, they halve: a fence and a barrier cost the host a microsecond or so.
 */
#include "timeline.h"

enum {
	/* With several streams an epoch takes this part of the window: fewer fences
	 * against barriers that wait for younger work. */
	EPOCHS_PER_WINDOW = 2,
	/* With one stream this part of what the pool has reserved waits, and so much
	 * at least, doubled with each step of the limits, and of few threads so much
	 * at most. */
	ONE_STREAM_PART = 256,
	ONE_STREAM_LEAST = 512 << 10,
	ONE_STREAM_MOST = 16 << 20,
	THREADS_FEW = 2,
	/* So many epochs in a row, each closed so shortly after the one before: the
	 * limits double. One that is closed four times as long after it: they halve. So
	 * often at most. */
	RUN = 4,
	SHORT_NS = 40 * 1000,
	SCALE_MOST_ONE_STREAM = 7,
	SCALE_MOST = 2,
	/* Streams that no work went to while so many epochs were closed are not
	 * in use any more. */
	EPOCHS_OF_A_STREAM = 32,
};

/* --- decay ---------------------------------------------------------------------- */

bool gcp_turn_is_over(const struct gcp_pools *pools,
		      const struct gcp_maintenance *maintenance, uint64_t now)
{
	uint64_t turn_ns = pools->config.decay_ms * UINT64_C(1000000);
	uint64_t turned = GCP_LOAD(maintenance->turned_ns);

	return turn_ns > 0 &&
	       (turned == 0 || (int64_t)(now - turned) >= (int64_t)turn_ns);
}

/* --- the limits ----------------------------------------------------------------- */

/* How many streams work went to of late, in the only context there is; 0: that is
 * not known, or there are several contexts, whose streams may have the same name. */
static uint32_t streams_count(struct gcp_pools *pools)
{
	uint64_t seen = GCP_LOAD(pools->streams.now) | GCP_LOAD(pools->streams.before);
	struct gcp_pool *pool =
	    atomic_load_explicit(&pools->first, memory_order_acquire);
	int live = 0;

	for (; pool; pool = atomic_load_explicit(&pool->next, memory_order_acquire))
		live += GCP_LOAD(pool->live);
	return live == 1 ? (uint32_t)__builtin_popcountll(seen) : 0;
}

/* A training program allocates in two. */
bool gcp_window_has_few_threads(const struct gcp_pool *pool)
{
	return GCP_LOAD(pool->cache_count) <= THREADS_FEW;
}

/* How much may wait. */
static uint64_t window_bytes(const struct gcp_pool *pool, uint32_t streams,
			     uint32_t scale)
{
	const struct gcp_config *config = &pool->pools->config;
	uint64_t most = config->blocking_free ? 0 : config->window_bytes;
	uint64_t bytes = GCP_LOAD(pool->reserved_hint) / ONE_STREAM_PART;

	if (most > pool->cache_limit) /* which is kept when an epoch is full */
		most = pool->cache_limit;
	if (streams != 1)
		return most <= UINT64_MAX >> scale ? most << scale : most;
	if (bytes < ONE_STREAM_LEAST)
		bytes = ONE_STREAM_LEAST;
	if (gcp_window_has_few_threads(pool) && most > ONE_STREAM_MOST)
		most = ONE_STREAM_MOST;
	assert(bytes <= UINT64_MAX >> scale);
	return bytes << scale < most ? bytes << scale : most;
}

static void limits_update(struct gcp_pool *pool)
{
	struct gcp_limits *limits = &pool->limits;
	uint32_t streams = streams_count(pool->pools), scale = GCP_LOAD(limits->scale);
	uint32_t most = streams == 1 ? SCALE_MOST_ONE_STREAM : SCALE_MOST;

	scale = scale < most ? scale : most;
	GCP_STORE(limits->scale, scale);
	GCP_STORE(limits->streams, streams);
	uint64_t bytes = window_bytes(pool, streams, scale);
	GCP_STORE(limits->bytes, bytes);
	assert(scale <= most);
	GCP_STORE(limits->epoch_bytes,
		  streams == 1 ? bytes : bytes / EPOCHS_PER_WINDOW);
}

void gcp_windows_update(struct gcp_pools *pools)
{
	struct gcp_pool *pool =
	    atomic_load_explicit(&pools->first, memory_order_acquire);

	for (; pool; pool = atomic_load_explicit(&pool->next, memory_order_acquire))
		limits_update(pool);
}

/* --- streams -------------------------------------------------------------------- */

const _Atomic uint64_t *gcp_pools_streams_seen(const struct gcp_pools *pools)
{
	return &pools->streams.now;
}

void gcp_pools_stream_used(struct gcp_pools *pools, uint64_t stream)
{
	uint64_t bit = 1ull << gcp_stream_bit(stream), seen;

	/* Written only when there is something new: many threads launch. */
	if (GCP_LOAD(pools->streams.now) & bit)
		return;
	seen = atomic_fetch_or_explicit(&pools->streams.now, bit, memory_order_relaxed);
	if (!((seen | GCP_LOAD(pools->streams.before)) & bit))
		gcp_windows_update(pools);
}

/* --- the controller --------------------------------------------------------------- */

void gcp_window_starved(struct gcp_pool *pool)
{
	if (!GCP_LOAD(pool->pressure.starved))
		GCP_STORE(pool->pressure.starved, true);
}

/* Beyond what the options say only for a device that gets things done: for another one
 * would only be waited with more memory in hand. */
static bool may_grow(struct gcp_pool *pool)
{
	gcp_assert_held(GCP_RANK_FENCE);
	uint64_t completed = GCP_LOAD(pool->timeline.completed);
	bool progress = completed > pool->pressure.had_completed;

	if (GCP_LOAD(pool->limits.streams) != 1 && !progress)
		return false;
	pool->pressure.had_completed = completed;
	return true;
}

void gcp_window_epoch_closed(struct gcp_pool *pool)
{
	struct gcp_pressure *pressure = &pool->pressure;
	struct gcp_streams *streams = &pool->pools->streams;
	uint32_t scale = GCP_LOAD(pool->limits.scale);
	uint64_t now = pool->pools->driver.clock_ns();
	uint64_t since = now - pressure->closed_at_ns;
	bool starved = GCP_LOAD(pressure->starved);

	gcp_assert_held(GCP_RANK_FENCE);
	pressure->closed_at_ns = now;
	GCP_STORE(pressure->starved, false);
	if (since >= SHORT_NS) {
		pressure->short_epochs = 0;
		scale -= since > 4 * SHORT_NS && scale > 0;
	} else if (starved && ++pressure->short_epochs >= RUN) {
		pressure->short_epochs = 0;
		scale += may_grow(pool);
	}
	GCP_STORE(pool->limits.scale, scale);
	/* Streams that are not used any more drop out of the count in time. */
	if (++streams->epochs % EPOCHS_OF_A_STREAM == 0)
		GCP_STORE(streams->before, atomic_exchange_explicit(
					       &streams->now, 0, memory_order_relaxed));
	limits_update(pool);
}

/* --- asking ---------------------------------------------------------------------- */

uint64_t gcp_limit_share(const struct gcp_pool *pool, uint64_t bytes)
{
	uint32_t threads = GCP_LOAD(pool->cache_count);

	return threads > 1 ? bytes / threads : bytes;
}

uint32_t gcp_window_blocks(const struct gcp_pool *pool, uint64_t size)
{
	uint64_t blocks = gcp_limit_share(pool, GCP_LOAD(pool->limits.bytes)) / size;
	uint32_t most = pool->pools->config.window_blocks;

	assert(most > 0); /* none would be given to the heap for ever */
	if (blocks > most)
		return most;
	return blocks ? (uint32_t)blocks : 1;
}

/* --- when an epoch is full ------------------------------------------------------- */

int64_t gcp_timeline_room(struct gcp_pool *pool, int64_t bytes)
{
	int64_t room = (int64_t)GCP_LOAD(pool->limits.epoch_bytes) -
		       GCP_LOAD(pool->timeline.filled);

	if (room < 0)
		room = 0;
	return bytes < room ? bytes : room;
}

/* With one stream in use an epoch takes two blocks at least, not too large ones: a
 * fence for each would keep one block in circulation, at the price of a fence and a
 * barrier at each turn. */
bool gcp_timeline_fill(struct gcp_pool *pool, int64_t bytes, int64_t block)
{
	int64_t full = (int64_t)GCP_LOAD(pool->limits.epoch_bytes);
	int64_t filled = atomic_fetch_add_explicit(&pool->timeline.filled, bytes,
						   memory_order_relaxed);

	if (GCP_LOAD(pool->limits.streams) == 1 && block <= 2 * full &&
	    full < 2 * block)
		full = 2 * block;
	return filled + bytes >= full;
}
