/* SPDX-License-Identifier: MIT */
/*
 * lock.h - the locks of the room: mutexes with a rank, and two small locks of its own.
 *
 * A thread may take a mutex only if it holds none of the same or a later rank (enum
 * gcp_rank). The ranks that a thread holds are in a bit mask of the thread. Builds with
 * assertions check it, and functions that need a lock say so (gcp_assert_held). Spin
 * locks are taken last and have no rank. The owner's lock is on the way of each
 * allocation that hits, so its rank counts only in builds with a sanitizer.
 *
 * gcp_spin guards a few instructions against all threads. It is never held over a call
 * of the driver.
 *
 * gcp_owner guards what belongs to one thread, its owner, which takes the lock at each
 * allocation and each free; remote threads come once in a while (memory is out, a
 * thread asks for statistics) and pay for both. It is Dekker's:
 *
 *      owner                               remote thread
 *      inside = 1                          remote = 1
 *      full barrier                        full barrier
 *      remote? then wait, and again        wait while inside
 *
 * One word of the process says whether any owner has a remote thread to look for.
 * Each writes before it reads, so at least one of the two sees the other. A full
 * barrier costs the owner more than all the rest of an allocation that hits, so the
 * owner executes none: it only keeps the order of its instructions, and the remote
 * thread makes every running thread of the process execute a full barrier
 * (membarrier(2)) between its own write and read. Where in the owner's program the
 * barrier strikes does not matter: before the owner reads `remote`, and it sees the
 * remote thread; or after, and then its write of `inside` was before it too, and the
 * remote thread sees it. Where the kernel refuses membarrier, which the first remote
 * thread finds out, or a later one behind a filter of system calls, all owners execute
 * a barrier from now on, and that thread waits once for what they have begun.
 *
 * A mutex that is held over calls of the driver defers the end of its holder.
 */
#ifndef GCP_POOL_LOCK_H
#define GCP_POOL_LOCK_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GCP_LINE = 128 }; /* bytes: what one thread writes and all read apart */

/* --- the end of a thread ----------------------------------------------------------
 *
 * No thread ends by pthread_cancel inside the library while it holds what others need:
 * a lock, a waiter's place at a fence, a pin. The library itself sleeps with gcp_sleep.
 * Calls of the driver, of files and the like may be cancellation points: where they are
 * made under a lock the end is deferred. */

/* Puts errno back at the end of the block. */
#define GCP_KEEP_ERRNO                                                                 \
	int kept_errno __attribute__((cleanup(gcp_errno_restore), unused)) = errno
static inline void gcp_errno_restore(const int *kept)
{
	errno = *kept;
}

/* Until gcp_cancel_restore, which gets what the first one gave, a cancellation of the
 * calling thread stays pending. They nest, and the inner ones cost nothing; errno
 * stays. */
int gcp_cancel_defer(void);
void gcp_cancel_restore(const int *state);
/* From here to the end of the block. */
#define GCP_CANCEL_LATER                                                               \
	int cancel __attribute__((cleanup(gcp_cancel_restore))) = gcp_cancel_defer()

/* Sleeps for `ns` nanoseconds, less if a signal comes. No cancellation point; errno
 * stays. */
void gcp_sleep(uint64_t ns);

/* --- ranks ---------------------------------------------------------------------- */

/* In the order in which they may be taken. What each guards stands where it is
 * defined: capture_types.h, pool_types.h, pinned_types.h, and the file named here. */
enum gcp_rank {
	GCP_RANK_HANDLES, /* handles.c, which is in a library of its own */
	GCP_RANK_SLEEP,   /* sleep.c */
	GCP_RANK_START,   /* process_life.c */
	GCP_RANK_STUBS,
	GCP_RANK_ASIDE,
	GCP_RANK_RUNTIME,
	GCP_RANK_SERVER,
	GCP_RANK_ASKING,
	GCP_RANK_IMPORTS,
	GCP_RANK_SPILL,
	GCP_RANK_PASSED,
	GCP_RANK_TRACKER,  /* tracker->lock */
	GCP_RANK_VMM,      /* pools->vmm_lock */
	GCP_RANK_REGISTRY, /* pools->registry_lock */
	GCP_RANK_CACHE,    /* cache->own */
	GCP_RANK_POOL,     /* pool->lock */
	GCP_RANK_PINNED,   /* pinned->lock */
	GCP_RANK_FENCE,    /* pools->fence_lock */
	GCP_RANK_CONTEXTS, /* contexts.c */
	GCP_RANK_ASYNC_POOLS,
	GCP_RANK_RESOLVE,
	GCP_RANK_NOTED,
	GCP_RANK_DEBUG,
	GCP_RANK_DEBUG_STAGE, /* from here on all over calls */
	GCP_RANK_TRACE_STACKS,
	GCP_RANK_TRACE_FILE,
	GCP_RANKS,
};
static_assert(GCP_RANKS <= 64, "a bit of the mask for each");

/* Those that may be held over calls of the driver, of files and the like. Some of these
 * calls are cancellation points, so the end of the holder is deferred. */
#define GCP_RANK_BIT(rank) (1ull << GCP_RANK_##rank)
#define GCP_RANKS_OVER_CALLS                                                           \
	(GCP_RANK_BIT(SLEEP) | GCP_RANK_BIT(ASIDE) | GCP_RANK_BIT(SERVER) |            \
	 GCP_RANK_BIT(ASKING) | GCP_RANK_BIT(SPILL) | GCP_RANK_BIT(TRACKER) |          \
	 GCP_RANK_BIT(VMM) | GCP_RANK_BIT(REGISTRY) | GCP_RANK_BIT(FENCE) |            \
	 GCP_RANK_BIT(CONTEXTS) | GCP_RANK_BIT(ASYNC_POOLS) | GCP_RANK_BIT(RESOLVE) |  \
	 ~0ull << GCP_RANK_DEBUG_STAGE)

