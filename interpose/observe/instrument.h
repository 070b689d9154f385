/* SPDX-License-Identifier: MIT */
/*
 * instrument.h - what the files of libgcpool-observe.so share: the allocator's
 * functions, `gcp.log` for gcp_log and so on, and its ranks of locks.
 */
#ifndef GCP_INTERPOSE_INSTRUMENT_H
#define GCP_INTERPOSE_INSTRUMENT_H

#include <dlfcn.h>
#include <sys/mman.h>

#include "../base/clock.h"
#include "observer.h"

/* Set once, before anything else is called: instruments.c. */
extern struct gcp_services gcp;

/* Memory of zeros. NULL: there is none. */
static inline void *gcp_memory_map(size_t bytes, int protection)
{
	void *memory = mmap(NULL, bytes, protection,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Not in libc.so.6 before glibc 2.34, and therefore looked up. */
#define GCP_LOADER(name) (*(__typeof__(&(name)))gcp.elf_libc_symbol(#name))
#define dlopen(...)      GCP_LOADER(dlopen)(__VA_ARGS__)
#define dlsym(...)       GCP_LOADER(dlsym)(__VA_ARGS__)
#define dlclose(...)     GCP_LOADER(dlclose)(__VA_ARGS__)

/* The mask of the ranks is libgcpool.so's. */
#undef gcp_assert_held
#define gcp_assert_held(rank) assert(gcp.ranks_held() >> (rank)&1)

#undef GCP_LOCKED
#define GCP_LOCKED(mutex)                                                              \
	struct gcp_mutex *locked __attribute__((cleanup(gcp_unlock), unused)) =        \
	    (gcp.mutex_lock(mutex), (mutex))
static inline void gcp_unlock(struct gcp_mutex *const *mutex)
{
	gcp.mutex_unlock(*mutex);
}

#endif
