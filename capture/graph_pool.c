/* SPDX-License-Identifier: MIT */
/*
 * graph_pool.c - graph pools: memory that captured graphs address, and the
 * references that keep it.
 *
 * References are counted by CUDA itself where that is possible: each capture
 * that allocates from a graph pool hangs a user object on its graph. Graphs
 * share it with everything made from them (executables, clones, parents), and
 * CUDA destroys it when the last of them is gone and no launch is in flight.
 * (Measured on driver 580, also for captures into existing graphs and into the bodies
 * of conditional nodes; not for executables whose context is destroyed, nor for a
 * capture in a green context that is: there the memory has gone with the context, or
 * is lost with the graph, and a reference stays. conform_*.golden in tests/sim.)
 * The destructor runs on a thread of the driver's and may not call CUDA, so it
 * leaves a graph release; gcp_tracker_collect reads the graph releases.
 *
 *      begin             first allocation         end          graph destroyed
 *        |  captures: 0      captures: 1       captures: 0      captures: 0
 *        |  graphs:   0      graphs:   1       graphs:   1      graphs:   0
 *        |                                                      -> released
 */
#include "share.h"

/* The graph pool that captures of this thread go to; an id, so that it may
 * outlive the pool. */
static __thread struct {
	struct gcp_tracker *tracker;
	uint64_t id;
} thread_default_pool __attribute__((tls_model("initial-exec")));

/* --- heaps
 * ---------------------------------------------------------------------------- */

struct gcp_graph_pool *gcp_graph_pool_make(struct gcp_tracker *tracker)
{
	int saved = errno;
	struct gcp_graph_pool *graph_pool = calloc(1, sizeof(*graph_pool));

	errno = saved;
	if (!graph_pool)
		return NULL;
	graph_pool->id = ++tracker->last_pool_id;
	graph_pool->reuse = GCP_REUSE_FENCED;
	graph_pool->group = GCP_GROUP_FIRST;
	SLIST_INIT(&graph_pool->heaps);
	TAILQ_INSERT_TAIL(&tracker->graph_pools, graph_pool, link);
	return graph_pool;
}

int gcp_graph_pool_heap(struct gcp_graph_pool *graph_pool, struct gcp_pool *pool,
			struct gcp_heap **ret_heap)
{
	struct gcp_graph_heap *entry;
	int saved = errno, result;

	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		if (entry->pool == pool) {
			*ret_heap = entry->heap;
			return 0;
		}
	}
	entry = malloc(sizeof(*entry));
	errno = saved;
	if (!entry)
		return -ENOMEM;
	result = gcp_heap_create(pool, &entry->heap);
	if (result != 0) {
		free(entry);
		return result;
	}
	entry->pool = pool;
	gcp_heap_set_reuse(entry->heap, graph_pool->reuse, graph_pool->group);
	SLIST_INSERT_HEAD(&graph_pool->heaps, entry, link);
	*ret_heap = entry->heap;
	return 0;
}

int gcp_graph_pool_pinned_set(struct gcp_graph_pool *graph_pool,
			      struct gcp_pools *pools, struct gcp_pinned_set **ret_set)
{
	int result = 0;

	if (!graph_pool->pinned_set)
		result = gcp_pinned_set_create(pools, &graph_pool->pinned_set);
	*ret_set = graph_pool->pinned_set;
	return result;
}

void gcp_graph_pool_set_reuse(struct gcp_graph_pool *graph_pool, enum gcp_reuse reuse)
{
	struct gcp_graph_heap *entry;

	if (graph_pool->into_existing_graph && reuse != GCP_REUSE_FENCED)
		reuse = GCP_REUSE_NEVER;
	graph_pool->reuse = reuse;
	graph_pool->group += reuse == GCP_REUSE_FENCED;
	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_set_reuse(entry->heap, reuse, graph_pool->group);
}

uint64_t gcp_graph_pool_close_group(struct gcp_graph_pool *graph_pool)
{
	uint64_t group = graph_pool->group++;
	struct gcp_graph_heap *entry;
	bool any = false;

	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		any |= gcp_heap_close_group(entry->heap, graph_pool->group);
	return any ? group : 0;
}

