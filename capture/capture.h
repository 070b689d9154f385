/*
 * capture.h - the one header of capture/: which stream captures are under way,
 * and whose memory a captured graph may address.
 *
 * Called by the hooks of interpose/. Sees CUDA as the small table below.
 * Results as in pool.h. Every function may be called from any thread.
 */
#ifndef GCP_CAPTURE_CAPTURE_H
#define GCP_CAPTURE_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "../pool/pool.h"

struct gcp_tracker;

/* What CUDA says of a stream. */
struct gcp_capture_state {
	bool active;      /* a capture is under way on it and is still valid */
	bool invalidated; /* one is under way, and is lost */
	uint64_t id;      /* of the capture; unique in the process */
	void *graph;      /* the graph being built; NULL if the driver hides it */
};

struct gcp_capture_driver {
	/* cuStreamGetCaptureInfo. 0 or a CUresult (a destroyed stream, say). */
	int (*capture_state)(void *ctx, void *stream, struct gcp_capture_state *ret_state);

	/* Hangs a user object with one reference on the graph: CUDA calls
	 * destroy(arg), once, when the graph and all made from it are gone and
	 * no launch is in flight. `destroy` runs on a thread of the driver's
	 * and may not call CUDA. */
	int (*graph_attach)(void *graph, void (*destroy)(void *arg), void *arg);
};

/* -ENOMEM. Keeps `pools` for good. */
int gcp_tracker_create(struct gcp_pools *pools, const struct gcp_capture_driver *driver,
		       struct gcp_tracker **ret_tracker);
void gcp_tracker_destroy(struct gcp_tracker *tracker); /* for tests */

/* Whether any capture is under way, or is about to begin. One relaxed load. */
bool gcp_tracker_busy(const struct gcp_tracker *tracker);

/* The thread is about to call the real begin: from here on no fence is set. */
void gcp_tracker_begin_prepare(struct gcp_tracker *tracker);

/* The real begin returned `result` for `stream` of context `ctx`. Each prepare
 * is followed by exactly one of these, on the same thread. */
void gcp_tracker_begin_done(struct gcp_tracker *tracker, void *ctx, void *stream,
			    int result);

/* The real end returned, whatever it returned. */
void gcp_tracker_end_done(struct gcp_tracker *tracker, void *ctx, void *stream);

/* A stream or a context was destroyed, with whatever captured in it. */
void gcp_tracker_stream_gone(struct gcp_tracker *tracker, void *ctx, void *stream);
void gcp_tracker_context_gone(struct gcp_tracker *tracker, void *ctx);

/* gcp_pool_alloc while gcp_tracker_busy: gives the block to the capture that
 * it belongs to, or to the common heap if to none. */
int gcp_tracker_alloc(struct gcp_tracker *tracker, struct gcp_pool *pool, uint64_t bytes,
		      gcp_addr *ret_addr);

#endif
