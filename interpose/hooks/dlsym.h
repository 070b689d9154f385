/* SPDX-License-Identifier: MIT */
/*
 * dlsym.h - the C half of the dlsym stub (dlsym.S): dlsym_next.c and, of each library
 * that has a stub, gcp_dlsym_route; and that of exports_stubs.S: linked.c,
 * hooks_launch.c.
 */
#ifndef GCP_INTERPOSE_DLSYM_H
#define GCP_INTERPOSE_DLSYM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../base/elfwalk.h"

/* Where a call goes: to a function, or NULL, and what it returns. */
struct gcp_route {
	void *to, *answer;
};
/* A call, as gcp_call_routed keeps it: the parameters in registers and on the stack,
 * and the address to which it returns. */
struct gcp_kept {
#if defined(__x86_64__)
	uint64_t words[6], others[3];
	void *caller;
#else
	uint64_t frame;
	void *caller;
	uint64_t words[8], others[18];
#endif
	uint64_t stack[];
};
/* Of a call of dlsym, of which `number` says nothing; defined in each library that has
 * the stub. find(handle, name, caller): the answer for a name that begins with "cu";
 * NULL: the next dlsym shall answer, to the caller itself. */
struct gcp_route gcp_dlsym_route(unsigned int number, const struct gcp_kept *kept);
#define GCP_DLSYM_ROUTE(find)                                                          \
	GCP_EARLY struct gcp_route gcp_dlsym_route(unsigned int number,                \
						   const struct gcp_kept *kept)        \
	{                                                                              \
		void *handle = (void *)(uintptr_t)kept->words[0];                      \
		const char *name = (const char *)(uintptr_t)kept->words[1];            \
		bool asks = name && name[0] == 'c' && name[1] == 'u';                  \
		void *answer = asks ? find(handle, name, kept->caller) : NULL;         \
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

/* --- for exports_stubs.S -------------------------------------------------- */

/* True once it is known that all calls go to the entries. */
extern atomic_bool gcp_linked_alone __attribute__((visibility("hidden")));

/* The function that a call of a linked program goes to; `row`: in gcp_rows. */
void *gcp_linked_target(unsigned int row);

/* hooks_launch.c. what: the row (16 bits), the table (6), which word is the stream (11:
 * none). */
struct gcp_route gcp_words_hook(uint32_t what, const struct gcp_kept *kept);

#endif
