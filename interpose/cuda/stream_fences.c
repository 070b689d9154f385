/* SPDX-License-Identifier: MIT */
/*
 * stream_fences.c - see stream_fences.h. Filled into the driver's table
 * (driver_table.h) before the pools are made; `record` is called by each free of
 * frameworks.c.
 *
 * A library that is loaded in the middle of a process sees neither work nor captures.
 * An event behind all work of a context may not be recorded while a stream of it
 * captures, which is unknown here; and no barrier may be set. But each free names its
 * stream, so that is asked whether it captures, and gets an event at once: later the
 * stream may be gone.
 *
 *      free in s: event in s, then the block is stamped with the open epoch
 *      the epoch is closed: its fence is the latest event of EACH stream
 *      the fence is done once they are
 *
 * Since the event comes before the stamp, the fence of the block's epoch has it. And as
 * a fence has all streams, those that this epoch did not touch as well, fences are done
 * in their order, as fence.c wants it.
 *
 * Frees of one stream share an event until a fence has taken it. Recorded once more it
 * stands behind all of them, and no fence waits for what was submitted after it.
 *
 * A capture that begins between the question and the record makes the event part of a
 * graph. Such an event says nothing about the device: the fence is not done before a
 * later free in that stream has recorded another.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctx_scope.h"
#include "../base/process.h"
#include "resolve.h"
#include "stream_fences.h"

enum { EVENTS = 16, STREAMS_KEPT = 32, LOOK_NS = 50000 };

struct stream_event {
	CUevent event;   /* made when it is first needed */
	uint64_t number; /* of the latest free that it stands behind */
	bool busy;       /* is being recorded */
	bool fenced;     /* a fence has it */
	bool lost;       /* it is part of a graph */
};

/* A stream that a free has named; never freed. */
struct named_stream {
	pthread_mutex_t recording; /* frees of one stream record in their order */
	/* fences_lock: */
	uint64_t id;
	CUcontext ctx;
	int users;                    /* threads that record */
	uint64_t recorded, completed; /* frees */
	uint32_t count;               /* events that are not done, the oldest first */
	struct stream_event events[EVENTS];
};

/* What one epoch waits for. */
struct stream_fence {
	size_t count, room;
	struct stream_part {
		struct named_stream *named;
		uint64_t number;
	} * parts;
};

/* Held over queries of events, never over a record, which may wait for the device. */
static pthread_mutex_t fences_lock = PTHREAD_MUTEX_INITIALIZER;
static struct named_stream **streams;
static size_t stream_count, stream_room;

/* --- what is done: fences_lock is held, in a scope ------------------------------- */

/* The first `count` events are done, and may be recorded again. */
static void events_drop(struct named_stream *named, uint32_t count)
{
	struct stream_event done[EVENTS];

	memcpy(done, named->events, count * sizeof(*done));
	memmove(named->events, named->events + count,
		(EVENTS - count) * sizeof(*named->events));
	for (uint32_t i = 0; i < count; i++)
		named->events[EVENTS - count + i] =
		    (struct stream_event){.event = done[i].event};
	named->count -= count;
}

/* Whether the free with this number is done: 0, GCP_CUDA_NOT_READY or an error. The
 * oldest event that stands behind it is asked. */
static int named_query(struct named_stream *named, uint64_t number)
{
	for (uint32_t i = 0; named->completed < number && i < named->count; i++) {
		struct stream_event *event = &named->events[i];
		CUresult result;

		if (event->number < number || event->busy || event->lost)
			continue;
		result = gcp_real.cuEventQuery(event->event);
		event->lost = result == CUDA_ERROR_CAPTURED_EVENT;
		if (event->lost)
			continue;
		if (result != CUDA_SUCCESS)
			return result;
		named->completed = event->number;
		events_drop(named, i + 1);
	}
	return named->completed < number ? GCP_CUDA_NOT_READY : 0;
}

