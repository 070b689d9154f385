/* SPDX-License-Identifier: MIT */
/*
 * dlsym_next.c - the next dlsym behind this library, to which the stub in dlsym.S goes
 * where this library has no answer.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "dlsym.h"
#include "../base/elfwalk.h"

/* Not the next dlsym: what is behind this library only glibc's own can tell. */
GCP_EARLY void *gcp_dlsym_next(const char *name)
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

/* Remembered from the first call on. */
GCP_EARLY void *gcp_dlsym_find(void)
{
	static void *real;
	void *found = __atomic_load_n(&real, __ATOMIC_RELAXED);

	if (found)
		return found;
	found = gcp_dlsym_next("dlsym");
	if (!found) /* this library was loaded late */
		found = gcp_elf_libc_symbol("dlsym");
	__atomic_store_n(&real, found, __ATOMIC_RELAXED);
	return found;
}

void *gcp_dlsym_ask(void *handle, const char *name)
{
	void *(*real)(void *, const char *);

	*(void **)&real = gcp_dlsym_find();
	return real(handle, name);
}
