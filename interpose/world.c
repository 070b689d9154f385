/*
 * world.c - see world.h.
 *
 * A context can be destroyed by one thread while another asks for a fence of which it
 * holds a part, because pinned memory is everybody's. An event of a destroyed context
 * must not be touched, and the real destroy may take long: so contexts.c says before
 * it calls it, and from then on these parts are pending, and says afterwards how it
 * went. world_lock is held over queries of events, never over a wait, and never while
 * a context is being destroyed.
 *
 * Locks: pool/'s fence_lock and contexts_lock come before world_lock.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "contexts.h"
#include "driver.h"
#include "process.h"
#include "resolve.h"
#include "world.h"

enum { ENDING_MAX = 16 };

struct part {
	CUcontext ctx;
	CUevent event;
	bool recorded; /* in the latest record; else it counts as done */
};

struct world {
	struct part *parts;
	int count, capacity;
	struct world *next; /* all that there are; world_lock */
};

static pthread_mutex_t world_lock = PTHREAD_MUTEX_INITIALIZER;
static struct world *worlds;
static CUcontext ending[ENDING_MAX]; /* contexts; NULL: a free slot */
static int ending_unknown;           /* contexts for which there was no slot */

int gcp_world_create(void **ret_world)
{
	int saved = errno;
	struct world *world = calloc(1, sizeof(*world));

	errno = saved;
	if (!world)
		return -ENOMEM;
	pthread_mutex_lock(&world_lock);
	world->next = worlds;
	worlds = world;
	pthread_mutex_unlock(&world_lock);
	*ret_world = world;
	return 0;
}

/* The library keeps its fences for good; nobody calls this but a table that is
 * complete. */
void gcp_world_destroy(void *world)
{
	(void)world;
}

/* --- recording ---------------------------------------------------------------- */

static struct part *part_add(struct world *world, CUcontext ctx)
{
	int saved = errno;
	struct part *parts = world->parts;

	if (world->count == world->capacity) {
		int capacity = world->capacity ? 2 * world->capacity : 2;

		parts = realloc(parts, (size_t)capacity * sizeof(*parts));
		errno = saved;
		if (!parts)
			return NULL;
		world->parts = parts;
		world->capacity = capacity;
	}
	parts[world->count] = (struct part){.ctx = ctx};
	return &parts[world->count++];
}

static struct part *part_find(struct world *world, CUcontext ctx)
{
	for (int i = 0; i < world->count; i++)
		if (world->parts[i].ctx == ctx)
			return &world->parts[i];
	return NULL;
}

/* An event belongs to the context that is current when it is made. */
static CUresult event_create(CUcontext ctx, CUevent *ret_event)
{
	struct gcp_visit visit;
	CUresult result = gcp_visit_begin(&visit, ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_real.cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
	gcp_visit_end(&visit);
	return result;
}

static CUresult part_record(struct part *part)
{
	CUresult result = CUDA_SUCCESS;

	if (!part->event)
		result = event_create(part->ctx, &part->event);
	if (result == CUDA_SUCCESS)
		result = gcp_real.cuCtxRecordEvent(part->ctx, part->event);
	part->recorded = result == CUDA_SUCCESS;
	return result;
}

/* Under contexts_lock, so that no context is being destroyed now; and the world is
 * the caller's alone, but for the end of a context. */
static int record_one(void *arg, CUcontext ctx)
{
	struct world *world = arg;
	struct part *part;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&world_lock);
	part = part_find(world, ctx);
	if (!part)
		part = part_add(world, ctx);
	if (part)
		result = part_record(part);
	/* The event may be that of a context which went unnoticed. */
	if (part && (result == CUDA_ERROR_INVALID_HANDLE ||
		     result == CUDA_ERROR_INVALID_VALUE)) {
		part->event = NULL;
		result = part_record(part);
	}
	pthread_mutex_unlock(&world_lock);
	return part ? (int)result : -ENOMEM;
}

