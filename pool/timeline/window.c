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
 * for earlier work anyway: a barrier costs next to nothing, and there is no
 * reason to let memory grow. Streams are counted as the hooks report them
 * (gcp_pools_stream_used); streams that are not reported count as many.
 *
 * Fences and barriers cost time: of the host, which calls the driver, where one call
 * waits for another; and of the device. When they take more than a sixteenth of the
 * time between two epochs, and threads wait for the epochs, the limits grow by a step:
 * fewer and larger epochs. When with the limits of the step before they would take less
 * than two thirds of that, they shrink again. A step doubles the limits; epochs of
 * mapped memory on one stream become up to four times as large.
 */
#include "../pool_types.h"

enum {
	/* An epoch takes this part of the window: fewer fences against barriers
	 * that wait for younger work. */
	EPOCHS_PER_WINDOW = 2,
	/* One stream needs this part of the window that several do: as much as
	 * makes barriers rare beside the kernels between them. */
	WINDOWS_OF_ONE_STREAM = 4,
	/* Of a pool of mapped segments no larger blocks stay in caches, unless its
	 * memory circulates, as where there are more threads than that. */
	CACHED_MOST_MAPPED = 64 << 10,
	THREADS_FEW = 2,
	/* A pool of mapped segments lets this part of its memory wait, and so much at
	 * least: where fences cost little. Each step of the limits doubles that. */
	WINDOWS_OF_A_MAPPED_POOL = 64,
	MAPPED_LEAST = GCP_CHUNK,
	/* Where it circulates it grows until an epoch has so many bytes, and is then
	 * gathered. */
	GATHERS_MOST = 8 << 20,
	/* With one stream no more than this part of what the pool has reserved
	 * waits, but for so many bytes: what waits is memory that cannot be used. */
	ONE_STREAM_PART = 128,
	ONE_STREAM_LEAST = 8 << 20,
	/* The limits grow when so many epochs in a row cost more than this part of the
	 * time, and shrink when one would cost less than that part with the smaller
	 * limits. */
	COST_TOO_MUCH = 16,
	COST_LITTLE = 24,
	COSTLY_RUN = 4,
	/* What an epoch and a barrier cost at least, in calls and on the device, and a
	 * block that a thread takes from the heap and not from its cache. */
	EPOCH_NS = 1500,
	BARRIER_NS = 1000,
	LOOK_NS = 250,
	/* So often at most: with one stream, up to the window of several; with
	 * several, beyond what the options say. */
	SCALE_MOST_ONE_STREAM = 3,
	SCALE_MOST = 2,
	/* Where no barrier may be set this part of what is reserved may wait, then
	 * a free does. */
	MULTI_CONTEXT_PART = 4,
	/* What depots hold: this part of the window, or of what is reserved. */
	DEPOT_WINDOW_PART = 2,
	DEPOT_RESERVED_PART = 8,
	/* Streams that no work went to while so many epochs were closed are not
	 * in use any more. */
	EPOCHS_OF_A_STREAM = 32,
};

#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

/* --- the limits ----------------------------------------------------------------- */

/* How many streams work went to of late, in the only context there is; 0: that is
 * not known, or there are several contexts, whose streams may have the same name. */
static uint32_t streams_count(struct gcp_pools *pools)
{
	uint64_t seen = LOAD(pools->streams.now) | LOAD(pools->streams.before);
	struct gcp_pool *pool =
	    atomic_load_explicit(&pools->first, memory_order_acquire);
	int live = 0;

	for (; pool; pool = atomic_load_explicit(&pool->next, memory_order_acquire))
		live += LOAD(pool->live);
	return live == 1 ? (uint32_t)__builtin_popcountll(seen) : 0;
}

/* A training program allocates in two. */
bool gcp_window_has_few_threads(const struct gcp_pool *pool)
{
	return LOAD(pool->cache_count) <= THREADS_FEW;
}

/* Whether little memory is to wait: it is mapped, threads need not wait for each other,
 * and streams do not run beside each other. */
