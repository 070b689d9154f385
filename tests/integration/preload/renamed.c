/* SPDX-License-Identifier: MIT */
/*
 * renamed.c - a library that is loaded for itself alone, and is linked with a cudart
 * under another name, as packages for PyPI carry one.
 *
 *   renamed LIBRARY    0: its calls work, and the pool serves them
 */
#include <dlfcn.h>
#include <stdio.h>

#include "../../../interpose/gcpool.h"

static unsigned long long allocations(void)
{
	struct gcpool_stats stats = {0};
	__typeof__(gcpool_get_stats) *get;

	*(void **)&get = dlsym(RTLD_DEFAULT, "gcpool_get_stats");
	return get && get(0, &stats, sizeof(stats)) == 0 ? stats.allocation.allocated
							 : 0;
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*calls)(void);
	int result;

	if (!library) {
		printf("%s\n", dlerror());
		return 2;
	}
	*(void **)&calls = dlsym(library, "renamed_calls");
	result = calls();
	printf("cudart gives %d, the pool served %llu allocations\n", result,
	       allocations());
	return result != 0 || allocations() != 2;
}
