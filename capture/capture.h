/* SPDX-License-Identifier: MIT */
/*
 * capture.h - the one header of capture/: which stream captures are under way,
 * and whose memory a captured graph may address.
 *
 * Called by the hooks of interpose/. Sees CUDA as the small table below.
 * Results as in pool.h. Every function may be called from any thread.
 *
 * The nouns:
 *
 *   capture     a stream capture between begin and end
 *   graph pool  private heaps (one for each context) that captured graphs
 *               address; counted: one reference by each capture under way into
 *               it, one by each holder, and those that the program holds through
 *               gcpool.h
 *   holder      a graph or an executable that can run on a graph pool's memory
 */
#ifndef GCP_CAPTURE_CAPTURE_H
#define GCP_CAPTURE_CAPTURE_H

#include "../pool/pool.h"

struct gcp_tracker;
struct gcp_graph_pool;
struct gcp_capture;
struct gcp_holder;

/* CUstreamCaptureMode. */
enum gcp_capture_mode {
	GCP_CAPTURE_GLOBAL = 0,
	GCP_CAPTURE_THREAD_LOCAL = 1,
	GCP_CAPTURE_RELAXED = 2,
};

/* What CUDA says of a stream. */
struct gcp_capture_state {
	bool active;      /* a capture is under way on it and is still valid */
	bool invalidated; /* one is under way, and is lost */
	uint64_t id;      /* of the capture; unique in the process */
	void *graph;      /* the graph being built; NULL if the driver hides it */
};

struct gcp_capture_driver {
	/* cuStreamGetCaptureInfo. 0 or a CUresult (a destroyed stream, say). */
	int (*capture_state)(void *ctx, void *stream,
			     struct gcp_capture_state *ret_state);

	/* The nodes that the next work on a captured stream will depend on.
	 * *count: room in `ret_nodes`, then how many there are. 0, a CUresult,
	 * -ERANGE: there is not room enough, or -EAGAIN: another thread is changing
	 * them, so that they cannot be read just now. */
	int (*stream_ends)(void *ctx, void *stream, void **ret_nodes, size_t *count);

	/* The nodes that a node of a graph depends on; as above, but for -EAGAIN: those
	 * of a captured node do not change. */
	int (*node_dependencies)(void *node, void **ret_nodes, size_t *count);

	/* The stream's next captured work depends on these nodes too, besides what it
	 * depends on already. 0 or a CUresult. */
	int (*stream_follow)(void *ctx, void *stream, void **nodes, size_t count);

	/* A node that the program has just added to a graph depends on these nodes too.
	 * 0 or a CUresult. */
	int (*node_follows)(void *graph, void *node, void **nodes, size_t count);

	/* Returns true if streams may be passed to the driver, and no context ends
	 * before contexts_release. Returns false while a call that may end a context,
	 * with its streams, is under way. */
	bool (*contexts_hold)(void);
	void (*contexts_release)(void);

	/* A number that no other stream of this process ever has; its context; whether
	 * all its work is done (0, or a CUresult): that is asked only while no capture
	 * is under way. */
	int (*stream_id)(void *stream, uint64_t *ret_id);
	void *(*stream_context)(void *stream);
	int (*stream_query)(void *ctx, void *stream);
	/* An event of a context; recorded in a stream of it that does not capture;
	 * whether what stands before it is done (0); later work of a stream waits for
	 * that. Also beside captures. all: not NULL: in, or of, all streams of that
	 * context, of which none captures, and not the one. 0 or a CUresult. */
	int (*event_create)(void *ctx, void **ret_event);
	void (*event_destroy)(void *event);
	int (*event_record)(void *all, void *stream, void *event);
	int (*event_query)(void *event);
	int (*event_wait)(void *all, void *stream, void *event);

	/* The calling thread's own capture mode (enum gcp_capture_mode). */
	int (*thread_mode)(void);

