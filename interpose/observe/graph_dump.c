/* SPDX-License-Identifier: MIT */
/*
 * graph_dump.c - gcpool_graph_dump: the graph pools of the process in a file, as JSON
 * or as a graph of Graphviz. They are copied under the locks of the rooms; written
 * without.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/log.h"
#include "../base/process.h"

/* A file that is written piece by piece; error: an errno. */
struct writer {
	int fd, error;
	struct gcp_text text;
	char bytes[8192];
};

enum { PIECE_MAX = 1024 };

#define ULL(number) ((unsigned long long)(number))

#define PUT(writer, ...)                                                               \
	do {                                                                           \
		gcp_text_add(&(writer)->text, __VA_ARGS__);                            \
		writer_flush(writer, sizeof((writer)->bytes) - PIECE_MAX);             \
	} while (0)

/* Writes what is there, if it is more than `most`. */
static void writer_flush(struct writer *writer, size_t most)
{
	if (writer->text.length <= most && most > 0)
		return;
	if (!writer->error)
		writer->error = gcp_text_write(&writer->text, writer->fd);
	gcp_text_init(&writer->text, writer->bytes, sizeof(writer->bytes));
}

static const char *const states[] = {
    [GCP_PICTURE_HELD] = "held",
    [GCP_PICTURE_FRESH] = "fresh",
    [GCP_PICTURE_FREE] = "free",
    [GCP_PICTURE_FREED_IN_CAPTURE] = "freed in capture",
    [GCP_PICTURE_PENDING] = "pending",
    [GCP_PICTURE_LANE] = "lane",
};

/* As cuda.h names them: enum CUgraphNodeType_enum. */
static const char *const node_types[GCP_NODE_TYPES] = {
    "kernel",         "memcpy",       "memset",
    "host",           "graph",        "empty",
    "wait_event",     "event_record", "ext_semas_signal",
    "ext_semas_wait", "mem_alloc",    "mem_free",
    "batch_mem_op",   "conditional",  "other",
};

static uint64_t nodes_all(const struct gcp_graph_nodes *nodes)
{
	uint64_t count = 0;

	for (size_t i = 0; i < GCP_NODE_TYPES; i++)
		count += nodes->types[i];
	return count;
}

static const char *kind_of(const struct gcp_graph_picture_of *graph)
{
	return graph->is_exec ? "executable" : "graph";
}

/* The blocks of the segment that begins at `first`: up to which one. */
static size_t segment_end(const struct gcp_heap_picture_of *heap, size_t first)
{
	size_t end = first;

	while (end < heap->count &&
	       heap->blocks[end].segment == heap->blocks[first].segment)
		end++;
	return end;
}

/* --- JSON ------------------------------------------------------------------------ */

static void json_block(struct writer *writer, const struct gcp_block_picture *block)
{
	PUT(writer, "{\"address\": \"0x%llx\", \"size\": %llu, \"state\": \"%s\"",
	    ULL(block->addr), ULL(block->size), states[block->state]);
	if (block->state == GCP_PICTURE_HELD)
		PUT(writer, ", \"requested\": %llu", ULL(block->requested));
	else
		PUT(writer, ", \"free_group\": %llu", ULL(block->group));
	PUT(writer, "}");
}

static void json_heap(struct writer *writer, const struct gcp_heap_picture_of *heap)
{
	size_t end;

	PUT(writer, "{\"device\": %d, \"segments\": [",
	    heap->count ? heap->blocks[0].device : -1);
	for (size_t first = 0; first < heap->count; first = end) {
		end = segment_end(heap, first);
		PUT(writer,
		    "%s\n {\"address\": \"0x%llx\", \"size\": %llu, \"blocks\": [",
		    first ? "," : "", ULL(heap->blocks[first].segment),
		    ULL(heap->blocks[first].segment_size));
		for (size_t i = first; i < end; i++) {
			PUT(writer, "%s", i > first ? ",\n  " : "\n  ");
			json_block(writer, &heap->blocks[i]);
		}
		PUT(writer, "]}");
	}
	PUT(writer, "]}");
}

static const char *json_bool(bool value)
{
	return value ? "true" : "false";
}

static void json_list(struct writer *writer, const struct gcp_node_list *list)
{
	PUT(writer, ",\n   \"node_list\": [");
	for (uint32_t i = 0; i < list->node_count; i++)
		PUT(writer, "%s\"%s\"", i ? ", " : "", node_types[list->types[i]]);
	PUT(writer, "],\n   \"edge_list\": [");
	for (uint32_t i = 0; i < list->edge_count; i++)
		PUT(writer, "%s[%u, %u]", i ? ", " : "", list->edges[i].from,
		    list->edges[i].to);
	PUT(writer, "]");
}

