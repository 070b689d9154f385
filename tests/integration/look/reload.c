/* SPDX-License-Identifier: MIT */
/*
 * reload.c - reload LIBRARY LIBRARY: allocates in one library, which is closed, in
 * another at its place, and in the first again.
 */
#include <dlfcn.h>

#include "../preload/edge_cases.h"

int main(int argc, char **argv)
{
	static const char *const names[] = {"first_plugin", "other_plugin"};
	void *place = NULL;

	if (argc != 3)
		return 2;
	OK(cuInit(0));
	primary();
	for (int i = 0; i < 3; i++) {
		void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
		int (*function)(CUdeviceptr *) = NULL;
		CUdeviceptr p = 0;

		if (library)
			*(void **)&function = dlsym(library, names[i % 2]);
		if (!function)
			return 3;
		OK(function(&p));
		must(i == 0 || *(void **)&function == place, "one place for both");
		place = *(void **)&function;
		dlclose(library);
	}
	return wrong;
}
