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
 *   handles        of cuBLAS, cuDNN, ...: only if GCPOOL_HANDLES wants them.
 *   libcuda absent, or libcuda itself asks: not ours to answer; the stub jumps.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "dlsym.h"
#include "../base/elfwalk.h"
#include "../handles/handles_library.h"
#include "../process/process_life.h"
#include "../cuda/resolve.h"
#include "../cuda/unknown_calls.h"

/* The next dlsym behind this library: what the stub jumps to. */
void *(*gcp_dlsym_real)(void *handle, const char *name) = gcp_dlsym_first;

/* A process without any dlsym cannot get here; be polite nevertheless. */
GCP_EARLY static void *dlsym_absent(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

/* Not the next one: what is behind this library only glibc's own can tell. */
GCP_EARLY static void *libc_next(const char *name)
{
	static void *(*libc_dlsym)(void *, const char *);
	void *found = __atomic_load_n((void **)&libc_dlsym, __ATOMIC_RELAXED);

	if (!found)
		found = gcp_elf_libc_symbol("dlsym");
	if (!found)
		return NULL;
	__atomic_store_n((void **)&libc_dlsym, found, __ATOMIC_RELAXED);
	found = libc_dlsym(RTLD_NEXT, name);
	if (!found)
		libc_dlsym(RTLD_DEFAULT, "dlsym"); /* succeeds: dlerror is clear */
	return found;
}

GCP_EARLY void *gcp_dlsym_find(void)
{
	void *found = libc_next("dlsym");

	if (!found) /* this library was loaded late */
		found = gcp_elf_libc_symbol("dlsym");
	if (!found)
		found = (void *)dlsym_absent;
	__atomic_store_n((void **)&gcp_dlsym_real, found, __ATOMIC_RELEASE);
	return found;
}

static void *dlsym_ask(void *handle, const char *name)
{
	void *(*real)(void *, const char *) =
	    __atomic_load_n(&gcp_dlsym_real, __ATOMIC_ACQUIRE);

	return real(handle, name);
}

void *gcp_dlsym_next(const char *name)
{
	int saved = errno;
	void *found = libc_next(name);

	errno = saved;
	return found;
}

/* A function of libcuda that is not known: its stub. What is not
 * there, or not libcuda's, is not ours to answer. */
static int dlsym_unknown(void *handle, const char *name, void **ret_answer)
{
	void *real = NULL;

	if (!gcp_resolve())
		return 0;
	if (handle != RTLD_NEXT)
		real = dlsym_ask(handle, name);
	if (!real && (handle == RTLD_NEXT || handle == RTLD_DEFAULT))
		real = gcp_resolve_symbol(name);
	if (!real || !gcp_resolve_in_driver(real))
		return 0;
	*ret_answer = gcp_unknown_call_wrap(name, real, false);
	return 1;
}

/* Handles of cuBLAS, cuDNN, ...: only what the real dlsym gives the caller is
 * exchanged; all else, a miss and RTLD_NEXT too, it answers itself. */
static int dlsym_answer_handles(void *handle, const char *name, const void *caller,
				void **ret_answer)
{
	int saved = errno;
	void *hook = NULL;

	if (handle != RTLD_NEXT && gcp_handles_mode() != GCP_HANDLES_OFF)
		hook = gcp_handles_hook(name, dlsym_ask(handle, name), caller);
	*ret_answer = hook;
	errno = saved;
	return hook != NULL;
}

int gcp_dlsym_answer(void *handle, const char *name, const void *caller,
		     void **ret_answer)
{
	int saved = errno;
	void *real = NULL;
	int answered = 0;

	if (!gcp_resolve_hooked(name) && gcp_unknown_call_is(name) &&
	    !gcp_resolve_in_driver(caller))
		answered = dlsym_unknown(handle, name, ret_answer);
	if (answered) {
		errno = saved;
		return 1;
	}
	if (gcp_handles_named(name))
		return dlsym_answer_handles(handle, name, caller, ret_answer);
	/* libcuda may ask from its constructor: it cannot be called then. */
	if (!gcp_resolve_hooked(name) || gcp_resolve_in_driver(caller) ||
	    !gcp_resolve() || !gcp_resolve_real(name)) {
		errno = saved;
		return 0;
	}
	if (handle != RTLD_NEXT)
		real = dlsym_ask(handle, name);
	if (!real && handle == RTLD_DEFAULT)
		dlsym_ask(handle, "dlsym"); /* succeeds, and so clears dlerror */
	if (!real && (handle == RTLD_NEXT || handle == RTLD_DEFAULT))
		real = gcp_resolve_real(name);
	*ret_answer = gcp_resolve_hook(real);
	errno = saved;
	return 1;
}
