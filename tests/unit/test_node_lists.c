/* SPDX-License-Identifier: MIT */
/*
 * test_node_lists.c - the nodes of captured graphs that are kept for gcpool_graph_dump:
 * which graphs have them, how many there are at most, and when they go.
 */
#include "../../capture/capture_types.h"
#include "capture_fake.h"

static struct {
	size_t nodes; /* that each graph has, one after the other */
	size_t room;  /* of the latest call */
	int result;
	void (*meanwhile)(void); /* another thread, once */
} graphs;

static int graph_nodes(void *graph, size_t room, struct gcp_graph_nodes *ret_nodes,
		       struct gcp_node_list **ret_list,
		       struct gcp_node_handles **ret_handles)
{
	size_t edges = graphs.nodes - 1;
	struct gcp_node_list *list = NULL;
	void (*meanwhile)(void) = graphs.meanwhile;

	(void)graph;
	graphs.room = room;
	ret_nodes->types[0] = (uint32_t)graphs.nodes;
	ret_nodes->edges = edges;
	if (graphs.result == 0 && graphs.nodes + edges <= room)
		list = gcp_node_list_create(graphs.nodes, edges);
	if (list) {
		memset(list->types, 0, graphs.nodes);
		for (size_t i = 0; i < edges; i++)
			list->edges[i] =
			    (struct gcp_node_edge){(uint16_t)i, (uint16_t)(i + 1)};
	}
	*ret_list = list;
	*ret_handles = NULL;
	graphs.meanwhile = NULL;
	if (meanwhile)
		meanwhile();
	return graphs.result;
}

/* A graph of so many nodes that holds memory; as the hooks do. */
static void *captured(size_t nodes)
{
	void *graph = begin(0);

	tracker->driver.graph_nodes = graph_nodes;
	graphs.nodes = nodes;
	must_free(pools, capture_alloc(3 * MIB));
	end(0);
	gcp_graph_nodes_note(tracker, graph);
	return graph;
}

static void *made(int i, void *from, bool is_exec)
{
	void *handle = (void *)(uintptr_t)(0x50000 + 16 * i);
	struct gcp_holder *holding;

	assert_int_equal(gcp_holding_begin(tracker, from, false, &holding), 0);
	gcp_holding_new(tracker, holding, handle, is_exec);
	return handle;
}

struct lists {
	size_t graphs, lists, first;
	const struct gcp_node_list *one;
};

static struct lists lists_of(const struct gcp_graph_pool_picture *pictures,
			     size_t count)
{
	struct lists lists = {0};

	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < pictures[i].graph_count; j++) {
			lists.graphs++;
			lists.lists += pictures[i].graphs[j].list != NULL;
			lists.first += pictures[i].graphs[j].first;
			if (pictures[i].graphs[j].list)
				lists.one = pictures[i].graphs[j].list;
		}
	}
	return lists;
}

/* In a picture that is made now. */
static struct lists lists_now(void)
{
	struct gcp_graph_pool_picture *pictures;
	struct lists lists;
	size_t count;

	assert_int_equal(gcp_graph_pools_picture(tracker, &pictures, &count), 0);
	lists = lists_of(pictures, count);
	gcp_graph_pools_picture_free(tracker, pictures, count);
	return lists;
}

static void what_is_made_of_a_graph_has_its_list(void **state)
{
	void *graph = captured(3), *exec = made(0, graph, true);
	void *clone = made(1, graph, false);
	struct lists lists = lists_now();

	(void)state;
	assert_int_equal(lists.graphs, 3);
	assert_int_equal(lists.lists, 3);
	assert_int_equal(lists.first, 1);
	assert_int_equal(lists_now().first, 1);
	assert_int_equal(tracker->listed_nodes, 5);
	graph_destroy(graph);
	graph_destroy(clone);
	assert_int_equal(tracker->listed_nodes, 5);
	assert_int_equal(lists_now().one->edges[1].to, 2);
	holder_destroy(exec, true);
	assert_int_equal(tracker->listed_nodes, 0);
}

static void a_picture_keeps_the_list(void **state)
{
	struct gcp_graph_pool_picture *pictures;
	void *graph = captured(3);
	size_t count;

	(void)state;
	assert_int_equal(gcp_graph_pools_picture(tracker, &pictures, &count), 0);
	graph_destroy(graph);
	assert_int_equal(lists_of(pictures, count).one->edges[1].to, 2);
	gcp_graph_pools_picture_free(tracker, pictures, count);
	assert_int_equal(tracker->listed_nodes, 0);
}

enum { MOST = GCP_NODE_LIST_MAX / 2, ALL = GCP_NODE_LISTS_MAX / GCP_NODE_LIST_MAX };

static void a_graph_has_so_many_at_most(void **state)
{
	void *graph = captured(MOST), *larger = captured(MOST + 1);

	(void)state;
	assert_int_equal(graphs.room, GCP_NODE_LIST_MAX);
	assert_int_equal(lists_now().lists, 1);
	graph_destroy(graph);
	graph_destroy(larger);
}

static void all_graphs_have_so_many_at_most(void **state)
{
	void *all[ALL], *more;

	(void)state;
	for (int i = 0; i < ALL; i++)
		all[i] = captured(MOST);
	more = captured(MOST);
	assert_int_equal(lists_now().graphs, ALL + 1);
	assert_int_equal(lists_now().lists, ALL);
	graph_destroy(more);
	graph_destroy(all[0]);
	all[0] = captured(MOST);
	assert_int_equal(lists_now().lists, ALL);
	for (int i = 0; i < ALL; i++)
		graph_destroy(all[i]);
	assert_int_equal(tracker->listed_nodes, 0);
}

static void others_take_the_room(void)
{
	tracker->listed_nodes += GCP_NODE_LISTS_MAX - 4;
}

static void another_thread_takes_the_room_meanwhile(void **state)
{
	void *graph;

	(void)state;
	graphs.meanwhile = others_take_the_room;
	graph = captured(3);
	assert_int_equal(lists_now().lists, 0);
	assert_int_equal(tracker->listed_nodes, GCP_NODE_LISTS_MAX - 4);
	tracker->listed_nodes = 0;
	graph_destroy(graph);
}

static void a_graph_that_is_captured_again_has_another_list(void **state)
{
	void *graph = captured(3);

	(void)state;
	graphs.nodes = 7;
	gcp_graph_nodes_note(tracker, graph);
	assert_int_equal(tracker->listed_nodes, 13);
	assert_int_equal(lists_now().one->node_count, 7);
	graphs.result = 1;
	gcp_graph_nodes_note(tracker, graph);
	graphs.result = 0;
	assert_int_equal(tracker->listed_nodes, 0);
	assert_int_equal(lists_now().lists, 0);
	graph_destroy(graph);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(what_is_made_of_a_graph_has_its_list),
	    TEST(a_picture_keeps_the_list),
	    TEST(a_graph_has_so_many_at_most),
	    TEST(all_graphs_have_so_many_at_most),
	    TEST(another_thread_takes_the_room_meanwhile),
	    TEST(a_graph_that_is_captured_again_has_another_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
