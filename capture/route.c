/* SPDX-License-Identifier: MIT */
/*
 * route.c - to which captures an allocation belongs while captures are under way.
 *
 *   1. to the captures that the calling thread began, but where the program names a
 *      stream (gcpool_malloc);
 *   2. and to the capture of that stream, or of the one that the thread last gave work
 *      to: where CUDA cannot be asked, to all that it may be in (but not where the
 *      program has named the pool of the thread's capture);
 *   3. if these are none, where plain CUDA would have refused the allocation, to the
 *      captures that made it illegal: the global ones, if the thread's own mode
 *      is global too;
 *   4. else to none: the common heap.
 *
 * A block is for captured work, or for any work (an eager allocation). For captured
 * work it may be memory that captured work has used before, as the order of the graph
 * allows. That is not so where plain CUDA would have allowed the allocation (the mode
 * of the capture or of the thread is relaxed), where what the thread did last was not
 * captured, came before the capture or cannot be asked for (1, 2), or where the thread
 * has no part in it (3): such a block may be for work that runs right now, and what is
 * written into it must outlast the launches of the graph. It is memory that the graph
 * has not had. Only where the program has named the pool is it taken at its word, by
 * the thread that began the capture and by those whose last work was captured in it.
 *
 * A freed block serves captured work again. But for what the thread that began the
 * capture allocated for captured work, that is only so if no eager work was submitted
 * between allocation and free: then no such work can have touched the block, whatever
 * thread it was of (gcp_heap_use).
 *
 *      allocated by                          memory        once freed
 *      the thread that began the capture     used before   used again
 *      one whose last work was captured (2)  used before   again, if no eager work
 *      any other, or where it is allowed     never used    again, if no eager work
 *
 * Most graphs need little memory, and a heap of their own takes 2 MiB of it. So the
 * first small blocks of a capture come from the common heap (gcp_heap_borrow). What is
 * freed of them serves nothing while the graph lives: then neither the order of the
 * graph nor what eager work does matters. What a capture takes beyond that is better
 * used again, and comes from its own heap. Small is what takes a quarter of what is
 * left of 256 KiB: temporaries leave room for smaller blocks that come later.
 *
 * With several candidates a block is held by the graphs of all of them: it comes from a
 * graph pool of the first one's in which no freed block is used again. Too many holders
 * only keep memory longer; memory of a graph in the common heap would be corruption.
 */
#include "capture_types.h"

enum {
	UNIT = 512, /* in which blocks are counted */
	SMALL_BYTES_OF_CAPTURE = 256 << 10,
	SMALL_PART = 4, /* a small block is no more than such a part of the rest */
};

struct candidates {
	struct gcp_capture *first; /* of those whose `route` this is */
	size_t count;
	uint64_t route; /* number of the allocation */
	enum gcp_heap_use use;
};

static void candidate_add(struct candidates *candidates, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(candidates->route > 0); /* or none would be added */
	assert(capture->number > 0);
	if (capture->ending || capture->route == candidates->route)
		return;
	capture->route = candidates->route;
	if (candidates->count++ == 0)
		candidates->first = capture;
}

/* The captures that the stream may be in to which the thread last gave work. */
struct hint_means {
	struct gcp_capture_state state; /* active or invalidated: that one; and */
	uint64_t upto;                  /* those that began first; by number */
};

/* Asks CUDA, if the stream is not among those that have gone since. If it is, its
 * handle is dead, or another stream's, and it was in a capture that had begun by then.
 * If it may be, or a context is just ending, it cannot be asked, and may be in any. */
static void hint_ask(struct gcp_tracker *tracker, void *ctx,
		     struct gcp_stream_hint hint, struct hint_means *ret_means)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t now = gcp_tracker_streams_gone(tracker);
	bool known = now - hint.gone <= GCP_GONE_KEPT;

	assert(hint.gone <= now); /* else the difference wraps: not known for ever */
	*ret_means = (struct hint_means){.upto = 0};
	if (!hint.stream)
		return;
	for (uint64_t gone = known ? hint.gone : now; gone < now; gone++) {
		const void *other = tracker->gone[gone % GCP_GONE_KEPT];

		known &= other != NULL;
		if (other == hint.stream) {
			ret_means->upto = hint.eager ? 0 : hint.begun;
			return;
		}
	}
	known = known && tracker->driver.contexts_hold();
	if (!known ||
	    tracker->driver.capture_state(ctx, hint.stream, &ret_means->state) != 0)
		*ret_means = (struct hint_means){.upto = UINT64_MAX};
	if (known)
		tracker->driver.contexts_release();
}

