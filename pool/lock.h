/* SPDX-License-Identifier: MIT */
/*
 * lock.h - the two small locks of the room. Neither is ever held over a call of
 * the driver, or while waiting for another lock but as pool_types.h says.
 *
 * gcp_spin guards a few instructions against everybody.
 *
 * gcp_owner guards what belongs to one thread, its owner, who takes the lock at each
 * allocation and each free; others come once in a while (memory is out, somebody
 * asks for statistics) and pay for both. It is Dekker's:
 *
 *      owner                               remote thread
 *      inside = 1                          remote = 1
 *      full barrier                        full barrier
 *      remote? then wait, and again        wait while inside
 *
 * Each writes before he reads, so at least one of the two sees the other. A full
 * barrier costs the owner more than all the rest of an allocation that hits, so on
 * x86-64 he executes none: he only keeps the order of his instructions, and the
 * remote thread makes every running thread of the process execute a full barrier
 * (membarrier(2)) between his own write and read. Where in the owner's program it
 * strikes does not matter: before he reads `remote`, and he sees the remote thread; or
 * after, and then his write of `inside` was before it too, and the remote thread sees
 * it. Elsewhere, and where the kernel refuses membarrier, the owner's barrier is his
 * own (`fenced`, which never changes).
 */
#ifndef GCP_POOL_LOCK_H
#define GCP_POOL_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A mutex under which some hundred instructions run: who finds it taken spins for a
 * moment before he sleeps, for to be woken costs ten times as much as it is held. */
void gcp_mutex_init(pthread_mutex_t *mutex);

/* --- gcp_spin ------------------------------------------------------------------ */

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

/* --- gcp_owner ------------------------------------------------------------------- */

struct gcp_owner {
	_Atomic uint32_t inside; /* the owner is; written by him */
	_Atomic uint32_t remote; /* a remote thread is; written by remote threads, who
				  * exclude each other: pools->registry_lock */
	bool fenced;             /* constant */
};

void gcp_owner_lock_init(struct gcp_owner *own);
void gcp_owner_wait(struct gcp_owner *own);

/* For the owner. */
static inline void gcp_owner_lock(struct gcp_owner *own)
{
	atomic_store_explicit(&own->inside, 1, memory_order_relaxed);
	if (__builtin_expect(own->fenced, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(
		atomic_load_explicit(&own->remote, memory_order_acquire) != 0, 0))
		gcp_owner_wait(own);
}

static inline void gcp_owner_unlock(struct gcp_owner *own)
{
	atomic_store_explicit(&own->inside, 0, memory_order_release);
}

/* For others, who hold pools->registry_lock all the while. */
void gcp_remote_lock(struct gcp_owner *own);
void gcp_remote_unlock(struct gcp_owner *own);

#endif
