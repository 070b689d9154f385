/* SPDX-License-Identifier: MIT */
/*
 * capture_types.h - the structures of capture/ and their invariants. Included by the
 * files of capture/ only.
 *
 * One lock, tracker->lock, guards all of it. It comes before every lock of
 * pool/, and is never held over a call of the driver but those of struct
 * gcp_capture_driver, which never wait.
 */
#ifndef GCP_CAPTURE_TYPES_H
#define GCP_CAPTURE_TYPES_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "capture.h"

enum {
	GCP_HOLDER_BUCKETS = 4096,
	GCP_END_BUCKETS = 256,
};

/* A heap of a graph pool in one context. */
struct gcp_graph_heap {
	struct gcp_heap *heap;
	struct gcp_pool *pool;
	SLIST_ENTRY(gcp_graph_heap) link;
};

/* Calls that launch a graph, or graphs of a lane, just now. Their begins are counted
 * under the lock, and their ends without it. */
#define gcp_in_progress(launched) ((launched)->begins - atomic_load(&(launched)->ends))

/* A launch, and the stream that it was given to. */
struct gcp_last {
	uint64_t stream_id; /* 0: not known */
	void *stream;       /* its handle */
	uint64_t gone;      /* streams that had gone when it was there for certain */
};

/* Invariants:
 *  P1 references == captures + graphs + held, and one more if kept
 *  P2 with no reference there is no heap and no pinned memory, unless it waits
 * Lives as long as its id may be named: until the tracker's end for those that
 * the program made; until the last reference goes, and the calls that launch its graph
 * have returned, for others.
 *
 * If it `shares`, it is the memory of one captured graph that may share, in one heap,
 * until the graph gets memory of its own, which it keeps, or the memory is released.
 * All that runs on its addresses are launches of executables that hold the memory of
 * the graph, and of no other one that may share: another use gives the graph memory of
 * its own first (X7). share.h */
struct gcp_graph_pool {
	uint64_t id;
	bool named;  /* made by the program through gcpool.h */
	bool shared; /* by captures at the same time, of which one goes on, or common */
	uint64_t captures, graphs, held; /* references, by kind; graphs: by holders;
					  * held: by the program, or for one call */
	bool kept;            /* permanently: what can run on it is not known */
	enum gcp_reuse reuse; /* of freed blocks, in all its heaps */
	uint64_t group;       /* that frees in captures get, likewise */
	uint64_t last_capture_id;
	uint64_t generation; /* times that it lost its last reference */
	SLIST_HEAD(, gcp_graph_heap) heaps;
	struct gcp_pinned_set *pinned_set; /* pinned memory; NULL: none yet */
	TAILQ_ENTRY(gcp_graph_pool) link;
	bool away;       /* it was launched in another context than the memory is of */
	bool unseen;     /* each launch may be one of it */
	uint64_t awaits; /* the latest launch, when the last reference went, if so */
	bool waits;      /* the last reference is gone, or was */
	TAILQ_ENTRY(gcp_graph_pool) waiting_link; /* tracker->waiting */
	bool shares; /* what follows is of its graph then */
	struct gcp_pool *pool;
	struct gcp_heap *heap;
	bool updated; /* an executable was updated to it, and may be to another soon */
	bool listed;  /* the program knows its nodes */
	bool own;     /* it is to get memory of its own, and to share no more */
	bool unknown; /* a call that is not known was made */
	struct gcp_track *track; /* in whose lane its scratch lies */
	uint64_t beside; /* epoch: behind it is what was submitted beside its capture */
	uint64_t begins; /* of calls that launch it */
	_Atomic uint64_t ends; /* then they use neither the graph pool nor its lane */
	/* Epoch: open when the latest of these calls had returned, written by its end.
	 * 0: there was none, or what they launched is known to be completed. */
	_Atomic uint64_t launched;
	struct gcp_last last;                  /* its latest launch */
	TAILQ_ENTRY(gcp_graph_pool) lane_link; /* track->graphs */
};
TAILQ_HEAD(gcp_graph_pool_list, gcp_graph_pool);
TAILQ_HEAD(gcp_track_list, gcp_track);