static bool is_narrow(const struct gcp_pool *pool, uint32_t streams)
{
	return pool->vmm && gcp_window_has_few_threads(pool) && streams <= 1;
}

bool gcp_window_is_narrow(const struct gcp_pool *pool)
{
	return is_narrow(pool, LOAD(pool->limits.streams));
}

bool gcp_window_circulates(const struct gcp_pool *pool)
{
	return !gcp_window_is_narrow(pool) || LOAD(pool->limits.scale) > 0;
}

uint64_t gcp_window_gathers_at(const struct gcp_pool *pool)
{
	uint64_t bytes = LOAD(pool->limits.epoch_bytes);

	return bytes < GATHERS_MOST ? bytes : GATHERS_MOST;
}

/* The window, for so many streams. With one stream little mapped memory need wait: it
 * can serve any size, so a part of it is enough; but many threads would then stand in
 * line to close epochs. */
static uint64_t bytes_of(const struct gcp_pool *pool, uint32_t streams, uint32_t scale)
{
	uint64_t bytes = pool->pools->config.window_bytes;
	uint64_t part = LOAD(pool->vmm_mapped) / WINDOWS_OF_A_MAPPED_POOL;
	uint64_t least = (uint64_t)MAPPED_LEAST << scale;

	if (part < least)
		part = least;
	return is_narrow(pool, streams) && streams == 1 && bytes > part ? part : bytes;
}

static uint64_t bytes_of_one(const struct gcp_pool *pool, uint64_t many)
{
	uint64_t part = LOAD(pool->reserved_hint) / ONE_STREAM_PART;

	if (part < ONE_STREAM_LEAST)
		part = ONE_STREAM_LEAST;
	return part < many / WINDOWS_OF_ONE_STREAM ? part
						   : many / WINDOWS_OF_ONE_STREAM;
}

/* The more threads, the more the driver's calls stand in their way. But an epoch of
 * which the caches cannot hold their shares would send blocks from thread to
 * thread, with cold cache lines; a thread alone leaves them for itself. */
static uint32_t scale_most(const struct gcp_pool *pool, uint32_t streams)
{
	const struct gcp_config *config = &pool->pools->config;
	uint32_t threads = LOAD(pool->cache_count), most = 0;
	uint64_t share =
	    config->window_bytes / EPOCHS_PER_WINDOW / (threads + !threads);

	if (streams == 1)
		return SCALE_MOST_ONE_STREAM;
	while (most < SCALE_MOST &&
	       (threads < 2 || share << (most + 1) <= config->thread_cache_bytes))
		most++;
	return config->window_bytes <= UINT64_MAX >> most ? most : 0;
}

/* Half the window; where the limits are scaled up, all of it or a part of what is
 * reserved: threads pass on what they free all the time. */
static uint64_t depot_bytes(const struct gcp_pool *pool, uint64_t window,
			    uint32_t scale)
{
	uint64_t part = LOAD(pool->reserved_hint) / DEPOT_RESERVED_PART;

	if (scale == 0)
		return window / DEPOT_WINDOW_PART;
	return window > part ? window : part;
}

/* Blocks that threads keep lie scattered, and each keeps a handle where it is. */
static uint32_t cached_classes(const struct gcp_pool *pool)
{
	const struct gcp_classes *classes = &pool->pools->classes;

	if (gcp_window_circulates(pool) || classes->largest <= CACHED_MOST_MAPPED)
		return classes->count;
	return gcp_class_of(classes, CACHED_MOST_MAPPED) + 1u;
}

/* How much may wait. */
static uint64_t waiting_most(const struct gcp_pool *pool, uint32_t streams,
			     uint32_t scale)
{
	uint64_t many = bytes_of(pool, streams, scale);
	uint64_t bytes = (streams == 1 ? bytes_of_one(pool, many) : many) << scale;

	if (bytes > many && (streams == 1 || is_narrow(pool, streams)))
		return many;
	return bytes;
}

