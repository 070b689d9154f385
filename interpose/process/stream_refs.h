/* SPDX-License-Identifier: MIT */
/*
 * stream_refs.h - what a thread knows of the streams in which it allocates and frees.
 */
#ifndef GCP_INTERPOSE_STREAM_REFS_H
#define GCP_INTERPOSE_STREAM_REFS_H

#include <stdbool.h>
#include <stdint.h>

#include "../cuda/symbols.h"

struct gcp_pool;

/* How a stream stands to the legacy default stream of its context. */
enum gcp_stream_kind {
	GCP_STREAM_APART,  /* non-blocking: they know nothing of each other */
	GCP_STREAM_LEGACY, /* it is the legacy stream */
	GCP_STREAM_JOINED, /* blocking, or per-thread: each waits for the other */
};

/* An event of a context, and by which life of its pool it is known to be there: events
 * go with their context. */
struct gcp_stream_marker {
	struct gcp_pool *pool; /* NULL: none */
	uint64_t life;
	CUevent event;
};

struct gcp_stream_ref {
	uint64_t id;         /* cuStreamGetId: of no other stream, ever; 0: unknown */
	uint64_t generation; /* of contexts.h, when this was found */
	CUcontext home;      /* in whose pool its memory belongs */
	struct gcp_pool *pool;
	int device;
	bool alone;  /* no other context is known */
	bool serves; /* the pool serves stream-ordered memory of this context */
	enum gcp_stream_kind kind;
	unsigned long long legacy; /* JOINED: the id of the legacy stream; 0: unknown */
	/* Not APART: the event is of its context, and no other thread has it: one that
	 * recorded it between a record and a wait would make streams wait for each
	 * other. NULL: there is none. */
	struct gcp_stream_marker marker;
};

/* `stream` as gcp_stream_named gives it. NULL: CUDA does not say, or memory of its
 * context passes through. Valid until the calling thread asks again. Only while
 * pooling. */
const struct gcp_stream_ref *gcp_stream_ref_find(CUstream stream);

/* The same for a free. Costs no call for the stream that was asked for last. */
const struct gcp_stream_ref *gcp_stream_ref_of_free(CUstream stream);

/* The calling thread ends. */
void gcp_stream_refs_thread_exit(void);

#endif
