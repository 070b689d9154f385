/* SPDX-License-Identifier: MIT */
/*
 * reach.c - which nodes of the graph that is being captured precede which line's end:
 * looks, and the table that they fill. What that proves is order.c's to say, and what
 * lines and looks are.
 *
 * tracker->lock is held.
 */
#include "capture_types.h"

enum { NODES_MAX = 1 << 20 }; /* that one end or one node may depend on */

bool gcp_nodes_reserve(struct gcp_nodes *nodes, size_t room)
{
	void **items;

	if (room <= nodes->room)
		return true;
	room = room < 2 * nodes->room ? 2 * nodes->room : room;
	items = room < NODES_MAX ? realloc(nodes->items, room * sizeof(*items)) : NULL;
	if (!items)
		return false;
	nodes->items = items;
	nodes->room = room;
	assert(nodes->count <= room);
	return true;
}

bool gcp_nodes_append(struct gcp_nodes *nodes, void *const *items, size_t count)
{
	if (!gcp_nodes_reserve(nodes, nodes->count + count))
		return false;
	if (count > 0)
		memcpy(nodes->items + nodes->count, items, count * sizeof(*items));
	nodes->count += count;
	return true;
}

static struct gcp_reach_place *reach_place(const struct gcp_reach *reach,
					   const void *node, uint32_t line)
{
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

/* Returns true if a look at the line has met the node; else it is entered. */
static bool reach_enter(struct gcp_reach *reach, void *node, uint32_t line)
{
	struct gcp_reach_place *place = reach_place(reach, node, line);

	assert(node && line > 0);
	if (place->node)
		return true;
	*place = (struct gcp_reach_place){node, line};
	reach->count++;
	return false;
}

bool gcp_reach_has(const struct gcp_reach *reach, const void *node, uint32_t line)
{
	assert(line > 0 && node);
	return reach->room > 0 && reach_place(reach, node, line)->node;
}

int gcp_nodes_add(struct gcp_tracker *tracker, struct gcp_nodes *nodes,
		  const struct gcp_open_end *stream, void *node)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	const struct gcp_capture_driver *driver = &tracker->driver;
	size_t room = 16, count;
	void **items;
	int result;

	assert(!stream != !node); /* one of the two is asked */
	do {
		if (!gcp_nodes_reserve(nodes, nodes->count + room))
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

int gcp_line_look(struct gcp_tracker *tracker, struct gcp_capture *capture,
		  uint32_t line, void **nodes, size_t count)
{
	gcp_assert_held(GCP_RANK_TRACKER);
	struct gcp_nodes *unseen = &capture->unseen;
	int result = 0;

	assert(line > 0 && line <= capture->lines);
	unseen->count = 0;
	if (!gcp_nodes_append(unseen, nodes, count))
		return -ENOMEM;
	while (result == 0 && unseen->count > 0) {
		void *node = unseen->items[--unseen->count];

		if (4 * capture->reach.count >= 3 * capture->reach.room &&
		    !reach_grow(&capture->reach))
			return -ENOMEM;
		if (!reach_enter(&capture->reach, node, line))
			result = gcp_nodes_add(tracker, unseen, NULL, node);
	}
	return result;
}