static void limits_update(struct gcp_pool *pool)
{
	struct gcp_limits *limits = &pool->limits;
	uint32_t blocks = pool->pools->config.window_blocks, parts = EPOCHS_PER_WINDOW;
	uint32_t streams = streams_count(pool->pools);
	uint32_t scale = LOAD(limits->scale), most = scale_most(pool, streams);
	uint64_t bytes;

	if (scale > most)
		scale = most;
	STORE(limits->scale, scale);
	STORE(limits->streams, streams);
	bytes = waiting_most(pool, streams, scale);
	if (streams == 1) {
		blocks = (blocks - 1) / WINDOWS_OF_ONE_STREAM + 1;
		parts = 1;
	}
	STORE(limits->bytes, bytes);
	STORE(limits->epoch_bytes, bytes / parts);
	STORE(limits->blocks, blocks);
	STORE(limits->cached, cached_classes(pool));
	STORE(limits->depot_bytes, depot_bytes(pool, bytes, scale));
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
	if (LOAD(pools->streams.now) & bit)
		return;
	seen = atomic_fetch_or_explicit(&pools->streams.now, bit, memory_order_relaxed);
	if (!((seen | LOAD(pools->streams.before)) & bit))
		gcp_windows_update(pools);
}

/* Streams that are not used any more drop out of the count in time. fence_lock is held.
 */
static void streams_age(struct gcp_pools *pools)
{
	struct gcp_streams *streams = &pools->streams;

	gcp_assert_held(GCP_RANK_FENCE);
	if (++streams->epochs % EPOCHS_OF_A_STREAM != 0)
		return;
	uint64_t now = atomic_exchange_explicit(&streams->now, 0, memory_order_relaxed);
	STORE(streams->before, now);
}

/* --- what fences cost ------------------------------------------------------------ */

void gcp_window_starved(struct gcp_pool *pool)
{
	if (!LOAD(pool->pressure.starved))
		STORE(pool->pressure.starved, true);
}

void gcp_window_looked(struct gcp_pool *pool)
{
	gcp_window_starved(pool);
	STORE(pool->pressure.looks, LOAD(pool->pressure.looks) + 1);
}

void gcp_window_barrier_set(struct gcp_pool *pool)
{
	gcp_assert_held(GCP_RANK_FENCE);
	pool->pressure.barriers++;
	if (LOAD(pool->limits.streams) == 1)
		gcp_window_starved(pool);
}

/* What the driver's calls for fences have cost so far. */
static uint64_t driver_ns(const struct gcp_pool *pool)
{
	return LOAD(pool->calls[GCP_CALL_fence_record][1]) +
	       LOAD(pool->calls[GCP_CALL_fence_query][1]) +
	       LOAD(pool->calls[GCP_CALL_fence_order][1]);
}

/* What fences and barriers have cost since the latest close. No thread stands in line
 * with a thread alone: how long its calls last does not count. */
static uint64_t cost_since(struct gcp_pool *pool)
{
	struct gcp_pressure *pressure = &pool->pressure;
	uint64_t total = driver_ns(pool), measured = total - pressure->driver_ns;
	uint64_t least = EPOCH_NS + (uint64_t)pressure->barriers * BARRIER_NS +
			 (uint64_t)LOAD(pressure->looks) * LOOK_NS;

	pressure->driver_ns = total;
	pressure->barriers = 0;
	STORE(pressure->looks, 0);
	return LOAD(pool->cache_count) > 1 && measured > least ? measured : least;
}

/* Whether the limits may be doubled. Beyond what the options say only for a device
 * that gets things done: for another one would only be waited with more memory in
 * hand. */
static bool may_grow(struct gcp_pool *pool, uint32_t scale)
{
	uint32_t streams = LOAD(pool->limits.streams);
	uint64_t completed = LOAD(pool->timeline.completed);
	bool progress = completed > pool->pressure.had_completed;

	if (scale >= scale_most(pool, streams) || (streams != 1 && !progress))
		return false;
	pool->pressure.had_completed = completed;
	return true;
}

/* Whether an epoch that cost so much of that time would cost little with the limits of
 * one step less: the smaller epochs are, the more of them. */
