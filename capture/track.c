/* SPDX-License-Identifier: MIT */
/*
 * track.c - the records of graphs that share memory, and of the lanes that they are in:
 * what share.c and launch.c find there, and what is known of the launches.
 *
 * Whether a launch is completed is asked of its stream, as long as that cannot have
 * gone since, and of the fences of its context; while a capture is under way of the
 * fences alone that are there already. What is not known is not completed.
 */
#include "holders.h"
#include "share.h"

/* --- records ------------------------------------------------------------------ */

struct gcp_share *gcp_share_of_exec(struct gcp_tracker *tracker, const void *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_holder *holder = gcp_holder_find(tracker, exec, true);

	return holder ? holder->share : NULL;
}

void gcp_share_exec_add(struct gcp_tracker *tracker, struct gcp_share *share,
			struct gcp_holder *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	gcp_launches_reset(tracker);
	assert(exec->is_exec && exec->handle && !exec->share);
	LIST_INSERT_HEAD(&share->execs, exec, share_link);
	exec->share = share;
}

/* No launch follows its launches any more: the handle may be given out again. */
void gcp_share_exec_left(struct gcp_tracker *tracker, struct gcp_holder *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	gcp_launches_reset(tracker);
	assert(exec->share);
	if (exec->share->last_exec == exec->handle)
		exec->share->last_exec = NULL;
	LIST_REMOVE(exec, share_link);
	exec->share = NULL;
}

struct gcp_share *gcp_share_by_id(struct gcp_tracker *tracker, uint64_t id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_share *share;

	TAILQ_FOREACH (share, &tracker->shares, link)
		if (share->id == id)
			return share;
	return NULL;
}

/* --- lanes -------------------------------------------------------------------- */

struct gcp_track *gcp_track_create(struct gcp_tracker *tracker, struct gcp_pool *pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	int saved = errno;
	struct gcp_track *track = calloc(1, sizeof(*track));

	errno = saved;
	if (track && gcp_lane_create(pool, &track->lane) != 0) {
		free(track);
		track = NULL;
	}
	if (!track)
		return NULL;
	track->id = ++tracker->last_track;
	track->pool = pool;
	TAILQ_INSERT_TAIL(&tracker->tracks, track, link);
	return track;
}

void gcp_share_move(struct gcp_tracker *tracker, struct gcp_share *share,
		    struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	gcp_launches_reset(tracker);
	assert(!share->track || share->track->members > 0);
	assert(!track || track->pool == share->pool);
	if (share->track)
		share->track->members--;
	/* What is recorded for the lane is not of this graph's launches any more. */
	if (share->track && share->track != track && share->track->owner == share)
		share->track->owner = NULL;
	share->track = track;
	if (track)
		track->members++;
}

/* Nothing runs on a lane that no graph is in any more: a graph leaves it only when its
 * launches are over. */
void gcp_tracks_tidy(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track, *next;

	for (track = TAILQ_FIRST(&tracker->tracks); track; track = next) {
		next = TAILQ_NEXT(track, link);
		if (track->members > 0 || track->in_progress > 0)
			continue;
		assert(!track->owner);
		TAILQ_REMOVE(&tracker->tracks, track, link);
		gcp_lane_destroy(track->lane);
		free(track);
	}
}

/* --- what is completed -------------------------------------------------------- */

uint64_t gcp_stream_default_id(const void *stream)
{
	const uint64_t mark = UINT64_C(1) << 63;

	return mark |
	       ((uintptr_t)stream == GCP_STREAM_PER_THREAD ? gcp_thread_number() : 0);
}

/* Whether the stream may be given to calls: no capture is under way, and its handle
 * means it for this thread too. (Whether it has gone is asked with the contexts held.)
 */
bool gcp_last_is_addressable(struct gcp_tracker *tracker, const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return last->stream_id != 0 && !gcp_streams_may_capture(tracker) &&
	       (!gcp_stream_is_default(last->stream) ||
		last->stream_id == gcp_stream_default_id(last->stream));
}

static bool stream_is_done(struct gcp_tracker *tracker, struct gcp_pool *pool,
			   const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool done = false;

	/* No capture begins meanwhile: it would be lost. That comes first: fences are
	 * asked for with the contexts held. */
	if (!gcp_last_is_addressable(tracker, last) ||
	    !gcp_pools_captures_hold(tracker->pools))
		return false;
	if (gcp_streams_hold(tracker)) {
		done = last->gone == gcp_tracker_streams_gone(tracker) &&
		       tracker->driver.stream_query(gcp_pool_context(pool),
						    last->stream) == 0;
		gcp_streams_release(tracker);
	}
	gcp_pools_captures_release(tracker->pools);
	return done;
}

static bool event_is_there(const struct gcp_share *share)
{
	return share->event && share->life == gcp_pool_life(share->pool);
}

void *gcp_share_event_made(const struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return event_is_there(share) ? share->event : NULL;
}

void *gcp_share_event(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *ctx = gcp_pool_context(share->pool);

	if (event_is_there(share))
		return share->event;
	share->marked = false;
	share->life = gcp_pool_life(share->pool);
	if (tracker->driver.event_create(ctx, &share->event) != 0)
		share->event = NULL;
	return share->event;
}

/* The caller holds the context. True: it is the graph's from now on. */
static bool event_take(struct gcp_tracker *tracker, uint64_t share_id, void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_share *share = gcp_share_by_id(tracker, share_id);

	if (!share || event_is_there(share))
		return false;
	share->marked = false;
	share->life = gcp_pool_life(share->pool);
	share->event = event;
	return true;
}