/* Adds the captures that the thread's stream may be in: it may have joined one that was
 * begun on another stream. Returns true if the thread's last work was captured, as far
 * as is known, or it has given none: a thread that began a capture allocates for that.
 */
static bool add_of_stream(struct gcp_tracker *tracker, void *ctx,
			  struct gcp_stream_hint hint, struct candidates *candidates)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;
	struct hint_means means;
	bool captures;

	hint_ask(tracker, ctx, hint, &means);
	captures = means.state.active || means.state.invalidated;
	assert(!captures || means.upto == 0); /* G1 */
	TAILQ_FOREACH (capture, &tracker->captures, link) {
		assert(capture->number > 0); /* else 0 would not be none */
		if ((captures && gcp_capture_may_be(capture, means.state.id)) ||
		    capture->number <= means.upto)
			candidate_add(candidates, capture);
	}
	return !hint.eager && (!hint.stream || captures);
}

/* What the thread did last was in none of the captures that began later: the stream has
 * come into one of them by another thread's call. */
static bool any_began_since(const struct gcp_tracker *tracker,
			    const struct candidates *candidates,
			    struct gcp_stream_hint hint)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_capture *capture;

	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->route == candidates->route && capture->number > hint.begun)
			return true;
	return false;
}

static void add_forbidding(struct gcp_tracker *tracker, struct candidates *candidates)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;

	assert(candidates->count == 0); /* it belongs to none by what is known */
	if (tracker->driver.thread_mode() != GCP_CAPTURE_GLOBAL)
		return;
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->mode == GCP_CAPTURE_GLOBAL)
			candidate_add(candidates, capture);
}

/* A program that has named a graph pool for its capture knows what it does. */
static bool is_named(const struct candidates *candidates)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return candidates->count == 1 && candidates->first->pool &&
	       candidates->first->pool->named;
}

/* Returns true if plain CUDA would have allowed the allocation during one of these
 * captures. */
static bool is_allowed(struct gcp_tracker *tracker, const struct candidates *candidates)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_capture *capture;
	int mode = tracker->driver.thread_mode();

	TAILQ_FOREACH (capture, &tracker->captures, link) {
		if (capture->route != candidates->route)
			continue;
		if (capture->mode == GCP_CAPTURE_RELAXED || mode == GCP_CAPTURE_RELAXED)
			return true;
		if (capture->thread != gcp_thread_number() &&
		    (capture->mode != GCP_CAPTURE_GLOBAL || mode != GCP_CAPTURE_GLOBAL))
			return true;
	}
	return false;
}

/* Returns true if the block comes from the common heap, and counts it. */
static bool is_small(struct gcp_capture *capture,
		     const struct gcp_graph_pool *graph_pool, uint64_t bytes)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t left = SMALL_BYTES_OF_CAPTURE - capture->small_bytes;

	assert(left <= SMALL_BYTES_OF_CAPTURE);
	assert(graph_pool->captures > 0); /* G11 */
	bytes = (bytes + UNIT - 1) / UNIT * UNIT;
	if (graph_pool->named || bytes == 0 || bytes > left / SMALL_PART)
		return false;
	capture->small_bytes += bytes;
	return true;
}

/* Finds the captures, and what the block may be. */
static void candidates_find(struct gcp_tracker *tracker, void *ctx,
			    struct gcp_stream_hint hint, struct candidates *candidates)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture;
	bool captured;
	size_t own;

	candidates->route = ++tracker->routes;
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->thread == gcp_thread_number() && !hint.named)
			candidate_add(candidates, capture);
	own = candidates->count;
	captured =
	    is_named(candidates) || add_of_stream(tracker, ctx, hint, candidates);
	if (own == 0)
		captured &= candidates->count > 0 &&
			    !any_began_since(tracker, candidates, hint);
	if (captured && is_named(candidates))
		candidates->use = GCP_USE_CAPTURED;
	else if (!captured || is_allowed(tracker, candidates))
		candidates->use = GCP_USE_ANY;
	else if (own == candidates->count)
		candidates->use = GCP_USE_CAPTURED;
	else
		candidates->use = GCP_USE_WATCHED;
	/* Work that is captured into a graph that was there already may follow none of
	 * the work that has used the memory. */
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->route == candidates->route && capture->into_existing_graph)
			candidates->use = GCP_USE_ANY;
	assert(candidates->use == GCP_USE_ANY || candidates->count > 0); /* G3 */
	assert(!candidates->first == (candidates->count == 0));
	if (candidates->count == 0)
		add_forbidding(tracker, candidates);
}