/* A reference of a holder to a graph pool. */
struct gcp_hold {
	struct gcp_graph_pool *graph_pool;
	SLIST_ENTRY(gcp_hold) link;
};
SLIST_HEAD(gcp_holds, gcp_hold);

/* A graph or an executable, and the graph pools that it can run on. holders.c
 *  Y10 each graph pool at most once
 *  Y11 a part holds nothing: the graph at the top does. But for what is set in place
 *      of a node's child */
struct gcp_holder {
	const void *handle; /* CUDA's; NULL: it has none yet, or no more, and is in no
			     * list */
	bool is_exec;
	bool stray;                /* a part of a graph that is not known */
	struct gcp_holder *parent; /* it is a part of this graph; NULL: of none */
	const void *node; /* what is set in place of this node's child, in `parent` */
	LIST_HEAD(, gcp_holder) parts;
	LIST_ENTRY(gcp_holder) part_link; /* parent->parts */
	struct gcp_holds holds;
	unsigned shares;             /* of these at most so many share: track.c */
	LIST_ENTRY(gcp_holder) link; /* tracker->holders[] */
};
LIST_HEAD(gcp_holder_list, gcp_holder);

/* Where the next captured work may start: a stream of the capture. order.c */
struct gcp_open_end {
	struct gcp_capture *capture;
	void *ctx, *handle; /* handle: NULL: nothing more comes on the stream */
	const void *event;  /* recorded there last; NULL: none */
	uint32_t line;      /* its number in the capture */
	uint32_t joined_by; /* the line that waited for that event last, since the
			     * stream waited for one itself; 0: none */
	uint64_t thread;    /* the one whose call made it join */
	bool resting;       /* it needs no proof, and its next work is made to follow */
	uint64_t kept;      /* the latest free that it was kept for; or 0 */
	size_t first, count; /* its nodes in the frontier, of the latest look */
	SLIST_ENTRY(gcp_open_end) link;
	LIST_ENTRY(gcp_open_end) handle_link; /* tracker->ends[] */
	LIST_ENTRY(gcp_open_end) event_link;  /* tracker->events[], if it has one */
};
LIST_HEAD(gcp_open_end_list, gcp_open_end);

/* A list of nodes that grows. */
struct gcp_nodes {
	void **items;
	size_t count, room;
};

/* Which nodes precede which line's end. order.c */
struct gcp_reach {
	struct gcp_reach_place {
		void *node; /* NULL: a free place */
		uint32_t line;
	} * places;
	size_t count, room; /* room: 0 or a power of two */
};

/* Blocks freed up to a moment, and the streams' ends then. order.c */
struct gcp_free_group {
	uint64_t group;
	STAILQ_ENTRY(gcp_free_group) link;
	size_t count;
	void *nodes[];
};

/* A capture under way. */
struct gcp_capture {
	void *ctx, *stream;
	uint64_t id;     /* CUDA's; 0: CUDA would not say, so it may be any */
	void *graph;     /* CUDA's; NULL: not known: its memory is never given back */
	uint64_t thread; /* that began it: gcp_thread_number */
	uint64_t number; /* of all captures that have begun, from 1 on */
	enum gcp_capture_mode mode;
	bool forked;        /* its order may not be one line any more */
	uint32_t ending;    /* calls under way that may end it: no stream joins */
	bool order_unknown; /* its order cannot be known: no proof */
	bool order_revoked; /* the same, and all that was freed waits for its end */
	bool into_existing_graph; /* a graph that was there: it may follow nothing in it
				   */
	bool graph_taken;         /* the program has got its graph, or may have */
	bool graph_gone;          /* its handle is another graph's by now */
	struct gcp_open_end first; /* of `streams`: that which it was begun on */
	SLIST_HEAD(, gcp_open_end) streams;
	STAILQ_HEAD(, gcp_free_group) free_groups; /* closed; oldest first */
	struct gcp_free_group *released; /* the latest one that was; or NULL */
	uint64_t unread; /* the free for which an end could not be kept; or 0 */
	bool stuck;      /* no proof for the oldest one before an end moves */
	uint32_t lines;  /* streams that have taken part */
	struct gcp_reach reach;
	struct gcp_nodes frontier; /* the streams' ends at the latest look at all */
	struct gcp_nodes kept;     /* ends at the free `kept_for` */
	uint64_t kept_for;
	struct gcp_nodes strays;       /* that may precede none of these */
	struct gcp_nodes unseen;       /* nodes that a look has still to go through */
	struct gcp_graph_pool *pool;   /* named by the program, or its own; or NULL */
	struct gcp_graph_pool *common; /* of blocks that may belong to other captures,
					* too, whose graphs hold it; or NULL */
	uint64_t small_bytes;          /* given to it from the common heap */
	uint64_t route; /* the latest allocation that it was found for: route.c */
	TAILQ_ENTRY(gcp_capture) link;
};
TAILQ_HEAD(gcp_capture_list, gcp_capture);

