/* SPDX-License-Identifier: MIT */
/*
 * lock.c - the slow halves of lock.h: waiting, and the remote lock.
 */
#include "lock.h"

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/membarrier.h>

/* Not by pthread_mutexattr_settype, which is not in libc.so.6 before glibc 2.34. */
void gcp_mutex_init(pthread_mutex_t *mutex)
{
	const pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

	*mutex = adaptive;
}

/* --- waiting ------------------------------------------------------------------- */

/* Whoever is waited for needs some ten instructions more; if he is not done within a
 * moment he was descheduled, and sleeping lets him run whatever the priorities of
 * the two threads are. */
static void pause_for(int turn)
{
	const struct timespec interval = {.tv_nsec = 50 * 1000};

	if (turn < 100) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	} else if (turn < 200) {
		sched_yield();
	} else {
		int saved = errno;
		nanosleep(&interval, NULL);
		errno = saved;
	}
}

void gcp_spin_wait(struct gcp_spin *spin)
{
	for (int turn = 0;; turn++) {
		if (atomic_load_explicit(&spin->taken, memory_order_relaxed) == 0 &&
		    atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) ==
			0)
			return;
		pause_for(turn);
	}
}

/* The owner steps back until the remote thread is gone, and tries again. */
void gcp_owner_wait(struct gcp_owner *own)
{
	do {
		atomic_store_explicit(&own->inside, 0, memory_order_release);
		for (int turn = 0;
		     atomic_load_explicit(&own->remote, memory_order_acquire) != 0;
		     turn++)
			pause_for(turn);
		atomic_store_explicit(&own->inside, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load_explicit(&own->remote, memory_order_acquire) != 0);
}

/* --- remote lock ------------------------------------------------------------------ */

/* Registers the process with the kernel when asked for the first time. */
static bool barrier_everywhere(void)
{
	int saved = errno;
	bool done = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;

	if (!done && errno == EPERM)
		done =
		    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
			    0) == 0 &&
		    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;
	errno = saved;
	return done;
}

/* Whether the kernel has what barrier_everywhere needs. Registering, which takes
 * it some milliseconds, is left to the first remote lock. */
static bool barrier_is_offered(void)
{
#if defined(__x86_64__)
	const int needed = MEMBARRIER_CMD_PRIVATE_EXPEDITED |
			   MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
	int saved = errno;
	long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

	errno = saved;
	return offered >= 0 && (offered & needed) == needed;
#else
	return false;
#endif
}

void gcp_owner_lock_init(struct gcp_owner *own)
{
	atomic_store(&own->inside, 0);
	atomic_store(&own->remote, 0);
	own->fenced = !barrier_is_offered();
}

void gcp_remote_lock(struct gcp_owner *own)
{
	const struct timespec interval = {.tv_nsec = 10 * 1000 * 1000};

	atomic_store_explicit(&own->remote, 1, memory_order_seq_cst);
	if (own->fenced) {
		atomic_thread_fence(memory_order_seq_cst);
	} else if (!barrier_everywhere()) {
		/* The kernel has offered it: a filter of system calls was set up
		 * since. What is left is time: x86 writes
		 * wait in a store buffer, which drains in less than a
		 * microsecond. */
		int saved = errno;
		nanosleep(&interval, NULL);
		errno = saved;
	}
	for (int turn = 0;
	     atomic_load_explicit(&own->inside, memory_order_acquire) != 0; turn++)
		pause_for(turn);
}

void gcp_remote_unlock(struct gcp_owner *own)
{
	atomic_store_explicit(&own->remote, 0, memory_order_release);
}