/* The heap that an allocation is made from; all zero: the common one. */
struct routed {
	struct gcp_graph_pool *graph_pool;
	enum gcp_heap_use use;
	bool small;            /* the block is one of the common heap */
	struct gcp_heap *heap; /* or, for pinned memory: */
	struct gcp_pinned_set *set;
};

/* --- allocation --------------------------------------------------------------- */

/* Finds the graph pool that an allocation by the calling thread belongs to (NULL: to
 * none), and what it is for; and holds it, so that the allocation itself, which may go
 * to the driver, needs no lock. pool: NULL, and no bytes, of pinned memory. -ENOMEM. */
static int route_and_hold(struct gcp_tracker *tracker, struct gcp_pool *pool, void *ctx,
			  struct gcp_stream_hint hint, uint64_t bytes,
			  struct routed *ret)
{
	struct candidates candidates = {0};
	struct gcp_graph_pool *graph_pool, **of_first;
	struct gcp_capture *first, *capture;
	int result = 0;

	assert(gcp_ranks_held == 0);
	*ret = (struct routed){.use = GCP_USE_ANY};
	if (!gcp_tracker_capturing(tracker))
		return 0;
	GCP_LOCKED(&tracker->lock);
	candidates_find(tracker, ctx, hint, &candidates);
	if (candidates.count == 0)
		return 0;
	first = candidates.first;
	assert(first && first->route == candidates.route);
	if (candidates.count == 1 && candidates.use != GCP_USE_ANY)
		gcp_order_prove(tracker, first);
	of_first = candidates.count == 1 ? &first->pool : &first->common;
	if (!*of_first) {
		*of_first = gcp_graph_pool_make(tracker);
		if (!*of_first)
			return -ENOMEM;
		(*of_first)->shared = candidates.count > 1;
		gcp_graph_pool_join(tracker, *of_first, first);
	}
	graph_pool = *of_first;
	assert(graph_pool->captures > 0 &&
	       (graph_pool->shared || candidates.count == 1));
	TAILQ_FOREACH (capture, &tracker->captures, link)
		if (capture->route == candidates.route && capture != first)
			gcp_graph_hold(tracker, capture, graph_pool); /* G2 */
	ret->use = candidates.use;
	ret->graph_pool = graph_pool;
	ret->small = is_small(first, graph_pool, bytes);
	if (pool)
		result = gcp_graph_pool_heap(graph_pool, pool, &ret->heap);
	else if (!graph_pool->pinned_set)
		result = gcp_pinned_set_create(tracker->pools, &graph_pool->pinned_set);
	if (!pool)
		ret->set = graph_pool->pinned_set;
	assert(result != 0 || ret->heap || ret->set); /* G12 */
	graph_pool->held += result == 0;
	assert(result != 0 || gcp_graph_pool_references(graph_pool) > 1); /* P1 */
	return result;
}

static void hold_end(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool)
{
	GCP_LOCKED(&tracker->lock);
	assert(graph_pool->held > 0); /* P1 */
	graph_pool->held--;
	gcp_graph_pool_ref_released(tracker, graph_pool);
}

int gcp_tracker_alloc(struct gcp_tracker *tracker, struct gcp_pool *pool, void *ctx,
		      struct gcp_stream_hint hint, uint64_t bytes, gcp_addr *ret_addr)
{
	struct routed to;
	int result = route_and_hold(tracker, pool, ctx, hint, bytes, &to);

	if (result != 0)
		return result;
	assert(!to.small || to.heap); /* G11 */
	if (!to.graph_pool || to.small)
		result = gcp_pool_alloc(pool, bytes, ret_addr);
	if (to.small && result == 0)
		gcp_heap_borrow(to.heap, *ret_addr);
	/* The common heap has none where the context refuses fences. */
	if (to.graph_pool && (!to.small || result == -ENOTSUP))
		result = gcp_heap_alloc(to.heap, bytes, to.use, ret_addr);
	if (to.graph_pool)
		hold_end(tracker, to.graph_pool);
	return result;
}

int gcp_tracker_host_alloc(struct gcp_tracker *tracker, struct gcp_pool *pool,
			   void *ctx, struct gcp_stream_hint hint, uint64_t bytes,
			   uint32_t flags, void **ret_p)
{
	struct routed to;
	int result = route_and_hold(tracker, NULL, ctx, hint, 0, &to);

	if (result != 0)
		return result;
	result = gcp_pinned_alloc(pool, bytes, flags, to.set, ret_p);
	if (to.graph_pool)
		hold_end(tracker, to.graph_pool);
	return result;
}
