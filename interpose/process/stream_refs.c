/* SPDX-License-Identifier: MIT */
/*
 * stream_refs.c - see stream_refs.h. Called by the hooks on stream-ordered memory, at
 * each call: a stream is asked for its id, which costs 16 to 23 ns, and the rest is
 * remembered by that id.
 *
 * A handle would not do: a new stream may get the handle of one that is gone, by calls
 * that pass this library by.
 */
#include <stdlib.h>

#include "calling_thread.h"
#include "../cuda/ctx_scope.h"
#include "stream_refs.h"
#include "../cuda/streams.h"

enum { REFS = 8 };

/* --- markers --------------------------------------------------------------------- */

/* Of a thread: made at its first call, given back when it ends. NULL: it has none. */
static __thread struct own {
	struct gcp_stream_ref refs[REFS];
	/* The stream that the thread asked for last, by its handle. */
	CUstream latest;
	const struct gcp_stream_ref *latest_ref;
	uint64_t latest_gone; /* streams, by then */
} * own __attribute__((tls_model("initial-exec")));

static bool marker_is_of(const struct gcp_stream_marker *marker, struct gcp_pool *pool)
{
	return marker->pool == pool && marker->life == gcp_pool_life(pool);
}

static __attribute__((noinline)) bool own_create(void)
{
	GCP_KEEP_ERRNO;

	own = calloc(1, sizeof(*own));
	return own != NULL;
}

/* For another thread. Under the lock the context cannot have gone and come anew since
 * its pool has said that it has not. */
static void marker_put(struct gcp_stream_marker *marker)
{
	GCP_LOCKED(&gcp_contexts_lock);
	if (marker->event && marker_is_of(marker, marker->pool))
		gcp_context_event_put(gcp_pool_context(marker->pool), marker->event);
	marker->event = NULL;
}

/* Sees to it that it is one of the pool, if there is memory for it. */
static void marker_get(struct gcp_stream_marker *marker, struct gcp_pool *pool,
		       CUcontext home)
{
	assert(own && pool && home);
	if (marker->event && marker_is_of(marker, pool))
		return;
	marker_put(marker);
	assert(!marker->event); /* no two threads have it */
	*marker = (struct gcp_stream_marker){pool, gcp_pool_life(pool), NULL};
	(void)gcp_context_event_take(home, &marker->event);
}

void gcp_stream_refs_thread_exit(void)
{
	for (int i = 0; own && i < REFS; i++)
		marker_put(&own->refs[i].marker);
	free(own);
	own = NULL;
}

/* --- refs ------------------------------------------------------------------ */

static enum gcp_stream_kind kind_of(CUstream stream, CUcontext ctx, CUcontext home)
{
	unsigned int flags = 0;

	assert(ctx && home);
	if (!stream || stream == CU_STREAM_LEGACY)
		return ctx == home ? GCP_STREAM_LEGACY : GCP_STREAM_JOINED;
	if (stream != CU_STREAM_PER_THREAD &&
	    gcp_real.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
	    flags & CU_STREAM_NON_BLOCKING)
		return GCP_STREAM_APART;
	return GCP_STREAM_JOINED;
}

static __attribute__((noinline)) bool ref_fill(struct gcp_stream_ref *ref,
					       CUstream stream, uint64_t id)
{
	uint64_t generation = gcp_contexts_now();
	CUcontext ctx = NULL;

	assert(own);
	(void)gcp_stream_context_ask(stream, &ctx);
	assert(ref >= own->refs && ref < own->refs + REFS);
	*ref = (struct gcp_stream_ref){
	    .id = id, .generation = generation, .marker = ref->marker};
	if (!ctx ||
	    gcp_thread_pool_of(ctx, &ref->home, &ref->device, &ref->pool) != 0) {
		ref->generation = 0; /* asked again next time */
		return false;
	}
	ref->serves = gcp_contexts_primary(ref->device) == ref->home;
	ref->alone = !gcp_contexts_are_several();
	ref->kind = kind_of(stream, ctx, ref->home);
	if (ref->kind == GCP_STREAM_JOINED && ctx == ref->home &&
	    gcp_real.cuStreamGetCtx(NULL, &ctx) == CUDA_SUCCESS && ctx == ref->home)
		(void)gcp_real.cuStreamGetId(NULL, &ref->legacy);
	if (ref->kind != GCP_STREAM_APART)
		marker_get(&ref->marker, ref->pool, ref->home);
	return true;
}

/* Of a stream that has gone unnoticed by this library the block would be kept for that
 * one, which allocates nothing any more: no early reuse, for an allocation always asks
 * for the id. Where streams of other contexts may get the handle the free asks, too. */
const struct gcp_stream_ref *gcp_stream_ref_of_free(CUstream stream)
{
	const struct gcp_stream_ref *ref = own ? own->latest_ref : NULL;

	if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD && ref &&
	    own->latest == stream && ref->alone &&
	    own->latest_gone == gcp_tracker_streams_gone(gcp_process.tracker) &&
	    ref->generation == gcp_contexts_now())
		return ref;
	return gcp_stream_ref_find(stream);
}

static const struct gcp_stream_ref *ref_note(CUstream stream,
					     const struct gcp_stream_ref *ref)
{
	assert(ref >= own->refs && ref < own->refs + REFS);
	own->latest = stream;
	own->latest_ref = ref;
	own->latest_gone = gcp_tracker_streams_gone(gcp_process.tracker);
	return ref;
}

const struct gcp_stream_ref *gcp_stream_ref_find(CUstream stream)
{
	unsigned long long id = 0;

	if (gcp_real.cuStreamGetId(stream, &id) != CUDA_SUCCESS)
		return NULL;
	if (__builtin_expect(!own && !own_create(), 0))
		return NULL;
	struct gcp_stream_ref *ref = &own->refs[id % REFS];
	if (__builtin_expect(
		id && ref->id == id && ref->generation == gcp_contexts_now(), 1))
		return ref_note(stream, ref);
	own->latest_ref = NULL; /* its place is another stream's */
	return ref_fill(ref, stream, id) ? ref_note(stream, ref) : NULL;
}