enum { GCP_GONE_KEPT = 64 }; /* streams that have gone are known by their handles */

struct gcp_tracker {
	/* streams_gone: written under the lock, before the real call that ends a
	 * stream: a thread that finds it unchanged under the lock may ask about a
	 * stream that was there then. */
	struct gcp_tracker_counts counts;
	struct gcp_pools *pools;
	struct gcp_capture_driver driver;
	void *gone[GCP_GONE_KEPT]; /* the latest, in turn; NULL: all of a context */
	/* Of the deferred frees of all pools: up to here no end is to be kept for one.
	 * UINT64_MAX: captured work is to be seen, as a stream of a capture under way
	 * may rest. Written with the lock. */
	_Atomic uint64_t handled_frees;
	struct gcp_mutex lock;
	struct gcp_capture_list captures;
	/* Of captures under way, by the stream's handle, and by the event. */
	struct gcp_open_end_list ends[GCP_END_BUCKETS], events[GCP_END_BUCKETS];
	struct gcp_graph_pool_list graph_pools;
	uint64_t last_pool_id;
	uint64_t routes; /* counts allocations beside captures */
	/* Graphs that share memory: share.h. */
	bool sharing;
	_Atomic bool captures_unseen; /* some may be under way; written with the lock */
	uint64_t last_track;          /* id */
	uint64_t first_stream; /* that a graph which may share was launched into */
	bool several_streams;  /* they were into others, too */
	struct gcp_track_list tracks, fresh;
	uint64_t memory_releases;    /* memory of graph pools, how often */
	atomic_bool pinned_released; /* pinned memory, since the latest collect */
	struct gcp_holder_list holders[GCP_HOLDER_BUCKETS];
	atomic_bool nodes_read; /* parameters of nodes were told to the program */
	bool keeps_all; /* no holder can be known any more: all is kept permanently */
	struct gcp_graph_pool_list waiting;
	uint32_t unseen; /* graph pools that are */
};

/* --- records.c ------------------------------------------------------------------- */

/* Whether a stream may be captured, for all the library knows. */
bool gcp_streams_may_capture(const struct gcp_tracker *tracker);

/* The calling thread's, from 1 on. Unlike a pthread_t it is never another thread's: a
 * capture may outlive the thread that began it. */
uint64_t gcp_thread_number(void);

bool gcp_holds_has(const struct gcp_holds *holds,
		   const struct gcp_graph_pool *graph_pool);
/* Accepts NULL. The capture has left its pools by then. */
void gcp_capture_destroy(struct gcp_capture *capture);
bool gcp_capture_may_be(const struct gcp_capture *capture, uint64_t id);

/* Where the holders of the handle are listed. */
struct gcp_holder_list *gcp_holder_bucket(struct gcp_tracker *tracker,
					  const void *handle);
/* The one of the handle, or NULL. */
struct gcp_holder *gcp_holder_find(struct gcp_tracker *tracker, const void *handle,
				   bool is_exec);
/* The graph that it is embedded in, however deep; or itself. */
struct gcp_holder *gcp_holder_root(struct gcp_holder *holder);

uint64_t gcp_graph_pool_references(const struct gcp_graph_pool *graph_pool);
/* A reference was released: with the last one the memory is given up, by the next
 * gcp_tracker_collect. */
void gcp_graph_pool_ref_released(struct gcp_tracker *tracker,
				 struct gcp_graph_pool *graph_pool);

