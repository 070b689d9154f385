/* SPDX-License-Identifier: MIT */
/*
 * process_life.c - see process_life.h. Nothing here runs at load: the first hook that
 * allocates calls gcp_process_start, which holds start_lock and makes no CUDA call. At
 * exit nothing is freed and no CUDA call is made: the driver may be gone already.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "cuda_backend.h"
#include "elfwalk.h"
#include "handles.h"
#include "ipc.h"
#include "poller.h"
#include "process_life.h"
#include "log.h"
#include "observe.h"
#include "report.h"
#include "stream_fences.h"
#include "stream_refs.h"
#include "resolve.h"
#include "unknown_calls.h"

struct gcp_process gcp_process;

static const _Atomic uint32_t unresolved = 1, no_captures = 0;
static const _Atomic uint64_t all_streams = UINT64_MAX;

struct gcp_watch gcp_watch = {
    .submissions = &unresolved,
    .streams = &all_streams,
    .shares = &no_captures,
};

void gcp_watch_resolved(void)
{
	const _Atomic uint32_t *expected = &unresolved;

	atomic_compare_exchange_strong(&gcp_watch.submissions, &expected, &no_captures);
}

__thread struct gcp_thread gcp_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* Thread exit: pthread_key_create and pthread_setspecific, which are in
 * libpthread before glibc 2.34 and therefore looked up. */
static pthread_key_t exit_key;
static int (*exit_key_set)(pthread_key_t, const void *);

static enum gcp_run_mode start_pooling(void);
static void watch_quick_exit(void);
static void exit_key_create(void);

enum gcp_run_mode gcp_process_start(void)
{
	int cancel = gcp_cancel_defer();
	enum gcp_run_mode mode;

	pthread_mutex_lock(&start_lock);
	mode = gcp_process_run_mode();
	if (mode == GCP_RUN_FRESH) {
		gcp_call_stats_begin();
		gcp_options_read(&gcp_process.options);
		gcp_observe_start(&gcp_process.options);
		if (gcp_process.options.mode == GCP_MODE_POOL)
			mode = start_pooling();
		else if (gcp_process.options.mode == GCP_MODE_COUNT)
			mode = GCP_RUN_COUNT;
		else
			mode = GCP_RUN_PASSIVE;
		if (gcp_process.options.stats != GCP_STATS_OFF || gcp_observers)
			watch_quick_exit();
		if (mode == GCP_RUN_PASSIVE || mode == GCP_RUN_LOADED)
			gcp_process.special = true;
		atomic_store(&gcp_process.run_mode, mode);
		gcp_unknown_capture_hold();
	}
	pthread_mutex_unlock(&start_lock);
	gcp_cancel_restore(cancel);
	return mode;
}

static enum gcp_run_mode start_pooling(void)
{
	struct gcp_capture_driver capture_driver;
	struct gcp_driver driver;
	bool hooked = gcp_elf_is_before_libc();
	int result;

	if (!gcp_resolve_complete() || (!hooked && !gcp_stream_fences_possible())) {
		gcp_log(GCP_LOG_WARNING,
			"the CUDA driver lacks functions that libgcpool needs, "
			"passing every call through");
		return GCP_RUN_PASSIVE;
	}
	gcp_driver_fill(&driver);
	if (gcp_process.options.pool.backend != GCP_BACKEND_SEGMENTS &&
	    !driver.vm_reserve)
		gcp_log(gcp_process.options.pool.backend == GCP_BACKEND_MAPPED
			    ? GCP_LOG_WARNING
			    : GCP_LOG_INFO,
			"the CUDA driver has no virtual memory management, using "
			"ordinary segments");
	if (!hooked) {
		gcp_stream_fences_fill(&driver);
		gcp_process.options.pool.completed_only = true;
	}
	gcp_observe_driver(&driver);
	gcp_driver_fill_capture(&capture_driver);
	result =
	    gcp_pools_create(&gcp_process.options.pool, &driver, &gcp_process.pools);
	if (result == 0)
		result = gcp_tracker_create(gcp_process.pools, &capture_driver,
					    &gcp_process.tracker);
	if (result != 0) {
		gcp_log(GCP_LOG_ERROR,
			"cannot set up the pools (error %d), "
			"passing every call through",
			-result);
		return GCP_RUN_PASSIVE;
	}
	gcp_process.pending_events =
	    gcp_observers ? gcp_observe_pending_events()
			  : gcp_tracker_pending_events(gcp_process.tracker);
	atomic_store(&gcp_watch.streams, gcp_pools_streams_seen(gcp_process.pools));
	atomic_store(&gcp_watch.submissions,
		     gcp_tracker_capturing_count(gcp_process.tracker));
	atomic_store(&gcp_watch.shares, gcp_tracker_share_count(gcp_process.tracker));
	gcp_tracker_share_graphs(gcp_process.tracker, gcp_process.options.graph_share);
	exit_key_create();
	if (!hooked) {
		gcp_log(GCP_LOG_INFO, "loaded, and not preloaded: serves gcpool_malloc "
				      "alone, and sees no captures");
		return GCP_RUN_LOADED;
	}
	gcp_handles_say();
	return GCP_RUN_POOL;
}

/* --- threads ------------------------------------------------------------------ */

