/* SPDX-License-Identifier: MIT */
/*
 * peers.h - what peers.cpp and the allocators that it compares have in common.
 *
 * The process runs under LD_PRELOAD=libgcpool.so. The program itself, its cudart
 * included, is hooked as any other. Everything else comes in shared objects that
 * are opened with RTLD_DEEPBIND, and sees plain CUDA: peers_cuda.cu is therefore
 * built twice, into the program and into one of those.
 */
#ifndef GCP_TESTS_BENCH_PEERS_H
#define GCP_TESTS_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA through one of the two cudarts. Any thread; results are cudaError_t. */
struct peers_cuda {
	int (*start)(void); /* the device's context, and allocators that need one */
	int (*alloc)(void **ret_ptr, size_t bytes);
	int (*free)(void *ptr);
	int (*stream_create)(void **ret_stream);
	int (*stream_destroy)(void *stream);
	int (*launch)(void *ptr, void *stream); /* some microseconds, writes to ptr */
	int (*device_sync)(void);
};

/* An allocator. alloc and free may be called by any thread, free also by another
 * one than alloc, with the stream that the memory was allocated for. */
struct peer {
	const char *name;
	int (*alloc)(void **ret_ptr, size_t bytes, void *stream); /* 0: done */
	int (*free)(void *ptr, size_t bytes, void *stream);
	size_t (*reserved)(void); /* bytes taken from CUDA; NULL: just what is in use */
	void (*reset)(void);      /* gives back what is cached; NULL: nothing is */
};

/* Of peers_cuda.cu: its cudart, and the peers that are made of it. The list ends
 * with a peer without a name. */
const struct peers_cuda *peers_cuda(void);
const struct peer *peers_of_cuda(void);

/* Of peers_library.cpp: opens the shared cudart, which must happen before another does
 * with RTLD_DEEPBIND, for only then its look-ups find the library. False: there is
 * none. Then the ways to the library, none if it is not preloaded; and how many
 * allocations it has served. */
bool peers_library_cudart(void);
const struct peer *peers_of_library(void);
unsigned long long peers_library_allocations(void);

/* Of each other shared object. `plain` is for memory of CUDA's own. */
const struct peer *peer_open(const struct peers_cuda *plain);

#ifdef __cplusplus
}
#endif

#endif
