/* SPDX-License-Identifier: MIT */
/*
 * handles_library.h - the libraries whose handles are pooled: one record for each
 * row of GCP_HANDLE_LIBRARIES, and the real functions behind it.
 *
 * A library is found where the program has loaded it; it is never loaded by us.
 * Once its handles are pooled it stays loaded, for handles of it are kept. If two
 * files of one soname are loaded, the row stands for the first, which is the one that
 * the loader binds by that name; the other's functions are not hooked.
 */
#ifndef GCP_INTERPOSE_HANDLES_LIBRARY_H
#define GCP_INTERPOSE_HANDLES_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../observe/call_stats.h"
#include "../cuda/handles_table.h"
#include "../cuda/symbols.h"

/* In the order of GCPOOL_HANDLES' choices. */
enum gcp_handles_mode {
	GCP_HANDLES_OFF,
	GCP_HANDLES_ON,
	GCP_HANDLES_SYNC, /* a destroy waits for the device, as plain ones do */
};

enum gcp_handle_library_state {
	GCP_HANDLE_LIBRARY_UNSEEN, /* not loaded yet, or not asked for */
	GCP_HANDLE_LIBRARY_PLAIN,  /* its functions are called, nothing else */
	GCP_HANDLE_LIBRARY_POOLED, /* `real` and the accessors are valid */
};

typedef int gcp_handle_create_fn(void **ret_handle);
typedef int gcp_handle_destroy_fn(void *handle);

struct gcp_handle_real {
	gcp_handle_create_fn *create;
	gcp_handle_destroy_fn *destroy;
};

/* By settings[] of the kind; NULL where this version of the library has none. */
struct gcp_handle_access {
	void *getters[GCP_HANDLE_SETTINGS_MAX];
	void *setters[GCP_HANDLE_SETTINGS_MAX];
};

struct gcp_handle_library {
	const char *soname;
	const struct gcp_handle_kind *kind;
	const char *create_name, *destroy_name;
	void *create_entry, *destroy_entry; /* what a look-up is answered with */

	_Atomic(enum gcp_handle_library_state) state;
	struct gcp_handle_real real;     /* constant once pooled */
	struct gcp_handle_access access; /* the same */

	/* While it is not pooled: what `real` is until a library is unloaded. */
	atomic_flag cache_busy; /* a thread looks at it; others ask the loader */
	struct gcp_handle_real cached;
	uint64_t cached_at; /* unloads so far, + 1; 0: never */

	/* The context that the library makes current when a thread has none and
	 * creates a handle; NULL: not known. */
	_Atomic(CUcontext) implied;

	struct gcp_handle_counts *counts;

	/* Why it is not pooled, until that is said. */
	char plain_reason[128];
	atomic_flag plain_said;
};

extern struct gcp_handle_library gcp_handle_libraries[];
extern const int gcp_handle_library_count;

/* What GCPOOL_HANDLES and GCPOOL_MODE say; read once. Any time, also before main. */
enum gcp_handles_mode gcp_handles_mode(void);

/* Whether handles of this library are pooled; looks for it at the first call. */
bool gcp_handle_library_pooled(struct gcp_handle_library *library);

/* The real functions, pooled or not. False: it is not loaded. */
bool gcp_handle_library_real(struct gcp_handle_library *library,
			     struct gcp_handle_real *ret_real);

/* Says at info what is in reach; called once, when this process starts to pool. */
void gcp_handle_libraries_say(void);

/* Whether `name` is a hooked function of any library. */
bool gcp_handles_named(const char *name);

/* The entry that stands for `real`, which a look-up of `name` by `caller` gave; NULL:
 * none does. */
void *gcp_handles_hook(const char *name, void *real, const void *caller);

/* No library makes it current any more. */
void gcp_handle_libraries_context_gone(CUcontext ctx);

/* In the child of a fork. */
void gcp_handle_libraries_after_fork(void);

/* A number for the variables that the libraries read when they create a handle: one
 * that was created under others is not like a new one. */
uint64_t gcp_handle_environment(void);

/* The state of a handle; false: the library refused. */
bool gcp_handle_read(const struct gcp_handle_library *library, void *handle,
		     uint64_t *ret_values);
bool gcp_handle_reset(const struct gcp_handle_library *library, void *handle,
		      const uint64_t *values);

#endif
