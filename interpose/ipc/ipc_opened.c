/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.c - see ipc_opened.h.
 */
#include <stdlib.h>
#include <sys/queue.h>

#include "../../pool/pool.h"
#include "ipc_opened.h"
#include "../cuda/resolve.h"

/* One open of a pointer that is not the one CUDA gave. */
struct opened_pointer {
	CUdeviceptr ptr, base;
	CUcontext ctx; /* current when it was opened */
	SLIST_ENTRY(opened_pointer) entry;
};

static struct gcp_mutex opened_lock = GCP_MUTEX(GCP_RANK_OPENED);
static SLIST_HEAD(, opened_pointer) opened_all; /* guarded by opened_lock */

bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset)
{
	struct opened_pointer *opened = calloc(1, sizeof(*opened));

	if (!opened)
		return false;
	opened->ptr = base + offset;
	opened->base = base;
	gcp_real.cuCtxGetCurrent(&opened->ctx);
	gcp_mutex_lock(&opened_lock);
	SLIST_INSERT_HEAD(&opened_all, opened, entry);
	gcp_mutex_unlock(&opened_lock);
	return true;
}

/* The newest one at `ptr`: what was open there before is closed, known or not. */
struct opened_pointer *gcp_ipc_opened_take(CUdeviceptr ptr, CUdeviceptr *ret_base)
{
	struct opened_pointer *opened;

	gcp_mutex_lock(&opened_lock);
	SLIST_FOREACH (opened, &opened_all, entry)
		if (opened->ptr == ptr)
			break;
	if (opened)
		SLIST_REMOVE(&opened_all, opened, opened_pointer, entry);
	gcp_mutex_unlock(&opened_lock);
	*ret_base = opened ? opened->base : ptr;
	return opened;
}

void gcp_ipc_opened_closed(struct opened_pointer *opened, bool closed)
{
	gcp_mutex_lock(&opened_lock);
	if (opened && !closed)
		SLIST_INSERT_HEAD(&opened_all, opened, entry);
	gcp_mutex_unlock(&opened_lock);
	if (closed)
		free(opened);
}

void gcp_ipc_opened_context_gone(CUcontext ctx)
{
	struct opened_pointer *opened, *next;

	gcp_mutex_lock(&opened_lock);
	for (opened = SLIST_FIRST(&opened_all); opened; opened = next) {
		next = SLIST_NEXT(opened, entry);
		if (opened->ctx != ctx)
			continue;
		SLIST_REMOVE(&opened_all, opened, opened_pointer, entry);
		free(opened);
	}
	gcp_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_after_fork(void)
{
	gcp_mutex_init(&opened_lock, GCP_RANK_OPENED);
	SLIST_INIT(&opened_all);
}