/* --- named streams: fences_lock is held ------------------------------------------ */

/* One that has nothing pending is given to another stream; its numbers go on. Events
 * belong to a context. */
static struct named_stream *stream_idle(CUcontext ctx)
{
	if (stream_count < STREAMS_KEPT)
		return NULL;
	for (size_t i = 0; i < stream_count; i++)
		if (streams[i]->ctx == ctx && streams[i]->users == 0 &&
		    named_query(streams[i], streams[i]->recorded) == 0)
			return streams[i];
	return NULL;
}

static struct named_stream *stream_add(void)
{
	struct named_stream **more, *named;

	if (stream_count == stream_room) {
		more = realloc(streams,
			       (stream_room + 64) * sizeof(struct named_stream *));
		if (!more)
			return NULL;
		streams = more;
		stream_room += 64;
	}
	named = calloc(1, sizeof(*named));
	if (!named)
		return NULL;
	pthread_mutex_init(&named->recording, NULL);
	streams[stream_count++] = named;
	return named;
}

static struct named_stream *stream_of(CUcontext ctx, uint64_t id)
{
	struct named_stream *named = NULL;

	for (size_t i = 0; i < stream_count; i++)
		if (streams[i]->id == id)
			return streams[i];
	named = stream_idle(ctx);
	if (!named)
		named = stream_add();
	if (named) {
		named->id = id;
		named->ctx = ctx;
	}
	return named;
}

/* --- record ---------------------------------------------------------------------- */

/* The event for a free: the latest, unless a fence has it; else the next one. Where all
 * are in use the latest goes on. fences_lock and `recording` are held. */
static struct stream_event *event_begin(struct named_stream *named)
{
	struct stream_event *latest =
	    named->count ? &named->events[named->count - 1] : NULL;

	if (!latest || (latest->fenced && !latest->lost && named->count < EVENTS))
		latest = &named->events[named->count++];
	if (!latest->event &&
	    gcp_real.cuEventCreate(&latest->event, CU_EVENT_DISABLE_TIMING) !=
		CUDA_SUCCESS) {
		latest->event = NULL;
		named->count--;
		return NULL;
	}
	latest->busy = true;
	latest->fenced = false;
	return latest;
}

/* A failed record leaves the event as it was, or out of use if it is new. */
static void event_end(struct named_stream *named, struct stream_event *event,
		      bool recorded)
{
	event->busy = false;
	if (recorded) {
		event->number = ++named->recorded;
		event->lost = false;
	} else if (event->number == 0) {
		named->count--;
	}
}

/* An event that is busy stays where it is but for older ones that are dropped. */
static struct stream_event *event_busy(struct named_stream *named)
{
	return &named->events[named->count - 1];
}

static CUresult named_record(struct named_stream *named, CUstream stream)
{
	struct stream_event *event;
	CUevent handle = NULL;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&named->recording);
	pthread_mutex_lock(&fences_lock);
	event = event_begin(named);
	if (event)
		handle = event->event;
	pthread_mutex_unlock(&fences_lock);
	if (event) {
		result = gcp_real.cuEventRecord(handle, stream);
		pthread_mutex_lock(&fences_lock);
		event_end(named, event_busy(named), result == CUDA_SUCCESS);
		pthread_mutex_unlock(&fences_lock);
	}
	pthread_mutex_unlock(&named->recording);
	return result;
}

CUresult gcp_stream_fences_record(CUcontext ctx, CUstream stream, uint64_t id)
{
	struct named_stream *named;
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_begin(&scope, ctx);

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&fences_lock);
	named = stream_of(ctx, id);
	if (named)
		named->users++;
	pthread_mutex_unlock(&fences_lock);
	result = named ? named_record(named, stream) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fences_lock);
	if (named)
		named->users--;
	pthread_mutex_unlock(&fences_lock);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* --- the driver's table ---------------------------------------------------------- */

