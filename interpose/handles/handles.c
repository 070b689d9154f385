/* SPDX-License-Identifier: MIT */
/*
 * handles.c - see handles.h. A handle that the program destroys is kept, and given to
 * the next creation.
 *
 * A handle belongs to the context that was current when the library created it. At its
 * destroy it is set back to the state that it had when it was new, and the end of its
 * use is marked (gcpool_work). A creation in that context takes the handle whose use
 * ended first if all work until then is done, or all later work follows it; else a new
 * one of the library's. So a handle's own memory (a workspace, say) is never used by
 * two owners at once, and nothing waits that does not wait on plain CUDA: there a
 * destroy returns only when all work that was submitted before it is done.
 *
 * What goes to its library: a handle that nothing is known of (created before this
 * library started, by a thread without a context, or reached past it), one whose
 * context has ended or is not current, one that is destroyed while a stream captures
 * (a setter might touch that stream) or that the library refuses to set back, and all
 * in a forked child.
 *
 *  J1 a handle is given out only when the work of its last owner is ready
 *  J2 a handle is given out as new, in the context and the environment of the creation
 *  J3 of several destroys of one creation one succeeds
 */
#include <stdlib.h>

#include "handles.h"

enum {
	/* Where creations find no handle that is ready: free ones of a context, before
	 * a destroy waits as a plain one does. */
	PENDING_MAX = 8,
};

enum handle_state {
	HANDLE_USED, /* the program has it */
	HANDLE_BUSY, /* a thread gives it back, or takes it */
	HANDLE_FREE,
};

/* Where a handle was created: one of another origin is not like a new one. */
struct origin {
	CUcontext ctx;
	uint64_t environment;    /* see gcp_handle_environment */
	struct gcpool_work work; /* the context, and the end of the handle's use */
};

/* What changes: handles_lock, or the thread that it is busy with. */
struct gcp_handle {
	struct gcp_handle *next;
	void *pointer; /* the library's handle; constant, as the next one */
	uint64_t values[GCP_HANDLE_SETTINGS_MAX]; /* of its state when it was new */
	struct origin origin;
	enum handle_state state;
	uint64_t destroy; /* the library's number, when it became free */
};

static struct gcp_mutex handles_lock = GCP_MUTEX(GCP_RANK_HANDLES);

/* --- the driver ------------------------------------------------------------------ */

static struct {
	CUresult (*ctx_get)(CUcontext *);
	CUresult (*ctx_wait)(void);
} driver;

/* False: the program has not loaded it. Threads that meet here write the same. */
static bool driver_find(void)
{
	static _Atomic bool found;
	struct gcp_elf elf;

	if (atomic_load(&found))
		return true;
	if (!gcp_elf_find("libcuda.so.1", &elf))
		return false;
	*(void **)&driver.ctx_get = gcp_elf_symbol(&elf, "cuCtxGetCurrent");
	*(void **)&driver.ctx_wait = gcp_elf_symbol(&elf, "cuCtxSynchronize");
	atomic_store(&found, true); /* none is younger than CUDA 7 */
	return true;
}

/* False: handles that are created here are not kept. */
static bool origin_find(struct origin *ret_origin)
{
	int result;

	if (driver.ctx_get(&ret_origin->ctx) != CUDA_SUCCESS || !ret_origin->ctx)
		return false;
	result = gcpool_work(&ret_origin->work, GCPOOL_WORK_CONTEXT);
	ret_origin->environment = gcp_handle_environment();
	return result == 0 || result == -EBUSY;
}

/* --- the handles that are known: with handles_lock ------------------------------ */

static struct gcp_handle *handle_find(const struct gcp_handle_library *library,
				      const void *pointer)
{
	struct gcp_handle *handle = library->handles;

	gcp_assert_held(GCP_RANK_HANDLES);
	while (handle && handle->pointer != pointer)
		handle = handle->next;
	return handle;
}

