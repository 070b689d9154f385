/* SPDX-License-Identifier: MIT */
/*
 * fence_all.c - see fence_all.h.
 *
 * A context can be destroyed by one thread while another asks for a fence of which it
 * holds a part, because pinned memory is of all contexts. An event of a destroyed
 * context must not be touched, and the real destroy may take long: so contexts.c says
 * before it calls it, and from then on these parts are pending, and says afterwards how
 * it went. fence_all_lock is held over queries of events, never over a wait, and never
 * while a context is being destroyed.
 *
 * Locks: pool/'s fence_lock and contexts_lock come before fence_all_lock.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "contexts.h"
#include "cuda_backend.h"
#include "process.h"
#include "resolve.h"
#include "fence_all.h"

enum { ENDING_MAX = 16 };

struct part {
	CUcontext ctx;
	CUevent event;
	bool recorded; /* in the latest record; else it counts as done */
};

struct fence_all {
	struct part *parts;
	int count, capacity;
	struct fence_all *next; /* all that there are; fence_all_lock */
};

static pthread_mutex_t fence_all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fence_all *fences;
static CUcontext ending[ENDING_MAX]; /* contexts; NULL: a free slot */
static int ending_unknown;           /* contexts for which there was no slot */

int gcp_fence_all_create(void **ret_fence)
{
	int saved = errno;
	struct fence_all *fence = calloc(1, sizeof(*fence));

	errno = saved;
	if (!fence)
		return -ENOMEM;
	pthread_mutex_lock(&fence_all_lock);
	fence->next = fences;
	fences = fence;
	pthread_mutex_unlock(&fence_all_lock);
	*ret_fence = fence;
	return 0;
}

/* The library keeps its fences for good and does not call this; the driver table has
 * it to be complete. */
void gcp_fence_all_destroy(void *fence)
{
	(void)fence;
}

/* --- recording ---------------------------------------------------------------- */

static struct part *part_add(struct fence_all *fence, CUcontext ctx)
{
	int saved = errno;
	struct part *parts = fence->parts;

	if (fence->count == fence->capacity) {
		int capacity = fence->capacity ? 2 * fence->capacity : 2;

		parts = realloc(parts, (size_t)capacity * sizeof(*parts));
		errno = saved;
		if (!parts)
			return NULL;
		fence->parts = parts;
		fence->capacity = capacity;
	}
	parts[fence->count] = (struct part){.ctx = ctx};
	return &parts[fence->count++];
}

static struct part *part_find(struct fence_all *fence, CUcontext ctx)
{
	for (int i = 0; i < fence->count; i++)
		if (fence->parts[i].ctx == ctx)
			return &fence->parts[i];
	return NULL;
}

/* An event belongs to the context that is current when it is made. */
static CUresult event_create(CUcontext ctx, CUevent *ret_event)
{
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_begin(&scope, ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_real.cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
	gcp_ctx_scope_end(&scope);
	return result;
}

static CUresult part_record(struct part *part)
{
	CUresult result = CUDA_SUCCESS;

	if (!part->event)
		result = event_create(part->ctx, &part->event);
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuCtxRecordEvent(part->ctx, part->event);
	part->recorded = result == CUDA_SUCCESS;
	return result;
}

/* Under contexts_lock, so that no context is being destroyed now; and the all-context
 * fence is the caller's alone, but for the end of a context. */
static int record_one(void *arg, CUcontext ctx)
{
	struct fence_all *fence = arg;
	struct part *part;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&fence_all_lock);
	part = part_find(fence, ctx);
	if (!part)
		part = part_add(fence, ctx);
	if (part)
		result = part_record(part);
	/* The event may be that of a context which went unnoticed. */
	if (part && (result == CUDA_ERROR_INVALID_HANDLE ||
		     result == CUDA_ERROR_INVALID_VALUE)) {
		part->event = NULL;
		result = part_record(part);
	}
	pthread_mutex_unlock(&fence_all_lock);
	return part ? (int)result : -ENOMEM;
}

