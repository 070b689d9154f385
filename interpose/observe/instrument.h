/* SPDX-License-Identifier: MIT */
/*
 * instrument.h - what the files of libgcpool-observe.so share: the allocator's
 * functions, `gcp.log` for gcp_log and so on, and its ranks of locks.
 */
#ifndef GCP_INTERPOSE_INSTRUMENT_H
#define GCP_INTERPOSE_INSTRUMENT_H

#include <dlfcn.h>

#include "../base/clock.h"
#include "observer.h"

/* Set once, before anything else is called: instruments.c. */
extern struct gcp_services gcp;

static inline uint64_t gcp_clock_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Not in libc.so.6 before glibc 2.34, and therefore looked up. */
#define GCP_LOADER(name) (*(__typeof__(&(name)))gcp.elf_libc_symbol(#name))
#define dlopen(...)      GCP_LOADER(dlopen)(__VA_ARGS__)
#define dlsym(...)       GCP_LOADER(dlsym)(__VA_ARGS__)
#define dlclose(...)     GCP_LOADER(dlclose)(__VA_ARGS__)

/* The mask of the ranks is libgcpool.so's. */
#undef gcp_assert_held
#define gcp_assert_held(rank) assert(gcp.ranks_held() >> (rank)&1)

#endif
