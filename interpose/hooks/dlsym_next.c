/* SPDX-License-Identifier: MIT */
/*
 * dlsym_next.c - the next dlsym behind this library, which the stub in dlsym.S jumps
 * to.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "dlsym.h"
#include "../base/elfwalk.h"

/* The next dlsym behind this library: what the stub jumps to. */
void *(*gcp_dlsym_real)(void *handle, const char *name) = gcp_dlsym_first;

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
	__atomic_store_n((void **)&gcp_dlsym_real, found, __ATOMIC_RELEASE);
	return found;
}

void *gcp_dlsym_ask(void *handle, const char *name)
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
