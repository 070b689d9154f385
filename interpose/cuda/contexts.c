/* SPDX-License-Identifier: MIT */
/*
 * contexts.c - see contexts.h. The list is guarded by gcp_contexts_lock, which is
 * taken with locks of pool/ held (gcp_contexts_for_each) and therefore never held
 * while calling into pool/ or capture/.
 *
 * The real calls that may end a context run without the lock, for they may wait for
 * work that itself waits for a thread of the program. As long as one is under way
 * no barrier is set, neither in a context that may be gone nor without one that
 * stays. Calls that retain, release or reset the primary context of one device
 * exclude each other, so that what is asked after one is about its outcome, and
 * so that our own retain and release cannot be the one that ends it unnoticed. No
 * thread is cancelled in one. The driver may call a tool within them, which may call
 * them again: a thread does not wait for itself to be done with a primary context.
 *
 * Rules of contexts:
 *  K1 what belongs to a context goes with it
 *  K2 no barrier is set while a context may be ending
 *  K3 a context with the handle of one that has ended is a new one
 *  K4 no thread uses a context that is being destroyed
 *  K5 a pool whose context may be ending serves no call
 *  K6 the current context of a thread stays as it was
 *  K7 no thread ends by pthread_cancel while it keeps a context from ending
 *  K8 in the child of a fork every call passes through
 */
#include <stdlib.h>
#include <string.h>

#include "../base/process.h"
#include "contexts.h"
#include "ctx_scope.h"
#include "resolve.h"
#include "third_party_dma.h"

enum { CONTEXTS_MAX = 1024, DEVICES_MAX = 256 };

struct gcp_context {
	CUcontext handle;
	enum gcp_context_kind kind;
	int device;       /* GCP_CONTEXT_PRIMARY: of which device; else -1 */
	bool unjoined;    /* found at a barrier; older barriers still to be set */
	int ending;       /* threads whose real call may end it, or has just ended it */
	CUstream release; /* NULL: not made yet */
	CUevent *spares;  /* events of it that nothing uses */
	size_t spare_count;
};

_Atomic(uint64_t) gcp_contexts_generation = 1;

struct gcp_mutex gcp_contexts_lock = GCP_MUTEX(GCP_RANK_CONTEXTS);
/* Written before any context is seen. */
static const struct gcp_context_observer *observer;
static struct gcp_context contexts[CONTEXTS_MAX];
_Atomic int gcp_context_count;
static int device_count; /* 0: unknown yet */
static atomic_bool any_unjoined;
static pthread_cond_t contexts_moved = PTHREAD_COND_INITIALIZER;
static struct {
	bool moving; /* a thread retains or releases it: */
	pthread_t thread;
	bool anew; /* within that call it has ended, and was made again */
} primaries[DEVICES_MAX];
/* The program's references to it that were seen; by the thread that moves it. */
static uint32_t primary_retains[DEVICES_MAX];
static int ending_count; /* threads whose real call may end a context */

/* The context that this thread was last seen with, and when. */
static __thread struct {
	CUcontext ctx;
	uint64_t generation;
} last_seen __attribute__((tls_model("initial-exec")));

void gcp_contexts_observe(const struct gcp_context_observer *one)
{
	assert(gcp_context_count == 0); /* none has joined without it */
	assert(one->joined && one->ending && one->gone && one->stays);
	observer = one;
}

static void contexts_changed(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	atomic_fetch_add_explicit(&gcp_contexts_generation, 1, memory_order_release);
}

static struct gcp_context *contexts_find(CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	for (int i = 0; i < gcp_context_count; i++)
		if (contexts[i].handle == ctx)
			return &contexts[i];
	return NULL;
}

