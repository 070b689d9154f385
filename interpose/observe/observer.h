/* SPDX-License-Identifier: MIT */
/*
 * observer.h - what libgcpool.so and libgcpool-observe.so know of each other.
 *
 * The instruments (recordings, the live view, GCPOOL_DEBUG) are a library of
 * their own, which process/observe.c loads when an option asks for one of them. The
 * allocator calls a table of functions, struct gcp_observer, and gives the library
 * another one, struct gcp_services.
 *
 * Nothing of it is on the way of a hit when nothing observes: the live view does not. A
 * recording and GCPOOL_DEBUG do. Then the three places at which a hit looks for
 * something rare all find something, and come here:
 *
 *   the entry (exports.c)      gcp_process.special, which else says only "passive"
 *   an allocation              gcp_process.alloc_asks, which else is the tracker's
 *   a free                     gcp_thread.free_direct, which is never set then
 *
 * and the short cut of hooks_runtime.c is never taken, for runtime_confirmed is never
 * set.
 */
#ifndef GCP_INTERPOSE_OBSERVER_H
#define GCP_INTERPOSE_OBSERVER_H

#include "../base/elfwalk.h"
#include "../base/process.h"
#include "../base/process_identity.h"
#include "../cuda/contexts.h"
#include "../cuda/ctx_scope.h"
#include "../cuda/resolve.h"
#include "../gcpool.h"
#include "../statistics/report.h"
#include "trace_format.h"

/* In which stream a block is used first or last. */
struct gcp_observed_order {
	bool async;
	bool known; /* the library reuses memory in the order of this stream */
	void *stream;
};

/* gcp_process.instruments: load, device, occasion and end are called. The
 * others where `events` says so: gcp_process.observer is the same table then. None is
 * called before gcpool_observe has returned, and in a forked child. But for driver and
 * margin they may take locks and call CUDA, and no lock of the pools is held. */
struct gcp_observer {
	bool events; /* a recording or GCPOOL_DEBUG */
	/* Once, with no lock held: what has to be loaded. */
	void (*load)(void);
	/* Once: what pool/ is to see of the driver. */
	void (*driver)(struct gcp_driver *driver);
	/* A device is used for the first time. */
	void (*device)(int device, const struct gcp_gpu *gpu);
	/* The bytes that an allocation of now should have behind it. */
	uint64_t (*margin)(void);
	/* The program is given a block. */
	void (*allocated)(gcp_addr addr, struct gcp_observed_order order);
	/* Before the real free: another thread may be given the block at once. */
	void (*freeing)(gcp_addr addr, struct gcp_observed_order order);
	/* From time to time, in the library's thread (GCPOOL_THREAD). */
	void (*occasion)(void);
	/* All else that a recording has, of the thread's device. Of passed calls `arg`
	 * is when they began. A context may be used already. */
	void (*call)(enum gcp_trace_kind kind, uint64_t addr, uint64_t bytes,
		     uint64_t arg, uint32_t more);
	/* The process ends. quietly: no lock may be taken. */
	void (*end)(bool quietly);
};

/* Functions gcp_... of the allocator, by what follows. */
#define GCP_SERVICES(X)                                                                \
	X(contexts_release_stream)                                                     \
	X(ctx_scope_begin)                                                             \
	X(ctx_scope_end)                                                               \
	X(elf_at)                                                                      \
	X(elf_libc_symbol)                                                             \
	X(errno_words)                                                                 \
	X(log)                                                                         \
	X(mutex_lock)                                                                  \
	X(mutex_unlock)                                                                \
	X(path_open)                                                                   \
	X(pinned_find)                                                                 \
	X(pools_blocks)                                                                \
	X(pools_device_max)                                                            \
	X(pools_exporter)                                                              \
	X(pools_held)                                                                  \
	X(pools_stats)                                                                 \
	X(pools_unheld)                                                                \
	X(pools_wait_before_free)                                                      \
	X(process_capturing)                                                           \
	X(process_namespace)                                                           \
	X(process_program)                                                             \
	X(process_start_time)                                                          \
	X(report_add)                                                                  \
	X(report_uuid)                                                                 \
	X(text_add)                                                                    \
	X(text_add_bytes)                                                              \
	X(text_add_path)                                                               \
	X(text_init)                                                                   \
	X(text_write)

struct gcp_services {
	const struct gcp_process *process;
	const struct gcp_real *real;
	/* Serves a request of live.h; `said` may get a sentence. 0, or an errno. */
	int (*request)(uint32_t kind, int device, uint64_t argument,
		       uint64_t *ret_answer, struct gcp_text *said);
	/* Of the calling thread: lock.h, process.h. */
	uint64_t (*ranks_held)(void);
	int (*device)(void);
#define GCP_X(name) __typeof__(gcp_##name) *name;
	GCP_SERVICES(GCP_X)
#undef GCP_X
};

/* Differs where the two libraries do not fit together. */
#define GCP_OBSERVE_VERSION                                                            \
	((uint64_t)GCPOOL_VERSION << 32 |                                              \
	 (sizeof(struct gcp_observer) + sizeof(struct gcp_services) +                  \
	  sizeof(struct gcp_process) + sizeof(struct gcp_real) +                       \
	  sizeof(struct gcp_driver) + sizeof(struct gcp_stats)))

/* What libgcpool-observe.so exports. Called once, before the pools are made: starts
 * what the options ask for. *ret_observer: NULL if nothing observes. Returns false if
 * the library is of another version than the caller, and does nothing then. */
#define GCP_OBSERVE_ENTRY "gcpool_observe"
bool gcpool_observe(uint64_t version, const struct gcp_services *services,
		    const struct gcp_observer **ret_observer);

/* --- for the hooks ----------------------------------------------------------- */

static inline void gcp_observe_call(enum gcp_trace_kind kind, uint64_t addr,
				    uint64_t bytes, uint64_t arg, uint32_t more)
{
	if (__builtin_expect(gcp_process.observer != NULL, 0))
		gcp_process.observer->call(kind, addr, bytes, arg, more);
}

/* A free of what is freed already, or what neither the library nor CUDA knows. */
static inline void gcp_observe_free_wrong(gcp_addr addr, bool known)
{
	gcp_observe_call(GCP_TRACE_free_wrong, addr, 0, 0, known ? 1 : 2);
}

#endif
