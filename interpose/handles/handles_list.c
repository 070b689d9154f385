/* SPDX-License-Identifier: MIT */
/*
 * handles_list.c - see handles_list.h. The handles that the pool knows, and the lists
 * of free ones.
 *
 * A list holds the free handles of one library and one context, oldest first. Its
 * fences complete in that order, except for those that a capture put off:
 *
 * While a stream captures no fence can be recorded, and a setter might touch a stream
 * that captures: a handle destroyed then is `held` as it is. The next call that finds
 * no capture sets it back and records its fence. If that call is a creation, the fence
 * covers work that was submitted after the destroy: it is only asked (`early`), and
 * recorded anew by the next destroy.
 *
 * Once a capture may be under way that is not known (unknown_calls.h) no fence is
 * recorded any more: no handle is taken from a list, or comes back to one.
 *
 * Locks: a list's lock is taken before table_lock, and before those of contexts.c.
 * Libraries are called under a list's lock only to set a held handle back.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "handles_list.h"
#include "../base/process.h"
#include "../cuda/resolve.h"
#include "../cuda/unknown_calls.h"

enum {
	TABLE_SLOTS = 1024,
	/* Where creations cannot be ordered behind a fence: free handles that may wait
	 * for the device, before a destroy waits as a plain one does. */
	PENDING_MAX = 8,
};

enum handle_state {
	HANDLE_USED,      /* the program has it */
	HANDLE_RETURNING, /* a thread is in its destroy */
	HANDLE_FREE,      /* it is on its list */
};

struct gcp_handle {
	struct gcp_handle *table_next; /* table_lock */
	struct gcp_handle *next; /* on the list, to younger ones; the list's lock */
	struct gcp_handle_list *list;
	void *pointer;           /* the library's handle */
	enum handle_state state; /* table_lock */
	uint32_t users;   /* table_lock: creations that gave it, and no destroy yet */
	uint64_t lives;   /* the list's, when the library created it */
	uint64_t arrival; /* the list's, when it was put there */
	uint64_t environment;                     /* see gcp_handle_environment */
	uint64_t values[GCP_HANDLE_SETTINGS_MAX]; /* of its state when it was new */

	/* The list's lock, or the returning thread: */
	CUevent fence; /* NULL: not made yet */
	bool done;     /* a wait for the context stands in for the fence */
	bool held;     /* neither set back nor fenced */
	bool early;    /* its fence was recorded by a creation */
};

/* Never freed. */
struct gcp_handle_list {
	struct gcp_handle_list *_Atomic next;
	struct gcp_handle_library *library;
	CUcontext ctx;
	_Atomic(CUcontext) home;      /* what fences cover: ctx, or the primary one */
	_Atomic(uint64_t) generation; /* of contexts.h, when `home` was asked for */
	pthread_mutex_t lock;
	int cancel; /* what the lock's holder gives to gcp_cancel_restore */
	struct gcp_handle *oldest, *youngest;
	uint64_t arrivals; /* handles put on the list so far */
	int free_count;    /* handles on the list */
	bool unordered;    /* a creation could not be ordered behind a fence */
	int deferred;      /* held or early handles on the list */
	int ending;        /* calls under way that may end ctx */
	uint64_t lives;    /* how often ctx has ended */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gcp_handle *table[TABLE_SLOTS];
static struct gcp_handle_list *_Atomic lists;

/* --- the table of handles: table_lock -------------------------------------------- */

static struct gcp_handle **table_slot(const void *pointer)
{
	uint64_t key = (uint64_t)(uintptr_t)pointer;