static struct gcp_context *contexts_add(CUcontext ctx, enum gcp_context_kind kind)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct gcp_context *context;

	assert(ctx && !contexts_find(ctx));
	assert(gcp_context_count <= CONTEXTS_MAX);
	if (gcp_context_count == CONTEXTS_MAX) {
		gcp_third_party_dma_told(); /* it stands behind no barrier */
		return NULL;
	}
	context = &contexts[gcp_context_count++];
	*context = (struct gcp_context){.handle = ctx, .kind = kind, .device = -1};
	contexts_changed();
	return context;
}

/* Until a thread that moves or ends a context is done. */
static void contexts_wait(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	pthread_cond_wait(&contexts_moved, &gcp_contexts_lock.mutex);
}

/* --- joining the barriers ----------------------------------------------------- */

/* One of those that gcp_contexts_for_each found, when pool/ held its locks; NULL: no
 * more. `joined` has been put behind the barriers meanwhile: not before that may
 * another thread that works in it go on. */
static CUcontext contexts_unjoined(CUcontext joined)
{
	CUcontext next = NULL;

	GCP_LOCKED(&gcp_contexts_lock);
	for (int i = 0; i < gcp_context_count; i++) {
		contexts[i].unjoined &= contexts[i].handle != joined;
		if (contexts[i].unjoined && !next)
			next = contexts[i].handle;
	}
	assert(!next || next != joined);
	atomic_store(&any_unjoined, next != NULL);
	return next;
}

static void contexts_join_late(void)
{
	CUcontext ctx = NULL;

	if (atomic_load_explicit(&any_unjoined, memory_order_acquire))
		while ((ctx = contexts_unjoined(ctx)))
			observer->joined(ctx);
}

void gcp_contexts_seen(CUcontext ctx, enum gcp_context_kind kind)
{
	struct gcp_context *context;
	bool fresh = false;

	if (!ctx || (kind == GCP_CONTEXT_UNKNOWN && last_seen.ctx == ctx &&
		     last_seen.generation == gcp_contexts_now()))
		return;
	gcp_mutex_lock(&gcp_contexts_lock);
	/* The handle of one that is not detached yet: it is a new context's now. */
	while ((context = contexts_find(ctx)) && context->ending &&
	       kind != GCP_CONTEXT_UNKNOWN)
		contexts_wait();
	if (!context) {
		context = contexts_add(ctx, kind);
		fresh = true;
	} else if (kind != GCP_CONTEXT_UNKNOWN && context->kind != kind) {
		/* The handle may be that of a context that went unnoticed. */
		context->kind = kind;
		contexts_changed();
		fresh = true;
	}
	last_seen.ctx = ctx;
	last_seen.generation = gcp_contexts_now();
	gcp_mutex_unlock(&gcp_contexts_lock);
	if (fresh && kind != GCP_CONTEXT_GREEN)
		observer->joined(ctx);
	contexts_join_late();
}

/* --- primary contexts --------------------------------------------------------- */

static bool primary_active(CUdevice device)
{
	unsigned int flags;
	int active = 0;

	return gcp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) ==
		   CUDA_SUCCESS &&
	       active;
}

static struct gcp_context *primary_known(CUdevice device)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	for (int i = 0; i < gcp_context_count; i++)
		if (contexts[i].kind == GCP_CONTEXT_PRIMARY &&
		    contexts[i].device == device)
			return &contexts[i];
	return NULL;
}

static bool primary_moves(CUdevice device)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	return device >= 0 && device < DEVICES_MAX && primaries[device].moving;
}

/* By a call of this thread, within which a tool was called. */
static bool primary_moves_here(CUdevice device)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	return primary_moves(device) &&
	       pthread_equal(primaries[device].thread, pthread_self());
}

/* The active primary context of `device`, put on the list if it was not there:
 * NULL if there is none, or if it is not known because a thread retains or releases
 * it just now. Under the lock and in a gcp_ctx_scope. */
