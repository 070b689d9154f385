/* SPDX-License-Identifier: MIT */
/*
 * poller.c - the thread of GCPOOL_THREAD: it looks whether fences of pinned memory are
 * done, so that allocations need not, and gives back what is idle. Off unless asked
 * for.
 *
 * With GCPOOL_LIVE it also does what gcpool ctl asks for (observer.h).
 *
 * The thread closes the open epoch and asks for the fences of freed pinned memory every
 * 100 us, and every 10 ms when nothing waits; there it only moves on the number up to
 * which epochs are completed. And it gives back device memory that nothing has used for
 * GCPOOL_DECAY, which otherwise happens in calls of the program alone. But for gcpool
 * ctl it never waits for the device, and does nothing with device memory beside a
 * capture.
 *
 * It is started by the first call that allocates, after CUDA, so that its end, which
 * atexit brings, comes before that of CUDA: it makes no CUDA call once exit has run its
 * handlers, and is joined. It takes no signals. In the child of a fork it does not
 * exist, and the child, where everything passes through, does not miss it.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../cuda/ctx_scope.h"
#include "../base/clock.h"
#include "../base/elfwalk.h"
#include "../cuda/gate.h"
#include "../base/log.h"
#include "../observe/observer.h"
#include "calling_thread.h"
#include "passed.h"
#include "../base/process.h"

enum {
	BUSY_NS = 100 * 1000,
	IDLE_NS = 10 * 1000 * 1000,
	NOTE_NS = 100 * 1000 * 1000,
	END_S = 1,
};

static struct {
	atomic_bool begun; /* a thread starts it or has started it */
	atomic_bool stop;
	bool notes; /* of the thread: in this turn */
	pthread_t thread;
	pid_t process;
	/* In libpthread before glibc 2.34, and therefore looked up. */
	int (*join)(pthread_t, void **, const struct timespec *);
} poller;

/* For the live view: what others use of the device. */
static CUresult look(void (*step)(void *arg), void *arg)
{
	CUdevice device;

	step(arg);
	if (poller.notes && gcp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		gcp_passed_note_others(device);
	return CUDA_SUCCESS;
}

/* Events are asked for in a context. */
static void within_context(void *ctx, void (*step)(void *arg), void *arg)
{
	assert(ctx && step && arg);
	(void)GCP_WITHIN(ctx, look(step, arg));
}

static void *poller_run(void *unused)
{
	struct timespec delay = {0};
	uint64_t noted_ns = 0;

	(void)unused;
	while (!atomic_load_explicit(&poller.stop, memory_order_acquire)) {
		delay.tv_nsec = IDLE_NS;
		if (gcp_gate_try()) {
			if (gcp_pinned_poll(gcp_process.pools, within_context))
				delay.tv_nsec = BUSY_NS;
			poller.notes = gcp_process.options.live &&
				       gcp_clock_ns() - noted_ns > NOTE_NS;
			gcp_pools_decay(gcp_process.pools, within_context);
			if (poller.notes)
				noted_ns = gcp_clock_ns();
			poller.notes = false;
			gcp_gate_leave();
		}
		if (gcp_process.instruments)
			gcp_process.instruments->occasion();
		assert(gcp_ranks_held == 0); /* no lock while it sleeps */
		nanosleep(&delay, NULL);
	}
	return NULL;
}

/* At exit, which may be in a signal handler that has interrupted a holder of locks that
 * the thread waits for; and not in a child that a fork has left with our handlers. */
static void poller_end(void)
{
	struct timespec until;

	if (poller.process != getpid())
		return;
	atomic_store_explicit(&poller.stop, true, memory_order_release);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_S;
	(void)poller.join(poller.thread, NULL, &until);
}

void gcp_poller_start(void)
{
	if (atomic_load_explicit(&poller.begun, memory_order_relaxed) ||
	    atomic_exchange(&poller.begun, true))
		return;
	*(void **)&poller.join = gcp_elf_libc_symbol("pthread_timedjoin_np");
	poller.process = getpid();
	if (!poller.join || !gcp_thread_create(&poller.thread, poller_run, NULL) ||
	    atexit(poller_end) != 0)
		gcp_log(GCP_LOG_WARNING, "cannot start the thread of GCPOOL_THREAD, "
					 "going on without it");
}
