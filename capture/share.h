/* SPDX-License-Identifier: MIT */
/*
 * share.h - lanes, and graph pools of graphs whose scratch may lie in one: share.c,
 * track.c and launch.c.
 * Included by the files of capture/ only. tracker->lock guards all of it.
 */
#ifndef GCP_CAPTURE_SHARE_H
#define GCP_CAPTURE_SHARE_H

#include "capture_types.h"

/* A lane: the memory of graphs that are launched into one stream. CUDA keeps the order
 * of these launches. A graph that is launched into another stream leaves the lane;
 * until it can, its launches there are crossings: they follow what was launched on the
 * lane, and what is launched next follows them (X1). X10 while a crossing is in
 * progress no other launch is */
struct gcp_track {
	uint64_t id;
	struct gcp_lane *lane;
	struct gcp_pool *pool;
	uint64_t life;        /* of the pool, in which the lane was made */
	struct gcp_last home; /* its stream; no id: it has none yet, or that has gone;
			       * the next one that a graph of it is launched into takes
			       * its place */
	struct gcp_graph_pool_list graphs; /* whose scratch is there */
	uint32_t members;                  /* how many that are */
	uint64_t ended;        /* epoch: behind it is what graphs run here that ended */
	const void *exec;      /* launched last; NULL: not known (of calls in progress
				* any may be), or gone */
	struct gcp_last last;  /* the latest launch; of a crossing: in that stream */
	uint64_t begins;       /* of calls that launch its graphs */
	_Atomic uint64_t ends; /* a call ends here before it ends in its graph */
	_Atomic uint64_t launched; /* as a graph's */
	uint32_t crossings;        /* of those in progress */
	/* Stands behind the latest launch, if `marked`: where graphs of the lane may be
	 * launched into other streams, and beside captures. */
	void *event;
	bool marked;
	bool fresh; /* of one graph, where it was captured; nothing looks for it */
	TAILQ_ENTRY(gcp_track) link; /* tracker->fresh, or tracker->tracks */
};

/* --- track.c; tracker->lock is held ------------------------------------------- */

/* Of the graphs whose memory it holds one that shares, and how many do. */
struct gcp_graph_pool *gcp_share_held(struct gcp_holder *holder, unsigned *ret_count);
struct gcp_graph_pool *gcp_share_of_exec(struct gcp_tracker *tracker, const void *exec,
					 unsigned *ret_count);
/* It shares no more: its heap is in no lane, or is gone. */
void gcp_share_end(struct gcp_tracker *tracker, struct gcp_graph_pool *graph);
/* With an empty lane, which has no stream; fresh: for a graph that was just captured.
 * NULL: no memory. */
struct gcp_track *gcp_track_create(struct gcp_tracker *tracker, struct gcp_pool *pool,
				   bool fresh);
/* In the records only. The lane that the graph leaves goes with its last graph. */
void gcp_share_move(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    struct gcp_track *track);
/* The lane goes if no graph is in it. */
void gcp_track_tidy(struct gcp_tracker *tracker, struct gcp_track *track);

/* Default streams have a handle for all contexts, and for all threads: they have
 * numbers of their own, and the context is to be asked for at each launch. */
enum { GCP_STREAM_PER_THREAD = 2 };
static inline bool gcp_stream_is_default(const void *stream)
{
	return (uintptr_t)stream <= GCP_STREAM_PER_THREAD;
}
static inline bool gcp_stream_is_legacy(const void *stream)
{
	return (uintptr_t)stream < GCP_STREAM_PER_THREAD;
}
uint64_t gcp_stream_default_id(const void *stream);
/* The event behind the lane's latest launch, recorded now if it was not: behind all of
 * its stream then, or of the context, if the stream may have gone. NULL: there is none,
 * because a capture is under way, or no two graphs of the lane were launched. */
void *gcp_track_record(struct gcp_tracker *tracker, struct gcp_track *track);
/* The lane's event; NULL: there is none, or it has gone with its context. */
void *gcp_track_event(const struct gcp_track *track);
/* Soon the streams of launches cannot be asked, nor an event be recorded there: a
 * capture is about to begin, or a context to go. Else a launch that has to follow would
 * wait for all work of the context; beside a capture the host would.
 * Both calls wait where the launch queue of the context is full. */
void gcp_tracks_mark(struct gcp_tracker *tracker);
/* A stream is about to go, and to be counted: the same, but only of launches into that
 * stream. All others can be asked for as before. */
void gcp_tracks_stream_ends(struct gcp_tracker *tracker, const void *stream);
/* Returns true if the graph may be running, or about to run. */
bool gcp_share_in_flight(struct gcp_tracker *tracker, struct gcp_graph_pool *graph);
/* Returns true if nothing runs on the lane. Asks the device. */
bool gcp_track_is_idle(struct gcp_tracker *tracker, struct gcp_track *track);

/* --- share.c; tracker->lock is held ------------------------------------------- */

/* The capture has left its graph pools, of which `graph` was its own (NULL: none): its
 * graph may share, or not. */
void gcp_share_capture_ends(struct gcp_tracker *tracker,
			    const struct gcp_capture *capture,
			    struct gcp_graph_pool *graph);
/* Brings a graph into a lane if that is possible by now: tries one, in turn. */
void gcp_shares_bind(struct gcp_tracker *tracker);
/* Called with the graph idle. Brings it into the lane of the stream (0: one without),
 * if need be a new one. An error: it is where it was, or in no lane. */
int gcp_share_enter(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    const struct gcp_last *last);
/* The same for one in a fresh lane, if that is possible. */
void gcp_share_bind(struct gcp_tracker *tracker, struct gcp_graph_pool *graph,
		    const struct gcp_last *last);
/* The graph gets memory of its own, and shares no more: it leaves its lane if it is
 * idle and not alone there, else all others do if they are idle. -EBUSY: one of them is
 * not. Another error: it is where it was, or in no lane (gcp_heap_lane). */
int gcp_share_part(struct gcp_tracker *tracker, struct gcp_graph_pool *graph);
/* The graph's memory may be used otherwise than by launches that are seen: it gets
 * memory of its own, and shares no more. The lock is let go where its latest launch has
 * to be waited for. 0, or why it has none, for this time. */
int gcp_share_take(struct gcp_tracker *tracker, struct gcp_graph_pool *graph);

/* The graphs in `holding` are about to be used that way: see gcp_holding_begin. */
int gcp_share_made(struct gcp_tracker *tracker, struct gcp_holder *holding,
		   enum gcp_making making);

#endif