static struct gcp_context *primary_find(CUdevice device)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct gcp_context *context = primary_known(device);
	CUcontext ctx = NULL;

	if (context || primary_moves(device))
		return context;
	if (!primary_active(device) ||
	    gcp_real.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS)
		return NULL;
	gcp_real.cuDevicePrimaryCtxRelease_v2(device);
	context = contexts_find(ctx);
	if (!context) {
		context = contexts_add(ctx, GCP_CONTEXT_PRIMARY);
		if (!context)
			return NULL;
		context->unjoined = true;
		atomic_store(&any_unjoined, true);
	}
	context->kind = GCP_CONTEXT_PRIMARY;
	context->device = device;
	return context;
}

/* --- errors that stay --------------------------------------------------------- */

static atomic_bool any_failed;
/* The context that was current at the last one, and the generation that it made. */
static _Atomic(CUcontext) failed_in;
static _Atomic(uint64_t) failed_at;

/* True for an error that a context keeps until it ends (cuda.h: "this leaves the
 * process in an inconsistent state"). */
static bool error_stays(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case 226: /* CUDA_ERROR_CONTAINED */
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
	case 810: /* CUDA_ERROR_MPS_CLIENT_TERMINATED */
	case 911: /* CUDA_ERROR_EXTERNAL_DEVICE */
		return true;
	default:
		return false;
	}
}

void gcp_contexts_note_error(CUresult result)
{
	CUcontext ctx = NULL;

	assert(result != CUDA_SUCCESS);
	if (!error_stays(result))
		return;
	(void)gcp_real.cuCtxGetCurrent(&ctx);
	if (atomic_load(&failed_in) == ctx &&
	    atomic_load(&failed_at) == gcp_contexts_now())
		return; /* each thread looks again already */
	atomic_store(&any_failed, true);
	atomic_store(&failed_in, ctx);
	atomic_store(&failed_at, atomic_fetch_add(&gcp_contexts_generation, 1) + 1);
}

/* Whether the current context has such an error: it may have been another one's that
 * was seen, and it may have ended. In a gcp_ctx_scope. */
static bool context_is_failed(void)
{
	size_t available, total;

	return atomic_load(&any_failed) &&
	       error_stays(gcp_real.cuMemGetInfo_v2(&available, &total));
}

/* --- whose pool --------------------------------------------------------------- */

/* Under the lock and in a gcp_ctx_scope; `ctx` is current. */
static bool contexts_classify(CUcontext ctx, CUcontext *ret_home, CUdevice *ret_device)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	struct gcp_context *context, *primary = NULL;

	assert(ctx && observer);
	if (gcp_real.cuCtxGetDevice(ret_device) != CUDA_SUCCESS)
		return false;
	context = contexts_find(ctx);
	if (context && context->kind == GCP_CONTEXT_OWN) {
		*ret_home = ctx;
		return true;
	}
	while (!primary_known(*ret_device) && primary_moves(*ret_device) &&
	       !primary_moves_here(*ret_device))
		contexts_wait();
	primary = primary_find(*ret_device);
	context = contexts_find(ctx);
	/* It may be the one that this thread is just making. */
	if (!context || (!primary && primary_moves(*ret_device)))
		return false;
	if (context != primary && context->kind != GCP_CONTEXT_GREEN)
		return false; /* made behind the library's back */
	assert(!primary || primary->kind == GCP_CONTEXT_PRIMARY); /* K5 */
	*ret_home = primary ? primary->handle : NULL;
	return primary != NULL;
}

bool gcp_contexts_home(CUcontext ctx, CUcontext *ret_home, int *ret_device)
{
	struct gcp_ctx_scope scope;
	CUdevice device = -1;
	bool found;

	gcp_contexts_seen(ctx, GCP_CONTEXT_UNKNOWN);
	if (gcp_ctx_scope_begin(&scope, ctx) != CUDA_SUCCESS)
		return false;
	gcp_mutex_lock(&gcp_contexts_lock);
	found = contexts_classify(ctx, ret_home, &device);
	gcp_mutex_unlock(&gcp_contexts_lock);
	found = found && !context_is_failed();
	gcp_ctx_scope_end(&scope);
	contexts_join_late();
	*ret_device = device;
	return found;
}