static void json_graph(struct writer *writer, const struct gcp_graph_picture_of *graph)
{
	const struct gcp_graph_nodes *nodes = &graph->nodes;
	const char *between = "";

	PUT(writer, "{\"kind\": \"%s\"", kind_of(graph));
	if (nodes->known) {
		PUT(writer, ", \"nodes\": %llu, \"edges\": %llu, \"types\": {",
		    ULL(nodes_all(nodes)), ULL(nodes->edges));
		for (size_t i = 0; i < GCP_NODE_TYPES; i++) {
			if (nodes->types[i] == 0)
				continue;
			PUT(writer, "%s\"%s\": %llu", between, node_types[i],
			    ULL(nodes->types[i]));
			between = ", ";
		}
		PUT(writer, "}");
		if (graph->list)
			json_list(writer, graph->list);
		else
			PUT(writer, ", \"nodes_left_out\": true");
	}
	PUT(writer, "}");
}

static void json_graphs(struct writer *writer,
			const struct gcp_graph_pool_picture *pool)
{
	PUT(writer, "\"graphs\": [");
	for (size_t i = 0; i < pool->graph_count; i++) {
		PUT(writer, "%s", i ? ",\n  " : "");
		json_graph(writer, &pool->graphs[i]);
	}
	PUT(writer, "],\n ");
}

static void json_pool(struct writer *writer, const struct gcp_graph_pool_picture *pool)
{
	PUT(writer,
	    "{\"id\": %llu, \"named\": %s, \"given_once\": %s, \"pinned\": %s,\n ",
	    ULL(pool->info.id), json_bool(pool->named), json_bool(pool->once),
	    json_bool(pool->pinned));
	PUT(writer, "\"references\": {\"captures\": %llu, \"graphs\": %llu, ",
	    ULL(pool->info.captures), ULL(pool->info.graphs));
	PUT(writer, "\"program\": %llu},\n \"last_capture_id\": %llu, ",
	    ULL(pool->held), ULL(pool->info.last_capture_id));
	PUT(writer,
	    "\"reserved_bytes\": %llu, \"allocated_bytes\": %llu, \"lane\": %llu,\n ",
	    ULL(pool->info.reserved_bytes), ULL(pool->info.allocated_bytes),
	    ULL(pool->lane));
	json_graphs(writer, pool);
	PUT(writer, "\"heaps\": [");
	for (size_t i = 0; i < pool->heap_count; i++) {
		PUT(writer, "%s", i ? ", " : "");
		json_heap(writer, &pool->heaps[i]);
	}
	PUT(writer, "]}");
}

static void json_all(struct writer *writer, const struct gcp_graph_pool_picture *pools,
		     size_t count)
{
	PUT(writer, "{\"schema\": 1, \"graph_pools\": [");
	for (size_t i = 0; i < count; i++) {
		PUT(writer, "%s\n", i ? "," : "");
		json_pool(writer, &pools[i]);
	}
	PUT(writer, "]}\n");
}

/* --- Graphviz -------------------------------------------------------------------- */

static void dot_segment(struct writer *writer,
			const struct gcp_graph_pool_picture *pool,
			const struct gcp_heap_picture_of *heap, size_t first,
			size_t end)
{
	const struct gcp_block_picture *block = &heap->blocks[first];

	PUT(writer,
	    " s%llx [shape=record, label=\"{segment 0x%llx\\n%llu bytes, device %d",
	    ULL(block->segment), ULL(block->segment), ULL(block->segment_size),
	    block->device);
	for (size_t i = first; i < end; i++) {
		block = &heap->blocks[i];
		PUT(writer, "|0x%llx %s %llu", ULL(block->addr), states[block->state],
		    ULL(block->size));
	}
	PUT(writer, "}\"];\n p%llu -> s%llx;\n", ULL(pool->info.id),
	    ULL(heap->blocks[first].segment));
}

static void dot_reference(struct writer *writer,
			  const struct gcp_graph_pool_picture *pool, const char *of,
			  uint64_t count)
{
	if (count > 0)
		PUT(writer, " p%llu_%s [label=\"%s: %llu\"];\n p%llu_%s -> p%llu;\n",
		    ULL(pool->info.id), of, of, ULL(count), ULL(pool->info.id), of,
		    ULL(pool->info.id));
}

/* The nodes of a graph in a frame; once, also if several graphs have the same. */
static void dot_list(struct writer *writer, const struct gcp_node_list *list)
{
	PUT(writer, " subgraph cluster_g%llu {\n", ULL(list->id));
	for (uint32_t i = 0; i < list->node_count; i++)
		PUT(writer, "  g%llu_n%u [label=\"%u %s\"];\n", ULL(list->id), i, i,
		    node_types[list->types[i]]);
	for (uint32_t i = 0; i < list->edge_count; i++)
		PUT(writer, "  g%llu_n%u -> g%llu_n%u;\n", ULL(list->id),
		    list->edges[i].from, ULL(list->id), list->edges[i].to);
	PUT(writer, " }\n");
}

