/* SPDX-License-Identifier: MIT */
/*
 * foreign_work.c - see foreign_work.h.
 *
 * Nothing is given to the device for it but the event. An event is asked for under the
 * lock of contexts.c, which guards all here, and not while its context may be ending:
 * with the context it goes.
 */
#include <stdlib.h>
#include "../base/process.h"
#include "contexts.h"
#include "ctx_scope.h"
#include "foreign_work.h"
#include "resolve.h"

enum { HOMES_MAX = 3, SWEPT_LEAST = 16 };

/* Work that may not be done yet. */
struct foreign {
	CUevent event;              /* behind it */
	CUcontext ctx;              /* the event's context */
	uint64_t number;            /* they rise in the queue */
	CUcontext homes[HOMES_MAX]; /* that it counts for, and NULL */
	bool every;                 /* for all that there are, rather */
	struct foreign *next;
};

static struct foreign *oldest, **youngest = &oldest; /* the queue */
static unsigned length, unswept; /* of the queue; copies since all were asked */

/* Written under the lock. */
static _Atomic(uint64_t) latest;                     /* number given */
static _Atomic(uint64_t) oldest_number = UINT64_MAX; /* in the queue; it is empty */

/* --- the queue: the lock is held ----------------------------------------------- */

static void oldest_tell(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	atomic_store(&oldest_number, oldest ? oldest->number : UINT64_MAX);
}

/* Takes the one at *link out of the queue. */
static void foreign_remove(struct foreign **link)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct foreign *work = *link;

	assert(work && length > 0);
	*link = work->next;
	if (youngest == &work->next)
		youngest = link;
	gcp_context_event_put(work->ctx, work->event);
	free(work);
	length--;
	oldest_tell();
}

/* A capture that the library does not know forbids to ask. Other errors are those of
 * the context, or of an event that went with one: the work is over, and what is wrong
 * is told by the fences of that context, and by no others. */
static bool says_nothing(CUresult result)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	return result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_INVALID_CONTEXT ||
	       (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
		result <= CUDA_ERROR_CAPTURED_EVENT);
}

static CUresult foreign_query(const struct foreign *work)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	assert(work->event && work->ctx);
	return gcp_context_is_ending(work->ctx) ||
		       says_nothing(gcp_event_query(work->ctx, work->event))
		   ? CUDA_ERROR_NOT_READY
		   : CUDA_SUCCESS;
}

/* Queries all of them whenever about as many have been added as the last sweep left.
 * This bounds their number where little is freed, or the oldest takes long. */
static void foreign_sweep(void)
{
	struct foreign **link = &oldest;

	GCP_LOCKED(&gcp_contexts_lock);
	if (2 * ++unswept < length + SWEPT_LEAST)
		return;
	unswept = 0;
	while (*link)
		if (foreign_query(*link) == CUDA_SUCCESS)
			foreign_remove(link);
		else
			link = &(*link)->next;
}

static void foreign_publish(struct foreign *work)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	assert(work->event && !*youngest);
	assert(work->ctx);
	work->number = atomic_load(&latest) + 1;
	work->next = NULL;
	*youngest = work;
	youngest = &work->next;
	length++;
	oldest_tell();
	atomic_store(&latest, work->number);
}

/* --- work is submitted --------------------------------------------------------- */

/* ctx: NULL for any. */
static bool counts_for(const struct foreign *work, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	bool counts = !ctx || work->every;

	for (int i = 0; i < HOMES_MAX; i++)
		counts |= work->homes[i] == ctx;
	return counts;
}

/* A record may wait until the stream's queue has room: it is made without locks. */
bool gcp_foreign_work_note(CUcontext executing, CUstream stream,
			   const CUcontext *contexts, int count)
{
	GCP_KEEP_ERRNO;
	struct foreign *work = calloc(1, sizeof(*work));
	CUresult result;

	gcp_assert_driver_call();
	assert(count <= HOMES_MAX && (contexts || count == 0));
	if (!work)
		return false;
	/* The work of a green context goes on when that is destroyed, which waits for
	 * nothing, and an event of the primary one can be recorded in its streams
	 * (measured). */
	work->ctx = gcp_contexts_home_of(executing) ?: executing;
	assert(work->ctx);
	work->every = !contexts;
	for (int i = 0; i < count; i++)
		work->homes[i] = contexts[i];
	if (gcp_context_event_take(work->ctx, &work->event) != CUDA_SUCCESS) {
		free(work);
		return false;
	}
	(void)GCP_WITHIN(NULL, (foreign_sweep(), CUDA_SUCCESS));
	result = GCP_WITHIN(executing, gcp_real.cuEventRecord(work->event, stream));
	GCP_LOCKED(&gcp_contexts_lock);
	if (result == CUDA_SUCCESS) {
		foreign_publish(work);
	} else {
		gcp_context_event_put(work->ctx, work->event);
		free(work);
	}
	return result == CUDA_SUCCESS;
}

