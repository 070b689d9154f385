/* SPDX-License-Identifier: MIT */
/*
 * dlsym.h - the C half of the dlsym stub (dlsym.S): dlsym_next.c and, of each library
 * that has a stub, gcp_dlsym_answer; and that of exports_stubs.S: linked.c.
 */
#ifndef GCP_INTERPOSE_DLSYM_H
#define GCP_INTERPOSE_DLSYM_H

#include <stdatomic.h>

/* The next dlsym, or the stub's half that finds it at the first use. */
extern void *(*gcp_dlsym_real)(void *handle, const char *name);

/* Finds the next dlsym and remembers it. */
void *gcp_dlsym_find(void);

/* Called for names that begin with "cu". 1: *ret_answer is the answer;
 * 0: the real dlsym shall answer, to the caller itself. */
int gcp_dlsym_answer(void *handle, const char *name, const void *caller,
		     void **ret_answer);

/* The next dlsym. This library is the caller. */
void *gcp_dlsym_ask(void *handle, const char *name);

/* The function `name` that stands behind this library in the order of look-up, or NULL.
 * As dlsym(RTLD_NEXT); dlerror says nothing of it. */
void *gcp_dlsym_next(const char *name);

/* The stub's first jump. */
void *gcp_dlsym_first(void *handle, const char *name);

/* --- linked.c, for exports_stubs.S ---------------------------------------- */

/* True once it is known that all calls go to the entries. */
extern atomic_bool gcp_linked_alone __attribute__((visibility("hidden")));

/* The function that a call of a linked program goes to; `row`: in gcp_rows. */
void *gcp_linked_target(unsigned int row);

#endif
