/* SPDX-License-Identifier: MIT */
/*
 * release.c - see release.h.
 *
 * cuMemFree waits for all work of the context, that which was submitted a moment ago as
 * well, and that may be waiting for the program's next step. cuMemFreeAsync takes
 * memory of cuMemAlloc too ("cudaFreeAsync can free memory of cudaMalloc", CUDA C++
 * Programming Guide, stream-ordered memory allocator), and is ordered by its stream
 * alone: on a stream of our own, which never has other work, it is done at once. After
 * cuStreamSynchronize the driver has the memory (measured on driver 580: 60 % of a
 * device beside a kernel that does not end: 33 ms; cuMemFree waits for the kernel).
 *
 * There is one such stream for each context, made when it is first needed; it ends with
 * its context.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "cuda_backend.h"
#include "release.h"
#include "resolve.h"

struct releaser {
	CUcontext ctx;
	CUstream stream;
	struct releaser *next;
};

static pthread_mutex_t releasers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct releaser *releasers; /* guarded by releasers_lock */

bool gcp_release_possible(void)
{
	return gcp_real.cuMemFreeAsync && gcp_real.cuStreamCreate &&
	       gcp_real.cuStreamSynchronize;
}

/* `ctx` is current. The lock is held. */
static struct releaser *releaser_create(CUcontext ctx)
{
	struct releaser *releaser = calloc(1, sizeof(*releaser));

	if (!releaser)
		return NULL;
	if (gcp_real.cuStreamCreate(&releaser->stream, CU_STREAM_NON_BLOCKING) !=
	    CUDA_SUCCESS) {
		free(releaser);
		return NULL;
	}
	releaser->ctx = ctx;
	releaser->next = releasers;
	releasers = releaser;
	return releaser;
}

static CUstream release_stream(CUcontext ctx)
{
	struct releaser *releaser;
	CUstream stream;

	pthread_mutex_lock(&releasers_lock);
	releaser = releasers;
	while (releaser && releaser->ctx != ctx)
		releaser = releaser->next;
	if (!releaser)
		releaser = releaser_create(ctx);
	stream = releaser ? releaser->stream : NULL;
	pthread_mutex_unlock(&releasers_lock);
	return stream;
}

int gcp_release_memory(CUcontext ctx, CUdeviceptr ptr)
{
	struct gcp_ctx_scope scope;
	CUstream stream;
	int result = -EBUSY;

	if (gcp_ctx_scope_begin(&scope, ctx) != CUDA_SUCCESS)
		return -EBUSY;
	stream = release_stream(ctx);
	if (stream && gcp_real.cuMemFreeAsync(ptr, stream) == CUDA_SUCCESS) {
		gcp_real.cuStreamSynchronize(stream); /* an error shows again */
		result = 0;
	}
	gcp_ctx_scope_end(&scope);
	return result;
}

void gcp_release_context_gone(CUcontext ctx)
{
	struct releaser **link = &releasers, *releaser;

	pthread_mutex_lock(&releasers_lock);
	while (*link && (*link)->ctx != ctx)
		link = &(*link)->next;
	releaser = *link;
	if (releaser)
		*link = releaser->next;
	pthread_mutex_unlock(&releasers_lock);
	free(releaser);
}
