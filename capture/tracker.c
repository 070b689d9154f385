/* SPDX-License-Identifier: MIT */
/*
 * tracker.c - which captures are under way.
 *
 * Hears of begins and ends from the hooks and asks the driver for the rest: an
 * end that failed may have left the capture as it was, and a stream that is
 * destroyed takes its capture with it. Each capture under way holds fences off
 * (gcp_pools_fences_hold) from before its begin until after its end.
 *
 * Rules of captures:
 *  C1 no fence is recorded while a stream captures
 *  C2 no barrier is set while a stream captures
 *  C3 a capture is counted from before its begin until an end that CUDA accepts
 *  C4 the end of a stream ends the capture that was there before the real call
 *  C5 the library makes no call that a capture forbids, and keeps the thread's mode
 *  C6 nothing idle goes back to the driver while a stream captures
 *  C7 captured work is told before the real call
 */
#include "share.h"

/* --- begin ------------------------------------------------------------------------ */

int gcp_tracker_begin_prepare(struct gcp_tracker *tracker, bool into_graph,
			      struct gcp_capture **ret_capture)
{
	struct gcp_capture *capture = malloc(sizeof(*capture)); /* calloc is slower */

	if (!capture)
		return -ENOMEM;
	*capture = (struct gcp_capture){.into_existing_graph = into_graph};
	STAILQ_INIT(&capture->free_groups);
	assert(gcp_ranks_held == 0); /* fences are set */
	gcp_tracker_collect(tracker);
	gcp_pools_close_full(tracker->pools);
	gcp_mutex_lock(&tracker->lock);
	gcp_shares_bind(tracker);
	gcp_tracks_mark(tracker);
	atomic_fetch_add(&tracker->counts.capturing, 1);
	gcp_mutex_unlock(&tracker->lock);
	gcp_pools_eager_work(tracker->pools); /* none was counted until now */
	gcp_pools_fences_hold(tracker->pools);
	*ret_capture = capture;
	return 0;
}

/* A capture is over, or did not begin: fences may be set again. */
static void capturing_less(struct gcp_tracker *tracker)
{
	assert(atomic_load(&tracker->counts.capturing) > 0); /* C3 */
	gcp_pools_fences_release(tracker->pools);
	atomic_fetch_sub(&tracker->counts.capturing, 1);
}

/* lost: with its graph, but for one that was there before: what that held stays until
 * the program destroys it. */
static void capture_finish(struct gcp_tracker *tracker, struct gcp_capture *capture,
			   bool lost)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	bool own = lost && !capture->into_existing_graph && !capture->graph_gone;
	struct gcp_holder *graph =
	    own ? gcp_holder_find(tracker, capture->graph, false) : NULL;
	struct gcp_graph_pool *graph_pool = capture->pool;

	assert(capture->number > 0);                     /* it is in the list */
	assert(!graph || !capture->into_existing_graph); /* Y6 */
	if (graph)
		gcp_holder_free(tracker, graph);
	TAILQ_REMOVE(&tracker->captures, capture, link);
	gcp_graph_pool_detach_all(tracker, capture);
	capturing_less(tracker);
	gcp_share_capture_ends(tracker, capture, graph_pool);
	gcp_order_ends_free(capture);
	gcp_capture_destroy(capture);
	if (TAILQ_EMPTY(&tracker->captures))
		atomic_store(&tracker->handled_frees,
			     gcp_pools_captured_work(tracker->pools));
}