	/* The number of the latest launch in a context whose fences do not cover it
	 * (gcp_exec_is_away); the same of which all are done. */
	uint64_t (*launches_latest)(void);
	uint64_t (*launches_done)(void);
};

/* sharing: graphs may share memory. -ENOMEM. Keeps `pools` permanently. */
int gcp_tracker_create(struct gcp_pools *pools, const struct gcp_capture_driver *driver,
		       bool sharing, struct gcp_tracker **ret_tracker);

/* Counts that hooks read at each call. They are the first member of the tracker. */
struct gcp_tracker_counts {
	_Atomic uint32_t capturing; /* captures under way or about to begin */
	_Atomic uint32_t shares;    /* graphs that may share: else nothing below of
				     * share.c and launch.c need be called */
	_Atomic uint32_t holds;     /* holders: the same of holders.c while nothing is
				     * captured, but for gcp_graph_part */
	_Atomic uint32_t waiting;   /* graph pools that may end: gcp_tracker_look */
	_Atomic uint64_t captures_begun; /* until now */
	_Atomic uint64_t streams_gone;   /* and contexts, with theirs */
};

#define GCP_TRACKER_COUNT(name)                                                        \
	static inline uint64_t gcp_tracker_##name(const struct gcp_tracker *tracker)   \
	{                                                                              \
		return atomic_load_explicit(                                           \
		    &((const struct gcp_tracker_counts *)tracker)->name,               \
		    memory_order_relaxed);                                             \
	}
GCP_TRACKER_COUNT(capturing)
GCP_TRACKER_COUNT(shares)
GCP_TRACKER_COUNT(holds)
GCP_TRACKER_COUNT(waiting)
GCP_TRACKER_COUNT(captures_begun)
GCP_TRACKER_COUNT(streams_gone)

/* --- what the hooks report ------------------------------------------------------ */

/* The thread is about to call the real begin: from here on no fence is set. into_graph:
 * the capture goes into a graph that exists already. -ENOMEM: it cannot be followed,
 * and must not begin. */
int gcp_tracker_begin_prepare(struct gcp_tracker *tracker, bool into_graph,
			      struct gcp_capture **ret_capture);

/* The real begin returned `result` for `stream` of context `ctx`. Each prepare that
 * gave a capture is followed by exactly one of these, on the same thread, which takes
 * it back. `stream` is the stream itself: a per-thread default stream by its special
 * handle, never 0. */
void gcp_tracker_begin_done(struct gcp_tracker *tracker, struct gcp_capture *capture,
			    void *ctx, void *stream, enum gcp_capture_mode mode,
			    int result);

/* The thread is about to call the real end: no allocation joins the capture any more,
 * whose graph may be gone a moment later. Returns the capture's number, or 0 if the
 * capture is not known. */
uint64_t gcp_tracker_end_prepare(struct gcp_tracker *tracker, void *ctx, void *stream);

/* A real call may have ended a capture; its result tells: */
enum gcp_end {
	GCP_END_REFUSED, /* CUDA is asked; without an answer the capture goes on */
	GCP_END_LOST,    /* CUDA is asked: if the capture is over its graph is gone too.
			  * Without an answer it is over */
	GCP_END_SURE,    /* the capture is over */
	GCP_END_GONE,    /* and its graph is gone */
};
/* A real call returned that ends the stream's capture, or destroys the stream: another
 * thread may have the same handle by now. number: end_prepare's. */
void gcp_tracker_end_done(struct gcp_tracker *tracker, void *ctx, void *stream,
			  uint64_t number, enum gcp_end end);

/* While captures are under way (else these need not be called):
 *
 * The program may add work anywhere; graph_taken: it has got the graph, or may have.
 * Before the real call. */
void gcp_tracker_order_unknown(struct gcp_tracker *tracker, bool graph_taken);
/* Returns true if captured work may be given memory that its capture has used before:
 * then it must not start before all that its stream has captured has ended. True from
 * the first allocation on, also of small blocks, which are not used again. */