CUcontext gcp_contexts_home_of(CUcontext ctx)
{
	CUcontext home = NULL;
	int device;

	return gcp_contexts_home(ctx, &home, &device) ? home : NULL;
}

/* --- barriers ----------------------------------------------------------------- */

/* False: one of them cannot be asked for now. */
static bool contexts_find_primaries(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	if (device_count == 0)
		device_count = gcp_device_count();
	for (int device = 0; device < device_count; device++)
		if (!primary_find(device) && primary_moves(device))
			return false;
	return true;
}

void gcp_contexts_unlock(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	gcp_mutex_unlock(&gcp_contexts_lock);
}

bool gcp_context_is_ending(CUcontext ctx)
{
	assert(ending_count >= 0);
	const struct gcp_context *context = contexts_find(ctx);

	return context ? context->ending > 0 : ending_count > 0;
}

bool gcp_contexts_hold(void)
{
	gcp_mutex_lock(&gcp_contexts_lock);
	if (ending_count == 0)
		return true;
	gcp_mutex_unlock(&gcp_contexts_lock);
	return false;
}

/* Under the lock. */
static int contexts_for_each(int (*each)(void *arg, CUcontext ctx), void *arg)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	assert(ending_count == 0); /* K2 */
	int result = CUDA_SUCCESS, reached = 0;

	for (int i = 0; i < gcp_context_count && result == CUDA_SUCCESS; i++) {
		if (contexts[i].kind == GCP_CONTEXT_GREEN)
			continue; /* what is done to the primary covers it */
		result = each(arg, contexts[i].handle);
		reached += result == CUDA_SUCCESS;
		if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
			result = CUDA_SUCCESS; /* its end was not seen */
	}
	/* If all were gone it would rather be the thread's current one, of which CUDA
	 * says so whatever it is asked. */
	return result == CUDA_SUCCESS && !reached && gcp_context_count > 0
		   ? CUDA_ERROR_CONTEXT_IS_DESTROYED
		   : result;
}

/* As far as is known: there may be primary ones that no hook has seen. */
static bool contexts_are_several(void)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	int count = 0;

	for (int i = 0; i < gcp_context_count; i++)
		count += contexts[i].kind != GCP_CONTEXT_GREEN;
	return count > 1;
}

int gcp_contexts_for_each(int (*each)(void *arg, CUcontext ctx), void *arg, bool alone)
{
	bool known;

	GCP_LOCKED(&gcp_contexts_lock);
	if (alone && contexts_are_several())
		return -EXDEV;
	if (ending_count > 0)
		return -EBUSY;
	known = contexts_find_primaries();
	if (alone && (!known || contexts_are_several()))
		return -EXDEV;
	return known ? contexts_for_each(each, arg) : -EBUSY;
}

/* --- the stream in which memory goes back ------------------------------------ */

/* That of the context, or `made` if it has none yet. */
static CUstream release_note(CUcontext ctx, CUstream made)
{
	GCP_LOCKED(&gcp_contexts_lock);
	struct gcp_context *context = contexts_find(ctx);

	if (context && !context->release)
		context->release = made;
	return context ? context->release : NULL;
}

/* Made without the lock, under which nothing may wait. */
CUstream gcp_contexts_release_stream(CUcontext ctx)
{
	CUstream made = NULL, stream = release_note(ctx, NULL);

	assert(ctx);
	gcp_assert_driver_call();
	if (stream ||
	    gcp_real.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return stream;
	assert(made); /* 0 would be the program's own */
	stream = release_note(ctx, made);
	if (stream != made)
		gcp_real.cuStreamDestroy_v2(made);
	return stream;
}

/* --- events ---------------------------------------------------------------------- */

CUevent gcp_context_event_spare(CUcontext ctx)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	assert(ctx);
	struct gcp_context *context = contexts_find(ctx);

	return context && context->spare_count > 0
		   ? context->spares[--context->spare_count]
		   : NULL;
}

