/* SPDX-License-Identifier: MIT */
/*
 * launch.c - launches of graphs whose scratch lies in a lane: no two of them run at the
 * same time.
 *
 * A lane belongs to one stream. A graph enters the lane of the stream of its first
 * launch; CUDA keeps the order of what is launched there, and nothing is waited for. If
 * the program has several streams, an event is recorded behind each launch. The first
 * launch into another stream takes the graph out of the lane. From then on it has
 * memory of its own:
 *
 *   it is alone there       it keeps the lane's memory
 *   it is idle              it leaves before the launch
 *   all others are idle     they leave for another lane, and it keeps this one's memory
 *   neither, or there is    the launch is a crossing: on the device it follows the
 *   no memory               lane's latest launch, and the lane's next one follows it.
 *                           The graph leaves at a later launch
 *
 * A lane has no stream before the first launch, and after the end of its stream: it
 * takes that of the next launch. CUDA orders the launches of one executable as well.
 *
 * No lock is held over the real launch, which may block. A launch that has to follow
 * one that another thread is just making waits for that call (not for the device).
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
 *  X5 what a graph that ends leaves, and what it was mapped to with others, serves
 *     another stream behind its launches
 *  X6 scratch becomes a lane's when work submitted beside the capture is completed
 *  X7 a graph whose launches are not all seen has memory of its own
 *  X10 while a launch into another stream than the lane's, or than the latest one of
 *     its executable, is just being made no other is, on that lane: it might come first
 */
#include <sched.h>

#include "share.h"

/* --- the lane's order ----------------------------------------------------------- */

#ifdef GCP_WITHOUT_LAUNCH_GUARD /* for the test that the tests notice */
enum { UNGUARDED = 1 };
#else
enum { UNGUARDED = 0 };
#endif

/* The launch follows the lane's latest one. -EAGAIN: once more, the lock was let go. */
static int track_wait(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		      void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = graph->track;
	struct gcp_pool *pool = graph->pool;
	uint64_t epoch = atomic_load(&track->launched);
	void *event = gcp_track_record(tracker, track);
	bool followed = false;
	int result;

	assert(gcp_in_progress(track) == 0);
	gcp_pool_count_graph(pool, false);
	if (event && gcp_pools_captures_hold(tracker->pools)) {
		gcp_pool_work_is_held_back(pool);
		followed = tracker->driver.event_wait(gcp_pool_context(pool), NULL,
						      event) == 0;
		gcp_pools_captures_release(tracker->pools);
	}
	if (followed || (event && tracker->driver.event_wait(NULL, stream, event) == 0))
		return 0;
	gcp_mutex_unlock(&tracker->lock);
	result = gcp_pool_work_wait(pool, epoch);
	gcp_mutex_lock(&tracker->lock);
	return result == 0 ? -EAGAIN : result;
}

/* The launch is into another stream than the lane's. 0: the graph is in the lane of
 * that now; -EAGAIN: it has left. Another error: it cannot, or need not, for CUDA keeps
 * the order of one executable (-EBUSY); or it is in no lane. */
static int lane_leave(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		      const struct gcp_last *last, const void *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_track *track = graph->track;
	bool idle = !gcp_share_in_flight(tracker, graph);
	bool leaves = graph->last.stream_id != 0 && track->home.stream_id != 0;
	int result = -EBUSY;

	assert(track->home.stream_id != last->stream_id);
	if (idle && !leaves)
		result = gcp_share_enter(tracker, graph, last);
	else if (leaves && (idle || track->exec != exec))
		result = gcp_share_part(tracker, graph);
	if (result == 0 && graph->track != track)
		gcp_pool_count_graph(graph->pool, true);
	return result == 0 && leaves ? -EAGAIN : result;
}

/* Finds out whether the launch may be made in the graph's lane, and has it follow what
 * it has to. -EAGAIN: once more. */
static int lane_find(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		     const void *exec, const struct gcp_last *last,
		     struct gcp_launch *launch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = graph->track;
	uint64_t stream_id = last->stream_id;
	bool in_stream, by_exec;
	int result = 0;

	assert(track->lane && !graph->own); /* X1, X7 */
	if (track->home.stream_id != stream_id)
		result = lane_leave(tracker, graph, last, exec);
	if (result == -EAGAIN ||
	    (result != 0 && result != -EBUSY && !gcp_heap_lane(graph->heap)))
		return result;
	track = graph->track;
	assert(track->members > 0 && track->pool == graph->pool);
	/* CUDA keeps the order of one stream, and of one executable. */
	in_stream = UNGUARDED || track->last.stream_id == stream_id;
	by_exec = !in_stream && track->exec == exec && gcp_in_progress(track) == 0;
	launch->crosses = by_exec || track->home.stream_id != stream_id;
	if (track->crossings > 0 || (launch->crosses && gcp_in_progress(track) > 0))
		return -EAGAIN; /* X10 */
	if (in_stream || by_exec || gcp_track_is_idle(tracker, track))
		return 0;
	return gcp_in_progress(track) > 0 ? -EAGAIN
					  : track_wait(tracker, graph, last->stream);
}

