/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.c - see ipc_opened.h.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "../../pool/pool.h"
#include "ipc_opened.h"
#include "../cuda/resolve.h"

/* A pointer given to the program that is not the one CUDA gave. */
struct opened_pointer {
	CUdeviceptr ptr, base;
	CUcontext ctx;    /* current when it was opened */
	uint64_t count;   /* opens not closed yet */
	uint64_t closing; /* calls that close one */
	struct opened_pointer *next;
};

static struct gcp_mutex opened_lock = GCP_MUTEX(GCP_RANK_OPENED);
static struct opened_pointer *opened_first; /* guarded by opened_lock */
static _Atomic uint64_t calls_begun, calls_ended;

struct gcp_ipc_call gcp_ipc_call_begin(void)
{
	struct gcp_ipc_call call = {.number = atomic_fetch_add(&calls_begun, 1)};

	call.beside = atomic_load(&calls_ended) != call.number;
	return call;
}

bool gcp_ipc_call_end(struct gcp_ipc_call call)
{
	bool later = atomic_load(&calls_begun) != call.number + 1;

	atomic_fetch_add(&calls_ended, 1);
	return call.beside || later;
}

bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset)
{
	struct opened_pointer *opened;
	CUcontext ctx = NULL;

	gcp_real.cuCtxGetCurrent(&ctx);
	gcp_mutex_lock(&opened_lock);
	for (opened = opened_first; opened; opened = opened->next)
		if (opened->ptr == base + offset && opened->base == base)
			break;
	if (!opened) {
		opened = calloc(1, sizeof(*opened));
		if (opened) {
			opened->ptr = base + offset;
			opened->base = base;
			opened->ctx = ctx;
			opened->next = opened_first;
			opened_first = opened;
		}
	}
	if (opened)
		opened->count++;
	gcp_mutex_unlock(&opened_lock);
	return opened != NULL;
}

CUdeviceptr gcp_ipc_opened_close(CUdeviceptr ptr)
{
	struct opened_pointer *opened;
	CUdeviceptr base = ptr;

	gcp_mutex_lock(&opened_lock);
	for (opened = opened_first; opened; opened = opened->next)
		if (opened->ptr == ptr && opened->count > 0)
			break;
	if (opened) {
		opened->count--;
		opened->closing++;
		base = opened->base;
	}
	gcp_mutex_unlock(&opened_lock);
	return base;
}

void gcp_ipc_opened_closed(CUdeviceptr ptr, CUdeviceptr base, bool closed)
{
	struct opened_pointer **link, *opened;

	gcp_mutex_lock(&opened_lock);
	for (link = &opened_first; (opened = *link) != NULL; link = &opened->next)
		if (opened->ptr == ptr && opened->base == base && opened->closing > 0)
			break;
	if (opened) {
		opened->closing--;
		opened->count += !closed;
		if (opened->count + opened->closing == 0) {
			*link = opened->next;
			free(opened);
		}
	}
	gcp_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_context_gone(CUcontext ctx)
{
	struct opened_pointer **link = &opened_first, *opened;

	gcp_mutex_lock(&opened_lock);
	while ((opened = *link) != NULL) {
		if (opened->ctx != ctx) {
			link = &opened->next;
			continue;
		}
		*link = opened->next;
		free(opened);
	}
	gcp_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_after_fork(void)
{
	gcp_mutex_init(&opened_lock, GCP_RANK_OPENED);
	atomic_store(&calls_begun, 0);
	atomic_store(&calls_ended, 0);
}
