/* SPDX-License-Identifier: MIT */
/*
 * dlsym.c - which dlsym look-ups get a hook. Called by the stub in dlsym.S,
 * maybe before main, from any thread. Starts nothing and calls no CUDA function
 * but cuGetProcAddress; errno stays as it was.
 *
 * The hooks themselves are exported with a hidden symbol version: the loader
 * binds them to references of programs that are linked with libcuda, but dlsym
 * never finds them. So a look-up answers as if this library were not there, and
 * all that is left to do is to put the hook in the place of the real function:
 *
 *   given handle   ask the real dlsym (it does not look at the caller then), and
 *                  exchange the answer if it is a function of libcuda.
 *   RTLD_DEFAULT   the same; if only some library's private scope has libcuda,
 *                  which only the caller could see, the hook all the same.
 *   RTLD_NEXT      the caller is a wrapper that wants what it wraps: the hook,
 *                  so that its path and ours agree on the owner of memory.
 *                  (A second wrapper in between is passed over.)
 *   libcuda absent, or libcuda itself asks: not ours to answer; the stub jumps.
 */
#include <dlfcn.h>

#include "dlsym.h"
#include "../process/process_life.h"
#include "../cuda/unknown_calls.h"

/* Returns what the look-up finds. RTLD_NEXT and RTLD_DEFAULT find nothing where libcuda
 * is out of the caller's scope: libcuda's function then. NULL: there is none. */
static void *dlsym_real(void *handle, const char *name, void *const *slot)
{
	void *real = handle == RTLD_NEXT ? NULL : gcp_dlsym_ask(handle, name);

	if (!real && handle == RTLD_DEFAULT)
		gcp_dlsym_ask(handle, "dlsym"); /* succeeds, and so clears dlerror */
	if (!real && (handle == RTLD_NEXT || handle == RTLD_DEFAULT))
		real = slot ? *slot : gcp_resolve_symbol(name);
	return real;
}

/* A function that is hooked: its hook; or of libcuda and not known: its stub. What is
 * not there, or not libcuda's, is not ours to answer. libcuda may ask from its
 * constructor: it cannot be called then. */
static void *dlsym_answer(void *handle, const char *name, const void *caller)
{
	void *const *slot = gcp_resolve_slot(name);
	GCP_KEEP_ERRNO;
	void *real;

	if ((!slot && !gcp_unknown_call_is(name)) || gcp_resolve_in_driver(caller) ||
	    !gcp_resolve() || (slot && !*slot))
		return NULL;
	real = dlsym_real(handle, name, slot);
	if (!slot && real && gcp_resolve_in_driver(real))
		return gcp_unknown_call_wrap(name, real, false);
	return slot ? gcp_resolve_hook(real) : NULL;
}

GCP_DLSYM_ROUTE(dlsym_answer)