int gcp_world_record(void *handle)
{
	struct world *world = handle;
	int saved = errno, result;

	pthread_mutex_lock(&world_lock);
	for (int i = 0; i < world->count; i++)
		world->parts[i].recorded = false;
	pthread_mutex_unlock(&world_lock);
	result = gcp_contexts_each(record_one, world);
	/* No context was reached: it says nothing about any of them. */
	if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	    (result == 0 && gcp_contexts_overflown()))
		result = -ENOMEM;
	errno = saved;
	return result;
}

/* --- asking -------------------------------------------------------------------- */

static bool is_ending(CUcontext ctx)
{
	for (int i = 0; i < ENDING_MAX; i++)
		if (ending[i] == ctx)
			return true;
	return ending_unknown > 0;
}

/* A thread that frees need not have a context. */
static CUresult part_query(const struct part *part)
{
	CUresult result = gcp_real.cuEventQuery(part->event);
	struct gcp_visit visit;

	if (result != CUDA_ERROR_INVALID_CONTEXT)
		return result;
	result = gcp_visit_begin(&visit, part->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	result = gcp_real.cuEventQuery(part->event);
	gcp_visit_end(&visit);
	return result;
}

/* The parts in `ctx` (NULL: all). Under world_lock. */
static CUresult parts_query(const struct world *world, CUcontext ctx)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < world->count && result == CUDA_SUCCESS; i++) {
		const struct part *part = &world->parts[i];

		if (!part->recorded || (ctx && part->ctx != ctx))
			continue;
		result = is_ending(part->ctx) ? CUDA_ERROR_NOT_READY : part_query(part);
	}
	return result;
}

/* While a capture is under way asking is forbidden in a thread whose mode is not
 * relaxed. pool/ asks under the lock that a capture takes before it begins, so none
 * can begin meanwhile; a wait asks without. */
static int world_query(struct world *world, CUcontext ctx, bool relaxed)
{
	struct gcp_visit visit;
	int saved = errno;
	CUresult result;

	if (relaxed)
		gcp_visit_begin(&visit, NULL);
	pthread_mutex_lock(&world_lock);
	result = parts_query(world, ctx);
	pthread_mutex_unlock(&world_lock);
	if (relaxed)
		gcp_visit_end(&visit);
	errno = saved;
	return result;
}

int gcp_world_query(void *world)
{
	return world_query(world, NULL, gcp_tracker_capturing(gcp_process.tracker));
}

/* Not cuEventSynchronize: the context may be destroyed while we wait. */
int gcp_world_wait(void *world, void *ctx)
{
	struct timespec nap = {.tv_nsec = 2000};
	int saved = errno, result;

	for (int turn = 0;; turn++) {
		result = world_query(world, ctx, true);
		if (result != CUDA_ERROR_NOT_READY)
			break;
		if (turn < 100) {
			sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < 100000)
			nap.tv_nsec += nap.tv_nsec / 4;
	}
	errno = saved;
	return result;
}

/* --- the end of a context --------------------------------------------------------- */

void gcp_world_context_ending(CUcontext ctx)
{
	int slot = 0;

	if (!ctx)
		return;
	pthread_mutex_lock(&world_lock);
	while (slot < ENDING_MAX && ending[slot])
		slot++;
	if (slot < ENDING_MAX)
		ending[slot] = ctx;
	else
		ending_unknown++;
	pthread_mutex_unlock(&world_lock);
}

static void ending_remove(CUcontext ctx)
{
	for (int i = 0; i < ENDING_MAX; i++) {
		if (ending[i] == ctx) {
			ending[i] = NULL;
			return;
		}
	}
	ending_unknown--;
}

void gcp_world_context_ended(CUcontext ctx, bool gone)
{
	struct part *part;

	if (!ctx)
		return;
	pthread_mutex_lock(&world_lock);
	ending_remove(ctx);
	for (struct world *world = worlds; world && gone; world = world->next) {
		part = part_find(world, ctx);
		if (part) /* its event went with it */
			*part = world->parts[--world->count];
	}
	pthread_mutex_unlock(&world_lock);
}

void gcp_world_after_fork(void)
{
	pthread_mutex_init(&world_lock, NULL);
}
