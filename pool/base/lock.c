/* SPDX-License-Identifier: MIT */
/*
 * lock.c - the slow halves of lock.h: waiting, and the remote lock.
 */
#include "lock.h"

#include <errno.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/membarrier.h>

__thread uint64_t gcp_ranks_held __attribute__((tls_model("initial-exec")));

/* Not by pthread_mutexattr_settype, which is not in libc.so.6 before glibc 2.34. */
void gcp_mutex_init(struct gcp_mutex *mutex, enum gcp_rank rank)
{
	const struct gcp_mutex sleeps = {.mutex = PTHREAD_MUTEX_INITIALIZER,
					 .rank = rank};
	const struct gcp_mutex spins = {.mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
					.rank = rank};

	*mutex = rank == GCP_RANK_POOL || rank == GCP_RANK_FENCE ? spins : sleeps;
}

/* --- waiting -------------------------------------------------------------- */

void gcp_spin_wait(struct gcp_spin *spin)
{
	for (int turn = 0;; turn++) {
		if (atomic_load_explicit(&spin->taken, memory_order_relaxed) == 0 &&
		    atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) ==
			0)
			return;
		gcp_pause(turn);
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
			gcp_pause(turn);
		atomic_store_explicit(&own->inside, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load_explicit(&own->remote, memory_order_acquire) != 0);
}

/* --- remote lock ------------------------------------------------------------- */

_Atomic bool gcp_owners_fenced;

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

/* The caller holds pools->registry_lock, as remote threads do. */
void gcp_owner_lock_init(struct gcp_owner *own)
{
	static _Atomic bool asked;

	atomic_store(&own->inside, 0);
	atomic_store(&own->remote, 0);
	if (!atomic_exchange(&asked, true))
		atomic_store(&gcp_owners_fenced, !barrier_is_offered());
}

/* The kernel has offered membarrier: a filter of system calls was set up since. Owners
 * execute a barrier from now on. For one that has looked before there is only time: x86
 * writes wait in a store buffer, which drains in less than a microsecond. */
static void owners_fence(void)
{
	atomic_store(&gcp_owners_fenced, true);
	gcp_sleep(10 * 1000 * 1000);
}

void gcp_remote_announce(struct gcp_owner *own)
{
	gcp_assert_held(GCP_RANK_REGISTRY);
	atomic_store_explicit(&own->remote, 1, memory_order_seq_cst);
}

void gcp_remote_barrier(void)
{
	if (!atomic_load(&gcp_owners_fenced) && !barrier_everywhere())
		owners_fence();
	atomic_thread_fence(memory_order_seq_cst);
}

void gcp_remote_lock(struct gcp_owner *own)
{
	gcp_assert_held(GCP_RANK_REGISTRY);
	gcp_rank_take(GCP_RANK_CACHE);
	if (atomic_load_explicit(&own->remote, memory_order_relaxed) == 0) {
		gcp_remote_announce(own);
		gcp_remote_barrier();
	}
	for (int turn = 0;
	     atomic_load_explicit(&own->inside, memory_order_acquire) != 0; turn++)
		gcp_pause(turn);
}

void gcp_remote_unlock(struct gcp_owner *own)
{
	atomic_store_explicit(&own->remote, 0, memory_order_release);
	gcp_rank_drop(GCP_RANK_CACHE);
}
