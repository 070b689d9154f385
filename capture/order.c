/* SPDX-License-Identifier: MIT */
/*
 * order.c - proof, from the graph that is being captured, that a freed block
 * may be used again inside a capture that has forked.
 *
 * A block freed in a capture may be given out again when every node that
 * existed at its free precedes every *open end* of the capture, that is what the next
 * work on each stream of the capture will depend on: whatever is captured later then
 * runs after everything that could touch the block.
 *
 *      main   a --- b --- c        X used by b, freed after c: group {c, s}
 *              \         /\        ends: main {c}, side {s}: s does not follow c
 *      side     s ------/  \
 *                           t      side waits for main again: ends {c}, {c}
 *                                  c and s precede both: X may be used again
 *
 * Blocks are freed into free groups (pool.h). A group is closed before an event is
 * recorded, and at an allocation. Its nodes are the streams' ends at its latest free:
 * these ends and what precedes them are all nodes that exist at that moment. (An event
 * stands for an earlier end of its stream, which precedes the present one.) So the
 * group is proved when its nodes precede every open end. The ends at a later moment
 * would be as safe. But work at an end that rests (below) would then follow what was
 * captured after the free, which plain CUDA runs beside it (G13). So an end is kept
 * when the first work after a free is captured behind it. An end that moves by a wait
 * gets no younger nodes: a group is closed before an event is recorded behind them.
 *
 * Which nodes precede an end is known by looks. The ends that a stream has in the
 * course of a capture are a *line*: each precedes the next. A look at a line reads
 * the stream's end and enters in a table every node that precedes it and that no
 * earlier look at the line has met: it goes back through the graph no further than to
 * nodes that have been met, for what precedes those has been entered with them. So a
 * node is met once for each line, however long the capture is, and precedes a stream's
 * end if it is entered for its line at all. Looks may be missing: what is not entered
 * is not proved. What is entered stays true, because the program edits no graph that is
 * being captured without a call that gcp_tracker_order_unknown hears of.
 *
 *      line main, look 1: a b c s     line side, look 1: a s    group {c, s}
 *                                                look 2: + c b  proved
 *
 * A stream's line grows by nodes of other lines only when the stream is made to wait.
 * So after a proof has failed the next try waits for that. Proofs, and looks, are made
 * for allocations and where a group is closed: a capture that frees nothing has none.
 *
 * An event stands for an earlier end of its stream, and a stream may still be made to
 * wait for it; most never are. A side stream that has been joined mostly waits before
 * it goes on. As open ends they would hold all memory back that is freed later. So both
 * *rest*, a stream when another one has waited for an event behind all its work (which
 * is noted then, and looked at when a proof needs it), and need no proof. If work comes
 * there after all, it is made to follow the nodes of the latest group that was
 * released:
 *
 *      main   a --- b --- c        X used by a, freed, released; Y in the same place
 *        \         \      :        used by b and c; an old event before a is waited for
 *      e  o          \.....s      now: s, which may use Y, follows what was there when
 * X was freed: a
 *
 * This is no wait that plain CUDA does not have: there the free of X would have waited
 * for a, before s was given to the stream (b and c may need s: G13). Work that cannot
 * be made to follow is refused, and so is what comes there next, until it can.
 *
 * tracker->lock is held.
 */
#include "share.h"

/* --- which nodes precede which line's end ---------------------------------------- */

enum { NODES_MAX = 1 << 20 }; /* that one end or one node may depend on */

/* items NULL: only makes room for so many. False: no memory, or far too many. */
static bool nodes_append(struct gcp_nodes *nodes, void *const *items, size_t count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	size_t room = nodes->count + count;
	void **larger = nodes->items;

	if (room > nodes->room) {
		room = room < 2 * nodes->room ? 2 * nodes->room : room;
		larger =
		    room < NODES_MAX ? realloc(larger, room * sizeof(*larger)) : NULL;
		if (!larger)
			return false;
		nodes->items = larger;
		nodes->room = room;
	}
	assert(nodes->count + count <= nodes->room);
	if (items && count > 0)
		memcpy(larger + nodes->count, items, count * sizeof(*items));
	nodes->count += items ? count : 0;
	return true;
}

static struct gcp_reach_place *reach_place(const struct gcp_reach *reach,
					   const void *node, uint32_t line)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uint64_t key = ((uintptr_t)node >> 4) + line * 0xc2b2ae3d27d4eb4full;
	size_t at = (key * 0x9e3779b97f4a7c15ull) >> 20;
	struct gcp_reach_place *place;

	assert((reach->room & (reach->room - 1)) == 0 && reach->count < reach->room);
	do {
		place = &reach->places[at++ & (reach->room - 1)];
	} while (place->node && (place->node != node || place->line != line));
	return place;
}

