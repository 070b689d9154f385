/* SPDX-License-Identifier: MIT */
/*
 * learns_wrapper.c - a library that wraps cudaFree for all others, as MPI libraries do:
 * it stands before cudart, has a function of that name, and calls cudart's.
 */
#include <dlfcn.h>
#include <stddef.h>

int cudaFree(void *p);

__attribute__((visibility("default"))) long wrapper_saw;

__attribute__((visibility("default"))) int cudaFree(void *p)
{
	static int (*real)(void *);

	if (!real)
		*(void **)&real =
		    dlsym(dlopen("libcudart.so.13", RTLD_LAZY), "cudaFree");
	wrapper_saw += p != NULL;
	return real(p);
}
