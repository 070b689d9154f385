/* SPDX-License-Identifier: MIT */
/*
 * frameworks.c - the public functions of gcpool.h, section 6: memory for frameworks
 * that choose this library, in the order of a stream that they name.
 *
 * Preloaded, the hooks see all work and all captures: memory comes as stream-ordered
 * memory does (hooks_async.c), and while the stream captures as that of cudaMalloc
 * does.
 *
 * Only loaded (GCP_RUN_LOADED) the library sees nothing. A block is used again in the
 * stream that it was freed in, or when the event is done that each free records there
 * (stream_fences.c). While the stream captures there is no memory, and a free waits for
 * the next call that names the stream outside of a capture.
 */
#define GCPOOL_API __attribute__((visibility("default")))
#include "../gcpool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "../cuda/ctx_scope.h"
#include "../base/elfwalk.h"
#include "hooks.h"
#include "hooks_async.h"
#include "hooks_memory.h"
#include "../base/log.h"
#include "../observe/observe.h"
#include "../process/calling_thread.h"
#include "../process/process_life.h"
#include "../observe/shortage.h"
#include "../cuda/stream_fences.h"
#include "../cuda/streams.h"

enum { DEVICES_MAX = 64 };

/* Larger requests cannot succeed. */
#define GCP_BYTES_MAX ((size_t)1 << 46)

/* --- contexts -------------------------------------------------------------------- */

/* Primary contexts, which stay retained: once more whenever what is known of contexts
 * has changed (`generation`), for a reset may have taken the reference away. */
static struct {
	_Atomic(CUcontext) ctx;
	_Atomic uint64_t generation;
} primaries[DEVICES_MAX];

static CUresult primary_retain(int device, CUcontext *ret_ctx)
{
	CUresult result;

	if (gcp_process_pooling())
		result = gcp_contexts_retain_primary(ret_ctx, device);
	else if (gcp_real.cuDevicePrimaryCtxRetain)
		result = gcp_real.cuDevicePrimaryCtxRetain(ret_ctx, device);
	else
		result = CUDA_ERROR_NOT_SUPPORTED;
	return result;
}

static CUresult primary_of(int device, CUcontext *ret_ctx)
{
	uint64_t generation =
	    atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
	CUresult result;

	if (device < 0 || device >= DEVICES_MAX)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_ctx = atomic_load(&primaries[device].ctx);
	if (*ret_ctx && atomic_load(&primaries[device].generation) == generation)
		return CUDA_SUCCESS;
	result = primary_retain(device, ret_ctx);
	if (result != CUDA_SUCCESS)
		return result;
	atomic_store(&primaries[device].ctx, *ret_ctx);
	atomic_store(&primaries[device].generation,
		     atomic_load(&gcp_contexts_generation));
	return CUDA_SUCCESS;
}

/* Makes `ctx` current; unlike a gcp_ctx_scope it leaves the capture mode alone. */
struct current {
	bool pushed;
};

static CUresult current_begin(struct current *current, CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult result;

	*current = (struct current){0};
	result = gcp_real.cuCtxGetCurrent(&now);
	if (result != CUDA_SUCCESS || now == ctx)
		return result;
	result = gcp_real.cuCtxPushCurrent_v2(ctx);
	current->pushed = result == CUDA_SUCCESS;
	return result;
}

static void current_end(const struct current *current)
{
	CUcontext popped;

	if (current->pushed)
		gcp_real.cuCtxPopCurrent_v2(&popped);
}

/* --- blocks that are used in other streams, too ---------------------------------- */

/* gcpool_record_stream: guarded by marks_lock. One for each block and stream, however
 * often the stream is named: programs name it with each use. */
struct mark {
	CUdeviceptr ptr;
	CUstream stream;
	struct mark *next;
};

enum { MARK_BITS = 10 };
static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark *marks[1 << MARK_BITS]; /* by block */
static _Atomic uint32_t mark_count;

static struct mark **marks_of(CUdeviceptr ptr)
{
	return &marks[(uint64_t)ptr * 0x9e3779b97f4a7c15u >> (64 - MARK_BITS)];
}