/* --- launches ----------------------------------------------------------------- */

/* Returns true if the launch is one that is not guarded: the stream captures, or is of
 * another context, or nothing is known of it. The stream of the latest launch is known
 * by its handle while no stream has gone since. */
static bool is_foreign(struct gcp_tracker *tracker, const struct gcp_graph_pool *graph,
		       void *stream, uint64_t *ret_stream_id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	void *ctx = gcp_pool_context(graph->pool);
	struct gcp_capture_state state = {0};
	bool is_last = graph->last.stream == stream &&
		       graph->last.gone == gcp_tracker_streams_gone(tracker);

	assert(graph->shares && graph->pool);
	*ret_stream_id = gcp_stream_is_default(stream) ? gcp_stream_default_id(stream)
			 : is_last                     ? graph->last.stream_id
						       : 0;
	if (*ret_stream_id == 0 &&
	    (tracker->driver.stream_id(stream, ret_stream_id) != 0 ||
	     *ret_stream_id == 0))
		return true;
	if (gcp_streams_may_capture(tracker) && !gcp_stream_is_legacy(stream) &&
	    (tracker->driver.capture_state(ctx, stream, &state) != 0 || state.active ||
	     state.invalidated))
		return true;
	/* A stream that it was launched into before is one of its context. */
	return (gcp_stream_is_default(stream) ||
		graph->last.stream_id != *ret_stream_id) &&
	       tracker->driver.stream_context(stream) != ctx;
}

/* A graph that could not enter a lane while the device was at work is tried again at
 * launches of it, more and more seldom. One that takes the place of another one at each
 * step is launched once, and what is mapped for it would be of no use. One that has no
 * memory needs some anyway. */
static bool is_bind_due(const struct gcp_graph_pool *graph)
{
	assert(graph->shares && graph->track); /* X7 */
	return graph->track->fresh && (!gcp_heap_lane(graph->heap) ||
				       (graph->begins >= graph->updated &&
					(graph->begins & (graph->begins - 1)) == 0));
}

/* -EAGAIN: once more. */
static int launch_try(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		      const void *exec, void *stream, struct gcp_launch *launch)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_last last = {.stream = stream,
				.gone = gcp_tracker_streams_gone(tracker)};
	struct gcp_track *track;
	int result = 0;

	assert(graph->shares && !launch->graph);
	if (is_foreign(tracker, graph, stream, &last.stream_id))
		return gcp_share_take(tracker, graph);
	/* In programs with one stream no events are needed, but beside captures
	 * (gcp_tracks_mark). */
	if (tracker->first_stream == 0)
		tracker->first_stream = last.stream_id;
	tracker->several_streams |= tracker->first_stream != last.stream_id;
	if (is_bind_due(graph))
		gcp_share_bind(tracker, graph, &last);
	track = graph->track;
	assert(track && (!track->fresh || track->members == 1)); /* X1 */
	if (track->fresh && track->home.stream_id == 0)
		track->home = last;
	result = lane_find(tracker, graph, exec, &last, launch);
	track = graph->track;
	if (result == 0 && gcp_heap_lane(graph->heap) != track->lane)
		result = gcp_lane_enter(track->lane, graph->heap);
	if (result != 0)
		return result;
	assert(graph->shares && !graph->own && track->crossings == 0); /* X7, X10 */
	assert(!launch->crosses || gcp_in_progress(track) == 0);       /* X10 */
	assert(last.stream_id != 0);
	launch->graph = graph;
	launch->track = track;
	launch->stream = stream;
	gcp_pool_count_graph_launch(graph->pool);
	graph->begins++;
	/* Which one of calls in progress comes last is not known. */
	track->exec = gcp_in_progress(track) > 0 ? NULL : exec;
	track->begins++;
	track->crossings += launch->crosses;
	track->marked = false; /* its event stands before this one */
	track->last = graph->last = last;
	/* Another graph of the lane may have to follow this launch from another stream:
	 * an event stands behind it then, and not behind what its stream is given
	 * later. */
	launch->event = gcp_track_event(track);
	launch->makes = track->members > 1 && !launch->event;
	launch->marks = track->members > 1 &&
			(tracker->several_streams || gcp_streams_may_capture(tracker));
	return 0;
}

int gcp_launch_begin(struct gcp_tracker *tracker, void *exec, void *stream,
		     struct gcp_launch *launch)
{
	struct gcp_graph_pool *graph;
	unsigned count;
	int result = 0;