static void dot_graph(struct writer *writer, const struct gcp_graph_pool_picture *pool,
		      size_t number)
{
	const struct gcp_graph_picture_of *graph = &pool->graphs[number];

	PUT(writer, " p%llu_g%llu [shape=box, label=\"%s", ULL(pool->info.id),
	    ULL(number), kind_of(graph));
	if (graph->nodes.known)
		PUT(writer, "\\n%llu nodes, %llu edges", ULL(nodes_all(&graph->nodes)),
		    ULL(graph->nodes.edges));
	for (size_t i = 0; i < GCP_NODE_TYPES; i++)
		if (graph->nodes.types[i] > 0)
			PUT(writer, "\\n%s: %llu", node_types[i],
			    ULL(graph->nodes.types[i]));
	if (graph->nodes.known && !graph->list)
		PUT(writer, "\\nnodes left out");
	PUT(writer, "\"];\n p%llu_g%llu -> p%llu;\n", ULL(pool->info.id), ULL(number),
	    ULL(pool->info.id));
	if (graph->list && graph->first)
		dot_list(writer, graph->list);
	if (graph->list && graph->list->node_count > 0)
		PUT(writer, " g%llu_n0 -> p%llu_g%llu [ltail=cluster_g%llu];\n",
		    ULL(graph->list->id), ULL(pool->info.id), ULL(number),
		    ULL(graph->list->id));
}

static void dot_pool(struct writer *writer, const struct gcp_graph_pool_picture *pool)
{
	size_t end;

	PUT(writer,
	    " p%llu [shape=box, label=\"graph pool %llu%s%s\\n%llu bytes, %llu "
	    "held\"];\n",
	    ULL(pool->info.id), ULL(pool->info.id),
	    pool->named ? ", the program's" : "", pool->once ? ", each block once" : "",
	    ULL(pool->info.reserved_bytes), ULL(pool->info.allocated_bytes));
	dot_reference(writer, pool, "captures", pool->info.captures);
	dot_reference(writer, pool, "graphs", pool->info.graphs);
	dot_reference(writer, pool, "program", pool->held);
	for (size_t i = 0; i < pool->graph_count; i++)
		dot_graph(writer, pool, i);
	if (pool->lane)
		PUT(writer, " p%llu -> lane_%llu;\n", ULL(pool->info.id),
		    ULL(pool->lane));
	for (size_t i = 0; i < pool->heap_count; i++)
		for (size_t first = 0; first < pool->heaps[i].count; first = end) {
			end = segment_end(&pool->heaps[i], first);
			dot_segment(writer, pool, &pool->heaps[i], first, end);
		}
}

static void dot_all(struct writer *writer, const struct gcp_graph_pool_picture *pools,
		    size_t count)
{
	PUT(writer, "digraph gcpool {\n rankdir=LR;\n compound=true;\n");
	for (size_t i = 0; i < count; i++)
		dot_pool(writer, &pools[i]);
	PUT(writer, "}\n");
}

/* --- the file -------------------------------------------------------------------- */

typedef void write_all(struct writer *writer,
		       const struct gcp_graph_pool_picture *pools, size_t count);

/* By the file's ending; NULL: another one. */
static write_all *form_of(const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	if (dot && strcmp(dot, ".json") == 0)
		return json_all;
	return dot && strcmp(dot, ".dot") == 0 ? dot_all : NULL;
}

static int file_write(const char *path, write_all *all,
		      const struct gcp_graph_pool_picture *pools, size_t count)
{
	struct writer *writer = malloc(sizeof(*writer));
	int error;

	if (!writer)
		return -ENOMEM;
	writer->error = 0;
	writer->fd = gcp_path_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	error = writer->fd < 0 ? errno : 0;
	if (!error) {
		gcp_text_init(&writer->text, writer->bytes, sizeof(writer->bytes));
		all(writer, pools, count);
		writer_flush(writer, 0);
		error = writer->error;
		if (close(writer->fd) != 0 && !error)
			error = errno;
	}
	free(writer);
	return -error;
}

int gcpool_graph_dump(const char *path)
{
	struct gcp_graph_pool_picture *pools = NULL;
	write_all *all = form_of(path);
	int saved = errno, result;
	size_t count = 0;

	if (!all)
		return -EINVAL;
	if (!gcp_process_pooling())
		return -ENOENT;
	result = gcp_graph_pools_picture(gcp_process.tracker, &pools, &count);
	if (result == 0) {
		result = file_write(path, all, pools, count);
		gcp_graph_pools_picture_free(gcp_process.tracker, pools, count);
	}
	errno = saved;
	return result;
}