	return &table[(key * 0x9e3779b97f4a7c15u) >> 54];
}

static struct gcp_handle **table_find(const struct gcp_handle_library *library,
				      const void *pointer)
{
	struct gcp_handle **at = table_slot(pointer);

	while (*at && ((*at)->pointer != pointer || (*at)->list->library != library))
		at = &(*at)->table_next;
	return at;
}

static void table_remove(struct gcp_handle *handle)
{
	struct gcp_handle **at = table_slot(handle->pointer);

	while (*at && *at != handle)
		at = &(*at)->table_next;
	if (*at)
		*at = handle->table_next;
}

/* --- lists ----------------------------------------------------------------------- */

/* It is held over calls of the driver, and each capture that begins waits for it: see
 * cancel.h. */
static void list_lock(struct gcp_handle_list *list)
{
	int cancel = gcp_cancel_defer();

	pthread_mutex_lock(&list->lock);
	list->cancel = cancel;
}

static void list_unlock(struct gcp_handle_list *list)
{
	int cancel = list->cancel;

	pthread_mutex_unlock(&list->lock);
	gcp_cancel_restore(cancel);
}

static struct gcp_handle_list *list_find(const struct gcp_handle_library *library,
					 CUcontext ctx)
{
	struct gcp_handle_list *list =
	    atomic_load_explicit(&lists, memory_order_acquire);

	while (list && (list->library != library || list->ctx != ctx))
		list = atomic_load_explicit(&list->next, memory_order_acquire);
	return list;
}

static struct gcp_handle_list *list_make(struct gcp_handle_library *library,
					 CUcontext ctx)
{
	struct gcp_handle_list *list;

	pthread_mutex_lock(&table_lock);
	list = list_find(library, ctx);
	if (!list && (list = calloc(1, sizeof(*list)))) {
		list->library = library;
		list->ctx = ctx;
		pthread_mutex_init(&list->lock, NULL);
		atomic_store(&list->next, atomic_load(&lists));
		atomic_store_explicit(&lists, list, memory_order_release);
	}
	pthread_mutex_unlock(&table_lock);
	return list;
}

struct gcp_handle_list *gcp_handle_list_of(struct gcp_handle_library *library,
					   CUcontext ctx)
{
	uint64_t now =
	    atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
	struct gcp_handle_list *list = list_find(library, ctx);
	CUcontext home;
	int device;

	if (list && atomic_load(&list->generation) == now)
		return list;
	if (!gcp_contexts_home(ctx, &home, &device) ||
	    (!list && !(list = list_make(library, ctx))))
		return NULL;
	list_lock(list);
	list->home = home;
	atomic_store(&list->generation, now);
	list_unlock(list);
	return list;
}

static void list_append(struct gcp_handle_list *list, struct gcp_handle *handle)
{
	handle->next = NULL;
	handle->arrival = ++list->arrivals;
	if (list->youngest)
		list->youngest->next = handle;
	else
		list->oldest = handle;
	list->youngest = handle;
	list->free_count++;
}

static void list_unlink(struct gcp_handle_list *list, struct gcp_handle *handle)
{
	struct gcp_handle **at = &list->oldest, *before = NULL;

	while (*at != handle) {
		before = *at;
		at = &(*at)->next;
	}
	*at = handle->next;
	if (list->youngest == handle)
		list->youngest = before;
	list->free_count--;
}

/* --- fences: the list's lock is held, and no stream captures --------------------- */

static bool fence_make(const struct gcp_handle_list *list, struct gcp_handle *handle)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	if (handle->fence)
		return true;
	if (gcp_ctx_scope_begin(&scope, list->home) != CUDA_SUCCESS)
		return false;
	result = gcp_real.cuEventCreate(&handle->fence, CU_EVENT_DISABLE_TIMING);
	gcp_ctx_scope_end(&scope);
	return result == CUDA_SUCCESS;
}

static bool fence_record(const struct gcp_handle_list *list, struct gcp_handle *handle,
			 bool early)
{
	handle->early = early;
	return fence_make(list, handle) &&
	       gcp_real.cuCtxRecordEvent(list->home, handle->fence) == CUDA_SUCCESS;
}

/* 0, GCP_CUDA_NOT_READY, or a sticky error of the device. Captures or not. */
static int fence_query(const struct gcp_handle *handle)
{
	struct gcp_ctx_scope scope;
	CUresult result;

	if (handle->done)
		return 0;
	if (!gcp_process_capturing())
		return (int)gcp_real.cuEventQuery(handle->fence);
	gcp_ctx_scope_begin(&scope, NULL);
	result = gcp_real.cuEventQuery(handle->fence);
	gcp_ctx_scope_end(&scope);
	return (int)result;
}