static void count_use(struct gcp_handle_library *library)
{
	struct gcp_handle_counts *counts = &library->counts;

	gcp_assert_held(GCP_RANK_HANDLES);
	if (atomic_fetch_add(&counts->used, 1) == atomic_load(&counts->peak))
		atomic_fetch_add(&counts->peak, 1);
	assert(atomic_load(&counts->used) <= atomic_load(&counts->peak));
}

/* It is the library's again, or gone. No thread is busy with it. The program may have
 * destroyed it past this library. */
static void handle_drop(struct gcp_handle_library *library, struct gcp_handle *handle)
{
	struct gcp_handle **at = &library->handles;

	gcp_assert_held(GCP_RANK_HANDLES);
	assert(handle->state != HANDLE_BUSY);
	while (*at != handle)
		at = &(*at)->next;
	atomic_fetch_sub(&library->counts.used, handle->state == HANDLE_USED);
	*at = handle->next;
	free(handle);
}

/* Of the free handles of the context and the environment, the one whose use ended
 * first; and how many there are. */
static struct gcp_handle *handle_oldest(const struct gcp_handle_library *library,
					CUcontext ctx, uint64_t environment,
					int *ret_count)
{
	struct gcp_handle *oldest = NULL, *handle = library->handles;

	gcp_assert_held(GCP_RANK_HANDLES);
	*ret_count = 0;
	for (; handle; handle = handle->next) {
		if (handle->state != HANDLE_FREE || handle->origin.ctx != ctx ||
		    handle->origin.environment != environment)
			continue;
		*ret_count += 1;
		if (!oldest || handle->destroy < oldest->destroy)
			oldest = handle;
	}
	return oldest;
}

/* A thread is no longer busy with it. */
static void handle_done(struct gcp_handle_library *library, struct gcp_handle *handle,
			bool taken)
{
	gcp_assert_held(GCP_RANK_HANDLES);
	assert(handle->state == HANDLE_BUSY);
	if (taken)
		count_use(library);
	handle->state = taken ? HANDLE_USED : HANDLE_FREE;
}

/* --- create ---------------------------------------------------------------------- */

/* A free handle of `ctx`, which is current, or NULL. */
static void *handle_take(struct gcp_handle_library *library, CUcontext ctx)
{
	uint64_t environment = gcp_handle_environment();
	int count, result = -ESTALE;
	struct gcp_handle *handle;
	void *pointer = NULL;

	gcp_mutex_lock(&handles_lock);
	while (result == -ESTALE &&
	       (handle = handle_oldest(library, ctx, environment, &count))) {
		handle->state = HANDLE_BUSY;
		gcp_mutex_unlock(&handles_lock);
		result = gcpool_work(&handle->origin.work, GCPOOL_WORK_READY); /* J1 */
		gcp_mutex_lock(&handles_lock);
		assert(handle->origin.ctx == ctx); /* J2 */
		if (result == 0)
			pointer = handle->pointer;
		handle_done(library, handle, result == 0);
		if (result == -ESTALE)
			handle_drop(library, handle);
	}
	gcp_mutex_unlock(&handles_lock);
	atomic_fetch_add(&library->counts.reused, pointer != NULL);
	return pointer;
}

/* The library has created one there: what was known by its address is gone. */
static void known_drop(struct gcp_handle_library *library, const void *pointer)
{
	struct gcp_handle *known;

	GCP_LOCKED(&handles_lock);
	known = handle_find(library, pointer);
	if (known && known->state != HANDLE_BUSY)
		handle_drop(library, known);
}

/* The library has created it, in the context that is current: it is known from now on.
 */
static void handle_adopt(struct gcp_handle_library *library, void *pointer)
{
	struct gcp_handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return;
	handle->pointer = pointer;
	if (!origin_find(&handle->origin) ||
	    !gcp_handle_state(library, pointer, handle->values, false)) {
		free(handle);
		return;
	}
	GCP_LOCKED(&handles_lock);
	assert(handle->state == HANDLE_USED);
	count_use(library);
	handle->next = library->handles;
	library->handles = handle;
	atomic_fetch_add(&library->counts.created, 1);
}

