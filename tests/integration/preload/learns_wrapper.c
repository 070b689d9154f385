/* SPDX-License-Identifier: MIT */
/*
 * learns_wrapper.c - a library that wraps cudaFree and cuMemFree for all others, as MPI
 * libraries do: it stands before cudart and libcuda, has functions of those names, and
 * calls theirs.
 */
#include <dlfcn.h>
#include <stddef.h>

int cudaFree(void *p);
int cuMemFree_v2(unsigned long long p);

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

__attribute__((visibility("default"))) int cuMemFree_v2(unsigned long long p)
{
	static int (*real)(unsigned long long);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "cuMemFree_v2");
	return real(p);
}
