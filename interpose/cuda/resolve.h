/* SPDX-License-Identifier: MIT */
/*
 * resolve.h - the real functions of libcuda, and which hook stands for which.
 *
 * libcuda is found where the program has loaded it; it is never loaded by us.
 * May run before cuInit and inside dlsym: calls no CUDA function but
 * cuGetProcAddress.
 */
#ifndef GCP_INTERPOSE_RESOLVE_H
#define GCP_INTERPOSE_RESOLVE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "symbols.h"

/* NULL where the driver is too old to have it. Constant once resolved. */
struct gcp_real {
#define GCP_X(name, ...) CUresult(*name) GCP_PARAMETERS_##name;
	GCP_DRIVER_HOOKS(GCP_X)
	GCP_DRIVER_USED(GCP_X)
#undef GCP_X
};

extern struct gcp_real gcp_real;

/* gcp_real is filled. */
extern atomic_bool gcp_resolve_done;

/* Fills gcp_real, once the program has loaded libcuda. Calls begins() before that, each
 * time and without a lock, and resolved() before any other thread can use it. False:
 * not yet; also while the calling thread is resolving. For gcp_resolve of
 * process_life.h. */
bool gcp_resolve_all(void (*begins)(void), void (*resolved)(void));

/* Whether all functions marked GCP_REQUIRED are there. */
bool gcp_resolve_complete(void);

/* Whether `name` is exactly the name of a hooked driver function. */
bool gcp_resolve_hooked(const char *name);

/* The real function of that name if it is hooked, or NULL. */
void *gcp_resolve_real(const char *name);

/* Any function that libcuda exports, or NULL. Once gcp_resolve() is true. */
void *gcp_resolve_symbol(const char *name);

/* The hook of the real function `fn`; `fn` itself if it is not hooked. */
void *gcp_resolve_hook(void *fn);

/* Whether `address` lies in libcuda. */
bool gcp_resolve_in_driver(const void *address);

/* In the child of a fork, while no other thread exists. */
void gcp_resolve_after_fork(void);

#endif