void gcp_tracker_begin_done(struct gcp_tracker *tracker, struct gcp_capture *capture,
			    void *ctx, void *stream, enum gcp_capture_mode mode,
			    int result)
{
	struct gcp_capture_state state = {0};
	bool known;

	assert(capture->number == 0); /* done comes once */
	GCP_LOCKED(&tracker->lock);
	known = result == 0 && tracker->driver.capture_state(ctx, stream, &state) == 0;
	/* Or another thread has ended it already, and did not find it. */
	if (result != 0 || (known && !state.active && !state.invalidated)) {
		gcp_capture_destroy(capture);
		capturing_less(tracker);
		return;
	}
	assert(stream); /* the legacy one never captures */
	capture->ctx = ctx;
	capture->stream = stream;
	capture->thread = gcp_thread_number();
	capture->mode = mode;
	assert(!capture->pool && !capture->common && capture->ending == 0);
	capture->id = state.id;
	capture->graph = state.active ? state.graph : NULL;
	/* Else its streams cannot be told from others; and in a graph that was there
	 * the ends do not follow all that has used the memory. */
	capture->forked = capture->order_unknown =
	    !known || capture->into_existing_graph;
	(void)gcp_order_stream_joined(tracker, capture, ctx, stream);
	assert(capture->lines == 1 || capture->order_unknown);
	capture->number = atomic_fetch_add(&tracker->counts.captures_begun, 1) + 1;
	assert(TAILQ_EMPTY(&tracker->captures) || /* C4: the latest is last */
	       TAILQ_LAST(&tracker->captures, gcp_capture_list)->number <
		   capture->number);
	if (capture->graph && !capture->into_existing_graph)
		gcp_holder_handle_is_new(tracker, capture->graph, false);
	capture->pool = gcp_graph_pool_thread_default(tracker);
	assert(!capture->pool || capture->pool->named);
	/* Frees count from the begin on. */
	if (capture->pool)
		gcp_graph_pool_join(tracker, capture->pool, capture);
	TAILQ_INSERT_TAIL(&tracker->captures, capture, link);
}

/* --- end ---------------------------------------------------------------------- */

/* A call may end the latest capture that has begun on the stream. Any other one there
 * is over, and the call that has ended it is about to tell. */
static uint64_t capture_ends(struct gcp_tracker *tracker, void *ctx, void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture = TAILQ_LAST(&tracker->captures, gcp_capture_list);

	while (capture && (capture->ctx != ctx || capture->stream != stream ||
			   ((uintptr_t)stream == GCP_STREAM_PER_THREAD &&
			    capture->thread != gcp_thread_number())))
		capture = TAILQ_PREV(capture, gcp_capture_list, link);
	if (!capture)
		return 0;
	capture->ending++;
	return capture->number;
}

/* Whether CUDA still builds this capture: the end may have been refused. Where CUDA
 * does not say, a capture whose end says so is over, and any other goes on, which
 * a fence would destroy. *end: what has become of it for certain. */
static bool capture_goes_on(struct gcp_tracker *tracker,
			    const struct gcp_capture *capture, enum gcp_end *end)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture_state state = {0};

	assert(capture->ending > 0); /* C3 */
	if (*end >= GCP_END_SURE)
		return false;
	if (tracker->driver.capture_state(capture->ctx, capture->stream, &state) != 0)
		return *end != GCP_END_LOST;
	if (*end == GCP_END_LOST && !state.active && !state.invalidated)
		*end = GCP_END_GONE;
	return (state.active || state.invalidated) &&
	       gcp_capture_may_be(capture, state.id);
}

uint64_t gcp_tracker_end_prepare(struct gcp_tracker *tracker, void *ctx, void *stream)
{
	GCP_LOCKED(&tracker->lock);
	return capture_ends(tracker, ctx, stream);
}

void gcp_tracker_end_done(struct gcp_tracker *tracker, void *ctx, void *stream,
			  uint64_t number, enum gcp_end end)
{
	struct gcp_graph_heap *entry;
	struct gcp_capture *capture;

	assert(gcp_ranks_held == 0);              /* barriers may wait */
	if (number == 0 && end == GCP_END_SURE) { /* it was noted only meanwhile */
		number = gcp_tracker_end_prepare(tracker, ctx, stream);
		end = GCP_END_REFUSED; /* or a later one was */
	}
	gcp_mutex_lock(&tracker->lock);
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->number == number)
			break;
	assert(!capture || capture->ending > 0); /* C4: end_prepare has found it */
	if (capture && !capture_goes_on(tracker, capture, &end)) {
		/* Work that the program submitted itself, on any stream, may still
		 * touch blocks that this capture was given after they had been freed.
		 * All that is launched later, this graph too, has to wait for it. */
		if (capture->pool)
			SLIST_FOREACH (entry, &capture->pool->heaps, link)
				gcp_heap_capture_ends(entry->heap);
		/* Another call that is under way may have ended it well: the graph is
		 * the program's then. */
		capture_finish(tracker, capture,
			       end == GCP_END_GONE && capture->ending == 1);
	} else if (capture) {
		capture->ending--; /* it was refused */
	}
	gcp_mutex_unlock(&tracker->lock);
	/* Before the hook returns, so before any thread can launch the graph. */
	gcp_pools_barriers_due(tracker->pools);
	gcp_tracker_collect(tracker);
}