CUresult gcp_foreign_work_submitted(CUcontext executing, CUstream stream,
				    const CUcontext *contexts, int count)
{
	return gcp_foreign_work_note(executing, stream, contexts, count)
		   ? CUDA_SUCCESS
		   : GCP_WITHIN(executing, gcp_real.cuStreamSynchronize(stream));
}

/* Under the lock: no context is being destroyed now. */
static int record_in(void *unused, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct foreign *work = calloc(1, sizeof(*work));
	CUresult result = CUDA_SUCCESS;

	(void)unused;
	assert(ctx && !gcp_context_is_ending(ctx));
	if (!work)
		return -ENOMEM;
	work->ctx = ctx;
	assert(!work->every && !work->homes[0]); /* no fence waits for it */
	work->event = gcp_context_event_spare(ctx);
	if (!work->event)
		result = gcp_event_create(ctx, &work->event);
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuCtxRecordEvent(ctx, work->event);
	if (result == CUDA_SUCCESS)
		foreign_publish(work);
	else /* its event may be of a context that is gone */
		free(work);
	return (int)result;
}

int gcp_foreign_work_everywhere(uint64_t *ret_number)
{
	GCP_KEEP_ERRNO;
	int result = gcp_contexts_for_each(record_in, NULL, false);

	/* No context was reached: it says nothing about any of them. */
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		result = -ENOMEM;
	if (result == 0)
		*ret_number = gcp_foreign_work_latest();
	return result;
}

/* --- fences -------------------------------------------------------------------- */

uint64_t gcp_foreign_work_latest(void)
{
	return atomic_load(&latest);
}

bool gcp_foreign_work_is_pending(uint64_t number)
{
	return atomic_load(&oldest_number) <= number;
}

CUresult gcp_foreign_work_query(CUcontext ctx, uint64_t number, bool own)
{
	CUresult result = CUDA_SUCCESS;
	struct foreign **link = &oldest;

	GCP_LOCKED(&gcp_contexts_lock);
	assert(number <= atomic_load(&latest));
	assert(ctx || !own); /* whose own */
	while (*link && (*link)->number <= number && result == CUDA_SUCCESS) {
		if ((own && (*link)->ctx != ctx) || !counts_for(*link, ctx)) {
			link = &(*link)->next;
			continue;
		}
		result = foreign_query(*link);
		if (result == CUDA_SUCCESS)
			foreign_remove(link);
	}
	return result;
}

CUresult gcp_foreign_work_ask(CUcontext ctx, uint64_t number, bool own)
{
	return GCP_WITHIN(NULL, gcp_foreign_work_query(ctx, number, own));
}

uint64_t gcp_foreign_work_done(void)
{
	uint64_t number = gcp_foreign_work_latest(), first;

	if (!gcp_foreign_work_is_pending(number))
		return number;
	(void)gcp_foreign_work_ask(NULL, number, false);
	first = atomic_load(&oldest_number);
	assert(first > 0);
	/* Never more: works to come have larger numbers. */
	return first > number ? number : first - 1;
}

CUresult gcp_foreign_work_wait(CUcontext ctx, uint64_t number, bool own)
{
	for (int turn = 0; gcp_foreign_work_is_pending(number); turn++) {
		CUresult result = gcp_foreign_work_ask(ctx, number, own);

		gcp_assert_driver_call();
		if (result != CUDA_ERROR_NOT_READY)
			return result;
		gcp_pause(turn);
	}
	return CUDA_SUCCESS;
}

/* --- barriers ------------------------------------------------------------------ */

/* Which of the two contexts is gone the driver does not say. */
static int foreign_order(const struct foreign *work, CUcontext waiting)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	assert(waiting && work->event);
	if (!gcp_context_is_ending(work->ctx))
		result = gcp_real.cuCtxWaitEvent(waiting, work->event);
	return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? -EBUSY : (int)result;
}

int gcp_foreign_work_order(CUcontext waiting, CUcontext ctx, uint64_t number)
{
	int result = 0;

	gcp_assert_held(GCP_RANK_CONTEXTS);
	for (struct foreign *work = oldest;
	     work && work->number <= number && result == 0; work = work->next)
		if (counts_for(work, ctx))
			result = foreign_order(work, waiting);
	return result;
}

/* --- the end of a context ------------------------------------------------------ */

/* Its events are gone, and the work in its streams is done. What another context
 * executes stays until it is done: fences of a new context with this handle are done
 * after it, at worst. */
void gcp_foreign_work_context_gone(CUcontext ctx)
{
	struct foreign **link = &oldest;

	GCP_LOCKED(&gcp_contexts_lock);
	while (ctx && *link) {
		if ((*link)->ctx == ctx)
			foreign_remove(link);
		else
			link = &(*link)->next;
	}
}