bool gcp_tracker_gives_again(struct gcp_tracker *tracker);
/* The program has asked for the graph or the dependencies of what `stream` captures, if
 * anything, or is about to set (`set`) what the stream's next work depends on. */
void gcp_tracker_graph_given(struct gcp_tracker *tracker, void *stream, bool set);
/* The program has added a node to a graph, maybe of a capture. 0, or a CUresult: the
 * node must go again. */
int gcp_tracker_node_added(struct gcp_tracker *tracker, const void *graph, void *node);
/* An event is about to be recorded on `stream`: work may later start there. */
void gcp_tracker_event_recording(struct gcp_tracker *tracker, void *stream,
				 const void *event);
/* The program is about to destroy a node, maybe of a graph that is being captured. */
void gcp_tracker_node_gone(struct gcp_tracker *tracker, const void *node);
/* A stream has been made to wait for `event`: it may have joined a capture. 0; a
 * CUresult: the stream's work cannot be put in order, and the program must not give it
 * any. Of streams that are known to take part, CUDA is asked nothing, here and above,
 * before something was freed in the capture. */
int gcp_tracker_joined(struct gcp_tracker *tracker, void *stream, const void *event);
/* Work is about to be captured on `stream`. As above. Costs a load where no stream of a
 * capture has come to rest. */
int gcp_tracker_work_captured(struct gcp_tracker *tracker, void *stream);

/* Whether captures are under way or not: the driver need not survive a question about
 * a stream that is gone.
 *
 * A stream is about to be destroyed: it is not asked about any more. If the real
 * call fails after all, only some knowledge is lost. Returns what end_prepare does, and
 * is followed by end_done likewise. */
uint64_t gcp_tracker_stream_ending(struct gcp_tracker *tracker, void *ctx,
				   void *stream);
/* A context may be about to end, with its streams; before contexts_hold says so. */
void gcp_tracker_context_ending(struct gcp_tracker *tracker);
/* A context was destroyed, with whatever captured in it: before gcp_pool_reset, and
 * before contexts_hold gives true again; NULL: one that is not known may have been. */
void gcp_tracker_context_gone(struct gcp_tracker *tracker, void *ctx);

/* --- allocation ------------------------------------------------------------------- */

/* The stream that a thread last gave work to, how many streams had gone by then (it may
 * be one of those that have gone since) and how many captures had begun (the work is in
 * none that has begun since). */
struct gcp_stream_hint {
	void *stream; /* NULL: not known */
	uint64_t gone;
	uint64_t begun;
	bool eager; /* that work was not captured, whatever became of the stream */
	bool named; /* the program says that the block is for this stream */
};

/* gcp_pool_alloc while captures are under way: gives the block to the capture that it
 * belongs to, or to the common heap if to none. */
int gcp_tracker_alloc(struct gcp_tracker *tracker, struct gcp_pool *pool, void *ctx,
		      struct gcp_stream_hint hint, uint64_t bytes, gcp_addr *ret_addr);

/* gcp_pinned_alloc while captures are under way, likewise. A block that
 * belongs to a capture serves no other allocation as long as a graph pool of that
 * capture lives. */
int gcp_tracker_host_alloc(struct gcp_tracker *tracker, struct gcp_pool *pool,
			   void *ctx, struct gcp_stream_hint hint, uint64_t bytes,
			   uint32_t flags, void **ret_p);

/* Take back the memory of graphs that are gone, if it waits for no launch. The first
 * frees no pinned memory, for which the driver may wait. It returns true if memory
 * came.
 */
bool gcp_tracker_look(struct gcp_tracker *tracker);
void gcp_tracker_collect(struct gcp_tracker *tracker);
/* The same when memory is out: waits a moment for such launches. False: nothing came
 * back. */
bool gcp_tracker_reclaim(struct gcp_tracker *tracker);

/* --- which graphs and executables hold graph pools (holders.c) ------------------- */

/* The program is about to destroy a graph, an executable: what that holds is without a
 * handle from now on, for gcp_holding_add: of that handle, if the call is refused.
 * NULL: it holds nothing. Launches of it may be under way. */