static void thread_exit(void *data)
{
	(void)data;
	gcp_thread.exit_registered = false;
	gcp_thread.free_direct = false;
	gcp_thread.ctx = NULL;
	gcp_thread.runtime_confirmed = 0;
	gcp_thread.runtime_observed = 0;
	gcp_thread.runtime_streamed = 0;
	if (!gcp_process_has_pools())
		return;
	gcp_stream_refs_thread_exit();
	gcp_pools_thread_exit(gcp_process.pools);
}

static void exit_key_create(void)
{
	int (*create)(pthread_key_t *, void (*)(void *));

	*(void **)&create = gcp_elf_libc_symbol("pthread_key_create");
	if (create && create(&exit_key, thread_exit) == 0)
		*(void **)&exit_key_set = gcp_elf_libc_symbol("pthread_setspecific");
}

void gcp_process_watch_thread(void)
{
	if (!gcp_thread.exit_registered && exit_key_set)
		gcp_thread.exit_registered = exit_key_set(exit_key, &gcp_thread) == 0;
	gcp_thread.free_direct = gcp_thread.exit_registered && !gcp_observers;
}

struct gcp_pool *gcp_process_pool_find(CUcontext ctx)
{
	uint64_t generation =
	    atomic_load_explicit(&gcp_contexts_generation, memory_order_acquire);
	struct gcp_pool *pool = NULL;
	CUcontext home;
	int device = -1;

	gcp_process_watch_thread();
	if (gcp_unknown_capture_seen() || !gcp_contexts_home(ctx, &home, &device) ||
	    gcp_pool_get(gcp_process.pools, home, device, &pool) != 0)
		pool = NULL;
	gcp_thread.ctx = ctx;
	gcp_thread.pool = pool;
	gcp_thread.device = device;
	gcp_thread.generation = generation;
	if (pool && gcp_process.options.thread)
		gcp_poller_start();
	if (pool) {
		gcp_life_note_gpu(device);
		gcp_observe_context(home, device);
	} else {
		gcp_log(GCP_LOG_DEBUG, "context %p: its calls pass through",
			(void *)ctx);
	}
	return pool;
}

void gcp_life_note_gpu(int device)
{
	char name[GCP_GPU_NAME_MAX] = "";
	struct gcp_ctx_scope scope;
	size_t bytes = 0;
	int version = 0;

	if ((gcp_process.options.stats == GCP_STATS_OFF && !gcp_observers) ||
	    gcp_report_knows_gpu(device) ||
	    gcp_ctx_scope_begin(&scope, NULL) != CUDA_SUCCESS)
		return;
	if (gcp_real.cuDeviceGetName)
		(void)gcp_real.cuDeviceGetName(name, sizeof(name), device);
	if (gcp_real.cuDeviceTotalMem_v2)
		(void)gcp_real.cuDeviceTotalMem_v2(&bytes, device);
	if (gcp_real.cuDriverGetVersion)
		(void)gcp_real.cuDriverGetVersion(&version);
	gcp_ctx_scope_end(&scope);
	gcp_report_note_gpu(device, name, bytes, version);
	gcp_observe_device(device, name, bytes);
}

/* --- fork --------------------------------------------------------------------- */

/* CUDA does not work in the child of a process that has used it: everything
 * passes through, and whatever plain CUDA says is said. Where the parent had
 * not allocated yet, the child is as good as new but for locks. */
static void fork_child(void)
{
	gcp_contexts_after_fork();
	gcp_unknown_calls_after_fork();
	gcp_handles_after_fork();
	gcp_ipc_after_fork();
	if (gcp_process_run_mode() == GCP_RUN_FRESH) {
		pthread_mutex_init(&start_lock, NULL);
		gcp_resolve_after_fork();
	} else {
		gcp_observe_after_fork();
		gcp_process.special = true;
		atomic_store(&gcp_process.run_mode, GCP_RUN_PASSIVE);
		atomic_store(&gcp_watch.submissions, &no_captures);
		atomic_store(&gcp_watch.streams, &all_streams);
		atomic_store(&gcp_watch.shares, &no_captures);
		atomic_fetch_add(&gcp_contexts_generation, 1); /* no thread is sure */
	}
}

/* What pthread_atfork of glibc calls. Weak: musl, under which there is no CUDA, has it
 * not, and its programs are to start all the same. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void gcp_process_watch_forks(void)
{
	if (__register_atfork)
		__register_atfork(NULL, NULL, fork_child, __dso_handle);
}

/* --- exit --------------------------------------------------------------------- */

/* exit and, if there are statistics to write, quick_exit. A signal that ends the
 * process, _exit and exec come past it: GCPOOL_STATS_EVERY is for them. */

__attribute__((destructor)) static void life_end(void)
{
	enum gcp_run_mode mode = gcp_process_run_mode();
	int saved = errno;

	if (mode == GCP_RUN_POOL || mode == GCP_RUN_LOADED)
		gcp_tracker_collect(gcp_process.tracker);
	if (mode == GCP_RUN_POOL || mode == GCP_RUN_LOADED || mode == GCP_RUN_COUNT)
		gcp_report_exit(&gcp_process.options, gcp_process.pools);
	gcp_observe_end();
	errno = saved;
}

static void quick_end(void *unused)
{
	(void)unused;
	life_end();
}

/* What at_quick_exit of glibc calls; weak as __register_atfork is. */
extern int __cxa_at_quick_exit(void (*)(void *), void *) __attribute__((weak));

static void watch_quick_exit(void)
{
	if (__cxa_at_quick_exit)
		__cxa_at_quick_exit(quick_end, __dso_handle);
}
