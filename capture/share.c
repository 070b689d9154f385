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
 * that graph, however the executable was made. What else can use the memory (taken.c),
 * or run it where its launches are not seen (launched into a capture, or into a stream
 * of another context; an unknown function was called), gives the graph memory of its
 * own permanently before it happens: gcp_share_take.
 *
 * Memory moves into a lane when nothing can be on its way there: no launch, and none of
 * the work that the program submitted beside the capture. That is asked, and never
 * waited for: when a graph is destroyed, when a capture begins, when memory is out, and
 * at launches. Graphs that were not launched yet are in the lane without a stream.
 */
#include <sched.h>

#include "share.h"

/* Returns true if only this capture has had the graph pool, whose memory is mapped by
 * the library, in one heap. */
static bool is_sealable(const struct gcp_graph_pool *graph_pool)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_graph_heap *entry = SLIST_FIRST(&graph_pool->heaps);

	if (graph_pool->named || graph_pool->once || graph_pool->shared ||
	    graph_pool->into_existing_graph || graph_pool->captures != 1 ||
	    graph_pool->graphs != 1 || graph_pool->share)
		return false;
	return entry && !SLIST_NEXT(entry, link) && gcp_pool_is_mapped(entry->pool);
}

static void share_create(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
			 void *graph)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_graph_heap *entry = SLIST_FIRST(&graph_pool->heaps);
	struct gcp_share *share = calloc(1, sizeof(*share));

	assert(entry && graph_pool->graphs == 1 && !graph_pool->share);
	assert(graph && graph_pool->captures == 1);      /* X3: nothing more comes */
	assert(!graph_pool->named && !graph_pool->once); /* X7: others use it */
	if (!share)
		return;
	*share = (struct gcp_share){
	    .id = ++tracker->last_share,
	    .graph_pool = graph_pool,
	    .pool = entry->pool,
	    .heap = entry->heap,
	    .graph = graph,
	    .unbound = true,
	};
	assert(gcp_pool_is_mapped(share->pool));
	gcp_heap_seal(share->heap);
	graph_pool->share = share;
	TAILQ_INSERT_HEAD(&tracker->shares, share, link);
	TAILQ_INSERT_HEAD(&tracker->unbound, share, unbound_link);
	atomic_fetch_add(&tracker->counts.shares, 1);
	/* A fence behind what was submitted beside the capture. */
	(void)gcp_pool_work_is_done(share->pool, UINT64_MAX, true);
}

/* A capture whose graph the program has had in its hands may go on anywhere. */
void gcp_share_capture_ends(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_hold *hold;

	if (!atomic_load(&tracker->sharing) || !capture->graph ||
	    capture->graph_taken || capture->into_existing_graph)
		return;
	SLIST_FOREACH (hold, &capture->holds, link)
		if (is_sealable(hold->graph_pool))
			share_create(tracker, hold->graph_pool, capture->graph);
}

/* The driver is asked without the lock. */
void gcp_share_captured(struct gcp_tracker *tracker, void *graph)
{
	struct gcp_node_handles *nodes = NULL;
	const struct gcp_holder *holder;
	const struct gcp_hold *hold;
	struct gcp_share *share;
	uint64_t id = 0;

	if (!graph || !gcp_tracker_shares(tracker))
		return;
	gcp_tracker_lock(tracker);
	holder = gcp_holder_find(tracker, graph, false);
	if (holder)
		SLIST_FOREACH (hold, &holder->holds, link) {
			share = hold->graph_pool->share; /* or it is a child's */
			id = share && share->graph == graph ? share->id : id;
		}
	gcp_tracker_unlock(tracker);
	assert(gcp_ranks_held == 0); /* there may be many nodes */
	if (id == 0 || tracker->driver.graph_nodes(graph, &nodes) != 0)
		return;
	GCP_TRACKER_LOCKED(tracker);
	share = gcp_share_by_id(tracker, id);
	assert(!share || !share->nodes);
	if (share)
		share->nodes = nodes;
	else
		free(nodes);
}

void gcp_share_left(struct gcp_share *share, const struct gcp_holder *holder)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (holder->is_exec && share->track && share->track->exec == holder->handle)
		share->track->exec = NULL; /* no launch follows its launches */
	if (holder->is_exec || share->graph != holder->handle)
		return;
	share->graph = NULL;
	free(share->nodes);
	share->nodes = NULL;
}

/* --- into lanes ----------------------------------------------------------------- */

/* Its scratch becomes a lane where it is, and then a part of the stream's, whose memory
 * may be in use: only this graph's addresses change. */
void gcp_share_bind(struct gcp_tracker *tracker, struct gcp_share *share,
		    const struct gcp_last *last)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track, *there;
	int result;

	/* With several contexts no fence of one tells of the work in another. */
	if (share->own || share->track || !gcp_pool_is_only(share->pool) ||
	    gcp_share_in_flight(tracker, share))
		return;
	there = gcp_track_of(tracker, share->pool, last->stream_id);
	if (!there && (there = gcp_track_of(tracker, share->pool, 0)) != NULL &&
	    !gcp_track_take(tracker, there, last))
		there = NULL;
	track = gcp_track_create(tracker, share->pool);
	if (!track)
		return;
	assert(share->in_progress == 0); /* X2 */
	result = gcp_heap_share(share->heap, track->lane);
	if (result == -EBUSY) { /* work beside the capture: that is asked for once */
		(void)gcp_pool_work_is_done(share->pool, UINT64_MAX, true);
		result = gcp_heap_share(share->heap, track->lane);
	}
	if (result != 0) {
		gcp_track_tidy(tracker, track);
		if (result != -EBUSY)
			gcp_share_end(tracker, share); /* it has nothing to share */
		return;
	}
	gcp_share_unlist(tracker, share);
	gcp_share_move(tracker, share, track);
	if (there && gcp_lane_enter(there->lane, share->heap) == 0)
		gcp_share_move(tracker, share, there);
	else
		(void)gcp_track_take(tracker, track, last);
	GCP_CAPTURE_LOG(tracker, "graph pool %llu shares its scratch",
			(unsigned long long)share->graph_pool->id);
}

