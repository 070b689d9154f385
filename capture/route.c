/* SPDX-License-Identifier: MIT */
/*
 * route.c - to which captures an allocation belongs while captures are under way.
 *
 *   1. to the captures that the calling thread began;
 *   2. else to the capture of the stream that the thread last gave work to;
 *   3. else, where plain CUDA would have refused the allocation, to the
 *      captures that made it illegal: the global ones, if the thread's own mode
 *      is global too;
 *   4. else to none: the common heap.
 *
 * Such a block is either the graph's own or an eager allocation's. The graph's own is
 * for captured work: once freed it may be given out again by the order of the graph.
 * Where plain CUDA would have allowed the allocation (the mode of the capture or
 * of the thread is relaxed), or only the stream that a thread worked on speaks for
 * captured work (2), or against it (1), or the thread has no part in it (3), the
 * block may be for work that runs right now: then it comes from a second pool
 * that the graph holds as well, and that gives out nothing twice, for captured work
 * may have used it. Only where the program has named the pool is it taken at its word.
 *
 * With several candidates a block is held by all of them: it comes from a
 * graph pool that they share. Too many holders only keep memory longer; memory
 * of a graph in the common heap would be corruption.
 *
 * tracker->lock is held.
 */
#include "capture_types.h"

enum { CANDIDATES_MAX = 64 };

struct candidates {
	struct gcp_capture *captures[CANDIDATES_MAX];
	size_t count;
	bool overflow;
	bool eager;
};

static void candidate_add(struct candidates *candidates, struct gcp_capture *capture)
{
	if (capture->ending)
		return;
	if (candidates->count == CANDIDATES_MAX)
		candidates->overflow = true;
	else
		candidates->captures[candidates->count++] = capture;
}

static void add_of_thread(struct gcp_tracker *tracker, struct candidates *candidates)
{
	struct gcp_capture *capture;

	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->thread == gcp_thread_number())
			candidate_add(candidates, capture);
}

/* False: the thread's last stream is not known, or CUDA does not say. */
static bool hint_ask(struct gcp_tracker *tracker, void *ctx,
		     struct gcp_stream_hint hint, struct gcp_capture_state *ret_state)
{
	bool known;

	*ret_state = (struct gcp_capture_state){0};
	if (!hint.stream || !gcp_streams_hold(tracker))
		return false;
	known = hint.gone == gcp_tracker_streams_gone(tracker) &&
		tracker->driver.capture_state(ctx, hint.stream, ret_state) == 0;
	gcp_streams_release(tracker);
	return known;
}

/* Whether what the calling thread did last was not captured. */
static bool works_elsewhere(struct gcp_tracker *tracker, void *ctx,
			    struct gcp_stream_hint hint)
{
	struct gcp_capture_state state;

	return hint_ask(tracker, ctx, hint, &state) && !state.active &&
	       !state.invalidated;
}

/* A stream may have joined a capture that was begun on another one. */
static void add_of_stream(struct gcp_tracker *tracker, void *ctx,
			  struct gcp_stream_hint hint, struct candidates *candidates)
{
	struct gcp_capture_state state;
	struct gcp_capture *capture;

	if (!hint_ask(tracker, ctx, hint, &state))
		return;
	if (!state.active && !state.invalidated)
		return;
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (gcp_capture_may_be(capture, state.id))
			candidate_add(candidates, capture);
}

static void add_forbidding(struct gcp_tracker *tracker, struct candidates *candidates)
{
	struct gcp_capture *capture;

	if (tracker->driver.thread_mode() != GCP_CAPTURE_GLOBAL)
		return;
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->mode == GCP_CAPTURE_GLOBAL)
			candidate_add(candidates, capture);
}

/* Whether plain CUDA allows the calling thread to allocate during this capture. */
static bool capture_allows(const struct gcp_capture *capture, int thread_mode)
{
	if (capture->mode == GCP_CAPTURE_RELAXED || thread_mode == GCP_CAPTURE_RELAXED)
		return true;
	if (capture->thread == gcp_thread_number())
		return false;
	return capture->mode != GCP_CAPTURE_GLOBAL || thread_mode != GCP_CAPTURE_GLOBAL;
}

