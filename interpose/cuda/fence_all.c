/* SPDX-License-Identifier: MIT */
/*
 * fence_all.c - see fence_all.h.
 *
 * A context can be destroyed by one thread while another asks for a fence of which it
 * holds a part, because pinned memory is used in all contexts. An event of a destroyed
 * context must not be touched: so all here is done under the lock of contexts.c, and
 * the parts in a context that may be ending count as pending. The lock is held over
 * queries of events, never over a wait.
 */
#include <stdlib.h>
#include <sys/queue.h>

#include "contexts.h"
#include "ctx_scope.h"
#include "../base/process.h"
#include "resolve.h"
#include "fence_all.h"
#include "foreign_work.h"

struct part {
	CUcontext ctx;
	CUevent event;
	bool recorded;    /* in the latest record; else it counts as done */
	uint64_t foreign; /* foreign_work.h: the latest work then */
	SLIST_ENTRY(part) entry;
};

struct fence_all {
	SLIST_HEAD(, part) parts;
	struct fence_all *next; /* all that there are */
};

static struct fence_all *fences;

int gcp_fence_all_create(void **ret_fence)
{
	GCP_KEEP_ERRNO;
	struct fence_all *fence = calloc(1, sizeof(*fence));

	if (!fence)
		return -ENOMEM;
	GCP_LOCKED(&gcp_contexts_lock);
	fence->next = fences;
	*ret_fence = fences = fence;
	return 0;
}

/* --- recording ---------------------------------------------------------------- */

static struct part *part_find(struct fence_all *fence, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct part *part;

	SLIST_FOREACH (part, &fence->parts, entry)
		if (part->ctx == ctx)
			break;
	return part;
}

static struct part *part_add(struct fence_all *fence, CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct part *part = calloc(1, sizeof(*part));

	assert(ctx && !part_find(fence, ctx));
	if (part) {
		part->ctx = ctx;
		SLIST_INSERT_HEAD(&fence->parts, part, entry);
	}
	return part;
}

static CUresult part_record(struct part *part)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	CUresult result = CUDA_SUCCESS;

	assert(part->ctx && !part->recorded);
	if (!part->event)
		result = gcp_event_create(part->ctx, &part->event);
	part->foreign = gcp_foreign_work_latest();
	assert(part->event || result != CUDA_SUCCESS);
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuCtxRecordEvent(part->ctx, part->event);
	part->recorded = result == CUDA_SUCCESS;
	return result;
}

/* Under contexts.c's lock; no context is being destroyed now. */
static int record_one(void *arg, CUcontext ctx)
{
	struct fence_all *fence = arg;
	struct part *part = part_find(fence, ctx);

	if (!part)
		part = part_add(fence, ctx);
	return part ? (int)part_record(part) : -ENOMEM;
}

int gcp_fence_all_record(void *handle)
{
	struct fence_all *fence = handle;
	struct part *part;
	GCP_KEEP_ERRNO;
	int result;

	gcp_mutex_lock(&gcp_contexts_lock);
	SLIST_FOREACH (part, &fence->parts, entry)
		part->recorded = false;
	gcp_mutex_unlock(&gcp_contexts_lock);
	result = gcp_contexts_for_each(record_one, fence, false);
	/* No context was reached: it says nothing about any of them. */
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	    (result == 0 && gcp_contexts_overflown()))
		result = -ENOMEM;
	return result;
}

/* --- asking -------------------------------------------------------------------- */

/* The parts in `ctx` (NULL: all). own: without what others do for them. Under
 * contexts.c's lock. */
static CUresult parts_query(const struct fence_all *fence, CUcontext ctx, bool own)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	CUresult result = CUDA_SUCCESS;
	const struct part *part;

	SLIST_FOREACH (part, &fence->parts, entry) {
		if (result != CUDA_SUCCESS || !part->recorded ||
		    (ctx && part->ctx != ctx))
			continue;
		assert(part->event);
		result = gcp_context_is_ending(part->ctx)
			     ? CUDA_ERROR_NOT_READY
			     : gcp_event_query(part->ctx, part->event);
		if (result == CUDA_SUCCESS)
			result = gcp_foreign_work_query(part->ctx, part->foreign, own);
	}
	return result;
}

/* While a capture is under way asking is forbidden in a thread whose mode is not
 * relaxed. pool/ asks under the lock that a capture takes before it begins, so none
 * can begin meanwhile; a wait asks without. */
static int fence_all_query(struct fence_all *fence, CUcontext ctx, bool own,
			   bool relaxed)
{
	struct gcp_ctx_scope scope;
	GCP_KEEP_ERRNO;
	CUresult result;

	if (relaxed)
		gcp_ctx_scope_begin(&scope, NULL);
	gcp_mutex_lock(&gcp_contexts_lock);
	result = parts_query(fence, ctx, own);
	gcp_mutex_unlock(&gcp_contexts_lock);
	if (relaxed)
		gcp_ctx_scope_end(&scope);
	return result;
}

int gcp_fence_all_query(void *fence, void *ctx)
{
	return fence_all_query(fence, ctx, false,
			       gcp_tracker_capturing(gcp_process.tracker));
}

/* Not cuEventSynchronize: the context may be destroyed while we wait. */
int gcp_fence_all_wait(void *fence, void *ctx)
{
	GCP_KEEP_ERRNO;
	int result;

	for (int turn = 0;; turn++) {
		result = fence_all_query(fence, ctx, ctx != NULL, true);
		gcp_assert_driver_call();
		if (result != CUDA_ERROR_NOT_READY)
			break;
		gcp_pause(turn);
	}
	return result;
}

/* --- the end of a context --------------------------------------------------------- */

void gcp_fence_all_context_gone(CUcontext ctx)
{
	GCP_LOCKED(&gcp_contexts_lock);
	for (struct fence_all *fence = fences; fence; fence = fence->next) {
		struct part *part = part_find(fence, ctx);

		if (part) /* its event went with it */
			SLIST_REMOVE(&fence->parts, part, part, entry);
		free(part);
	}
}
