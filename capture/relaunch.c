/* SPDX-License-Identifier: MIT */
/*
 * relaunch.c - launches that need nothing but to be counted: of an executable that was
 * launched into the same stream before, and nothing has changed since.
 *
 * launch.c looks at each launch under tracker->lock, asks the driver for the stream's
 * number, and pool/ whether the scratch is where it should be. Most launches of most
 * programs go the same way as the time before. What launch.c found is so noted by the
 * executable, with tracker->changes, which everything moves on that a launch depends
 * on:
 *
 *   a stream or a context goes (its handle may be given out again)
 *   a capture begins; while one is under way nothing is noted
 *   an executable gets or loses its share; a share gets memory of its own, or ends
 *   scratch moves to another lane, or a lane gives its memory back
 *   a second stream is in use: events stand behind the launches of a lane that has
 *   several graphs
 *   a launch fails: its stream says nothing until the next one
 *
 * What each launch may change, and so is asked here: the lane's latest launch is in the
 * lane's stream, and no crossing is just being launched.
 *
 * All that is done with tracker->word alone.
 */
#include "share.h"

static struct gcp_relaunch *place_of(struct gcp_tracker *tracker, const void *exec)
{
	uint64_t mixed = (uint64_t)(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15);

	return &tracker->relaunches[mixed >> (64 - GCP_RELAUNCH_BITS)];
}

void gcp_launch_reset(struct gcp_tracker *tracker, const void *exec)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	place_of(tracker, exec)->exec = NULL;
}

void gcp_launch_note(struct gcp_tracker *tracker, const void *exec, void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	unsigned count;
	struct gcp_share *share = gcp_share_of_exec(tracker, exec, &count);
	const struct gcp_track *track = share ? share->track : NULL;

	assert(exec && count <= 1); /* an empty place has none; X4 */
	if (gcp_streams_may_capture(tracker) || (share && share->own) ||
	    (track && (track->stream_id != share->stream_id ||
		       (track->members > 1 && tracker->several_streams))))
		return;
	*place_of(tracker, exec) = (struct gcp_relaunch){
	    .exec = exec,
	    .stream = stream,
	    .changes = tracker->changes,
	    .share = share,
	};
}

/* Returns true if launch.c would find that the launch follows the one before it. */
static inline bool is_in_line(const struct gcp_share *share)
{
	const struct gcp_track *track = share->track;

	assert(!track || track->lane); /* X1 */
	return !track ||
	       (track->last.stream_id == track->stream_id && track->crossings == 0);
}

/* A default stream's handle names the stream of the caller's context, which is `ctx`;
 * and a graph that is in no lane may have to be brought into one. */
static bool is_unchanged(const struct gcp_share *share, const void *stream,
			 const void *ctx)
{
	return (share->track || !gcp_share_is_bind_due(share)) &&
	       (!gcp_stream_is_default(stream) ||
		(share->stream_id == gcp_stream_default_id(stream) &&
		 ctx == gcp_pool_context(share->pool)));
}

bool gcp_launch_again(struct gcp_tracker *tracker, const void *exec, void *stream,
		      struct gcp_launch *launch)
{
	const struct gcp_relaunch *relaunch = place_of(tracker, exec);
	const void *ctx = NULL;
	struct gcp_share *share;
	bool again;

	/* Before the word is taken: the driver, or a tool that it calls, may end the
	 * thread. */
	if (gcp_stream_is_default(stream))
		ctx = tracker->driver.stream_context(stream);
	if (!gcp_tracker_try(tracker))
		return false;
	share = relaunch->share;
	again = relaunch->exec == exec && relaunch->changes == tracker->changes &&
		(!share || (relaunch->stream == stream && is_in_line(share) &&
			    is_unchanged(share, stream, ctx)));
	if (again && share) {
		assert(share->graph_pool->share == share && !share->own); /* X7 */
		launch->changes = relaunch->changes;
		gcp_launch_count(share, exec, launch);
	}
	gcp_tracker_let(tracker);
	return again;
}

bool gcp_launch_again_ended(struct gcp_tracker *tracker,
			    const struct gcp_launch *launch)
{
	struct gcp_share *share = launch->at;
	bool same = gcp_tracker_try(tracker);

	if (!same)
		return false;
	same = launch->changes == tracker->changes;
	assert(!same || (share->id == launch->share && !launch->crosses));
	if (same)
		gcp_launch_uncount(share);
	gcp_tracker_let(tracker);
	return same;
}
