/* SPDX-License-Identifier: MIT */
/*
 * node_list.c - the nodes and edges of captured graphs, as they are at the end of the
 * capture, for gcpool_graph_dump. A list is shared by the holders that are made of the
 * graph, and goes with the last of them.
 */
#include "holders.h"

static_assert(GCP_NODE_LIST_MAX <= UINT16_MAX + 1, "an edge has 16 bits for a node");

static size_t list_size(const struct gcp_node_list *list)
{
	return (size_t)list->node_count + list->edge_count;
}

struct gcp_node_list *gcp_node_list_create(size_t nodes, size_t edges)
{
	struct gcp_node_list *list;

	assert(nodes + edges <= GCP_NODE_LIST_MAX);
	list = malloc(sizeof(*list) + edges * sizeof(*list->edges) + nodes);
	if (!list)
		return NULL;
	*list = (struct gcp_node_list){.node_count = (uint32_t)nodes,
				       .edge_count = (uint32_t)edges};
	list->types = (uint8_t *)&list->edges[edges];
	return list;
}

struct gcp_node_list *gcp_node_list_take(struct gcp_node_list *list)
{
	if (list)
		list->references++;
	return list;
}

void gcp_node_list_drop(struct gcp_tracker *tracker, struct gcp_node_list *list)
{
	if (!list || --list->references > 0)
		return;
	assert(tracker->listed_nodes >= list_size(list));
	tracker->listed_nodes -= list_size(list);
	free(list);
}

size_t gcp_node_list_room(const struct gcp_tracker *tracker)
{
	size_t room = GCP_NODE_LISTS_MAX - tracker->listed_nodes;

	return room < GCP_NODE_LIST_MAX ? room : GCP_NODE_LIST_MAX;
}

struct gcp_node_list *gcp_node_list_keep(struct gcp_tracker *tracker,
					 struct gcp_holder *holder,
					 const struct gcp_graph_nodes *nodes,
					 struct gcp_node_list *list)
{
	holder->nodes = *nodes;
	gcp_node_list_drop(tracker, holder->list);
	holder->list = NULL;
	if (!list || list_size(list) > gcp_node_list_room(tracker))
		return list;
	list->id = ++tracker->last_list;
	tracker->listed_nodes += list_size(list);
	holder->list = gcp_node_list_take(list);
	return NULL;
}
