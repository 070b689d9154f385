/* SPDX-License-Identifier: MIT */
/*
 * process_life.c - see process_life.h. Nothing here runs at load: the first hook that
 * allocates calls gcp_process_start, which holds start_lock and makes no CUDA call. At
 * exit nothing is freed and no CUDA call is made: the driver may be gone already.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calling_thread.h"
#include "cuda_backend.h"
#include "../cuda/streams.h"
#include "../cuda/cuda_vmm.h"
#include "../cuda/foreign_work.h"
#include "../cuda/gate.h"
#include "../ipc/ipc_imports.h"
#include "../ipc/ipc_server.h"
#include "observe.h"
#include "passed.h"
#include "process_life.h"
#include "sleep.h"
#include "spill.h"
#include "stream_refs.h"
#include "../cuda/unknown_calls.h"

static struct gcp_mutex start_lock = GCP_MUTEX(GCP_RANK_START);
static pid_t process; /* that has started; changed under start_lock */

static enum gcp_run_mode start_pooling(void);
static void thread_exit(void *data);

/* Without a preload the library sees neither captures nor work. */
static void preload_check(struct gcp_options *options)
{
	gcp_assert_held(GCP_RANK_START);
	if (options->mode == GCP_MODE_OFF || gcp_elf_is_before_libc())
		return;
	gcp_log(
	    GCP_LOG_WARNING,
	    "the library is loaded and not preloaded: gcpool_malloc and gcpool_free "
	    "are cudaMalloc and cudaFree");
	options->mode = GCP_MODE_OFF;
}

enum gcp_run_mode gcp_process_start(void)
{
	GCP_CANCEL_LATER;
	enum gcp_run_mode mode;
	bool first;

	gcp_observe_load();
	gcp_mutex_lock(&start_lock);
	mode = gcp_process_run_mode();
	assert(mode == GCP_RUN_FRESH || process > 0); /* changes once */
	first = mode == GCP_RUN_FRESH;
	if (first) {
		process = getpid();
		gcp_call_stats_begin();
		gcp_options_read(&gcp_process.options);
		preload_check(&gcp_process.options);
		gcp_observe_start(&gcp_process.options);
		if (gcp_process.options.mode == GCP_MODE_POOL)
			mode = start_pooling();
		else
			mode = GCP_RUN_PASSIVE;
		if (mode == GCP_RUN_PASSIVE)
			gcp_process.special = true;
		assert(mode == GCP_RUN_PASSIVE || gcp_process.tracker);
		atomic_store(&gcp_process.run_mode, mode);
		gcp_unknown_capture_hold();
	}
	gcp_mutex_unlock(&start_lock);
	if (first && gcp_process.instruments)
		gcp_process.instruments->load();
	return mode;
}

static enum gcp_run_mode start_pooling(void)
{
	gcp_assert_held(GCP_RANK_START);
	struct gcp_capture_driver capture_driver;
	struct gcp_driver driver;
	int result;

	if (!gcp_driver_is_sufficient()) {
		gcp_log(GCP_LOG_INFO, "the CUDA driver is older than 12.5, passing "
				      "every call through");
		return GCP_RUN_PASSIVE;
	}
	gcp_driver_fill(&driver);
	gcp_driver_fill_vmm(&driver);
	gcp_handle_files_watch(&driver);
	if (gcp_process.observer)
		gcp_process.observer->driver(&driver);
	gcp_driver_fill_capture(&capture_driver);
	result =
	    gcp_pools_create(&gcp_process.options.pool, &driver, &gcp_process.pools);
	if (result == 0)
		result = gcp_tracker_create(gcp_process.pools, &capture_driver,
					    gcp_process.options.graph_share,
					    &gcp_process.tracker);
	if (result != 0) {
		gcp_log(GCP_LOG_ERROR,
			"cannot set up the pools (error %d), "
			"passing every call through",
			-result);
		return GCP_RUN_PASSIVE;
	}
	assert(gcp_process.pools && gcp_process.tracker);
	const struct gcp_tracker_counts *counts = (void *)gcp_process.tracker;
	if (!gcp_process.observer)
		gcp_process.alloc_asks = &counts->capturing;
	atomic_store(&gcp_watch.streams, gcp_pools_streams_seen(gcp_process.pools));
	gcp_sleep_start();
	atomic_store(&gcp_watch.submissions,
		     gcp_gate.wait ? &gcp_always : &counts->capturing);
	atomic_store(&gcp_watch.shares, &counts->shares);
	gcp_thread_exit_watch(thread_exit);
	return GCP_RUN_POOL;
}

/* --- threads ------------------------------------------------------------------ */

static void thread_exit(void *data)
{
	(void)data;
	assert(gcp_ranks_held == 0); /* K7: no lock stays taken */
	gcp_thread.exit_registered = false;
	gcp_thread.free_direct = false;
	gcp_thread.ctx = NULL;
	gcp_thread.runtime_confirmed = 0;
	gcp_gate_thread_ends();
	if (!gcp_process_pooling())
		return;
	gcp_stream_refs_thread_exit();
	gcp_pools_thread_exit(gcp_process.pools);
}

/* --- contexts ------------------------------------------------------------------ */

static void context_joined(CUcontext ctx)
{
	CUdevice device;

	assert(ctx);
	if (gcp_ctx_device(ctx, &device) && gcp_vmm_device_joined(device)) {
		gcp_imports_device_joined(device);
		gcp_spill_device_joined(device);
	}
	if (gcp_process_pooling()) /* it is put behind older barriers */
		gcp_pools_context_joined(gcp_process.pools, ctx, gcp_fence_wait_in);
}

