/* SPDX-License-Identifier: MIT */
/*
 * share.c - which captured graphs share memory.
 *
 * What the program freed inside a capture, and nothing else, has no content between two
 * launches. Graphs that never run at the same time can have it in one place, a lane
 * (pool/graphs/lane.c): graphs that are launched into one stream (launch.c). So all
 * that runs on the addresses must be launches of executables that are known to hold
 * them:
 *
 *   capture into a graph pool of its own -> graph -> executables -> launches
 *                                             |
 *                                   clone, parent -> executables -> launches
 *
 * Launches of an executable that holds the memory of one such graph are launches of
 * that graph, however the executable was made. What else can use the memory,
 * or run it where its launches are not seen (launched into a capture, or into a stream
 * of another context; an unknown function was called), gives the graph memory of its
 * own permanently before it happens: gcp_share_take.
 *
 * At the end of its capture the memory becomes a lane of its own, a fresh one, where it
 * is. It moves into another lane when nothing can be on its way there: no launch, and
 * none of the work that the program submitted beside the capture. That is asked, and
 * never waited for: when a graph is destroyed, when a capture begins, when memory is
 * out, and at launches. Graphs that were not launched yet go to the lane without a
 * stream. Where there is no lane yet the fresh one becomes it.
 *
 * A program may do more with such a graph than launch it:
 *
 *   instantiates it, or updates an       the launches of that executable are guarded as
 *   executable to it                     those of the graph's others are. What was
 *                                        given back of its memory comes again if CUDA
 *                                        looks at it, and then stays for the call
 *   clones it, adds it to a graph        what is made of that one likewise
 *   makes an executable that holds the   memory of its own: they may run at the same
 *   memory of two, or sets a child of    time, in one lane
 *   one
 *   captures into it                     nothing: that work has other memory
 *   instantiates it for launches by      memory of its own: those are not seen
 *   the device, or updates such an
 *   executable to it
 *   lists its nodes, or those of a       memory of its own, before a node is read: the
 *   clone or parent, and reads one       program learns addresses
 *
 * Where that needs memory and there is none the call is refused, and nothing has
 * changed. It waits, until the graph's launches are over, only if they and one of
 * another graph in its lane are on their way, or if there is no memory for another
 * lane.
 */
#include <sched.h>

#include "share.h"

/* Returns true if only one capture has had the graph pool, whose memory is mapped by
 * the library, in one heap; and no thread allocates from it, which would get memory
 * that eager work is still on. */
static bool is_sealed(const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_graph_heap *entry = SLIST_FIRST(&graph_pool->heaps);

	/* With several contexts no fence of one tells of the work in another. */
	return !graph_pool->named && graph_pool->graphs == 1 && entry &&
	       graph_pool->held == 0 && !SLIST_NEXT(entry, link) &&
	       gcp_pool_is_mapped(entry->pool) && gcp_pool_is_only(entry->pool);
}

/* A capture whose graph the program has had in its hands may go on anywhere. */
void gcp_share_capture_ends(struct gcp_tracker *tracker,
			    const struct gcp_capture *capture,
			    struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track;

	if (!tracker->sharing || !graph || !capture->graph || capture->graph_taken ||
	    capture->into_existing_graph || !is_sealed(graph))
		return;
	assert(!graph->shares && !graph->pool);           /* it begins once */
	assert(graph->captures == 0 && graph->held == 0); /* X3: nothing more comes */
	graph->pool = SLIST_FIRST(&graph->heaps)->pool;
	graph->heap = SLIST_FIRST(&graph->heaps)->heap;
	track = gcp_track_create(tracker, graph->pool, true);
	if (!track)
		return;
	graph->shares = gcp_heap_share(graph->heap, track->lane);
	if (graph->shares) {
		gcp_share_move(tracker, graph, track);
		atomic_fetch_add(&tracker->counts.shares, 1);
		graph->beside = gcp_pool_work_now(graph->pool);
		/* A fence is set, if that is possible. */
		(void)gcp_pool_work_is_done(graph->pool, graph->beside);
	}
	assert(!graph->shares || graph->track == track); /* X1 */
	gcp_track_tidy(tracker, track);
}

/* --- into lanes ----------------------------------------------------------------- */

static int lane_change(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		       struct gcp_track *track)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	int result;

	assert(graph->shares);               /* X7 */
	assert(gcp_in_progress(graph) == 0); /* X2 */
	assert(track->pool == graph->pool);
	result = gcp_lane_enter(track->lane, graph->heap);
	if (result == 0)
		gcp_share_move(tracker, graph, track);
	return result;
}