/* Takes all of `list` on, unless they are there. marks_lock is held. */
static void marks_add(struct mark *list)
{
	struct mark *next, *other;

	for (; list; list = next) {
		next = list->next;
		other = *marks_of(list->ptr);
		while (other &&
		       (other->ptr != list->ptr || other->stream != list->stream))
			other = other->next;
		if (other) {
			free(list);
			continue;
		}
		list->next = *marks_of(list->ptr);
		*marks_of(list->ptr) = list;
		atomic_fetch_add(&mark_count, 1);
	}
}

static void marks_put(struct mark *list)
{
	pthread_mutex_lock(&marks_lock);
	marks_add(list);
	pthread_mutex_unlock(&marks_lock);
}

static CUresult mark_add(CUdeviceptr ptr, CUstream stream)
{
	struct mark *mark = malloc(sizeof(*mark));

	if (!mark)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*mark = (struct mark){ptr, stream, NULL};
	marks_put(mark);
	return CUDA_SUCCESS;
}

/* Those of the block. Another thread may have its memory as soon as it is free, so they
 * are taken before, and put back if it stays the program's (marks_put). */
static struct mark *marks_take(CUdeviceptr ptr)
{
	struct mark **link = marks_of(ptr), *list = NULL, *mark;

	if (atomic_load(&mark_count) == 0)
		return NULL;
	pthread_mutex_lock(&marks_lock);
	while ((mark = *link)) {
		if (mark->ptr != ptr) {
			link = &mark->next;
			continue;
		}
		*link = mark->next;
		mark->next = list;
		list = mark;
		atomic_fetch_sub(&mark_count, 1);
	}
	pthread_mutex_unlock(&marks_lock);
	return list;
}

static void marks_drop(struct mark *list)
{
	struct mark *next;

	for (; list; list = next) {
		next = list->next;
		free(list);
	}
}

/* --- only loaded ----------------------------------------------------------------- */

/* Frees that wait for the end of a capture: guarded by deferred_lock. */
struct deferred {
	CUdeviceptr ptr;
	uint64_t id;   /* of the stream that captures; 0: it may be any, the memory is
			* lost */
	bool recorded; /* the block was used in other streams, too */
	struct deferred *next;
};

static pthread_mutex_t deferred_lock = PTHREAD_MUTEX_INITIALIZER;
static struct deferred *deferred;
static _Atomic uint32_t deferred_count;

/* A stream as it is named by one call, whose context is current. */
struct named {
	CUstream stream;
	uint64_t id;
	CUcontext ctx;
	bool captures;
};

/* Whether the stream captures; CUDA refuses to say so of the legacy stream while one
 * that is tied to it does. */
static CUresult named_captures(struct named *named)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t capture;
	CUresult result =
	    gcp_real.cuStreamGetCaptureInfo(named->stream, &status, &capture);

	named->captures = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
			  status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
}

/* The ids of streams that were named while they did not capture: cuStreamGetId of one
 * that captures fails, and its capture is lost (driver 580, measured; so of
 * cuStreamGetFlags). By handle and context; a later one may take a place. */
static struct known {
	CUstream stream;
	const void *of; /* the context; of a per-thread stream the thread */
	uint64_t id;
} knowns[1024];
static pthread_mutex_t knowns_lock = PTHREAD_MUTEX_INITIALIZER;

static struct known known_key(CUstream stream, CUcontext home)
{
	return (struct known){
	    stream, stream == CU_STREAM_PER_THREAD ? (void *)&gcp_thread : home, 0};
}

static struct known *known_place(const struct known *key)
{
	uint64_t hash = (uint64_t)(uintptr_t)key->stream * 0x9e3779b97f4a7c15u +
			(uint64_t)(uintptr_t)key->of;

	return &knowns[hash * 0x9e3779b97f4a7c15u >> 54];
}

static void known_note(CUstream stream, CUcontext home, uint64_t id)
{
	struct known key = known_key(stream, home);

	key.id = id;
	pthread_mutex_lock(&knowns_lock);
	*known_place(&key) = key;
	pthread_mutex_unlock(&knowns_lock);
}

/* 0: not known. */
static uint64_t known_id(CUstream stream, CUcontext home)
{
	struct known key = known_key(stream, home);

	pthread_mutex_lock(&knowns_lock);
	const struct known *place = known_place(&key);
	uint64_t id = place->stream == stream && place->of == key.of ? place->id : 0;
	pthread_mutex_unlock(&knowns_lock);
	return id;
}