static bool handle_reset(const struct gcp_handle *handle)
{
	struct gcp_ctx_scope scope;
	bool reset;

	if (gcp_ctx_scope_begin(&scope, handle->list->ctx) != CUDA_SUCCESS)
		return false;
	reset =
	    gcp_handle_reset(handle->list->library, handle->pointer, handle->values);
	gcp_ctx_scope_end(&scope);
	return reset;
}

/* Catches up with what a capture put off. `destroying`: the caller is a destroy, behind
 * which later work may be held back. `waited`: since the arrival before that one the
 * context was waited for; 0: it was not. */
static void list_catch_up(struct gcp_handle_list *list, bool destroying,
			  uint64_t waited)
{
	struct gcp_handle *handle = list->deferred ? list->oldest : NULL;

	for (; handle; handle = handle->next) {
		if (handle->held && !handle_reset(handle))
			continue;
		if (!handle->held && !(handle->early && destroying))
			continue;
		handle->held = false;
		handle->done = handle->arrival < waited;
		if (!handle->done && !fence_record(list, handle, !destroying))
			handle->held = true;
		if (handle->done)
			handle->early = false;
		list->deferred -= !handle->held && !handle->early;
	}
}

/* --- taking a free handle -------------------------------------------------------- */

/* The list's lock is held. */
static struct gcp_handle *list_pick(struct gcp_handle_list *list, uint64_t environment)
{
	bool capturing = gcp_process_capturing();
	struct gcp_handle *handle;

	if (gcp_unknown_capture_seen())
		return NULL;
	if (!capturing)
		list_catch_up(list, false, 0);
	for (handle = list->oldest; handle; handle = handle->next) {
		int result;

		if (handle->held || handle->environment != environment)
			continue;
		result = fence_query(handle);
		if (result == 0)
			return handle;
		if (result != GCP_CUDA_NOT_READY)
			return NULL; /* the library will say what is wrong */
		if (!handle->early)
			break; /* younger ones are not done either */
	}
	if (!handle || capturing)
		return NULL;
	list->unordered = gcp_contexts_order(handle->fence, true) != 0;
	return list->unordered ? NULL : handle;
}

void *gcp_handle_list_take(struct gcp_handle_list *list)
{
	uint64_t environment = gcp_handle_environment();
	struct gcp_handle *handle = NULL;
	void *pointer = NULL;

	list_lock(list);
	if (!list->ending && list->oldest)
		handle = list_pick(list, environment);
	if (handle) {
		pointer = handle->pointer;
		list->deferred -= handle->early;
		list_unlink(list, handle);
		pthread_mutex_lock(&table_lock);
		handle->state = HANDLE_USED;
		handle->users = 1;
		pthread_mutex_unlock(&table_lock);
	}
	list_unlock(list);
	if (!pointer)
		return NULL;
	atomic_fetch_add(&list->library->counts->reused, 1);
	gcp_handle_counts_use(list->library->counts);
	return pointer;
}

/* --- a handle that the library has created --------------------------------------- */

static struct gcp_handle *handle_make(struct gcp_handle_list *list, void *pointer)
{
	struct gcp_handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return NULL;
	handle->list = list;
	handle->pointer = pointer;
	handle->environment = gcp_handle_environment();
	handle->users = 1;
	if (gcp_handle_read(list->library, pointer, handle->values))
		return handle;
	free(handle);
	return NULL;
}

/* Takes a free handle off its list. Both locks are held. */
static void handle_unlist(struct gcp_handle *handle)
{
	handle->list->deferred -= handle->held || handle->early;
	list_unlink(handle->list, handle);
	handle->state = HANDLE_USED;
}

/* Drops the record of a handle whose address the library has just given to a new one:
 * the program destroyed it past the hooks. Both locks are held. */
static void handle_stale(struct gcp_handle *handle)
{
	if (handle->state == HANDLE_RETURNING)
		return;
	if (handle->state == HANDLE_FREE)
		handle_unlist(handle);
	atomic_fetch_sub(&handle->list->library->counts->used, handle->users);
	table_remove(handle);
	free(handle);
}

/* The library has given an address that is known: to one more caller, where it
 * shares handles. True: that is all. */