static struct gcp_track *track_of(struct gcp_tracker *tracker,
				  const struct gcp_pool *pool, uint64_t stream_id)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track;

	TAILQ_FOREACH (track, &tracker->tracks, link)
		if (track->pool == pool && track->home.stream_id == stream_id &&
		    track->life == gcp_pool_life(pool))
			return track;
	return NULL;
}

/* The lane of the launch's stream (0: one without); else one that has none, and on
 * which nothing runs any more, or its own where it is alone, which takes that stream;
 * or a new one. */
int gcp_share_enter(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *own = graph->track, *track;
	int result = 0;

	track = track_of(tracker, graph->pool, last->stream_id);
	if (!track)
		track = track_of(tracker, graph->pool, 0);
	if (!track && own->members == 1)
		track = own;
	if (track && track->home.stream_id != last->stream_id &&
	    !gcp_track_is_idle(tracker, track)) /* it ran for a stream that has gone */
		track = NULL;
	if (!track)
		track = gcp_track_create(tracker, graph->pool, false);
	if (!track)
		return -ENOMEM;
	assert(track->pool == graph->pool);
	assert(track == own || !track->fresh); /* X1 */
	if (track != own)
		result = lane_change(tracker, graph, track);
	assert(result != 0 || graph->track == track);
	if (result == 0 && track->fresh) {
		TAILQ_REMOVE(&tracker->fresh, track, link);
		TAILQ_INSERT_TAIL(&tracker->tracks, track, link);
		track->fresh = false;
	}
	track->home = *last;
	gcp_track_tidy(tracker, track);
	return result;
}

/* Its scratch becomes a part of the stream's lane, whose memory may be in use: only
 * this graph's addresses change. */
void gcp_share_bind(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(graph->shares && graph->track); /* X7 */
	if (graph->track->fresh && !graph->own &&
	    !gcp_share_in_flight(tracker, graph) &&
	    gcp_pool_work_is_done(graph->pool, graph->beside)) /* X6 */
		(void)gcp_share_enter(tracker, graph, last);
}

void gcp_shares_bind(struct gcp_tracker *tracker)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = TAILQ_FIRST(&tracker->fresh);
	struct gcp_graph_pool *graph;

	if (!track)
		return;
	graph = TAILQ_FIRST(&track->graphs);
	assert(track->fresh && track->members == 1); /* X1 */
	TAILQ_REMOVE(&tracker->fresh, track, link);
	TAILQ_INSERT_TAIL(&tracker->fresh, track, link);
	if (!graph->updated)
		gcp_share_bind(tracker, graph, &graph->last);
}

/* --- own memory --------------------------------------------------------------- */

/* The graph stays where it is, and all other graphs of its lane can leave it: none that
 * has ended still runs there, and no call is to end in the lane. */
static bool others_can_leave(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_track *track = graph->track;
	struct gcp_graph_pool *other;

	assert(track && track->members > 0);
	if (gcp_in_progress(graph) > 0 || gcp_heap_lane(graph->heap) != track->lane)
		return false;
	TAILQ_FOREACH (other, &track->graphs, lane_link)
		if (other != graph && gcp_share_in_flight(tracker, other))
			return false;
	return gcp_pool_work_is_done(track->pool, track->ended); /* X5 */
}

/* Waits for calls that launch it, or for its latest launch. The lock is let go
 * meanwhile. */
static int share_wait(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_pool *pool = graph->pool;
	uint64_t epoch = gcp_in_progress(graph) > 0 ? 0 : graph->launched;
	int result = 0;

	gcp_mutex_unlock(&tracker->lock);
	assert(gcp_ranks_held ==
	       0); /* the device, or another thread, may wait for us */
	if (epoch == 0)
		sched_yield();
	else
		result = gcp_pool_work_wait(pool, epoch);
	gcp_mutex_lock(&tracker->lock);
	return result;
}

int gcp_share_part(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = graph->track, *fresh;
	struct gcp_graph_pool *other;
	bool busy, stays;
	int result = 0;

	busy = gcp_share_in_flight(tracker, graph);
	stays = (busy || track->members == 1) && others_can_leave(tracker, graph);
	if (busy && !stays)
		return -EBUSY;
	fresh = gcp_track_create(tracker, graph->pool, false);
	if (!fresh)
		return busy ? -EBUSY : -ENOMEM;
	fresh->home = track->home;
	if (!stays)
		result = lane_change(tracker, graph, fresh);
	else
		while (result == 0 && track->members > 1) {
			other = TAILQ_FIRST(&track->graphs);
			other = other == graph ? TAILQ_NEXT(other, lane_link) : other;
			result = lane_change(tracker, other, fresh);
		}
	if (result != 0 || stays)
		gcp_track_tidy(tracker, fresh);
	if (result != 0)
		return busy ? -EBUSY : result; /* some of the others may have gone */
	assert(graph->track == (stays ? track : fresh));
	assert(graph->track->members == 1);
	(void)gcp_heap_keep_lane(
	    graph->heap);                    /* but it went with its context just now */
	assert(!gcp_heap_lane(graph->heap)); /* X7 */
	gcp_share_end(tracker, graph);
	return 0;
}

