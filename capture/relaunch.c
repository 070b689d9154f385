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
 *   a second stream is in use: events stand behind launches from then on
 *   a launch fails: its stream says nothing until the next one
 *
 * What each launch may change, and so is asked here: the lane's latest launch is in the
 * same stream, and neither the graph nor another one of the lane is just being
 * launched.
 *
 * All that is done with tracker->word alone, which is taken once for a launch. Its end
 * is counted by the thread that takes the word next, with the lock or without:
 *
 *      thread that launches              thread that takes the word next
 *      --------------------              -------------------------------
 *      takes the word
 *      counts; under_way = true
 *      lets the word go
 *      the real launch
 *      under_way = false (release)
 *                                        takes the word
 *                                        under_way is false (acquire)
 *                                        reads the open epoch: the launch's
 *
 * The launch came before under_way = false, and so before the epoch was read: the fence
 * that closes that epoch is recorded behind it. It may be a later epoch than the one
 * that was open when the launch returned. Where it matters when the epoch is completed,
 * the thread that launches takes the word again, and counts at once: for default
 * streams, which other threads cannot ask, and without a lane. Of all others the stream
 * is asked, or an event stands behind the lane's latest launch before it cannot be
 * (gcp_tracks_mark).
 */
#include "share.h"

static struct gcp_relaunch *place_of(struct gcp_tracker *tracker, const void *exec)
{
	uint64_t mixed = (uint64_t)(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15);

	return &tracker->relaunches[mixed >> (64 - GCP_RELAUNCH_BITS)];
}

void gcp_launch_reset(struct gcp_tracker *tracker, const void *exec)
{
	place_of(tracker, exec)->exec = NULL;
}

void gcp_launch_note(struct gcp_tracker *tracker, const void *exec, void *stream)
{
	struct gcp_share *share = gcp_share_of_exec(tracker, exec);

	if (share && gcp_share_has_own(share))
		share = NULL;
	if (gcp_streams_may_capture(tracker) ||
	    (share && (share->own || tracker->several_streams)))
		return;
	*place_of(tracker, exec) = (struct gcp_relaunch){
	    .exec = exec,
	    .stream = stream,
	    .changes = tracker->changes,
	    .share = share,
	};
}

void gcp_launch_count_end(struct gcp_tracker *tracker)
{
	if (gcp_tracker_try(tracker)) {
		(void)gcp_again_end(tracker);
		gcp_tracker_let(tracker);
	} else {
		gcp_tracker_lock(tracker); /* which does it */
		gcp_tracker_unlock(tracker);
	}
}

/* Whether launch.c would find that the launch follows the one before it, and that the
 * graph stays where it is. */
static inline bool is_in_line(const struct gcp_share *share)
{
	const struct gcp_track *track = share->track;

	if (share->in_progress > 0)
		return false;
	return track ? track->last.stream_id == share->last.stream_id &&
			   track->in_progress == 0
		     : !gcp_share_is_bind_due(share);
}

/* What a default stream's handle means depends on the caller. */
static inline bool is_default_of(const struct gcp_share *share, const void *stream,
				 const void *ctx)
{
	return share->last.stream_id == gcp_stream_default_id(stream) &&
	       ctx == gcp_pool_context(share->pool);
}

/* As launch.c does; the stream is the same. */
static inline void count(struct gcp_tracker *tracker, struct gcp_share *share,
			 const void *exec, struct gcp_launch *launch)
{
	struct gcp_again *again = &tracker->again;
	struct gcp_track *track = share->track;

	again->share = share;
	again->tracked = track != NULL;
	atomic_store_explicit(&again->under_way, true, memory_order_relaxed);
	launch->share = share->id;
	launch->tracked = track != NULL;
	launch->under_way = &again->under_way;
	gcp_pool_count_graph_launch(share->pool);
	share->in_progress = 1;
	share->last_exec = exec;
	share->launches++;
	if (!track)
		return;
	track->owner = share;
	track->in_progress = 1;
	track->launches++;
}

/* ctx: of the default stream; or NULL, it is another stream. The word is held. */
static inline bool again(struct gcp_tracker *tracker, const void *exec, void *stream,
			 const void *ctx, struct gcp_launch *launch)
{
	const struct gcp_relaunch *relaunch = place_of(tracker, exec);
	struct gcp_share *share = relaunch->share;

	if (relaunch->exec != exec || relaunch->changes != tracker->changes)
		return false;
	if (!share)
		return true;
	if (relaunch->stream != stream || !gcp_again_end(tracker) ||
	    !is_in_line(share) || (ctx && !is_default_of(share, stream, ctx)))
		return false;
	count(tracker, share, exec, launch);
	launch->at_once = ctx || !launch->tracked;
	return true;
}

static __attribute__((noinline)) bool again_by_default(struct gcp_tracker *tracker,
						       const void *exec, void *stream,
						       struct gcp_launch *launch)
{
	/* Before the word is taken: the driver, or a tool that it calls, may end the
	 * thread. */
	const void *ctx = tracker->driver.stream_context(stream);
	bool counted;

	if (!ctx || !gcp_tracker_try(tracker))
		return false;
	counted = again(tracker, exec, stream, ctx, launch);
	gcp_tracker_let(tracker);
	return counted;
}

bool gcp_launch_again(struct gcp_tracker *tracker, const void *exec, void *stream,
		      struct gcp_launch *launch)
{
	bool counted;

	if (gcp_stream_is_default(stream))
		return again_by_default(tracker, exec, stream, launch);
	if (!gcp_tracker_try(tracker))
		return false;
	counted = again(tracker, exec, stream, NULL, launch);
	gcp_tracker_let(tracker);
	return counted;
}
