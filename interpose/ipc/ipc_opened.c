/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.c - see ipc_opened.h.
 */
#include <stdlib.h>
#include <sys/queue.h>

#include "../../pool/pool.h"
#include "ipc_opened.h"
#include "../cuda/resolve.h"

/* A pointer given to the program that is not the one CUDA gave. */
struct opened_pointer {
	CUdeviceptr ptr, base;
	CUcontext ctx;  /* current when it was opened */
	uint64_t count; /* opens not closed yet */
	SLIST_ENTRY(opened_pointer) entry;
};

static struct gcp_mutex opened_lock = GCP_MUTEX(GCP_RANK_OPENED);
static SLIST_HEAD(, opened_pointer) opened_all; /* guarded by opened_lock */

/* The newest one at `ptr`: what was open there before is closed, known or not. */
static struct opened_pointer *opened_at(CUdeviceptr ptr)
{
	gcp_assert_held(GCP_RANK_OPENED);
	struct opened_pointer *opened;

	SLIST_FOREACH (opened, &opened_all, entry)
		if (opened->ptr == ptr)
			return opened;
	return NULL;
}

bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset)
{
	struct opened_pointer *opened;
	CUcontext ctx = NULL;

	gcp_real.cuCtxGetCurrent(&ctx);
	gcp_mutex_lock(&opened_lock);
	opened = opened_at(base + offset);
	if (!opened || opened->base != base) {
		opened = calloc(1, sizeof(*opened));
		if (opened) {
			opened->ptr = base + offset;
			opened->base = base;
			opened->ctx = ctx;
			SLIST_INSERT_HEAD(&opened_all, opened, entry);
		}
	}
	if (opened)
		opened->count++;
	gcp_mutex_unlock(&opened_lock);
	return opened != NULL;
}

CUdeviceptr gcp_ipc_opened_base(CUdeviceptr ptr)
{
	const struct opened_pointer *opened;
	CUdeviceptr base;

	gcp_mutex_lock(&opened_lock);
	opened = opened_at(ptr);
	base = opened ? opened->base : ptr;
	gcp_mutex_unlock(&opened_lock);
	return base;
}

void gcp_ipc_opened_closed(CUdeviceptr ptr, CUdeviceptr base)
{
	struct opened_pointer *opened;

	gcp_mutex_lock(&opened_lock);
	SLIST_FOREACH (opened, &opened_all, entry)
		if (opened->ptr == ptr && opened->base == base)
			break;
	if (opened && --opened->count == 0) {
		SLIST_REMOVE(&opened_all, opened, opened_pointer, entry);
		free(opened);
	}
	gcp_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_context_gone(CUcontext ctx)
{
	struct opened_pointer *opened, *next;

	gcp_mutex_lock(&opened_lock);
	for (opened = SLIST_FIRST(&opened_all); opened; opened = next) {
		next = SLIST_NEXT(opened, entry);
		if (opened->ctx == ctx) {
			SLIST_REMOVE(&opened_all, opened, opened_pointer, entry);
			free(opened);
		}
	}
	gcp_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_after_fork(void)
{
	gcp_mutex_init(&opened_lock, GCP_RANK_OPENED);
	SLIST_INIT(&opened_all);
}
