/* SPDX-License-Identifier: MIT */
/*
 * learns_user.c - a library that was linked with cudart alone, and so calls cudaFree by
 * its versioned name: the wrapper of learns_wrapper.c is to see it all the same.
 */
#include <stddef.h>

int cudaMalloc(void **ret_ptr, size_t bytes);
int cudaFree(void *p);
void user_turns(int count);

__attribute__((visibility("default"))) void user_turns(int count)
{
	for (int i = 0; i < count; i++) {
		void *p = NULL;

		if (cudaMalloc(&p, 4096) == 0)
			(void)cudaFree(p);
	}
}
