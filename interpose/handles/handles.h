/* SPDX-License-Identifier: MIT */
/*
 * handles.h - what the three parts of libgcpool-handles.so share: entries.c is what the
 * program calls, handles.c keeps the handles, library.c knows the libraries that they
 * are of.
 *
 * The library is preloaded beside libgcpool.so, and knows of it gcpool.h alone. It
 * never loads a library and never initialises CUDA: a handle is created by its library
 * itself, on the program's call. No lock is held over a call of the driver, of a
 * library or of libgcpool.so.
 */
#ifndef GCP_INTERPOSE_HANDLES_H
#define GCP_INTERPOSE_HANDLES_H

#include <cuda.h>

#define GCPOOL_API __attribute__((weak)) /* libgcpool.so may be missing */
#include "../gcpool.h"

#include "../base/options.h"
#include "handles_table.h"

/* In the order of GCPOOL_HANDLES' choices. */
enum gcp_handles_mode {
	GCP_HANDLES_OFF,
	GCP_HANDLES_ON,
	GCP_HANDLES_SYNC, /* a destroy waits for the device, as plain ones do */
};

enum gcp_handle_library_state {
	GCP_HANDLE_LIBRARY_UNSEEN, /* not loaded yet, or not asked for */
	GCP_HANDLE_LIBRARY_LOOKED_AT,
	GCP_HANDLE_LIBRARY_PLAIN,  /* its functions are called, nothing else */
	GCP_HANDLE_LIBRARY_POOLED, /* `real` and the accessors are valid */
};

struct gcp_handle_real {
	int (*create)(void **ret_handle);
	int (*destroy)(void *handle);
};

/* By settings[] of the kind; NULL where this version of the library has none. */
struct gcp_handle_access {
	void *getters[GCP_HANDLE_SETTINGS_MAX];
	void *setters[GCP_HANDLE_SETTINGS_MAX];
};

/* Handles of one library that are known. */
struct gcp_handle_counts {
	_Atomic uint64_t created;   /* by the library */
	_Atomic uint64_t reused;    /* creations that a free handle served */
	_Atomic uint64_t destroyed; /* by the library */
	_Atomic uint64_t used;      /* the program has them now */
	_Atomic uint64_t peak;      /* the most that it had at one time */
};

/* A library is found where the program has loaded it. Once its handles are pooled it
 * stays loaded. If two files of one soname are loaded, the row stands for the first,
 * which is the one that the loader binds by that name; the other's functions are not
 * hooked. */
struct gcp_handle_library {
	const char *soname;
	const struct gcp_handle_kind *kind;
	const char *create_name, *destroy_name;
	void *create_entry, *destroy_entry; /* what a look-up is answered with */

	_Atomic(enum gcp_handle_library_state) state;
	struct gcp_handle_real real;     /* constant once pooled */
	struct gcp_handle_access access; /* the same */
	struct gcp_handle_counts counts;

	/* handles.c, under its lock: */
	struct gcp_handle *handles; /* all that are known */
	uint64_t destroys;          /* so far */
};

/* By GCP_HANDLE_INDEX_. */
extern struct gcp_handle_library gcp_handle_libraries[];
extern const int gcp_handle_library_count;

/* --- handles.c ------------------------------------------------------------------- */

/* In place of the library's functions; the status is the library's own. */
int gcp_handles_create(struct gcp_handle_library *library, void **ret_handle);
int gcp_handles_destroy(struct gcp_handle_library *library, void *handle);

/* --- library.c ------------------------------------------------------------------- */

/* What GCPOOL_HANDLES and GCPOOL_MODE say; read once, at the first call. OFF also
 * without libgcpool.so. */
enum gcp_handles_mode gcp_handles_mode(void);

/* True if handles of this library are pooled; looks for it at the first call. The
 * caller keeps errno. */
bool gcp_handle_library_pooled(struct gcp_handle_library *library);

/* The real functions, pooled or not. False: it is not loaded. */
bool gcp_handle_library_real(const struct gcp_handle_library *library,
			     struct gcp_handle_real *ret_real);

/* A number for the variables that the libraries read when they create a handle: one
 * that was created under others is not like a new one. */
uint64_t gcp_handle_environment(void);

/* Reads the state of a handle, or sets it back to `values`. False: the library refused.
 */
bool gcp_handle_state(const struct gcp_handle_library *library, void *handle,
		      uint64_t *values, bool reset);

#endif