struct gcp_holder *gcp_holder_ending(struct gcp_tracker *tracker, const void *handle,
				     bool is_exec);
/* Where there are several contexts, before a launch into a stream of `ctx`, which
 * fences of `home` cover too: returns true if the executable may run on memory of
 * others. home NULL: that is only asked. Else such a launch gets a number, before the
 * executable is destroyed: for that the memory waits then. */
bool gcp_exec_is_away(struct gcp_tracker *tracker, const void *exec, const void *ctx,
		      const void *home);
/* Any graph may have been copied, in a way that is not known: the memory of all stays
 * permanently; from_now_on: of those to come, too. */
void gcp_graphs_keep(struct gcp_tracker *tracker, bool from_now_on);

/* --- what is made of graphs and executables (holders.c) ----------------------- */

/* How a graph is about to be used. */
enum gcp_making {
	GCP_MAKING_EXEC,   /* what can only be launched by the host, by known calls */
	GCP_MAKING_UNSEEN, /* what is used, or may be launched, in another way: by any
			    * launch, for all that is known */
	GCP_MAKING_COPY,   /* a clone, a child of another graph; a launch into one */
	GCP_MAKING_NODE,   /* a node that is added by hand; no graph need be named */
};

/* Something is about to be made of a graph, or of an executable: *ret_holding holds all
 * that it does, from now on; NULL: it holds nothing. One of the functions below takes
 * it when the real call has returned, and accepts NULL.
 * A graph of which not each launch would be seen gets memory of its own, and keeps it.
 * Waits for its launches where they, and one of another graph of its lane, are on their
 * way, or where there is no memory for another lane. GCP_CUDA_OUT_OF_MEMORY, -ENOMEM:
 * there is no memory, and nothing has changed, or another CUresult: the call must not
 * be made. */
int gcp_holding_begin(struct gcp_tracker *tracker, const void *handle, bool is_exec,
		      enum gcp_making making, struct gcp_holder **ret_holding);
/* The driver has given out the handle, or it stands for something else from now on:
 * that is the holder, and what the handle stood for before holds nothing any more. */
void gcp_holding_new(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec);
/* The graph or executable of that handle holds this memory as well, as an executable
 * does after an update that has failed. NULL: nothing does; the call has failed, or has
 * destroyed what held it. */
void gcp_holding_add(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *handle, bool is_exec);
/* The executable holds it in place of what was set for the node before, if the call is
 * `done`; else besides. */
void gcp_holding_set(struct gcp_tracker *tracker, struct gcp_holder *holding,
		     const void *exec, const void *node, bool done);
/* It is not known what does: permanently. */
void gcp_holding_keep(struct gcp_tracker *tracker, struct gcp_holder *holding);

/* `part` is embedded in `parent`, which has just been given it; NULL: it is not known
 * in which graph, or since when. moved: it was a graph of its own until now, and what
 * it held has been added. */
void gcp_graph_part(struct gcp_tracker *tracker, const void *parent, const void *part,
		    bool moved);
/* An executable is about to be launched into `stream`, while a capture is under way.
 * -ENOMEM. */
int gcp_graph_launched(struct gcp_tracker *tracker, void *ctx, void *stream,
		       const void *exec);

/* --- graphs that share memory (share.c, launch.c) ---------------- */

/* From now on captures may begin that are not reported. Sets fences behind launches
 * while it can, so that graphs can leave their lanes in a capture; never waits. */
void gcp_share_captures_unseen(struct gcp_tracker *tracker);
/* CUDA has refused to instantiate what is in `holding` (NULL: nothing): it looks at the
 * addresses that a graph copies from and to, and memory that graphs share may have been
 * given back, or moved just then. Maps it. *ret_any: some of it is shared: the call is
 * to be made again. An error: GCP_CUDA_OUT_OF_MEMORY, -ENOMEM. */
int gcp_share_look(struct gcp_tracker *tracker, const struct gcp_holder *holding,
		   bool *ret_any);
