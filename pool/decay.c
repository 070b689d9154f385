/* SPDX-License-Identifier: MIT */
/*
 * decay.c - gives memory back that nothing has used for a while (config.decay_ms).
 *
 * Called by free_end in alloc.c when a free has closed an epoch, with no lock held.
 * There is no thread that would do it: a program that calls nothing keeps what it has.
 *
 * Time is counted in turns, of which GCP_DECAY_TURNS make up that while. A segment that
 * falls idle notes the turn; when so many whole turns have passed since, it goes. So
 * whatever a program uses again within that while stays, every segment of it, and a
 * program that repeats itself within it pays a look at the clock for each epoch.
 * Segments that are mapped by hand give chunks from anywhere: of those, what was idle
 * at all times of these turns.
 *
 * The driver's free waits for the device. Plain CUDA would have waited in this call as
 * well, but a program that keeps its device busy should not pay for it: its memory goes
 * when a free finds all work done, or else when twice the time is over; that is at most
 * one wait in the while. Nothing is given back while a stream captures.
 */
#include "cache.h"
#include "vmm.h"

enum { NS_PER_MS = 1000 * 1000 };

/* Who began the turn may have looked at the clock later than we did. */
static bool turn_is_over(uint64_t now, uint64_t turned, uint64_t turn_ns)
{
	return turned == 0 || (int64_t)(now - turned) >= (int64_t)turn_ns;
}

/* Begins a turn if the time has come. pool->lock is held. */
static bool turn_begin(struct gcp_pool *pool, uint64_t now, uint64_t turn_ns)
{
	struct gcp_decay *decay = &pool->decay;
	uint64_t turned = atomic_load_explicit(&decay->turned_ns, memory_order_relaxed);

	if (!turn_is_over(now, turned, turn_ns))
		return false; /* another thread was faster */
	atomic_store_explicit(&decay->turned_ns, now, memory_order_relaxed);
	/* Never more than one, however long nobody looked: what was used since then
	 * carries the number of this turn. */
	decay->lows[decay->turn++ % GCP_DECAY_TURNS] = decay->low_bytes;
	decay->low_bytes = pool->unused_bytes;
	return decay->turn > GCP_DECAY_TURNS;
}

/* Whether a segment has been idle for `turns` whole turns. pool->lock is held. */
static bool any_is_overdue(struct gcp_pool *pool, uint64_t turns)
{
	const struct gcp_segment *segment;

	TAILQ_FOREACH (segment, &pool->common.segments, link)
		if (gcp_segment_is_overdue(segment, turns))
			return true;
	return false;
}

/* Whole chunks that were idle all the time. pool->lock is held. */
static uint64_t chunks_overdue(const struct gcp_pool *pool)
{
	uint64_t bytes = pool->unused_bytes;

	for (int i = 0; i < GCP_DECAY_TURNS; i++)
		if (pool->decay.lows[i] < bytes)
			bytes = pool->decay.lows[i];
	return pool->vmm ? bytes / GCP_CHUNK * GCP_CHUNK : 0;
}

static bool all_is_done(const struct gcp_pool *pool)
{
	return atomic_load(&pool->timeline.completed) + 1 >=
	       atomic_load(&pool->timeline.open);
}

static int segments_decay(struct gcp_pool *pool, bool all)
{
	struct gcp_segment_list list = TAILQ_HEAD_INITIALIZER(list);
	int result = gcp_timeline_poll_all(pool);

	if (result != 0 || (!all && !all_is_done(pool)))
		return result;
	/* The program is not as it was: what threads keep may be left over, too. It
	 * goes when it has been idle as long. */
	gcp_caches_flush(pool);
	pthread_mutex_lock(&pool->lock);
	gcp_heap_unlink_overdue(&pool->common, GCP_DECAY_TURNS, &list);
	gcp_slab_coalesce_unused(&pool->common);
	gcp_heap_advance(&pool->common);
	pthread_mutex_unlock(&pool->lock);
	gcp_segments_release(pool, &list, "nothing used it for a while");
	return 0;
}

int gcp_pool_decay(struct gcp_pool *pool)
{
	uint64_t turn_ns =
	    (uint64_t)pool->pools->config.decay_ms * NS_PER_MS / GCP_DECAY_TURNS;
	bool due = false, long_due = false;
	uint64_t now, turned, chunks = 0;
	int result = 0;

	if (turn_ns == 0 ||
	    atomic_load_explicit(&pool->pools->holds, memory_order_relaxed) > 0)
		return 0;
	now = pool->pools->driver.clock_ns();
	turned = atomic_load_explicit(&pool->decay.turned_ns, memory_order_relaxed);
	if (!turn_is_over(now, turned, turn_ns))
		return 0;
	pthread_mutex_lock(&pool->lock);
	/* A thread that lives from its own cache does not do that. */
	gcp_heap_advance(&pool->common);
	if (turn_begin(pool, now, turn_ns)) {
		due = any_is_overdue(pool, GCP_DECAY_TURNS);
		long_due = any_is_overdue(pool, 2 * GCP_DECAY_TURNS);
		chunks = chunks_overdue(pool);
	}
	pthread_mutex_unlock(&pool->lock);
	if (due)
		result = segments_decay(pool, long_due);
	if (result == 0 && chunks > 0)
		(void)gcp_vmm_release(pool, chunks);
	return result;
}

void gcp_decay_reset(struct gcp_pool *pool)
{
	pool->decay.low_bytes = 0;
	memset(pool->decay.lows, 0, sizeof(pool->decay.lows));
}
