/* SPDX-License-Identifier: MIT */
/*
 * graph.h - graphs as capture.c, graph.c, exec.c and user_object.c see them.
 * Everything runs under the big lock.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim.h"

struct sim_condition;
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
/* A reference that frees memory of graph allocation nodes when it goes. */
struct sim_user_object *sim_user_memory(struct sim_alloc *alloc);

/* What an executable graph and its launches in flight keep alive together. */
struct sim_hold *sim_hold_new(struct sim_user_refs users); /* takes `users` */
struct sim_hold *sim_hold_get(struct sim_hold *hold);
/* A launch shares the hold; `vc` is its order. */
void sim_hold_launched(struct sim_hold *hold, const struct sim_vc *vc);

struct sim_node {
	struct sim_object object;
	struct sim_graph *graph;
	CUgraphNodeType type;
	struct sim_ctx *ctx; /* where its work runs */
	struct sim_work work;
	struct sim_graph *child;   /* CHILD: a clone of its own */
	struct sim_graph **bodies; /* CONDITIONAL */
	uint32_t body_count;
	unsigned condition; /* what its handle begins with */
	CUgraphConditionalNodeType condition_type;
	struct sim_event *event;   /* EVENT_RECORD, WAIT_EVENT */
	struct sim_node *original; /* in a clone: what it was made from */
	struct sim_nodes before, after;
	uint32_t mark;  /* scratch for walks */
	uint32_t index; /* scratch: in its graph's list */
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
	struct sim_condition *conditions; /* handles */
	struct sim_node *parent;          /* it is this node's child or body */
	bool capturing;                   /* a capture adds to it */
	uint32_t execs;                   /* that were made from it and live */
	const struct sim_graph *original; /* a clone of this one */
};

/* A capture under way (capture.c). */
struct sim_capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	uint64_t thread; /* that began it */
	struct sim_stream *origin;
	struct sim_graph *graph;
	bool invalid;
	struct sim_nodes orphans; /* frontiers of streams that were destroyed */
	struct sim_capture *next;
};

struct sim_graph *sim_graph_new(void);
void sim_graph_delete(struct sim_graph *graph);
struct sim_graph *sim_graph_clone(const struct sim_graph *graph);
struct sim_node *sim_node_new(struct sim_graph *graph, CUgraphNodeType type,
			      struct sim_ctx *ctx);
void sim_node_depend(struct sim_node *node, struct sim_node *before);
/* Work behind `ends` is to follow this node, too. Checks whether plain CUDA has that
 * order (plain.c). */
void sim_plain_node(const struct sim_nodes *ends, const struct sim_node *before);
/* Whether `node` comes at or before one of `ends`. */
bool sim_nodes_reach(const struct sim_nodes *ends, const struct sim_node *node);
/* What a node became in an executable graph; NULL if it is not in it. */
struct sim_node *sim_exec_node(CUgraphExec handle, const struct sim_node *node);
bool sim_nodes_of_graph(const struct sim_graph *graph, const CUgraphNode *nodes,
			size_t count);
/* Which graph runs in a node's place; NULL: none does. */
struct sim_graph *sim_node_inner(const struct sim_node *node);
void sim_bodies_copy(struct sim_node *node, const struct sim_node *from);
void sim_bodies_delete(struct sim_node *node);
/* Whether each handle has its node, and each body only what may be in one. */
bool sim_conditions_allowed(const struct sim_graph *graph);
void sim_conditions_free(struct sim_graph *graph);
/* Whether it has nodes that allocate or free, or conditional ones: such a graph can
 * neither be copied nor have two executables at a time. */
bool sim_graph_is_single(const struct sim_graph *graph);
bool sim_graph_has_memory(const struct sim_graph *graph);
CUgraphNodeType sim_node_type_of(const struct sim_work *work);

#endif
