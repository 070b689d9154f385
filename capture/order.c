/* SPDX-License-Identifier: MIT */
/*
 * order.c - proof, from the graph that is being captured, that a freed block
 * may be used again inside a capture that has forked.
 *
 * A block freed in a capture may be given out again when every node that
 * existed at its free precedes every *open end* of the capture: whatever is
 * captured later then runs after everything that could touch the block. Open
 * ends are
 *   - what the next work on each stream of the capture will depend on, and
 *   - what each event recorded in the capture stands for, because a stream may
 *     still be made to wait for it, until it is destroyed or recorded again.
 *
 *      main   a --- b --- c        X used by b, freed after c: group {c}
 *              \         /\        ends: main {c}, side {s}: s does not follow c
 *      side     s ------/  \
 *                           t      side waits for main again: ends {c}, {c}
 *                                  c precedes both: X may be used again
 *
 * The nodes that exist at a moment are the ancestors of the open ends at that
 * moment; so the ends are the free group. Free groups are taken, for all blocks freed
 * until then, at each allocation and whenever an open end has moved or gone.
 * The graph is searched only in the latter case, which is when a proof can newly
 * succeed; at an allocation only what is plain to see counts.
 *
 * tracker->lock is held.
 */
#include "capture_types.h"

enum { VISITED_MAX = 4096, TABLE_SIZE = 4 * VISITED_MAX };

/* --- open ends
 * ------------------------------------------------------------------------ */

static struct gcp_open_end *end_find(struct gcp_capture *capture, const void *handle,
				     bool is_event)
{
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->ends, link)
		if (end->handle == handle && end->is_event == is_event)
			return end;
	return NULL;
}

/* NULL: no memory; the order is lost then. */
static struct gcp_open_end *end_add(struct gcp_capture *capture, void *ctx,
				    void *handle, bool is_event)
{
	int saved = errno;
	struct gcp_open_end *end = calloc(1, sizeof(*end));

	errno = saved;
	if (!end) {
		capture->order_unknown = true;
		return NULL;
	}
	end->ctx = ctx;
	end->handle = handle;
	end->is_event = is_event;
	SLIST_INSERT_HEAD(&capture->ends, end, link);
	return end;
}

/* What the stream's next work depends on. False: too much, or CUDA won't say. */
static bool end_read(struct gcp_tracker *tracker, void *ctx, void *stream,
		     struct gcp_open_end *end)
{
	end->count = GCP_END_NODES_MAX;
	return tracker->driver.stream_ends &&
	       tracker->driver.stream_ends(ctx, stream, end->nodes, &end->count) == 0;
}

/* The per-thread default stream (CU_STREAM_PER_THREAD) is another one for each
 * thread: only the thread that began the capture can be asked for its own. */
static bool end_is_here(const struct gcp_capture *capture, const void *stream)
{
	return (uintptr_t)stream != 2 || capture->thread == gcp_thread_number();
}

void gcp_order_stream_joined(struct gcp_capture *capture, void *ctx, void *stream)
{
	if (!end_is_here(capture, stream))
		capture->order_unknown = true;
	if (!end_find(capture, stream, false))
		end_add(capture, ctx, stream, false);
}

/* --- events
 * ---------------------------------------------------------------------------
 * Until the call that records one anew has succeeded, it stands for the old place and
 * for the new one. With two such calls at once it is unknown which was the last. */

void gcp_order_event_recording(struct gcp_tracker *tracker, struct gcp_capture *capture,
			       void *ctx, void *stream, void *event, uint64_t record)
{
	struct gcp_open_end *end = end_add(capture, ctx, event, true);

	if (!end)
		return;
	end->record = record;
	if (!end_read(tracker, ctx, stream, end))
		capture->order_unknown = true;
}

static void end_remove(struct gcp_capture *capture, struct gcp_open_end *end)
{
	SLIST_REMOVE(&capture->ends, end, gcp_open_end, link);
	free(end);
}