int gcp_share_take(struct gcp_tracker *tracker, struct gcp_graph_pool *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	int result = 0;

	graph->own = true;
	graph->held++; /* while the lock is let go */
	while (graph->shares && result == 0) {
		result = gcp_share_part(tracker, graph);
		if (result == -EBUSY)
			result = share_wait(tracker, graph);
	}
	graph->own = graph->unknown;
	assert(graph->held > 0); /* P1 */
	graph->held--;
	gcp_graph_pool_ref_released(tracker, graph);
	return graph->shares ? result : 0;
}

/* --- calls that are not seen ------------------------------------------------------ */

void gcp_share_captures_unseen(struct gcp_tracker *tracker)
{
	GCP_LOCKED(&tracker->lock);
	gcp_tracks_mark(tracker);
	atomic_store(&tracker->captures_unseen, true);
}

/* --- what is made of graphs ------------------------------------------------------- */

int gcp_share_made(struct gcp_tracker *tracker, struct gcp_holder *holding,
		   enum gcp_making making)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	unsigned shared = making == GCP_MAKING_EXEC, count;
	struct gcp_graph_pool *graph;
	int result = 0;

	if (making >= GCP_MAKING_COPY || !gcp_tracker_shares(tracker))
		return 0;
	while (result == 0 && (graph = gcp_share_held(holding, &count)) &&
	       count > shared)
		result = gcp_share_take(tracker, graph);
	assert(result != 0 || !gcp_share_held(holding, &count) ||
	       count <= shared); /* X4 */
	if (result == -ENOMEM)
		return GCP_CUDA_OUT_OF_MEMORY;
	return result > 0 ? result : 0; /* one whose context is gone needs none */
}

/* --- CUDA looks at the addresses -------------------------------------------------- */

int gcp_share_look(struct gcp_tracker *tracker, const struct gcp_holder *holding,
		   bool *ret_any)
{
	const struct gcp_graph_pool *graph;
	const struct gcp_hold *hold;
	int result = 0;

	*ret_any = false;
	if (!holding || !gcp_tracker_shares(tracker))
		return 0;
	GCP_LOCKED(&tracker->lock);
	assert(!holding->handle);
	SLIST_FOREACH (hold, &holding->holds, link) {
		graph = hold->graph_pool;
		*ret_any |= graph->shares;
		if (result == 0 && graph->shares)
			result = gcp_lane_enter(graph->track->lane, graph->heap);
	}
	return result;
}

/* --- what is read ----------------------------------------------------------------- */

void gcp_share_listed(struct gcp_tracker *tracker, const void *handle)
{
	struct gcp_graph_pool *graph;
	const struct gcp_hold *hold;
	struct gcp_holder *holder;

	(void)gcp_pools_captured_work(tracker->pools); /* it may be edited */
	if (!gcp_tracker_holds(tracker))
		return;
	GCP_LOCKED(&tracker->lock);
	holder = gcp_holder_find(tracker, handle, false);
	if (holder)
		holder = gcp_holder_root(holder);
	if (!handle || (holder && holder->stray))
		TAILQ_FOREACH (graph, &tracker->graph_pools, link)
			graph->listed |= graph->shares;
	if (holder)
		SLIST_FOREACH (hold, &holder->holds, link)
			hold->graph_pool->listed = true;
	assert(!holder || gcp_holder_root(holder) == holder); /* Y11 */
}

/* From the start again after each: the lock may have been let go. */
int gcp_share_read(struct gcp_tracker *tracker, bool unknown)
{
	struct gcp_graph_pool *graph;
	int result = 0;

	if (!unknown)
		atomic_store(&tracker->nodes_read, true);
	if (!gcp_tracker_shares(tracker))
		return 0;
	GCP_LOCKED(&tracker->lock);
	do {
		TAILQ_FOREACH (graph, &tracker->graph_pools, link)
			if (graph->shares &&
			    (unknown ? !graph->unknown : graph->listed))
				break;
		if (graph) {
			assert(graph->shares); /* X7 */
			graph->unknown |= unknown;
			result = gcp_share_take(tracker, graph);
		}
		assert(unknown || result != 0 || !graph || !graph->shares); /* X7 */
	} while (graph && (unknown || result == 0));
	return result;
}