void gcp_graph_pool_release_groups(struct gcp_graph_pool *graph_pool, uint64_t group)
{
	struct gcp_graph_heap *entry;

	SLIST_FOREACH (entry, &graph_pool->heaps, link)
		gcp_heap_release_groups(entry->heap, group);
}

static bool has_memory(const struct gcp_graph_pool *graph_pool)
{
	return !SLIST_EMPTY(&graph_pool->heaps) || graph_pool->pinned_set;
}

static void memory_release(struct gcp_tracker *tracker,
			   struct gcp_graph_pool *graph_pool)
{
	struct gcp_graph_heap *entry;

	while ((entry = SLIST_FIRST(&graph_pool->heaps))) {
		SLIST_REMOVE_HEAD(&graph_pool->heaps, link);
		gcp_heap_release(entry->heap);
		free(entry);
	}
	gcp_share_end(tracker, graph_pool);
	gcp_pinned_set_release(graph_pool->pinned_set);
	graph_pool->pinned_set = NULL;
}

/* --- references
 * -------------------------------------------------------------------------- */

static uint64_t references(const struct gcp_graph_pool *graph_pool)
{
	return graph_pool->captures + graph_pool->graphs + graph_pool->held;
}

/* The memory goes to the common heaps, behind a fence; blocks that the program
 * holds follow when freed. */
void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool)
{
	if (references(graph_pool) > 0)
		return;
	tracker->memory_releases += has_memory(graph_pool);
	if (has_memory(graph_pool))
		GCP_CAPTURE_LOG(
		    tracker, "graph pool %p released: no graph can run on its memory",
		    (void *)graph_pool);
	memory_release(tracker, graph_pool);
	graph_pool->generation++;
	if (graph_pool->named)
		return; /* its id may be used again */
	if (tracker->small == graph_pool)
		tracker->small = NULL;
	TAILQ_REMOVE(&tracker->graph_pools, graph_pool, link);
	free(graph_pool);
}

/* Runs on a thread of the driver's: no lock, no CUDA, no free memory. */
static void graph_is_gone(struct gcp_attachment *attachment)
{
	struct gcp_graph_release *release = (struct gcp_graph_release *)attachment;
	struct gcp_tracker *tracker = release->tracker;

	release->next = atomic_load(&tracker->releases);
	while (
	    !atomic_compare_exchange_weak(&tracker->releases, &release->next, release))
		;
	atomic_fetch_add(&tracker->pending_events, 1);
}

static void graph_refused(struct gcp_attachment *attachment)
{
	free((struct gcp_graph_release *)attachment);
}

void gcp_tracker_collect(struct gcp_tracker *tracker)
{
	struct gcp_graph_release *release;
	uint32_t count = 0;

	if (!atomic_load_explicit(&tracker->releases, memory_order_relaxed))
		return;
	pthread_mutex_lock(&tracker->lock);
	release = atomic_exchange(&tracker->releases, NULL);
	while (release) {
		struct gcp_graph_release *next = release->next;

		assert(release->graph_pool->graphs > 0);
		release->graph_pool->graphs--;
		gcp_graph_pool_ref_released(tracker, release->graph_pool);
		free(release);
		release = next;
		count++;
	}
	pthread_mutex_unlock(&tracker->lock);
	atomic_fetch_sub(&tracker->pending_events, count);
}

/* What the capture has in store, or new memory; NULL: there is none. */
static void *spare_take(void *spare, size_t bytes)
{
	int saved = errno;
	void *taken = spare ? spare : malloc(bytes);

	errno = saved;
	return taken;
}

/* Whether only graphs keep some memory. */
static bool is_any_with_graphs(struct gcp_tracker *tracker)
{
	struct gcp_graph_pool *graph_pool;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (graph_pool->graphs > 0 && has_memory(graph_pool) &&
		    graph_pool->graphs == references(graph_pool))
			return true;
	return false;
}