/* Of a stream that does not capture. */
static CUresult named_ask(struct named *named, CUcontext home)
{
	unsigned long long id = 0;
	CUresult result = gcp_real.cuStreamGetId(named->stream, &id);

	if (result == CUDA_SUCCESS &&
	    (uintptr_t)named->stream > (uintptr_t)CU_STREAM_PER_THREAD)
		result = gcp_real.cuStreamGetCtx(named->stream, &named->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	named->id = id;
	known_note(named->stream, home, id);
	return CUDA_SUCCESS;
}

/* `home` is current, and what special handles mean. An error: CUDA's own. A stream that
 * captures is asked nothing else. */
static CUresult named_find(struct named *named, CUstream stream, CUcontext home)
{
	struct gcp_ctx_scope scope;
	CUresult result = gcp_ctx_scope_begin(&scope, NULL);

	*named = (struct named){.stream = stream, .ctx = home};
	if (result != CUDA_SUCCESS)
		return result;
	result = named_captures(named);
	if (named->captures)
		named->id = known_id(stream, home);
	else if (result == CUDA_SUCCESS)
		result = named_ask(named, home);
	gcp_ctx_scope_end(&scope);
	return result;
}

/* The order in which a block of `home` may be used again; 0: in none. */
static uint64_t named_order(const struct named *named, CUcontext home)
{
	return named->ctx == home ? named->id : 0;
}

/* 1: the block is on the list already. */
static CUresult deferred_add(CUdeviceptr ptr, uint64_t id, bool recorded)
{
	struct deferred *add = malloc(sizeof(*add)), *other;

	if (!add)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&deferred_lock);
	other = deferred;
	while (other && other->ptr != ptr)
		other = other->next;
	if (!other) {
		*add = (struct deferred){ptr, id, recorded, deferred};
		deferred = add;
		atomic_fetch_add(&deferred_count, 1);
	}
	pthread_mutex_unlock(&deferred_lock);
	if (other)
		free(add);
	return other ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool is_deferred(CUdeviceptr ptr)
{
	const struct deferred *item;

	if (atomic_load(&deferred_count) == 0)
		return false;
	pthread_mutex_lock(&deferred_lock);
	item = deferred;
	while (item && item->ptr != ptr)
		item = item->next;
	pthread_mutex_unlock(&deferred_lock);
	return item != NULL;
}

/* Takes one that waits for this stream. The caller frees it. */
static struct deferred *deferred_take(uint64_t id)
{
	struct deferred **link = &deferred, *item;

	pthread_mutex_lock(&deferred_lock);
	while (*link && (*link)->id != id)
		link = &(*link)->next;
	item = *link;
	if (item) {
		*link = item->next;
		atomic_fetch_sub(&deferred_count, 1);
	}
	pthread_mutex_unlock(&deferred_lock);
	return item;
}

/* The events of all streams in which the block was used, until one of them captures:
 * *ret_capturing then. */
static CUresult marks_record(const struct mark *mark, CUcontext home,
			     struct named *ret_capturing)
{
	struct named other;
	CUresult result = CUDA_SUCCESS;

	for (; mark && result == CUDA_SUCCESS; mark = mark->next) {
		result = named_find(&other, mark->stream, home);
		if (other.captures) {
			*ret_capturing = other;
			return CUDA_SUCCESS;
		}
		if (result == CUDA_SUCCESS)
			result =
			    gcp_stream_fences_record(other.ctx, other.stream, other.id);
	}
	return result;
}

/* The events of all streams that the block is used in; then it is free. `named` has
 * its event. */
static CUresult block_free(CUdeviceptr ptr, const struct named *named, CUcontext home,
			   uint64_t order)
{
	struct mark *list = marks_take(ptr);
	struct named capturing = {0};
	CUresult result = marks_record(list, home, &capturing);

	if (result == CUDA_SUCCESS && capturing.captures)
		result = deferred_add(ptr, capturing.id, true);
	if (result != CUDA_SUCCESS || capturing.captures) {
		marks_put(list);
		return result;
	}
	order = list ? 0 : order;
	marks_drop(list);
	return gcp_memory_freed(ptr,
				gcp_observe_free_async(ptr, (struct gcp_free_order){
								.stream = order,
								.handle = named->stream,
							    }));
}

/* Frees what has waited for the end of a capture of this stream. */
static void deferred_free(const struct named *named, CUcontext home)
{
	struct deferred *item;

	if (atomic_load(&deferred_count) == 0 || named->captures)
		return;
	while ((item = deferred_take(named->id))) {
		if (gcp_stream_fences_record(named->ctx, named->stream, named->id) ==
		    CUDA_SUCCESS)
			(void)block_free(item->ptr, named, home,
					 item->recorded ? 0 : named_order(named, home));
		free(item);
	}
}

static CUresult loaded_malloc(CUdeviceptr *ret_ptr, size_t bytes, int device,
			      CUcontext home, CUstream stream)
{
	struct gcp_pool *pool = NULL;
	struct named named;
	gcp_addr addr = 0;
	CUresult result = named_find(&named, stream, home);
	int allocated;

	if (result != CUDA_SUCCESS)
		return result;
	if (named.captures)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	deferred_free(&named, home);
	gcp_thread_watch();
	do /* CUDA has nothing to pass such a call to */
		allocated = gcp_pool_get(gcp_process.pools, home, device, &pool);
	while (allocated == -EBUSY);
	if (allocated != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	gcp_thread_note_gpu(device);
	allocated = gcp_observe_alloc_async(pool, bytes, stream,
					    named.ctx == home ? named.id : 0, &addr);
	if (allocated == 0)
		*ret_ptr = addr;
	else if (allocated == GCP_CUDA_OUT_OF_MEMORY)
		gcp_shortage_say("gcpool_malloc", bytes, GCP_SHORTAGE_POOL);
	return allocated < 0 ? CUDA_ERROR_OUT_OF_MEMORY : (CUresult)allocated;
}

static CUresult loaded_free(CUdeviceptr ptr, CUcontext home, CUstream stream)
{
	struct named named;
	CUresult result = named_find(&named, stream, home);

	if (is_deferred(ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (named.captures)
		return deferred_add(ptr, named.id, false);
	if (result != CUDA_SUCCESS)
		return result;
	deferred_free(&named, home);
	result = gcp_stream_fences_record(named.ctx, stream, named.id);
	if (result != CUDA_SUCCESS)
		return result;
	gcp_thread_watch();
	return block_free(ptr, &named, home, named_order(&named, home));
}

/* --- the functions --------------------------------------------------------------- */

static CUresult malloc_here(CUdeviceptr *ret_ptr, size_t bytes, int device,
			    CUcontext home, CUstream stream)
{
	switch (gcp_process_run_mode()) {
	case GCP_RUN_LOADED:
		return loaded_malloc(ret_ptr, bytes, device, home, stream);
	case GCP_RUN_POOL:
		return gcp_async_alloc_named(ret_ptr, bytes, stream);
	default:
		return gcp_memory_pass_alloc(ret_ptr, bytes);
	}
}

static int named_malloc(void **ptr, size_t bytes, int device, void *stream)
{
	struct current current;
	CUcontext home = NULL;
	CUdeviceptr address = 0;
	CUresult result;

	if (!ptr)
		return CUDA_ERROR_INVALID_VALUE;
	*ptr = NULL;
	if (!bytes)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	(void)gcp_process_started_mode();
	result = primary_of(device, &home);
	if (result == CUDA_SUCCESS && bytes > GCP_BYTES_MAX)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		result = current_begin(&current, home);
	if (result != CUDA_SUCCESS)
		return (int)result;
	result = malloc_here(&address, bytes, device, home, stream);
	current_end(&current);
	*ptr = (void *)(uintptr_t)address;
	return (int)result;
}

static CUresult free_here(CUdeviceptr ptr, CUcontext home, CUstream stream)
{
	struct current current;
	CUresult result = current_begin(&current, home);
	struct mark *list;

	if (result != CUDA_SUCCESS)
		return result;
	if (gcp_process_pooling()) {
		list = marks_take(ptr);
		result = gcp_async_free_named(ptr, stream, home, list != NULL);
		if (result == CUDA_SUCCESS)
			marks_drop(list);
		else
			marks_put(list);
	} else {
		result = loaded_free(ptr, home, stream);
	}
	current_end(&current);
	return result;
}

static int named_free(void *p, void *stream)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	void *home = NULL;
	int known = -ENOENT;

	if (!p)
		return CUDA_SUCCESS;
	if (!gcp_resolve())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (gcp_process_has_pools())
		known = gcp_pools_owner(gcp_process.pools, ptr, &home);
	if (known == 0)
		return (int)free_here(ptr, home, stream);
	if (known == -ENOENT)
		return (int)gcp_memory_pass_free(ptr);
	gcp_observe_free_again(ptr);
	return CUDA_ERROR_INVALID_VALUE;
}

/* What observes is told where the call came from. */
#define GCP_OBSERVE_CALLER()                                                           \
	do {                                                                           \
		if (gcp_observers)                                                     \
			gcp_observe_enter((uintptr_t)__builtin_return_address(0),      \
					  gcp_frame_register());                       \
	} while (0)

int gcpool_malloc(void **ptr, size_t bytes, int device, void *stream)
{
	int saved = errno, result;

	GCP_OBSERVE_CALLER();
	result = named_malloc(ptr, bytes, device, stream);
	errno = saved;
	return result;
}

int gcpool_free(void *p, void *stream)
{
	int saved = errno, result;

	GCP_OBSERVE_CALLER();
	result = named_free(p, stream);
	errno = saved;
	return result;
}

/* What is known of it when it captures at the free. */
static CUresult stream_note(CUcontext home, CUstream stream)
{
	struct current current;
	struct named named;
	CUresult result = current_begin(&current, home);

	if (result != CUDA_SUCCESS)
		return result;
	result = named_find(&named, stream, home);
	current_end(&current);
	return named.captures ? CUDA_SUCCESS : result;
}

int gcpool_record_stream(void *p, void *stream)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
	CUresult result = CUDA_SUCCESS;
	void *home = NULL;
	int saved = errno;

	if (!p || !gcp_process_has_pools())
		return CUDA_SUCCESS;
	if (gcp_pools_owner(gcp_process.pools, ptr, &home) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gcp_process_pooling())
		result = stream_note(home, stream);
	if (result == CUDA_SUCCESS)
		result = mark_add(ptr, stream);
	errno = saved;
	return (int)result;
}

/* --- PyTorch's form -------------------------------------------------------------- */

/* PyTorch takes what comes for memory: a failure has to be an exception of C++, which
 * becomes one of Python. No lock is held and nothing is left to do here. */
static void failure_throw(void)
{
	void (*throw_bad_alloc)(void) = NULL;
	struct gcp_elf elf;

	if (gcp_elf_find("libstdc++.so.6", &elf))
		*(void **)&throw_bad_alloc =
		    gcp_elf_symbol(&elf, "_ZSt17__throw_bad_allocv");
	if (throw_bad_alloc)
		throw_bad_alloc();
}

void *gcpool_torch_malloc(ptrdiff_t bytes, int device, void *stream)
{
	void *p = NULL;
	int result = CUDA_ERROR_INVALID_VALUE, saved = errno;

	GCP_OBSERVE_CALLER();
	if (bytes >= 0)
		result = named_malloc(&p, (size_t)bytes, device, stream);
	errno = saved;
	if (result != CUDA_SUCCESS) {
		gcp_log(GCP_LOG_WARNING,
			"no %td bytes on device %d for PyTorch (error %d)", bytes,
			device, result);
		failure_throw();
	}
	return p;
}

void gcpool_torch_free(void *p, ptrdiff_t bytes, int device, void *stream)
{
	int result, saved = errno;

	GCP_OBSERVE_CALLER();
	result = named_free(p, stream);
	errno = saved;
	(void)bytes;
	if (result != CUDA_SUCCESS)
		gcp_log(GCP_LOG_WARNING,
			"%p of device %d is not freed for PyTorch (error %d)", p,
			device, result);
}

void gcpool_torch_record_stream(void *p, void *stream)
{
	int result = gcpool_record_stream(p, stream);

	if (result != CUDA_SUCCESS)
		gcp_log(GCP_LOG_WARNING,
			"the use of %p in stream %p is not noted "
			"(error %d)",
			p, stream, result);
}