void gcp_share_event_ready(struct gcp_tracker *tracker, struct gcp_share *share)
{
	struct gcp_pool *pool = share->pool;
	uint64_t id = share->id;
	int state, result;
	void *event;

	if (event_is_there(share) || !gcp_pool_pin(pool))
		return;
	state = gcp_cancel_defer(); /* the context is held */
	gcp_tracker_unlock(tracker);
	result = tracker->driver.event_create(gcp_pool_context(pool), &event);
	gcp_tracker_lock(tracker);
	if (result == 0 && !event_take(tracker, id, event))
		tracker->driver.event_destroy(event);
	gcp_pool_unpin(pool);
	gcp_cancel_restore(state);
}

void *gcp_share_marked(const struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return share && share->marked && event_is_there(share) ? share->event : NULL;
}

/* Events go with their context. */
static void event_end(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (!gcp_pool_pin(share->pool))
		return;
	if (event_is_there(share))
		tracker->driver.event_destroy(share->event);
	gcp_pool_unpin(share->pool);
}

static bool event_is_done(struct gcp_tracker *tracker, struct gcp_pool *pool,
			  void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool done;

	if (!gcp_pool_pin(pool))
		return false;
	done = tracker->driver.event_query(event) == 0;
	gcp_pool_unpin(pool);
	return done;
}

bool gcp_last_record(struct gcp_tracker *tracker, const struct gcp_last *last,
		     void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool recorded = false;

	/* An event in the legacy stream orders all blocking streams by each other:
	 * behind the launch, where that has just done so, it may stand, and not later.
	 */
	if (gcp_stream_is_legacy(last->stream) ||
	    !gcp_last_is_addressable(tracker, last) ||
	    !gcp_pools_captures_hold(tracker->pools))
		return false;
	if (gcp_streams_hold(tracker)) {
		recorded = last->gone == gcp_tracker_streams_gone(tracker) &&
			   tracker->driver.event_record(event, last->stream) == 0;
		gcp_streams_release(tracker);
	}
	gcp_pools_captures_release(tracker->pools);
	return recorded;
}

/* What its stream says is done needs no event: that is noted. */
static bool is_mark_wanted(struct gcp_tracker *tracker, struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (track->in_progress > 0 || !track->owner || gcp_share_marked(track->owner) ||
	    !gcp_last_is_addressable(tracker, &track->last) ||
	    gcp_last_is_done(tracker, track->pool, &track->last, NULL, false))
		return false;
	if (!stream_is_done(tracker, track->pool, &track->last))
		return true;
	track->last.epoch = 0;
	track->owner->last.epoch = 0;
	return false;
}

static void track_mark(struct gcp_tracker *tracker, const struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *event;

	if (!gcp_pool_pin(track->pool))
		return;
	assert(track->owner && track->in_progress == 0);
	event = gcp_share_event(tracker, track->owner);
	track->owner->marked = event && gcp_last_record(tracker, &track->last, event);
	gcp_pool_unpin(track->pool);
}

void gcp_tracks_mark(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track;

	TAILQ_FOREACH (track, &tracker->tracks, link)
		if (is_mark_wanted(tracker, track))
			track_mark(tracker, track);
}

/* One that may have gone before stays so. */
static void last_stays(struct gcp_last *last, const void *stream, uint64_t gone)
{
	if (last->gone == gone && last->stream != stream)
		last->gone = gone + 1;
}

void gcp_tracks_stream_ends(struct gcp_tracker *tracker, const void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t gone = gcp_tracker_streams_gone(tracker);
	struct gcp_track *track;
	struct gcp_share *share;

	TAILQ_FOREACH (track, &tracker->tracks, link) {
		if (track->last.stream == stream && is_mark_wanted(tracker, track))
			track_mark(tracker, track);
		last_stays(&track->last, stream, gone);
	}
	TAILQ_FOREACH (share, &tracker->shares, link)
		last_stays(&share->last, stream, gone);
}

bool gcp_last_is_done(struct gcp_tracker *tracker, struct gcp_pool *pool,
		      const struct gcp_last *last, const struct gcp_share *share,
		      bool look)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *event = gcp_share_marked(share);

	if (last->epoch == 0 || gcp_pool_work_is_done(pool, last->epoch, false))
		return true;
	if (look && event)
		return event_is_done(tracker, pool, event);
	return look && (stream_is_done(tracker, pool, last) ||
			gcp_pool_work_is_done(pool, last->epoch, true));
}

bool gcp_share_in_flight(struct gcp_tracker *tracker, const struct gcp_share *share,
			 bool look)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return share->in_progress > 0 ||
	       !gcp_last_is_done(tracker, share->pool, &share->last, share, look);
}

bool gcp_track_is_idle(struct gcp_tracker *tracker, const struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return track->in_progress == 0 &&
	       gcp_last_is_done(tracker, track->pool, &track->last, track->owner, true);
}

/* --- the end of a graph ------------------------------------------------------- */

void gcp_share_end(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	struct gcp_share *share = graph_pool->share;
	struct gcp_holder *exec;
	struct gcp_track *track;

	if (!share)
		return;
	assert(share->graph_pool == graph_pool);
	assert(share->in_progress == 0 && share->stays == 0);
	graph_pool->share = NULL;
	while ((exec = LIST_FIRST(&share->execs)))
		gcp_share_exec_left(tracker, exec);
	gcp_share_move(tracker, share, NULL);
	event_end(tracker, share);
	TAILQ_FOREACH (track, &tracker->tracks, link)
		if (track->owner == share)
			track->owner = NULL;
	TAILQ_REMOVE(&tracker->shares, share, link);
	atomic_fetch_sub(&tracker->share_count, 1);
	free(share->nodes);
	free(share);
	gcp_tracks_tidy(tracker);
}
