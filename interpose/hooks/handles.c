/* SPDX-License-Identifier: MIT */
/*
 * handles.c - see handles.h. The pool of library handles.
 *
 * A handle belongs to the context that was current when the library created it. A
 * destroyed handle is set back to the state that it had when it was new, then a
 * fence is recorded behind all work of the context, and it goes to the end of the
 * list of that library and context (handles_list.c). A creation takes
 *
 *   1. the oldest handle whose fence is done,
 *   2. else the oldest one whose fence was recorded by a destroy, and holds back all
 *      later work of the context until that fence is done,
 *   3. else a new one of the library's: while a stream captures, or with several
 *      contexts, nothing is held back.
 *
 * The handle's own memory (a workspace, say) is so never used by two owners at once.
 * The same is why 2. waits for nothing that plain CUDA does not wait for: a plain
 * destroy returns only when all work submitted before is done. It does let other
 * threads submit work meanwhile, which 2. may hold back; that can matter only to
 * work that waits for work submitted later to the same context, and CUDA promises
 * nothing to that. Between contexts, as in collectives over several devices, such
 * work is common: hence 3. (fence.c, NO NEW WAITS.)
 *
 * A handle that nothing is known of (created before this library started, or through
 * a pointer that it did not hand out), or whose library refuses to set it back, is
 * destroyed by its library.
 */
#include <errno.h>

#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "handles.h"
#include "../handles/handles_list.h"
#include "../process/process_life.h"

/* --- create ---------------------------------------------------------------------- */

/* The primary context of the only device, if it is active. */
static CUcontext primary_only(void)
{
	CUcontext ctx = NULL;
	unsigned int flags;
	int active = 0;

	if (gcp_real.cuDevicePrimaryCtxGetState(0, &flags, &active) != CUDA_SUCCESS ||
	    !active || gcp_contexts_retain_primary(&ctx, 0) != CUDA_SUCCESS)
		return NULL;
	gcp_contexts_end_primary(gcp_real.cuDevicePrimaryCtxRelease_v2, 0, 1);
	return ctx;
}

/* A thread without a context gets, from the library, the primary one of its device.
 * Where there is one device only that is known before: it is made current, as the
 * library would. */
static CUcontext context_implied(struct gcp_handle_library *library)
{
	CUcontext ctx = atomic_load(&library->implied);
	int count = 0;

	if (!atomic_load(&library->counts->created) ||
	    gcp_real.cuDeviceGetCount(&count) != CUDA_SUCCESS || count != 1)
		return NULL;
	if (!ctx)
		ctx = primary_only();
	if (!ctx || gcp_real.cuCtxSetCurrent(ctx) != CUDA_SUCCESS)
		return NULL;
	atomic_store(&library->implied, ctx);
	gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);
	return ctx;
}

/* A free handle of the current context, or NULL. */
static void *handle_take(struct gcp_handle_library *library, CUcontext current)
{
	CUcontext ctx = current ? current : context_implied(library);
	struct gcp_handle_list *list = ctx ? gcp_handle_list_of(library, ctx) : NULL;
	void *pointer = list ? gcp_handle_list_take(list) : NULL;

	if (!pointer && ctx && !current)
		gcp_real.cuCtxSetCurrent(NULL); /* as the library would have met it */
	return pointer;
}

/* The library has created it, in the context that is current now. If none was before
 * (`bare`) it is the one that context_implied would have to ask for: primary_only
 * releases it, and meanwhile no other thread gets a handle of its lists. */
static void handle_adopt(struct gcp_handle_library *library, void *pointer, bool bare)
{
	struct gcp_handle_list *list = NULL;
	CUcontext ctx = NULL;

	if (gcp_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx)
		list = gcp_handle_list_of(library, ctx);
	if (list && bare)
		atomic_store(&library->implied, ctx);
	if (list)
		gcp_handle_list_adopt(list, pointer);
}

/* Whether this process pools by now; starts to, if it can. */
static bool handles_live(void)
{
	return gcp_resolve() && gcp_process_started_mode() == GCP_RUN_POOL;
}

int gcp_handles_create(struct gcp_handle_library *library, void **ret_handle)
{
	struct gcp_handle_real real;
	CUcontext current = NULL;
	void *pointer = NULL;
	int saved = errno, result;
	bool looked = gcp_handle_library_pooled(library) && ret_handle &&
		      handles_live() &&
		      gcp_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS;

	if (looked)
		pointer = handle_take(library, current);
	errno = saved;
	if (pointer) {
		*ret_handle = pointer;
		return 0;
	}
	if (!gcp_handle_library_real(library, &real))
		return library->kind->invalid;
	result = real.create(ret_handle);
	saved = errno;
	if (result == 0 && gcp_handle_library_pooled(library) && handles_live())
		handle_adopt(library, *ret_handle, looked && !current);
	errno = saved;
	return result;
}

/* --- destroy --------------------------------------------------------------------- */

/* Others have the handle still; a plain destroy waits all the same. */
static void shared_wait(void)
{
	struct gcp_ctx_scope scope;

	if (gcp_process_capturing() ||
	    gcp_ctx_scope_begin(&scope, NULL) != CUDA_SUCCESS)
		return;
	gcp_real.cuCtxSynchronize();
	gcp_ctx_scope_end(&scope);
}

int gcp_handles_destroy(struct gcp_handle_library *library, void *pointer)
{
	bool wait = gcp_handles_mode() == GCP_HANDLES_SYNC, kept;
	enum gcp_handle_claim claim = GCP_HANDLE_UNKNOWN;
	struct gcp_handle *handle = NULL;
	struct gcp_handle_real real;
	int saved = errno;

	if (pointer && gcp_handle_library_pooled(library) && gcp_process_pooling())
		claim = gcp_handle_claim(library, pointer, &handle);
	kept = claim == GCP_HANDLE_SHARED;
	if (kept && wait)
		shared_wait();
	if (claim == GCP_HANDLE_CLAIMED) {
		kept = gcp_handle_return(handle, wait);
		if (!kept)
			gcp_handle_detach(handle);
	}
	errno = saved;
	if (kept)
		return 0;
	if (claim == GCP_HANDLE_DESTROYED || !gcp_handle_library_real(library, &real))
		return library->kind->invalid;
	return real.destroy(pointer);
}

void gcp_handles_capture_begins(void)
{
	gcp_handle_lists_pause();
}