/* Made without the lock: that can take until the launch queue has room. */
CUresult gcp_context_event_take(CUcontext ctx, CUevent *ret_event)
{
	gcp_assert_driver_call();
	assert(ctx);
	gcp_mutex_lock(&gcp_contexts_lock);
	*ret_event = gcp_context_event_spare(ctx);
	gcp_mutex_unlock(&gcp_contexts_lock);
	return *ret_event ? CUDA_SUCCESS : gcp_event_create(ctx, ret_event);
}

/* Without memory for it, it stays unused. */
void gcp_context_event_put(CUcontext ctx, CUevent event)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	GCP_KEEP_ERRNO;
	struct gcp_context *context = contexts_find(ctx);
	CUevent *spares = NULL;

	assert(event);
	if (context)
		spares = realloc(context->spares,
				 (context->spare_count + 1) * sizeof(event));
	if (!spares)
		return;
	spares[context->spare_count++] = event;
	context->spares = spares;
}

/* --- the end of a context ------------------------------------------------------ */

static void contexts_remove(struct gcp_context *context)
{
	gcp_assert_held(GCP_RANK_CONTEXTS);
	free(context->spares);
	assert(context >= contexts && context < contexts + gcp_context_count);
	*context = contexts[--gcp_context_count];
	contexts_changed();
}

/* A real call that may end `ctx` (NULL: one that is not known) begins: from here on no
 * other thread meets handles that may be gone. */
static void ending_begin(CUcontext ctx)
{
	struct gcp_context *context;

	if (ctx)
		observer->ending(ctx);
	GCP_LOCKED(&gcp_contexts_lock);
	context = contexts_find(ctx);
	assert(ending_count >= 0 && (!context || context->ending >= 0));
	if (context)
		context->ending++;
	ending_count++;
}

/* The real call returned. The context is released everywhere before its handle
 * can be taken for a new one's. */
static void ending_done(CUcontext ctx, bool gone)
{
	struct gcp_context *context;

	if (gone)
		gcp_given(); /* its memory */
	if (gone || !ctx)
		observer->gone(ctx);
	gcp_mutex_lock(&gcp_contexts_lock);
	context = contexts_find(ctx);
	if (context && gone)
		contexts_remove(context);
	else if (context && context->ending > 0)
		context->ending--;
	assert(ending_count > 0);
	ending_count--;
	pthread_cond_broadcast(&contexts_moved);
	gcp_mutex_unlock(&gcp_contexts_lock);
	if (ctx && !gone)
		observer->stays(ctx);
}

/* After cuCtxDetach, for which the context has to be current. The last one takes it
 * from the thread's stack; where it is there once more, each call says that it is gone.
 */