void gcp_order_event_recorded(struct gcp_capture *capture, const void *event,
			      uint64_t record, bool confirmed)
{
	struct gcp_open_end *end, *next;

	for (end = SLIST_FIRST(&capture->ends); end; end = next) {
		next = SLIST_NEXT(end, link);
		if (!end->is_event || end->handle != event)
			continue;
		if (end->record == record)
			end->confirmed = confirmed;
		if (confirmed ? end->confirmed && end->record < record
			      : end->record == record)
			end_remove(capture, end);
	}
}

bool gcp_order_event_gone(struct gcp_capture *capture, const void *event,
			  uint64_t moment)
{
	struct gcp_open_end *end, *next;
	bool any = false;

	for (end = SLIST_FIRST(&capture->ends); end; end = next) {
		next = SLIST_NEXT(end, link);
		if (!end->is_event || end->handle != event || end->record > moment)
			continue;
		end_remove(capture, end);
		any = true;
	}
	return any;
}

void gcp_order_stream_gone(struct gcp_capture *capture, const void *stream)
{
	struct gcp_open_end *end = end_find(capture, stream, false);

	if (!end)
		return;
	end_remove(capture, end);
	capture->order_unknown = true;
}

void gcp_order_context_gone(struct gcp_capture *capture, const void *ctx)
{
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->ends, link)
		if (!ctx || end->ctx == ctx)
			capture->order_unknown = true;
}

void gcp_order_reset(struct gcp_capture *capture)
{
	struct gcp_open_end *end;

	while ((end = SLIST_FIRST(&capture->ends))) {
		SLIST_REMOVE_HEAD(&capture->ends, link);
		free(end);
	}
}

/* Streams have moved on since we last looked. */
static bool ends_refresh(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	struct gcp_open_end *end;

	if (tracker->contexts_ending > 0)
		return false;
	SLIST_FOREACH (end, &capture->ends, link)
		if (!end->is_event && (!end_is_here(capture, end->handle) ||
				       !end_read(tracker, end->ctx, end->handle, end)))
			return false;
	return true;
}

/* --- free groups
 * ----------------------------------------------------------------------------- */

/* Adds the open ends' nodes to the free group. False: too many. */
static bool free_group_fill(struct gcp_capture *capture,
			    struct gcp_free_group *free_group)
{
	struct gcp_open_end *end;

	free_group->count = 0;
	SLIST_FOREACH (end, &capture->ends, link) {
		for (size_t i = 0; i < end->count; i++) {
			if (free_group->count == GCP_FREE_GROUP_NODES_MAX)
				return false;
			free_group->nodes[free_group->count++] = end->nodes[i];
		}
	}
	return true;
}

/* What was freed until now has the mark `group`. With all free groups in use the
 * newest one takes it in: later, and so as safe. */
static void free_group_begin(struct gcp_capture *capture, uint64_t group)
{
	struct gcp_free_group *free_group;

	capture->last_group = group;
	if (capture->free_group_count < GCP_FREE_GROUPS_MAX)
		capture->free_group_count++;
	free_group = &capture->free_groups[capture->free_group_count - 1];
	free_group->group = group;
	if (!free_group_fill(capture, free_group))
		capture->order_unknown = true;
}

/* --- proof
 * --------------------------------------------------------------------------------- */

struct search {
	struct gcp_tracker *tracker;
	void *queue[VISITED_MAX];
	size_t count;
	void *table[TABLE_SIZE];
};

/* False: there is no room to go on. */
static bool search_add(struct search *search, void *node)
{
	size_t at = ((uintptr_t)node >> 4) * 0x9e3779b97f4a7c15ull % TABLE_SIZE;

	while (search->table[at] && search->table[at] != node)
		at = (at + 1) % TABLE_SIZE;
	if (search->table[at])
		return true;
	if (search->count == VISITED_MAX)
		return false;
	search->table[at] = node;
	search->queue[search->count++] = node;
	return true;
}

static bool search_has(const struct search *search, const void *node)
{
	size_t at = ((uintptr_t)node >> 4) * 0x9e3779b97f4a7c15ull % TABLE_SIZE;

	while (search->table[at] && search->table[at] != node)
		at = (at + 1) % TABLE_SIZE;
	return search->table[at] != NULL;
}