bool gcp_tracker_reclaim(struct gcp_tracker *tracker)
{
	enum { WAIT_ROUNDS = 20 };
	/* Until the thread asked last: another may have collected since. */
	static __thread uint64_t seen __attribute__((tls_model("initial-exec")));
	bool may_come = true, came = false;

	for (int i = 0; i < WAIT_ROUNDS && may_come && !came; i++) {
		if (i > 0)
			gcp_backoff();
		gcp_tracker_collect(tracker);
		pthread_mutex_lock(&tracker->lock);
		came = tracker->memory_releases != seen;
		seen = tracker->memory_releases;
		may_come = is_any_with_graphs(tracker);
		pthread_mutex_unlock(&tracker->lock);
	}
	return came;
}

/* Without a graph to hang it on, or if CUDA refuses, the end of the graph is not
 * noticed: the reference then stays for good. */
static int graph_retain(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
			struct gcp_capture *capture)
{
	struct gcp_graph_release *release =
	    spare_take(capture->spare_release, sizeof(*release));
	void *graph = capture->graph;

	capture->spare_release = NULL;
	if (!release)
		return -ENOMEM;
	*release = (struct gcp_graph_release){
	    .attachment = {graph_is_gone, graph_refused},
	    .tracker = tracker,
	    .graph_pool = graph_pool,
	};
	graph_pool->graphs++;
	if (graph)
		(void)tracker->driver.graph_attach(graph, &release->attachment);
	else
		free(release);
	return 0;
}

/* In a capture that another one shares the pool with, or that has forked, a
 * freed block's place in the order is not known. */
static enum gcp_reuse reuse_in(const struct gcp_graph_pool *graph_pool,
			       const struct gcp_capture *capture)
{
	return capture->forked || graph_pool->captures > 1 ? GCP_REUSE_LATER
							   : GCP_REUSE_NOW;
}

/* Whether the capture is invalidated: its graph may be gone already. Only the
 * thread itself can be asked for its per-thread default stream. */
static bool is_invalidated(struct gcp_tracker *tracker,
			   const struct gcp_capture *capture)
{
	struct gcp_capture_state state = {0};

	if ((uintptr_t)capture->stream == 2 && capture->thread != gcp_thread_number())
		return false;
	return tracker->driver.capture_state(capture->ctx, capture->stream, &state) ==
		   0 &&
	       !state.active;
}

int gcp_graph_pool_join(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
			struct gcp_capture *capture)
{
	struct gcp_pool_ref *pool_ref =
	    spare_take(capture->spare_pool_ref, sizeof(*pool_ref));
	int result;

	capture->spare_pool_ref = NULL;
	if (!pool_ref)
		return -ENOMEM;
	if (is_invalidated(tracker, capture))
		result = 0; /* there will be no graph */
	else
		result = graph_retain(tracker, graph_pool, capture);
	if (result != 0) {
		free(pool_ref);
		return result;
	}
	pool_ref->graph_pool = graph_pool;
	SLIST_INSERT_HEAD(&capture->pool_refs, pool_ref, link);
	graph_pool->captures++;
	graph_pool->shared |= graph_pool->captures > 1;
	graph_pool->into_existing_graph |= capture->into_existing_graph;
	graph_pool->last_capture_id = capture->id;
	gcp_graph_pool_set_reuse(graph_pool, reuse_in(graph_pool, capture));
	return 0;
}

/* No capture goes on: what was freed in them is free. */
static void pool_ref_end(struct gcp_graph_pool *graph_pool)
{
	if (graph_pool->captures > 0)
		return;
	graph_pool->shared = graph_pool->into_existing_graph = false;
	gcp_graph_pool_set_reuse(graph_pool, GCP_REUSE_FENCED);
}

void gcp_graph_pool_detach_all(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	struct gcp_pool_ref *pool_ref;

	while ((pool_ref = SLIST_FIRST(&capture->pool_refs))) {
		SLIST_REMOVE_HEAD(&capture->pool_refs, link);
		pool_ref->graph_pool->captures--;
		pool_ref_end(pool_ref->graph_pool);
		gcp_graph_pool_ref_released(tracker, pool_ref->graph_pool);
		free(pool_ref);
	}
}

