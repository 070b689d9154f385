/* SPDX-License-Identifier: MIT */
/*
 * launch.c - launches of graphs whose scratch lies in a lane: no two of them run at the
 * same time.
 *
 *   into the stream of the lane's latest launch        CUDA keeps their order
 *   of the same executable as that one                 likewise (of another one of the
 *                                                      same graph: as of another graph)
 *   it is known to be completed                        nothing runs
 *   none of these, and the graph itself is not         it gets another lane, that is
 *   on its way                                         idle, or a new one
 *   it is on its way, and no other of its lane: by     the others get another lane.
 *   another executable                                 Until all work is known to be
 *                                                      completed none comes back
 *   others of its lane are, too                        it waits, on the device, for the
 *                                                      lane's latest launch
 *
 * Graphs that the program runs side by side are so in different lanes after their first
 * launches. The last row is for a graph that is launched into one stream, and then into
 * another one while it still runs, with a launch of another graph in between.
 *
 * No lock is held over the real launch, which may block: what another thread is just
 * launching counts as running. A launch that has to follow it waits for that call (not
 * for the device).
 *
 * How it waits: drivers lose what cuStreamWaitEvent says beside launches of graphs by
 * other threads (docs/captures.md). So all later work of the context waits, by
 * cuCtxWaitEvent, which holds; while a stream captures, the stream alone.
 *
 * Rules of lanes:
 *  X1 a launch follows the latest launch on its lane
 *  X2 memory of a graph moves only while no launch of it is on its way
 *  X3 what the program held when the capture ended is no scratch
 *  X4 launches of each executable that holds the memory are guarded
 *  X5 a lane ends when all work of its context is completed
 *  X6 scratch becomes a lane's when work submitted beside the capture is completed
 *  X7 a graph whose launches are not all seen has memory of its own
 */
#include <sched.h>

#include "share.h"

/* --- which lane --------------------------------------------------------------- */

#ifdef GCP_WITHOUT_LAUNCH_GUARD /* for the test that the tests notice */
enum { UNGUARDED = 1 };
#else
enum { UNGUARDED = 0 };
#endif

/* Whether the lane's latest launch was of this executable. */
static bool is_latest(const struct gcp_track *track, const struct gcp_share *share,
		      const void *exec)
{
	return track->owner == share && share->last_exec == exec;
}

static bool follows(const struct gcp_track *track, const struct gcp_share *share,
		    const void *exec, uint64_t stream_id)
{
	if (UNGUARDED)
		return true;
	return track->last.stream_id == stream_id &&
	       (track->switching == 0 || is_latest(track, share, exec));
}

/* Another lane, where the launch need not wait; else a new one. */
static int track_change(struct gcp_tracker *tracker, struct gcp_share *share,
			const void *exec, uint64_t stream_id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track;
	int result = GCP_CUDA_OUT_OF_MEMORY;

	TAILQ_FOREACH (track, &tracker->tracks, link) {
		if (track->pool != share->pool || track->alone ||
		    track == share->track ||
		    !(follows(track, share, exec, stream_id) ||
		      gcp_track_is_idle(tracker, track)))
			continue;
		result = gcp_lane_enter(track->lane, share->heap);
		if (result == 0)
			break;
	}
	if (!track) {
		track = gcp_track_create(tracker, share->pool);
		result = track ? gcp_lane_enter(track->lane, share->heap) : -ENOMEM;
	}
	if (result == 0) {
		gcp_share_move(tracker, share, track);
		gcp_pool_count_graph(share->pool, true);
	}
	gcp_tracks_tidy(tracker);
	return result;
}

/* False: it cannot be said that way. */
static bool event_is_followed(struct gcp_tracker *tracker,
			      const struct gcp_track *track, void *stream, void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool followed = false;

	if (tracker->driver.event_wait_all && gcp_pools_captures_hold(tracker->pools)) {
		gcp_pool_work_is_held_back(track->pool);
		followed = tracker->driver.event_wait_all(gcp_pool_context(track->pool),
							  event) == 0;
		gcp_pools_captures_release(tracker->pools);
	}
	return followed || tracker->driver.event_wait(stream, event) == 0;
}

