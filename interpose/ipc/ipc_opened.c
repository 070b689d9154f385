/* SPDX-License-Identifier: MIT */
/*
 * ipc_opened.c - see ipc_opened.h.
 */
#include <pthread.h>
#include <stdlib.h>

#include "ipc_opened.h"
#include "../cuda/resolve.h"

/* A pointer given to the program that is not the one CUDA gave. */
struct opened_pointer {
	CUdeviceptr ptr, base;
	CUcontext ctx;  /* current when it was opened */
	uint64_t count; /* opens not closed yet */
	struct opened_pointer *next;
};

static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened_pointer *opened_first; /* guarded by opened_lock */

bool gcp_ipc_opened_add(CUdeviceptr base, uint64_t offset)
{
	struct opened_pointer *opened;
	CUcontext ctx = NULL;

	gcp_real.cuCtxGetCurrent(&ctx);
	pthread_mutex_lock(&opened_lock);
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
	pthread_mutex_unlock(&opened_lock);
	return opened != NULL;
}

CUdeviceptr gcp_ipc_opened_base(CUdeviceptr ptr)
{
	struct opened_pointer *opened;
	CUdeviceptr base;

	pthread_mutex_lock(&opened_lock);
	for (opened = opened_first; opened && opened->ptr != ptr; opened = opened->next)
		;
	base = opened ? opened->base : ptr;
	pthread_mutex_unlock(&opened_lock);
	return base;
}

void gcp_ipc_opened_remove(CUdeviceptr ptr)
{
	struct opened_pointer **link, *opened;

	pthread_mutex_lock(&opened_lock);
	for (link = &opened_first; *link && (*link)->ptr != ptr; link = &(*link)->next)
		;
	opened = *link;
	if (opened && --opened->count == 0) {
		*link = opened->next;
		free(opened);
	}
	pthread_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_context_gone(CUcontext ctx)
{
	struct opened_pointer **link = &opened_first, *opened;

	pthread_mutex_lock(&opened_lock);
	while ((opened = *link) != NULL) {
		if (opened->ctx != ctx) {
			link = &opened->next;
			continue;
		}
		*link = opened->next;
		free(opened);
	}
	pthread_mutex_unlock(&opened_lock);
}

void gcp_ipc_opened_after_fork(void)
{
	pthread_mutex_init(&opened_lock, NULL);
}