/* False: no memory. */
static bool reach_grow(struct gcp_reach *reach)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_reach wider = {.room = reach->room ? 2 * reach->room : 256,
				  .count = reach->count};

	wider.places = calloc(wider.room, sizeof(*wider.places));
	if (!wider.places)
		return false;
	for (size_t i = 0; i < reach->room; i++) {
		const struct gcp_reach_place *place = &reach->places[i];

		if (place->node)
			*reach_place(&wider, place->node, place->line) = *place;
	}
	assert(4 * wider.count < 3 * wider.room); /* a free place ends each search */
	free(reach->places);
	*reach = wider;
	return true;
}

/* Returns true if a look at the line has met the node. */
static bool reach_has(const struct gcp_reach *reach, const void *node, uint32_t line)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	assert(line > 0 && node);
	return reach->room > 0 && reach_place(reach, node, line)->node;
}

/* Adds what the stream's next work depends on; NULL: what the node depends on. 0,
 * -EAGAIN: it can be asked later; a CUresult: CUDA does not say; -ENOMEM. */
static int nodes_add(struct gcp_tracker *tracker, struct gcp_nodes *nodes,
		     const struct gcp_open_end *stream, void *node)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_capture_driver *driver = &tracker->driver;
	size_t room = 16, count;
	void **items;
	int result;

	assert(!stream != !node); /* one of the two is asked */
	do {
		if (!nodes_append(nodes, NULL, room))
			return -ENOMEM;
		count = nodes->room - nodes->count;
		room = 2 * count;
		items = nodes->items + nodes->count;
		result = stream ? driver->stream_ends(stream->ctx, stream->handle,
						      items, &count)
				: driver->node_dependencies(node, items, &count);
	} while (result == -ERANGE);
	assert(result != 0 || count <= nodes->room - nodes->count);
	nodes->count += result == 0 ? count : 0;
	return result;
}

/* Goes back from the line's end, `nodes`. 0; else it cannot be known: as above. */
static int line_look(struct gcp_tracker *tracker, struct gcp_capture *capture,
		     uint32_t line, void **nodes, size_t count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_nodes *unseen = &capture->unseen;
	int result = 0;

	assert(line > 0 && line <= capture->lines);
	unseen->count = 0;
	if (!nodes_append(unseen, nodes, count))
		return -ENOMEM;
	while (result == 0 && unseen->count > 0) {
		void *node = unseen->items[--unseen->count];
		struct gcp_reach_place *place;

		assert(node);
		if (4 * capture->reach.count >= 3 * capture->reach.room &&
		    !reach_grow(&capture->reach))
			return -ENOMEM;
		assert(4 * capture->reach.count < 3 * capture->reach.room);
		place = reach_place(&capture->reach, node, line);
		if (place->node) /* an earlier look has met it */
			continue;
		*place = (struct gcp_reach_place){node, line};
		capture->reach.count++;
		result = nodes_add(tracker, unseen, NULL, node);
	}
	return result;
}

/* --- open ends ---------------------------------------------------------------- */

static struct gcp_open_end_list *bucket_of(struct gcp_open_end_list *lists,
					   const void *key)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	uintptr_t number = (uintptr_t)key;

	return &lists[(number >> 4 ^ number >> 12) % GCP_END_BUCKETS];
}

/* In this capture; NULL: in any that does not end. */
static struct gcp_open_end *end_find(struct gcp_tracker *tracker,
				     const struct gcp_capture *capture, const void *ctx,
				     const void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	LIST_FOREACH (end, bucket_of(tracker->ends, stream), handle_link)
		if (end->handle == stream &&
		    (capture ? end->capture == capture : end->capture->ending == 0) &&
		    (!gcp_stream_is_default(stream) ||
		     (end->ctx == ctx && end->thread == gcp_thread_number())))
			break;
	assert(!end || end->line > 0); /* G5 */
	return end;
}

struct gcp_open_end *gcp_order_end_known(struct gcp_tracker *tracker,
					 const void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	if (gcp_stream_is_default(stream) || !tracker->driver.contexts_hold())
		return NULL;
	end = end_find(tracker, NULL, NULL, stream);
	tracker->driver.contexts_release();
	return end;
}

/* Returns true if this thread can ask the stream, or nothing more comes there. */
static bool end_is_here(const struct gcp_open_end *end)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	return !end->handle || !gcp_stream_is_default(end->handle) ||
	       end->thread == gcp_thread_number();
}

