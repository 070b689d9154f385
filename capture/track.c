/* SPDX-License-Identifier: MIT */
/*
 * track.c - the records of graphs that share memory, and of the lanes that they are in:
 * what share.c and launch.c find there, and what is known of the launches.
 *
 * Whether a launch is completed is asked of its stream, as long as that cannot have
 * gone since, and of the fences of its context; while a capture is under way of the
 * fences alone that are there already. What is not known is not completed.
 */
#include "share.h"

/* --- records ------------------------------------------------------------------ */

/* None begins to share while something that was made of it holds it: so most launches
 * look at one graph pool, and not at each that a parent of many graphs holds. */
struct gcp_graph_pool *gcp_share_held(struct gcp_holder *holder, unsigned *ret_count)
{
	struct gcp_graph_pool *graph = NULL;
	const struct gcp_hold *hold;

	*ret_count = 0;
	SLIST_FOREACH (hold, &holder->holds, link) {
		if (*ret_count == holder->shares)
			break;
		if (!hold->graph_pool->shares)
			continue;
		++*ret_count;
		graph = graph ? graph : hold->graph_pool;
	}
	assert(*ret_count <= holder->shares && !graph == (*ret_count == 0)); /* X4 */
	holder->shares = *ret_count;
	return graph;
}

struct gcp_graph_pool *gcp_share_of_exec(struct gcp_tracker *tracker, const void *exec,
					 unsigned *ret_count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_holder *holder = gcp_holder_find(tracker, exec, true);

	assert(!holder || holder->is_exec); /* X4 */
	*ret_count = 0;
	return holder ? gcp_share_held(holder, ret_count) : NULL;
}

/* --- lanes -------------------------------------------------------------------- */

struct gcp_track *gcp_track_create(struct gcp_tracker *tracker, struct gcp_pool *pool,
				   bool fresh)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = calloc(1, sizeof(*track));
	uint64_t life = gcp_pool_life(pool);

	assert(gcp_pool_context(pool)); /* its launches are followed there */
	if (track && gcp_lane_create(pool, &track->lane) != 0) {
		free(track);
		track = NULL;
	}
	if (!track)
		return NULL;
	track->id = ++tracker->last_track;
	track->pool = pool;
	track->life = life;
	track->fresh = fresh;
	TAILQ_INIT(&track->graphs);
	TAILQ_INSERT_TAIL(fresh ? &tracker->fresh : &tracker->tracks, track, link);
	return track;
}

void *gcp_track_event(const struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(track->lane && track->pool); /* X1 */
	return track->life == gcp_pool_life(track->pool) ? track->event : NULL;
}

/* A graph leaves its lane only when its launches are over, or takes along what they use
 * alone: a lane that no graph is in any more has no memory in use. */
void gcp_track_tidy(struct gcp_tracker *tracker, struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(track->crossings <= gcp_in_progress(track)); /* X10 */
	if (track->members > 0)
		return;
	if (gcp_pool_pin(track->pool)) { /* events go with their context */
		if (gcp_track_event(track))
			tracker->driver.event_destroy(track->event);
		gcp_pool_unpin(track->pool);
	}
	TAILQ_REMOVE(track->fresh ? &tracker->fresh : &tracker->tracks, track, link);
	gcp_lane_destroy(track->lane);
	free(track);
}

void gcp_share_move(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *from = graph->track;
	unsigned count;

	assert(!from || from->members > 0);
	assert(track || !graph->shares); /* X7 */
	assert(!track || !track->fresh || (!from && track->members == 0));
	assert(!track || (track->lane && track->pool == graph->pool)); /* X1 */
	if (from) {
		TAILQ_REMOVE(&from->graphs, graph, lane_link);
		from->members--;
		if (from->exec &&
		    gcp_share_of_exec(tracker, from->exec, &count) == graph)
			from->exec = NULL;
	}
	graph->track = track;
	if (track) {
		TAILQ_INSERT_TAIL(&track->graphs, graph, lane_link);
		track->members++;
	}
	if (from)
		gcp_track_tidy(tracker, from);
}

/* --- what is completed -------------------------------------------------------- */

uint64_t gcp_stream_default_id(const void *stream)
{
	const uint64_t mark = UINT64_C(1) << 63;

	assert(gcp_stream_is_default(stream));
	return mark |
	       ((uintptr_t)stream == GCP_STREAM_PER_THREAD ? gcp_thread_number() : 0);
}

/* Returns true if the launch's stream may be given to calls until it is released: it
 * has not gone, no capture is under way or can begin, which would be lost, and its
 * handle means it for this thread too. Captures come first: fences are asked for with
 * the contexts held. */
