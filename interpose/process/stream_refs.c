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
#include "../cuda/unknown_calls.h"

enum { REFS = 8, MARKERS_OF_A_THREAD = 8, MARKERS_SPARE = 256 };

/* --- markers --------------------------------------------------------------------- */

/* An event of a context, and by which life of its pool it is known to be there: events
 * go with their context. */
struct marker {
	struct gcp_pool *pool; /* NULL: none */
	uint64_t life;
	CUevent event;
};

/* Of a thread: made at its first call, given back when it ends. NULL: it has none. */
static __thread struct own {
	struct gcp_stream_ref refs[REFS];
	/* No other thread has them: one that recorded such an event between a record
	 * and a wait would make streams wait for each other. Those of threads that are
	 * gone are used again. */
	struct marker markers[MARKERS_OF_A_THREAD];
	/* The stream that the thread asked for last, by its handle. */
	CUstream latest;
	const struct gcp_stream_ref *latest_ref;
	uint64_t latest_gone; /* streams, by then */
} * own __attribute__((tls_model("initial-exec")));

static struct marker spare[MARKERS_SPARE];
static int spare_count;
static struct gcp_mutex spare_lock = GCP_MUTEX(GCP_RANK_STREAM_REFS);

static bool marker_is_of(const struct marker *marker, struct gcp_pool *pool)
{
	return marker->pool == pool && marker->life == gcp_pool_life(pool);
}

static __attribute__((noinline)) bool own_create(void)
{
	GCP_KEEP_ERRNO;

	own = calloc(1, sizeof(*own));
	return own != NULL;
}

static CUevent spare_take(struct gcp_pool *pool)
{
	CUevent event = NULL;

	GCP_LOCKED(&spare_lock);
	assert(spare_count >= 0 && spare_count <= MARKERS_SPARE);
	for (int i = 0; i < spare_count && !event; i++) {
		if (!marker_is_of(&spare[i], pool))
			continue;
		event = spare[i].event;
		spare[i] = spare[--spare_count];
	}
	return event;
}

/* Its context may have gone, and its event with it. */
static void marker_destroy(const struct marker *marker)
{
	assert(marker->pool && marker->event);
	if (!gcp_pool_pin(marker->pool))
		return;
	if (marker_is_of(marker, marker->pool))
		gcp_real.cuEventDestroy_v2(marker->event);
	gcp_pool_unpin(marker->pool);
}

/* Those of contexts that are gone make room. */
static void spare_put(struct marker *marker)
{
	bool kept = false;

	gcp_mutex_lock(&spare_lock);
	assert(spare_count >= 0 && spare_count <= MARKERS_SPARE);
	for (int i = 0; i < spare_count && spare_count == MARKERS_SPARE; i++)
		if (!marker_is_of(&spare[i], spare[i].pool))
			spare[i] = spare[--spare_count];
	if (marker->pool && marker_is_of(marker, marker->pool) &&
	    spare_count < MARKERS_SPARE) {
		spare[spare_count++] = *marker;
		kept = true;
	}
	gcp_mutex_unlock(&spare_lock);
	if (marker->pool && !kept)
		marker_destroy(marker);
	*marker = (struct marker){0};
}

/* Another thread may have it from here on: streams that had it get another one. */
static void mine_put(struct marker *marker)
{
	assert(own && marker->event);
	for (int i = 0; i < REFS; i++)
		if (own->refs[i].marker == marker->event)
			own->refs[i].generation = 0;
	spare_put(marker);
}

static CUevent marker_get(struct gcp_pool *pool, CUcontext home)
{
	struct marker *place = &own->markers[0];

	assert(own && pool && home);
	for (int i = 0; i < MARKERS_OF_A_THREAD; i++) {
		struct marker *marker = &own->markers[i];

		if (marker->event && marker_is_of(marker, pool))
			return marker->event;
		if (!marker->event)
			place = marker;
	}
	if (place->event)
		mine_put(place);
	*place = (struct marker){pool, gcp_pool_life(pool), spare_take(pool)};
	if (!place->event && gcp_event_create(home, &place->event) != CUDA_SUCCESS)
		place->event = NULL;
	return place->event;
}

void gcp_stream_refs_thread_exit(void)
{
	for (int i = 0; own && i < MARKERS_OF_A_THREAD; i++)
		if (own->markers[i].event)
			spare_put(&own->markers[i]);
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
	*ref = (struct gcp_stream_ref){.id = id, .generation = generation};
	gcp_thread_watch();
	if (!ctx || gcp_unknown_capture_seen() ||
	    !gcp_contexts_home(ctx, &ref->home, &ref->device) ||
	    gcp_pool_get(gcp_process.pools, ref->home, ref->device, &ref->pool) != 0) {
		ref->generation = 0; /* asked again next time */
		return false;
	}
	assert(ref->pool && ref->home && ref->device >= 0);
	gcp_thread_note_gpu(ref->device);
	if (gcp_process.options.thread)
		gcp_poller_start();
	ref->serves = gcp_contexts_is_primary(ref->home);
	ref->alone = !gcp_contexts_are_several();
	ref->kind = kind_of(stream, ctx, ref->home);
	if (ref->kind == GCP_STREAM_JOINED && ctx == ref->home &&
	    gcp_real.cuStreamGetCtx(NULL, &ctx) == CUDA_SUCCESS && ctx == ref->home)
		(void)gcp_real.cuStreamGetId(NULL, &ref->legacy);
	if (ref->kind != GCP_STREAM_APART)
		ref->marker = marker_get(ref->pool, ref->home);
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