/* Captures end before the memory that they hold goes. */
static void context_ending(CUcontext ctx)
{
	assert(ctx && gcp_ranks_held == 0);
	if (!gcp_process_pooling())
		return;
	gcp_tracker_context_ending(gcp_process.tracker);
	gcp_pool_detach(gcp_process.pools, ctx);
}

static void context_gone(CUcontext ctx)
{
	if (gcp_process_pooling()) {
		gcp_foreign_work_context_gone(ctx);
		gcp_tracker_context_gone(gcp_process.tracker, ctx);
		gcp_spill_context_gone(ctx);
	}
	if (ctx && gcp_process_pooling())
		gcp_pool_reset(gcp_process.pools, ctx);
	gcp_passed_context_gone(ctx);
	gcp_imports_context_gone(ctx);
}

static void context_stays(CUcontext ctx)
{
	assert(ctx);
	if (gcp_process_pooling())
		gcp_pool_reattach(gcp_process.pools, ctx); /* sets barriers */
}

static const struct gcp_context_observer context_observer = {
    .joined = context_joined,
    .ending = context_ending,
    .gone = context_gone,
    .stays = context_stays,
};

/* --- fork --------------------------------------------------------------------- */

/* CUDA does not work in the child of a process that has used it: everything
 * passes through, and whatever plain CUDA says is said. Where the parent had
 * not allocated yet, the child is as good as new but for locks. */
static void fork_child(void)
{
	gcp_contexts_after_fork();
	gcp_unknown_calls_after_fork();
	gcp_ipc_server_after_fork();
	gcp_handle_files_after_fork();
	gcp_imports_after_fork();
	gcp_mutex_init(&gcp_process.runtime_lock, GCP_RANK_RUNTIME);
	if (gcp_process_run_mode() == GCP_RUN_FRESH) {
		gcp_mutex_init(&start_lock, GCP_RANK_START);
		gcp_resolve_after_fork();
	} else {
		gcp_gate = (struct gcp_gate){0};
		gcp_process.instruments = gcp_process.observer = NULL;
		gcp_process.special = true;
		atomic_store(&gcp_process.run_mode, GCP_RUN_PASSIVE);
		if (gcp_resolve_complete())
			gcp_watch_nothing();
		atomic_fetch_add(&gcp_contexts_generation, 1); /* no thread is sure */
	}
}

/* What pthread_atfork of glibc calls. Weak: musl, under which there is no CUDA, has it
 * not, and its programs are to start all the same. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)
    __attribute__((weak));
/* atexit of glibc passes it on. Weak: the library is linked without start files, which
 * define it otherwise (meson.build). */
void *__dso_handle __attribute__((weak, visibility("hidden"))) = &__dso_handle;

/* Registers the process for the barrier of lock.h while that is quick. */
static void barriers_prepare(void)
{
	GCP_KEEP_ERRNO;
	struct stat about;

	if (syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &about, 0) == 0 &&
	    about.st_nlink == 3) /* ".", ".." and the only thread */
		gcp_remote_prepare();
}

/* libcuda is there. Before any thread takes a lock: a fork while one holds it leaves it
 * taken in the child. Of threads that meet here each may register fork_child, which may
 * run several times. */
static void resolve_begins(void)
{
	static atomic_bool registered;

	gcp_stderr_note();
	barriers_prepare();
	if (!__register_atfork || atomic_load(&registered))
		return;
	__register_atfork(NULL, NULL, fork_child, __dso_handle);
	atomic_store(&registered, true);
}

/* The real functions are known. */
static void resolved(void)
{
	gcp_contexts_observe(&context_observer);
}

bool gcp_resolve_now(void)
{
	bool done = gcp_resolve_all(resolve_begins, resolved);

	if (done && gcp_resolve_complete()) /* or each call asks what is there */
		gcp_watch_resolved();
	return done;
}

/* --- exit --------------------------------------------------------------------- */

/* Not called after a signal that ends the process, quick_exit, _exit and exec:
 * gcpool ctl reads the statistics before. A child does not write the reports and files
 * of its parent, nor does one that fork_child has not seen (_Fork, or the system call).
 * A lock may never be free: gcp_end_step. */

/* The launcher waits for no program. It asks this process, which it has become, to say
 * that the library was loaded, where no statistics say so. */
static void unused_say(void)
{
	const char *pid = secure_getenv("_GCPOOL_PID");
	struct gcp_options options;

	if (!pid || gcp_digits_read(pid) != (uint64_t)getpid())
		return;
	(void)gcp_options_look(&options, false);
	gcp_log_setup(options.log_level, options.log_file);
	gcp_log(GCP_LOG_WARNING,
		"loaded into %s, which allocated no memory by CUDA: no statistics",
		program_invocation_name);
}

static void end_say(void)
{
	if (gcp_process_pooling())
		gcp_report_exit();
	if (gcp_process.instruments)
		gcp_process.instruments->end(false);
}

__attribute__((destructor)) static void life_end(void)
{
	GCP_KEEP_ERRNO;

	if (gcp_process_run_mode() == GCP_RUN_FRESH) {
		unused_say();
		return;
	}
	if (process != getpid())
		return;
	if (!gcp_end_step(end_say)) {
		if (gcp_process.instruments)
			gcp_process.instruments->end(true);
		if (gcp_process.instruments ||
		    gcp_process.options.stats != GCP_STATS_OFF)
			gcp_log(GCP_LOG_WARNING,
				"the process ends while a thread stays inside an "
				"allocation or a free: leaving out what is left of its "
				"statistics and of what is recorded");
	}
}