/* A stream, or a context (NULL) with its streams, is about to go. */
static void stream_goes(struct gcp_tracker *tracker, void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t gone = gcp_tracker_streams_gone(tracker);

	tracker->gone[gone % GCP_GONE_KEPT] = stream;
	atomic_store(&tracker->counts.streams_gone, gone + 1);
}

uint64_t gcp_tracker_stream_ending(struct gcp_tracker *tracker, void *ctx, void *stream)
{
	struct gcp_capture *capture;

	GCP_LOCKED(&tracker->lock);
	gcp_tracks_stream_ends(tracker, stream);
	stream_goes(tracker, stream);
	TAILQ_FOREACH (capture, &tracker->captures, link)
		gcp_order_gone(capture, NULL, stream);
	return capture_ends(tracker, ctx, stream);
}

void gcp_tracker_context_ending(struct gcp_tracker *tracker)
{
	if (!gcp_tracker_shares(tracker))
		return;
	GCP_LOCKED(&tracker->lock);
	gcp_tracks_mark(tracker);
}

void gcp_tracker_context_gone(struct gcp_tracker *tracker, void *ctx)
{
	struct gcp_capture *capture, *next;

	GCP_LOCKED(&tracker->lock);
	stream_goes(tracker, NULL);
	for (capture = TAILQ_FIRST(&tracker->captures); capture; capture = next) {
		next = TAILQ_NEXT(capture, link);
		assert(capture->number > 0); /* C4 */
		if (capture->ctx == ctx)
			capture_finish(tracker, capture, true);
		else
			gcp_order_gone(capture, ctx, NULL);
	}
}

/* --- forks -------------------------------------------------------------------- */

/* From here on what is freed waits for a proof, or for the capture's end. */
static void capture_forks(struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	if (capture->forked)
		return;
	capture->forked = true;
	if (capture->pool)
		gcp_graph_pool_set_reuse(capture->pool, GCP_REUSE_LATER);
	assert(!capture->pool || capture->pool->reuse != GCP_REUSE_NOW); /* G4 */
}

/* The program may add work anywhere, or CUDA does not say where it did. What was proved
 * before holds no more either: the next work may follow nothing. */
static void order_revoke(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	gcp_order_all_work(tracker, capture);
	if (capture->order_revoked)
		return; /* nothing was proved since */
	capture->order_revoked = capture->order_unknown = true;
	capture->forked = false;
	capture_forks(capture);
	assert(capture->forked && capture->order_unknown); /* G7 */
}

void gcp_tracker_order_unknown(struct gcp_tracker *tracker, bool graph_taken)
{
	struct gcp_capture *capture;

	(void)gcp_pools_captured_work(tracker->pools);
	GCP_LOCKED(&tracker->lock);
	TAILQ_FOREACH (capture, &tracker->captures, link) {
		capture->graph_taken |= graph_taken;
		order_revoke(tracker, capture);
	}
}

/* The stream's end in the capture that it takes part in; NULL: it takes part in none,
 * or there is no memory, and the order is lost. *ret_result: an error if the stream's
 * work would have to follow memory that was released, and cannot: it has no end, or the
 * driver does not say, whose CUresult that is. */