/* For a launch whose executable has no event, or is not known. */
static bool stream_waits(struct gcp_tracker *tracker, const struct gcp_track *track,
			 void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool followed;
	void *event;

	if (tracker->driver.event_create(gcp_pool_context(track->pool), &event) != 0)
		return false;
	followed = gcp_last_record(tracker, &track->last, event) &&
		   event_is_followed(tracker, track, stream, event);
	tracker->driver.event_destroy(event);
	return followed;
}

/* The launch follows the lane's latest one. -EAGAIN: another one came in between. */
static int track_wait(struct gcp_tracker *tracker, struct gcp_share *share,
		      void *stream)
{
	struct gcp_track *track = share->track;
	uint64_t id = share->id, launches = track->launches;
	struct gcp_pool *pool = share->pool;
	void *event;
	int result;

	assert(share->track == track && track->members > 0);
	if (track->in_progress > 0)
		return -EAGAIN;
	gcp_pool_count_graph(pool, false);
	event = gcp_share_marked(track->owner);
	if (event && event_is_followed(tracker, track, stream, event))
		return 0;
	if (stream_waits(tracker, track, stream) || gcp_pool_work_order(pool) == 0)
		return 0;
	gcp_tracker_unlock(tracker);
	result = gcp_pool_barrier(pool); /* all work follows all that came before */
	gcp_tracker_lock(tracker);
	share = gcp_share_by_id(tracker, id);
	if (result != 0)
		return result;
	if (!share) /* gone with its executable: looked for once more */
		return -EAGAIN;
	return share->track == track && track->launches == launches ? 0 : -EAGAIN;
}

/* Finds the lane of this launch. 0: share->track is it. */
static int track_choose(struct gcp_tracker *tracker, struct gcp_share *share,
			const void *exec, const struct gcp_last *last,
			struct gcp_launch *launch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = share->track;
	uint64_t stream_id = last->stream_id;
	int result;

	assert(share->bound && track && track->pool == share->pool);
	if (follows(track, share, exec, stream_id))
		return 0;
	if (track->in_progress == 0 && is_latest(track, share, exec)) {
		launch->switching = true;
		return 0;
	}
	if (gcp_track_is_idle(tracker, track))
		return 0;
	if (share->stays == 0 && !gcp_share_in_flight(tracker, share, true)) {
		result = track_change(tracker, share, exec, stream_id);
		if (result == 0 || !gcp_heap_lane(share->heap))
			return result;
	}
	if (gcp_share_others_leave(tracker, share) == 0) {
		launch->beside = true;
		return 0;
	}
	return track_wait(tracker, share, last->stream);
}

/* --- launches ----------------------------------------------------------------- */

static bool stream_captures(struct gcp_tracker *tracker, void *ctx, void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture_state state = {0};

	return gcp_streams_may_capture(tracker) && (uintptr_t)stream > 1 /* legacy */ &&
	       (tracker->driver.capture_state(ctx, stream, &state) != 0 ||
		state.active || state.invalidated);
}

/* Whether the launch is one that is not guarded: the stream captures, or is of another
 * context, or nothing is known of it. */
static bool is_foreign(struct gcp_tracker *tracker, const struct gcp_share *share,
		       void *stream, uint64_t *ret_stream_id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *ctx = gcp_pool_context(share->pool);

	*ret_stream_id =
	    gcp_stream_is_default(stream) ? gcp_stream_default_id(stream) : 0;
	if (*ret_stream_id == 0 &&
	    (tracker->driver.stream_id(stream, ret_stream_id) != 0 ||
	     *ret_stream_id == 0))
		return true;
	if (stream_captures(tracker, ctx, stream))
		return true;
	if (gcp_stream_is_default(stream))
		return tracker->driver.stream_context(stream) != ctx;
	return share->last.stream_id != *ret_stream_id &&
	       tracker->driver.stream_context(stream) != ctx;
}

