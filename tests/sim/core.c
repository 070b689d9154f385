/* SPDX-License-Identifier: MIT */
/*
 * core.c - what every entry point stands on: the big lock, the driver's view
 * of threads, the memory of objects, and the gate at the start of each call.
 *
 * Called by every other file. sim_enter and sim_thread_self take no lock;
 * objects are made and deleted under the big lock. Never decides what a call
 * does, only whether it may start.
 */
#include "sim.h"

#include <stdio.h>

struct sim_process sim = {.devices = 1, .driver_version = 13000};

pthread_mutex_t sim_big_lock = PTHREAD_MUTEX_INITIALIZER;

const char *const sim_fn_names[SIM_FN_COUNT] = {
#define SIM_F(name, since, symbol)      [SIM_FN_##symbol] = #symbol,
#define SIM_S(name, since, symbol, per) SIM_F(name, since, symbol)
    SIM_TABLE(SIM_F, SIM_S)
#undef SIM_F
#undef SIM_S
};

const int sim_fn_since[SIM_FN_COUNT] = {
#define SIM_F(name, since, symbol)      [SIM_FN_##symbol] = since,
#define SIM_S(name, since, symbol, per) SIM_F(name, since, symbol)
    SIM_TABLE(SIM_F, SIM_S)
#undef SIM_F
#undef SIM_S
};

static __thread struct sim_thread *self __attribute__((tls_model("initial-exec")));

/* --- the lock ------------------------------------------------------------------ */

void sim_lock(void)
{
	pthread_mutex_lock(&sim_big_lock);
}

void sim_unlock(void)
{
	if (self && self->posted > 0)
		sim_host_wait_posted(self);
	pthread_mutex_unlock(&sim_big_lock);
}

/* --- threads ------------------------------------------------------------------- */

static pthread_once_t threads_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_thread *threads; /* all, for counting; threads_lock */
static uint64_t thread_ids;

static void thread_gone(void *data)
{
	struct sim_thread *thread = data;
	uint64_t id = thread->id;

	if (sim.initialized && !sim.forked)
		sim_stream_thread_gone(id);
	self = NULL;
	pthread_mutex_lock(&threads_lock);
	thread->id = 0; /* idle: the next new thread takes it, counters and all */
	pthread_mutex_unlock(&threads_lock);
}

static void fork_prepare(void)
{
	sim_lock();
	pthread_mutex_lock(&threads_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&threads_lock);
	sim_unlock();
}

/* CUDA does not survive a fork: from here on everything says so. */
static void fork_child(void)
{
	pthread_mutex_init(&threads_lock, NULL);
	pthread_mutex_init(&sim_big_lock, NULL);
	sim.forked = sim.initialized;
}

static void threads_init(void)
{
	pthread_key_create(&thread_key, thread_gone);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	sim_control_load();
}

static struct sim_thread *thread_new(void)
{
	struct sim_thread *thread;

	pthread_once(&threads_once, threads_init);
	pthread_mutex_lock(&threads_lock);
	for (thread = threads; thread && thread->id; thread = thread->next)
		;
	if (!thread) {
		thread = sim_calloc(sizeof(*thread));
		thread->next = threads;
		threads = thread;
	}
	thread->id = ++thread_ids;
	thread->depth = 0;
	thread->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	thread->in_callback = false;
	pthread_mutex_unlock(&threads_lock);
	pthread_setspecific(thread_key, thread);
	self = thread;
	return thread;
}

struct sim_thread *sim_thread_self(void)
{
	return __builtin_expect(self != NULL, 1) ? self : thread_new();
}

