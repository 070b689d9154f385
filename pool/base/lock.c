/* SPDX-License-Identifier: MIT */
/*
 * lock.c - mutexes, and the slow halves of lock.h: waiting, and the remote lock. The
 * end of a thread by pthread_cancel is deferred with any lock held, or none.
 */
#include "lock.h"

#include <sched.h>
#include <setjmp.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/membarrier.h>

__thread uint64_t gcp_ranks_held __attribute__((tls_model("initial-exec")));
static __thread jmp_buf *gives_up __attribute__((tls_model("initial-exec")));

/* --- the end of a thread ------------------------------------------------------- */

/* How often it is deferred, and the state before that. */
static __thread int deferred __attribute__((tls_model("initial-exec")));
static __thread int before __attribute__((tls_model("initial-exec")));

int gcp_cancel_defer(void)
{
	if (deferred++ == 0)
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

void gcp_cancel_restore(const int *state __attribute__((unused)))
{
	if (--deferred == 0)
		(void)pthread_setcancelstate(before, NULL);
}

/* --- mutexes ---------------------------------------------------------------- */

/* Not by pthread_mutexattr_settype, which is not in libc.so.6 before glibc 2.34. */
void gcp_mutex_init(struct gcp_mutex *mutex, enum gcp_rank rank)
{
	const pthread_mutex_t spins = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

	*mutex = (struct gcp_mutex)GCP_MUTEX(rank);
	if (rank == GCP_RANK_POOL || rank == GCP_RANK_PINNED || rank == GCP_RANK_FENCE)
		mutex->mutex = spins;
}

/* It has been in libc.so.6 since glibc 2.34, and in libpthread before, which a program
 * may lack: then it is NULL. */
#pragma weak pthread_mutex_trylock
#if defined(__x86_64__)
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.2.5");
#else
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.17");
#endif

void gcp_mutex_lock(struct gcp_mutex *mutex)
{
	if (GCP_RANKS_OVER_CALLS >> mutex->rank & 1)
		gcp_cancel_defer();
	gcp_rank_take(mutex->rank);
	if (!gives_up || !pthread_mutex_trylock)
		pthread_mutex_lock(&mutex->mutex);
	else
		for (int turn = 0; pthread_mutex_trylock(&mutex->mutex) != 0; turn++)
			gcp_pause(turn);
}

void gcp_mutex_unlock(struct gcp_mutex *mutex)
{
	bool defers = GCP_RANKS_OVER_CALLS >> mutex->rank & 1;

	pthread_mutex_unlock(&mutex->mutex);
	gcp_rank_drop(mutex->rank);
	if (defers)
		gcp_cancel_restore(NULL);
}

/* --- waiting -------------------------------------------------------------- */

/* The system call itself: nanosleep of libc is a cancellation point. */
void gcp_sleep(uint64_t ns)
{
	const struct timespec interval = {.tv_sec = (time_t)(ns / 1000000000),
					  .tv_nsec = (long)(ns % 1000000000)};
	GCP_KEEP_ERRNO;

	(void)syscall(SYS_nanosleep, &interval, NULL);
}

/* The thread that is waited for needs some ten instructions more; if it is not done
 * within a moment it was descheduled, and sleeping lets it run whatever the priorities
 * of the two threads are. */
void gcp_pause(int turn)
{
	if (turn > 10000 && gives_up)
		longjmp(*gives_up, 1);
	if (turn < 100) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	} else if (turn < 200) {
		sched_yield();
	} else {
		gcp_sleep(50 * 1000);
	}
}

/* A signal handler that ends the process may have interrupted a holder of ranks. */
bool gcp_end_step(void (*step)(void))
{
	jmp_buf late;
	bool in_time = setjmp(late) == 0;

	gives_up = in_time ? &late : NULL;
	gcp_ranks_held = 0;
	if (in_time)
		step();
	gives_up = NULL;
	return in_time;
}

void gcp_spin_wait(struct gcp_spin *spin)
{
	for (int turn = 0;
	     atomic_load_explicit(&spin->taken, memory_order_relaxed) != 0 ||
	     atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) != 0;
	     turn++)
		gcp_pause(turn);
}

/* The owner steps back until the remote thread is gone, and tries again. */
void gcp_owner_enter(struct gcp_owner *own)
{
	for (;;) {
		atomic_store_explicit(&own->inside, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(&own->remote, memory_order_acquire) == 0)
			break;
		atomic_store_explicit(&own->inside, 0, memory_order_release);
		for (int turn = 0;
		     atomic_load_explicit(&own->remote, memory_order_acquire) != 0;
		     turn++)
			gcp_pause(turn);
	}
	if (GCP_OWNERS_HAVE_RANK)
		gcp_rank_take(GCP_RANK_CACHE);
}

/* --- remote lock ------------------------------------------------------------- */

_Atomic uint32_t gcp_owners_disturbed;
static _Atomic bool refused; /* by the kernel; written under registry_lock */

void gcp_remote_prepare(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0);
}

static bool barrier_everywhere(void)
{
	GCP_KEEP_ERRNO;

	gcp_remote_prepare();
	return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;
}

void gcp_remote_announce(struct gcp_owner *own)
{
	gcp_assert_held(GCP_RANK_REGISTRY);
	atomic_store_explicit(&own->remote, 1, memory_order_seq_cst);
	atomic_fetch_add(&gcp_owners_disturbed, 1);
}

/* If the kernel refuses membarrier, owners execute a barrier from now on. For one that
 * has looked before there is only time: writes wait in a store buffer, which drains in
 * less than a microsecond. */
void gcp_remote_barrier(void)
{
	if (!atomic_load(&refused) && !barrier_everywhere()) {
		atomic_store(&refused, true);
		atomic_fetch_add(&gcp_owners_disturbed, 1);
		gcp_sleep(10 * 1000 * 1000);
	}
	atomic_thread_fence(memory_order_seq_cst);
}

void gcp_remote_lock(struct gcp_owner *own)
{
	gcp_assert_held(GCP_RANK_REGISTRY);
	gcp_assert_held(GCP_RANK_CACHE);
	assert(atomic_load(&own->remote) > 0);
	for (int turn = 0;
	     atomic_load_explicit(&own->inside, memory_order_acquire) != 0; turn++)
		gcp_pause(turn);
}

void gcp_remote_unlock(struct gcp_owner *own)
{
	assert(atomic_load(&gcp_owners_disturbed) > atomic_load(&refused));
	atomic_store_explicit(&own->remote, 0, memory_order_release);
	atomic_fetch_sub(&gcp_owners_disturbed, 1);
}