static int fence_create(void *ctx, void **ret_fence)
{
	int saved = errno;

	(void)ctx;
	*ret_fence = calloc(1, sizeof(struct stream_fence));
	errno = saved;
	return *ret_fence ? 0 : -ENOMEM;
}

static void fence_destroy(void *handle)
{
	struct stream_fence *fence = handle;

	free(fence->parts);
	free(fence);
}

/* fences_lock is held. */
static bool fence_has_room(struct stream_fence *fence)
{
	struct stream_part *parts;

	if (fence->room >= stream_count)
		return true;
	parts = realloc(fence->parts, stream_room * sizeof(*parts));
	if (!parts)
		return false;
	fence->parts = parts;
	fence->room = stream_room;
	return true;
}

static int fence_record(void *ctx, void *handle)
{
	struct stream_fence *fence = handle;
	int saved = errno, result = -ENOMEM;

	(void)ctx;
	pthread_mutex_lock(&fences_lock);
	fence->count = 0;
	if (fence_has_room(fence)) {
		for (size_t i = 0; i < stream_count; i++) {
			struct named_stream *named = streams[i];

			if (named->count == 0)
				continue;
			named->events[named->count - 1].fenced = true;
			fence->parts[fence->count++] =
			    (struct stream_part){named, named->recorded};
		}
		result = 0;
	}
	pthread_mutex_unlock(&fences_lock);
	errno = saved;
	return result;
}

/* fences_lock is held, in a scope. */
static int parts_query(struct stream_fence *fence)
{
	while (fence->count > 0) {
		const struct stream_part *part = &fence->parts[fence->count - 1];
		int result = named_query(part->named, part->number);

		if (result != 0)
			return result;
		fence->count--;
	}
	return 0;
}

static int fence_query(void *handle)
{
	struct gcp_ctx_scope scope;
	int result;

	gcp_ctx_scope_begin(&scope, NULL);
	pthread_mutex_lock(&fences_lock);
	result = parts_query(handle);
	pthread_mutex_unlock(&fences_lock);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* Whether it waits for an event that will never be done. */
static bool fence_is_lost(const struct stream_fence *fence)
{
	const struct named_stream *named;
	bool lost = false;

	pthread_mutex_lock(&fences_lock);
	if (fence->count > 0) {
		named = fence->parts[fence->count - 1].named;
		lost = named->count > 0 && named->events[named->count - 1].lost;
	}
	pthread_mutex_unlock(&fences_lock);
	return lost;
}

/* Looks again and again: an event that a thread waited for could not be recorded once
 * more by another. Only gcpool_trim waits. */
static int fence_wait(void *handle)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	int saved = errno, result;

	while ((result = fence_query(handle)) == GCP_CUDA_NOT_READY &&
	       !fence_is_lost(handle))
		nanosleep(&pause, NULL);
	errno = saved;
	return result;
}

static int fence_order(void *handle, bool alone)
{
	(void)handle, (void)alone;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static bool completed_only(void)
{
	return true;
}

bool gcp_stream_fences_possible(void)
{
	return gcp_real.cuStreamGetId && gcp_real.cuStreamGetCaptureInfo &&
	       gcp_real.cuThreadExchangeStreamCaptureMode && gcp_real.cuEventCreate &&
	       gcp_real.cuEventRecord && gcp_real.cuEventQuery &&
	       gcp_real.cuDevicePrimaryCtxRetain;
}

void gcp_stream_fences_fill(struct gcp_driver *driver)
{
	driver->fence_create = fence_create;
	driver->fence_destroy = driver->fence_discard = fence_destroy;
	driver->fence_record = fence_record;
	driver->fence_order = fence_order;
	driver->fence_query = fence_query;
	driver->fence_wait = fence_wait;
	driver->fence_wait_own = NULL;
	driver->fence_record_in = NULL; /* each free has its event */
	driver->third_party_writers = completed_only;
	driver->host_alloc = NULL;
	driver->vm_reserve = NULL;
}
