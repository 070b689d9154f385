/* SPDX-License-Identifier: MIT */
/*
 * reload.c - reload LIBRARY LIBRARY: allocates in one library, which is closed, in
 * another at its place, and in the first again.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include <cuda.h>

int main(int argc, char **argv)
{
	static const char *const names[] = {"first_plugin", "other_plugin"};
	void *place = NULL;
	CUcontext ctx;
	bool wrong = argc != 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) ||
		     cuCtxSetCurrent(ctx);

	for (int i = 0; i < 3 && !wrong; i++) {
		void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
		int (*function)(CUdeviceptr *) = NULL;
		CUdeviceptr p = 0;

		if (library)
			*(void **)&function = dlsym(library, names[i % 2]);
		if (!function || function(&p))
			return 3;
		if (i > 0 && *(void **)&function != place)
			wrong = puts("WRONG: not one place for both");
		place = *(void **)&function;
		dlclose(library);
	}
	return wrong;
}