	assert(gcp_ranks_held == 0); /* it may wait for another thread's launch */
	gcp_mutex_lock(&tracker->lock);
	do {
		*launch = (struct gcp_launch){.graph = NULL};
		if (result == -EAGAIN) {
			gcp_mutex_unlock(&tracker->lock);
			sched_yield();
			gcp_mutex_lock(&tracker->lock);
		}
		graph = gcp_share_of_exec(tracker, exec, &count);
		assert(!graph || (graph->shares && graph->track)); /* X7 */
		result = 0;
		if (!graph)
			break;
		if (graph->own || count > 1) /* of a failed update: X4 */
			result = gcp_share_take(tracker, graph) ?: -EAGAIN;
		else
			result = launch_try(tracker, graph, exec, stream, launch);
	} while (result == -EAGAIN);
	assert(!launch->graph || result == 0); /* else its end would not be told */
	assert(!launch->graph || gcp_in_progress(launch->graph) > 0); /* X2 */
	gcp_mutex_unlock(&tracker->lock);
	return result;
}

/* --- their ends ----------------------------------------------------------------- */

/* The launch is behind the epoch that is open now, and not behind the one that is open
 * when that is asked for: it has later work, too, which may wait for the call that
 * asks. The graph may move, or be gone, when this returns. */
static void launch_uncount(const struct gcp_launch *launch)
{
	uint64_t epoch = gcp_pool_work_now(launch->graph->pool);

	assert(gcp_in_progress(launch->graph) > 0);
	assert(launch->graph->track == launch->track); /* X2 */
	gcp_raise(&launch->graph->launched, epoch);
	gcp_raise(&launch->track->launched, epoch);
	atomic_fetch_add(&launch->track->ends, 1);
	atomic_fetch_add(&launch->graph->ends, 1);
}

void gcp_launch_end(struct gcp_tracker *tracker, const struct gcp_launch *launch,
		    int result)
{
	struct gcp_graph_pool *graph = launch->graph;
	struct gcp_track *track = launch->track;
	bool made, marked = false;
	void *event = launch->event;

	if (!graph)
		return;
	assert(track && track->pool == graph->pool); /* X1 */
	if (result == 0 && !launch->crosses && !launch->makes && !launch->marks) {
		launch_uncount(launch);
		return;
	}
	assert(gcp_ranks_held == 0); /* these may wait for room in the queue */
	made = launch->makes && result == 0 && gcp_pool_pin(graph->pool);
	if (made &&
	    tracker->driver.event_create(gcp_pool_context(graph->pool), &event) != 0)
		event = NULL;
	if (launch->marks && result == 0 && event)
		marked = tracker->driver.event_record(NULL, launch->stream, event) == 0;
	GCP_LOCKED(&tracker->lock);
	/* It may have been made or not: nothing follows it. */
	if (result != 0)
		graph->last.stream_id = track->last.stream_id = 0;
	if (made && event && !gcp_track_event(track))
		track->event = event;
	else if (made && event) /* another launch was faster */
		tracker->driver.event_destroy(event);
	if (made)
		gcp_pool_unpin(graph->pool);
	launch_uncount(launch);
	track->crossings -= launch->crosses;
	assert(track->crossings <= gcp_in_progress(track)); /* X10 */
	track->exec = result == 0 ? track->exec : NULL;
	track->marked = marked && track->exec && track->event == event;
	assert(!track->marked ||
	       gcp_in_progress(track) == 0); /* X1: it is behind the latest */
}

/* --- when memory is out ------------------------------------------------------- */

uint64_t gcp_share_trim(struct gcp_tracker *tracker, int device, uint64_t keep_bytes)
{
	struct gcp_track_list *lists[] = {&tracker->fresh, &tracker->tracks};
	const struct gcp_graph_pool *graph;
	struct gcp_track *track;
	uint64_t bytes = 0;

	if (!gcp_tracker_shares(tracker))
		return 0;
	GCP_LOCKED(&tracker->lock);
	for (int i = 0; i < 2; i++)
		TAILQ_FOREACH (track, lists[i], link) {
			graph = TAILQ_FIRST(&track->graphs);
			assert(graph && graph->track == track);       /* X1 */
			assert(!track->fresh || track->members == 1); /* X1 */
			if ((device >= 0 && gcp_pool_device(track->pool) != device) ||
			    !gcp_track_is_idle(tracker, track) ||
			    !gcp_pool_work_is_done(track->pool, graph->beside)) /* X6 */
				continue;
			if (keep_bytes >= gcp_lane_bytes(track->lane))
				keep_bytes -= gcp_lane_bytes(track->lane);
			else
				bytes += gcp_lane_purge(track->lane);
		}
	return bytes;
}