static bool address_known(struct gcp_handle_library *library, void *pointer)
{
	struct gcp_handle *handle;
	struct gcp_handle_list *list;
	bool known;

	pthread_mutex_lock(&table_lock);
	handle = *table_find(library, pointer);
	list = handle ? handle->list : NULL;
	pthread_mutex_unlock(&table_lock);
	if (!handle)
		return false;
	list_lock(list);
	pthread_mutex_lock(&table_lock);
	known = *table_find(library, pointer) == handle;
	if (known && library->kind->shared) {
		if (handle->state == HANDLE_FREE)
			handle_unlist(handle);
		handle->users++;
	} else if (known) {
		handle_stale(handle);
	}
	pthread_mutex_unlock(&table_lock);
	list_unlock(list);
	return known && library->kind->shared;
}

/* Enters a new handle in the table. False: another thread has just entered the same
 * address, which the library shares. */
static bool table_enter(struct gcp_handle *handle)
{
	struct gcp_handle **slot = table_slot(handle->pointer);
	struct gcp_handle_library *library = handle->list->library;
	bool other;

	pthread_mutex_lock(&table_lock);
	other = library->kind->shared && *table_find(library, handle->pointer);
	if (!other) {
		handle->table_next = *slot;
		*slot = handle;
	}
	pthread_mutex_unlock(&table_lock);
	return !other;
}

void gcp_handle_list_adopt(struct gcp_handle_list *list, void *pointer)
{
	struct gcp_handle *handle;
	bool known;

	while (!(known = address_known(list->library, pointer))) {
		handle = handle_make(list, pointer);
		if (!handle)
			return;
		list_lock(list);
		handle->lives = list->lives;
		list_unlock(list);
		if (table_enter(handle))
			break;
		free(handle);
	}
	atomic_fetch_add(known ? &list->library->counts->reused
			       : &list->library->counts->created,
			 1);
	gcp_handle_counts_use(list->library->counts);
}

/* --- a handle that the program destroys ------------------------------------------ */

enum gcp_handle_claim gcp_handle_claim(struct gcp_handle_library *library,
				       void *pointer, struct gcp_handle **ret_handle)
{
	enum gcp_handle_claim claim = GCP_HANDLE_SHARED;
	struct gcp_handle *handle;

	pthread_mutex_lock(&table_lock);
	handle = *table_find(library, pointer);
	if (!handle) {
		claim = GCP_HANDLE_UNKNOWN;
	} else if (handle->users == 0) {
		claim = GCP_HANDLE_DESTROYED;
	} else if (--handle->users == 0 && handle->state == HANDLE_USED) {
		claim = GCP_HANDLE_CLAIMED;
		handle->state = HANDLE_RETURNING;
	}
	pthread_mutex_unlock(&table_lock);
	/* One that is claimed is in use until it is free, or the library's again: a
	 * creation beside this destroy needs another one. */
	if (claim == GCP_HANDLE_SHARED)
		atomic_fetch_sub(&library->counts->used, 1);
	*ret_handle = handle;
	return claim;
}

/* Waits for all work of the context, as a plain destroy does. What list_catch_up wants
 * to know of it; 0: it failed. */
static uint64_t context_wait(struct gcp_handle_list *list)
{
	struct gcp_ctx_scope scope;
	uint64_t arrivals;
	CUresult result;

	list_lock(list);
	arrivals = list->arrivals;
	list_unlock(list);
	if (gcp_ctx_scope_begin(&scope, list->home) != CUDA_SUCCESS)
		return 0;
	result = gcp_real.cuCtxSynchronize();
	gcp_ctx_scope_end(&scope);
	return result == CUDA_SUCCESS ? arrivals + 1 : 0;
}

/* Under the list's lock. -ENODEV: it cannot be kept. -EAGAIN: not before a wait for the
 * context, for there is no fence to be had. */