/* --- graph_memory.c; tracker->lock is held ------------------------------------ */

struct gcp_graph_pool *gcp_graph_pool_make(struct gcp_tracker *tracker);
/* The pool's heap in `pool`, made when needed. -ENOMEM. */
int gcp_graph_pool_heap(struct gcp_graph_pool *graph_pool, struct gcp_pool *pool,
			struct gcp_heap **ret_heap);
bool gcp_graph_pool_has_memory(const struct gcp_graph_pool *graph_pool);

/* --- holders.c; tracker->lock is held ----------------------------------------- */

/* With its parts. */
void gcp_holder_free(struct gcp_tracker *tracker, struct gcp_holder *holder);
/* The graph of the capture holds the graph pool. If the host is out of memory the pool
 * keeps its memory until the process ends. */
void gcp_graph_hold(struct gcp_tracker *tracker, const struct gcp_capture *capture,
		    struct gcp_graph_pool *graph_pool);
/* The driver has given out the handle: what had it before is gone. */
void gcp_holder_handle_is_new(struct gcp_tracker *tracker, const void *handle,
			      bool is_exec);
/* --- graph_pool.c; tracker->lock is held -------------------------------------- */

void gcp_graph_pool_set_reuse(struct gcp_graph_pool *graph_pool, enum gcp_reuse reuse);
/* The one that the program made and names so, or NULL. */
struct gcp_graph_pool *gcp_graph_pool_named(struct gcp_tracker *tracker, uint64_t id);
/* The one that is the calling thread's default, or NULL. */
struct gcp_graph_pool *gcp_graph_pool_thread_default(struct gcp_tracker *tracker);
/* The capture holds a reference of its own, and its graph one. */
void gcp_graph_pool_join(struct gcp_tracker *tracker, struct gcp_graph_pool *graph_pool,
			 struct gcp_capture *capture);
/* Releases the capture's own references. */
void gcp_graph_pool_detach_all(struct gcp_tracker *tracker,
			       struct gcp_capture *capture);

/* --- order.c; tracker->lock is held ------------------------------------------- */

/* The stream's end in the capture that it is known to take part in; NULL: it is to be
 * asked for. No driver call. */
struct gcp_open_end *gcp_order_end_known(struct gcp_tracker *tracker,
					 const void *stream);
/* The stream takes part. Also if it has been known before. NULL: no memory; the order
 * is lost then. */
struct gcp_open_end *gcp_order_stream_joined(struct gcp_tracker *tracker,
					     struct gcp_capture *capture, void *ctx,
					     void *stream);
/* The capture is over: it has no ends any more. */
void gcp_order_ends_free(struct gcp_capture *capture);
/* A stream is going that may have taken part, or (NULL) a context (NULL: any) has gone
 * with its streams: with their work the order is lost. */
void gcp_order_gone(struct gcp_capture *capture, const void *ctx, const void *stream);
/* The program is about to set what the next work behind the end depends on, whatever it
 * did before. */
void gcp_order_stream_set(struct gcp_tracker *tracker, struct gcp_open_end *left);
/* The program has added a node. 0, or a CUresult: it does not follow what it should. */
int gcp_order_node_added(struct gcp_tracker *tracker, struct gcp_capture *capture,
			 void *node);
void gcp_order_event_recording(struct gcp_tracker *tracker, struct gcp_open_end *end,
			       const void *event);
/* The stream has waited for the event, or work is about to be captured on it: what was
 * released while it, or the event, was no open end comes before that. 0 or a CUresult.
 */
int gcp_order_stream_waited(struct gcp_tracker *tracker, struct gcp_open_end *end,
			    const void *event);
int gcp_order_stream_works(struct gcp_tracker *tracker, struct gcp_open_end *end,
			   uint64_t freed);
/* The same as for one stream, for all at once: nothing is known of what comes. */
void gcp_order_all_work(struct gcp_tracker *tracker, struct gcp_capture *capture);
/* Releases freed blocks of which the graph proves by now that they may be used
 * again. */
void gcp_order_prove(struct gcp_tracker *tracker, struct gcp_capture *capture);

#endif