/* It may come too late to be seen, behind an old event or after the host's memory was
 * out: what it is given follows what was released by then. */
struct gcp_open_end *gcp_order_stream_joined(struct gcp_tracker *tracker,
					     struct gcp_capture *capture, void *ctx,
					     void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end = end_find(tracker, capture, ctx, stream);

	if (end)
		return end;
	end = capture->lines == 0 ? &capture->first : calloc(1, sizeof(*end));
	if (!end || capture->released)
		atomic_store(&tracker->handled_frees, UINT64_MAX);
	if (!end) {
		capture->order_unknown = true;
		return NULL;
	}
	assert(capture->lines < UINT32_MAX); /* a line is never another's */
	end->capture = capture;
	end->ctx = ctx;
	end->handle = stream;
	end->line = ++capture->lines;
	end->thread = gcp_thread_number();
	end->resting = capture->released != NULL;
	SLIST_INSERT_HEAD(&capture->streams, end, link);
	LIST_INSERT_HEAD(bucket_of(tracker->ends, stream), end, handle_link);
	return end;
}

void gcp_order_ends_free(struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	while ((end = SLIST_FIRST(&capture->streams))) {
		SLIST_REMOVE_HEAD(&capture->streams, link);
		LIST_REMOVE(end, handle_link);
		if (end->event)
			LIST_REMOVE(end, event_link);
		if (end != &capture->first)
			free(end);
	}
}

/* Looks at every line, or at `only` one. The frontier is then their streams' ends. As
 * nodes_add. */
static int ends_look(struct gcp_tracker *tracker, struct gcp_capture *capture,
		     const struct gcp_open_end *only)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_nodes *frontier = &capture->frontier;
	struct gcp_open_end *end;

	frontier->count = 0;
	SLIST_FOREACH (end, &capture->streams, link) {
		int result = -EAGAIN;

		if (!end->handle || (only && end != only))
			continue;
		end->first = frontier->count;
		if (end_is_here(end)) /* else this thread cannot ask the stream */
			result = nodes_add(tracker, frontier, end, NULL);
		end->count = frontier->count - end->first;
		if (result == 0)
			result = line_look(tracker, capture, end->line,
					   frontier->items + end->first, end->count);
		if (result != 0)
			return result;
	}
	return 0;
}

/* --- free groups ------------------------------------------------------------- */

/* Keeps the nodes that existed at the latest free with the closed group: those that
 * were kept, and the ends where nothing came since. False: no memory. */
static bool free_group_add(struct gcp_capture *capture, uint64_t latest)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_nodes *kept = &capture->kept, *strays = &capture->strays;
	const struct gcp_open_end *end;
	struct gcp_free_group *free_group;
	size_t bytes;
	bool room;

	assert(capture->kept_for <= latest && capture->pool); /* G13 */
	if (capture->kept_for < latest)
		kept->count = 0;
	/* All of them were there: a group is closed before one is added. */
	room = nodes_append(kept, strays->items, strays->count); /* G5 */
	SLIST_FOREACH (end, &capture->streams, link) {
		if (!end->handle)
			continue;
		assert(end->kept <= latest); /* G13 */
		if (end->kept != latest)
			room &= nodes_append(kept, capture->frontier.items + end->first,
					     end->count);
		/* Those that precede an end by now are among the nodes of each later
		 * group; in this one an end may have been kept before it came to that.
		 */
		for (size_t i = 0; i < strays->count; i++)
			if (reach_has(&capture->reach, strays->items[i], end->line))
				strays->items[i--] = strays->items[--strays->count];
	}
	if (!room)
		return false;
	bytes = kept->count * sizeof(kept->items[0]);
	free_group = malloc(sizeof(*free_group) + bytes);
	if (!free_group)
		return false;
	free_group->group = capture->pool->group - 1;
	free_group->count = kept->count;
	if (bytes > 0)
		memcpy(free_group->nodes, kept->items, bytes);
	assert(!capture->released || capture->released->group < free_group->group);
	STAILQ_INSERT_TAIL(&capture->free_groups, free_group, link);
	return true;
}

/* Closes the open group, and looks at every line for it, or for a `proof` of any.
 * False: nothing is to be proved, or nothing can be, or the streams cannot be asked
 * just now. */