static bool is_detached(CUcontext ctx)
{
	CUcontext current = NULL;
	size_t available, total;

	(void)gcp_real.cuCtxGetCurrent(&current);
	return current != ctx || gcp_real.cuMemGetInfo_v2(&available, &total) ==
				     CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult gcp_contexts_destroy(CUresult (*real)(CUcontext), CUcontext ctx)
{
	GCP_CANCEL_LATER;

	ending_begin(ctx);
	CUresult result = real(ctx);
	ending_done(ctx, result == CUDA_SUCCESS &&
			     (real != gcp_real.cuCtxDetach || is_detached(ctx)));
	return result;
}

/* --- retain, release and reset of primary contexts ------------------------------- */

/* False: a call of this thread has it. */
static bool primary_claim(CUdevice device)
{
	bool here;

	GCP_LOCKED(&gcp_contexts_lock);
	here = primary_moves_here(device);
	while (!here && primaries[device].moving)
		contexts_wait();
	if (!here) {
		assert(!primaries[device].moving);
		primaries[device].moving = true;
		primaries[device].thread = pthread_self();
		primaries[device].anew = false;
	}
	return !here;
}

static void primary_unclaim(CUdevice device)
{
	GCP_LOCKED(&gcp_contexts_lock);
	assert(primary_moves_here(device));
	primaries[device].moving = false;
	pthread_cond_broadcast(&contexts_moved);
}

/* Within a call of this thread that moves it, that one tells of it when it returns. */
CUresult gcp_contexts_retain_primary(CUcontext *ret_ctx, CUdevice device)
{
	struct gcp_context *context;

	if (device < 0 || device >= DEVICES_MAX)
		return gcp_real.cuDevicePrimaryCtxRetain(ret_ctx, device);
	GCP_CANCEL_LATER;
	bool claimed = primary_claim(device),
	     anew = !claimed && !primary_active(device);
	CUresult result = gcp_real.cuDevicePrimaryCtxRetain(ret_ctx, device);

	if (result == CUDA_SUCCESS && claimed)
		gcp_contexts_seen(*ret_ctx, GCP_CONTEXT_PRIMARY);
	gcp_mutex_lock(&gcp_contexts_lock);
	assert(primary_moves_here(device));
	if (result == CUDA_SUCCESS) {
		primary_retains[device]++;
		primaries[device].anew |= anew;
		context = claimed ? contexts_find(*ret_ctx) : NULL;
		if (context)
			context->device = device;
		if (anew)
			contexts_changed();
	}
	gcp_mutex_unlock(&gcp_contexts_lock);
	if (claimed)
		primary_unclaim(device);
	return result;
}

CUcontext gcp_contexts_primary(CUdevice device)
{
	struct gcp_context *context;

	GCP_LOCKED(&gcp_contexts_lock);
	context = primary_known(device);
	assert(device >= 0 && (!context || context->handle));
	return context ? context->handle : NULL;
}

/* How many references there are the driver does not tell. Where the program has more
 * than it gives back nothing is waited for, as on plain CUDA: a thread that uses the
 * context may be waiting for work that waits for this thread. The context ends all the
 * same if code that the library does not see has released it, too. */
CUresult gcp_contexts_end_primary(CUresult (*real)(CUdevice),
				  struct CUgreenCtx_st *green, CUdevice device,
				  uint32_t references)
{
	CUresult result;

	if (!green && (device < 0 || device >= DEVICES_MAX))
		return real(device); /* refuses it */
	GCP_CANCEL_LATER;
	bool claimed = primary_claim(device), ended;
	uint32_t *retains = &primary_retains[device];
	bool last = *retains <= references;
	CUcontext ctx = gcp_contexts_primary(device);

	assert(primaries[device].moving); /* no other thread does */
	if (last)
		ending_begin(ctx);
	result = green ? gcp_real.cuGreenCtxDestroy(green) : real(device);
	/* Not whether one is there now: a tool may have made that. */
	ended = result == CUDA_SUCCESS &&
		(primaries[device].anew || !primary_active(device));
	if (ended && !last) {
		*retains = 0;
		ending_begin(ctx);
	}
	if (ended || last)
		ending_done(ctx, ctx && ended);
	if (result == CUDA_SUCCESS)
		*retains -= references < *retains ? references : *retains;
	if (claimed)
		primary_unclaim(device);
	return result;
}

/* A green context keeps its primary one active, also when nothing else retains that
 * any more: the last one may take it along. (Measured, driver 580.) */
CUresult gcp_contexts_destroy_green(struct CUgreenCtx_st *green, CUcontext ctx,
				    CUdevice device)
{
	GCP_CANCEL_LATER;

	assert(green && ctx);
	assert(device >= 0 && device < DEVICES_MAX);
	ending_begin(ctx);
	CUresult result = gcp_contexts_end_primary(NULL, green, device, 0);
	ending_done(ctx, result == CUDA_SUCCESS);
	return result;
}

void gcp_contexts_after_fork(void)
{
	gcp_mutex_init(&gcp_contexts_lock, GCP_RANK_CONTEXTS);
	pthread_cond_init(&contexts_moved, NULL);
	memset(primaries, 0, sizeof(primaries));
	ending_count = 0;
}