/* A bit for each rank that the thread holds. */
extern __thread uint64_t gcp_ranks_held __attribute__((tls_model("initial-exec")));

#define gcp_assert_held(rank)    assert(gcp_ranks_held >> (rank)&1)
#define gcp_assert_driver_call() assert((gcp_ranks_held & ~GCP_RANKS_OVER_CALLS) == 0)

static inline void gcp_rank_take(enum gcp_rank rank)
{
	assert(gcp_ranks_held >> rank == 0 && "locks are taken in the order of ranks");
	gcp_ranks_held |= 1ull << rank;
}

static inline void gcp_rank_drop(enum gcp_rank rank)
{
	gcp_assert_held(rank);
	gcp_ranks_held &= ~(1ull << rank);
}

/* --- gcp_mutex ------------------------------------------------------------------ */

struct gcp_mutex {
	pthread_mutex_t mutex;
	enum gcp_rank rank; /* constant */
};

/* The initial value of a variable; those of gcp_mutex_init have none. */
#define GCP_MUTEX(rank_)                                                               \
	{                                                                              \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (rank_)                    \
	}

/* One under which some hundred instructions run spins for a moment before it sleeps
 * (POOL, PINNED, FENCE): to be woken costs ten times as much as it is held. */
void gcp_mutex_init(struct gcp_mutex *mutex, enum gcp_rank rank);

void gcp_mutex_lock(struct gcp_mutex *mutex);
void gcp_mutex_unlock(struct gcp_mutex *mutex);

/* Holds the mutex from here to the end of the block. */
#define GCP_LOCKED(mutex)                                                              \
	struct gcp_mutex *locked __attribute__((cleanup(gcp_mutex_leave), unused)) =   \
	    (gcp_mutex_lock(mutex), (mutex))
static inline void gcp_mutex_leave(struct gcp_mutex *const *mutex)
{
	gcp_mutex_unlock(*mutex);
}

/* --- waiting -------------------------------------------------------------------- */

/* A short sleep, or none: of a thread that waits for another one's few instructions,
 * the n-th time (from 0 on). */
void gcp_pause(int turn);

/* Calls `step` in a thread that ends the process. Returns false if it has waited for
 * another thread's lock for about a second and was left there, with what it held: the
 * holder may never go on. A signal handler has interrupted it and stays, or has called
 * exit, or a call of the driver does not return. */
bool gcp_end_step(void (*step)(void));

/* --- gcp_spin ------------------------------------------------------------------- */

struct gcp_spin {
	_Atomic uint32_t taken;
};
void gcp_spin_wait(struct gcp_spin *spin);

static inline void gcp_spin_lock(struct gcp_spin *spin)
{
	if (atomic_exchange_explicit(&spin->taken, 1, memory_order_acquire) != 0)
		gcp_spin_wait(spin);
}

static inline void gcp_spin_unlock(struct gcp_spin *spin)
{
	atomic_store_explicit(&spin->taken, 0, memory_order_release);
}

/* --- gcp_owner ------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GCP_OWNERS_HAVE_RANK = 1 };
#else
enum { GCP_OWNERS_HAVE_RANK = 0 };
#endif

/* All zero: free. */
struct gcp_owner {
	_Atomic uint32_t inside; /* the owner is; written by the owner */
	_Atomic uint32_t remote; /* a remote thread is; written by remote threads, which
				  * exclude each other: pools->registry_lock */
};

/* How many owners are announced, and one more where the kernel has no membarrier for
 * them: then all go the long way. */
extern _Atomic uint32_t gcp_owners_disturbed __attribute__((visibility("hidden")));

/* The long way, which waits. */
void gcp_owner_enter(struct gcp_owner *own);

/* For the owner. Returns false if it has to take the long way: gcp_owner_lock. */
static inline bool gcp_owner_try(struct gcp_owner *own)
{
	atomic_store_explicit(&own->inside, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* looked at behind the write */
	if (__builtin_expect(
		atomic_load_explicit(&gcp_owners_disturbed, memory_order_acquire), 0)) {
		atomic_store_explicit(&own->inside, 0, memory_order_release);
		return false;
	}
	if (GCP_OWNERS_HAVE_RANK)
		gcp_rank_take(GCP_RANK_CACHE);
	return true;
}

static inline void gcp_owner_lock(struct gcp_owner *own)
{
	if (!gcp_owner_try(own))
		gcp_owner_enter(own);
}

static inline void gcp_owner_unlock(struct gcp_owner *own)
{
	atomic_store_explicit(&own->inside, 0, memory_order_release);
	if (GCP_OWNERS_HAVE_RANK)
		gcp_rank_drop(GCP_RANK_CACHE);
}

/* Registers the process with the kernel, as the first barrier does otherwise. Takes
 * less than a microsecond in a process with one thread, 4 to 30 ms in one with several.
 */
void gcp_remote_prepare(void);
/* For threads other than the owner. Called with pools->registry_lock held, the last two
 * with GCP_RANK_CACHE taken. To lock several owners, announce each, set one barrier for
 * all, then lock each: an announced owner waits until it is unlocked. */
void gcp_remote_announce(struct gcp_owner *own);
void gcp_remote_barrier(void);
void gcp_remote_lock(struct gcp_owner *own);
void gcp_remote_unlock(struct gcp_owner *own);

#endif