int gcp_fence_all_record(void *handle)
{
	struct fence_all *fence = handle;
	int saved = errno, result;

	pthread_mutex_lock(&fence_all_lock);
	for (int i = 0; i < fence->count; i++)
		fence->parts[i].recorded = false;
	pthread_mutex_unlock(&fence_all_lock);
	result = gcp_contexts_for_each(record_one, fence);
	/* No context was reached: it says nothing about any of them. */
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	    (result == 0 && gcp_contexts_overflown()))
		result = -ENOMEM;
	errno = saved;
	return result;
}

/* --- asking -------------------------------------------------------------------- */

static bool is_ending(CUcontext ctx)
{
	for (int i = 0; i < ENDING_MAX; i++)
		if (ending[i] == ctx)
			return true;
	return ending_unknown > 0;
}

/* A thread that frees need not have a context. */
static CUresult part_query(const struct part *part)
{
	CUresult result = gcp_real.cuEventQuery(part->event);
	struct gcp_ctx_scope scope;

	if (result != CUDA_ERROR_INVALID_CONTEXT)
		return result;
	result = gcp_ctx_scope_begin(&scope, part->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_real.cuEventQuery(part->event);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* The parts in `ctx` (NULL: all). Under fence_all_lock. */
static CUresult parts_query(const struct fence_all *fence, CUcontext ctx)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < fence->count && result == CUDA_SUCCESS; i++) {
		const struct part *part = &fence->parts[i];

		if (!part->recorded || (ctx && part->ctx != ctx))
			continue;
		result = is_ending(part->ctx) ? CUDA_ERROR_NOT_READY : part_query(part);
	}
	return result;
}

/* While a capture is under way asking is forbidden in a thread whose mode is not
 * relaxed. pool/ asks under the lock that a capture takes before it begins, so none
 * can begin meanwhile; a wait asks without. */
static int fence_all_query(struct fence_all *fence, CUcontext ctx, bool relaxed)
{
	struct gcp_ctx_scope scope;
	int saved = errno;
	CUresult result;

	if (relaxed)
		gcp_ctx_scope_begin(&scope, NULL);
	pthread_mutex_lock(&fence_all_lock);
	result = parts_query(fence, ctx);
	pthread_mutex_unlock(&fence_all_lock);
	if (relaxed)
		gcp_ctx_scope_end(&scope);
	errno = saved;
	return result;
}

int gcp_fence_all_query(void *fence)
{
	return fence_all_query(fence, NULL, gcp_tracker_capturing(gcp_process.tracker));
}

/* Not cuEventSynchronize: the context may be destroyed while we wait. */
int gcp_fence_all_wait(void *fence, void *ctx)
{
	struct timespec delay = {.tv_nsec = 2000};
	int saved = errno, result;

	for (int turn = 0;; turn++) {
		result = fence_all_query(fence, ctx, true);
		if (result != CUDA_ERROR_NOT_READY)
			break;
		if (turn < 100) {
			sched_yield();
			continue;
		}
		nanosleep(&delay, NULL);
		if (delay.tv_nsec < 100000)
			delay.tv_nsec += delay.tv_nsec / 4;
	}
	errno = saved;
	return result;
}

/* --- the end of a context --------------------------------------------------------- */

void gcp_fence_all_context_ending(CUcontext ctx)
{
	int slot = 0;

	if (!ctx)
		return;
	pthread_mutex_lock(&fence_all_lock);
	while (slot < ENDING_MAX && ending[slot])
		slot++;
	if (slot < ENDING_MAX)
		ending[slot] = ctx;
	else
		ending_unknown++;
	pthread_mutex_unlock(&fence_all_lock);
}

static void ending_remove(CUcontext ctx)
{
	for (int i = 0; i < ENDING_MAX; i++) {
		if (ending[i] == ctx) {
			ending[i] = NULL;
			return;
		}
	}
	ending_unknown--;
}

void gcp_fence_all_context_ended(CUcontext ctx, bool gone)
{
	struct part *part;

	if (!ctx)
		return;
	pthread_mutex_lock(&fence_all_lock);
	ending_remove(ctx);
	for (struct fence_all *fence = fences; fence && gone; fence = fence->next) {
		part = part_find(fence, ctx);
		if (part) /* its event went with it */
			*part = fence->parts[--fence->count];
	}
	pthread_mutex_unlock(&fence_all_lock);
}

void gcp_fence_all_after_fork(void)
{
	pthread_mutex_init(&fence_all_lock, NULL);
}
