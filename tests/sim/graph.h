/*
 * graph.h - graphs as capture.c, graph.c, exec.c and user_object.c see them.
 * Everything runs under the big lock.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim.h"

struct sim_user_object;

/* References to user objects, one entry per object. */
struct sim_user_refs {
	struct {
		struct sim_user_object *user;
		uint32_t refs;
	} * at;
	uint32_t count, capacity;
};

void sim_user_refs_add(struct sim_user_refs *refs, struct sim_user_object *user,
		       uint32_t count);
void sim_user_refs_share(struct sim_user_refs *refs, const struct sim_user_refs *from);
void sim_user_refs_free(struct sim_user_refs *refs);

/* What an executable graph and its launches in flight keep alive together. */
struct sim_hold *sim_hold_new(struct sim_user_refs users); /* takes `users` */
struct sim_hold *sim_hold_get(struct sim_hold *hold);

struct sim_node {
	struct sim_object object;
	struct sim_graph *graph;
	CUgraphNodeType type;
	struct sim_ctx *ctx; /* where its work runs */
	struct sim_work work;
	struct sim_graph *child;   /* CHILD: a clone of its own */
	struct sim_event *event;   /* EVENT_RECORD, WAIT_EVENT */
	struct sim_node *original; /* in a clone: what it was made from */
	struct sim_nodes before, after;
	uint32_t mark; /* scratch for walks */
	/* Scratch of a launch. */
	struct sim_op *op;
	struct sim_vc vc;
	uint32_t lane;
	bool lane_continued;
};

struct sim_graph {
	struct sim_object object;
	struct sim_nodes nodes; /* in order of creation */
	struct sim_user_refs users;
	struct sim_node *parent;    /* it is the child graph of this node */
	bool capturing;             /* a capture adds to it */
	struct sim_graph *original; /* a clone of this one */
	uint64_t *memory;           /* addresses that its alloc nodes gave out */
	uint32_t memory_count, memory_capacity;
};

struct sim_graph *sim_graph_new(void);
void sim_graph_delete(struct sim_graph *graph);
struct sim_graph *sim_graph_clone(const struct sim_graph *graph);
struct sim_node *sim_node_new(struct sim_graph *graph, CUgraphNodeType type,
			      struct sim_ctx *ctx);
void sim_node_depend(struct sim_node *node, struct sim_node *before);
/* Whether `node` comes at or before one of `ends`. */
bool sim_nodes_reach(const struct sim_nodes *ends, const struct sim_node *node);
CUgraphNodeType sim_node_type_of(const struct sim_work *work);

#endif
