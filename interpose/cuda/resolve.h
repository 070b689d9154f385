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
#include <stdint.h>

#include "symbols.h"

/* NULL where the driver is too old to have it. Constant once resolved. */
struct gcp_real {
#define GCP_X(name, ...) CUresult(*name) GCP_PARAMETERS_##name;
	GCP_DRIVER_HOOKS(GCP_X)
	GCP_DRIVER_USED(GCP_X)
#undef GCP_X
};

extern struct gcp_real gcp_real __attribute__((visibility("hidden")));

/* gcp_real is filled. */
extern atomic_bool gcp_resolve_done;

/* Fills gcp_real, once the program has loaded libcuda. Calls begins() before that, each
 * time and without a lock, and resolved() before any other thread can use it. False:
 * not yet; also while the calling thread is resolving. For gcp_resolve of
 * process_life.h. */
bool gcp_resolve_all(void (*begins)(void), void (*resolved)(void));

/* Whether all functions marked GCP_REQUIRED are there. */
bool gcp_resolve_complete(void);

/* Where the real function of that name is noted, if it is hooked; or NULL. */
void *const *gcp_resolve_slot(const char *name);

/* Any function that libcuda exports, or NULL. Once gcp_resolve() is true. */
void *gcp_resolve_symbol(const char *name);

/* The hook of the real function `fn`; `fn` itself if it is not hooked. */
void *gcp_resolve_hook(void *fn);

/* Whether `address` lies in libcuda. */
bool gcp_resolve_in_driver(const void *address);

/* In the child of a fork, while no other thread exists. */
void gcp_resolve_after_fork(void);

/* --- rows ------------------------------------------------------------------------- */

/* The table of all functions that are hooked or called, in the order of symbols.h. It
 * is in exports_stubs.S: distances in place of pointers, so that the loader has nothing
 * to do for it in programs without CUDA. From the field itself to what it names. */
struct gcp_row {
	int32_t entry; /* 0: called, not hooked */
	int32_t name;
	int32_t base; /* behind those of the driver: the library's name */
	uint16_t version;
	uint8_t flags;
	uint8_t required;
};

#define GCP_X(...)          +1
#define GCP_V(tag, library) GCP_RUNTIME_HOOKS(GCP_X, tag, library)
enum {
	GCP_ROWS_DRIVER = 0 GCP_DRIVER_HOOKS(GCP_X) GCP_DRIVER_USED(GCP_X),
	GCP_ROWS = GCP_ROWS_DRIVER GCP_RUNTIMES(GCP_V),
};
#undef GCP_V
#undef GCP_X

extern const struct gcp_row gcp_rows[GCP_ROWS] __attribute__((visibility("hidden")));

/* Where the real function of a row of the driver is noted. */
static inline void **gcp_row_slot(uint32_t row)
{
	return (void **)&gcp_real + row;
}

static inline void *gcp_row_entry(const struct gcp_row *row)
{
	return row->entry ? (char *)&row->entry + row->entry : NULL;
}

static inline const char *gcp_row_name(const struct gcp_row *row)
{
	return (const char *)&row->name + row->name;
}

static inline const char *gcp_row_base(const struct gcp_row *row)
{
	return (const char *)&row->base + row->base;
}

#endif