static int list_keep(struct gcp_handle_list *list, struct gcp_handle *handle,
		     uint64_t waited)
{
	if (list->ending || list->lives != handle->lives || gcp_unknown_capture_seen())
		return -ENODEV;
	handle->early = false;
	handle->done = waited > 0;
	handle->held = handle->held || gcp_process_capturing();
	if (!handle->held) {
		if (!waited && !fence_record(list, handle, false))
			return -EAGAIN;
		list_catch_up(list, true, waited);
	}
	pthread_mutex_lock(&table_lock);
	handle->state =
	    handle->users ? HANDLE_USED : HANDLE_FREE; /* shared meanwhile */
	if (handle->state == HANDLE_FREE) {
		list->deferred += handle->held;
		list_append(list, handle);
	}
	atomic_fetch_sub(&list->library->counts->used, 1);
	pthread_mutex_unlock(&table_lock);
	return 0;
}

/* Whether the program is so far ahead that creations would add handle after handle. */
static bool list_crowded(struct gcp_handle_list *list)
{
	bool crowded;

	list_lock(list);
	crowded = !gcp_unknown_capture_seen() && list->unordered &&
		  list->free_count >= PENDING_MAX && !list->oldest->held &&
		  fence_query(list->oldest) == GCP_CUDA_NOT_READY;
	list_unlock(list);
	return crowded;
}

bool gcp_handle_return(struct gcp_handle *handle, bool wait)
{
	struct gcp_handle_list *list = handle->list;
	uint64_t waited = 0;
	int result;

	handle->held = gcp_process_capturing();
	if (!handle->held) {
		if (wait || list_crowded(list))
			waited = context_wait(list);
		if (!handle_reset(handle))
			return false;
	}
	do {
		list_lock(list);
		result = list_keep(list, handle, waited);
		list_unlock(list);
	} while (result == -EAGAIN && (waited = context_wait(list)));
	return result == 0;
}

void gcp_handle_detach(struct gcp_handle *handle)
{
	struct gcp_handle_list *list = handle->list;
	bool shared;

	list_lock(list);
	pthread_mutex_lock(&table_lock);
	shared = handle->users > 0; /* meanwhile */
	if (shared)
		handle->state = HANDLE_USED;
	else
		table_remove(handle);
	pthread_mutex_unlock(&table_lock);
	if (!shared && handle->fence && !list->ending && list->lives == handle->lives)
		gcp_real.cuEventDestroy_v2(handle->fence);
	list_unlock(list);
	atomic_fetch_add(&list->library->counts->destroyed, 1);
	atomic_fetch_sub(&list->library->counts->used, 1);
	if (!shared)
		free(handle);
}

/* --- captures, contexts, forks --------------------------------------------------- */

void gcp_handle_lists_pause(void)
{
	struct gcp_handle_list *list =
	    atomic_load_explicit(&lists, memory_order_acquire);

	for (; list; list = atomic_load_explicit(&list->next, memory_order_acquire)) {
		list_lock(list);
		list_unlock(list);
	}
}

/* Of a list whose context is gone. A thread in the middle of a destroy sees that by
 * `lives`. Under the list's lock. */
static void list_drop(struct gcp_handle_list *list)
{
	struct gcp_handle **at, *handle;

	list->lives++;
	list->oldest = list->youngest = NULL;
	list->free_count = 0;
	list->deferred = 0;
	pthread_mutex_lock(&table_lock);
	for (int slot = 0; slot < TABLE_SLOTS; slot++) {
		for (at = &table[slot]; (handle = *at);) {
			if (handle->list != list || handle->state == HANDLE_RETURNING) {
				at = &handle->table_next;
				continue;
			}
			*at = handle->table_next;
			atomic_fetch_sub(&list->library->counts->used, handle->users);
			free(handle);
		}
	}
	pthread_mutex_unlock(&table_lock);
	atomic_store(&list->generation, 0);
}

void gcp_handle_lists_tell(CUcontext ctx, int ending, bool gone)
{
	struct gcp_handle_list *list =
	    atomic_load_explicit(&lists, memory_order_acquire);

	for (; list; list = atomic_load_explicit(&list->next, memory_order_acquire)) {
		list_lock(list);
		if (list->ctx == ctx || list->home == ctx) {
			list->ending += ending;
			if (list->ending < 0)
				list->ending = 0; /* made in between */
			if (gone)
				list_drop(list);
		}
		list_unlock(list);
	}
}

void gcp_handle_lists_after_fork(void)
{
	pthread_mutex_init(&table_lock, NULL);
}