static bool free_group_close(struct gcp_tracker *tracker, struct gcp_capture *capture,
			     bool proof)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_graph_pool *graph_pool = capture->pool;
	struct gcp_graph_heap *entry;
	uint64_t latest = 0, any;
	int result;

	if (!graph_pool || !capture->forked || capture->order_unknown)
		return false;
	/* The ends are read after the group is closed: nothing in it was freed
	 * after them. */
	assert(!graph_pool->shared && graph_pool->captures == 1); /* G10 */
	assert(!capture->into_existing_graph);                    /* G7 */
	graph_pool->group++;
	SLIST_FOREACH (entry, &graph_pool->heaps, link) {
		any = gcp_heap_close_group(entry->heap, graph_pool->group);
		latest = any > 0 ? any : latest;
	}
	if (latest > 0 && gcp_tracker_capturing(tracker) == 1 &&
	    atomic_load(&tracker->handled_frees) < latest)
		atomic_store(&tracker->handled_frees, latest);
	assert(latest == 0 || latest >= capture->kept_for); /* G13 */
	if (latest == capture->unread)
		latest = 0;
	if ((latest == 0 && (!proof || STAILQ_EMPTY(&capture->free_groups))) ||
	    !tracker->driver.contexts_hold())
		return false;
	result = ends_look(tracker, capture, NULL);
	if (result == 0 && latest > 0 && !free_group_add(capture, latest))
		result = -ENOMEM;
	tracker->driver.contexts_release();
	/* The order is lost, but where the ends can be read later. */
	capture->order_unknown |= result != 0 && result != -EAGAIN;
	return result == 0;
}

void gcp_order_event_recording(struct gcp_tracker *tracker, struct gcp_open_end *end,
			       const void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	(void)free_group_close(tracker, end->capture, false);
	if (end->event)
		LIST_REMOVE(end, event_link);
	end->event = event;
	if (event)
		LIST_INSERT_HEAD(bucket_of(tracker->events, event), end, event_link);
}

/* --- streams that go ------------------------------------------------------------ */

/* The handle may be another stream's from now on, which is new to the capture. Or the
 * call that destroys the stream is refused, and work may come there that follows
 * nothing. */
void gcp_order_gone(struct gcp_capture *capture, const void *ctx, const void *stream)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->streams, link) {
		assert(end->capture == capture && end->line <= capture->lines); /* G5 */
		if (stream ? end->handle != stream : ctx && end->ctx != ctx)
			continue;
		capture->order_unknown = true;
		end->resting = false;
		end->handle = NULL;
	}
}

/* --- ends at rest -------------------------------------------------------------- */

/* The stream follows all that was released. Where that fails it rests, and its next
 * work is refused until it has followed. */
static int end_goes_on(struct gcp_tracker *tracker, struct gcp_open_end *end)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture = end->capture;
	const struct gcp_free_group *released = capture->released;
	struct gcp_nodes *missing = &capture->frontier;
	int result = 0;

	assert(end->line > 0 && end->handle && end_is_here(end));
	assert(!released || capture->forked); /* G4 */
	if (released && tracker->driver.contexts_hold()) {
		(void)ends_look(tracker, capture, end); /* else more are missing */
		tracker->driver.contexts_release();
	}
	missing->count = 0;
	if (released && !nodes_append(missing, NULL, released->count + 1))
		result = GCP_CUDA_OUT_OF_MEMORY;
	/* Those that are not known to precede the stream's end. */
	for (size_t i = 0; released && result == 0 && i < released->count; i++)
		if (!reach_has(&capture->reach, released->nodes[i], end->line))
			missing->items[missing->count++] = released->nodes[i];
	if (result == 0 && missing->count > 0)
		result = tracker->driver.stream_follow(end->ctx, end->handle,
						       missing->items, missing->count);
	end->resting = result != 0;
	if (end->resting)
		atomic_store(&tracker->handled_frees, UINT64_MAX);
	return result;
}

/* Another stream has waited for an event behind all its work, and at the latest look it
 * had none since: that precedes what the other one captures next. A default stream of a
 * thread is left out: no other thread can make it follow. */
static bool end_comes_to_rest(struct gcp_tracker *tracker, struct gcp_open_end *end)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_capture *capture = end->capture;
	void **nodes = capture->frontier.items + end->first;

	assert(end->handle && !end->resting);                       /* G5 */
	assert(end->first + end->count <= capture->frontier.count); /* G6 */
	end->resting = end->joined_by != 0 && !gcp_stream_is_default(end->handle);
	for (size_t i = 0; end->resting && i < end->count; i++)
		end->resting = reach_has(&capture->reach, nodes[i], end->joined_by);
	if (end->resting)
		atomic_store(&tracker->handled_frees, UINT64_MAX);
	return end->resting;
}