/* The program is about to learn which nodes the graph has (NULL: any graph). Those of a
 * clone it finds by those of the original. */
void gcp_share_listed(struct gcp_tracker *tracker, const void *graph);
/* It is about to read what a node works on: graphs whose nodes were listed get memory
 * of their own, and a node that it adds by hand from now on may work on memory of any
 * graph: its graph holds all that there is then. As gcp_holding_begin. unknown: it is a
 * call that is not known, and all graphs get memory of their own, as far as there is
 * any. */
int gcp_share_read(struct gcp_tracker *tracker, bool unknown);

/* A launch under way. */
struct gcp_launch {
	struct gcp_graph_pool *graph; /* NULL: nothing is to be told of its end */
	struct gcp_track *track;      /* its lane; NULL: it is in none */
	void *event;                  /* its lane's; or NULL: */
	bool makes,
	    marks;    /* one is to be made; it is to be recorded behind the launch */
	bool crosses; /* no other one is made meanwhile: X10 */
	void *stream;
};
/* Before and after the real launch of `exec` into `stream`, which is named as for
 * captures; and after one that failed. An error: it must not be made. Never waits for
 * the device, but for an executable that is launched into a capture, or into a stream
 * of another context, for the first time. */
int gcp_launch_begin(struct gcp_tracker *tracker, void *exec, void *stream,
		     struct gcp_launch *launch);
void gcp_launch_end(struct gcp_tracker *tracker, const struct gcp_launch *launch,
		    int result);
/* Lanes of a device (-1: of any) on which nothing runs give their memory back, but so
 * many bytes; the next launch on them takes other memory. Returns the bytes. Never
 * waits. */
uint64_t gcp_share_trim(struct gcp_tracker *tracker, int device, uint64_t keep_bytes);

/* --- graph pools that the program shares between captures --------------------- */

/* A new graph pool with one reference, the program's. -ENOMEM. */
int gcp_graph_pool_create(struct gcp_tracker *tracker, uint64_t *ret_id);
/* -ENOENT: no such pool. A pool without references is empty; its id stays good, and may
 * be used again. */
int gcp_graph_pool_release(struct gcp_tracker *tracker, uint64_t id);
/* Captures that the calling thread begins from now on allocate from this graph
 * pool; 0: each from a new one. -ENOENT. */
int gcp_graph_pool_use(struct gcp_tracker *tracker, uint64_t id);

/* Which blocks of the graph pool are live, to be restored after a replay.
 * -ENOENT, -ENOMEM; -EBUSY: a capture into it is under way. The caller frees it. */
struct gcp_graph_checkpoint;
int gcp_graph_pool_checkpoint(struct gcp_tracker *tracker, uint64_t id,
			      struct gcp_graph_checkpoint **ret_checkpoint);
/* 0, or an error and nothing has changed: -ENOENT; -EBUSY: a capture into it is
 * under way, or another process may have a block of it open; -ESTALE: the checkpoint is
 * of another graph pool, or the pool has lost its last reference since. */
int gcp_graph_pool_restore(struct gcp_tracker *tracker, uint64_t id,
			   const struct gcp_graph_checkpoint *checkpoint);

struct gcp_graph_pool_info {
	uint64_t id;
	uint64_t references; /* all of them */
	uint64_t captures;   /* of these, captures under way */
	uint64_t graphs;     /* of these, graphs and executables */
	uint64_t reserved_bytes, allocated_bytes;
	uint64_t last_capture_id; /* CUDA's id of the latest capture into it */
	uint64_t shared_bytes;    /* of addresses that are mapped to a lane */
	uint64_t lane, lane_bytes;
	uint64_t launches; /* of its graph, as launch.c counts */
};
/* Fills up to `max` of the graph pools that hold memory or references; returns
 * how many there are. */
size_t gcp_graph_pools_list(struct gcp_tracker *tracker,
			    struct gcp_graph_pool_info *infos, size_t max);

#endif