static void launch_count(struct gcp_share *share, const void *exec,
			 const struct gcp_last *last, struct gcp_launch *launch)
{
	struct gcp_track *track = share->bound ? share->track : NULL;

	assert(!share->bound || share->track);
	assert(!launch->switching || track); /* K2 */
	launch->share = share->id;
	launch->stream = last->stream;
	share->overlapped |= share->in_progress > 0 || launch->beside;
	share->last_exec =
	    launch->beside || (share->in_progress > 0 && share->last_exec != exec)
		? NULL
		: exec;
	share->in_progress++;
	share->launches++;
	gcp_pool_count_graph_launch(share->pool);
	share->marked = false;
	share->last.stream_id = launch->beside ? 0 : last->stream_id;
	share->last.stream = last->stream;
	share->last.gone = last->gone;
	if (!track)
		return;
	launch->tracked = true;
	/* Calls in progress may come in any order: which one is last is not known. */
	if (track->in_progress > 0 && track->owner != share)
		track->owner = NULL;
	else
		track->owner = share;
	track->in_progress++;
	track->switching += launch->switching;
	track->launches++;
	track->last.stream_id = share->last.stream_id;
	track->last.stream = last->stream;
	track->last.gone = last->gone;
}

/* Whether graphs that may share are launched into several streams: in programs with one
 * no events are needed, but beside captures (gcp_tracks_mark). */
static bool several_streams(struct gcp_tracker *tracker, uint64_t stream_id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (tracker->first_stream == 0)
		tracker->first_stream = stream_id;
	if (!tracker->several_streams && tracker->first_stream != stream_id) {
		tracker->several_streams = true;
		gcp_launches_reset(tracker);
	}
	return tracker->several_streams;
}

/* In no lane: whether the launch comes behind those of the graph's other executables.
 */
static bool share_follows(struct gcp_tracker *tracker, const struct gcp_share *share,
			  const void *exec, const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return share->last.stream_id == last->stream_id || share->last_exec == exec ||
	       !gcp_share_in_flight(tracker, share, true);
}

/* -EAGAIN: once more. */
static int launch_try(struct gcp_tracker *tracker, struct gcp_share *share,
		      const void *exec, void *stream, struct gcp_launch *launch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_last last = {.stream = stream};
	int result = 0;

	last.gone = gcp_tracker_streams_gone(tracker);
	if (is_foreign(tracker, share, stream, &last.stream_id))
		return gcp_share_take(tracker, share);
	if (gcp_share_is_bind_due(share))
		gcp_share_bind(tracker, share);
	launch->switching = launch->beside = false;
	if (share->bound && gcp_heap_is_shared(share->heap)) {
		result = track_choose(tracker, share, exec, &last, launch);
		if (result == 0)
			result = gcp_lane_enter(share->track->lane, share->heap);
	} else {
		launch->beside = !share_follows(tracker, share, exec, &last);
	}
	if (result != 0)
		return result;
	launch_count(share, exec, &last, launch);
	launch->marks = several_streams(tracker, last.stream_id) ||
			gcp_streams_may_capture(tracker);
	return 0;
}

/* The lock is let go where the event has to be made. */
static void launch_event(struct gcp_tracker *tracker, struct gcp_share *share,
			 struct gcp_launch *launch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	launch->event = gcp_share_event_made(share);
	if (launch->event)
		return;
	gcp_share_event_ready(tracker, share);
	share = gcp_share_by_id(tracker, launch->share);
	if (share)
		launch->event = gcp_share_event_made(share);
}

int gcp_launch_begin(struct gcp_tracker *tracker, void *exec, void *stream,
		     struct gcp_launch *launch)
{
	struct gcp_share *share = NULL;
	int result = 0;