/* --- pools that the program names
 * ----------------------------------------------------------- */

struct gcp_graph_pool *gcp_graph_pool_named(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool;

	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link)
		if (graph_pool->named && graph_pool->id == id)
			return graph_pool;
	return NULL;
}

struct gcp_graph_pool *gcp_graph_pool_thread_default(struct gcp_tracker *tracker)
{
	if (thread_default_pool.tracker != tracker || thread_default_pool.id == 0)
		return NULL;
	return gcp_graph_pool_named(tracker, thread_default_pool.id);
}

int gcp_graph_pool_create(struct gcp_tracker *tracker, uint64_t *ret_id)
{
	struct gcp_graph_pool *graph_pool;

	pthread_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_make(tracker);
	if (graph_pool) {
		graph_pool->named = true;
		graph_pool->held = 1;
		*ret_id = graph_pool->id;
	}
	pthread_mutex_unlock(&tracker->lock);
	return graph_pool ? 0 : -ENOMEM;
}

int gcp_graph_pool_retain(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool;

	pthread_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (graph_pool)
		graph_pool->held++;
	pthread_mutex_unlock(&tracker->lock);
	return graph_pool ? 0 : -ENOENT;
}

int gcp_graph_pool_release(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool;
	int result = -ENOENT;

	pthread_mutex_lock(&tracker->lock);
	graph_pool = gcp_graph_pool_named(tracker, id);
	if (graph_pool && graph_pool->held > 0) {
		graph_pool->held--;
		gcp_graph_pool_ref_released(tracker, graph_pool);
		result = 0;
	}
	pthread_mutex_unlock(&tracker->lock);
	return result;
}

int gcp_graph_pool_use(struct gcp_tracker *tracker, uint64_t id)
{
	struct gcp_graph_pool *graph_pool = NULL;

	pthread_mutex_lock(&tracker->lock);
	if (id != 0)
		graph_pool = gcp_graph_pool_named(tracker, id);
	pthread_mutex_unlock(&tracker->lock);
	if (id != 0 && !graph_pool)
		return -ENOENT;
	thread_default_pool.tracker = tracker;
	thread_default_pool.id = id;
	return 0;
}

static void info_fill(struct gcp_graph_pool *graph_pool,
		      struct gcp_graph_pool_info *info)
{
	struct gcp_graph_heap *entry;

	*info = (struct gcp_graph_pool_info){
	    .id = graph_pool->id,
	    .references = references(graph_pool),
	    .captures = graph_pool->captures,
	    .graphs = graph_pool->graphs,
	    .last_capture_id = graph_pool->last_capture_id,
	};
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		struct gcp_heap_usage usage;

		gcp_heap_usage(entry->heap, &usage);
		info->reserved_bytes += usage.reserved_bytes;
		info->allocated_bytes += usage.allocated_bytes;
	}
}

size_t gcp_graph_pools_list(struct gcp_tracker *tracker,
			    struct gcp_graph_pool_info *infos, size_t max)
{
	struct gcp_graph_pool *graph_pool;
	size_t count = 0;

	gcp_tracker_collect(tracker);
	pthread_mutex_lock(&tracker->lock);
	TAILQ_FOREACH (graph_pool, &tracker->graph_pools, link) {
		if (references(graph_pool) == 0)
			continue;
		if (count < max)
			info_fill(graph_pool, &infos[count]);
		count++;
	}
	pthread_mutex_unlock(&tracker->lock);
	return count;
}

/* --- the end, for tests ------------------------------------------------------ */

void gcp_graph_pools_destroy(struct gcp_tracker *tracker)
{
	struct gcp_graph_pool *graph_pool;

	while ((graph_pool = TAILQ_FIRST(&tracker->graph_pools))) {
		TAILQ_REMOVE(&tracker->graph_pools, graph_pool, link);
		memory_release(tracker, graph_pool);
		free(graph_pool);
	}
}