uint64_t gcpsim_calls(const char *symbol)
{
	uint64_t sum = 0;
	bool found = !symbol;

	pthread_mutex_lock(&threads_lock);
	for (int fn = 0; fn < SIM_FN_COUNT; fn++) {
		if (symbol && strcmp(symbol, sim_fn_names[fn]) != 0)
			continue;
		found = true;
		for (struct sim_thread *thread = threads; thread; thread = thread->next)
			sum += __atomic_load_n(&thread->calls[fn], __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&threads_lock);
	return found ? sum : UINT64_MAX;
}

/* --- the gate ------------------------------------------------------------------ */

static CUresult enter_late(const struct sim_thread *thread)
{
	SIM_FAIL_IF(DEINITIALIZED, __atomic_load_n(&sim.exited, __ATOMIC_RELAXED));
	SIM_FAIL_IF(NOT_INITIALIZED,
		    !__atomic_load_n(&sim.initialized, __ATOMIC_ACQUIRE) || sim.forked);
	if (thread->in_callback) {
		__atomic_fetch_add(&sim.misuses, 1, __ATOMIC_RELAXED);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	return CUDA_SUCCESS;
}

static CUresult planned_failure(enum sim_fn fn)
{
	CUresult result = sim_failure(fn);

	if (result != CUDA_SUCCESS)
		sim_called(&fn);
	return result;
}

CUresult sim_enter(enum sim_fn fn, bool early)
{
	struct sim_thread *thread = sim_thread_self();

	__atomic_store_n(&thread->calls[fn], thread->calls[fn] + 1, __ATOMIC_RELAXED);
	thread->fn = fn;
	if (!early)
		SIM_TRY(enter_late(thread));
	SIM_FAIL_IF(CALL_REQUIRES_NEWER_DRIVER, sim_fn_since[fn] > sim.driver_version);
	if (__builtin_expect(__atomic_load_n(&sim.failures_planned, __ATOMIC_RELAXED),
			     0))
		return planned_failure(fn);
	return CUDA_SUCCESS;
}

/* --- objects ------------------------------------------------------------------- */

enum {
	MAGIC_ALIVE = 0x51A00000,
	MAGIC_DEAD = 0x51D00000,
	QUARANTINE = 64, /* dead objects that are kept before one is used again */
};

static struct {
	struct sim_object *first, *last; /* dead ones, oldest first */
	uint32_t dead, ids;
} objects[SIM_KIND_COUNT];

static struct sim_object *all_objects;

static const char *const kind_names[SIM_KIND_COUNT] = {
    [SIM_CTX] = "context",           [SIM_STREAM] = "stream",
    [SIM_EVENT] = "event",           [SIM_MODULE] = "module",
    [SIM_FUNCTION] = "function",     [SIM_POOL] = "memory pool",
    [SIM_ARRAY] = "array",           [SIM_PHYSICAL] = "memory handle",
    [SIM_GRAPH] = "graph",           [SIM_NODE] = "graph node",
    [SIM_EXEC] = "executable graph", [SIM_USER_OBJECT] = "user object",
};

/* Whether the next object is the one that was destroyed last, as the driver's memory
 * allocator may well do. */
static bool is_used_again(enum sim_kind kind)
{
	return sim.handles_again &&
	       (kind == SIM_STREAM || kind == SIM_EVENT || kind == SIM_CTX);
}

void *sim_object_new(enum sim_kind kind, size_t bytes)
{
	bool again = is_used_again(kind);
	struct sim_object *object;

	if (objects[kind].dead > (again ? 0 : QUARANTINE)) {
		struct sim_object *next;

		object = objects[kind].first;
		objects[kind].first = object->next_free;
		objects[kind].dead--;
		next = object->next;
		memset(object, 0, bytes);
		object->next = next;
	} else {
		object = sim_calloc(bytes);
		object->next = all_objects;
		all_objects = object;
	}
	SIM_STORE(object->magic, MAGIC_ALIVE | (uint32_t)kind);
	object->id = ++objects[kind].ids;
	return object;
}

void sim_object_delete(void *data)
{
	struct sim_object *object = data;
	enum sim_kind kind = object->magic & 0xff;

	SIM_STORE(object->magic, MAGIC_DEAD | (uint32_t)kind);
	object->next_free = is_used_again(kind) ? objects[kind].first : NULL;
	if (objects[kind].dead++ == 0 || is_used_again(kind))
		objects[kind].first = object;
	else
		objects[kind].last->next_free = object;
	objects[kind].last = object;
}

void *sim_object_check(const void *handle, enum sim_kind kind)
{
	const struct sim_object *object = handle;
	uint32_t magic;

	/* Small numbers are special streams or mistakes, never objects. */
	if ((uintptr_t)handle < 4096 || (uintptr_t)handle % 8 != 0)
		return NULL;
	magic = SIM_LOAD(object->magic);
	if (magic == (MAGIC_ALIVE | (uint32_t)kind))
		return (void *)(uintptr_t)handle;
	if (magic == (MAGIC_DEAD | (uint32_t)kind))
		sim_report(&sim.misuses, "use of %s %u, which was destroyed",
			   kind_names[kind], object->id);
	return NULL;
}

CUresult sim_object_gone(const void *handle, enum sim_kind kind)
{
	const struct sim_object *object = handle;

	SIM_FAIL_IF(INVALID_HANDLE,
		    (uintptr_t)handle < 4096 || (uintptr_t)handle % 8 != 0);
	SIM_FAIL_IF(CONTEXT_IS_DESTROYED,
		    SIM_LOAD(object->magic) == (MAGIC_DEAD | (uint32_t)kind) &&
			object->orphan);
	return CUDA_ERROR_INVALID_HANDLE;
}

/* --- memory of the simulator ---------------------------------------------------- */

void *sim_calloc(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);

	if (!memory) {
		fputs("gcpsim: out of host memory, aborting\n", stderr);
		abort();
	}
	return memory;
}

void *sim_grow(void *array, uint32_t *capacity, uint32_t need, size_t bytes)
{
	uint32_t now = *capacity;

	if (need <= now)
		return array;
	now = now * 2 > need ? now * 2 : need;
	now = now < 4 ? 4 : now;
	array = realloc(array, now * bytes);
	if (!array) {
		fputs("gcpsim: out of host memory, aborting\n", stderr);
		abort();
	}
	memset((char *)array + *capacity * bytes, 0, (now - *capacity) * bytes);
	*capacity = now;
	return array;
}