static bool may_shrink(const struct gcp_pool *pool, uint32_t scale, uint64_t cost,
		       uint64_t since)
{
	uint32_t streams = LOAD(pool->limits.streams);

	return scale > 0 &&
	       (double)cost * COST_LITTLE * (double)waiting_most(pool, streams, scale) <
		   (double)since * (double)waiting_most(pool, streams, scale - 1);
}

void gcp_window_epoch_closed(struct gcp_pool *pool)
{
	struct gcp_pressure *pressure = &pool->pressure;
	uint32_t scale = LOAD(pool->limits.scale);
	uint64_t now = pool->pools->driver.clock_ns(), cost = cost_since(pool);
	uint64_t since = now - pressure->closed_at_ns;
	bool starved = LOAD(pressure->starved);

	gcp_assert_held(GCP_RANK_FENCE);
	pressure->closed_at_ns = now;
	STORE(pressure->starved, false);
	if (cost * COST_TOO_MUCH < since) {
		pressure->costly_epochs = 0;
		if (may_shrink(pool, scale, cost, since))
			scale--;
	} else if (starved && ++pressure->costly_epochs >= COSTLY_RUN) {
		pressure->costly_epochs = 0;
		if (may_grow(pool, scale))
			scale++;
	}
	STORE(pool->limits.scale, scale);
	streams_age(pool->pools);
	limits_update(pool);
}

/* --- asking ---------------------------------------------------------------------- */

uint32_t gcp_window_scale(const struct gcp_pool *pool)
{
	return LOAD(pool->limits.scale);
}

uint64_t gcp_window_depot_bytes(const struct gcp_pool *pool)
{
	return LOAD(pool->limits.depot_bytes);
}

struct gcp_window gcp_window(const struct gcp_pool *pool)
{
	return (struct gcp_window){
	    .bytes = LOAD(pool->limits.bytes),
	    .blocks = LOAD(pool->limits.blocks),
	    .epoch_bytes = LOAD(pool->limits.epoch_bytes),
	    .epoch_blocks = pool->pools->config.epoch_blocks,
	    .streams = LOAD(pool->limits.streams),
	};
}

struct gcp_window gcp_window_of_thread(const struct gcp_pool *pool)
{
	struct gcp_window window = gcp_window(pool);
	uint32_t threads = LOAD(pool->cache_count);

	if (threads > 1) {
		window.bytes /= threads;
		window.epoch_bytes /= threads;
	}
	return window;
}

uint64_t gcp_window_multi_context(const struct gcp_pool *pool)
{
	uint64_t most = 2 * LOAD(pool->limits.bytes);
	uint64_t part = LOAD(pool->reserved_hint) / MULTI_CONTEXT_PART;

	return part > most ? part : most;
}

uint32_t gcp_window_blocks(const struct gcp_window *window, uint64_t size)
{
	uint64_t blocks = window->bytes / size;

	if (blocks > window->blocks)
		return window->blocks;
	return blocks ? (uint32_t)blocks : 1;
}

/* --- when an epoch is full ------------------------------------------------------- */

int64_t gcp_timeline_room(struct gcp_pool *pool, int64_t bytes)
{
	int64_t room =
	    (int64_t)LOAD(pool->limits.epoch_bytes) - LOAD(pool->timeline.filled);

	if (room < 0)
		room = 0;
	return bytes < room ? bytes : room;
}

/* With one stream in use an epoch takes two blocks at least, not too large ones: a
 * fence for each would keep one block in circulation, at the price of a fence and a
 * barrier at each turn. */
bool gcp_timeline_fill(struct gcp_pool *pool, int64_t bytes, int64_t block)
{
	int64_t full = (int64_t)LOAD(pool->limits.epoch_bytes);
	int64_t filled = atomic_fetch_add_explicit(&pool->timeline.filled, bytes,
						   memory_order_relaxed);

	if (LOAD(pool->limits.streams) == 1 && block <= 2 * full && full < 2 * block)
		full = 2 * block;
	return filled + bytes >= full;
}