int gcp_order_stream_waited(struct gcp_tracker *tracker, struct gcp_open_end *end,
			    const void *event)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture = end->capture;
	/* One that does not rest follows all that was released: that is proved. */
	int result = end->resting ? end_goes_on(tracker, end) : 0;
	struct gcp_open_end *other;

	assert(!end->resting || result != 0); /* G6 */
	end->joined_by = 0;
	LIST_FOREACH (other, bucket_of(tracker->events, event), event_link)
		if (other->event == event && other->capture == capture && other != end)
			other->joined_by = end->line;
	capture->stuck = false;
	return result;
}

/* If it is the first work since the latest free (`freed`, or one that another thread
 * has seen) the end is kept for its group, which has no nodes if the end cannot be
 * read: its blocks wait with those of the next group. */
int gcp_order_stream_works(struct gcp_tracker *tracker, struct gcp_open_end *end,
			   uint64_t freed)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture = end->capture;
	int result = -EAGAIN;

	assert(end->handle && end->line > 0);   /* G5 */
	assert(end->kept <= capture->kept_for); /* G13 */
	freed = freed > capture->kept_for ? freed : capture->kept_for;
	if (capture->forked && !capture->order_unknown && end->kept < freed) {
		if (capture->kept_for < freed)
			capture->kept.count = 0;
		if (tracker->driver.contexts_hold()) {
			result = nodes_add(tracker, &capture->kept, end, NULL);
			tracker->driver.contexts_release();
		}
		if (result != 0)
			capture->unread = freed;
		capture->kept_for = end->kept = freed;
	}
	return end->resting ? end_goes_on(tracker, end) : 0;
}

void gcp_order_stream_set(struct gcp_tracker *tracker, struct gcp_open_end *left)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_capture *capture = left->capture;
	void *stream = left->handle;
	struct gcp_open_end *end;
	int result = -EBUSY;

	(void)free_group_close(tracker, capture, false);
	if (end_is_here(left) && tracker->driver.contexts_hold()) {
		result = nodes_add(tracker, &capture->strays, left, NULL);
		tracker->driver.contexts_release();
	}
	capture->order_unknown |= result != 0;
	/* The stream's nodes may precede no open end any more. */
	left->resting = false;
	left->handle = NULL;
	end = gcp_order_stream_joined(tracker, capture, left->ctx, stream);
	assert(!end || end != left); /* G5: another line */
	if (end)
		end->resting = true;
	atomic_store(&tracker->handled_frees, UINT64_MAX);
}

int gcp_order_node_added(struct gcp_tracker *tracker, struct gcp_capture *capture,
			 void *node)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_free_group *released = capture->released;

	assert(!released || capture->forked);
	assert(capture->graph && node);
	(void)free_group_close(tracker, capture, false);
	if (!nodes_append(&capture->strays, &node, 1))
		capture->order_unknown = true;
	return released ? tracker->driver.node_follows(capture->graph, node,
						       (void **)released->nodes,
						       released->count)
			: 0;
}

void gcp_order_all_work(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->streams, link)
		if (end->resting && end_is_here(end))
			(void)end_goes_on(tracker, end);
}

/* --- proof ------------------------------------------------------------------- */

/* The group precedes every open end. */
static bool free_group_is_proven(struct gcp_tracker *tracker,
				 struct gcp_capture *capture,
				 const struct gcp_free_group *free_group)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_open_end *end;

	SLIST_FOREACH (end, &capture->streams, link) {
		size_t i = 0;

		if (!end->handle || end->resting)
			continue;
		assert(end->line > 0 && end->line <= capture->lines); /* G5 */
		while (i < free_group->count &&
		       reach_has(&capture->reach, free_group->nodes[i], end->line))
			i++;
		if (i < free_group->count && !end_comes_to_rest(tracker, end))
			return false;
	}
	return true;
}

/* Oldest first: what precedes a group's nodes includes an earlier group's, so nothing
 * after a failure can succeed. */
void gcp_order_prove(struct gcp_tracker *tracker, struct gcp_capture *capture)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_free_group *free_group;
	struct gcp_graph_heap *entry;

	if (capture->stuck || !free_group_close(tracker, capture, true))
		return;
	assert(!capture->order_unknown); /* G7 */
	while ((free_group = STAILQ_FIRST(&capture->free_groups)) &&
	       free_group_is_proven(tracker, capture, free_group)) {
		assert(!capture->released ||
		       capture->released->group < free_group->group);
		STAILQ_REMOVE_HEAD(&capture->free_groups, link);
		free(capture->released);
		capture->released = free_group;
	}
	capture->stuck = free_group != NULL;
	assert(!capture->released || capture->released->group < capture->pool->group);
	SLIST_FOREACH (entry, &capture->pool->heaps, link)
		if (capture->released)
			gcp_heap_release_groups(entry->heap, capture->released->group);
}