static bool search_has_all(const struct search *search,
			   const struct gcp_free_group *free_group)
{
	for (size_t i = 0; i < free_group->count; i++)
		if (!search_has(search, free_group->nodes[i]))
			return false;
	return true;
}

/* Whether every node of the free group is one of the end's, or precedes one. */
static bool free_group_precedes(struct search *search,
				const struct gcp_free_group *free_group,
				const struct gcp_open_end *end)
{
	struct gcp_tracker *tracker = search->tracker;

	memset(search->table, 0, sizeof(search->table));
	search->count = 0;
	for (size_t i = 0; i < end->count; i++)
		if (!search_add(search, end->nodes[i]))
			return false;
	for (size_t next = 0; next < search->count; next++) {
		void *nodes[GCP_END_NODES_MAX];
		size_t count = GCP_END_NODES_MAX;

		if (search_has_all(search, free_group))
			return true;
		if (tracker->driver.node_dependencies(search->queue[next], nodes,
						      &count))
			return false;
		for (size_t i = 0; i < count; i++)
			if (!search_add(search, nodes[i]))
				return false;
	}
	return search_has_all(search, free_group);
}

/* Whether every node of the free group is one of the end's: plain to see. */
static bool free_group_is_end(const struct gcp_free_group *free_group,
			      const struct gcp_open_end *end)
{
	for (size_t i = 0; i < free_group->count; i++) {
		size_t j = 0;

		while (j < end->count && end->nodes[j] != free_group->nodes[i])
			j++;
		if (j == end->count)
			return false;
	}
	return true;
}

static bool free_group_is_proven(struct search *search, struct gcp_capture *capture,
				 const struct gcp_free_group *free_group)
{
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->ends, link)
		if (!free_group_is_end(free_group, end) &&
		    (!search || !free_group_precedes(search, free_group, end)))
			return false;
	return true;
}

/* Releases what is proven, oldest first: a later free group's nodes include an
 * earlier one's, so nothing after a failure can succeed. */
static void free_groups_prove(struct gcp_tracker *tracker, struct gcp_capture *capture,
			      struct gcp_graph_pool *graph_pool, bool thorough)
{
	int saved = errno;
	struct search *search = thorough ? malloc(sizeof(*search)) : NULL;
	size_t proven = 0;

	errno = saved;
	if (search)
		search->tracker = tracker;
	while (proven < capture->free_group_count &&
	       free_group_is_proven(search, capture, &capture->free_groups[proven]))
		proven++;
	free(search);
	if (proven == 0)
		return;
	gcp_graph_pool_release_marked(graph_pool,
				      capture->free_groups[proven - 1].group);
	capture->free_group_count -= proven;
	memmove(capture->free_groups, capture->free_groups + proven,
		capture->free_group_count * sizeof(capture->free_groups[0]));
}

/* The graph pool of the capture's own, if it is the only one and no capture shares
 * it: memory shared with other captures has open ends that are not ours, and when those
 * are over, graphs that write it whenever they are launched. */
static struct gcp_graph_pool *own_pool(struct gcp_capture *capture)
{
	struct gcp_graph_pool *own = NULL;
	struct gcp_pool_ref *pool_ref;

	SLIST_FOREACH (pool_ref, &capture->pool_refs, link) {
		if (pool_ref->graph_pool->eager)
			continue;
		if (own || pool_ref->graph_pool->shared)
			return NULL;
		own = pool_ref->graph_pool;
	}
	return own;
}

void gcp_order_prove(struct gcp_tracker *tracker, struct gcp_capture *capture,
		     bool thorough)
{
	struct gcp_graph_pool *graph_pool = own_pool(capture);
	uint64_t group = capture->last_group + 1;

	if (!capture->forked || capture->order_unknown || !graph_pool ||
	    !tracker->driver.node_dependencies)
		return;
	/* The ends are read after the mark is set: nothing marked was freed
	 * after them. */
	bool marked = gcp_graph_pool_mark(graph_pool, group);
	if (!ends_refresh(tracker, capture)) {
		capture->order_unknown = true;
		return;
	}
	if (marked)
		free_group_begin(capture, group);
	if (capture->free_group_count > 0 && !capture->order_unknown)
		free_groups_prove(tracker, capture, graph_pool, thorough);
}
