/* SPDX-License-Identifier: MIT */
/*
 * next_replaces.c - a library in place of libcuda, as emulators and mocks are.
 */
#include <stdlib.h>

int cuMemAlloc_v2(unsigned long long *ret_ptr, size_t bytes);
int cuMemFree_v2(unsigned long long ptr);

__attribute__((visibility("default"))) int cuMemAlloc_v2(unsigned long long *ret_ptr,
							 size_t bytes)
{
	*ret_ptr = (unsigned long long)(size_t)malloc(bytes);
	return 0;
}

__attribute__((visibility("default"))) int cuMemFree_v2(unsigned long long ptr)
{
	free((void *)(size_t)ptr);
	return 0;
}