void gcp_shares_bind(struct gcp_tracker *tracker, unsigned tries)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_share *last = TAILQ_LAST(&tracker->unbound, gcp_unbound);
	struct gcp_share *share;
	bool more = last != NULL;

	while (more && tries-- > 0 && (share = TAILQ_FIRST(&tracker->unbound))) {
		more = share != last;
		TAILQ_REMOVE(&tracker->unbound, share, unbound_link);
		TAILQ_INSERT_TAIL(&tracker->unbound, share, unbound_link);
		if (!share->updated)
			gcp_share_bind(tracker, share, &share->last);
	}
}

/* --- own memory --------------------------------------------------------------- */

int gcp_share_map(struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return share->track ? gcp_lane_enter(share->track->lane, share->heap) : 0;
}

/* It is idle. */
static int share_leave(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_lane *lane;
	int result = gcp_lane_create(share->pool, &lane);

	assert(share->track && share->in_progress == 0); /* X2 */
	if (result != 0)
		return result;
	result = gcp_lane_enter(lane, share->heap);
	if (result == 0) {
		gcp_lane_heap_ends(share->heap);
		assert(!gcp_heap_lane(share->heap)); /* X7 */
		gcp_share_end(tracker, share);
	}
	gcp_lane_destroy(lane);
	return result;
}

/* All other graphs of its lane can leave it, and none that has ended still runs there.
 */
static bool others_are_idle(struct gcp_tracker *tracker, const struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_share *other;

	TAILQ_FOREACH (other, &tracker->shares, link)
		if (other != share && other->track == share->track &&
		    gcp_share_in_flight(tracker, other))
			return false;
	return !gcp_lane_has_ended(share->track->lane); /* X5 */
}

/* The graph keeps the lane's memory, and the others go to a new lane of the same
 * stream. Else -EBUSY: some of them may have gone. */
static int others_leave(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_track *track = share->track, *fresh = NULL;
	struct gcp_share *other;
	int result = 0;

	if (gcp_heap_lane(share->heap) == track->lane &&
	    others_are_idle(tracker, share))
		fresh = gcp_track_create(tracker, share->pool);
	if (!fresh)
		return -EBUSY;
	fresh->stream_id = track->stream_id;
	fresh->stream = track->stream;
	TAILQ_FOREACH (other, &tracker->shares, link) {
		if (result != 0 || other == share || other->track != track)
			continue;
		assert(other->in_progress == 0); /* X2 */
		result = gcp_lane_enter(fresh->lane, other->heap);
		if (result == 0)
			gcp_share_move(tracker, other, fresh);
	}
	if (result == 0) {
		assert(track->members == 1); /* and the lane goes */
		gcp_lane_heap_ends(share->heap);
		gcp_share_end(tracker, share);
	}
	gcp_track_tidy(tracker, fresh);
	return result == 0 ? 0 : -EBUSY;
}

/* Waits for calls that launch it, or for its latest launch. The lock is let go
 * meanwhile. */
static int share_wait(struct gcp_tracker *tracker, const struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_pool *pool = share->pool;
	uint64_t epoch = share->last.epoch;
	bool in_progress = share->in_progress > 0;
	int result = 0;

	gcp_tracker_unlock(tracker);
	assert(gcp_ranks_held ==
	       0); /* the device, or another thread, may wait for us */
	if (in_progress)
		sched_yield();
	else
		result = gcp_pool_work_wait(pool, epoch);
	gcp_tracker_lock(tracker);
	return result;
}

int gcp_share_part(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(!share->track || !share->unbound);
	if (!share->track) {
		gcp_share_end(tracker, share);
		return 0;
	}
	if (!gcp_share_in_flight(tracker, share))
		return share_leave(tracker, share);
	if (share->in_progress > 0 && share->track->event)
		return -EBUSY; /* a call has it, and is to record it */
	return others_leave(tracker, share);
}

int gcp_share_take(struct gcp_tracker *tracker, struct gcp_share *share)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t id = share->id;
	int result = -EBUSY;

	gcp_share_unlist(tracker, share);
	share->own = true;
	while (share && (result = gcp_share_part(tracker, share)) == -EBUSY) {
		result = share_wait(tracker, share);
		share = gcp_share_by_id(tracker, id);
		if (result != 0)
			break;
	}
	if (share && result != 0) /* else it has ended */
		share->own = share->unseen;
	return share ? result : 0;
}

/* --- calls that are not seen ------------------------------------------------------ */

/* A share that is made its own may end while the lock is let go: from the start then.
 */
void gcp_share_all_taken(struct gcp_tracker *tracker)
{
	struct gcp_share *share;

	if (!gcp_tracker_shares(tracker))
		return;
	GCP_TRACKER_LOCKED(tracker);
	do {
		TAILQ_FOREACH (share, &tracker->shares, link)
			if (!share->unseen)
				break;
		if (share) {
			share->unseen = true;
			(void)gcp_share_take(tracker, share);
		}
	} while (share);
}

void gcp_share_captures_unseen(struct gcp_tracker *tracker)
{
	GCP_TRACKER_LOCKED(tracker);
	gcp_tracks_mark(tracker);
	atomic_store(&tracker->captures_unseen, true);
}

void gcp_tracker_share_graphs(struct gcp_tracker *tracker, bool sharing)
{
	atomic_store(&tracker->sharing, sharing);
}