/* A program that has named a graph pool for its capture knows what it does. */
static bool is_named(const struct candidates *candidates)
{
	return candidates->count == 1 && candidates->captures[0]->shared;
}

/* Whether plain CUDA would have allowed the allocation. */
static bool is_allowed(struct gcp_tracker *tracker, const struct candidates *candidates)
{
	int mode = tracker->driver.thread_mode();

	for (size_t i = 0; i < candidates->count; i++)
		if (capture_allows(candidates->captures[i], mode))
			return true;
	return false;
}

static bool is_member(const struct gcp_capture *capture,
		      const struct gcp_graph_pool *graph_pool)
{
	struct gcp_pool_ref *pool_ref;

	SLIST_FOREACH (pool_ref, &capture->pool_refs, link)
		if (pool_ref->graph_pool == graph_pool)
			return true;
	return false;
}

/* A graph pool that all candidates hold already. One that others hold too
 * would do, and keep the block longer than need be. */
static struct gcp_graph_pool *pool_in_common(const struct candidates *candidates)
{
	struct gcp_pool_ref *pool_ref;

	SLIST_FOREACH (pool_ref, &candidates->captures[0]->pool_refs, link) {
		size_t members = 0;

		while (members < candidates->count &&
		       is_member(candidates->captures[members], pool_ref->graph_pool))
			members++;
		if (members == candidates->count &&
		    pool_ref->graph_pool->eager == candidates->eager &&
		    (pool_ref->graph_pool->captures == candidates->count ||
		     pool_ref->graph_pool->named))
			return pool_ref->graph_pool;
	}
	return NULL;
}

static int join_all(struct gcp_tracker *tracker, struct candidates *candidates,
		    struct gcp_graph_pool *graph_pool)
{
	for (size_t i = 0; i < candidates->count; i++) {
		int result = 0;

		if (!is_member(candidates->captures[i], graph_pool))
			result = gcp_graph_pool_join(tracker, graph_pool,
						     candidates->captures[i]);
		if (result != 0)
			return result;
	}
	return 0;
}

/* The graph pool for these candidates, made if there is none. */
static struct gcp_graph_pool *pool_for(struct gcp_tracker *tracker,
				       const struct candidates *candidates)
{
	struct gcp_graph_pool *graph_pool = NULL;

	/* The one that the program named, whatever else the capture holds. */
	if (candidates->count == 1 && !candidates->eager)
		graph_pool = candidates->captures[0]->shared;
	if (!graph_pool)
		graph_pool = pool_in_common(candidates);
	return graph_pool ? graph_pool
			  : gcp_graph_pool_make(tracker, candidates->eager);
}

int gcp_route(struct gcp_tracker *tracker, void *ctx, struct gcp_stream_hint hint,
	      struct gcp_graph_pool **ret_graph_pool)
{
	struct candidates candidates = {0};
	struct gcp_graph_pool *graph_pool;
	int result;

	*ret_graph_pool = NULL;
	add_of_thread(tracker, &candidates);
	bool captures = candidates.count > 0 && !works_elsewhere(tracker, ctx, hint);
	if (candidates.count == 0)
		add_of_stream(tracker, ctx, hint, &candidates);
	candidates.eager =
	    !is_named(&candidates) && (!captures || is_allowed(tracker, &candidates));
	if (candidates.count == 0)
		add_forbidding(tracker, &candidates);
	if (candidates.count == 0)
		return 0;
	if (candidates.overflow)
		return -ENOMEM;

	if (candidates.count == 1 && !candidates.eager)
		gcp_order_prove(tracker, candidates.captures[0], false);
	graph_pool = pool_for(tracker, &candidates);
	if (!graph_pool)
		return -ENOMEM;
	result = join_all(tracker, &candidates, graph_pool);
	if (result == 0)
		*ret_graph_pool = graph_pool;
	else
		gcp_graph_pool_ref_released(tracker, graph_pool);
	return result;
}