int gcp_handles_create(struct gcp_handle_library *library, void **ret_handle)
{
	bool pooled = ret_handle && gcp_handle_library_pooled(library) && driver_find();
	struct gcp_handle_real real;
	CUcontext current = NULL;
	void *pointer = NULL;
	int saved = errno, result;

	if (pooled && driver.ctx_get(&current) != CUDA_SUCCESS)
		current = NULL;
	/* Before it is active no handle is known, and in a forked child never. */
	if (current && gcpool_active())
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
	if (result == 0 && pooled)
		known_drop(library, *ret_handle);
	if (result == 0 && current)
		handle_adopt(library, *ret_handle);
	errno = saved;
	return result;
}

/* --- destroy --------------------------------------------------------------------- */

/* True if the program is so far ahead that creations would add handle after handle. */
static bool is_crowded(struct gcp_handle_library *library, const struct origin *origin)
{
	const struct gcp_handle *oldest;
	struct gcpool_work work = {0};
	int count;

	gcp_mutex_lock(&handles_lock);
	oldest = handle_oldest(library, origin->ctx, origin->environment, &count);
	if (oldest)
		work = oldest->origin.work;
	gcp_mutex_unlock(&handles_lock);
	return count >= PENDING_MAX && gcpool_work(&work, GCPOOL_WORK_READY) == -EBUSY;
}

/* True if it is set back, and the end of its use is marked. wait: behind a wait for all
 * work of the context, as a plain destroy. */
static bool handle_keep(struct gcp_handle_library *library, struct gcp_handle *handle,
			bool wait)
{
	struct origin *origin = &handle->origin;
	CUcontext current = NULL;
	int result;

	assert(handle->state == HANDLE_BUSY);
	origin->work.moment = 0;
	if (gcpool_work(&origin->work, GCPOOL_WORK_READY) != 0 || /* or -EBUSY */
	    driver.ctx_get(&current) != CUDA_SUCCESS || current != origin->ctx)
		return false;
	if (((wait || is_crowded(library, origin)) &&
	     driver.ctx_wait() != CUDA_SUCCESS) ||
	    !gcp_handle_state(library, handle->pointer, handle->values, true))
		return false;
	result = gcpool_work(&origin->work, GCPOOL_WORK_ENDS);
	return result == 0 || result == -EBUSY;
}

/* The program destroys `pointer`. True: that is done, with *ret_result. */
static bool destroyed(struct gcp_handle_library *library, void *pointer,
		      int *ret_result)
{
	struct gcp_handle *handle;
	bool used, kept;

	gcp_mutex_lock(&handles_lock);
	handle = handle_find(library, pointer);
	used = handle && handle->state == HANDLE_USED;
	if (used)
		handle->state = HANDLE_BUSY;
	gcp_mutex_unlock(&handles_lock);
	*ret_result = used ? 0 : library->kind->invalid;
	if (!used)
		return handle;
	kept = handle_keep(library, handle, gcp_handles_mode() == GCP_HANDLES_SYNC);
	GCP_LOCKED(&handles_lock);
	handle->destroy = ++library->destroys;
	handle_done(library, handle, false);
	if (!kept)
		handle_drop(library, handle);
	atomic_fetch_sub(&library->counts.used, 1);
	atomic_fetch_add(&library->counts.destroyed, !kept);
	return kept;
}

int gcp_handles_destroy(struct gcp_handle_library *library, void *pointer)
{
	struct gcp_handle_real real;
	int saved = errno, result;
	bool done = pointer && gcp_handle_library_pooled(library) && gcpool_active() &&
		    destroyed(library, pointer, &result);

	errno = saved;
	if (done)
		return result;
	if (!gcp_handle_library_real(library, &real))
		return library->kind->invalid;
	return real.destroy(pointer);
}
