/* SPDX-License-Identifier: MIT */
/*
 * next_dlsym.c - another preloaded library with a dlsym, as VirtualGL's and MangoHud's:
 * it knows two names, and asks glibc's for all others.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17",
					       "GLIBC_2.2.5"};
	static void *(*real)(void *, const char *);

	for (size_t i = 0; !real && i < sizeof(versions) / sizeof(*versions); i++)
		*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	if (strcmp(name, "gcpt_of_next_dlsym") == 0 ||
	    strcmp(name, "cuMemOfNextDlsym") == 0)
		return (void *)versions;
	return real(handle, name);
}
