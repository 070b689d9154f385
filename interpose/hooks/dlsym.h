/* SPDX-License-Identifier: MIT */
/*
 * dlsym.h - the C half of the dlsym stub (dlsym.S): dlsym_next.c and, of each library
 * that has a stub, gcp_dlsym_route; and that of exports_stubs.S: linked.c.
 */
#ifndef GCP_INTERPOSE_DLSYM_H
#define GCP_INTERPOSE_DLSYM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../base/elfwalk.h"

/* Where a call goes: to a function, or NULL, and what it returns. */
struct gcp_route {
	void *to, *answer;
};
/* Of a call of dlsym by `caller`, of which `number` says nothing; defined in each
 * library that has the stub. find(handle, name, caller): the answer for a name that
 * begins with "cu"; NULL: the next dlsym shall answer, to the caller itself. */
struct gcp_route gcp_dlsym_route(unsigned int number, void *handle, const char *name,
				 const void *caller);
#define GCP_DLSYM_ROUTE(find)                                                          \
	GCP_EARLY struct gcp_route gcp_dlsym_route(                                    \
	    unsigned int number, void *handle, const char *name, const void *caller)   \
	{                                                                              \
		bool asks = name && name[0] == 'c' && name[1] == 'u';                  \
		void *answer = asks ? find(handle, name, caller) : NULL;               \
                                                                                       \
		(void)number;                                                          \
		return (struct gcp_route){answer ? NULL : gcp_dlsym_find(), answer};   \
	}

/* The next dlsym: its caller is the one that asks. */
void *gcp_dlsym_find(void);

/* The next dlsym. This library is the caller. */
void *gcp_dlsym_ask(void *handle, const char *name);

/* The function `name` that stands behind this library in the order of look-up, or NULL.
 * As dlsym(RTLD_NEXT); dlerror says nothing of it. */
void *gcp_dlsym_next(const char *name);

/* --- linked.c, for exports_stubs.S ---------------------------------------- */

/* True once it is known that all calls go to the entries. */
extern atomic_bool gcp_linked_alone __attribute__((visibility("hidden")));

/* The function that a call of a linked program goes to; `row`: in gcp_rows. */
void *gcp_linked_target(unsigned int row);

#endif