static struct gcp_open_end *end_of_stream(struct gcp_tracker *tracker, void *stream,
					  int *ret_result)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end = gcp_order_end_known(tracker, stream);
	struct gcp_capture_state state = {0};
	struct gcp_capture *capture;
	int asked;
	void *ctx;

	*ret_result = 0;
	if (end)
		return end;
	ctx = tracker->driver.stream_context(stream);
	asked = tracker->driver.capture_state(ctx, stream, &state);
	TAILQ_FOREACH (capture, &tracker->captures, link) {
		/* One without a number is lost to order anyway. */
		if (asked == 0 && (!state.active || capture->id != state.id))
			continue;
		if (asked == 0)
			end = gcp_order_stream_joined(tracker, capture, ctx, stream);
		if (end)
			break;
		order_revoke(tracker, capture);
		if (capture->released)
			*ret_result = asked ? asked : GCP_CUDA_OUT_OF_MEMORY;
	}
	assert(!end || end->capture == capture);        /* G5 */
	assert(!end || (end->handle && end->line > 0)); /* G5 */
	return end;
}

void gcp_tracker_graph_given(struct gcp_tracker *tracker, void *stream, bool set)
{
	struct gcp_open_end *end;
	int result;

	(void)gcp_pools_captured_work(tracker->pools);
	GCP_LOCKED(&tracker->lock);
	end = end_of_stream(tracker, stream, &result);
	if (!end)
		return;
	end->capture->graph_taken = true;
	end->capture->stuck = false; /* its streams may follow more now */
	capture_forks(end->capture);
	assert(end->capture->forked); /* G4 */
	if (set)
		gcp_order_stream_set(tracker, end);
}

int gcp_tracker_node_added(struct gcp_tracker *tracker, const void *graph, void *node)
{
	struct gcp_capture *capture;
	int result = 0;

	assert(graph && node);
	(void)gcp_pools_captured_work(tracker->pools);
	GCP_LOCKED(&tracker->lock);
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->graph == graph && !capture->graph_gone)
			result = gcp_order_node_added(tracker, capture, node);
	return result;
}

bool gcp_tracker_gives_again(struct gcp_tracker *tracker)
{
	const struct gcp_capture *capture;

	GCP_LOCKED(&tracker->lock);
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->pool && !SLIST_EMPTY(&capture->pool->heaps))
			break;
	assert(!capture || capture->pool->captures > 0); /* P1 */
	return capture;
}

void gcp_tracker_node_gone(struct gcp_tracker *tracker, const void *node)
{
	struct gcp_capture *capture;

	GCP_LOCKED(&tracker->lock);
	TAILQ_FOREACH (capture, &tracker->captures, link) {
		struct gcp_free_group *released = capture->released;

		for (size_t i = 0; released && i < released->count; i++)
			if (released->nodes[i] == node)
				released->nodes[i--] =
				    released->nodes[--released->count];
		if (capture->graph_taken) /* its handle may be another one's */
			order_revoke(tracker, capture);
	}
}

int gcp_tracker_joined(struct gcp_tracker *tracker, void *stream, const void *event)
{
	struct gcp_open_end *end;
	int result;

	GCP_LOCKED(&tracker->lock);
	end = end_of_stream(tracker, stream, &result);
	if (!end)
		return result;
	capture_forks(end->capture);
	assert(end->capture->forked); /* G4 */
	return gcp_order_stream_waited(tracker, end, event);
}

int gcp_tracker_work_captured(struct gcp_tracker *tracker, void *stream)
{
	uint64_t freed = gcp_pools_captured_work(tracker->pools);
	struct gcp_open_end *end;
	int result;

	if (freed == atomic_load(&tracker->handled_frees))
		return 0;
	GCP_LOCKED(&tracker->lock);
	end = end_of_stream(tracker, stream, &result);
	assert(result == 0 || !end); /* G6 */
	return end ? gcp_order_stream_works(tracker, end, freed) : result;
}

/* A stream may be made to wait for the event later, and then starts here:
 * before what is freed and given out again from now on. */
void gcp_tracker_event_recording(struct gcp_tracker *tracker, void *stream,
				 const void *event)
{
	struct gcp_open_end *end;
	int result;

	GCP_LOCKED(&tracker->lock);
	end = end_of_stream(tracker, stream, &result);
	if (!end)
		return;
	capture_forks(end->capture);
	assert(end->capture->forked); /* G4 */
	gcp_order_event_recording(tracker, end, event);
}