	*launch = (struct gcp_launch){.share = 0};
	if (!gcp_tracker_shares(tracker))
		return 0;
	gcp_tracker_lock(tracker);
	do {
		if (result == -EAGAIN) {
			gcp_tracker_unlock(tracker);
			sched_yield();
			gcp_tracker_lock(tracker);
		}
		result = gcp_share_unmix(tracker, exec);
		if (result != 0)
			break;
		share = gcp_share_of_exec(tracker, exec);
		gcp_launch_reset(tracker, exec);
		result = !share ? 0
			 : share->own
			     ? gcp_share_make_own(tracker, share)
			     : launch_try(tracker, share, exec, stream, launch);
	} while (result == -EAGAIN);
	if (result == 0)
		gcp_launch_note(tracker, exec, stream);
	if (result == 0 && launch->marks)
		launch_event(tracker, share, launch);
	gcp_tracker_unlock(tracker);
	return result == -ENOMEM ? GCP_CUDA_OUT_OF_MEMORY : result;
}

/* A launch that has failed may have been made or not: nothing follows it. */
static void launch_ended(struct gcp_share *share, const struct gcp_launch *launch,
			 bool marked, int result)
{
	struct gcp_track *track = launch->tracked ? share->track : NULL;

	assert(share->in_progress > 0);
	assert(!track || track->in_progress > 0);
	assert(!track || track->switching >= launch->switching);
	share->in_progress--;
	/* Of launches by several threads at once one may have moved the event
	 * behind another one's. */
	share->marked = marked && !share->overlapped;
	share->overlapped &= share->in_progress > 0;
	share->last.epoch = gcp_pool_work_now(share->pool);
	if (result != 0) { /* its stream says nothing of the launches before */
		share->last.stream_id = 0;
		share->last_exec = NULL;
	}
	if (!track)
		return;
	track->in_progress--;
	track->switching -= launch->switching;
	track->last.epoch = share->last.epoch;
	if (result != 0) {
		track->owner = NULL;
		track->last.stream_id = 0;
	}
}

void gcp_launch_end(struct gcp_tracker *tracker, void *exec,
		    const struct gcp_launch *launch, int result)
{
	struct gcp_share *share;
	bool marked = false;

	if (launch->share == 0)
		return;
	if (launch->event && result == 0)
		marked =
		    tracker->driver.event_record(launch->event, launch->stream) == 0;
	gcp_tracker_lock(tracker);
	share = gcp_share_of_exec(tracker, exec);
	if (!share || share->id != launch->share)
		share = gcp_share_by_id(tracker, launch->share);
	if (share)
		launch_ended(share, launch, marked, result);
	if (result != 0) /* the next one in that stream tells of it again */
		gcp_launches_reset(tracker);
	gcp_tracker_unlock(tracker);
}

/* --- when memory is out ------------------------------------------------------- */

/* A call looks at memory of the lane just now. */
static bool is_looked_at(const struct gcp_tracker *tracker,
			 const struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_share *share;

	TAILQ_FOREACH (share, &tracker->shares, link)
		if (share->track == track && share->stays > 0)
			return true;
	return false;
}

uint64_t gcp_share_trim(struct gcp_tracker *tracker, int device, uint64_t keep_bytes)
{
	struct gcp_track *track;
	uint64_t bytes = 0;

	if (!gcp_tracker_shares(tracker))
		return 0;
	gcp_tracker_lock(tracker);
	gcp_launches_reset(tracker); /* what they are mapped to */
	gcp_shares_bind(tracker);
	TAILQ_FOREACH (track, &tracker->tracks, link) {
		bool is_of = device < 0 || gcp_pool_device(track->pool) == device;

		if (!is_of)
			continue;
		if (track->alone || is_looked_at(tracker, track) ||
		    !gcp_track_is_idle(tracker, track))
			bytes += keep_bytes ? 0 : gcp_lane_purge_unused(track->lane);
		else if (keep_bytes >= gcp_lane_bytes(track->lane))
			keep_bytes -= gcp_lane_bytes(track->lane);
		else
			bytes += gcp_lane_purge(track->lane);
	}
	gcp_tracker_unlock(tracker);
	return bytes;
}
