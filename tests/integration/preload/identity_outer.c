/* SPDX-License-Identifier: MIT */
/*
 * identity_outer.c - a library that wraps gcpt_shadow of the library it depends
 * on, and finds the wrapped one with RTLD_NEXT. A dlsym that loses its caller
 * gives it itself: endless recursion, stopped here.
 */
#include <dlfcn.h>

typedef const char *(*answer_fn)(void);

const char *gcpt_inner(void);
const char *gcpt_shadow(void);
const char *gcpt_outer_next_malloc(void);

const char *gcpt_shadow(void)
{
	static int depth;
	answer_fn next = (answer_fn)dlsym(RTLD_NEXT, "gcpt_shadow");

	if (depth++ > 2)
		return "found itself";
	return next ? next() : gcpt_inner();
}

const char *gcpt_outer_next_malloc(void)
{
	return dlsym(RTLD_NEXT, "malloc") ? "found" : "NULL";
}