static bool stream_hold(struct gcp_tracker *tracker, const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (last->stream_id == 0 || gcp_streams_may_capture(tracker) ||
	    (gcp_stream_is_default(last->stream) &&
	     last->stream_id != gcp_stream_default_id(last->stream)) ||
	    !gcp_pools_captures_hold(tracker->pools))
		return false;
	if (tracker->driver.contexts_hold()) {
		if (last->gone == gcp_tracker_streams_gone(tracker))
			return true;
		tracker->driver.contexts_release();
	}
	gcp_pools_captures_release(tracker->pools);
	return false;
}

static void stream_release(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	tracker->driver.contexts_release();
	gcp_pools_captures_release(tracker->pools);
}

static bool stream_is_done(struct gcp_tracker *tracker, const struct gcp_pool *pool,
			   const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool done;

	if (!stream_hold(tracker, last))
		return false;
	done = tracker->driver.stream_query(gcp_pool_context(pool), last->stream) == 0;
	stream_release(tracker);
	return done;
}

static void *marked_event(const struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return track->marked ? gcp_track_event(track) : NULL;
}

static bool last_is_done(struct gcp_tracker *tracker, struct gcp_pool *pool,
			 const struct gcp_last *last, uint64_t epoch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return epoch == 0 || stream_is_done(tracker, pool, last) ||
	       gcp_pool_work_is_done(pool, epoch);
}

bool gcp_track_is_idle(struct gcp_tracker *tracker, struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *event = marked_event(track);
	bool done = false;

	assert(!event || gcp_in_progress(track) == 0); /* it is behind the latest */
	if (gcp_in_progress(track) > 0)
		return false;
	if (event && gcp_pool_pin(track->pool)) {
		done = tracker->driver.event_query(event) == 0;
		gcp_pool_unpin(track->pool);
	}
	return done ||
	       last_is_done(tracker, track->pool, &track->last, track->launched);
}

/* The launches of its lane follow one another, so where that is idle all are done. */
bool gcp_share_in_flight(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return gcp_in_progress(graph) > 0 ||
	       (!last_is_done(tracker, graph->pool, &graph->last, graph->launched) &&
		!(graph->track && gcp_track_is_idle(tracker, graph->track)));
}

/* --- events ------------------------------------------------------------------- */

void *gcp_track_record(struct gcp_tracker *tracker, struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *event = marked_event(track);

	if (event || !gcp_track_event(track) || gcp_in_progress(track) > 0 ||
	    !gcp_pool_pin(track->pool))
		return event;
	/* An event in the legacy stream orders all blocking streams by each other:
	 * behind the launch, where that has just done so, it may stand, and not later.
	 */
	if (!gcp_stream_is_legacy(track->last.stream) &&
	    stream_hold(tracker, &track->last)) {
		track->marked = tracker->driver.event_record(NULL, track->last.stream,
							     track->event) == 0;
		stream_release(tracker);
	} else if (gcp_pools_captures_hold(tracker->pools)) {
		track->marked =
		    tracker->driver.event_record(gcp_pool_context(track->pool), NULL,
						 track->event) == 0;
		gcp_pools_captures_release(tracker->pools);
	}
	gcp_pool_unpin(track->pool);
	assert(!track->marked || gcp_in_progress(track) == 0); /* X1 */
	return marked_event(track);
}

/* Records an event behind the latest launch, unless its stream says that it is done. */
static void track_mark(struct gcp_tracker *tracker, struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(track->members > 0 && !track->fresh);
	if (gcp_in_progress(track) > 0 || marked_event(track) || track->launched == 0)
		return;
	if (stream_is_done(tracker, track->pool, &track->last))
		track->launched = 0;
	else
		(void)gcp_track_record(tracker, track);
}

void gcp_tracks_mark(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track;

	TAILQ_FOREACH (track, &tracker->tracks, link)
		track_mark(tracker, track);
}

/* A lane whose stream has gone has none. */
void gcp_tracks_stream_ends(struct gcp_tracker *tracker, const void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t gone = gcp_tracker_streams_gone(tracker);
	struct gcp_track *track;

	TAILQ_FOREACH (track, &tracker->tracks, link) {
		assert(!track->fresh && track->members > 0); /* X1 */
		if (track->last.stream == stream)
			track_mark(tracker, track);
		else if (track->last.gone == gone)
			track->last.gone = gone + 1; /* one that is there stays so */
		if (track->home.stream == stream && !gcp_stream_is_default(stream))
			track->home.stream_id = 0;
	}
}

/* --- the end of a graph ------------------------------------------------------- */

void gcp_share_end(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(graph->shares);
	graph->shares = false;
	gcp_share_move(tracker, graph, NULL);
	atomic_fetch_sub(&tracker->counts.shares, 1);
}
